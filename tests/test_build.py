"""Builds: every kind of input, small memory, all or nothing, and what they refuse."""

import fcntl
import itertools
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import tableimage

import fpstore
from fpstore import _kernel
from fpstore.design import _lookups
from fpstore.folder import Target
from fpstore.io import open_reader
from fpstore.sorting import Column

MIB = 1 << 20


def tables_of(path):
    return {p.name: p.read_bytes() for p in sorted(path.glob("gen-*/table-*.fpt"))}


def rows_of(store):
    rows = []
    for fingerprints, lims, ids in store.items():
        rows += [(f, i) for m, f in enumerate(fingerprints.tolist()) for i in np.asarray(ids)[lims[m] : lims[m + 1]].tolist()]
    return rows


def build(path, *args, **options):
    """Build, and return the table files and the rows that it decodes to."""
    with fpstore.build(path, *args, **options) as store:
        report = store.verify()
        assert report.ok, report.faults
        return tables_of(path), rows_of(store)


def make_rows(kind, count):
    rng = np.random.default_rng(7)
    if kind == "duplicates":
        fingerprints = rng.choice(rng.integers(0, 2**64, 50, np.uint64), count)
    elif kind == "one prefix":
        fingerprints = np.uint64(0xABCDEF << 40) | rng.integers(0, 2**20, count, np.uint64)
    elif kind == "all equal":
        fingerprints = np.full(count, 12345, np.uint64)
    elif kind == "shared low half":
        fingerprints = np.uint64(77) | rng.integers(0, 2**32, count, np.uint64) << np.uint64(32)
    else:
        fingerprints = rng.choice(tableimage.make_keys(kind, 5, count), count)
    return fingerprints, rng.permutation(np.arange(count, dtype=np.uint64) * np.uint64(3))


ROWS = ("random", "clustered", "skewed", "dense", "duplicates", "one prefix", "all equal", "shared low half")


# --- Inputs ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows():
    return make_rows("clustered", 3000)


@pytest.fixture(scope="module")
def expected(rows, tmp_path_factory):
    return build(tmp_path_factory.mktemp("expected") / "s", *rows)


def pieces(array, cuts=(0, 1, 1, 170, 400)):
    return [array[a:b] for a, b in itertools.pairwise((*cuts, len(array)))]


@pytest.mark.parametrize("form", ["list", "tuple", "arrays", "generator", "lists", "other dtypes"])
def test_every_form_of_input_builds_the_same(tmp_path, rows, expected, form):
    fingerprints, ids = rows
    source, source_ids = {
        "list": lambda: (fingerprints.tolist(), ids.tolist()),
        "tuple": lambda: (tuple(fingerprints.tolist()), tuple(ids.tolist())),
        "arrays": lambda: (pieces(fingerprints), pieces(ids)),
        "generator": lambda: (iter(pieces(fingerprints)), (p for p in pieces(ids))),
        "lists": lambda: (iter([p.tolist() for p in pieces(fingerprints)]), [p.tolist() for p in pieces(ids)]),
        "other dtypes": lambda: (np.repeat(fingerprints, 2)[::2].astype(">u8"), ids.astype(np.int32)),
    }[form]()
    assert build(tmp_path / "s", source, source_ids) == expected


class Series:
    """Converts itself to an array, as a pandas Series does, and is a sequence of numpy integers besides."""

    def __init__(self, values):
        self._values = values

    def __array__(self, dtype=None, copy=None):
        return np.array(self._values, dtype=dtype, copy=copy)

    def __len__(self):
        return len(self._values)

    def __iter__(self):
        return iter(self._values)


@pytest.mark.parametrize("form", ["column", "arrow", "chunked arrow", "columns"])
def test_what_turns_itself_into_an_array_builds_the_same(tmp_path, rows, expected, form):
    fingerprints, ids = rows
    if form == "column":
        source, source_ids = Series(fingerprints), Series(ids)
    elif form == "columns":
        source, source_ids = [Series(p) for p in pieces(fingerprints)], [Series(p) for p in pieces(ids)]
    else:
        arrow = pytest.importorskip("pyarrow")
        make = arrow.array if form == "arrow" else lambda values: arrow.chunked_array(pieces(values))
        source, source_ids = make(fingerprints), make(ids)
    assert build(tmp_path / "s", source, source_ids) == expected


