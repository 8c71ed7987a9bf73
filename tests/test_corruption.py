"""Damaged stores: a flipped bit, a file cut short, files in the wrong place. An error or the right answer, and nothing else."""

import faulthandler
import os
import random
import shutil
import signal
from collections import Counter

import lmdb
import numpy as np
import pytest
import tableimage

import fpstore
from fpstore import environment as lmdb_files
from fpstore import layout

TABLES = ("gen-00000001/table-000.fpt", "gen-00000001/table-001.fpt", "gen-00000001/table-002.fpt")
IDS = "gen-00000001/ids.mdb"
STORE = "store.mdb"
RADIUS = 2
HANG_SECONDS = 30


def fingerprints_of(seed):
    rng = np.random.default_rng(seed)
    some = rng.integers(0, 2**64, 150, np.uint64)
    return np.concatenate([some, some[:100] ^ (np.uint64(1) << rng.integers(0, 64, 100, np.uint64))])


FINGERPRINTS = fingerprints_of(5)
NAMES = [f"document {i}" for i in range(len(FINGERPRINTS))]


def make(path, fingerprints=FINGERPRINTS, ids=NAMES, design="blocks-3-1"):
    fpstore.build(path, fingerprints, ids, radius=RADIUS, design=design, block_bytes=128).close()
    return path


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return make(tmp_path_factory.mktemp("good") / "s")


@pytest.fixture
def copy(good, tmp_path):
    return shutil.copytree(good, tmp_path / "copy")


def answers(store):
    """Everything that can be asked: probes of all that is stored and of neighbours, their ids, and the rows."""
    queries = np.concatenate([FINGERPRINTS, FINGERPRINTS[::7] ^ np.uint64(1 << 40 | 1)])
    matches = store.probe_many(queries, RADIUS, threads=1)
    lims, ids = matches.ids()
    one = int(FINGERPRINTS[3])
    return (
        (matches.lims.tolist(), matches.fingerprints.tolist(), matches.distances.tolist()),
        (lims.tolist(), list(ids)),
        (store[one], store.probe(one), one in store, len(store)),
        [(f.tolist(), lims.tolist(), list(ids)) for f, lims, ids in store.items()],
    )


@pytest.fixture(scope="module")
def right(good):
    with fpstore.open(good) as store:
        assert store.verify().ok
        assert store.verify().blocks > 3 * 10
        return answers(store)


def outcome(path, right):
    """Say what a damaged store does: first verify, then everything else."""
    try:
        store = fpstore.open(path)
    except fpstore.FpstoreError:
        return "refused"
    with store:
        noticed = "unnoticed" if store.verify().ok else "noticed"
        try:
            return f"{noticed}, {'right' if answers(store) == right else 'WRONG'}"
        except fpstore.FpstoreError:
            return f"{noticed}, error"


def outcomes(path, name, right, damages):
    """Apply each damage, a function of the file descriptor that returns its repair, and return what came of it.

    That is done in a child process; when one dies, it is replaced, and the signal is what came of that damage.
    """
    results = []
    while len(results) < len(damages):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(read)
                faulthandler.disable()
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
                _child(path / name, path, right, damages[len(results) :], write)
            finally:
                os._exit(1)
        os.close(write)
        with os.fdopen(read, encoding="utf-8") as lines:
            results += [line.rstrip("\n") for line in lines]
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            results.append("HANG" if number == signal.SIGALRM else f"DIED by {signal.Signals(number).name}")
            shutil.copyfile(path.parent / "pristine", path / name)
        else:
            assert os.WEXITSTATUS(status) == 0
    return results


def _child(file, path, right, damages, write):
    descriptor = os.open(file, os.O_RDWR)
    for damage in damages:
        signal.alarm(HANG_SECONDS)
        repair = damage(descriptor)
        try:
            result = outcome(path, right)
        except BaseException as error:
            result = f"RAISED {type(error).__name__}: {error}".replace("\n", " ")[:200]
        repair()
        os.write(write, f"{result}\n".encode())
    os._exit(0)


def flip(at, bit):
    def damage(descriptor):
        old = os.pread(descriptor, 1, at)
        os.pwrite(descriptor, bytes([old[0] ^ 1 << bit]), at)
        return lambda: os.pwrite(descriptor, old, at)

    return damage


