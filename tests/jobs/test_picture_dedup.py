"""Deduplication of pictures: which one stays, orientations, links, lists, and the review page."""

import base64
import hashlib
import html
import json
import os
import re
import shutil
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from commandline import failure, fine, run
from drawing import animation, encoded, scene
from near_pairs import wanted_groups, wanted_pairs, wanted_sets
from PIL import Image, ImageOps
from speeds import slow

import fpstore
from fpstore import ImageHash
from fpstore.base.resources import Resources
from fpstore.base.width import Width, row_places
from fpstore.errors import InputError, StorageError, StoreExistsError
from fpstore.hashing import ImageReader
from fpstore.hashing.pictures import PictureFacts
from fpstore.jobs.grouping import members_in_sets
from fpstore.jobs.picture_review import read_choices
from fpstore.jobs.variants import RowVariants

# ---- rows in several variants, beside brute force ----


def made_variants(width, count, seed):
    """Return rows with variants, some near variants of other rows, some equal to them."""
    rng = np.random.default_rng(seed)
    words = width.words
    rows = rng.integers(0, 2**64, (count, 4, words), np.uint64)
    if width.bits == 32:
        rows &= np.uint64(0xFFFFFFFF << 32)
    for number in range(1, count):
        if rng.random() < 0.6:
            near = rows[rng.integers(number), rng.integers(4)].copy()
            for bit in rng.integers(0, min(width.bits, 64), rng.integers(4)).tolist():
                near[rng.integers(words)] ^= np.uint64(1 << (63 - bit))
            rows[number, rng.integers(4)] = near
    return rows


def brute_distances(rows):
    """Return the least distance of each row and a variant of another one, either way."""
    one_way = np.array(
        [[np.bitwise_count(a[0] ^ b).sum(axis=1).min() for b in rows] for a in rows], int
    )
    return np.minimum(one_way, one_way.T)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("bits", [32, 64, 128, 256])
@pytest.mark.parametrize("radius", [0, 1, 3, 8])
@pytest.mark.parametrize("threads", [1, 2])
def test_near_variants_are_those_of_brute_force(bits, radius, threads):
    width = Width(bits)
    for count, seed in ((1, 1), (2, 2), (60, 3), (61, 4)):
        rows = made_variants(width, count, seed)
        variants, distances = RowVariants(rows, width), brute_distances(rows)
        a, b = np.divmod(np.arange(count * count), count)
        assert variants.distances(a, b).tolist() == distances.ravel().tolist()
        sets = variants.connect(radius, Resources(1 << 26, threads))
        assert sets.tolist() == wanted_sets(distances, radius)
        members = members_in_sets(sets)[0]
        ranks = np.random.default_rng(seed).permutation(count)[members.documents.view(np.intp)]
        places = members.documents.view(np.intp)
        split = variants.at(places).split_chains(members, ranks, radius)
        groups = [split.documents[a:b].tolist() for a, b in pairwise(split.lims.tolist())]
        order = np.empty(count, int)
        order[members.documents.view(np.intp)] = ranks
        assert groups == wanted_greedy(distances, radius, order)


def test_a_row_between_two_representatives_goes_to_the_first():
    rows = np.array([0b1111, 0b0011, 0b0000], np.uint64)[:, None, None]
    variants = RowVariants(np.concatenate([rows, ~rows], axis=1), Width(64))
    members = members_in_sets(variants.connect(2, Resources(1 << 26, 1)))[0]
    for ranks, kept in (([0, 2, 1], 0), ([1, 2, 0], 2), ([2, 0, 1], 1)):
        split = variants.split_chains(members, np.array(ranks), 2)
        assert split.documents[0] == kept
        assert split.lims[1] == (3 if kept == 1 else 2)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("bits", [32, 64, 256])
@pytest.mark.parametrize("radius", [0, 2, 8])
@pytest.mark.parametrize("threads", [1, 2])
def test_pairs_of_variants_are_those_of_brute_force(bits, radius, threads):
    width = Width(bits)
    for count, seed in ((1, 1), (70, 5), (71, 6)):
        rows = made_variants(width, count, seed)
        words = rows[:, 0, 0] if width.words == 1 else rows[:, 0]
        _, first = np.unique(words, axis=0, return_index=True)
        rows, words = rows[first], words[first]
        found = []
        pairs = RowVariants(rows, width).pairs(radius, Resources(1 << 26, threads))
        for a, b, distances in pairs:
            places = [row_places(words, side).tolist() for side in (a, b)]
            found += zip(*places, distances.tolist(), strict=True)
        assert sorted(found) == wanted_pairs(brute_distances(rows), radius)


