"""Vectors on the command line: the options of hyperplane hashing; fingerprints of files of vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from fpstore.cli import types
from fpstore.cli.options import ID_PARAMETERS, ROW_PARAMETERS, Rows, Talk, grouped, refuse, width_option
from fpstore.errors import counted

if TYPE_CHECKING:
    from fpstore.hashing import VectorReader
    from fpstore.hashing.vector_base import VectorFingerprinter

VECTOR_PARAMETERS = {"vector_field", "seed"}
_NAMED = 3

vector_field_option = click.option(
    "--vector-field", type=types.NAME, help="Parquet column of the vectors, which are lists of numbers; by default vector."
)
seed_option = click.option(
    "--seed", type=types.whole(0, 2**64 - 1), default=0, show_default=True, metavar="N", help="Seed of the random hyperplanes."
)


@dataclass(frozen=True)
class Hyperplanes:
    """Columns of vectors and their ids, and how fingerprints are made of them."""

    vector_field: str | None
    id_field: str | None
    width: int
    seed: int

    def fingerprinter(self, dimension: int) -> VectorFingerprinter:
        """Return the fingerprinter of vectors of a dimension."""
        return fingerprinter(dimension, self.width, self.seed)


hyperplane_options = grouped(
    "hyperplanes",
    Hyperplanes,
    vector_field_option,
    click.option("--id-field", type=types.NAME, help="Parquet column of the ids; by default id, if there is one."),
    width_option,
    seed_option,
)


@dataclass(frozen=True)
class Vectors:
    """Whether inputs are vectors, and how fingerprints are made of them."""

    vector: bool
    vector_field: str | None
    seed: int


vector_options = grouped(
    "vectors",
    Vectors,
    click.option(
        "--vector", is_flag=True,
        help="Inputs are .npy or .parquet files of vectors; make their fingerprints with hyperplane hashing.",
    ),
    vector_field_option,
    seed_option,
)  # fmt: skip


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
            talk.note(f"{counted(self._seen, 'vector')} left out, all components 0: {', '.join(self._first)}{more}")


def fingerprinter(dimension: int, width: int, seed: int) -> VectorFingerprinter:
    """Return the fingerprinter of vectors of a dimension."""
    from fpstore.hashing import HyperplaneHash

    return HyperplaneHash(dimension=dimension, width=width, seed=seed)


def reader(
    paths: Sequence[str],
    made: VectorFingerprinter | Callable[[int], VectorFingerprinter],
    vector_field: str | None,
    rows: Rows,
    notices: ZeroVectors,
    first_row: int = 0,
) -> VectorReader:
    """Return the reader of files of vectors; of the options of rows, those of ids apply."""
    from fpstore.hashing import VectorReader

    refuse(ROW_PARAMETERS - ID_PARAMETERS, "does not go with --vector")
    if "-" in paths:
        types.fail("vectors are read from files, not from standard input: write them to a file first")
    return VectorReader(
        paths, made, vector_field=vector_field, id_field=rows.id_field, id_type=rows.id_type, first_row=first_row,
        on_notice=notices,
    )  # fmt: skip
