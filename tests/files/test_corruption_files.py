"""Files in the wrong place, empty, overwritten, or of a newer version."""

import random

import numpy as np
import pytest
import tableimage
from damage import (
    FINGERPRINTS,
    HASHES,
    IDS,
    LMDB_FILES,
    NOTICED,
    STRINGS,
    TABLES,
    fingerprints_of,
    make,
    outcome,
    rewrite,
)
from disks import held_files
from speeds import slow

import fpstore
from fpstore import _kernel
from fpstore.design.families import design
from fpstore.format.layout import table_name
from fpstore.format.packed_table import PackedTable

# --- Files in the wrong place ---------------------------------------------------------------------


def swap(a, b):
    aside = a.with_name("aside")
    a.rename(aside)
    b.rename(a)
    aside.rename(b)


def test_tables_of_one_store_swapped(copy):
    for first, second in ((0, 1), (1, 2)):
        swap(copy / TABLES[first], copy / TABLES[second])
        with pytest.raises(
            fpstore.CorruptStoreError, match="a file of another store or table\\?"
        ) as caught:
            fpstore.open(copy)
        assert caught.value.expected != caught.value.got
        swap(copy / TABLES[first], copy / TABLES[second])
    fpstore.open(copy).close()


@pytest.mark.parametrize(
    ("other", "what", "name"),
    [
        ({"fingerprints": fingerprints_of(6)}, "set digest", TABLES[0]),
        ({"fingerprints": FINGERPRINTS[1:], "ids": STRINGS[1:]}, "fingerprint count", TABLES[1]),
        ({"design": "blocks-4-2"}, "table count", TABLES[2]),
    ],
)
def test_tables_of_two_stores_swapped(copy, tmp_path, other, what, name):
    other_path = make(tmp_path / "other", **other)
    swap(copy / name, other_path / name)
    for path in (copy, other_path):
        with pytest.raises(fpstore.CorruptStoreError, match=f"{what} is .*, the store expects"):
            fpstore.open(path)


PLACE = {"table": 0, "table_count": 2, "prefix_bits": 32, "flips": 1}


def test_a_table_that_differs_in_one_field_only(tmp_path):
    def reader_of(options):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        path.write_bytes(tableimage.build(**{"fingerprints": FINGERPRINTS, **PLACE, **options}))
        return PackedTable(path)

    place = (
        design("flip-2", 3),
        0,
        len(FINGERPRINTS),
        _kernel.digest(FINGERPRINTS, tableimage.IDENTITY),
    )
    reader_of({}).check_place(*place)
    for what, other in (
        ("table", {"table": 1}),
        ("table count", {"table_count": 3}),
        ("permutation", {"permutation": np.roll(tableimage.IDENTITY, 32)}),
        ("prefix bits", {"prefix_bits": 31}),
        ("flips", {"flips": 0}),
        ("fingerprint count", {"fingerprints": FINGERPRINTS[:-1]}),
        ("set digest", {"fingerprints": FINGERPRINTS ^ np.uint64(1)}),
    ):
        reader = reader_of(other)
        with pytest.raises(
            fpstore.CorruptStoreError, match=f": {what} is .*, the store expects"
        ) as caught:
            reader.check_place(*place)
        assert caught.value.path == reader.path


@pytest.mark.parametrize("name", LMDB_FILES)
def test_lmdb_files_of_two_stores_swapped(copy, tmp_path, right, name):
    other = make(tmp_path / "other", fingerprints=fingerprints_of(6), ids=STRINGS[::-1])
    swap(copy / name, other / name)
    assert outcome(copy, right) in NOTICED


@pytest.mark.parametrize("checked", [0, slow(1 << 22)])
def test_swapped_id_maps_of_equal_fingerprints_are_refused(tmp_path, set_limits, checked):
    set_limits(bytes_checked_at_open=checked)
    ids = np.arange(len(FINGERPRINTS), dtype=np.uint64)
    paths = [make(tmp_path / name, ids=numbers) for name, numbers in (("a", ids), ("b", ids[::-1]))]
    assert len({(path / IDS).stat().st_size for path in paths}) == 1
    swap(*(path / IDS for path in paths))
    for path in paths:
        with pytest.raises(
            fpstore.CorruptStoreError, match=f"{path / IDS}: .* a file of another store"
        ) as caught:
            fpstore.open(path)
        assert caught.value.expected != caught.value.got
    swap(*(path / IDS for path in paths))
    for path, numbers in zip(paths, (ids, ids[::-1]), strict=True):
        with fpstore.open(path) as store:
            assert store.verify().ok
            assert store[int(FINGERPRINTS[3])] == [numbers[3]]


