"""Folders that tasks share.

A name appears once and whole, and the files of results say what is damaged.
"""

import json
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

import fpstore
from fpstore.base.strings import StringColumn
from fpstore.work.pieces import Pieces, PieceWriter, concatenate_arrays
from fpstore.work.places import (
    DiskPlace,
    StoredPlace,
    is_inside,
    open_place,
    scratch_folder,
    unfinished_prefix,
)

KINDS = ["disk", "stored"]


@pytest.fixture(params=KINDS)
def place(request, tmp_path):
    """Return a place on a disk, or in a store of pyarrow that happens to be one.

    All but the names are as in S3.
    """
    return (
        DiskPlace(tmp_path / "place")
        if request.param == "disk"
        else StoredPlace(f"file://{tmp_path}/place")
    )


@pytest.fixture
def rooted(tmp_path):
    (tmp_path / "place").mkdir()
    return tmp_path / "place"


def publish(place, name, data):
    with place.create_file(name) as path:
        path.write_bytes(data)


def test_the_first_one_wins(place, rooted):
    assert (place.size("a"), place.names()) == (None, [])
    with place.create_file("a") as slow:
        slow.write_bytes(b"late")
        assert place.publish("a", b"first") == b"first"
    assert (place.read_all("a"), place.size("a")) == (b"first", 5)
    assert [place.read("a", *part) for part in ((1, 3), (3, 9), (9, 2))] == [b"irs", b"st", b""]
    with place.open("a") as file:
        assert (Path(file).read_bytes() if isinstance(file, str) else file.read()) == b"first"
    assert [path.name for path in rooted.iterdir()] == ["a"]


def test_names(place, rooted):
    for name in ("results/b", "results/a", "resulting", "other"):
        (rooted / name).parent.mkdir(exist_ok=True)
        place.publish(name, b"")
    assert place.names("results/") == ["results/a", "results/b"]
    assert place.names("result") == ["resulting", "results/a", "results/b"]
    assert place.names() == ["other", "resulting", "results/a", "results/b"]
    assert place.names("nothing/") == []
    assert place.label("results/a").endswith("/place/results/a")
    place.replace("other", b"new")
    assert place.read_all("other") == b"new"
    place.remove()
    assert not rooted.exists()
    place.remove()


def test_what_is_not_there(place, rooted):
    for work in (
        lambda: place.read_all("a"),
        lambda: place.read("a", 0, 1),
        lambda: place.on_disk("a", rooted).open(),
    ):
        with pytest.raises((fpstore.StoreNotFoundError, FileNotFoundError), match="a"):
            work()


