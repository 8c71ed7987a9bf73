"""Files written in pieces past the page cache.

Whatever the file system takes, refuses, or cuts short.
"""

import errno
import fcntl
import itertools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from fpstore.building.columns import Column
from fpstore.disk.mapped import PAGE_BYTES as PAGE
from fpstore.disk.mapped import page_aligned
from fpstore.disk.output import Output
from fpstore.disk.temporary import SpillFile, array_on_disk

RNG = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def small(set_limits):
    """Make pieces small."""
    set_limits(
        write_bytes=4 * PAGE,
        temporary_buffer_bytes=4 * PAGE,
        temporary_call_bytes=8 * PAGE,
        column_rows=777,
    )


@pytest.fixture(autouse=True)
def threads():
    """Require that no thread is left."""
    before = len(sys._current_frames())
    yield
    assert len(sys._current_frames()) == before


@pytest.fixture(params=["direct", "refused", "unaligned", "short"])
def disk(request, monkeypatch):
    """Set up a disk of one kind.

    It takes all, refuses direct writes or the way to them, or cuts writes short.
    """
    control, write = fcntl.fcntl, os.pwrite

    def refuses(descriptor, command, *flags):
        if command == fcntl.F_SETFL and flags[0] & os.O_DIRECT:
            raise OSError(errno.EINVAL, "no such way")
        return control(descriptor, command, *flags)

    def unaligned(descriptor, data, at):
        if control(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(errno.EINVAL, "not aligned")
        return write(descriptor, data, at)

    if request.param == "refused":
        monkeypatch.setattr(fcntl, "fcntl", refuses)
    elif request.param == "unaligned":
        monkeypatch.setattr(os, "pwrite", unaligned)
    elif request.param == "short":
        monkeypatch.setattr(
            os,
            "pwrite",
            lambda descriptor, data, at: write(descriptor, data[: max(len(data) // 2, 1)], at),
        )
    return request.param


@pytest.mark.parametrize("beside", [True, False])
def test_what_is_written_is_in_the_file(disk_path, disk, beside):
    sizes = (0, 1, PAGE, 4 * PAGE - 1, 4 * PAGE, 4 * PAGE + 1, 23 * PAGE + 77)
    for size, step in itertools.product(sizes, (100, 3 * PAGE + 5, 11 * PAGE)):
        path, data = disk_path / f"{size}-{step}", RNG.integers(0, 256, size, dtype=np.uint8)
        file = Output(path, beside)
        for start in range(0, size, step):
            piece = data[start : start + step]
            if start // step % 2:
                file.write(piece)
            else:
                file.reserve(len(piece) + 3)[: len(piece)] = piece
                file.advance(len(piece))
        file.finish(b"start"[: min(size, 5)])
        file.sync()
        assert path.read_bytes() == b"start"[: min(size, 5)] + data.tobytes()[5:]


def test_an_output_is_a_new_file(disk_path):
    (disk_path / "victim").write_bytes(b"older")
    (disk_path / "link").symlink_to("victim")
    for name in ("victim", "link"):
        with pytest.raises(FileExistsError):
            Output(disk_path / name)
    assert (disk_path / "victim").read_bytes() == b"older"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("call", [0, 1, 3])
def test_an_error_of_a_write_is_raised_at_the_latest_at_the_end(
    disk_path, monkeypatch, number, call
):
    write, calls = os.pwrite, []

    def failing(descriptor, data, at):
        calls.append(at)
        if len(calls) > call:
            raise OSError(number, os.strerror(number))
        return write(descriptor, data, at)

    monkeypatch.setattr(os, "pwrite", failing)
    file = Output(disk_path / "file")
    with pytest.raises(OSError, match=os.strerror(number)):  # noqa: PT012 - at one of them
        for _ in range(12):
            file.write(np.zeros(PAGE + 1, np.uint8))
        file.finish(b"start")
    file.close()
    file.close()
    file = Output(disk_path / "early")
    file.write(np.zeros(PAGE, np.uint8))
    file.close()  # leaves no thread


def test_bytes_of_a_temporary_file_are_read_from_anywhere(disk_path, disk):
    for sizes in ((0, 0), (5, 7), (3 * PAGE, 2 * PAGE), (20 * PAGE + 9, 17), (1, 30 * PAGE + 1)):
        file, whole = SpillFile(disk_path), b""
        for size in sizes * 2:
            array = page_aligned(size)
            array[:] = RNG.integers(0, 256, size, dtype=np.uint8)
            file.append(array)
            whole += array.tobytes()
            assert file.size == len(whole)
            for first, count in itertools.product(
                {0, len(whole) // 3, max(len(whole) - 1, 0)}, {0, 1, PAGE, len(whole)}
            ):
                out = np.empty(min(count, len(whole) - first), np.uint8)
                file.read(first, out)
                assert out.tobytes() == whole[first : first + len(out)]
        assert not whole or file.map().tobytes() == whole
        assert file.align() % PAGE == 0
        at = file.size
        file.append(np.full(3, 7, np.uint8))
        out = np.empty(3, np.uint8)
        file.read(at, out)
        assert out.tolist() == [7, 7, 7]
        with pytest.raises(OSError, match="shorter"):
            file.read(at + PAGE, out)
        assert list(disk_path.iterdir()) == []
        file.close()
    with pytest.raises(MemoryError, match=f"no room for {1 << 60} bytes"):
        page_aligned(1 << 60)


def test_a_column_is_read_as_it_was_written(disk_path, disk):
    for kind, words, spilled_at in itertools.product((np.uint64, np.uint32), (1, 2), (0, 3, None)):
        rows = RNG.integers(0, 2**32, (9000, words)).astype(kind)
        rows = rows[:, 0] if words == 1 else rows
        column = Column(disk_path if spilled_at == 0 else None, words)
        for piece, start in enumerate(range(0, len(rows), 1300)):
            if piece == spilled_at:
                column.spill(disk_path)
            column.append(rows[start : start + 1300])
        assert column.rows == len(rows)
        assert np.array_equal(np.concatenate(list(column.pieces())), rows)
        assert np.array_equal(column.part(8990, 10), rows[8990:])
        assert len(column.part(9000, 0)) == 0
        assert np.array_equal(column.whole(), rows)
        assert np.array_equal(column.map(), rows)
        assert column.whole().dtype == kind
        assert list(disk_path.iterdir()) == []
        column.close()


MAPS = Path("/proc/self/maps")


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_an_array_on_disk_vanishes_with_its_last_reference(disk_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(disk_path))
    open_before = descriptors()
    array = array_on_disk((1000, 2), np.uint64)
    assert array.shape == (1000, 2)
    assert array.dtype == np.uint64
    assert not array.any()
    array[999] = 7, 8
    assert array[999].tolist() == [7, 8]
    assert list(disk_path.iterdir()) == []
    assert f"{disk_path}/" in MAPS.read_text()
    del array
    assert descriptors() == open_before
    assert f"{disk_path}/" not in MAPS.read_text()
    assert array_on_disk((0, 2), np.uint64).shape == (0, 2)


@pytest.mark.full
def test_disk_without_room_is_an_error_before_any_write():
    script = """
import resource
import numpy as np
from fpstore import StorageError
from fpstore.disk.temporary import array_on_disk
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
array_on_disk((1 << 17,), np.uint64)
try:
    array_on_disk(((1 << 17) + 1,), np.uint64)
except StorageError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    named = (
        f"{tempfile.gettempdir()}: a temporary file of 1,048,584 bytes: File too large; TMPDIR "
        "names another folder\n"
    )
    assert done.stdout == named, done
