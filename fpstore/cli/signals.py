"""Signals that end a program, as exceptions: unfinished work is cleaned up on the way out."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from fpstore.start import ENDINGS

_PATIENCE_SECONDS = 2.0


class Interrupted(BaseException):
    """A signal asked the program to end.

    It is not a KeyboardInterrupt, which click handles in its own way.

    Attributes
    ----------
    signal : signal.Signals
    then : str
        What a verb adds to the message: what was done before.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = signal.Signals(number)
        self.then = ""


_raised: list[Interrupted] = []  # what was raised last, until the program ends


@contextmanager
def advice_on_interrupt(advice: Callable[[], str]) -> Iterator[None]:
    """Let an interrupt inside the block end with advice on how to go on."""
    try:
        yield
    except (Interrupted, KeyboardInterrupt) as error:
        interrupted = error if isinstance(error, Interrupted) else Interrupted(signal.SIGINT)
        interrupted.then = advice()
        raise interrupted from None


def raise_again() -> None:
    """In the main thread, raise the exception of a signal again.

    Some code of other packages catches every exception, such as that which looks whether a package
    can be imported.
    """
    if _raised and threading.current_thread() is threading.main_thread():
        raise _raised[0]


@contextmanager
def raise_signals() -> Iterator[None]:
    """Raise `Interrupted` in the main thread when SIGINT, SIGTERM or SIGHUP comes.

    A signal that is ignored (``nohup``, a background job) stays ignored. One that comes soon after
    another is dropped, so that a second Ctrl-C does not stop the removal of temporary files.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    last = -_PATIENCE_SECONDS  # of the monotonic clock: no signal yet

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _PATIENCE_SECONDS:
            last = now
            _raised[:] = [Interrupted(number)]
            raise _raised[0]

    before = {number: signal.getsignal(number) for number in ENDINGS}
    handled = [number for number in ENDINGS if before[number] != signal.SIG_IGN]
    for number in handled:
        signal.signal(number, handle)
    try:
        yield
    finally:
        _raised.clear()
        for number in handled:
            # The program is about to end; another signal must not change how.
            signal.signal(number, before[number] if last < 0 else signal.SIG_IGN)
