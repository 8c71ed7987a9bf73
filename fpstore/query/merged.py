"""Sorted streams of keys with numbers, merged into one with the numbers of all under each key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fpstore import _kernel
from fpstore.base.aliases import Groups, Words
from fpstore.base.arrays import is_run_start
from fpstore.base.width import row_place, rows_to_numbers


class _Stream:
    """A stream that has begun, and its current piece.

    ``last`` is the greatest key of the piece, -1 after the end.
    """

    def __init__(self, pieces: Iterator[Groups]) -> None:
        self._pieces = pieces
        self._advance()

    def _advance(self) -> None:
        piece = next((piece for piece in self._pieces if len(piece[0])), None)
        self.last = -1 if piece is None else rows_to_numbers(piece[0][-1:])[0]
        if piece is not None:
            self.piece = piece

    def take(self, bound: _Stream) -> Groups:
        """Return the groups up to the last key of another stream's piece, and go on."""
        if self.last == bound.last:
            groups = self.piece
            self._advance()
            return groups
        groups, self.piece = cut_groups(self.piece, bound.piece[0][-1:], "right")
        return groups


def merge_streams(sources: Sequence[tuple[int, Iterator[Groups]]]) -> Iterator[Groups]:
    """Merge streams, each with a number that is at most its least key; it begins when needed.

    The numbers of a key ascend in each stream. In the result, they ascend, each once.
    """
    waiting = sorted(sources, key=lambda source: source[0], reverse=True)
    streams: list[_Stream] = []
    while waiting or streams:
        while waiting and (not streams or waiting[-1][0] <= min(s.last for s in streams)):
            stream = _Stream(waiting.pop()[1])
            streams += [stream] if stream.last >= 0 else []
        if streams:
            bound = min(streams, key=lambda stream: stream.last)
            pieces = [stream.take(bound) for stream in streams if stream is not bound]
            yield _unite([bound.take(bound), *(piece for piece in pieces if len(piece[0]))])
            streams = [stream for stream in streams if stream.last >= 0]


def _unite(pieces: list[Groups]) -> Groups:
    while len(pieces) > 1:
        odd = pieces[len(pieces) & ~1 :]
        pieces = [
            _kernel.union_groups(*a, *b) for a, b in zip(pieces[::2], pieces[1::2], strict=False)
        ] + odd
    return pieces[0]


def unite_equal_keys(piece: Groups) -> Groups:
    """Return a piece in which each key occurs once; equal keys follow each other."""
    keys, counts, numbers = piece
    if not len(keys):
        return piece
    return (
        keys[is_run_start(keys)],
        np.add.reduceat(counts, np.flatnonzero(is_run_start(keys))),
        numbers,
    )


def cut_groups(group: Groups, bound: Words, side: str) -> tuple[Groups, Groups]:
    """Cut a piece at a fingerprint, an array of one row."""
    keys, counts, ids = group
    at = row_place(keys, bound, side)
    end = int(counts[:at].sum())
    return (keys[:at], counts[:at], ids[:end]), (keys[at:], counts[at:], ids[end:])
