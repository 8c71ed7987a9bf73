"""The temporary folder of an adapter, and the folder that a user names."""

import gc
import os
import subprocess
import sys

import pytest

from fpstore import StoreExistsError, StoreLockedError, StoreNotFoundError
from fpstore.adapters.simhash import SimhashIndex


def test_a_temporary_folder_goes_with_the_index():
    index = SimhashIndex()
    parent = index.store.path.parent
    assert [p.name for p in parent.iterdir()] == ["store"]
    del index
    gc.collect()
    assert not parent.exists()


def test_a_folder_of_the_user_stays(tmp_path):
    index = SimhashIndex(path=tmp_path / "s")
    with pytest.raises(StoreLockedError):
        SimhashIndex(path=tmp_path / "s")
    index.close()
    assert (tmp_path / "s" / "manifest.json").exists()


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_is_no_store_stays(tmp_path, kind):
    (tmp_path / "x").mkdir() if kind == "folder" else (tmp_path / "x").write_text("mine")
    with pytest.raises((StoreNotFoundError, StoreExistsError)):
        SimhashIndex(path=tmp_path / "x")
    assert (tmp_path / "x").exists()


def test_a_fork_does_not_remove_the_folder_of_its_parent():
    index = SimhashIndex()
    child = os.fork()
    if child == 0:
        index._removal()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert index.store.path.exists()


@pytest.mark.full
@pytest.mark.parametrize("end", ["", "raise SystemExit(3)", "index = index.__dict__['x']"])
def test_the_folder_goes_at_the_end_of_the_interpreter(tmp_path, end):
    code = "from fpstore.adapters.simhash import SimhashIndex\nindex = SimhashIndex()\n" + end
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", code],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (done.stderr == "") == (end != "index = index.__dict__['x']")
    assert [*tmp_path.iterdir()] == []