@pytest.mark.parametrize("values", [np.arange(3), np.ones(3), np.ones((2, 3), np.uint64), np.array(3, np.uint64)])
def test_what_turns_itself_into_another_array_is_refused(tmp_path, values):
    with pytest.raises(fpstore.InputError, match=f"dtype {values.dtype}, shape"):
        fpstore.build(tmp_path / "s", Series(values))
    assert listing(tmp_path) == []


def test_row_numbers_run_on_over_the_parts(tmp_path, rows):
    fingerprints, _ = rows
    numbers = np.arange(len(fingerprints), dtype=np.uint64)
    wanted = build(tmp_path / "a", fingerprints, numbers)
    assert build(tmp_path / "b", fingerprints) == wanted
    assert build(tmp_path / "c", pieces(fingerprints)) == wanted


@pytest.mark.parametrize("suffix", ["npy", "u64", "tsv"])
def test_readers(tmp_path, rows, expected, suffix):
    fingerprints, ids = rows
    path = tmp_path / f"input.{suffix}"
    if suffix == "npy":
        np.save(path, fingerprints)
    elif suffix == "u64":
        fingerprints.astype("<u8").tofile(path)
    else:
        lines = zip(fingerprints.tolist(), ids.tolist(), strict=True)
        path.write_text("".join(f"{f:016x}\t{i}\n" for f, i in lines))
        assert build(tmp_path / "s", open_reader(path, chunk_rows=700)) == expected
        return
    wanted = build(tmp_path / "wanted", fingerprints)
    assert build(tmp_path / "s", open_reader(path, chunk_rows=700)) == wanted
    assert build(tmp_path / "t", open_reader([path])) == wanted


def test_string_ids_from_a_reader(tmp_path):
    path = tmp_path / "input.tsv"
    path.write_text("2a\tdoc a\n2b\tdoc b\n2a\tdoc c\n")
    with fpstore.build(tmp_path / "s", open_reader(path)) as store:
        assert store[0x2A] == ["doc a", "doc c"]


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("ids", [["a", "b"], [7, 8], None])
def test_an_empty_part_does_not_change_the_kind_of_ids(tmp_path, ids, at):
    parts = [np.array([1], np.uint64), np.array([2], np.uint64)]
    id_parts = None if ids is None else [[ids[0]], [ids[1]]]
    parts.insert(at, np.empty(0, np.uint64))
    if id_parts is not None:
        id_parts.insert(at, [])
    with fpstore.build(tmp_path / "s", parts, id_parts) as store:
        wanted = [0, 1] if ids is None else ids
        assert (store[1], store[2]) == ([wanted[0]], [wanted[1]])


# --- Small memory ---------------------------------------------------------------------------------


@pytest.fixture
def tiny(monkeypatch):
    """Let the least budget hold 64 rows, so that a few thousand rows are spilled, split again and merged."""
    monkeypatch.setattr("fpstore.sorting.PAIR_BYTES", MIB)
    monkeypatch.setattr("fpstore.sorting.KEY_BYTES", MIB)
    monkeypatch.setattr("fpstore.sorting.COPY_ROWS", 16)
    monkeypatch.setattr("fpstore.sorting.Column.pieces.__defaults__", (16,))
    monkeypatch.setattr("fpstore.table.DECODE_ROOM", 1)


@pytest.mark.parametrize(
    ("name", "kind"), [*(("manku-4", kind) for kind in ROWS), ("manku-20", "skewed"), ("flip-2", "one prefix")]
)
def test_spilled_builds_are_byte_identical(tmp_path, request, name, kind):
    fingerprints, ids = make_rows(kind, 500)
    options = {"design": name, "block_bytes": 128, "memory": "64MiB"}
    wanted = build(tmp_path / "memory", fingerprints, ids, **options)
    request.getfixturevalue("tiny")
    assert build(tmp_path / "spilled", pieces(fingerprints), pieces(ids), **options) == wanted
    for threads in (1, 3):
        assert build(tmp_path / f"threads-{threads}", fingerprints, ids, threads=threads, **options) == wanted
    assert sorted(p.name for p in (tmp_path / "spilled").iterdir()) == ["gen-00000001", "store.mdb"]


