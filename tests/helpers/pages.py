"""Pages in HTML: their tables and texts, and how they look in a headless browser."""

import json
import re
import subprocess
from html.parser import HTMLParser


class Page(HTMLParser):
    """The tables of a page by the last heading before them, its elements, and its text."""

    def __init__(self, page):
        super().__init__()
        self.tables, self.tags, self.words, self.facts = {}, [], [], {}
        self._heading, self._open = "", []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in ("meta", "br"):
            self._open.append(tag)
        if tag == "table":
            self.tables.setdefault(self._heading, []).append([])
        if tag == "tr":
            self.tables[self._heading][-1].append([])
        if tag in ("td", "th"):
            self.tables[self._heading][-1][-1].append("")

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)
        inside = self._open[-1] if self._open else ""
        if inside in ("h2", "h3"):
            self._heading = data
        elif inside in ("td", "th"):
            self.tables[self._heading][-1][-1][-1] += data
        elif inside == "dt":
            self.facts[data] = self._fact = ""
            self._fact = data
        elif inside == "dd":
            self.facts[self._fact] += data

    def table(self, heading, number=0):
        """Return the cells of a table's body, numbers as such."""
        return [[as_number(cell) for cell in row] for row in self.tables[heading][number][1:]]


def as_number(cell):
    return float(cell.replace(",", "")) if re.fullmatch(r"[\d,.]+(e-\d+)?", cell) else cell


LOOK = """<!DOCTYPE html><body><script>
const pages = PAGES, widths = [360, 1280];
addEventListener("load", () => {
  const seen = {};
  for (const frame of document.querySelectorAll("iframe")) {
    const page = frame.contentDocument, root = page.documentElement;
    const right = (e) => e.getBoundingClientRect().right;
    const outside = [...page.querySelectorAll("main *")].filter(
      (e) => !e.closest(".scroll table") && right(e) > root.clientWidth + 0.5);
    seen[frame.dataset.name] = {
      style: getComputedStyle(page.querySelector("dl")).display,
      width: root.clientWidth, scrolls: root.scrollWidth,
      outside: outside.map((e) => e.outerHTML.slice(0, 200)), scripts: page.scripts.length,
      boxes: [...page.querySelectorAll("svg")].map((e) => [e.getBBox().width, e.getBBox().height]),
    };
  }
  document.body.innerHTML = "<pre></pre>";
  document.querySelector("pre").textContent = "SEEN" + JSON.stringify(seen) + "SEEN";
});
for (const page of pages) for (const width of widths) {
  const style = `border:0;width:${width}px;height:900px`;
  document.write(`<iframe data-name="${page} ${width}" src="${page}" style="${style}"></iframe>`);
}
</script></body>"""


def look(folder, pages):
    """Load pages from files in a headless browser.

    Return what a script finds in them, and what the console says.
    """
    (folder / "look.html").write_text(LOOK.replace("PAGES", json.dumps(pages)))
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        "--no-first-run",
    ]
    flags += [
        "--allow-file-access-from-files",
        "--enable-logging=stderr",
        f"--user-data-dir={folder / 'profile'}",
    ]
    done = subprocess.run(
        [
            "chromium",
            *flags,
            "--virtual-time-budget=5000",
            "--dump-dom",
            (folder / "look.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    seen = json.loads(
        done.stdout.split("SEEN")[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    )
    return seen, [line for line in done.stderr.splitlines() if "CONSOLE" in line]
