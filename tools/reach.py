"""Record which files of tests call which functions of fpstore: a pytest plugin of tools/mutants.

Each process imports this module, and appends a line for a call that is new to it: the file of the
test, the file of the function, and the line where the function begins. The test is the one that
pytest names in the environment, which child processes have, too. The first process of pytest also
writes the seconds of each file of tests.

PYTEST_DONT_REWRITE: processes import this module before pytest does.
"""

import os
import sys
import threading
from collections import Counter
from os import O_APPEND, O_CREAT, O_WRONLY, close, write  # which tests may replace
from os import open as open_file
from pathlib import Path
from types import CodeType, FrameType

import pytest

CALLS, SECONDS = "calls", "seconds"  # files in the folder that FPSTORE_REACH names
PACKAGE = str(Path(__file__).parent / "fpstore") + "/"
_folder = os.environ["FPSTORE_REACH"]
_environment = os.environ._data  # type: ignore[attr-defined]  # a look-up without a conversion
_seen: set[tuple[bytes, CodeType]] = set()


def _trace(frame: FrameType, event: str, arg: object) -> None:
    code = frame.f_code
    if code.co_filename.startswith(PACKAGE):
        test = _environment.get(b"PYTEST_CURRENT_TEST", b"").partition(b"::")[0]
        if (test, code) not in _seen:
            _seen.add((test, code))
            name = code.co_filename.removeprefix(PACKAGE)
            try:
                calls = open_file(f"{_folder}/{CALLS}", O_WRONLY | O_APPEND | O_CREAT)
            except OSError:  # a test may take all descriptors
                return
            write(calls, b"%s\t%s\t%d\n" % (test, name.encode(), code.co_firstlineno))
            close(calls)


def _begin() -> None:
    threading.settrace(_trace)
    sys.settrace(_trace)


class Seconds:
    """The seconds of each file of tests, in the process to which the workers report."""

    def __init__(self) -> None:
        self._seconds = Counter[str]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid.partition("::")[0]] += report.duration  # type: ignore[assignment]

    def pytest_sessionfinish(self) -> None:
        lines = [f"{path}\t{seconds:.2f}\n" for path, seconds in self._seconds.items()]
        Path(_folder, SECONDS).write_text("".join(lines), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Seconds())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    _begin()  # a test may have ended the tracing


if "LD_PRELOAD" not in os.environ:  # a library that counts or refuses calls of the system
    _begin()
