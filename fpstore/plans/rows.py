"""The rows of a part of the inputs: fingerprints, read or made of texts, and ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Words
from fpstore.base.resources import Resources
from fpstore.base.width import empty_rows
from fpstore.hashing.base import Fingerprinter
from fpstore.io.source import IdColumn, Projection
from fpstore.jobs.compared import ComparedColumns, compared_rows
from fpstore.jobs.row_set import id_column, id_kind
from fpstore.plans.inputs import InputSpec, Part, inputs_on_disk, open_part, raw_source
from fpstore.work.ids import as_integers, as_strings


@dataclass(frozen=True)
class PartRows:
    """The rows of a part that have fingerprints: their places, fingerprints and ids.

    ``total`` counts all rows, and ``whole_pages`` the pages that are compared by their whole texts:
    see `MainText`.
    """

    places: npt.NDArray[np.intp]
    fingerprints: Words
    ids: IdColumn
    total: int
    whole_pages: int = 0


def read_part(
    specs: Sequence[InputSpec],
    part: Part,
    projection: Projection,
    fingerprinter: Fingerprinter[Any] | None,
    id_type: str,
    encoding: str | None,
    resources: Resources,
) -> PartRows:
    """Read a part of the inputs; ids are None unless there is a column of ids."""
    if specs[0].is_raw:
        fingerprints = np.concatenate(
            [empty_rows(0, projection.width.words), *raw_pieces(specs, part, projection)]
        )
        return PartRows(np.arange(len(fingerprints)), fingerprints, None, len(fingerprints))
    with open_part(specs, part, encoding) as corpus:
        columns = ComparedColumns(projection, fingerprinter)
        rows = compared_rows(corpus, columns, resources, may_be_empty=True)
    ids = id_column(rows.ids)
    if ids is not None:
        kind = (id_kind(rows.ids) if corpus.typed else "str") if id_type == "auto" else id_type
        ids = as_integers(ids, specs[part.file].uri) if kind.startswith("int") else as_strings(ids)
    return PartRows(rows.rows, rows.fingerprints, ids, len(rows.is_compared), corpus.whole_pages)


def raw_pieces(specs: Sequence[InputSpec], part: Part, projection: Projection) -> Iterator[Words]:
    """Yield the fingerprints of a part of raw numbers, batch by batch."""
    for number in part.numbers:
        with inputs_on_disk([specs[number]]) as (path,):
            source = raw_source(path)
            batches = islice(
                source.batches(source.resolve_columns(projection)), part.first, part.end or None
            )
            yield from (batch.fingerprints for batch in batches)
