"""Deduplication of a table with nulls, compared with brute force.

Of fingerprints in every form, and of texts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

import fpstore
from fpstore import SimHash
from sweep import groups
from sweep.data import Rng, Shape, Words, make_ids

if TYPE_CHECKING:
    from sweep.asking import Asker

MAX_ROWS = 600
NULL_SHARES = (0, 0.1, 0.6, 1)
FORMS = ("integers", "signed", "hexadecimal", "decimal", "bytes", "fixed bytes", "dictionary")
SOURCES = ("table", "chunks", "slice", "parquet", "jsonl")
KEEPS = ("first", "smallest", "central", "highest")


@dataclass(frozen=True)
class Corpus:
    """Columns of a table, null where a row is not known, and how they are asked for."""

    shape: Shape
    rows: Words  # of every row, also where there is none
    known: npt.NDArray[np.bool_]
    columns: dict[str, Any]
    arguments: dict[str, Any]


def column_of(shape: Shape, rows: Words, form: str, nulls: npt.NDArray[np.bool_]) -> Any:
    """Return fingerprints as an Arrow column of a form."""
    numbers: list[Any] = shape.numbers(shape.to_array(rows))
    if form in ("bytes", "fixed bytes"):
        values = [number.to_bytes(shape.bits // 8, "big") for number in numbers]
        return pa.array(
            values, pa.binary() if form == "bytes" else pa.binary(shape.bits // 8), mask=nulls
        )
    if form == "integers":
        return pa.array(numbers, pa.uint32() if shape.bits == 32 else pa.uint64(), mask=nulls)
    if form == "signed":
        signed = rows.astype(np.uint32).view(np.int32) if shape.bits == 32 else rows.view(np.int64)
        return pa.array(signed, mask=nulls)
    digits = [
        str(number) if form == "decimal" else f"{number:0{shape.bits // 4}x}" for number in numbers
    ]
    column = pa.array(
        digits, pa.string() if form == "dictionary" else pa.large_string(), mask=nulls
    )
    return column.dictionary_encode() if form == "dictionary" else column


def draw_texts(rng: Rng, count: int) -> list[str]:
    """Return texts, many of which differ in few words; some are empty."""
    out: list[str] = []
    while len(out) < count:
        chosen = [f"w{n}" for n in rng.integers(0, 50, int(rng.choice([0, 1, 30, 200]))).tolist()]
        for _ in range(int(rng.integers(1, 5))):
            out.append(" ".join(chosen))
            if chosen:
                chosen[int(rng.integers(0, len(chosen)))] = "other"
    return out[:count]


def draw_corpus(rng: Rng, shape: Shape, rows: Words, form: str) -> Corpus:
    """Return a table and the arguments of ``fpstore.dedup``."""
    count = len(rows)
    nulls = rng.random(count) < rng.choice(NULL_SHARES)
    id_kind = str(rng.choice(["rows", "integers", "strings"]))
    id_nulls = rng.random(count) < rng.choice(NULL_SHARES[:3])
    columns: dict[str, Any] = {"other": pa.array(np.arange(count))}
    arguments: dict[str, Any] = {
        "radius": int(rng.integers(0, 13 if rng.random() < 0.8 else shape.bits + 1))
    }
    if form == "texts":
        texts = draw_texts(rng, count)
        columns["key"] = pa.array(texts, pa.string(), mask=nulls)
        arguments |= {"text": "key", "method": "simhash"}
        rows, _ = SimHash().fingerprints(texts, empty="mask")
        nulls = nulls | np.array([not text for text in texts], bool)
    else:
        columns["key"], arguments["fingerprint"] = column_of(shape, rows, form, nulls), "key"
        arguments |= {"width": shape.bits, "signed": form == "signed", "decimal": form == "decimal"}
    known = ~nulls
    ids = make_ids(rng, id_kind, count)
    if ids is not None:
        columns["name"], arguments["id"] = (
            pa.array(ids, pa.string() if isinstance(ids, list) else pa.uint64(), mask=id_nulls),
            "name",
        )
        known &= ~id_nulls
    keep = str(rng.choice([keep for keep in KEEPS if keep != "smallest" or ids is not None]))
    if keep == "highest":
        columns["score"], arguments["score"] = (
            pa.array(rng.integers(0, 5, count), mask=rng.random(count) < 0.2),
            "score",
        )
    arguments |= {
        "keep": keep,
        "group": str(rng.choice(["connected", "greedy"])),
        "unknown": str(rng.choice(["keep", "drop"])),
    }
    return Corpus(shape if form != "texts" else Shape(64), rows, known, columns, arguments)


def expected_rows(corpus: Corpus) -> tuple[list[int], list[list[int]]]:
    """Return the rows that are kept and the groups, by brute force."""
    rows = np.flatnonzero(corpus.known).tolist()
    distinct, places = np.unique(corpus.rows[rows], axis=0, return_inverse=True)
    places = places.reshape(-1)
    distances = groups.all_distances(corpus.shape, distinct, distinct)
    radius = corpus.arguments["radius"]
    sets = groups.connect(distances <= radius)
    clusters = groups.members([int(sets[place]) for place in places])
    greedy = corpus.arguments["group"] == "greedy"
    clusters = groups.put_representatives_first(
        clusters, _ranks(corpus, rows, clusters), distances, radius, places.tolist(), greedy
    )
    dropped = {rows[document] for group in clusters for document in group[1:]}
    if corpus.arguments["unknown"] == "drop":
        dropped |= set(np.flatnonzero(~corpus.known).tolist())
    return [row for row in range(len(corpus.known)) if row not in dropped], [
        [rows[document] for document in group] for group in clusters
    ]


def _ranks(corpus: Corpus, rows: list[int], clusters: list[list[int]]) -> dict[int, Any]:
    keep = corpus.arguments["keep"]
    members = [document for cluster in clusters for document in cluster]
    if keep == "smallest":
        return {document: corpus.columns["name"][rows[document]].as_py() for document in members}
    if keep == "highest":
        scores = [corpus.columns["score"][rows[document]].as_py() for document in members]
        return {
            document: float("inf") if score is None else -score
            for document, score in zip(members, scores, strict=True)
        }
    if keep == "central":
        far = [
            groups.from_majority(corpus.rows, [rows[document] for document in cluster])
            for cluster in clusters
        ]
        return dict(zip(members, [count for cluster in far for count in cluster], strict=True))
    return {document: document for document in members}


def in_form(rng: Rng, table: Any, source: str, folder: Path) -> Any:
    """Return a table in the form of a source."""
    cut = int(rng.integers(0, table.num_rows + 1))
    if source == "chunks":
        return pa.concat_tables([table.slice(0, cut), table.slice(cut, 0), table.slice(cut)])
    if source == "slice":
        return pa.concat_tables([table.slice(0, cut), table]).combine_chunks().slice(cut)
    path = folder / f"corpus.{source}"
    if source == "parquet":
        pq.write_table(table, path, row_group_size=max(cut, 1))
        return path
    if source == "jsonl":
        path.write_text(
            "".join(json.dumps(row) + "\n" for row in table.to_pylist()), encoding="utf-8"
        )
        return path
    return table


def ask(asker: Asker, folder: Path) -> None:
    """Remove the duplicates of one table, whose fingerprints are those of the case, or of texts."""
    case = asker.case
    rng = np.random.default_rng([case.seed, case.number, 77])
    rows = case.everything()[: int(rng.choice([1, 2, 17, MAX_ROWS]))]
    if not len(rows):
        return
    forms = [form for form in FORMS if case.shape.bits <= 64 or form not in ("integers", "signed")]
    form = "texts" if case.shape.bits == 64 and rng.random() < 0.3 else str(rng.choice(forms))
    corpus = draw_corpus(rng, case.shape, rows[rng.integers(0, len(rows), len(rows))], form)
    sources = [
        source for source in SOURCES if source != "jsonl" or form not in ("bytes", "fixed bytes")
    ]
    source, threads = str(rng.choice(sources)), int(rng.integers(1, 3))
    call = f"dedup: {len(rows)} rows, {form}, {source}, {corpus.arguments}, threads={threads}"
    asker.note(call)
    table = in_form(rng, pa.table(corpus.columns), source, folder)
    result = fpstore.dedup(table, **corpus.arguments, threads=threads)
    kept, clusters = expected_rows(corpus)
    got = (
        result.kept["other"].to_pylist()
        if isinstance(result.kept, pa.Table)
        else result.kept.tolist()
    )
    asker.same(call, got == kept, got, kept, len(kept))
    asker.same(
        f"{call}, not compared",
        result.not_compared == (~corpus.known).sum(),
        result.not_compared,
        (~corpus.known).sum(),
    )
    names = corpus.columns["name"].to_pylist() if "name" in corpus.columns else range(len(rows))
    expected = [[names[row] for row in group] for group in clusters]
    asker.same(
        f"{call}, clusters",
        list(result.clusters) == expected,
        list(result.clusters),
        expected,
        len(expected),
    )
