"""A budget for each file of tests: ``pytest --budget SHARE``.

The session fails if the tests of a file take more than a share of the processor time of all tests,
in all workers together. Processor time is that of the process and of the children that it has
waited for. A share is the same on a slow machine, or on one with other work.
"""

import resource
from collections import Counter

import pytest


def processor_seconds():
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


class Budget:
    """Measures the phases of tests where they run, and adds them up where they are reported."""

    def __init__(self, share):
        self._share = share
        self._used = Counter()  # processor seconds of each file
        self._last = 0.0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self):
        self._last = processor_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self):
        report = yield
        now = processor_seconds()
        report.processor_seconds = now - self._last  # xdist sends attributes along
        self._last = now
        return report

    def pytest_runtest_logreport(self, report):
        seconds = getattr(report, "processor_seconds", 0.0)  # none of a worker that has crashed
        self._used[report.nodeid.partition("::")[0]] += seconds

    def _above(self):
        budget = self._share * self._used.total()
        return [(path, used) for path, used in self._used.most_common() if used > budget]

    def pytest_sessionfinish(self, session):
        is_worker = hasattr(session.config, "workerinput")
        if self._above() and not is_worker and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        if files := self._above():
            terminalreporter.section(f"more than {self._share:.1%} of the processor time")
            for path, used in files:
                terminalreporter.line(f"{used:.1f} s: {path}: mark tests of it as full")
        total = self._used.total()
        terminalreporter.line(f"processor time of {len(self._used)} files: {total:.0f} s")


def pytest_addoption(parser):
    parser.addoption(
        "--budget",
        type=float,
        metavar="SHARE",
        help="largest share of a file in the processor time of all tests",
    )


def pytest_configure(config):
    if config.option.budget is not None:
        config.pluginmanager.register(Budget(config.option.budget))