def wanted_greedy(distances, radius, ranks):
    """Return groups whose members are within the radius of the first, which has the least rank."""
    groups = {}
    for members in wanted_groups(distances, radius):
        firsts = []
        for member in sorted(members, key=lambda member: ranks[member]):
            if all(distances[first, member] > radius for first in firsts):
                firsts.append(member)
        for member in members:
            first = member
            if member not in firsts:
                first = min(firsts, key=lambda first: (distances[first, member], ranks[first]))
            groups.setdefault(first, []).append(member)
    listed = [[first, *sorted(set(names) - {first})] for first, names in groups.items()]
    return sorted((group for group in listed if len(group) > 1), key=min)


# ---- which picture stays ----


def dated(picture, date, tag=0x9003):
    exif = Image.Exif()
    if tag == 0x0132:
        exif[tag] = date
    else:
        exif.get_ifd(0x8769)[tag] = date
    return encoded(picture, "JPEG", exif=exif)


@pytest.fixture(scope="module")
def drawn_photos(tmp_path_factory):
    """Make a folder with copies of three pictures."""
    tmp_path = tmp_path_factory.mktemp("drawn")
    (tmp_path / "photos/trip").mkdir(parents=True)
    for name, data in {
        "a.jpg": dated(scene(1), "2020:05:06 07:08:09"),
        "b large.png": encoded(scene(1).resize((640, 480))),
        "trip/c.jpg": dated(scene(1).resize((200, 150)), "2021-01-01 00:00:00", 0x9004),
        "d mirrored.png": encoded(ImageOps.mirror(scene(2))),
        "trip/e.jpg": dated(scene(2), "1999:12:31 23:59:59", 0x0132),
        "f.png": encoded(scene(3)),
        "blank.png": encoded(Image.new("RGB", (64, 48), "navy")),
        "cut.jpg": encoded(scene(1), "JPEG")[:900],
        "notes.txt": b"no picture",
    }.items():
        (tmp_path / "photos" / name).write_bytes(data)
    time = datetime(2010, 1, 2, 3, 4, 5).timestamp()
    for path in (tmp_path / "photos").rglob("*.*"):
        os.utime(path, (time, time))
    return tmp_path / "photos"


@pytest.fixture
def photos(drawn_photos, tmp_path, monkeypatch):
    """Copy the folder, and step into its parent."""
    shutil.copytree(drawn_photos, tmp_path / "photos")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "photos"


OTHERS = ["photos/blank.png", "photos/f.png"]
E, D = "photos/trip/e.jpg", "photos/d mirrored.png"


@pytest.mark.parametrize(
    ("keep", "kept"),
    [
        ("largest", ["photos/b large.png", D]),
        ("newest", ["photos/trip/c.jpg", D]),
        ("oldest", ["photos/b large.png", E]),
        ("first", ["photos/a.jpg", D]),
    ],
)
def test_one_picture_of_each_group_stays(photos, keep, kept):
    """The mirrored PNG and the JPEG have as many pixels, and the PNG has more bytes."""
    result = fpstore.dedup_pictures("photos", "best", keep=keep, orientations=8, threads=2)
    assert sorted(result.kept) == sorted([*kept, *OTHERS])
    files = sorted(str(path.relative_to("best")) for path in Path("best").rglob("*.*"))
    assert [f"photos/{name}" for name in files] == sorted(result.kept)
    for name in files:
        assert Path("best", name).read_bytes() == Path("photos", name).read_bytes()
    assert result.not_compared == 1  # the blank one, which stays
    assert sorted(map(len, result.clusters)) == [2, 3]
    assert [group[0] for group in result.clusters] == [
        name for name in result.kept if name in kept
    ] or keep != "first"
    assert max(result.removed.evidence["distance"]) <= 10
    with pytest.raises(StoreExistsError, match="best exists"):
        fpstore.dedup_pictures("photos", "best")


def test_equal_pictures_keep_the_larger_file_then_the_first(tmp_path):
    for name, level in (("a.png", 9), ("b.png", 0), ("c.png", 0)):
        (tmp_path / name).write_bytes(encoded(scene(1), compress_level=level))
    assert fpstore.dedup_pictures(tmp_path).kept == [f"{tmp_path}/b.png"]
    assert fpstore.dedup_pictures(tmp_path, keep="newest", group="connected").kept