def cut(length):
    def damage(descriptor):
        rest = os.pread(descriptor, 1 << 24, length)
        os.ftruncate(descriptor, length)
        return lambda: os.pwrite(descriptor, rest, length)

    return damage


def check(copy, name, right, damages, allowed):
    """Apply the damages, labelled; nothing may come of them but what is allowed."""
    shutil.copyfile(copy / name, copy.parent / "pristine")
    labels = list(damages)
    results = outcomes(copy, name, right, [damages[label] for label in labels])
    bad = {label: r for label, r in zip(labels, results, strict=True) if r not in allowed}
    assert not bad, f"{name}: {Counter(bad.values())} of {len(labels)}, such as {dict(list(bad.items())[:8])}"
    assert (copy / name).read_bytes() == (copy.parent / "pristine").read_bytes()
    return Counter(results)


def flips(places, bits=1, seed=1):
    rng = random.Random(seed)
    return {(at, bit): flip(at, bit) for at in places for bit in rng.sample(range(8), bits)}


# --- Table files ----------------------------------------------------------------------------------

NOTICED = {"refused", "noticed, error"}


def sections(path):
    """Return the places of a table file that mean something: of the header, and all behind it."""
    return [*range(256), *range(4088, path.stat().st_size)]


def test_a_flip_in_each_byte_of_a_table_is_noticed(copy, right):
    check(copy, TABLES[1], right, flips(sections(copy / TABLES[1])), NOTICED)


@pytest.mark.parametrize("name", [TABLES[0], TABLES[2]])
def test_flips_in_the_other_tables_are_noticed(copy, right, name):
    check(copy, name, right, flips(sections(copy / name)[::5], seed=2), NOTICED)


def test_flips_between_the_header_and_its_checksum_are_noticed(copy, right):
    check(copy, TABLES[0], right, flips(range(256, 4088, 31)), {"refused"})


def test_all_bits_of_some_bytes_of_a_table(copy, right):
    path = copy / TABLES[0]
    kernel = tableimage.open_table(path.read_bytes())
    last = path.stat().st_size
    places = [
        *range(8, 36, 3),
        *range(4096, 4096 + 24),
        *range(kernel.keys_offset - 4, kernel.keys_offset + 12),
        *range(kernel.directory_offset - 8, min(kernel.directory_offset + 24, last)),
    ]
    check(copy, TABLES[0], right, flips(places, 8), NOTICED)


@pytest.mark.parametrize("name", TABLES[:2])
def test_a_table_cut_short_is_refused(copy, right, name):
    size = (copy / name).stat().st_size
    lengths = {*range(0, size, 41), *range(size - 40, size), 1, 8, 4095, 4096, 4097, 4112}
    check(copy, name, right, {n: cut(n) for n in sorted(lengths)}, {"refused"})


def test_a_table_that_has_grown_is_refused(copy):
    with (copy / TABLES[0]).open("ab") as file:
        file.write(b"\0")
    with pytest.raises(fpstore.CorruptStoreError, match="file size differs from the header"):
        fpstore.open(copy)


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_every_bit_of_a_table(copy, right, name):
    check(copy, name, right, flips(range((copy / name).stat().st_size), 8), NOTICED)


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_a_table_cut_at_each_length(copy, right, name):
    check(copy, name, right, {n: cut(n) for n in range((copy / name).stat().st_size)}, {"refused"})


def test_verify_names_file_and_block(copy):
    damage_block(copy / TABLES[1], 3)
    with fpstore.open(copy) as store:
        report = store.verify()
    assert not report.ok
    assert [(fault["path"], fault["block"]) for fault in report.faults] == [(str(copy / TABLES[1]), 3)]
    assert "block 3: block checksum differs" in report.faults[0]["message"]


def damage_block(path, block):
    data = bytearray(path.read_bytes())
    data[4096 + 128 * block + 50] ^= 1
    path.write_bytes(data)


def test_verify_goes_on_after_a_fault(copy):
    for name in TABLES:
        damage_block(copy / name, 1)
    with fpstore.open(copy) as store:
        faults = store.verify().faults
    assert {fault["path"] for fault in faults} == {str(copy / name) for name in TABLES}


