"""Vectors on the command line: the options of hyperplane hashing; fingerprints of files of vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from fpstore.cli import types
from fpstore.cli.options import Talk
from fpstore.cli.output import count

if TYPE_CHECKING:
    from fpstore.hashing import VectorReader
    from fpstore.hashing.vector_base import VectorFingerprinter

VECTOR_PARAMETERS = {"vector_field"}
_NAMED = 3

vector_field_option = click.option(
    "--vector-field", metavar="NAME", help="Parquet column of the vectors, which are lists of numbers; by default vector."
)
seed_option = click.option(
    "--seed", type=types.whole(0, 2**64 - 1), default=0, show_default=True, metavar="N", help="Seed of the random hyperplanes."
)


class ZeroVectors:
    """Counts the vectors that have no fingerprint, to name them once at the end."""

    def __init__(self) -> None:
        self._seen = 0
        self._first: list[str] = []

    def __call__(self, path: str, number: int) -> None:
        """Count one vector."""
        self._seen += 1
        if len(self._first) < _NAMED:
            self._first.append(f"{path} vector {number}")

    def report(self, talk: Talk) -> None:
        """Report the vectors that were left out."""
        if self._seen:
            more = f" and {self._seen - _NAMED:,} more" if self._seen > _NAMED else ""
            talk.note(f"{count(self._seen, 'vector')} left out, all components 0: {', '.join(self._first)}{more}")


def hyperplanes(width: int, seed: int) -> Callable[[int], VectorFingerprinter]:
    """Return what makes the fingerprinter of vectors of a dimension."""
    from fpstore.hashing import HyperplaneHash

    return lambda dimension: HyperplaneHash(dimension=dimension, width=width, seed=seed)


def reader(
    paths: Sequence[str],
    fingerprinter: VectorFingerprinter | Callable[[int], VectorFingerprinter],
    vector_field: str | None,
    ids: tuple[str | None, Any],
    notices: ZeroVectors,
) -> VectorReader:
    """Return the reader of files of vectors; the ids have a column and a type."""
    from fpstore.hashing import VectorReader

    if "-" in paths:
        types.fail("vectors are read from files, not from standard input: write them to a file first")
    return VectorReader(paths, fingerprinter, vector_field=vector_field, id_field=ids[0], id_type=ids[1], on_notice=notices)
