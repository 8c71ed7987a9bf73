"""Arrays in temporary files."""

import subprocess
import sys
from pathlib import Path

import numpy as np

from fpstore.disk.temporary import array_on_disk

MAPS = Path("/proc/self/maps")


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_an_array_on_disk_vanishes_with_its_last_reference(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    open_before = descriptors()
    array = array_on_disk((1000, 2), np.uint64)
    assert array.shape == (1000, 2)
    assert array.dtype == np.uint64
    assert not array.any()
    array[999] = 7, 8
    assert array[999].tolist() == [7, 8]
    assert list(tmp_path.iterdir()) == []
    assert f"{tmp_path}/" in MAPS.read_text()
    del array
    assert descriptors() == open_before
    assert f"{tmp_path}/" not in MAPS.read_text()
    assert array_on_disk((0, 2), np.uint64).shape == (0, 2)


def test_a_disk_without_room_is_an_error_before_anything_is_written():
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
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "a temporary file of 1,048,584 bytes: File too large\n", done