def test_a_file_overwritten(copy):
    """By nothing, zeros, noise, or a file of another kind."""
    for name in (*TABLES, HASHES, *LMDB_FILES):
        before, other = (
            (copy / name).read_bytes(),
            (copy / (IDS if name.endswith(".fpt") else TABLES[0])).read_bytes(),
        )
        for data in (b"", bytes(len(before)), random.Random(1).randbytes(len(before)), other):
            (copy / name).write_bytes(data)
            kind = "LMDB file|another kind of file" if data == other else None
            with pytest.raises(fpstore.CorruptStoreError, match=kind):
                fpstore.open(copy)
        (copy / name).write_bytes(before)
    fpstore.open(copy).close()


# --- Newer versions -------------------------------------------------------------------------------


def test_a_newer_table(copy):
    data = (copy / TABLES[1]).read_bytes()
    for at, size, value, message in (
        (8, 4, 2, "unknown format version"),
        (8, 4, 0, "unknown format version"),
        (12, 4, 2, "unknown flags"),
        (12, 4, 1 << 31, "unknown flags"),
        (16, 2, 48, "unknown fingerprint width"),
        (16, 2, 512, "unknown fingerprint width"),
    ):
        header = tableimage.header_fields(data)
        header[at : at + size] = value.to_bytes(size, "little")
        (copy / TABLES[1]).write_bytes(tableimage.sealed(header, data))
        with pytest.raises(fpstore.FormatVersionError, match=f"{message}.*upgrade") as caught:
            fpstore.open(copy)
        assert (str(caught.value.path), caught.value.got) == (str(copy / TABLES[1]), value)


def test_store_of_another_version_may_lack_fields_of_this_one(copy):
    def change(record):
        record.clear()
        record["format_version"] = 9

    rewrite(copy, change)
    with pytest.raises(fpstore.FormatVersionError):
        fpstore.open(copy)


# --- Open files -----------------------------------------------------------------------------------


@pytest.fixture(params=["rows", "strings", "merged"])
def closed(request, tmp_path):
    path = make(tmp_path / "s", ids=None if request.param == "rows" else STRINGS)
    if request.param == "merged":
        with fpstore.open(path, "r+") as store:
            store.insert(5, "another")
            store.merge()
    return path


def test_a_closed_store_has_no_file_open(closed):
    """Also while somebody still has it, what it held at one moment, and its matches."""
    store = fpstore.open(closed)
    snapshot = store.snapshot()
    matches = store.probe_many(FINGERPRINTS[:100])
    assert matches.read_ids()
    assert store.probe(int(FINGERPRINTS[0]), 1)
    assert len(held_files(closed)) >= len(TABLES) + 2
    store.close()
    # A delta keeps the table that tells it what is not new.
    assert held_files(closed) == (
        [] if snapshot.delta is None else [str(snapshot.generation.folder / table_name(0))]
    )
    for ask in (
        lambda: snapshot.probe(5, 3),
        lambda: snapshot.has(5),
        lambda: snapshot.generation.sample(100),
        lambda: snapshot.get_ids(5),
    ):
        with pytest.raises(fpstore.ClosedStoreError):
            ask()


def test_a_store_that_cannot_be_opened_leaves_no_lmdb_file_open(closed):
    """Also while somebody keeps the error."""
    files = [file for file in closed.rglob("*") if file.suffix in (".mdb", ".fpt")]
    assert len(files) >= len(TABLES) + 1
    for file in files:
        data = file.read_bytes()
        if file.suffix == ".fpt":
            file.write_bytes(bytes([data[0] ^ 1]) + data[1:])
        else:
            file.write_bytes(data[:-8] + bytes(8))  # the digest
        with pytest.raises(fpstore.CorruptStoreError) as caught:
            fpstore.open(closed)
        assert file.name in str(caught.value)
        # which a process can open only once
        assert [name for name in held_files(closed) if name.endswith(".mdb")] == []
        file.write_bytes(data)
    fpstore.open(closed).close()