def test_the_tiny_budget_does_spill(tmp_path, tiny, monkeypatch):
    from fpstore import builder, sorting

    splits = []
    parts = []
    split, permuted_parts = sorting._split, sorting.permuted_parts
    monkeypatch.setattr(sorting, "_split", lambda *args: splits.append(args[1]) or split(*args))
    monkeypatch.setattr(builder, "permuted_parts", lambda *args: parts.append(0) or _counted(permuted_parts, args, parts))
    build(tmp_path / "s", *make_rows("one prefix", 900), design="manku-4", memory=64 * MIB)
    assert set(splits) == {0, 8, 16, 24, 32, 40, 48, 56} or max(splits) >= 40
    assert len(parts) == 3
    assert min(parts) > 5


def _counted(function, args, parts):
    place = len(parts) - 1
    for part in function(*args):
        parts[place] += 1
        yield part


def test_string_ids_in_small_memory(tmp_path, tiny):
    fingerprints, ids = make_rows("clustered", 1000)
    names = [f"name {i % 400}" for i in ids.tolist()]
    _, got = build(tmp_path / "s", fingerprints, names, memory="64MiB")
    assert sorted(got) == sorted(set(zip(fingerprints.tolist(), names, strict=True)))


MANY_PARTS = """
    import resource, sys, numpy as np, fpstore
    from fpstore import sorting
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    sorting.PAIR_BYTES, sorting.COPY_ROWS = 1 << 20, 1 << 12
    digits = np.arange(256, dtype=np.uint64)
    keys = np.concatenate([digits << np.uint64(56 - 8 * depth) for depth in range(8)])
    with fpstore.build(sys.argv[1], keys, memory="64MiB", design="flip-2") as store:
        print(len(store), store.verify().ok)
"""


@pytest.mark.parametrize("most", [1, 100, 1000])
def test_many_ids_a_fingerprint_are_packed_in_small_memory(tmp_path, tiny, monkeypatch, most):
    """The ids of a few fingerprints are held together, not those of all the fingerprints of a piece or of many blocks."""
    fingerprints = np.repeat(make_rows("random", 2000)[0], 5)
    ids = np.random.default_rng(1).permutation(np.arange(10_000, dtype=np.uint64))
    expected = build(tmp_path / "a", fingerprints, ids, block_bytes=128)
    monkeypatch.setattr("fpstore.builder.COPY_ROWS", most)
    monkeypatch.setattr("fpstore.ids.PENDING_IDS", most)
    taken, packed = [], []
    take, pack = Column.take, _kernel.pack_ids

    def counted_take(self, rows):
        taken.append(rows)
        return take(self, rows)

    def counted_pack(numbers, *args):
        packed.append(len(numbers))
        return pack(numbers, *args)

    monkeypatch.setattr(Column, "take", counted_take)
    monkeypatch.setattr(_kernel, "pack_ids", counted_pack)
    assert build(tmp_path / "b", fingerprints, ids, block_bytes=128) == expected
    ids_of_one = 5 * int(np.unique(fingerprints, return_counts=True)[1].max() // 5)
    assert sum(taken) == sum(packed) == len(fingerprints)
    assert max(taken) <= max(most, ids_of_one)
    assert max(packed) <= 2 * most + 40 * ids_of_one  # and the block that was open


def test_splitting_again_and_again_does_not_run_out_of_open_files(tmp_path):
    code, out, err = run_python(MANY_PARTS, tmp_path / "s")
    assert (code, out, err) == (0, "2041 True\n", "")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["manku-10", "flip-2"])
