"""What the documentation shows is run, and every public name is in it."""

import doctest
import importlib
import inspect
import itertools
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from layers import LAYERS

import fpstore

ROOT = Path(__file__).parents[2]
API = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")


def blocks(page, language):
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def run_python(code, folder):
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_readme_python_example_prints_what_is_shown(tmp_path):
    (code,), (shown,) = blocks("README.md", "python"), blocks("README.md", "text")
    assert run_python(code, tmp_path) == shown


def test_tutorial_runs(tmp_path):
    for _ in range(2):  # it can be run again
        assert "distance" in run_python("\n".join(blocks("docs/tutorial.md", "python")), tmp_path)


def test_page_about_vectors_runs_and_has_true_figures(tmp_path):
    (code,) = blocks("docs/vectors.md", "python")
    radius, found = map(int, run_python(code, tmp_path).split())
    assert found > 950  # of 1000, at a recall of 99%
    page = (ROOT / "docs" / "vectors.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (0\.\d+) \| (.*) \|$", page, flags=re.MULTILINE)
    assert len(rows) == 4
    for cosine, cells in rows:
        cells = cells.split(" | ")
        for width, shown, far in zip((64, 128, 256), cells[::2], cells[1::2], strict=True):
            hasher = fpstore.HyperplaneHash(dimension=1, width=width)
            mean, radius = shown.split(", ")
            assert int(radius) == hasher.radius(float(cosine), 0.99)
            assert float(mean) == round(width * math.acos(float(cosine)) / math.pi, 1)
            assert float(far) == pytest.approx(hasher.recall(0.5, int(radius)), rel=0.35)


def session(page):
    """Return the commands of a page's shell session, each with the output shown below it."""
    lines = "".join(blocks(page, "console")).split("\n")[:-1]
    starts = [i for i, line in enumerate(lines) if line.startswith("$ ")] + [len(lines)]
    return [(lines[a][2:], lines[a + 1 : b]) for a, b in itertools.pairwise(starts)]


def without_seconds(line):
    return re.sub(r"[\d.]+ s$", "N s", line)


def test_readme_shell_session_prints_what_is_shown(tmp_path):
    assert len(session("README.md")) > 10
    shutil.copy(ROOT / "LICENSE", tmp_path)
    # The page is one of the documents: its own text would decide the last digit of the sizes that it shows.
    (tmp_path / "README.md").write_text("a page about something else\n")
    run_session("README.md", tmp_path)


def test_page_about_a_corpus_prints_what_is_shown(tmp_path):
    shutil.copy(ROOT / "LICENSE", tmp_path)
    run_session("docs/corpus.md", tmp_path)
    (code,), (shown,) = blocks("docs/corpus.md", "python"), blocks("docs/corpus.md", "text")
    assert run_python(code, tmp_path) == shown


