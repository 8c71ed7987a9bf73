"""A disk that gets full at every stage, and stores that may only be read: a clear error, and the store as it was."""

import os
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from children import fill, in_child

import fpstore

RNG = np.random.default_rng(5)
FINGERPRINTS = RNG.integers(0, 2**64, 1000, np.uint64)
MORE = RNG.integers(0, 2**64, 1000, np.uint64)
OTHER = RNG.integers(0, 2**64, 800, np.uint64)
STRINGS = [f"document {i}" for i in range(10_000)]
DISK_BYTES = 4 << 20
NOBODY = 65534


def rows_of(store):
    found = set()
    for keys, lims, ids in store.items():
        ids = ids if isinstance(ids, list) else ids.tolist()
        found.update((key, i) for key, a, b in zip(keys.tolist(), lims, lims[1:], strict=False) for i in ids[a:b])
    return found


def content(path):
    with fpstore.open(path) as store:
        report = store.verify()
        assert report.ok, report.faults
        return rows_of(store)


# Each stage: what it does to an open store (None: it opens or builds one itself), and what there is afterwards.


def start(store, disk):
    with fpstore.open(disk / "s", "r+"):
        pass


def build(store, disk):
    fpstore.build(disk / "new", FINGERPRINTS, STRINGS[:1000], radius=3, design="flip-2", threads=1).close()


def insert(store, disk):
    store.insert(MORE, STRINGS[3000:4000])


def insert_one(store, disk):
    store.insert([int(MORE[0])], [STRINGS[3000]])


def probe_insert(store, disk):
    store.probe_insert_many(MORE, STRINGS[3000:4000], always=True, threads=1)


def delete(store, disk):
    store.delete(ids=STRINGS[:700])


def merge(store, disk):
    store.merge(threads=1)


def join(store, disk):
    store.absorb(disk.parent / "other", threads=1)


def split(store, disk):
    store.split(disk / "out", 1, overwrite=True, threads=1)


def back_up(store, disk):
    store.backup(disk / "copy")


def batch(store, disk):
    store.insert(MORE, STRINGS[3000:4000], sync="none")
    store.flush()


STAGES = [build, insert, insert_one, probe_insert, batch, delete, merge, join, split, back_up]
BESIDE = {build: ["new"], split: ["out/0.fps", "out/1.fps"], back_up: ["copy"]}
CLOSED = (start, build)


def expected_after(stage, before):
    if stage in (insert, probe_insert, batch):
        return before | set(zip(MORE.tolist(), STRINGS[3000:4000], strict=True))
    if stage is insert_one:
        return before | {(int(MORE[0]), STRINGS[3000])}
    if stage is delete:
        gone = set(STRINGS[:700])
        return {row for row in before if row[1] not in gone}
    if stage is join:
        return before | set(zip(OTHER.tolist(), STRINGS[7000:7800], strict=True))
    return before


@pytest.fixture
def disk(mounted_disk):
    return mounted_disk(DISK_BYTES)


@pytest.fixture
def template(tmp_path):
    """Two stores: one that was never changed, and one with changes."""
    ids = STRINGS[: len(FINGERPRINTS)]
    fpstore.build(tmp_path / "plain", FINGERPRINTS, ids, radius=3, design="flip-2", threads=1).close()
    shutil.copytree(tmp_path / "plain", tmp_path / "changed")
    with fpstore.open(tmp_path / "changed", "r+") as store:
        store.insert(OTHER[:500], STRINGS[9000:9500])
        store.delete(ids=STRINGS[800:900])
    fpstore.build(tmp_path / "other", OTHER, STRINGS[7000:7800], radius=3, design="flip-2", threads=1).close()
    return tmp_path


def at_a_room(stage, disk, room):
    """Do a stage with so many pages of room, and again with enough; return whether the room was enough."""
    path = disk / "s"
    before = content(path)
    after = expected_after(stage, before)
    reader = fpstore.open(path)
    store = None if stage in CLOSED else fpstore.open(path, "r+")
    fill(disk, room)
    refused, said = False, ""
    try:
        stage(store, disk)
    except fpstore.StorageError as error:
        refused, said = True, str(error)
    now = after if not refused else before
    assert rows_of(reader) == now
    assert content(path) == now
    if refused:
        assert said.startswith(str(disk))
        assert "No space left on device: free some space" in said
        assert "\n" not in said
        assert not [output for output in BESIDE.get(stage, []) if (disk / output).exists()] or stage is split
        if store is not None:
            assert rows_of(store) == before or (stage is batch and rows_of(store) == after)  # it is not durable yet
        (disk / "filler").unlink()
        stage(store, disk)
        assert rows_of(reader) == after
        assert content(path) == after
    for output in BESIDE.get(stage, []):
        assert content(disk / output)
    if store is not None:
        store.close()
    reader.close()
    (disk / "filler").unlink(missing_ok=True)
    with fpstore.open(path, "r+") as store:
        assert rows_of(store) == after
    left = [p.name for p in disk.iterdir() if p.name.startswith(".")] + [p.name for p in path.glob("gen-*.tmp")]
    assert not left
    assert len(list(path.glob("gen-*"))) == 1
    return int(not refused)


def put(disk, store):
    """Let there be nothing but this store."""
    for entry in disk.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    shutil.copytree(store, disk / "s")