def test_only_orientations_find_mirrored_pictures(photos):
    hasher = ImageHash(method="pdq")
    assert {E, D} <= set(fpstore.dedup_pictures("photos", fingerprinter=hasher).kept)
    result = fpstore.dedup_pictures("photos", fingerprinter=hasher, orientations=8)
    assert set(result.kept) == {"photos/b large.png", D, *OTHERS}
    assert fpstore.dedup_pictures(["photos/f.png", D]).kept == ["photos/f.png", D]


def test_dates_come_from_exif_or_the_file(photos):
    facts = PictureFacts.read(photos / "a.jpg")
    assert (facts.width, facts.height, facts.is_dated) == (320, 240, True)
    assert (facts.date, facts.bytes) == (
        datetime(2020, 5, 6, 7, 8, 9),
        (photos / "a.jpg").stat().st_size,
    )
    assert PictureFacts.read(photos / "f.png").date == datetime(2010, 1, 2, 3, 4, 5)
    for date in ("0000:00:00 00:00:00", "2020:13:01 00:00:00", "    ", "a date"):
        (photos / "g.jpg").write_bytes(dated(scene(4), date))
        assert not PictureFacts.read(photos / "g.jpg").is_dated
    (photos / "g.tif").write_bytes(encoded(scene(4), "TIFF", tiffinfo={306: "2001:02:03 04:05:06"}))
    assert PictureFacts.read(photos / "g.tif").date == datetime(2001, 2, 3, 4, 5, 6)


def test_links_share_the_file(photos, monkeypatch):
    fpstore.dedup_pictures("photos", "best", links=True)
    assert Path("best/f.png").samefile("photos/f.png")
    assert all(path.exists() for path in photos.rglob("*.*"))

    def cross_device(*_):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", cross_device)
    with pytest.raises(StorageError, match="cross-device"):
        fpstore.dedup_pictures("photos", "other", links=True)
    assert not Path("other").exists()


def test_wrong_arguments_are_refused(photos):
    for arguments, message in (
        ({"keep": "longest"}, "keep must be one of largest, newest, oldest, first, got 'longest'"),
        ({"orientations": 4}, "orientations must be 1 or 8, got 4"),
        ({"radius": 65}, "radius must be"),
        ({"group": "all"}, "group must be one of"),
        ({"links": 1}, "links must be"),
        ({"fingerprinter": fpstore.SimHash()}, "fingerprinter must be an ImageHash, got SimHash"),
        ({"fingerprinter": ImageHash(frame="all")}, "its first frame is compared"),
    ):
        with pytest.raises(InputError, match=message):
            fpstore.dedup_pictures("photos", **arguments)
    with pytest.raises(InputError, match=r"notes\.txt: is no picture"):
        fpstore.dedup_pictures(["photos", "photos/notes.txt"])
    Path("empty").mkdir()
    with pytest.raises(InputError, match="empty: no rows"):
        fpstore.dedup_pictures("empty")


# ---- pairs and clusters of a store, whose pictures are read again ----


def build_photos(hasher, *, ids=None):
    reader = ImageReader("photos", hasher)
    fingerprinter = {"fingerprinter": hasher, "radius": hasher.usual_radius}
    if ids is None:
        return fpstore.build("photos.fps", reader, width=hasher.width, **fingerprinter)
    (chunk,) = reader
    return fpstore.build("ids.fps", chunk.fingerprints, ids, width=hasher.width, **fingerprinter)