def test_a_build_larger_than_its_memory(tmp_path, name):
    rng = np.random.default_rng(1)
    fingerprints = rng.integers(0, 2**64, 6_000_000, np.uint64)
    fingerprints[::7] = fingerprints[3]
    a, b = tmp_path / "a", tmp_path / "b"
    fpstore.build(a, fingerprints, design=name, memory="64MiB").close()
    fpstore.build(b, fingerprints, design=name, memory="8GiB", threads=1).close()
    assert tables_of(a) == tables_of(b)
    with fpstore.open(a) as one, fpstore.open(b) as other:
        assert one.verify().ok
        assert one[int(fingerprints[3])] == other[int(fingerprints[3])]


def test_threads_do_not_change_a_byte(tmp_path):
    fingerprints, ids = make_rows("skewed", 5000)
    one = build(tmp_path / "one", fingerprints, ids, design="manku-20", threads=1)
    for threads in (2, 5, None):
        assert build(tmp_path / f"t{threads}", fingerprints, ids, design="manku-20", threads=threads) == one


@pytest.mark.parametrize("block_bytes", [128, 256, 512, 1024, 2048, 4096])
def test_block_sizes(tmp_path, block_bytes):
    fingerprints, ids = make_rows("random", 3000)
    tables, rows = build(tmp_path / "s", fingerprints, ids, block_bytes=block_bytes, radius=2)
    assert rows == sorted(set(zip(fingerprints.tolist(), ids.tolist(), strict=True)))
    for data in tables.values():
        assert tableimage.open_table(data).block_bytes == block_bytes


def test_a_build_does_not_change_its_input(tmp_path):
    fingerprints, ids = make_rows("random", 1000)
    copies = fingerprints.copy(), ids.copy()
    fingerprints.flags.writeable = ids.flags.writeable = False
    build(tmp_path / "s", fingerprints, ids)
    assert np.array_equal(fingerprints, copies[0])
    assert np.array_equal(ids, copies[1])


# --- Target ---------------------------------------------------------------------------------------


def listing(folder):
    return sorted(p.name for p in folder.iterdir())


def test_an_existing_store_is_replaced_only_on_request(tmp_path):
    path = tmp_path / "s"
    build(path, [1, 2, 3])
    with pytest.raises(fpstore.StoreExistsError, match="overwrite \\(--force\\)"):
        fpstore.build(path, [4])
    with fpstore.open(path) as old:
        assert 1 in old
        with fpstore.build(path, [4, 5], overwrite=True) as new:
            assert (len(new), 4 in new, 1 in new) == (2, True, False)
            assert old.probe(1, 0)[0].ids == [0]  # still the whole old store
            assert old.verify().ok
            assert new.verify().ok
    assert listing(tmp_path) == ["s"]
    assert listing(path) == ["gen-00000001", "store.mdb"]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("what", ["file", "folder", "full folder", "dangling link"])
def test_what_is_no_store_is_never_replaced(tmp_path, what, overwrite):
    path = tmp_path / "s"
    if what == "file":
        path.write_text("precious")
    elif what == "dangling link":
        path.symlink_to("nowhere")
    else:
        path.mkdir()
        if what == "full folder":
            (path / "precious").write_text("precious")
    with pytest.raises(fpstore.StoreExistsError, match="exists"):
        fpstore.build(path, [1], overwrite=overwrite)
    assert listing(tmp_path) == ["s"]
    assert path.is_symlink() == (what == "dangling link")


def test_overwrite_through_a_link_replaces_the_store_it_names(tmp_path):
    (tmp_path / "real").mkdir()
    build(tmp_path / "real" / "store", [1])
    (tmp_path / "link").symlink_to("real/store")
    with fpstore.build(tmp_path / "link", [2], overwrite=True) as store:
        assert 2 in store
    assert (tmp_path / "link").is_symlink()
    with fpstore.open(tmp_path / "real" / "store") as store:
        assert (1 in store, 2 in store) == (False, True)
    assert listing(tmp_path) == ["link", "real"]
    assert listing(tmp_path / "real") == ["store"]


def test_overwrite_needs_no_store(tmp_path):
    build(tmp_path / "s", [1], overwrite=True)
    assert listing(tmp_path) == ["s"]


