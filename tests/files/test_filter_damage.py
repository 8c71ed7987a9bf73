"""Damaged filters: nothing is lost but their speed, and a damage is told once."""

import errno
import os
import shutil
import struct
import subprocess
import sys

import brute_force
import numpy as np
import pytest
import reference
import reference_filter
from repairing import bytes_of, flip
from speeds import slow
from systemcalls import at_first_call, failing_calls

import fpstore
from fpstore.query.generation import Generation

FILTER = "gen-00000001/filter-001.fpf"
OTHER = "gen-00000001/filter-000.fpf"
PAGE = 4096
RADIUS = 3
ORDERS = ["asked", "near", "sorted"]
RNG = np.random.default_rng(9)
SOME = RNG.integers(0, 2**64, 100, np.uint64)
FINGERPRINTS = np.unique(
    np.concatenate([SOME, SOME[:40] ^ (np.uint64(1) << RNG.integers(0, 64, 40, np.uint64))])
)
QUERIES = np.concatenate(
    [
        FINGERPRINTS[::30],
        FINGERPRINTS[::20] ^ np.uint64(1 << 63 | 1 << 20 | 1),
        RNG.integers(0, 2**64, 4, np.uint64),
    ]
)
# whose filters have several pages
MANY = np.random.default_rng(11).integers(0, 2**64, 20_000, np.uint64)


def made(path, fingerprints=FINGERPRINTS, ids=None, **options):
    options = {
        "radius": RADIUS,
        "design": "flip-2",
        "block_bytes": 128,
        "filter": True,
        "threads": 1,
        **options,
    }
    fpstore.build(path, fingerprints, ids, **options).close()
    return path


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = made(tmp_path_factory.mktemp("good") / "s")
    with fpstore.open(path) as store:
        assert store.verify().ok
        assert sorted(generation_of(store).filters) == [0, 1]
    return path


@pytest.fixture
def copy(good, tmp_path):
    return shutil.copytree(good, tmp_path / "copy")


@pytest.fixture
def told(caplog):
    """Return take(): the names of the filters that were warned of since the last call."""

    def take():
        records = [record for record in caplog.records if record.name == "fpstore"]
        caplog.clear()
        assert all("probes go on without this filter" in record.getMessage() for record in records)
        return [record.getMessage().partition(":")[0].rpartition("/")[2] for record in records]

    return take


def generation_of(store):
    return store.snapshot().generation


def right_answers(fingerprints=FINGERPRINTS, queries=QUERIES):
    return [
        brute_force.brute_force_many(fingerprints, queries, radius) for radius in range(RADIUS + 1)
    ]


RIGHT = right_answers()


def check_answers(store, right=RIGHT, queries=QUERIES):
    """Compare single probes and batches in several orders with brute force."""
    for radius, (lims, fingerprints, distances) in enumerate(right):
        results = [store.probe(int(query), radius) for query in queries]
        assert [
            match.fingerprint for matches in results for match in matches
        ] == fingerprints.tolist()
        assert np.cumsum([0, *map(len, results)]).tolist() == lims.tolist()
        prober = generation_of(store).prober(radius)
        for order in ORDERS:
            got = prober.probe(queries, radius, order=order)
            assert all(map(np.array_equal, got[:3], (lims, fingerprints, distances)))
    matches = store.probe_many(queries, RADIUS)
    assert np.array_equal(matches.lims, right[RADIUS][0])
    assert np.array_equal(matches.fingerprints, right[RADIUS][1])


def check_probe(store, query):
    result = brute_force.brute_force(np.sort(MANY), query, RADIUS)[0]
    assert [match.fingerprint for match in store.probe(query)] == result.tolist()


def faults_of(store):
    report = store.verify()
    assert not report.ok
    return [fault["message"] for fault in report.faults]


def is_left_out(path, told):
    """Whether a filter is left out when the store is opened, which is told.

    If so, the answers are right.
    """
    with fpstore.open(path) as store:
        warnings = told()
        assert warnings == ["filter-001.fpf"] * (1 not in generation_of(store).filters)
        check_answers(store)
        if warnings:
            assert told() == []
        return bool(warnings)