def go_through(disk, template, stage, rooms):
    enough = []
    for room in rooms:
        put(disk, template / ("changed"))
        enough.append(int(in_child(at_a_room, stage, disk, room)))
        if sum(enough) == 2:
            break
    assert not enough[0] or stage is insert_one  # the last page of a log may have room for one more
    assert enough[-1]


@pytest.mark.parametrize("pages", [(0, 30, 640), pytest.param((7, 120), marks=pytest.mark.slow)])
@pytest.mark.parametrize("stage", STAGES)
def test_a_disk_that_is_full_at_a_stage(disk, template, stage, pages):
    go_through(disk, template, stage, pages)


def join_without_room_for_numbers(disk, other):
    with fpstore.open(disk / "s", "r+") as store:
        before = rows_of(store)
        fill(disk, 20)
        with pytest.raises(fpstore.StorageError, match="No space left on device: free some space; nothing was merged"):
            store.absorb(other)
        assert rows_of(store) == before
        (disk / "filler").unlink()
        store.absorb(other)
        assert rows_of(store) == before


def test_a_join_that_finds_no_room_for_the_numbers_of_strings_does_not_end_the_process(tmp_path, mounted_disk):
    """Their table is mapped; the other store has no new strings, so the table is all that a join writes at first."""
    disk = mounted_disk(4 * DISK_BYTES)
    strings = [f"document {i}" for i in range(20_000)]
    fpstore.build(tmp_path / "other", RNG.integers(0, 2**64, len(strings), np.uint64), strings).close()
    put(disk, tmp_path / "other")
    in_child(join_without_room_for_numbers, disk, tmp_path / "other")


def test_a_store_is_opened_for_writing_on_a_full_disk(disk, template):
    put(disk, template / "plain")
    assert in_child(at_a_room, start, disk, 0) == "1"


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_a_disk_with_any_number_of_pages_left(disk, template, stage):
    go_through(disk, template, stage, range(600))


# --- Stores that may only be read -------------------------------------------------------------------


def as_nobody(work):
    """Do work as a user who owns nothing."""

    def drop_and_work():
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        return work()

    return drop_and_work


@pytest.fixture(params=["mount", "user"])
def restricted(request, template):
    """Return (the folder of the stores, where they may only be read, what makes work done by one who may only read).

    The folders above are open to everybody.
    """
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount, or become another user")
    top = Path(tempfile.mkdtemp())
    top.chmod(0o755)
    try:
        shutil.copytree(template, top / "stores")
        (top / "stores").chmod(0o755)
        if request.param == "user":
            yield top / "stores", top / "stores", as_nobody
            return
        (top / "view").mkdir()
        if subprocess.run(["mount", "--bind", top / "stores", top / "view"], capture_output=True).returncode:
            pytest.skip("nothing can be mounted here")
        try:
            subprocess.run(["mount", "-o", "remount,bind,ro", top / "view"], check=True)
            yield top / "stores", top / "view", lambda work: work
        finally:
            subprocess.run(["umount", "--lazy", top / "view"], check=True)
    finally:
        shutil.rmtree(top)


def listing(path):
    return {p.relative_to(path): p.stat().st_mtime_ns for p in path.rglob("*")}


@pytest.mark.parametrize("kind", ["plain", "changed", "without lock files"])
def test_who_may_not_write_reads(restricted, kind):
    stores, where, reading = restricted
    name = kind if kind == "plain" else "changed"
    expected = content(stores / name)
    if kind == "without lock files":
        for lock in (stores / name).rglob("*lock"):
            lock.unlink()
    before = listing(stores / name)

    def work():
        path = where / name
        with pytest.raises(OSError):
            (path / "x").touch()
        assert content(path) == expected
        with fpstore.open(path) as store:
            assert store.probe(int(FINGERPRINTS[0]))[0].ids == [STRINGS[0]]
            with pytest.raises(fpstore.ReadOnlyError) as caught:
                fpstore.open(path, "r+")
            assert str(path) in str(caught.value)
            assert "\n" not in str(caught.value)
            assert rows_of(store) == expected

    in_child(reading(work))
    assert listing(stores / name) == before


@pytest.mark.parametrize("name", ["plain", "changed"])
def test_a_reader_that_may_not_write_beside_a_writer(restricted, name):
    """It opens, sees each commit and each merge, and keeps nobody away."""
    stores, where, reading = restricted
    expected = content(stores / name)
    asked, answered = os.pipe(), os.pipe()

    def read_on():
        with fpstore.open(where / name) as store:
            for _ in range(3):
                os.write(answered[1], str(len(rows_of(store))).encode())
                os.read(asked[0], 1)
            assert len(rows_of(store)) == len(expected) + 2

    def seen():
        return int(os.read(answered[0], 20))

    with fpstore.open(stores / name, "r+") as store, ThreadPoolExecutor(1) as pool:
        reader = pool.submit(in_child, reading(read_on))
        try:
            assert seen() == len(expected)
            store.insert([int(MORE[0])], [STRINGS[3000]])
            os.write(asked[1], b".")
            assert seen() == len(expected) + 1
            store.merge()
            os.write(asked[1], b".")
            assert seen() == len(expected) + 1
            store.insert([int(MORE[1])], [STRINGS[3001]])
        finally:
            os.write(asked[1], b".")
        reader.result()
    for descriptor in (*asked, *answered):
        os.close(descriptor)
