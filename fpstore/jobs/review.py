"""The page of a list of removed rows: pairs side by side, the most doubtful first.

The template ``review.html`` has the words around them.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from math import isfinite, isnan, nan
from pathlib import PurePath
from typing import Any, NamedTuple

from fpstore.base.aliases import Progress
from fpstore.errors import InputError
from fpstore.hashing.corpora import open_source
from fpstore.io.lines import LineRows
from fpstore.io.parquet import ParquetRows
from fpstore.jobs.evidence import RULES
from fpstore.jobs.excerpts import EXCERPT_COLUMNS
from fpstore.pages import render
from fpstore.pages.marks import Span, compare_words

USUAL_PAIRS, MAX_PAIRS = 500, 100_000
MAX_SOURCES = 24  # that can be filtered; the others are one
ESTIMATE = "estimate"  # in place of a rule, where fingerprints decided
_FACTS = {
    "equal": "Equal",
    "contained": "Contained",
    "similar": "Similar",
    "near": "Near a store",
    "exact": "The same text",
    "key": "The same key",
    ESTIMATE: "Estimated",
}
_SOURCES = ("source", "shard")  # columns, the first that the list has
_SHOWN = ("id", "shard", "source", "kept_row", "kept_shard", "kept_source")
_NEEDED = ("row", "kept", *EXCERPT_COLUMNS)


class ReviewPair(NamedTuple):
    """A row of the list: its columns, its rule, its source, and both texts in spans."""

    columns: Mapping[str, Any]
    rule: str
    source: str
    removed: list[Span]
    kept: list[Span]


def review_page(path: str, most: int, progress: Progress | None = None) -> tuple[str, int]:
    """Return the page of the most doubtful rows of a list, up to ``most``, and their number.

    InputError if the list has no texts.
    """
    rules, sources, total = Counter[str](), Counter[str](), 0
    doubtful = list[tuple[Any, int, dict[str, Any]]]()  # a heap: the least doubtful first
    for total, row in enumerate(list_rows(path, _check_texts), 1):
        rules[_rule(row)] += 1
        if len(doubtful) < most:
            heapq.heappush(doubtful, (_doubt(row), -total, row))
        else:
            heapq.heappushpop(doubtful, (_doubt(row), -total, row))
        if progress is not None:
            progress("reading", total, None)
    doubtful.sort(key=lambda entry: entry[:2], reverse=True)
    pairs = [_pair(row) for _, _, row in doubtful]
    sources.update(pair.source for pair in pairs)
    counts = [(rule, rules[rule]) for rule in (*RULES, ESTIMATE) if rules[rule]]
    named = [name for name, _ in sources.most_common(MAX_SOURCES)]
    page = render(
        "review.html",
        name=PurePath(path).name,
        total=total,
        facts=[("Rows that went", f"{total:,}"), *((_FACTS[rule], f"{n:,}") for rule, n in counts)],
        pairs=pairs,
        rules=counts,
        sources=[(name, sources[name]) for name in sorted(named)],
        other_sources=sum(sources.values()) - sum(sources[name] for name in named),
        source_numbers={name: place for place, name in enumerate(sorted(named))},
    )
    return page, len(pairs)


def list_rows(
    path: str, check_columns: Callable[[str, Collection[str]], None]
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a list as columns by name; None stands for an empty cell.

    ``check_columns`` takes the path and the columns, and raises InputError for those of another
    file.
    """
    source = open_source(path)
    if isinstance(source, LineRows):
        rows = (parser.fields(row) for parser, some in source.all_rows() for row in some)
    else:
        assert isinstance(source, ParquetRows)
        rows = (row for _, _, batch in source.record_batches() for row in batch.to_pylist())
        check_columns(path, source.schema.names)
    for row in rows:
        check_columns(path, row)
        yield {name: None if value == "" else value for name, value in row.items()}
    if isinstance(source, LineRows) and source.headers:
        check_columns(path, source.columns)


def _check_texts(path: str, names: Collection[str]) -> None:
    missing = [name for name in _NEEDED if name not in names]
    if not missing:
        return
    is_list = not set(missing) - set(EXCERPT_COLUMNS)
    reason = "has no texts" if is_list else f"is no list of removed rows: it has no {missing[0]}"
    raise InputError(
        f"{path}: {reason}: fpstore dedup --removed FILE --excerpts-of 400 writes one with texts",
        path=path,
    )


def _doubt(row: Mapping[str, Any]) -> tuple[float, float]:
    """Return how doubtful it is that a row is in another one: the more, the larger."""
    contained, similarity = (_number(row, name) for name in ("contained", "similarity"))
    if isnan(contained):  # a store has no texts, and fingerprints have a distance alone
        distance = _number(row, "distance")
        return (0 if isnan(distance) else distance, 0) if isnan(similarity) else (-similarity, 0)
    return -contained, 0 if isnan(similarity) else -similarity


def _number(row: Mapping[str, Any], name: str) -> float:
    try:
        number = float(row.get(name, "nan"))
    except (TypeError, ValueError, OverflowError):  # an empty cell, or no list of ours
        return nan
    return number if isfinite(number) else nan


def _rule(row: Mapping[str, Any]) -> str:
    rule = row.get("rule")
    return rule if rule in RULES else ESTIMATE


def _pair(row: dict[str, Any]) -> ReviewPair:
    source = next((str(row[name] or "") for name in _SOURCES if name in row), "")
    removed, kept = compare_words(*(str(row.get(name) or "") for name in EXCERPT_COLUMNS))
    numbers = ("contained", "similarity", "distance", "pieces", "kept_pieces")
    columns = {name: _number(row, name) for name in numbers}
    shown = {name: None if isnan(value) else value for name, value in columns.items()}
    known = {**dict.fromkeys(_SHOWN), **row, **shown}
    return ReviewPair(known, _rule(row), source, removed, kept)
