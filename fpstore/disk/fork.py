"""Work to do around a fork; the one place that registers it with the system."""

from __future__ import annotations

import os
from collections.abc import Callable

_Work = Callable[[], object]
_before: list[_Work] = []
_in_parent: list[_Work] = []
_in_child: list[_Work] = []


def around_fork(*, before: _Work | None = None, in_parent: _Work | None = None, in_child: _Work | None = None) -> None:
    """Register work. Before a fork, and after it in the parent, the last registered runs first; in the child, the first."""
    for works, work in ((_before, before), (_in_parent, in_parent), (_in_child, in_child)):
        if work is not None:
            works.append(work)


def _run(works: list[_Work]) -> None:
    for work in works:
        work()


os.register_at_fork(
    before=lambda: _run(_before[::-1]), after_in_parent=lambda: _run(_in_parent[::-1]), after_in_child=lambda: _run(_in_child)
)
