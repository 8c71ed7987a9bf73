"""The delta: inserts and deletes since the current generation was made, in memory, for probes.

The log has the same changes on disk (``format/log.py``; docs/design.md, "Changes").
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Bytes, Words
from fpstore.base.width import Width
from fpstore.disk.files import RUN_REPAIR
from fpstore.errors import CorruptStoreError, StorageError
from fpstore.format.layout import NOWHERE
from fpstore.format.log import Records
from fpstore.format.record import IN_BASE, KIND_MASK, Change, Row

PRESENT, ABSENT = 1, 2  # the state of a fingerprint or a pair in the kernel; 0: unchanged
LAST_VERSION = (1 << 32) - 2
APPLY_ROWS = 1 << 14  # applied between two checks for signals


class Delta:
    """The applied changes of a log, in memory.

    ``bits`` are the numbers of the bits, beginning with those that separate fingerprints best.
    """

    def __init__(
        self,
        radius: int,
        bits: npt.NDArray[np.uint8],
        identity: _kernel.AnyTable,
        first_string: int,
        path: Path,
    ) -> None:
        self.kernel = _kernel.Delta(radius, bits)
        self.bits = bits
        self._identity = identity
        self.first_string, self._path = first_string, path
        # with the numbers from first_string on; empty ones are unused
        self.strings: list[bytes] = []
        self._numbers: dict[bytes, int] | None = None  # made on first use
        self.version = 0  # of the last change: a number of this process's delta, not of the log

    def load(self, changes: Iterable[Records]) -> Records | None:
        """Apply the first records of a log at once, and return the last piece, if there is one."""
        records = None
        for records in changes:
            self.kernel.load(len(records.change.kinds))
            self.apply(records.change)
        self.kernel.index()
        return records

    def apply(self, change: Change) -> None:
        """Apply a change, at a new version; CorruptStoreError if rows contradict each other.

        When an exception ends this, a part of the change may stay, at that version, which is not
        visible. The caller then builds the delta again from the log.
        """
        kinds, in_base = change.kinds & np.uint8(KIND_MASK), change.kinds // np.uint8(IN_BASE)
        for start in range(0, len(kinds), APPLY_ROWS):
            part = slice(start, start + APPLY_ROWS)
            try:
                self.kernel.apply(
                    kinds[part],
                    change.fingerprints[part],
                    change.ids[part],
                    in_base[part],
                    self.version + 1,
                )
            except ValueError as error:
                raise CorruptStoreError(
                    f"{self._path}: the log is malformed ({error}): {RUN_REPAIR}", path=self._path
                ) from error
        self.version += 1
        self.note_strings(change.strings)

    def apply_one(self, row: Row, strings: list[bytes]) -> None:
        """Apply a change of one row, at a new version; see :meth:`apply`."""
        kind, fingerprint, number = row
        self.kernel.apply_one(
            kind & KIND_MASK, fingerprint, number, kind >= IN_BASE, self.version + 1
        )
        self.version += 1
        if strings:
            self.note_strings(strings)

    def note_strings(self, strings: Iterable[bytes]) -> None:
        for string in strings:
            if self._numbers is not None:
                self._numbers[string] = self.first_string + len(self.strings)
            self.strings.append(string)

    @property
    def next_string(self) -> int:
        return self.first_string + len(self.strings)

    def number_of(self, string: bytes) -> int | None:
        """Return the number of a string that came with the delta, or None."""
        if self._numbers is None:
            self._numbers = {
                string: number for number, string in enumerate(self.strings, self.first_string)
            }
        return self._numbers.get(string)

    def in_base(self, fingerprints: Words) -> Bytes:
        """Return 1 for each fingerprint that is in the generation's tables."""
        blocks, _ = self._identity.locate(fingerprints)
        in_base: Bytes = (blocks != NOWHERE).astype(np.uint8)
        return in_base

    def check_room(self, versions: int, path: Path) -> None:
        """Refuse changes if there are no versions left for them."""
        if self.version + versions > LAST_VERSION:
            raise StorageError(
                f"{path}: the delta has no room for these changes: merge the store; nothing was "
                "changed",
                path=path,
            )


def key_bits_first(key_bits: int, width: Width) -> npt.NDArray[np.uint8]:
    """Return the numbers of the bits: first the leading ones, a key, in reverse."""
    return np.array([*range(key_bits)[::-1], *range(key_bits, width.bits)], np.uint8)


def order_by_evenness(sample: Words, width: Width) -> npt.NDArray[np.uint8]:
    """Return the numbers of the bits; bits that are set in about half of the sample come first."""
    if not len(sample):
        return np.arange(width.bits, dtype=np.uint8)
    ones = np.unpackbits(width.to_bytes(sample), axis=1).sum(axis=0)
    order: npt.NDArray[np.uint8] = np.argsort(np.abs(ones - len(sample) / 2), kind="stable").astype(
        np.uint8
    )
    return order