def test_errors_carry_the_facts(copy):
    damage_block(copy / TABLES[0], 2)
    with fpstore.open(copy) as store, pytest.raises(fpstore.CorruptStoreError) as caught:
        store.scan([0], 64)
    assert (str(caught.value.path), caught.value.block) == (str(copy / TABLES[0]), 2)
    assert caught.value.expected != caught.value.got


def test_damage_elsewhere_does_not_matter_to_a_probe(copy, right):
    """A probe reads, and checks, only the blocks it needs."""
    damage_block(copy / TABLES[1], 0)
    fine = failed = 0
    with fpstore.open(copy) as store:
        for fingerprint in FINGERPRINTS.tolist():
            try:
                assert store.probe(fingerprint)[0].fingerprint == fingerprint
                fine += 1
            except fpstore.CorruptStoreError:
                failed += 1
    assert failed > 0
    assert fine > 5 * failed


# --- LMDB files -----------------------------------------------------------------------------------

# LMDB keeps free space and stale pages that no answer depends on.
HARMLESS = {"refused", "noticed, error", "noticed, right", "unnoticed, right"}
PAGE = 4096


def lmdb_places(path, step):
    """Page headers and the pointers behind them, and each ``step``-th byte that is not zero."""
    data = path.read_bytes()[: -lmdb_files.PAD_BYTES]
    heads = [p + i for p in range(0, len(data), PAGE) for i in range(48)]
    return sorted({*heads, *[i for i in range(len(data)) if data[i]][::step]})


@pytest.mark.parametrize("name", [IDS, STORE])
def test_flips_in_an_lmdb_file(copy, right, name):
    results = check(copy, name, right, flips(lmdb_places(copy / name, 13), 1, seed=3), HARMLESS)
    assert results["refused"] > 0.75 * results.total()


def test_flips_in_an_id_map_too_large_to_be_checked_at_open(copy, right, monkeypatch):
    monkeypatch.setattr(lmdb_files, "CHECKED_AT_OPEN", 0)
    results = check(copy, IDS, right, flips(lmdb_places(copy / IDS, 13), 1, seed=3), HARMLESS)
    assert results["refused"] > 20
    assert results["noticed, error"] > 20


@pytest.mark.slow
@pytest.mark.parametrize("name", [IDS, STORE])
def test_every_bit_of_an_lmdb_file(copy, right, name):
    check(copy, name, right, flips(range((copy / name).stat().st_size), 8), HARMLESS)


@pytest.mark.parametrize("name", [IDS, STORE])
def test_an_lmdb_file_cut_short_is_refused(copy, right, name):
    size = (copy / name).stat().st_size
    pages = [p + i for p in range(0, size - lmdb_files.PAD_BYTES, PAGE) for i in (-1, 0, 1, 100) if 0 <= p + i < size]
    check(copy, name, right, {n: cut(n) for n in sorted({*range(0, size, 9973), *pages, size - 1})}, {"refused"})


def test_a_flipped_bit_in_each_name_is_noticed(copy, right, monkeypatch):
    """A document id is an answer like any other."""
    monkeypatch.setattr(lmdb_files, "CHECKED_AT_OPEN", 0)
    data = (copy / STORE).read_bytes()
    places = [at for name in NAMES[::20] if (at := data.find(name.encode())) >= 0]
    assert len(places) > 5
    results = check(copy, STORE, right, flips([at + 3 for at in places]), NOTICED)
    assert results.total() == len(places)


def test_each_id_record_is_checked(copy, right, monkeypatch):
    monkeypatch.setattr(lmdb_files, "CHECKED_AT_OPEN", 0)
    data = (copy / IDS).read_bytes()
    environment = lmdb.open(str(copy / IDS), subdir=False, readonly=True, lock=False)
    with environment, environment.begin() as transaction:
        records = [value for _, value in transaction.cursor()]
    places = [data.find(record) + at for record in records for at in range(0, len(record), 9)]
    assert min(places) >= 0
    check(copy, IDS, right, flips(places), NOTICED)


