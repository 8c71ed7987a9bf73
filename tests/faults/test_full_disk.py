"""Disks that are full, and stores that may only be read: a clear error, and the store as it was."""

import os
import re
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import run
from disks import fill
from forks import forked
from resuming import near
from small_stores import content, rows_of
from speeds import crossed, slow

import fpstore
from fpstore.disk.temporary import SpillFile, array_on_disk
from fpstore.work.places import StoredPlace, scratch_folder

RNG = np.random.default_rng(5)
FINGERPRINTS = RNG.integers(0, 2**64, 1000, np.uint64)
MORE = RNG.integers(0, 2**64, 1000, np.uint64)
OTHER = RNG.integers(0, 2**64, 800, np.uint64)
STRINGS = [f"document {i}" for i in range(10_000)]
DISK_BYTES = 4 << 20
NOBODY = 65534


@pytest.fixture
def disk(mounted_disk):
    return mounted_disk(DISK_BYTES)


@pytest.fixture
def template(tmp_path):
    """Two stores: one that was never changed, and one with changes."""
    ids = STRINGS[: len(FINGERPRINTS)]
    fpstore.build(
        tmp_path / "plain", FINGERPRINTS, ids, radius=3, design="flip-2", threads=1
    ).close()
    shutil.copytree(tmp_path / "plain", tmp_path / "changed")
    with fpstore.open(tmp_path / "changed", "r+") as store:
        store.insert(OTHER[:500], STRINGS[9000:9500])
        store.delete(ids=STRINGS[800:900])
    return tmp_path


def put(disk, store):
    """Let there be nothing but this store."""
    for entry in disk.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    shutil.copytree(store, disk / "s")


def join_without_room_for_numbers(disk, other):
    with fpstore.open(disk / "s", "r+") as store:
        before = rows_of(store)
        fill(disk, 20)
        with pytest.raises(
            fpstore.StorageError,
            match="No space left on device: free some space; nothing was merged",
        ):
            store.absorb(other)
        assert rows_of(store) == before
        (disk / "filler").unlink()
        store.absorb(other)
        assert rows_of(store) == before


@pytest.mark.full
def test_join_without_room_for_string_numbers_raises_an_error(tmp_path, mounted_disk):
    """The table of the numbers is mapped: a fault in it would end the process.

    The other store has no new strings, so the table is all that a join writes at first.
    """
    disk = mounted_disk(4 * DISK_BYTES)
    strings = [f"document {i}" for i in range(20_000)]
    fpstore.build(
        tmp_path / "other", RNG.integers(0, 2**64, len(strings), np.uint64), strings
    ).close()
    put(disk, tmp_path / "other")
    forked(join_without_room_for_numbers, disk, tmp_path / "other")


@pytest.mark.parametrize("kind", ["array", "spilled", "copy of an object"])
def test_a_full_folder_of_temporary_files_is_named(tmp_path, mounted_disk, monkeypatch, kind):
    disk = mounted_disk(DISK_BYTES)
    monkeypatch.setattr(tempfile, "tempdir", str(disk))
    data = np.zeros(2 * DISK_BYTES, np.uint8)
    (tmp_path / "object").write_bytes(data.tobytes())

    def work():
        if kind == "array":
            array_on_disk((len(data),), np.uint8)
        elif kind == "spilled":
            SpillFile(None).append(data)
        else:
            with scratch_folder() as scratch:
                StoredPlace(tmp_path.as_uri()).on_disk("object", scratch)

    with pytest.raises(
        fpstore.StorageError, match="No space left on device: free some space; TMPDIR names another"
    ) as caught:
        work()
    assert str(caught.value).startswith(str(disk))


def test_a_store_is_opened_for_writing_on_a_full_disk(disk, template):
    put(disk, template / "plain")
    fill(disk, 0)
    fpstore.open(disk / "s", "r+").close()


