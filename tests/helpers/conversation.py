"""A command that is held open through two pipes.

Lines are sent to it, and its answers are read as they come.
"""

import os
import select
import signal
import subprocess
from typing import IO, Self

from commandline import COMMAND

TIMEOUT_SECONDS = 60  # of every wait: only a fault takes as long


class Conversation:
    """A process of the command line, whose answers must come within a minute."""

    def __init__(self, *arguments: object, stdin: int | IO[bytes] = subprocess.PIPE) -> None:
        # it would flush, too
        environment = {
            name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"
        }
        self.process = subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=environment,
        )
        self._answers = b""

    def send(self, data: str | bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data.encode() if isinstance(data, str) else data)

    def answer(self, end: bytes = b"\n") -> str:
        """Return the next line of its output without its end."""
        assert self.process.stdout is not None
        while end not in self._answers:
            assert self._has_output(TIMEOUT_SECONDS), "no answer came"
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            assert data, self.process.stderr and self.process.stderr.read()
            self._answers += data
        line, _, self._answers = self._answers.partition(end)
        return line.decode()

    def is_silent(self) -> bool:
        """Return whether all that the command has written was read."""
        return not self._answers and not self._has_output(0)

    def ended(self) -> tuple[int, bytes, str]:
        """Close its input, and return its exit code, the rest of its output, and its errors."""
        out, err = self.process.communicate(timeout=TIMEOUT_SECONDS)
        return self.process.returncode, self._answers + out, err.decode()

    def interrupted(self, number: signal.Signals) -> tuple[int, bytes, str]:
        """Send a signal while its input is open, and return the same as ``ended``."""
        self.process.send_signal(number)
        code = self.process.wait(TIMEOUT_SECONDS)
        return code, *self.ended()[1:]

    def _has_output(self, seconds: float) -> bool:
        assert self.process.stdout is not None
        return bool(select.select([self.process.stdout], [], [], seconds)[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=TIMEOUT_SECONDS)