def test_page_about_a_crawler_prints_what_is_shown(tmp_path):
    code, (shown,) = blocks("docs/crawler.md", "python"), blocks("docs/crawler.md", "text")
    assert len(code) == 4
    assert run_python("\n".join(code), tmp_path) == shown


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")
def test_page_about_a_crawler_in_node_prints_what_is_shown(tmp_path):
    (code,), (shown,), (build,) = (blocks("docs/crawler.md", language) for language in ("javascript", "json", "sh"))
    (tmp_path / "first.jsonl").write_text('{"url": "https://first.org/", "text": "the first page"}\n')
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-ec", build], cwd=tmp_path, env=environment, check=True, capture_output=True)
    done = subprocess.run(["node", "-e", code], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", shown)


def test_page_about_texts_prints_what_is_shown(tmp_path):
    run_session("docs/texts.md", tmp_path)
    code, shown = blocks("docs/texts.md", "python"), blocks("docs/texts.md", "text")
    assert len(code) == len(shown) == 3
    assert run_python("\n".join(code), tmp_path) == "".join(shown)


def run_session(page, folder):
    """Run the commands of a page in a shell, and compare what they print."""
    commands = session(page)
    mark = "--- end of a command"
    script = "\n".join(f"{command}\necho '{mark}'" for command, _ in commands)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    # Both outputs, as on a terminal.
    done = subprocess.run(
        ["bash", "-euc", script], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    assert done.returncode == 0, done.stdout
    for (command, shown), printed in zip(commands, done.stdout.split(mark + "\n"), strict=False):
        assert [*map(without_seconds, printed.splitlines())] == [*map(without_seconds, shown)], command


def test_public_names_are_documented():
    members = [name for name in vars(fpstore.Store) if not name.startswith("_")]
    for scope, names in ((fpstore, fpstore.__all__), (fpstore.Store, members)):
        for name in names:
            assert re.search(rf"\b{name}\b", API), name
            assert inspect.getdoc(getattr(scope, name)), name


@pytest.mark.parametrize(
    "name",
    [
        *("api", "store", "design.planner", "design.families", "hashing.text", "io.reader", "io.writers"),
        *("hashing.vectors", "hashing.codes", "hashing.readers"),
        *("calibration.job", "calibration.comparison"),
        "hashing.image",
    ],
)
def test_docstring_examples(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(importlib.import_module(f"fpstore.{name}"))
    assert result.attempted > 0
    assert result.failed == 0


def anchors(page):
    """Return the names under which the headings of a page can be linked to."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_pages_link_to_files_and_headings_that_exist():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target, heading in re.findall(r"\]\(([^)#:]*)(?:#([^)]+))?\)", page.read_text(encoding="utf-8")):
            linked = page.parent / target if target else page
            assert linked.exists(), f"{page.name}: {target}"
            assert not heading or heading in anchors(linked), f"{page.name}: {target}#{heading}"


def test_pages_that_are_made_are_up_to_date():
    for tool in ("make_api_docs", "make_benchmarks"):
        done = subprocess.run([sys.executable, ROOT / "tools" / tool, "--check"], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), tool


def test_stub_lists_what_the_kernel_has():
    from fpstore import _kernel

    stub = (ROOT / "fpstore" / "_kernel.pyi").read_text(encoding="utf-8")
    declared = set(re.findall(r"^(?:def|class) ([A-Za-z]\w*)|^(\w+): int", stub, flags=re.MULTILINE))
    names = {a or b for a, b in declared}
    assert names == {n for n in vars(_kernel) if not n.startswith("__")}
    bodies = {
        name: (bases, body) for name, bases, body in re.findall(r"^class (\w+)(.*?):\n((?: .*\n|\n)*)", stub, flags=re.MULTILINE)
    }

    def members(name):
        bases, body = bodies[name]
        return set(re.findall(r"^    (?:def )?(\w+)(?:\(|: Final)", body, flags=re.MULTILINE)).union(
            *map(members, re.findall(r"\w+", bases))
        ) - {"__init__"}

    kinds = [name for name in bodies if not name.startswith("_")]
    assert len(kinds) > 10
    for kind in kinds:
        assert members(kind) == {n for n in dir(getattr(_kernel, kind)) if not n.startswith("_")}, kind


ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "fpstore"


def test_architecture_page_names_files_that_exist():
    named = re.findall(r"`([\w/]+\.(?:py|cpp|hpp|inc))`", ARCHITECTURE)
    assert len(set(named)) > 40
    assert [name for name in named if not ((ROOT if name.startswith("tests/") else PACKAGE) / name).is_file()] == []


def test_architecture_page_names_every_folder():
    folders = {p.parent.relative_to(PACKAGE).as_posix() for kind in ("py", "hpp") for p in PACKAGE.rglob(f"*.{kind}")} - {"."}
    assert len(folders) > 10
    assert [folder for folder in sorted(folders) if f"{folder}/" not in ARCHITECTURE] == []


def test_architecture_page_draws_the_layers_that_the_tests_hold():
    rows = [row.split("    ")[0].split() for row in blocks("docs/architecture.md", "text")[0].splitlines()]
    drawn = [{unit.removesuffix(".py").rstrip("/") for unit in row} for row in rows]
    assert drawn[::-1] == [set(units) for units in LAYERS]