def test_verify_compares_id_records_with_the_blocks(copy):
    """An intact record of another length would give ids to the wrong fingerprints."""
    with fpstore.open(copy) as store:
        _, counts, _ = store.kernel_tables[0].decode(0, store.kernel_tables[0].block_count, 1)
        counts = counts.tolist()
        assert store._ids.verify(counts) == len(NAMES)
        moved = [counts[0] - 1, counts[1] + 1, *counts[2:]]
        for wrong, message in (
            (moved, f"block 0 holds {counts[0]} fingerprints, the table {counts[0] - 1}"),
            (counts[:-1], "more id records than blocks"),
            ([*counts, 1], f"record of block {len(counts)} is missing"),
        ):
            with pytest.raises(fpstore.CorruptStoreError, match=message):
                store._ids.verify(wrong)


# --- Files in the wrong place ---------------------------------------------------------------------


def swap(a, b):
    aside = a.with_name("aside")
    a.rename(aside)
    b.rename(a)
    aside.rename(b)


def test_tables_of_one_store_swapped(copy):
    for first, second in ((0, 1), (1, 2)):
        swap(copy / TABLES[first], copy / TABLES[second])
        with pytest.raises(fpstore.CorruptStoreError, match="a file of another store or table\\?") as caught:
            fpstore.open(copy)
        assert caught.value.expected != caught.value.got
        swap(copy / TABLES[first], copy / TABLES[second])
    fpstore.open(copy).close()


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ({"fingerprints": fingerprints_of(6)}, "set digest"),
        ({"fingerprints": FINGERPRINTS[1:], "ids": NAMES[1:]}, "fingerprint count"),
        ({"design": "blocks-4-2"}, "table count"),
        ({"design": "flip-3"}, None),
    ],
)
@pytest.mark.parametrize("name", TABLES)
def test_tables_of_two_stores_swapped(copy, tmp_path, other, what, name):
    other_path = make(tmp_path / "other", **other)
    swap(copy / name, other_path / name)
    if what is None:  # the same set, permutation, prefix and flips: the very same bytes
        assert (copy / name).read_bytes() == (other_path / name).read_bytes()
        return
    for path in (copy, other_path):
        with pytest.raises(fpstore.CorruptStoreError, match=f"{what} is .*, the store expects"):
            fpstore.open(path)


@pytest.mark.parametrize("name", [IDS, STORE])
def test_lmdb_files_of_two_stores_swapped(copy, tmp_path, right, name):
    other = make(tmp_path / "other", fingerprints=fingerprints_of(6))
    swap(copy / name, other / name)
    assert outcome(copy, right) in NOTICED


@pytest.mark.parametrize("checked", [0, 1 << 22])
def test_id_maps_of_two_stores_with_the_same_fingerprints_swapped(tmp_path, monkeypatch, checked):
    monkeypatch.setattr(lmdb_files, "CHECKED_AT_OPEN", checked)
    ids = np.arange(len(FINGERPRINTS), dtype=np.uint64)
    paths = [make(tmp_path / name, ids=numbers) for name, numbers in (("a", ids), ("b", ids[::-1]))]
    assert len({(path / IDS).stat().st_size for path in paths}) == 1
    swap(*(path / IDS for path in paths))
    for path in paths:
        with pytest.raises(fpstore.CorruptStoreError, match=f"{path / IDS}: .* a file of another store") as caught:
            fpstore.open(path)
        assert caught.value.expected != caught.value.got
    swap(*(path / IDS for path in paths))
    for path, numbers in zip(paths, (ids, ids[::-1]), strict=True):
        with fpstore.open(path) as store:
            assert store.verify().ok
            assert store[int(FINGERPRINTS[3])] == [numbers[3]]


def test_a_table_in_place_of_an_lmdb_file(copy):
    shutil.copyfile(copy / TABLES[0], copy / IDS)
    with pytest.raises(fpstore.CorruptStoreError, match="LMDB file"):
        fpstore.open(copy)


def test_an_lmdb_file_in_place_of_a_table(copy):
    shutil.copyfile(copy / IDS, copy / TABLES[0])
    with pytest.raises(fpstore.CorruptStoreError, match="not a fpstore table file"):
        fpstore.open(copy)


@pytest.mark.parametrize("name", [*TABLES, IDS, STORE])
def test_an_empty_file(copy, name):
    (copy / name).write_bytes(b"")
    with pytest.raises(fpstore.CorruptStoreError):
        fpstore.open(copy)