@pytest.mark.parametrize("every", [5, slow(1)])
def test_one_bit_of_each_byte(copy, told, every):
    """Of the header's zeros every 61st byte: test_filter_file.py flips a bit of all."""
    file = copy / FILTER
    image = file.read_bytes()
    assert PAGE < len(image) < PAGE + 500
    fields = [*range(88), *range(128, 192), *range(4088, len(image))]
    for at in sorted({*fields, *range(0, PAGE, 61)})[::every]:
        with file.open("r+b") as changed:
            changed.seek(at)
            changed.write(bytes([image[at] ^ 1 << at % 8]))
        with fpstore.open(copy) as store:
            early = told()
            check_answers(store)
            assert early + told() == ["filter-001.fpf"], at
            assert bool(early) == (at < PAGE)
            assert any("filter-001.fpf" in fault for fault in faults_of(store)), at
        with file.open("r+b") as changed:
            changed.seek(at)
            changed.write(image[at : at + 1])
    assert told() == []
    with fpstore.open(copy) as store:
        check_answers(store)
        assert store.verify().ok
    assert told() == []


def test_damage_is_told_when_its_page_is_read(tmp_path, told):
    path = made(tmp_path / "s", MANY, design="manku-4")
    file = path / "gen-00000001" / "filter-000.fpf"
    image = bytearray(file.read_bytes())
    read = reference_filter.Filter(bytes(image))
    assert read.header.word_count > 3 * PAGE // 8
    image[3 * PAGE + 8] ^= 16  # the third page of words, number 2
    file.write_bytes(image)
    shift = 64 - read.header.bucket_bits
    pages = [start * 8 // PAGE for start in read.starts]  # of the first word of each bucket
    first, third = 0, pages.index(2) << shift
    with fpstore.open(path) as store, fpstore.open(path, pages="populated") as other:
        assert told() == []
        check_probe(store, first)
        assert told() == []
        for _ in range(2):
            check_probe(store, third)
        assert told() == ["filter-000.fpf"]
        queries = MANY[:4000] ^ np.uint64(1 << 50 | 1 << 3)
        right = brute_force.brute_force_many(MANY, queries[:50], RADIUS)
        for query in (store, other):
            got = query.probe_many(queries, RADIUS, threads=2)
            assert np.array_equal(got.fingerprints[: got.lims[50]], right[1])
        assert told() == ["filter-000.fpf"]  # by the other one
        assert any("filter-000.fpf: byte 12296" in fault for fault in faults_of(store))


@pytest.mark.parametrize("design", ["manku-4", slow("flip-2")])
def test_each_page_of_a_larger_filter(tmp_path, told, design):
    """Large batches verify many pages together.

    Without flips, only the page of the first look-up was verified.
    """
    path = made(tmp_path / "s", MANY, design=design)
    file = path / FILTER
    image = file.read_bytes()
    queries = np.concatenate(
        [MANY[:3000] ^ np.uint64(1 << 50 | 1 << 3), RNG.integers(0, 2**64, 3000, np.uint64)]
    )
    with fpstore.open(path) as store:
        right = [
            generation_of(store).prober(RADIUS).probe(queries, RADIUS, order=order)[:3]
            for order in ORDERS
        ]
    for at in range(PAGE, len(image), PAGE):
        zeros = bytes(min(PAGE, len(image) - at))  # with which nothing would pass
        for wrong in (zeros, bytes([image[at] ^ 128]) + image[at + 1 : at + len(zeros)]):
            file.write_bytes(image[:at] + wrong + image[at + len(zeros) :])
            for order, expected in zip(ORDERS, right, strict=True):
                with fpstore.open(path) as store:
                    got = generation_of(store).prober(RADIUS).probe(queries, RADIUS, order=order)
                    assert all(map(np.array_equal, got[:3], expected)), (at, order)
                assert told() == ["filter-001.fpf"], (at, order)


def put(file, what, good):
    other = good.parent / "other"
    if what != "missing" and not other.exists():
        made(other, RNG.integers(0, 2**64, 100, np.uint64))
    image = file.read_bytes()
    file.unlink()
    if what == "other store":
        shutil.copyfile(other / FILTER, file)
    elif what == "other table":
        shutil.copyfile(file.with_name("filter-000.fpf"), file)
    elif what == "its table":
        shutil.copyfile(file.with_name("table-001.fpt"), file)
    elif what == "link":
        file.symlink_to(good / FILTER)
    elif what == "folder":
        file.mkdir()
    elif what == "pipe":
        os.mkfifo(file)
    elif what == "longer":
        file.write_bytes(image + b"\0")
    elif what == "another version":
        changed = image[:8] + b"\2" + image[9:4088]
        file.write_bytes(changed + struct.pack("<Q", reference.xxh64(changed)) + image[4096:])


PLACED = [
    "missing",
    "other store",
    "other table",
    "its table",
    "link",
    "folder",
    "pipe",
    "longer",
    "another version",
]


@pytest.mark.parametrize("what", ["missing", *map(slow, PLACED[1:])])
def test_backup_and_repair_report_what_stands_in_for_a_filter(good, copy, told, what):
    put(copy / FILTER, what, good)
    check_backup(copy, told, opened=False)
    check_repair(copy, told)


def test_something_else_in_place_of_a_filter(good, copy, told):
    image, file = (copy / FILTER).read_bytes(), copy / FILTER
    for what in (*PLACED, 0, 1, 100, PAGE - 1, PAGE, PAGE + 8, len(image) - 8, len(image) - 1):
        if isinstance(what, int):
            file.write_bytes(image[:what])
        else:
            put(file, what, good)
        assert is_left_out(copy, told), what
        with fpstore.open(copy) as store:
            assert any("filter-001.fpf" in fault for fault in faults_of(store))
        told()
        shutil.rmtree(file) if what == "folder" else file.unlink(missing_ok=True)
        file.write_bytes(image)


def test_a_file_that_cannot_be_read_is_left_out(copy, told):
    with failing_calls("pread", "filter-001.fpf", errno.EIO):
        assert is_left_out(copy, told)


def check_backup(path, told, opened):
    """Make a backup: a filter that cannot be opened is left out of it.

    One that can is copied as it is.
    """
    backup = path.with_name("backup")
    with fpstore.open(path) as store:
        told()
        store.backup(backup)
    assert told() == []
    assert (backup / FILTER).exists() == opened
    with fpstore.open(backup) as store:
        assert told() == []
        assert sorted(generation_of(store).filters) == [0, *[1] * opened]
        check_answers(store)
        assert store.verify().ok == (not opened)
    told()


def check_repair(path, told):
    """Repair gives back a store with all rows, and with filters that are those of a new one."""
    repaired, lost = path.with_name("repaired"), path.with_name("lost.tsv")
    before = bytes_of(path) if not (path / FILTER).is_dir() else None
    report = fpstore.repair(path, repaired, lost=lost, threads=1)
    assert report.complete
    assert not report.sound
    assert any("filter-001.fpf" in fault["message"] for fault in report.faults)
    assert any("ids, 2 filters made anew, and verified it" in action for action in report.actions)
    assert not lost.exists()
    assert before is None or bytes_of(path) == before
    told()
    check_whole(repaired, told)


def check_whole(path, told, right=RIGHT, stored=FINGERPRINTS):
    with fpstore.open(path) as store:
        assert sorted(generation_of(store).filters) == [0, 1]
        assert len(store) == len(stored)
        assert store.verify().ok
        check_answers(store, right)
    assert told() == []
    for file in path.glob("gen-*/filter-*.fpf"):
        table = reference.Table(
            file.with_name(file.name.replace("filter", "table").replace("fpf", "fpt")).read_bytes()
        )
        read = reference_filter.Filter(file.read_bytes())
        assert file.read_bytes() == reference_filter.build(
            table.header, list(table.permuted()), read.shape
        )


def test_verify_names_a_filter_and_its_table(tmp_path, set_limits):
    """A fault of the filter, found early, does not end the reading of the table."""
    set_limits(table_bytes=1)  # a block is a piece
    path = made(tmp_path / "s", MANY)
    flip(path / FILTER, PAGE + 3)
    table = path / "gen-00000001/table-001.fpt"
    flip(table, PAGE + (table.stat().st_size - PAGE) // 128 // 2 * 128 + 50)
    with fpstore.open(path) as store:
        faults = faults_of(store)
    assert [name for fault in faults for name in ("filter-001", "table-001") if name in fault] == [
        "filter-001",
        "table-001",
    ]


def test_a_backup_and_a_repair_of_a_store_with_a_damaged_page(copy, told):
    flip(copy / FILTER, PAGE + 3)
    check_backup(copy, told, opened=True)
    check_repair(copy, told)


def test_an_open_that_meets_the_end_of_a_merge_is_refused(copy, told, tmp_path):
    """Filters are opened last.

    Where their generation was removed, they are not damaged, and the reader tries again.
    """
    with fpstore.open(copy) as store:
        manifest = generation_of(store).manifest
    folder = next(copy.glob("gen-*"))

    def remove():
        folder.rename(tmp_path / "gone")

    with (
        at_first_call("open", "filter-000.fpf", before=remove),
        pytest.raises(fpstore.StoreNotFoundError),
    ):
        Generation(copy, manifest)
    assert not folder.exists()
    assert told() == []


@pytest.mark.parametrize("at", [slow(40), PAGE + 3])
def test_a_merge_writes_whole_filters(copy, told, at):
    flip(copy / FILTER, at)
    more = FINGERPRINTS[:50] ^ np.uint64(3 << 30)
    with fpstore.open(copy, "r+") as store:
        store.insert(more)
        store.merge()
        told()
        stored = np.concatenate([FINGERPRINTS, more])
        check_answers(store, right_answers(stored))
    check_whole(copy, told, right_answers(stored), stored)


def test_filters_of_another_shape_are_used_if_the_shape_is_valid(copy, told):
    """The shape is the writer's affair: answers are the same.

    Longer prefixes than the table's are refused.
    """
    table = reference.Table((copy / "gen-00000001/table-001.fpt").read_bytes())
    entries = list(table.permuted())
    for shape in [(1, 0, 1), (9, 9, 64), (14, 2, 1), (32, 10, 6)]:
        (copy / FILTER).write_bytes(reference_filter.build(table.header, entries, shape))
        assert not is_left_out(copy, told)
        assert told() == []
        with fpstore.open(copy) as store:
            assert store.verify().ok
    (copy / FILTER).write_bytes(reference_filter.build(table.header, entries, (33, 10, 6)))
    assert is_left_out(copy, told)


@pytest.mark.parametrize("at", [40, PAGE])
def test_stats_does_not_count_a_filter_that_is_left_out(copy, at):
    """It counted one of which a probe had found a damaged page."""
    flip(copy / FILTER, at)
    with fpstore.open(copy) as store:
        store.probe_many(QUERIES)
        told = store.stats()
        assert told["bytes"]["filters"] == (copy / OTHER).stat().st_size
        assert [table["filter_bits"] > 0 for table in told["design"]["tables"]] == [True, False]
        lookups = [
            look.variant_count
            for look in store.design.lookups(
                len(store), filter_bits=generation_of(store).filter_bits
            )
        ]
        assert [table["lookups"] for table in told["design"]["tables"]] == lookups
        check_answers(store)  # also by radii of which nobody has asked before


@pytest.mark.full
@pytest.mark.parametrize("at", [slow(40), PAGE + 3])
def test_the_command_line_tells_of_a_damaged_filter(copy, at):
    """Its user sees no log."""
    flip(copy / FILTER, at)
    queries = [f"{int(fingerprint):016x}" for fingerprint in FINGERPRINTS[:20]]
    # -P: a checkout without a kernel is not taken for the installed package.
    command = [sys.executable, "-P", "-m", "fpstore", "probe", copy, *queries]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stderr.count("probes go on without this filter") == 1
    quiet = subprocess.run([*command, "--quiet"], capture_output=True, text=True, check=False)
    # it was written beside --quiet, which leaves notes out
    assert (quiet.returncode, quiet.stderr) == (0, "")