@pytest.mark.parametrize("method", ["perceptual", slow("pdq")])
def test_pairs_and_clusters_of_a_store_have_turned_pictures(photos, method):
    for turn in Image.Transpose:
        (photos / f"turned {turn.name}.jpg").write_bytes(
            encoded(scene(1).transpose(turn).resize((300, 300)), "JPEG")
        )
    hasher = ImageHash(method=method)
    store = build_photos(hasher)
    names = sorted(name for _, _, names in store.items() for name in names)
    rows = {name: hasher.orientations(name) for name in names}

    def distance(a, b):
        bits = [
            np.bitwise_count(rows[x][:1] ^ rows[y]).reshape(8, -1).sum(axis=1).min()
            for x, y in ((a, b), (b, a))
        ]
        return int(min(bits))

    expected = {
        (a, b): distance(a, b)
        for a in names
        for b in names
        if a < b
        and store.fingerprints_of([a])[1][0:1].tolist()
        != store.fingerprints_of([b])[1][0:1].tolist()
    }
    expected = {pair: bits for pair, bits in expected.items() if bits <= store.radius}
    found = {}
    for batch in store.pairs(orientations=8, threads=2):
        assert all(pair.a < pair.b for pair in batch)
        for columns in batch.rows_of_ids():
            for a, b, bits in zip(
                columns["id_a"], columns["id_b"], columns["distance"].tolist(), strict=True
            ):
                assert tuple(sorted((a, b))) not in found
                found[tuple(sorted((a, b)))] = bits
    assert found == expected
    assert len(found) > 20
    connected = store.clusters(orientations=8, group="connected")
    greedy = store.clusters(orientations=8)
    assert sorted(map(len, connected)) == sorted(map(len, greedy)) == [2, 10]
    for group in greedy:
        assert all(distance(group[0], name) <= store.radius for name in group)
    assert len(list(store.clusters())) < 3


def test_pairs_of_turned_pictures_say_what_they_cannot_read(photos):
    store = build_photos(ImageHash())
    with pytest.raises(InputError, match="lists no pictures with equal fingerprints"):
        store.pairs(orientations=8, duplicates=True)
    with pytest.raises(InputError, match="orientations must be 1 or 8"):
        store.clusters(orientations=2)
    numbered = build_photos(ImageHash(), ids=range(6))
    with pytest.raises(StorageError, match="No such file"):
        numbered.clusters(orientations=8)
    (photos / "f.png").write_bytes(encoded(scene(9)))
    with pytest.raises(InputError, match=r"f\.png: has another fingerprint than in the store"):
        list(store.pairs(orientations=8))
    (photos / "f.png").write_bytes(encoded(Image.new("L", (50, 50))))
    assert "has another fingerprint" in failure("cluster", "photos.fps", "--orientations", 8)
    fpstore.build("plain.fps", [1, 2, 3])
    message = failure("pairs", "plain.fps", "--orientations", 8)
    assert "--orientations 8 is for a store that was built of pictures" in message


def test_frames_are_read_again_by_their_numbers(photos):
    for path in photos.glob("*.*"):
        path.unlink()
    (photos / "g.gif").write_bytes(animation(3))
    store = build_photos(ImageHash(frame="all"))
    assert sorted(name for _, _, ids in store.items() for name in ids)[0] == "photos/g.gif#0"
    assert len(store.clusters(0, orientations=8)) == 0


# ---- the command, the page, and its choices ----

NOTES = (
    "fpstore: 1 file left out, broken pictures: photos/cut.jpg\n"
    "fpstore: 1 file left out, no picture: photos/notes.txt\n"
)


def test_the_command_writes_a_folder_or_a_list(photos):
    options = ("--image", "--orientations", 8, "--removed", "copies.jsonl", "--no-progress")
    result = run("dedup", "photos", "best", *options, "--left-out", "left.tsv")
    assert (result.exit_code, result.stderr) == (0, NOTES)
    assert "not compared  1  nearly blank pictures; kept" in re.sub("  +", "  ", result.stdout)
    assert Path("left.tsv").read_text() == "photos/cut.jpg\tbroken\nphotos/notes.txt\tother\n"
    rows = [json.loads(line) for line in Path("copies.jsonl").read_text().splitlines()]
    assert {row["id"]: row["kept"] for row in rows} == {
        "photos/a.jpg": "photos/b large.png",
        "photos/trip/c.jpg": "photos/b large.png",
        E: D,
    }
    out = fine("dedup", "photos", "kept.csv", *options, "--force", "--json", "-q")
    assert (json.loads(out)["documents"], json.loads(out)["kept"]) == (7, 4)
    listed = Path("kept.csv").read_text().splitlines()
    assert listed[0] == "id"
    assert sorted(listed[1:]) == sorted(["photos/b large.png", D, *OTHERS])
    for arguments, message in (
        (("best2", "--threshold", 0.5), "--threshold is not for pictures"),
        (("best2", "--keep", "longest"), "--keep: must be one of largest, newest"),
        (("k.csv", "--links"), "--links is for a folder, and OUTPUT is a list"),
        (("best2", "--resume"), "--resume is not for pictures"),
        (("best2", "--choices", "x", "--radius", 3), "--radius compares pictures: leave it or"),
    ):
        assert message in failure("dedup", "photos", *arguments, "--image", code=2)
    assert "--left-out is for pictures" in failure(
        "dedup", "kept.csv", "x.csv", "--text-field", "id", "--left-out", "l.tsv", code=2
    )
    assert "--orientations is for pictures (--image), not for" in failure(
        "dedup", "kept.csv", "x.csv", "--text-field", "id", "--orientations", 8, code=2
    )


