"""The report: its numbers against brute force, and its page in a real browser.

Ids, texts and pictures are hostile, and stores tiny.
"""

import base64
import io
import itertools
import os
import pty
import re
import shutil
import subprocess
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from commandline import COMMAND, failure, fine, run
from drawing import animation, encoded, scene
from pages import Page, look
from PIL import Image
from speeds import slow

import fpstore
from fpstore import ImageHash
from fpstore.pages.pictures import counts_up_to, format_short

DESIGNS = {32: "auto", 64: "manku-10", 128: "auto", 256: "columns-8-8"}
HOSTILE = [
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "</title></style><b>&amp;",
    "bell\x07 nul\x00 esc\x1b[31m",
    "\u202ereversed\u2066",
    "javascript:alert(1)",
    "x" * 5000,
    "café 書 👩\u200d🔬",
    "a\nb\tc",
    "]]>--><!--",
]


def report(store, radius=None, *, pairs=True, files_in=None, threads=1):
    """Return the page that the command writes."""
    options = [
        *(["--radius", radius] if radius is not None else []),
        *([] if pairs else ["--no-pairs"]),
        "--threads",
        threads,
    ]
    return fine(
        "report", store.path, "-q", *options, *(["--files-in", files_in] if files_in else [])
    )


def near_values(width, count, seed=5):
    """Return numbers in families: random ones, and others that differ from them in a few bits."""
    rng = np.random.default_rng(seed)
    centres = [int.from_bytes(rng.bytes(width // 8), "big") for _ in range(count)]
    near = [
        c ^ sum(1 << int(bit) for bit in rng.choice(width, 1 + i % 4, replace=False))
        for i, c in enumerate(centres)
    ]
    return centres + near[: count // 2]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("width", "strings"), [slow(32, True), (64, False), slow(128, False), (256, True)]
)
def test_numbers_are_those_of_brute_force(tmp_path, width, strings):
    values = near_values(width, 120)
    later = [*values[:2], values[3] ^ 1, values[4] ^ 6, values[5] ^ 7]
    ids = (
        [f"page {i}" for i in range(len(values) + 5)]
        if strings
        else list(range(100, 105 + len(values)))
    )
    with fpstore.build(
        tmp_path / "s.fps", values, ids[: len(values)], width=width, design=DESIGNS[width], radius=3
    ):
        pass
    with fpstore.open(tmp_path / "s.fps", "r+") as store:
        store.insert(later, ids[len(values) :])  # not merged
        rows = dict(zip(ids, values + later, strict=True))
        page, stats = Page(report(store, 2)), store.stats()
    fingerprints = sorted(set(rows.values()))
    assert [page.facts[name] for name in ("Fingerprints", "Ids", "Width", "Radius")] == [
        f"{len(fingerprints)}",
        f"{len(rows)}",
        f"{width} bits",
        "3",
    ]
    assert page.facts["Changes since the last merge"] == "5"
    assert {int(b) for _, b, *_ in page.table("Size")} == set(stats["bytes"].values())
    apart = [(a ^ b).bit_count() for a, b in combinations(fingerprints, 2)]
    assert page.table("Pairs") == [
        [0, len(rows) - len(fingerprints), "further ids of a fingerprint"],
        *([d, apart.count(d), "pairs of fingerprints"] for d in (1, 2)),
    ]
    sizes = family_sizes(rows, 2)
    assert page.table("Clusters") == [[size, sizes.count(size)] for size in sorted(set(sizes))]
    ones = [
        sum(value >> (width - 1 - bit) & 1 for value in fingerprints) / len(fingerprints)
        for bit in range(width)
    ]
    assert page.table("Skew") == [[bit, f"{share:.2%}"] for bit, share in enumerate(ones)]
    for bits, here, even, _ in page.table("Shared leading bits"):
        leading = [value >> (width - int(bits)) for value in fingerprints]
        assert here == pytest.approx(
            sum(leading.count(lead) - 1 for lead in leading) / len(leading), rel=0.01
        )
        assert even == pytest.approx((len(leading) - 1) / 2**bits, rel=0.01)
    check_coding(page, sorted(set(values)), width)


def family_sizes(rows, radius):
    """Return the sizes of the connected components of two or more, at most 3 here."""
    family = {row: {row} for row in rows}
    for a, b in combinations(rows, 2):
        if (rows[a] ^ rows[b]).bit_count() <= radius and family[a] is not family[b]:
            family[a] |= family[b]
            for row in family[b]:
                family[row] = family[a]
    return [
        len(part) for part in {id(part): part for part in family.values()}.values() if len(part) > 1
    ]


def check_coding(page, stored, width):
    """Compare the histogram of h, or the sizes of buckets, with the fingerprints of the tables."""
    if "First differing bit" in page.tables:
        result = page.table("First differing bit")
        places = [min(width - (a ^ b).bit_length(), 64) for a, b in pairwise(stored)]
        assert [row[:2] for row in result] == [[h, places.count(h)] for h in sorted(set(places))]
        assert sum(2.0 ** -row[3] for row in result) <= 1
    else:
        (bits,) = re.findall(r"into buckets by (\d+) bits", "".join(page.words))
        counts = np.bincount(
            [value >> (width - int(bits)) for value in stored], minlength=1 << int(bits)
        )
        assert [row[1] for row in page.table("Buckets")][:2] == [
            np.sum(counts == 0),
            np.sum(counts == 1),
        ]
        assert sum(row[1] for row in page.table("Buckets")) == 1 << int(bits)


@pytest.mark.full
def test_tiny_stores(tmp_path):
    for width, count in itertools.product(DESIGNS, (0, 1, 5)):
        with fpstore.build(
            tmp_path / "s.fps", near_values(width, 5)[:count], width=width, overwrite=True
        ) as store:
            for arguments in ({}, {"radius": 0}, {"radius": width}, {"pairs": False}):
                page = Page(report(store, **arguments))
                assert page.facts["Fingerprints"] == str(count)
                assert "nan" not in "".join(page.words[1:])
    assert "Pairs" not in page.tables
    assert "were left out" in "".join(page.words)


def test_a_store_of_changes_only(tmp_path):
    fpstore.build(tmp_path / "s.fps", []).close()
    with fpstore.open(tmp_path / "s.fps", "r+") as store:
        store.insert([1, 3], ["a", "b"])
        page = Page(report(store))
        assert page.table("Pairs")[1][:2] == [1, 1]
        store.delete(fingerprints=[1, 3])
        assert Page(report(store)).facts["Fingerprints"] == "0"


def test_ids_and_texts_cannot_change_the_page(tmp_path):
    with fpstore.build(
        tmp_path / "<b>&.fps", [7] * len(HOSTILE) + [7], [*HOSTILE, "second"]
    ) as store:
        plain = report(store)
    with fpstore.build(
        tmp_path / "plain.fps", [7] * len(HOSTILE) + [7], [f"id {i}" for i in range(11)]
    ) as store:
        tame = report(store)
    assert [tag for tag, _ in Page(plain).tags] == [tag for tag, _ in Page(tame).tags]
    assert "<script" not in plain
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", plain)
    assert "bell\\x07 nul\\x00" in plain
    assert "\\u202ereversed" in plain
    assert plain.encode().decode() == plain


@pytest.fixture
def notes(tmp_path, monkeypatch):
    """Make a store of four near texts: one has markup and no UTF-8, and one changes later."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "notes"
    folder.mkdir()
    words = " ".join(f"word{i}" for i in range(900)).encode()
    for name, data in (
        ("a", words),
        ("b", b"<i>bold</i> \x07\xff\x1b " + words),
        ("c", words),
        ("d", words),
    ):
        (folder / f"{name}.txt").write_bytes(data)
    fine("build", "notes.fps", "notes", "--text", "--radius", "8", "-q")
    (folder / "c.txt").write_text("something else")
    (folder / "d.txt").unlink()
    return folder


def report_in(folder, store="notes.fps", missing="1 of 4"):
    """Return the page, which tells as standard error does how many files are not there."""
    result = run("report", store, *(["--files-in", folder] if folder else []))
    message = f"The files of {missing} documents were not found"
    where = Path(folder or ".").absolute()
    assert (
        result.stderr
        == f"fpstore: {message}: paths are read from {where}; --files-in names another folder\n"
    )
    assert f"{message} in the folder from which their paths were read." in result.stdout
    return result.stdout


def test_texts_are_those_that_the_store_knows(notes, monkeypatch):
    page = fine("report", "notes.fps")
    assert "word0 word1" in page
    assert "&lt;i&gt;bold&lt;/i&gt; \ufffd\ufffd\ufffd word0" in page
    assert "something else" not in page
    assert "the file has changed since" not in page  # nobody said that ids are paths
    shown = report_in(".")
    assert "the file has changed since" in shown
    assert "no such file" in shown
    begun = [words for words in Page(shown).words if words.startswith("word0")]
    assert [len(words) for words in begun] == [301]
    assert begun[0].endswith("…")
    monkeypatch.chdir("/")
    assert "word0" not in fine("report", notes.parent / "notes.fps")
    assert report_in(notes.parent, notes.parent / "notes.fps") == shown


def test_texts_outside_the_folder_are_not_read(tmp_path, monkeypatch):
    (tmp_path / "secret.txt").write_text("a secret")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link.txt").symlink_to("../secret.txt")
    (inside / "fine.txt").write_text("fine")
    ids = ["../secret.txt", str(tmp_path / "secret.txt"), "link.txt", "fine.txt", "inside\0"]
    monkeypatch.chdir(inside)
    with fpstore.build(tmp_path / "s.fps", [1] * 5, ids) as store:
        assert "fine</bdi></p>" not in report(store)
        page = report(store, files_in=".")
    assert "a secret" not in page
    assert page.count("the path leads out of the folder") == 3
    assert "fine</bdi></p>" in page
    secret = fpstore.SimHash()
    # it does not know the text
    with fpstore.build(tmp_path / "t.fps", [1] * 2, ids[:2], fingerprinter=secret) as store:
        assert "a secret" not in report(store)


def test_the_same_store_makes_the_same_page(tmp_path):
    with fpstore.build(tmp_path / "s.fps", near_values(64, 5000), design="manku-10") as store:
        page = report(store, threads=1)
        assert report(store, threads=2) == page
    with fpstore.open(tmp_path / "s.fps") as store:
        assert report(store) == page
    assert str(tmp_path) not in page
    assert re.findall(r"<h2>([^<]*)", page) == [
        "Clusters",
        "Families",
        "Pairs",
        "Size",
        "Skew",
        "First differing bit",
    ]
    members = re.findall(r"<ol>(.*?)</ol>", page, flags=re.DOTALL)
    assert members
    for family in members:
        distances = [int(distance) for distance in re.findall(r'class="far">(\d+)<', family)]
        assert distances == sorted(distances)
    drawn = re.findall(
        r'class="value">[^<]*?([\d.]+)%</text>\s*<rect[^>]*class="groove"></rect>\s*<rect '
        r'[^>]*width="([\d.]+)%"',
        page,
    )
    assert len(drawn) >= 5
    # a bar is as long as its share
    assert all(abs(float(share) - float(width)) <= 0.06 for share, width in drawn)
    # of the parts of the store, the largest
    assert max(float(width) for _, width in drawn[1:]) < 99


def test_a_count_that_is_stopped_is_told_and_is_always_the_same(tmp_path, set_limits):
    set_limits(report_pairs=1000, join_rows=64, join_part_rows=32)  # threads share even this
    with fpstore.build(tmp_path / "s.fps", range(2000)) as store:
        page = report(store, threads=1)
        assert "The count stopped at 1,000 pairs" in page
        assert sum(row[1] for row in Page(page).table("Pairs")) == 1000
        assert report(store, threads=3) == page


def test_a_large_set_is_sampled(tmp_path, set_limits):
    values = np.random.default_rng(3).integers(0, 2**64, 100_000, np.uint64)
    with fpstore.build(tmp_path / "s.fps", values, design="manku-4") as store:
        whole = Page(report(store, pairs=False))
        set_limits(report_rows=1000)
        page = Page(report(store, pairs=False))
    assert "From a sample" not in "".join(whole.words)
    assert "".join(page.words).count("From a sample") == 2
    for bits, here, even, _ in page.table("Shared leading bits"):
        assert here == pytest.approx(even, rel=0.2), bits
    assert all(45 < float(share.rstrip("%")) < 55 for _, share in page.table("Skew"))
    fpstore.build(tmp_path / "t.fps", [1]).close()  # mostly changes
    with fpstore.open(tmp_path / "t.fps", "r+") as store:
        store.insert(np.arange(2, 500, dtype=np.uint64), np.arange(2, 500))
        set_limits(report_rows=10)
        # 2^8 stands in 256..499, of 499
        assert Page(report(store, pairs=False)).table("Skew")[55][1] == "48.90%"
    exact = {h: float(share.rstrip("%")) for h, _, share, _ in whole.table("First differing bit")}
    for h, _, share, _ in page.table("First differing bit"):
        assert float(share.rstrip("%")) == pytest.approx(exact[h], abs=2)


def test_families_are_shown_with_distances(tmp_path):
    values = [0, 1, 3, 3] + [7 << 60 | i << 20 for i in range(2) for _ in range(10)]
    with fpstore.build(tmp_path / "s.fps", values) as store:
        words = "".join(Page(report(store, 1)).words)
    assert "20 documents" in words
    assert "and 14 more" in words
    assert "4documents00112223" in "".join(words.split())  # distance, id


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Make a store of near pictures: one changes later, one has frames, one is large."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "photos"
    folder.mkdir()
    for name, size in (("a", (320, 240)), ("b", (300, 225)), ("c", (310, 230)), ("d", (305, 230))):
        (folder / f"{name}.png").write_bytes(encoded(scene(1).resize(size)))
    (folder / "moving.gif").write_bytes(animation(3))
    (folder / "again.gif").write_bytes(animation(3))
    fine("build", "p.fps", "photos", "--image", "--frame", "all", "-q")
    (folder / "c.png").write_bytes(encoded(scene(9)))
    (folder / "d.png").unlink()
    return folder


def pictures_of(page):
    """Return the id and the picture of each document that has one."""
    result = re.findall(
        r'src="data:image/jpeg;base64,([^"]*)" alt="">\s*<div class="what"><bdi>([^<]*)', page
    )
    return {name: Image.open(io.BytesIO(base64.b64decode(data))) for data, name in result}


def test_pictures_are_those_that_the_store_knows(photos, monkeypatch):
    shown = pictures_of(report_in(None, "p.fps", "1 of 10"))
    frames = [f"photos/{name}.gif#{number}" for name in ("again", "moving") for number in range(3)]
    assert sorted(shown) == sorted(["photos/a.png", "photos/b.png", *frames])
    for name, picture in shown.items():
        assert (picture.format, max(picture.size)) == ("JPEG", 64 if "#" in name else 96)
    small = scene(1).resize((96, 72))
    apart = np.asarray(small, int) - np.asarray(shown["photos/a.png"], int)
    assert np.abs(apart).mean() < 8
    page = report_in(".", "p.fps", "1 of 10")
    assert set(pictures_of(page)) == set(shown)
    assert "the file has changed since" in page
    assert "no such file" in page
    monkeypatch.chdir("/")
    assert pictures_of(report_in(None, photos.parent / "p.fps", "10 of 10")) == {}
    assert pictures_of(report_in(photos, photos.parent / "p.fps", "10 of 10")) == {}
    (photos / "photos").symlink_to("..")
    assert "the path leads out of the folder" in fine(
        "report", photos.parent / "p.fps", "--files-in", photos
    )


def test_pictures_with_several_fingerprints_have_a_report(tmp_path):
    with fpstore.build(
        tmp_path / "s.fps", [0, 0b1111, 0xFF], ["a", "a", "b"], radius=4, fingerprinter=ImageHash()
    ) as store:
        assert "that chains of pairs within radius 4 connect" in report(store)
    with fpstore.build(
        tmp_path / "t.fps", [0, 0b1111, 0xFF], radius=4, fingerprinter=ImageHash()
    ) as store:
        assert "whose documents are within radius 4 of the first one" in report(store)


@pytest.mark.full
def test_a_terminal_is_not_filled_with_a_page(tmp_path):
    fpstore.build(tmp_path / "s.fps", [1, 3]).close()
    leader, follower = pty.openpty()
    done = subprocess.run(
        [*COMMAND, "report", tmp_path / "s.fps"],
        stdout=follower,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    written = subprocess.run(
        [*COMMAND, "report", tmp_path / "s.fps", "-o", tmp_path / "r.html"],
        stdout=follower,
        check=True,
    )
    os.close(follower)
    os.close(leader)
    assert done.returncode == 2
    assert "which a terminal does not show: name a file, as --output report.html" in done.stderr
    assert written.returncode == 0
    assert (tmp_path / "r.html").exists()


def test_command_writes_a_whole_file_or_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fpstore.build("s.fps", [1, 3], ["a", "b"]).close()
    assert fine("report", "s.fps", "-o", "r.html") == ""
    first = (tmp_path / "r.html").read_text()
    assert (
        failure("report", "s.fps", "-o", "r.html")
        == "fpstore: r.html exists: --force replaces it\n"
    )
    fine("report", "s.fps", "-o", "r.html", "--force", "--radius", "1")
    assert (tmp_path / "r.html").read_text() != first
    assert fine("report", "s.fps") == first
    assert "is a folder" in failure("report", "s.fps", "-o", ".")
    assert "inside" in failure("report", "s.fps", "-o", "s.fps/r.html")
    assert "leave out" in failure("report", "s.fps", "--radius", "1", "--no-pairs", code=2)
    assert "whole number" in failure("report", "s.fps", "--radius", "65")
    (tmp_path / "s.fps" / "manifest.json").write_text("{}")
    failure("report", "s.fps", "-o", "new.html")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r.html", "s.fps"]


def test_ticks_are_round_and_reach_the_top_and_numbers_are_short():
    for most, ticks in (
        (0, [0, 1]),
        (1, [0, 1]),
        (2, [0, 1, 2]),
        (14, [0, 5, 10, 15]),
        (218, [0, 100, 200, 300]),
    ):
        assert counts_up_to(most).ticks == ticks
    numbers = (0, 7, 0.1, 1500, 2_500_000, 10**9, 10**12)
    assert " ".join(map(format_short, numbers)) == "0 7 0.1 1.5k 2.5M 1G 1T"


@pytest.mark.full
@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium")
def test_pages_in_a_browser(tmp_path, notes):
    """Of reports; and a page that is faulty."""
    with fpstore.open("notes.fps") as store:
        (tmp_path / "notes.html").write_text(report(store, files_in="."))
    with fpstore.build("wide.fps", near_values(256, 300), width=256, radius=31) as store:
        (tmp_path / "wide.html").write_text(report(store, 40))
    with fpstore.build(
        "hostile.fps",
        [7] * len(HOSTILE) + [9, 2**60],
        [*HOSTILE, "y" * 60000, "z"],
        design="manku-10",
    ) as store:
        (tmp_path / "hostile.html").write_text(report(store))
    with fpstore.build("empty.fps", []) as store:
        (tmp_path / "empty.html").write_text(report(store))
    (tmp_path / "faulty.html").write_text(
        "<main><dl></dl><script>no_such_function()</script><pre style='width:2000px'>a</main>"
    )
    pages = [f"{name}.html" for name in ("notes", "wide", "hostile", "empty")]
    seen, console = look(tmp_path, [*pages, "faulty.html"])
    faulty = seen.pop("faulty.html 360")  # the test sees faults
    assert (len(console), faulty["scrolls"] > 360, bool(faulty["outside"])) == (2, True, True)
    del seen["faulty.html 1280"]
    assert sorted(seen) == sorted(f"{page} {width}" for page in pages for width in (360, 1280))
    for name, item in seen.items():
        assert (item["style"], item["scripts"], item["width"]) == (
            "grid",
            0,
            int(name.split()[1]),
        ), name
        assert item["scrolls"] <= item["width"], (name, item)
        assert item["outside"] == [], name
        assert len(item["boxes"]) >= 1, name
        assert all(width > 0 and height > 0 for width, height in item["boxes"]), name
