"""Table files that another process changes while they are read.

An error or the right answer, and never a byte out of bounds.
"""

import gc
import mmap
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import reference_records
import tableimage

import fpstore
from fpstore import _kernel
from fpstore.errors import CorruptStoreError
from fpstore.format.packed_table import PackedTable

BLOCK_BYTES = 4096
DENSE = np.uint64(2**40) + np.arange(130_000, dtype=np.uint64)  # at three bits per entry
CHANGED = 4  # the block that changes
ROOM = 2 * _kernel.MAX_ENTRIES
NO_FLIP = np.zeros(1, np.uint64)


@contextmanager
def changed_by_another_process(
    path: Path, at: int, versions: list[bytes]
) -> Iterator[_kernel.Table]:
    """Open a table while another process writes its versions in turn, as fast as it can."""
    with path.open("r+b") as file:
        shared = mmap.mmap(file.fileno(), 0)
    table = _kernel.Table(np.frombuffer(shared, np.uint8), str(path))
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        while os.getppid() == parent:
            for version in versions * 20:
                shared[at : at + len(version)] = version
        os._exit(0)
    try:
        yield table
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_count_that_changes_between_two_reads_overflows_nothing(tmp_path):
    """The count was read twice.

    Before the checksum it decided the room, and after it how many entries were written.
    """
    image = tableimage.build(DENSE, block_bytes=BLOCK_BYTES)
    at = _kernel.HEADER_BYTES + CHANGED * BLOCK_BYTES + 16
    path = tmp_path / "table"
    path.write_bytes(image)
    answered = 0
    with changed_by_another_process(
        path, at, [(2).to_bytes(2, "little"), image[at : at + 2]]
    ) as table:
        entries = len(table.decode(0, 1, 0)[0])
        # if the block were as small as it says by turns, a seventh would have room
        assert 6 * entries < ROOM < 7 * entries
        for _ in range(500):
            with suppress(CorruptStoreError):
                values, counts, taken = table.decode(0, table.block_count, 0)
                assert len(values) == counts.sum() <= ROOM
                assert len(counts) == taken == 6
                assert np.array_equal(values, DENSE[: len(values)])
                answered += 1
    assert answered > 0


def test_bytes_that_keep_changing_are_never_read_out_of_bounds(tmp_path):
    """Counts, code lengths, codes, tails, keys and directory.

    Every call gives an answer or says that the file is damaged.
    """
    rng = np.random.default_rng(7)
    fingerprints = tableimage.make_keys("clustered", 1, 3000)
    image = tableimage.build(fingerprints, block_bytes=128)
    body = image[_kernel.HEADER_BYTES :]
    versions = [body]
    for _ in range(8):
        damaged = np.frombuffer(body, np.uint8).copy()
        places = rng.integers(0, len(damaged), 400)
        damaged[places] = rng.integers(0, 256, 400)
        versions.append(damaged.tobytes())
    path = tmp_path / "table"
    path.write_bytes(image)
    calls = answered = 0
    with changed_by_another_process(path, _kernel.HEADER_BYTES, versions) as table:
        prober = _kernel.Prober()
        prober.add(table, 12, 0, NO_FLIP)
        queries = fingerprints[::50].copy()
        for i in range(200):
            query = queries[i % len(queries) :][:1]
            for work in (
                lambda: table.decode(0, table.block_count, 0),
                lambda: table.scan(queries[:2].copy(), 3, 0, table.block_count),
                lambda: table.locate(queries),
                lambda item=query: table.locate_one(int(item[0])),
                lambda: prober.probe(queries, 3, order="sorted"),
                lambda item=query: prober.probe(item, 3),
            ):
                calls += 1
                with suppress(CorruptStoreError):
                    work()
                    answered += 1
            with suppress(CorruptStoreError):
                PackedTable(path, None).check_index()
    assert calls == 1200
    assert answered > 0


def test_the_ids_of_a_probe_are_those_that_were_checked(tmp_path):
    """Counts led out of the file.

    They were read again from the mapped file after their checksum had been compared.
    """
    ids = np.arange(0, 4000, 2, dtype=np.uint64)
    store = fpstore.build(
        tmp_path / "s", np.repeat(np.array([76, 77], np.uint64), 1000), ids, design="manku-4"
    )
    prober = store.snapshot().generation.single_prober(1)
    digest = store.snapshot().generation.tables[0].kernel.set_digest
    record = reference_records.encode_record(
        [ids[:1000].tolist(), ids[1000:].tolist()], (digest + 77) % 2**64
    )
    (path,) = (p for p in (tmp_path / "s").rglob("*") if p.is_file() and record in p.read_bytes())
    at = path.read_bytes().index(record) + 16
    with path.open("r+b") as file:
        shared = mmap.mmap(file.fileno(), 0)
    before = gc.get_threshold()

    def change(*_: object) -> None:  # when the first match is made, which has two
        shared[at : at + len(record) - 16] = bytes(byte ^ 255 for byte in record[16:])

    gc.callbacks.append(change)
    gc.set_threshold(1)
    try:
        matches = prober.probe(77)
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(change)
    assert matches == [(77, 0, ids[1000:].tolist()), (76, 1, ids[:1000].tolist())]
    change()
    assert prober.probe(77) is None  # the general way tells what is wrong
    store.close()