def page_choices(page):
    """Return the ids of the boxes on a page, and whether they are ticked."""
    boxes = re.findall(r"<input type=\"checkbox\" data-id='([^']*)'( checked)?>", page)
    return {json.loads(html.unescape(name)): bool(ticked) for name, ticked in boxes}


def test_choices_of_the_page_are_applied(photos):
    odd = photos / "o'dd <b>&\n\x07é.png"
    odd.write_bytes(encoded(scene(3).resize((100, 75))))
    options = ("--image", "--orientations", 8, "--removed", "copies.jsonl", "-q")
    fine("dedup", "photos", "best", *options)
    assert "4 removed pictures" in fine("review", "copies.jsonl", "--image")
    page = Path("copies.html").read_text()
    removed = {"photos/a.jpg", "photos/trip/c.jpg", E, f"photos/{odd.name}"}
    kept = {"photos/b large.png", D, "photos/f.png"}
    assert page_choices(page) == dict.fromkeys(removed, False) | dict.fromkeys(kept, True)
    assert page.count("<img src=") == 7
    assert "640 \u00d7 480" in page
    assert "2020-05-06 07:08" in page
    assert "2010-01-02 03:04 (file)" in page
    # one script runs, which the policy names by its hash, and nothing is loaded
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; script-src 'sha256-{digest}'; img-src data:;" in page
    assert not re.search(r"(src|href)=[\"'](?!data:)|<b>&", page)

    choices = page_choices(page) | {"photos/a.jpg": True, "photos/b large.png": False}
    Path("choices.jsonl").write_text(
        "".join(
            json.dumps({"id": name, "choice": "keep" if ticked else "remove"}) + "\n"
            for name, ticked in choices.items()
        )
    )
    (photos / "cut.jpg").unlink()
    (photos / "notes.txt").unlink()
    line = fine("dedup", "photos", "chosen", "--image", "--choices", "choices.jsonl", "--links")
    assert line.startswith("chosen: 4 of 8 pictures kept, ")
    names = {f"photos/{path.relative_to('chosen')}" for path in Path("chosen").rglob("*.*")}
    assert names == {"photos/a.jpg", D, *OTHERS}
    fine("dedup", "photos", "kept.jsonl", "--image", "--choices", "choices.jsonl", "-q")
    lines = Path("kept.jsonl").read_text().splitlines()
    assert {json.loads(line)["id"] for line in lines} == names
    odd.unlink()
    message = failure("dedup", "photos", "c2", "--image", "--choices", "choices.jsonl")
    assert "is in the list of choices, and no picture of photos" in message


def test_the_page_shows_the_most_doubtful_and_says_what_cannot_be_read(photos):
    Path("copies.tsv").write_text(
        "id\tkept\tdistance\nphotos/a.jpg\tphotos/b large.png\t2\n"
        "photos/gone.png\tphotos/f.png\t9\nphotos/notes.txt\tphotos/f.png\t4\n"
    )
    fine("review", "copies.tsv", "some.html", "--image", "--pairs", 2)
    page = Path("some.html").read_text()
    assert list(page_choices(page)) == ["photos/f.png", "photos/notes.txt", "photos/gone.png"]
    assert "Here are 2 of the 3 pictures that go" in page
    assert "No such file" in page
    assert "is no picture of a format" in page
    Path("other.tsv").write_text("id\ttext\n")
    assert "other.tsv: is no list of removed pictures: it has no kept" in failure(
        "review", "other.tsv", "--image"
    )


def test_lists_that_are_no_choices_are_refused(tmp_path):
    path = tmp_path / "choices.jsonl"
    path.write_text('{"id": "a", "choice": "remove"}\n{"id": "b", "choice": "keep"}\n')
    assert read_choices(path) == {"a"}
    for line in ("", "x", "[]", '{"id": 3, "choice": "keep"}', '{"id": "a", "choice": "go"}'):
        path.write_text(f'{{"id": "a", "choice": "keep"}}\n{line}\n')
        with pytest.raises(InputError, match=r"choices\.jsonl:2: is no choice such as"):
            read_choices(path)