@pytest.mark.parametrize("name", ["missing/s", "file/s"])
def test_parent_missing(tmp_path, name):
    (tmp_path / "file").write_text("")
    with pytest.raises(fpstore.StorageError, match="no such folder"):
        fpstore.build(tmp_path / name, [1])
    assert listing(tmp_path) == ["file"]


@pytest.mark.parametrize("name", ["a b", "*", "[x]", "Grüße", ".hidden", "x" * 200])
def test_odd_names(tmp_path, name):
    build(tmp_path / name, [1])
    build(tmp_path / name, [2], overwrite=True)
    assert listing(tmp_path) == [name]


def test_a_read_only_parent(tmp_path, read_only):
    parent = tmp_path / "parent"
    parent.mkdir()
    build(parent / "old", [1])
    with read_only(parent):
        for name in ("new", "old"):
            with pytest.raises(fpstore.StorageError, match=f"{name}: cannot write beside it"):
                fpstore.build(parent / name, [1], overwrite=True)
    assert listing(parent) == ["old"]


# --- Interruptions --------------------------------------------------------------------------------


class StopError(Exception):
    pass


def stopping_source(error):
    yield np.arange(1000, dtype=np.uint64)
    raise error


@pytest.mark.parametrize("error", [StopError(), KeyboardInterrupt(), fpstore.InputError("no"), SystemExit(3)])
def test_a_failing_source_leaves_nothing(tmp_path, error):
    with pytest.raises(type(error)) as caught:
        fpstore.build(tmp_path / "s", stopping_source(error))
    assert caught.value is error
    assert listing(tmp_path) == []


