"""docs/files.md, from a folder of files to clusters: its commands run as typed, and find what brute force finds."""

import os
import re
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import pytest

from fpstore.hashing import SimHash

PAGE = (Path(__file__).parents[2] / "docs" / "files.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(sh|console)\n(.*?)```", PAGE, flags=re.DOTALL)
HASHER = SimHash(size=2, width=128)
RADIUS = 28
MARK = "--- end of a command"


def commands():
    """Return the commands of the page in their order, each with the output shown below it; None if it shows none."""
    found = []
    for language, block in BLOCKS:
        if language == "sh":
            found += [(line, None) for line in block.splitlines()]
            continue
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            found.append((command, shown))
    return found


def without_figures(output):
    """Return the lines of an output without what depends on the contents of files: features that differ, and numbers."""
    text = re.sub(r"(?<=^Features whose weights differ most\n).*?(?=^and )", "", output, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"\b[0-9a-f]{16,32}\b|\d[\d,.]*", "N", text)
    return re.sub(r" +", " ", text)


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """Return the folder in which the commands ran, and what each printed."""
    folder = tmp_path_factory.mktemp("files")
    script = "\n".join(f"{command}\necho '{MARK}'" for command, _ in commands())
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    # Both outputs, as on a terminal.
    done = subprocess.run(
        ["bash", "-euc", script], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    assert done.returncode == 0, done.stdout
    printed = done.stdout.split(MARK + "\n")
    assert len(printed) == len(commands()) + 1
    return folder, printed


@pytest.fixture(scope="module")
def fingerprints(session):
    """Return the fingerprints of the files of the corpus, and of both new ones, by their paths."""
    folder, _ = session
    paths = sorted(path.relative_to(folder).as_posix() for path in (folder / "texts").rglob("*.py"))
    texts = {path: (folder / path).read_text(encoding="utf-8") for path in [*paths, "draft.py", "new.py"]}
    found = {path: HASHER.fingerprint(text) for path, text in texts.items() if not HASHER.is_empty(text)}
    assert 250 < len(found) < 1000
    return found


def output_of(verb, printed):
    """Return what the only command of a verb printed."""
    (output,) = [text for (command, _), text in zip(commands(), printed, strict=False) if command.startswith(f"fpstore {verb}")]
    return output


def near(fingerprints):
    return {
        (a, b): distance
        for a, b in combinations(sorted(fingerprints), 2)
        if (distance := (fingerprints[a] ^ fingerprints[b]).bit_count()) <= RADIUS
    }


def clusters_of(fingerprints):
    """Return the sets of two or more documents that chains of pairs connect."""
    sets = {name: {name} for name in fingerprints}
    for a, b in near(fingerprints):
        if sets[a] is not sets[b]:
            sets[a] |= sets[b]
            sets |= dict.fromkeys(sets[b], sets[a])
    return {frozenset(one) for one in sets.values() if len(one) > 1}


def read_clusters(path):
    """Return the clusters of a file, each with the document that stands for it."""
    members = {}
    for line in path.read_text().splitlines():
        name, _, first = line.split("\t")
        members.setdefault(first, set()).add(name)
    return {first: frozenset(names) for first, names in members.items()}


def test_the_page_shows_what_is_printed(session):
    _, printed = session
    compared = 0
    for (command, shown), output in zip(commands(), printed, strict=False):
        if shown is not None:
            assert without_figures(output) == without_figures(shown), command
            compared += bool(shown)
    assert compared == 5


def test_the_copy_is_near_and_the_stranger_is_far(session):
    _, printed = session
    distances = [int(re.search(r"^distance +(\d+)", text, re.MULTILINE)[1]) for text in printed if text.startswith("Two texts")]
    copy, stranger = distances
    assert copy <= 4
    assert stranger > 16


def test_the_calibration_supports_the_radius_of_the_page(session):
    folder, printed = session
    output = output_of("calibrate", printed)
    rows = {line.split()[0]: line.split() for line in output.splitlines() if line.startswith("size=")}
    assert set(rows) == {"size=1", "size=2", "size=2,width=128"}
    _, width, radius, recall, *_ = rows["size=2,width=128"]
    assert width == "128"
    assert abs(int(radius) - RADIUS) <= 3
    assert float(recall.rstrip("%")) > 90
    assert f" --width {width} --radius {RADIUS}" in PAGE
    headings = re.search(r"^kind +(.*)$", output, re.MULTILINE)[1].split()
    shares = re.search(r"^all +(.*)$", output, re.MULTILINE)[1].split()
    assert float(dict(zip(headings, shares, strict=True))[str(RADIUS)].rstrip("%")) > 90
    assert "<svg" in (folder / "calibration.html").read_text()


def test_the_probe_finds_the_original_and_all_that_is_near(session, fingerprints):
    _, printed = session
    output = output_of("probe", printed)
    found = {line.split("\t")[3]: int(line.split("\t")[2]) for line in output.splitlines()}
    query = fingerprints["draft.py"]
    stored = {name: value for name, value in fingerprints.items() if name.startswith("texts/")}
    distances = {name: (query ^ value).bit_count() for name, value in stored.items()}
    assert found == {name: distance for name, distance in distances.items() if distance <= RADIUS}
    assert "texts/argparse.py" in found


def test_pairs_and_clusters_are_those_of_brute_force(session, fingerprints):
    folder, _ = session
    stored = {name: value for name, value in fingerprints.items() if name != "draft.py"}  # which --unmatched left out
    lines = [line.split("\t") for line in (folder / "pairs.tsv").read_text().splitlines()]
    pairs = {(*sorted((a, b)),): int(distance) for _, _, distance, a, b in lines}
    assert pairs == {pair: distance for pair, distance in near(stored).items() if distance}  # equal ones need --duplicates
    assert len(pairs) > 100
    clusters = read_clusters(folder / "clusters.tsv")
    assert set(clusters.values()) == clusters_of(stored)
    assert len(clusters) > 4
    assert all(first in names for first, names in clusters.items())
    report = (folder / "report.html").read_text()
    assert max(clusters.values(), key=len) & set(re.findall(r"texts/[\w/]+\.py", report))


def test_one_of_each_cluster_is_kept(session, fingerprints):
    folder, _ = session
    corpus = {f"corpus/{name}": value for name, value in fingerprints.items() if name != "new.py"}
    clusters = read_clusters(folder / "removed.tsv")
    assert set(clusters.values()) == clusters_of(corpus)
    assert {"corpus/draft.py", "corpus/texts/argparse.py"} in clusters.values()
    removed = set().union(*clusters.values()) - set(clusters)
    files = {path.relative_to(folder).as_posix() for path in (folder / "corpus").rglob("*.py")}
    kept = {f"corpus/{path.relative_to(folder / 'clean').as_posix()}" for path in (folder / "clean").rglob("*.py")}
    assert kept == files - removed
    assert len(removed) > 20
