"""A change as stored in the log: rows that were added or removed together."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from fpstore.base.aliases import Bytes, Words
from fpstore.base.width import number_to_row, row_words

ADD, REMOVE, WIPE = range(3)
KIND_MASK = 3
IN_BASE = 4  # beside the kind: the fingerprint is in the generation's tables
ID_KINDS = ("row", "integer", "string")
LAST_ROW = 2**64 - 1
# kind, with IN_BASE where it holds; fingerprint, in the form of the kernel; id number
Row = tuple[int, int, int]
# fingerprints, ids and next row afterwards; rows, strings, kind of ids, words of a fingerprint
_PAYLOAD = struct.Struct("<QQQQQII")
_ONE_ROW = struct.Struct("<QQQQQIIQQB")  # of one word
_ID_AND_KIND = struct.Struct("<QB")
_LENGTH = struct.Struct("<I")


class Totals(NamedTuple):
    """The totals of a store after a change."""

    fingerprints: int
    ids: int
    next_row: int  # the id of the next row that comes without one
    id_kind: str

    def counting(self, number: int) -> Totals:
        """Return these totals with a next row above ``number``, if the ids are row numbers."""
        if self.id_kind != "row" or number < self.next_row:
            return self
        return self._replace(next_row=min(number + 1, LAST_ROW))


class Change(NamedTuple):
    """Rows that were added or removed together, and the totals afterwards."""

    totals: Totals
    kinds: Bytes  # of each row, ADD, REMOVE or WIPE, with IN_BASE where it holds
    fingerprints: Words
    ids: Words
    # the strings that get a number with this change, in the order of the numbers; the number of an
    # empty one stays unused
    strings: list[bytes]


def pack_change(change: Change) -> bytes:
    """Return the payload of a log record (docs/format.md, "Log")."""
    totals = change.totals
    return b"".join(
        (
            _PAYLOAD.pack(
                totals.fingerprints,
                totals.ids,
                totals.next_row,
                len(change.kinds),
                len(change.strings),
                ID_KINDS.index(totals.id_kind),
                row_words(change.fingerprints),
            ),
            change.fingerprints.astype("<u8", copy=False).tobytes(),
            change.ids.astype("<u8", copy=False).tobytes(),
            change.kinds.tobytes(),
            *_frame_strings(change.strings),
        )
    )


def pack_one(totals: Totals, row: Row, strings: list[bytes], words: int) -> bytes:
    """Return the payload of a record of one row, as :func:`pack_change`, without arrays."""
    kind, fingerprint, number = row
    head = (
        totals.fingerprints,
        totals.ids,
        totals.next_row,
        1,
        len(strings),
        ID_KINDS.index(totals.id_kind),
        words,
    )
    if words == 1:
        return b"".join((_ONE_ROW.pack(*head, fingerprint, number, kind), *_frame_strings(strings)))
    rows = number_to_row(fingerprint, words).astype("<u8", copy=False).tobytes()
    return b"".join(
        (_PAYLOAD.pack(*head), rows, _ID_AND_KIND.pack(number, kind), *_frame_strings(strings))
    )


def _frame_strings(strings: Iterable[bytes]) -> Iterable[bytes]:
    for string in strings:
        yield _LENGTH.pack(len(string))
        yield string