@pytest.mark.parametrize("spilled", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_failing_callback_leaves_nothing_and_keeps_the_old_store(tmp_path, request, spilled, threads):
    if spilled:
        request.getfixturevalue("tiny")
    fingerprints, ids = make_rows("clustered", 400)
    names = [f"name {i}" for i in ids.tolist()]
    path = tmp_path / "s"
    old = build(path, [1, 2, 3], ["x", "y", "z"])
    options = {"design": "manku-4", "threads": threads, "memory": "64MiB", "overwrite": True}
    calls = []
    build(tmp_path / "counted", fingerprints, names, progress=lambda *args: calls.append(args), **options)
    assert {phase for phase, _, _ in calls} == {"reading", "sorting", "tables"}
    for at in {0, 1, 2, 3, len(calls) // 3, len(calls) // 2, len(calls) - 3, len(calls) - 2, len(calls) - 1}:
        count = itertools.count()

        def progress(phase, done, total, at=at, count=count):
            if next(count) == at:
                raise StopError

        with pytest.raises(StopError):
            fpstore.build(path, fingerprints, names, progress=progress, **options)
        assert listing(tmp_path) == ["counted", "s"], at
        assert tables_of(path) == old[0]
        with fpstore.open(path) as store:
            assert rows_of(store) == old[1]


def test_progress_counts_rows(tmp_path):
    calls = []
    fingerprints, ids = make_rows("duplicates", 3000)
    build(tmp_path / "s", pieces(fingerprints), pieces(ids), progress=lambda *a: calls.append(a), design="flip-2")
    phases = list(dict.fromkeys(phase for phase, _, _ in calls))
    assert phases == ["reading", "sorting", "tables"]
    for phase in phases:
        done = [d for p, d, _ in calls if p == phase]
        assert done[0] == 0
        assert done == sorted(done)
    totals = {phase: (done, total) for phase, done, total in calls}
    assert totals["reading"] == (3000, None)
    assert totals["sorting"] == (3000, 3000)
    distinct = len(np.unique(fingerprints))
    assert totals["tables"] == (2 * distinct, 2 * distinct)


def run_python(code, *args, stdin=None, wait=True):
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", textwrap.dedent(code), *map(str, args)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    if wait:
        out, err = process.communicate(stdin, timeout=120)
        return process.returncode, out, err
    return process


KILLED = """
    import os, signal, sys, numpy as np, fpstore
    def source():
        yield np.arange(1000, dtype=np.uint64)
        os.kill(os.getpid(), signal.SIGKILL)
    fpstore.build(sys.argv[1], source())
"""


def test_what_a_killed_builder_left_is_removed_by_the_next(tmp_path):
    code, _, _ = run_python(KILLED, tmp_path / "s")
    assert code == -signal.SIGKILL
    (left,) = listing(tmp_path)
    assert left.startswith(".s.tmp-")
    build(tmp_path / "other", [1])
    assert listing(tmp_path) == [left, "other"]
    build(tmp_path / "s", [1])
    assert listing(tmp_path) == ["other", "s"]


LIVING = """
    import sys, numpy as np, fpstore
    def source():
        yield np.arange(1000, dtype=np.uint64)
        print("building", flush=True)
        sys.stdin.readline()
    try:
        fpstore.build(sys.argv[1], source(), overwrite=sys.argv[2] == "overwrite")
        print("built")
    except fpstore.StoreExistsError as error:
        print(error)
"""


@pytest.mark.parametrize("when", ["before it is opened", "before it is locked", "while it is locked"])
def test_a_new_folder_that_another_builder_takes_for_abandoned(tmp_path, monkeypatch, when):
    """Between its making and its lock nothing tells a new folder from an abandoned one: then another is made."""
    flock, real_open = fcntl.flock, os.open
    taken = {}

    def take(folder):
        if not taken:
            other = taken[folder] = real_open(folder, os.O_RDONLY)
            flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if when != "while it is locked":
                folder.rmdir()
                os.close(other)

    def opened(path, *args, **options):
        if when == "before it is opened" and ".s.tmp-" in str(path):
            take(Path(path))
        return real_open(path, *args, **options)

    def locked(descriptor, operation):
        if when != "before it is opened":
            take(Path(f"/proc/self/fd/{descriptor}").readlink())
        flock(descriptor, operation)

    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(fcntl, "flock", locked)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with Target(tmp_path / "s", False) as folder:
        (other,) = taken.values()
        assert folder not in taken
        assert folder.is_dir()
    if when == "while it is locked":
        os.close(other)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert [name for name in listing(tmp_path) if tmp_path / name not in taken] == ["s"]


@pytest.mark.parametrize("overwrite", [True, False])
def test_what_a_living_builder_writes_is_left_alone(tmp_path, overwrite):
    process = run_python(LIVING, tmp_path / "s", "overwrite" if overwrite else "keep", wait=False)
    try:
        assert process.stdout.readline() == "building\n"
        build(tmp_path / "s", [1])
        assert len(listing(tmp_path)) == 2
        out, err = process.communicate("\n", timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert err == ""
    assert listing(tmp_path) == ["s"]
    with fpstore.open(tmp_path / "s") as store:
        if overwrite:
            assert (out, len(store)) == ("built\n", 1000)
        else:
            assert "appeared while it was built: nothing was changed" in out
            assert len(store) == 1


INTERRUPTED = """
    import os, signal, sys, threading, numpy as np, fpstore
    sent = []
    def progress(phase, done, total):
        if phase == sys.argv[2] and done and not sent:
            if sys.argv[3] == "worker" and threading.current_thread() is threading.main_thread():
                return
            sent.append(os.kill(os.getpid(), signal.SIGINT))
    keys = np.random.default_rng(1).integers(0, 2**64, 300_000, np.uint64)
    try:
        fpstore.build(sys.argv[1], keys, design="manku-20", threads=2, progress=progress)
    except KeyboardInterrupt:
        print("interrupted", threading.active_count())
"""


@pytest.mark.parametrize(
    ("phase", "thread"), [("reading", "main"), ("sorting", "main"), ("tables", "main"), ("tables", "worker")]
)
def test_control_c_leaves_nothing(tmp_path, phase, thread):
    code, out, err = run_python(INTERRUPTED, tmp_path / "s", phase, thread)
    assert (code, out, err) == (0, "interrupted 1\n", "")
    assert listing(tmp_path) == []


# --- Full disks -----------------------------------------------------------------------------------

FULL = """
    import resource, sys, numpy as np, fpstore
    from fpstore import sorting
    path, limit, spilled, strings = sys.argv[1:]
    if limit != "none":
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
    if spilled == "spilled":
        sorting.PAIR_BYTES = sorting.KEY_BYTES = 1 << 16
    keys = np.random.default_rng(1).integers(0, 2**64, 20_000, np.uint64)
    ids = [f"document {i}" for i in range(len(keys))] if strings == "strings" else None
    try:
        fpstore.build(path, keys, ids, design="manku-10", memory="64MiB", overwrite=True)
    except fpstore.StorageError as error:
        print(error)
    else:
        print("built")
"""


@pytest.mark.parametrize(("spilled", "strings"), [("spilled", "strings"), ("memory", "rows")])
@pytest.mark.parametrize("size_kib", [4, 16, 48, 128, 320, 640, 8192])
def test_a_full_disk_leaves_nothing(small_disk, size_kib, spilled, strings):
    disk, limit = small_disk(size_kib << 10)
    code, out, err = run_python(FULL, disk / "s", limit or "none", spilled, strings)
    assert (code, err) == (0, "")
    if size_kib == 8192:
        assert out == "built\n"
        assert listing(disk) == ["s"]
    elif limit is None:
        assert out.count("\n") == 1
        assert "No space left on device" in out
        assert listing(disk) == []


@pytest.mark.parametrize("size_kib", [4, 16, 24, 64])
def test_a_file_size_limit_leaves_nothing(tmp_path, size_kib):
    build(tmp_path / "s", [1, 2])
    code, out, err = run_python(FULL, tmp_path / "s", size_kib << 10, "spilled", "strings")
    assert (code, err, out.count("\n")) == (0, "", 1)
    assert out != "built\n"
    assert listing(tmp_path) == ["s"]
    with fpstore.open(tmp_path / "s") as store:
        assert rows_of(store) == [(1, 0), (2, 1)]


# --- Refused arguments ----------------------------------------------------------------------------

ONE = np.array([1], np.uint64)
BAD = {
    "text": (("abc",), {}, "iterable of such arrays, or a reader, got str"),
    "number": ((3,), {}, "got int"),
    "dict": (({1: 2},), {}, "got dict"),
    "iterable of ints": ((range(1, 3),), {}, "must be an array or a list, got int 1"),
    "signed part": (([ONE, ONE.view(np.int64)],), {}, "int64"),
    "few ids": (([1, 2], [1]), {}, "1 ids for 2 fingerprints"),
    "many ids": (([1, 2], ["a", "b", "c"]), {}, "3 ids for 2 fingerprints"),
    "few id parts": (([ONE, ONE], [[1]]), {}, "fewer id arrays than fingerprint arrays"),
    "many id parts": (([ONE], [[1], [2]]), {}, "more id arrays than fingerprint arrays"),
    "id array for parts": (([ONE], np.array([1])), {}, "ids must be an iterable of as many id arrays"),
    "id text for parts": (([ONE], "a"), {}, "ids must be an iterable of as many id arrays"),
    "ids of two kinds": (([ONE, ONE], [[1], ["a"]]), {}, "ids of the same kind"),
    "mixed ids": (([1, 2], [1, "a"]), {}, "all integers or all strings"),
    "negative id": (([1], [-1]), {}, "-1"),
    "large id": (([1], [2**64]), {}, "2\\^64-1"),
    "float id": (([1], [1.5]), {}, "1.5"),
    "float ids": (([1], np.array([1.5])), {}, "float64"),
    "empty id": (([1], [""]), {}, "the id is empty"),
    "surrogate id": (([1], ["\ud800"]), {}, "cannot be encoded as UTF-8"),
    "id text": (([1], "a"), {}, "ids must be an array or a list, got str"),
    "radius": ((ONE,), {"radius": 8}, "radius must be a whole number from 0 to 7, got 8"),
    "design": ((ONE,), {"design": "manku-5"}, "unknown design 'manku-5'"),
    "design for radius": ((ONE,), {"design": "manku-4", "radius": 4}, "manku-4 is exact up to radius 3"),
    "uncovered": (
        (ONE,),
        {"design": [{"permutation": list(range(64)), "prefix_bits": 16}]},
        "some pairs meet in none",
    ),
    "memory": ((ONE,), {"memory": "63MiB"}, "memory must be at least 64MiB"),
    "memory text": ((ONE,), {"memory": "lots"}, "memory must be a number of bytes or a size such as 2GiB"),
    "memory negative": ((ONE,), {"memory": -1}, "memory must be positive"),
    "threads": ((ONE,), {"threads": 0}, "threads must be a whole number from 1 to 1024, got 0"),
    "block bytes": ((ONE,), {"block_bytes": 1000}, "block_bytes must be one of 128, 256"),
    "storage": ((ONE,), {"storage": "lukewarm"}, "storage must be hot or cold"),
    "disk budget": ((ONE,), {"disk_budget": 1}, "no design fits the disk budget: .* is the smallest at"),
}


@pytest.mark.parametrize("case", BAD)
def test_refused(tmp_path, case):
    args, options, message = BAD[case]
    for overwrite in (False, True):
        with pytest.raises(fpstore.InputError, match=message) as caught:
            fpstore.build(tmp_path / "s", *args, overwrite=overwrite, **options)
        assert "\n" not in str(caught.value)
        assert listing(tmp_path) == []


class Unread:
    """A source that knows how many rows it has, and is not to be read."""

    rows = 1 << 34

    def __iter__(self):
        raise AssertionError("read")


def test_a_design_with_too_many_lookups_is_refused_unread(tmp_path):
    with pytest.raises(fpstore.InputError, match=r"flip-1 needs .* look-ups in table 0 at radius 7; .* choose a design"):
        fpstore.build(tmp_path / "s", Unread(), design="flip-1", radius=7)
    assert listing(tmp_path) == []


def test_a_design_with_too_many_lookups_is_refused_before_its_tables_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr("fpstore.design.MAX_VARIANTS", 1000)
    monkeypatch.setattr("fpstore.builder.TableWriter", None)
    fingerprints = make_rows("random", 1 << 14)[0]
    _lookups.cache_clear()
    with pytest.raises(fpstore.InputError, match=r"flip-1 needs .* look-ups in table 0 at radius 7"):
        fpstore.build(tmp_path / "s", pieces(fingerprints), design="flip-1", radius=7)
    assert listing(tmp_path) == []
    monkeypatch.undo()
    _lookups.cache_clear()


def test_ids_do_not_go_with_a_reader(tmp_path):
    np.save(tmp_path / "a.npy", ONE)
    with pytest.raises(fpstore.InputError, match="ids come with the reader"):
        fpstore.build(tmp_path / "s", open_reader(tmp_path / "a.npy"), [[1]])
    assert listing(tmp_path) == ["a.npy"]


def test_a_bad_line_of_a_reader_is_named(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("2a\nzz\n")
    with pytest.raises(fpstore.InputError, match=f"{path}:2: "):
        fpstore.build(tmp_path / "s", open_reader(path))
    assert listing(tmp_path) == ["a.tsv"]


def test_the_disk_budget_bounds_the_choice(tmp_path):
    fingerprints = make_rows("random", 20_000)[0]
    free = fpstore.build(tmp_path / "free", fingerprints)
    budget = 300_000
    bound = fpstore.build(tmp_path / "bound", fingerprints, disk_budget=budget)
    with free, bound:
        assert len(bound.design.tables) < len(free.design.tables)
        assert bound.stats()["bytes"]["total"] < 1.1 * budget < free.stats()["bytes"]["total"]
        assert bound.probe(int(fingerprints[0])) == free.probe(int(fingerprints[0]))


def test_the_building_process_needs_no_other_folder(tmp_path):
    """Nothing is written outside the target's parent."""
    code, _, err = run_python(
        "import os, sys, fpstore; os.environ['TMPDIR'] = '/nonexistent'; fpstore.build(sys.argv[1], [1, 2])",
        tmp_path / "s",
    )
    assert (code, err) == (0, "")
    assert os.listdir(tmp_path) == ["s"]  # noqa: PTH208 - hidden names too