@pytest.mark.parametrize("name", [*TABLES, IDS, STORE])
@pytest.mark.parametrize("kind", ["zeros", "noise"])
def test_a_file_overwritten(copy, right, name, kind):
    size = (copy / name).stat().st_size
    (copy / name).write_bytes(bytes(size) if kind == "zeros" else random.Random(1).randbytes(size))
    with pytest.raises(fpstore.FpstoreError):
        fpstore.open(copy)


# --- Newer versions -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "size", "value", "message"),
    [
        (8, 4, 2, "unknown format version"),
        (8, 4, 0, "unknown format version"),
        (12, 4, 1, "unknown flags"),
        (12, 4, 1 << 31, "unknown flags"),
        (16, 2, 32, "unknown fingerprint width"),
        (16, 2, 128, "unknown fingerprint width"),
    ],
)
def test_a_newer_table(copy, at, size, value, message):
    data = (copy / TABLES[1]).read_bytes()
    header = tableimage.header_fields(data)
    header[at : at + size] = value.to_bytes(size, "little")
    (copy / TABLES[1]).write_bytes(tableimage.sealed(header, data))
    with pytest.raises(fpstore.FormatVersionError, match=f"{message}.*upgrade") as caught:
        fpstore.open(copy)
    assert str(caught.value.path) == str(copy / TABLES[1])
    assert caught.value.got == value


def rewrite(path, name, change):
    """Change a metadata record, with a right checksum."""
    with lmdb.open(str(path / STORE), subdir=False, lock=False, max_dbs=4) as environment:
        meta = environment.open_db(layout.META)
        with environment.begin(write=True) as transaction:
            record = layout.unpack_record(transaction.get(name, db=meta), path, "test")
            change(record)
            transaction.put(name, layout.pack_record(record), db=meta)
    reseal(path / STORE)


def reseal(path):
    """Pad a changed LMDB file and write its digest anew."""
    with lmdb.open(str(path), subdir=False, readonly=True, lock=False) as changed:
        used = (changed.info()["last_pgno"] + 1) * PAGE
    lmdb_files.seal(path, used)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("format_version", 2, "format version 2 is not known \\(this fpstore reads 1\\): upgrade"),
        ("format_version", 0, "format version 0 is not known"),
        ("format_version", "x", "format version 'x' is not known"),
        ("flags", 4, "flags 4 is not known .*: upgrade"),
        ("width", 128, "width 128 is not known .*: upgrade"),
        ("width", 32, "width 32 is not known"),
    ],
)
def test_a_newer_store(copy, key, value, message):
    rewrite(copy, layout.STORE_KEY, lambda record: record.update({key: value}))
    with pytest.raises(fpstore.FormatVersionError, match=message) as caught:
        fpstore.open(copy)
    assert (caught.value.expected, caught.value.got) == ({"format_version": 1, "flags": 0, "width": 64}[key], value)


def test_a_store_of_another_version_need_not_have_the_fields_of_this_one(copy):
    def change(record):
        record.clear()
        record["format_version"] = 9

    rewrite(copy, layout.STORE_KEY, change)
    with pytest.raises(fpstore.FormatVersionError):
        fpstore.open(copy)


def test_counts_in_the_metadata_are_checked(copy):
    rewrite(copy, layout.GENERATION_KEY, lambda record: record.update(ids=record["ids"] + 1))
    with fpstore.open(copy) as store:
        report = store.verify()
    assert not report.ok
    assert f"{len(NAMES)} ids, the store says {len(NAMES) + 1}" in report.faults[0]["message"]


@pytest.mark.parametrize("name", [layout.STORE_KEY, layout.GENERATION_KEY])
@pytest.mark.parametrize("damage", ["missing", "short", "checksum", "no object"])
def test_damaged_metadata_records(copy, name, damage):
    with lmdb.open(str(copy / STORE), subdir=False, lock=False, max_dbs=4) as environment:
        meta = environment.open_db(layout.META)
        with environment.begin(write=True) as transaction:
            record = transaction.get(name, db=meta)
            transaction.delete(name, db=meta)
            if damage != "missing":
                new = {"short": record[:5], "checksum": record + b" ", "no object": layout.pack_record([])}[damage]
                transaction.put(name, new, db=meta)
    reseal(copy / STORE)
    with pytest.raises(fpstore.CorruptStoreError, match=f"the {name.decode()} record is"):
        fpstore.open(copy)