# --- Stores that may only be read -----------------------------------------------------------------


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
    """Return the folder of the stores, where they are read-only, and a wrapper of work.

    The wrapper lets work be done by a user who may only read. The folders above are open to all.
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
        if subprocess.run(
            ["mount", "--bind", top / "stores", top / "view"], capture_output=True
        ).returncode:
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


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", [slow("plain"), slow("changed"), "without lock files"])
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

    forked(reading(work))
    assert listing(stores / name) == before


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", [slow("plain"), "changed"])
def test_a_reader_that_may_not_write_beside_a_writer(restricted, name):
    """It opens, sees each commit and each merge, and keeps nobody away."""
    stores, where, reading = restricted
    expected = content(stores / name)
    asking, answered = os.pipe(), os.pipe()

    def read_on():
        with fpstore.open(where / name) as store:
            for _ in range(3):
                os.write(answered[1], str(len(rows_of(store))).encode())
                os.read(asking[0], 1)
            assert len(rows_of(store)) == len(expected) + 2

    def seen():
        return int(os.read(answered[0], 20))

    with fpstore.open(stores / name, "r+") as store, ThreadPoolExecutor(1) as pool:
        reader = pool.submit(forked, reading(read_on))
        try:
            assert seen() == len(expected)
            store.insert([int(MORE[0])], [STRINGS[3000]])
            os.write(asking[1], b".")
            assert seen() == len(expected) + 1
            store.merge()
            os.write(asking[1], b".")
            assert seen() == len(expected) + 1
            store.insert([int(MORE[1])], [STRINGS[3001]])
        finally:
            os.write(asking[1], b".")
        reader.result()
    for descriptor in (*asking, *answered):
        os.close(descriptor)


# --- Jobs over a store or a corpus ----------------------------------------------------------------

FULL = r"fpstore: [^\n]*No space left on device: free some space[^\n]*\n"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Make stores and a corpus in several formats, whose outputs take more than 30 pages."""
    folder = tmp_path_factory.mktemp("inputs")
    rows = near(1, 12_000)
    texts = [f"a text of many words {n} " * 3 for n in range(len(rows))]
    fpstore.build(
        folder / "s.fps", rows, [f"https://example.org/{n:020}" for n in range(len(rows))]
    ).close()
    fpstore.build(folder / "few.fps", rows ^ np.uint64(2)).close()
    table = pa.table(
        {
            "hash": rows,
            "text": texts,
            "id": [f"https://example.org/{n:020}" for n in range(len(rows))],
        }
    )
    pq.write_table(table, folder / "c.parquet", compression="none")
    (folder / "c.tsv").write_text(
        "hash\tid\n"
        + "".join(f"{f:016x}\thttps://example.org/{n:030}\n" for n, f in enumerate(rows))
    )
    (folder / "shards").mkdir()
    for shard in ("a", "b"):
        shutil.copy(folder / "c.tsv", folder / "shards" / f"{shard}.tsv")
    (folder / "notes").mkdir()
    for n in range(300):
        (folder / "notes" / f"{n}.txt").write_text(f"text {n} of words {n}" * 500)
    return folder


JOBS = {
    "pairs": "pairs s.fps -o {}/out.tsv",
    "pairs to parquet": "pairs s.fps -o {}/out.parquet",
    "join": "join s.fps few.fps -o {}/out.jsonl",
    "cluster": "cluster s.fps -o {}/out.tsv",
    "cluster to parquet": "cluster s.fps -o {}/out.parquet --group greedy",
    "dedup lines": "dedup c.tsv {}/out.tsv --fingerprint-field hash",
    "dedup parquet": "dedup c.parquet {}/out.parquet --fingerprint-field hash",
    "dedup folder": "dedup notes {}/out --text",
    "dedup shards": "dedup shards {}/out --fingerprint-field hash --threads 2",
    "boilerplate": "boilerplate c.parquet {}/out.parquet --text-field text --unit line",
    "boilerplate of a folder": "boilerplate notes {}/out --text --unit paragraph --more-than 1 "
    "--removed {}/list.csv",
    "passages": "passages c.parquet {}/out.parquet --text-field text --words 9",
    "passages of a folder": "passages notes {}/out --text --words 9 --passages {}/list.csv",
    "dedup listing": "dedup c.tsv {}/out.tsv --fingerprint-field hash --id-field id "
    "--clusters {}/list.tsv --keep smallest",
    "report": "report s.fps -o {}/out.html",
}


def names(disk):
    return sorted(
        path.relative_to(disk).as_posix() for path in disk.rglob("*") if path.name != "filler"
    )


@pytest.mark.parametrize(
    ("job", "pages"),
    [case for case in crossed(list(JOBS), [0, 3, 30], share=9) if case.values != ("report", 30)],
)
def test_a_full_disk(inputs, mounted_disk, monkeypatch, job, pages):
    monkeypatch.chdir(inputs)
    disk = mounted_disk(32 << 20)
    arguments = JOBS[job].replace("{}", str(disk)).split()
    fill(disk, pages)
    failed = run(*arguments)
    assert failed.exit_code == 1, failed.output
    assert re.fullmatch(FULL, failed.stderr), failed.stderr
    assert failed.stderr.startswith(f"fpstore: {disk}/"), "it names another file than the output"
    assert names(disk) == []
    (disk / "filler").unlink()
    assert run(*arguments, "--quiet").exit_code == 0
    assert "out" in names(disk)[-1]


@pytest.mark.parametrize(
    ("job", "pages"),
    crossed(["pairs", "join", "cluster", "dedup lines"], [0, 1, 6, 40, 150], share=9),
)
def test_a_disk_that_gets_full_while_parts_are_kept(
    inputs, mounted_disk, monkeypatch, set_limits, job, pages
):
    """What is finished stays, and the same command goes on when there is room."""
    monkeypatch.chdir(inputs)
    set_limits(compared_rows=1000, line_bytes=1 << 14)
    disk = mounted_disk(32 << 20)
    arguments = [*JOBS[job].replace("{}", str(disk)).split(), "--resume", "--threads", "2"]
    fill(disk, pages)
    failed = run(*arguments)
    assert failed.exit_code == 1, failed.output
    assert re.fullmatch(FULL, failed.stderr), failed.stderr
    left = names(disk)
    assert not [
        name
        for name in left
        if name.endswith(".tmp")
        or ".unfinished-" in name
        or ("/" not in name and ".resume" not in name)
    ], left
    (disk / "filler").unlink()
    again = run(*arguments)
    assert again.exit_code == 0, again.output
    (output,) = names(disk)
    content = (disk / output).read_bytes()
    (disk / output).unlink()
    assert run(*arguments[:-3], "--threads", "2").exit_code == 0
    assert (disk / output).read_bytes() == content
