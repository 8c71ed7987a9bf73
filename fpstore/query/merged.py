"""Sorted streams of keys with numbers, merged into one.

What several streams have under a key is united.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fpstore import _kernel
from fpstore.base.aliases import Groups, Words
from fpstore.base.arrays import differs
from fpstore.base.width import place_of, rows_to_numbers


class _Held:
    """A stream that has begun, and its current piece.

    ``last`` is the greatest key of the piece, -1 after the end.
    """

    def __init__(self, pieces: Iterator[Groups]) -> None:
        self._pieces = pieces
        self._advance()

    def _advance(self) -> None:
        found = next((piece for piece in self._pieces if len(piece[0])), None)
        self.last = -1 if found is None else rows_to_numbers(found[0][-1:])[0]
        if found is not None:
            self.piece = found

    def take(self, bound: _Held) -> Groups:
        """Return what the piece has up to the last key of another one, and go on."""
        if self.last == bound.last:
            taken = self.piece
            self._advance()
            return taken
        taken, self.piece = cut_groups(self.piece, bound.piece[0][-1:], "right")
        return taken


def merged(sources: Sequence[tuple[int, Iterator[Groups]]]) -> Iterator[Groups]:
    """Merge streams, each of which is given with a number that is at most its least key, and begun when it is needed.

    The numbers of a key ascend in each stream, and so they do in what is yielded, each once.
    """
    waiting = sorted(sources, key=lambda source: source[0], reverse=True)
    held: list[_Held] = []
    while waiting or held:
        while waiting and (not held or waiting[-1][0] <= min(one.last for one in held)):
            begun = _Held(waiting.pop()[1])
            held += [begun] if begun.last >= 0 else []
        if held:
            bound = min(held, key=lambda one: one.last)
            others = [one.take(bound) for one in held if one is not bound]
            yield _united([bound.take(bound), *(piece for piece in others if len(piece[0]))])
            held = [one for one in held if one.last >= 0]


def _united(pieces: list[Groups]) -> Groups:
    while len(pieces) > 1:
        odd = pieces[len(pieces) & ~1 :]
        pieces = [
            _kernel.union_groups(*a, *b) for a, b in zip(pieces[::2], pieces[1::2], strict=False)
        ] + odd
    return pieces[0]


def recounted(piece: Groups) -> Groups:
    """Return a piece in which each key occurs once, from one in which it may occur several times, one after the other."""
    keys, counts, numbers = piece
    if not len(keys):
        return piece
    return keys[differs(keys)], np.add.reduceat(counts, np.flatnonzero(differs(keys))), numbers


def cut_groups(group: Groups, bound: Words, side: str) -> tuple[Groups, Groups]:
    """Cut a piece at a fingerprint, which is an array of it alone."""
    keys, counts, ids = group
    at = place_of(keys, bound, side)
    taken = int(counts[:at].sum())
    return (keys[:at], counts[:at], ids[:taken]), (keys[at:], counts[at:], ids[taken:])