def test_an_error_publishes_nothing(place, rooted):
    def fail():
        with place.create_file("a") as path:
            path.write_bytes(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(rooted.iterdir()) == []


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_something_else_has_the_name(rooted, kind):
    """It is not taken for what another task has published."""
    place = DiskPlace(rooted)
    (rooted / "a").write_text("old") if kind == "folder" else (rooted / "a").mkdir()
    with (
        pytest.raises(fpstore.StorageError, match=r"place/a: (File exists|Not a directory)"),
        place.create_file("a") as path,
    ):
        path.mkdir() if kind == "folder" else path.write_bytes(b"new")
    assert (rooted / "a").is_file() == (kind == "folder")


def test_a_folder_appears_whole(rooted):
    place = DiskPlace(rooted)
    for content in ("first", "second"):
        with place.create_file("sub/shard") as path:
            path.mkdir()
            (path / "table").write_text(content)
            assert content == "second" or not (rooted / "sub/shard").exists()
    assert (rooted / "sub/shard/table").read_text() == "first"
    assert os.listdir(rooted / "sub") == ["shard"]  # noqa: PTH208


def test_a_disk_without_links(rooted, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    place = DiskPlace(rooted)
    assert (place.publish("a", b"one"), place.publish("a", b"two")) == (b"one", b"one")
    assert os.listdir(rooted) == ["a"]  # noqa: PTH208


def test_what_killed_processes_have_left(rooted):
    """Of other machines it stays until the end: their locks may not be seen here."""
    place, own = DiskPlace(rooted), unfinished_prefix()
    (rooted / f"{own}dead").mkdir()
    (rooted / ".unfinished-00000000-far").mkdir()
    with place.create_file("a") as held:
        held.write_bytes(b"")
        place.publish("b", b"")
        place.remove_unfinished("b")
        assert held.exists()
    assert sorted(path.name for path in rooted.iterdir()) == ["a", "b"]
    assert unfinished_prefix(rooted / "nothing") != own


def test_another_machine_is_left_alone(rooted):
    (rooted / ".unfinished-00000000-far").mkdir()
    DiskPlace(rooted).publish("b", b"")
    assert (rooted / ".unfinished-00000000-far").exists()


def test_scratch_folders(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "fpstore-task-dead").mkdir()
    with scratch_folder() as folder, scratch_folder() as other:
        assert sorted(tmp_path.iterdir()) == sorted([folder, other])
        assert folder.stat().st_mode & 0o777 == 0o700
    assert list(tmp_path.iterdir()) == []


def test_paths_and_uris(tmp_path):
    assert open_place(f"file://{tmp_path}/a b/größe%20#").uri == f"file://{tmp_path}/a b/größe%20#"
    assert open_place("relative").uri == os.path.abspath("relative")  # noqa: PTH100
    assert all(is_inside(path, "s3://b/x") for path in ("s3://b/x/y", "s3://b/x/"))
    assert not any(is_inside(path, "s3://b/x") for path in ("s3://b/xy", "/b/x"))
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert is_inside(str(tmp_path / "link" / "x"), str(tmp_path / "real"))
    assert not is_inside(str(tmp_path / "reality"), str(tmp_path / "real"))


# --- Files of results -----------------------------------------------------------------------------

ARRAYS = {
    "words": np.arange(5, dtype=np.uint64),
    "none": np.empty(0, np.uint8),
    "wide": np.arange(6, dtype=np.uint16).reshape(3, 2),
    "signed": np.array([-1, 2], np.int64),
}
IDS = StringColumn.from_strings(["a", "", "größe"])


def write(path, facts=None):
    with PieceWriter(path, facts or {"plan": "digest"}) as writer:
        for name, array in ARRAYS.items():
            writer.add(name, array)
        writer.add_ids("ids", IDS)
        writer.add_ids("numbers", ARRAYS["words"])
        writer.add_ids("missing", None)
        writer.add_slices(
            "slices", ARRAYS["wide"], [np.array([2]), np.array([], np.intp), np.array([0, 1])]
        )
    return path


def read(place):
    pieces = Pieces(place, "x.pieces")
    slices = [pieces.read("slices", number) for number in range(3)]
    results = {name: pieces.read(name) for name in ARRAYS} | {"slices": np.concatenate(slices)}
    ids = (
        pieces.read_ids("ids").texts(),
        pieces.read_ids("numbers").tolist(),
        pieces.read_ids("missing"),
    )
    return (
        pieces.facts,
        {name: (item.dtype, item.shape, item.tobytes()) for name, item in results.items()},
        ids,
    )


def test_pieces(place, rooted):
    write(rooted / "x.pieces")
    facts, arrays, ids = read(place)
    assert facts == {"plan": "digest"}
    assert arrays.pop("slices") == (np.uint16, (3, 2), ARRAYS["wide"][[2, 0, 1]].tobytes())
    assert arrays == {
        name: (item.dtype, item.shape, item.tobytes()) for name, item in ARRAYS.items()
    }
    assert ids == (["a", "", "größe"], [0, 1, 2, 3, 4], None)
    pieces = Pieces(place, "x.pieces")
    assert ("words" in pieces, "other" in pieces) == (True, False)
    assert concatenate_arrays([pieces, pieces], "words").tolist() == [*range(5), *range(5)]


def test_pieces_of_a_large_index(rooted):
    """It does not fit into the end that is read first."""
    with PieceWriter(rooted / "x.pieces", {"many": "x" * 200_000}) as writer:
        writer.add("words", ARRAYS["words"])
    pieces = Pieces(DiskPlace(rooted), "x.pieces")
    assert (len(pieces.facts["many"]), pieces.read("words").tolist()) == (200_000, [0, 1, 2, 3, 4])


def damaged(place):
    with pytest.raises(
        fpstore.CorruptStoreError, match=r"x\.pieces: damaged: remove it, and run its task again$"
    ):
        read(place)


def test_any_bit_of_pieces(rooted):
    """Each array, the index and the trailer.

    No change of one bit, and no cut, is taken for a result.
    """
    place, path = DiskPlace(rooted), write(rooted / "x.pieces")
    good = path.read_bytes()
    for at in range(len(good)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :])
        damaged(place)
        if at % 9 == 0:
            path.write_bytes(good[:at])
            damaged(place)
    for data in (good + b"\0", b"\0" + good, good.replace(b"fpspiece", b"fpspiecE")):
        path.write_bytes(data)
        damaged(place)


FORGED = [
    *(
        ["words", wrong]
        for wrong in (5, None, [-8, "<u8", [5], 0], [0, "<u8", [1 << 61], 0], [0, "<u8", [-1], 0])
    ),
    *(
        ["words", [0, *wrong, 0]]
        for wrong in (("O", [5]), ("<u8", "x"), ("<u8", [[5]]), ("<u8", []))
    ),
    ["words", [1 << 70, "<u8", [0], 0]],
    ["slices.slices", [0, "<u8", [1], zlib.crc32(struct.pack("<Q", 0))]],
]


@pytest.mark.parametrize("case", range(len(FORGED)))
def test_a_forged_index(rooted, case):
    """A length is bounded by the file before anything is read or allocated."""
    path = write(rooted / "x.pieces")
    data = path.read_bytes()
    length = int(data[-24:-16], 16)
    content = json.loads(data[-24 - length : -24])
    content["arrays"][FORGED[case][0]] = FORGED[case][1]
    index = json.dumps(content).encode()
    path.write_bytes(
        data[: -24 - length] + index + b"%08x%08xfpspiece" % (len(index), zlib.crc32(index))
    )
    damaged(DiskPlace(rooted))


@pytest.mark.parametrize(
    "index", [b"[]", b"5", b"{}", b'{"facts": 5, "arrays": {}}', b"[" * 99_999, b"\xff"]
)
def test_an_index_that_is_none(rooted, index):
    (rooted / "x.pieces").write_bytes(index + b"%08x%08xfpspiece" % (len(index), zlib.crc32(index)))
    damaged(DiskPlace(rooted))
