"""What all tests have: tiers, signals as in a terminal, small disks, and modes that bind."""

import ctypes
import gc
import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
import speeds
import warm
from hypothesis import HealthCheck, settings

os.environ.pop("FPSTORE_SHOW_LEAKS", None)  # a worker has it from the process that started it
import fpstore._kernel  # noqa: F401  # before the variable below, which is for the processes of the tests

CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2
pytest_plugins = [
    "budget",
    "building",
    "commandline",
    "sealing",  # which damage imports
    "damage",
    "logs",
    "faultline",
    "isas",
    "limits",
    "repairing",
    "resuming",
    "sets",
]  # modules of helpers with fixtures of their own

os.environ["FPSTORE_SHOW_LEAKS"] = "1"  # a process of a test that leaves objects behind says so

warm.install()

# A busy machine draws inputs and runs examples slowly.
settings.register_profile("any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any speed")

# A background job of a shell starts with these ignored, and so would the processes that the tests
# interrupt.
for _number, _handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """Let ``-n auto`` begin more workers than processors: tests wait for processes and disks."""
    return os.cpu_count() * 3 // 2


def pytest_configure(config):
    """Prepare runs without slow tests.

    They make no slow case, and write to memory, where a sync takes no time.
    """
    speeds.all_cases = config.option.markexpr not in ("not slow", "not slow and not full")
    memory = "/dev/shm"
    if (
        not speeds.all_cases
        and os.access(memory, os.W_OK)
        and shutil.disk_usage(memory).free > 4 << 30
    ):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", memory)


@pytest.hookimpl(tryfirst=True)  # before marks are selected
def pytest_collection_modifyitems(items):
    speeds.leave_to_full(items)


def pytest_collection_finish():
    """Leave what pytest has made of all files to no later collection of garbage."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give each worker tests that stand together, which share what their module has made.

    Who is done takes from the others.
    """
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


@pytest.fixture
def disk_path():
    """Return a folder that is on the disk too in a run that writes to memory."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture
def mounted_disk(tmp_path):
    """Return make(size_bytes): a folder on a file system of that size."""
    disks = []

    def make(size_bytes):
        folder = tmp_path / f"disk-{len(disks)}"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "none", folder]
        if (
            os.geteuid() != 0
            or shutil.which("mount") is None
            or subprocess.run(command, capture_output=True).returncode
        ):
            pytest.skip("nothing can be mounted here")
        disks.append(folder)
        return folder

    yield make
    for folder in disks:
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextmanager
def _bound_by_modes():
    """Let the modes of files bind root as they bind others.

    This thread lacks the two capabilities that override them.

    The user stays root, so that what root owns, such as the folders above a temporary one, can
    still be passed.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this thread
    # effective, permitted and inheritable bits 0 to 31, then the same for bits 32 to 63
    data = (ctypes.c_uint32 * 6)()
    assert libc.capget(header, data) == 0, os.strerror(ctypes.get_errno())
    before = data[0]
    data[0] &= ~(1 << CAP_DAC_OVERRIDE | 1 << CAP_DAC_READ_SEARCH)
    assert libc.capset(header, data) == 0, os.strerror(ctypes.get_errno())
    try:
        yield
    finally:
        data[0] = before
        assert libc.capset(header, data) == 0, os.strerror(ctypes.get_errno())


@pytest.fixture
def with_mode():
    """Return a context manager that gives a path a mode, and the old one back at its end.

    The mode binds root too.
    """

    @contextmanager
    def make(path, mode):
        before = path.stat().st_mode
        path.chmod(mode)
        try:
            with _bound_by_modes():
                yield
        finally:
            path.chmod(before)

    return make


@pytest.fixture
def count_signals():
    """Return count(work): how many of a thousand signals a second are handled during the work."""
    handled = 0

    def note(*_):
        nonlocal handled
        handled += 1

    def count(work):
        before = handled
        work()
        return handled - before

    old = signal.signal(signal.SIGALRM, note)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        yield count
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
