"""Faults of the processes that engines start for tasks.

Workers of Spark and Ray import this module at their start. A test requests faults by files in a
folder, and reads there which processes have run which tasks. Each fault happens once, in the
process that first reaches it.
"""

import os
import signal
import time
from contextlib import contextmanager, suppress
from pathlib import Path

FOLDER = "FPSTORE_WORKER_FAULTS"  # the variable of the environment
MAX_WAIT_SECONDS = 120  # seconds: a test that needs more has failed


def worker_path(folder, helpers):
    """Return the PYTHONPATH with which processes import this module at their start."""
    hook = (
        f"import os, sys\nos.environ[{FOLDER!r}] = {str(folder)!r}\n"
        f"sys.path.append({str(helpers)!r})\nimport worker_faults\n"
    )
    (folder / "sitecustomize.py").write_text(f"{hook}worker_faults.install()\n")
    return str(folder)


def request(folder, *faults):
    """Request faults, such as ``exit before``, and forget which tasks have run."""
    (folder / "ran").write_text("")
    for number, fault in enumerate(faults):
        (folder / f"{fault.replace(' ', '-')}-{number}").touch()


def finished_tasks(folder):
    """Return the process, its grandparent and the result of each task that came to its end."""
    lines = [line.split() for line in (folder / "ran").read_text().splitlines()]
    return [(int(process), int(above), name) for process, above, name in lines]


def pending(folder):
    """Return the faults that have not happened."""
    return sorted(path.name for path in folder.iterdir() if path.name.split("-")[-1].isdigit())


def install():
    from fpstore.work import places

    true = places.DiskPlace.create_file

    @contextmanager
    def create_file(place, name):
        if not name.startswith("results/"):
            with true(place, name) as path:
                yield path
            return
        with true(place, name) as path:
            yield path
            _note(name)
            _happen("before", place.path / name)
        _happen("after", place.path / name)

    places.DiskPlace.create_file = create_file


def parent_of(process):
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def _note(name):
    line = f"{os.getpid()} {parent_of(os.getppid())} {name}\n"
    descriptor = os.open(Path(os.environ[FOLDER]) / "ran", os.O_WRONLY | os.O_APPEND)
    os.write(descriptor, line.encode())
    os.close(descriptor)


def _happen(place, target):
    for path in sorted(Path(os.environ[FOLDER]).glob(f"*-{place}-*")):
        with suppress(FileNotFoundError):
            path.unlink()
            FAULTS[path.name.split("-")[0]](target)


def _refuse(target):
    raise OSError(28, os.strerror(28), str(target))


def _fail(target):
    raise RuntimeError("a fault of a test")


def _kill(target):
    # Spark: the JVM of the executor, above the parent of all its workers
    os.kill(parent_of(os.getppid()), signal.SIGKILL)
    time.sleep(MAX_WAIT_SECONDS)  # until that parent ends this process, too


def _straggle(target):
    """Wait until another process has done the task."""
    last = time.monotonic() + MAX_WAIT_SECONDS
    while not target.exists():
        assert time.monotonic() < last, "no other process has done it"
        time.sleep(0.05)


FAULTS = {
    "exit": lambda target: os._exit(7),
    "refuse": _refuse,
    "fail": _fail,
    "kill": _kill,
    "straggle": _straggle,
}
