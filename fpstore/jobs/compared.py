"""The compared rows of a corpus: fingerprints or sets of features, ids, scores, keys of bands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Counts, Flags, Words
from fpstore.base.arrays import NO_WORDS
from fpstore.base.resources import Resources
from fpstore.base.strings import StringColumn
from fpstore.disk.temporary import SpilledNumbers
from fpstore.errors import InputError
from fpstore.hashing.bands import Bands, MinHashSketcher
from fpstore.hashing.base import FeatureSets, Fingerprinter
from fpstore.hashing.corpora import HashTexts, hash_rows
from fpstore.io.check import is_plain_integer
from fpstore.io.labels import LabelCodes, LabelColumn, Labels
from fpstore.io.scores import concatenate_keys
from fpstore.io.source import Batch, Projection, RowSource
from fpstore.jobs.bands import BandKeys
from fpstore.jobs.keys import KINDS, KeyColumn, Keys
from fpstore.jobs.row_set import SpooledIds
from fpstore.jobs.text_sets import TextSets, TextSetsWriter
from fpstore.query.id_lookup import ID_SLICE_ROWS, ids_in_slices
from fpstore.work.checkpoint import Checkpoint
from fpstore.work.pieces import Pieces

# of a part of a checkpoint: whichever comes first
PART_ROWS, PART_CHARS = 1 << 20, 1 << 26
READ = "rows were read"
SETS = (*FeatureSets._fields, "chars")  # the pieces of sets
STAGE = "rows"  # of a checkpoint; a result has the number of its first row


class ComparedRows(NamedTuple):
    """The rows of a corpus that can be compared, in columns.

    ``is_compared`` has a flag for each row of the corpus. With keys of bands, fingerprints and the
    numbers of rows lie in temporary files. ``texts`` has the sets of features, if texts decide;
    ``keys`` the keys of rows that have any. Fingerprints that were not made have no words.
    ``labels`` has columns of labels by name, for all rows. ``variants`` has all variants of each
    row, the first of which is the fingerprint: shape (rows, variants, words).
    """

    is_compared: Flags
    rows: npt.NDArray[np.intp]  # their numbers among all
    fingerprints: Words
    ids: SpooledIds | None
    scores: Words | None  # keys of `fpstore.io.scores`
    bands: BandKeys | None
    texts: TextSets | None = None
    keys: Mapping[str, KeyColumn] = {}  # by one of KINDS
    pages: int = 0  # of HTML, which are compared without tags
    labels: Mapping[str, LabelColumn] = {}
    variants: Words | None = None


class ComparedColumns(NamedTuple):
    """Which columns of rows are compared, and what is made of texts.

    That may be sets of features, fingerprints, or both; fingerprints may have keys of bands. With
    ``refuses_unknown``, a row without text, fingerprint or id is an InputError. The source may have
    several ``variants`` of each fingerprint, one behind the other.
    """

    projection: Projection
    fingerprinter: Fingerprinter[Any] | None
    bands: Bands | None = None
    makes_sets: bool = False
    makes_fingerprints: bool = True
    refuses_unknown: bool = False
    variants: int = 1


def compared_rows(
    corpus: RowSource,
    columns: ComparedColumns,
    resources: Resources,
    checkpoint: Checkpoint | None = None,
    may_be_empty: bool = False,
    label_codes: Mapping[str, LabelCodes] | None = None,
) -> ComparedRows:
    """Read the rows of a corpus, whose texts are hashed by threads.

    Rows in a checkpoint are not read again. A corpus without rows is an InputError, unless it
    ``may_be_empty``. ``label_codes`` has the codes of labels that other rows share, by the columns.
    """
    corpus.limit_memory(resources.memory)
    projection, fingerprinter, bands = columns[:3]
    keys = spilled = None
    if bands is not None:
        assert isinstance(fingerprinter, MinHashSketcher)
        fingerprinter = fingerprinter.with_bands(bands)
        keys = BandKeys(bands.number)
        spilled = SpilledNumbers(np.uint64)
    words = columns.variants * projection.width.words if columns.makes_fingerprints else 0
    texts = TextSetsWriter(resources.memory) if columns.makes_sets else None
    hash_texts: HashTexts | None = (
        partial(fingerprinter.hashed_sets, fingerprints=columns.makes_fingerprints)
        if columns.makes_sets and fingerprinter is not None
        else None
    )

    def read(skipped: int = 0) -> Iterator[Batch]:
        if fingerprinter is None:
            return corpus.batches(projection, skipped=skipped)
        return hash_rows(
            corpus,
            projection,
            fingerprinter,
            resources.threads,
            skipped=skipped,
            hash_texts=hash_texts,
        )

    flags = [np.empty(0, bool)]
    pieces = [np.empty(0 if words == 1 else (0, words), np.uint64)]
    scores = list[Words]()
    key_pieces: dict[str, list[Words]] = {kind: [] for kind in KINDS}
    codes = dict[str, LabelCodes](label_codes or {})
    labels = {name: [np.empty(0, np.uint32)] for name in projection.labels}
    ids, done, pages = SpooledIds(), 0, 0
    for batch in read() if checkpoint is None else _read_with_checkpoint(checkpoint, read):
        is_compared = batch.flags
        if columns.refuses_unknown and not is_compared.all():
            raise _missing_value_error(corpus, done + int(np.argmin(is_compared)))
        done += len(is_compared)
        pages += batch.pages
        ids.add(corpus.check_ids_writable(batch))
        flags.append(is_compared)
        if keys is None or spilled is None:
            pieces.append(batch.fingerprints)
        else:
            spilled.append(np.ascontiguousarray(batch.fingerprints[:, :words]).reshape(-1))
            keys.add(batch.fingerprints[:, words:])
        scores.extend([] if batch.scores is None else [batch.scores])
        for kind, column in _key_columns(batch).items():
            key_pieces[kind].append(column)
        for name, values in zip(projection.labels, batch.labels, strict=True):
            labels[name].append(codes.setdefault(name, LabelCodes()).encode(values))
        if texts is not None and batch.text_chars is not None:
            texts.add(batch.sets, batch.text_chars)
        resources.report("reading", done)
    if not done and not may_be_empty:
        raise InputError(f"{corpus.label}: no rows")
    ids.finish()
    is_compared = np.concatenate(flags)
    if keys is not None:
        keys.finish()
    rows = np.concatenate(pieces) if spilled is None else spilled.finish()
    rows = rows if words == 1 else rows.reshape(len(rows) if not words else -1, words)
    variants = None
    if columns.variants > 1:
        variants = rows.reshape(len(rows), columns.variants, -1)
        rows = variants[:, 0, 0] if variants.shape[2] == 1 else variants[:, 0]
    return ComparedRows(
        is_compared,
        np.flatnonzero(is_compared) if keys is None else _places_on_disk(is_compared),
        rows,
        None if projection.id is None else ids if corpus.typed else convert_to_integers(ids),
        concatenate_keys([NO_WORDS, *scores]) if projection.score is not None else None,
        keys,
        None if texts is None else texts.finish(),
        _join_keys(key_pieces),
        pages,
        _joined_labels(labels, codes),
        variants,
    )


def _joined_labels(
    labels: Mapping[str, list[Counts]], codes: Mapping[str, LabelCodes]
) -> dict[str, LabelColumn]:
    return {
        name: LabelColumn(np.concatenate(pieces), codes.get(name, LabelCodes()))
        for name, pieces in labels.items()
    }


def _missing_value_error(corpus: RowSource, place: int) -> InputError:
    return InputError(
        f"{corpus.label}: row {corpus.rows_before + place + 1} has a null or blank text, or a "
        "null fingerprint or id"
    )


def _places_on_disk(flags: Flags) -> npt.NDArray[np.intp]:
    """Return the places of set flags, in a temporary file."""
    places = SpilledNumbers(np.intp)
    for start in range(0, len(flags), PART_ROWS):
        places.append(start + np.flatnonzero(flags[start : start + PART_ROWS]))
    return places.finish()


def _read_with_checkpoint(
    checkpoint: Checkpoint, read: Callable[[int], Iterator[Batch]]
) -> Iterator[Batch]:
    """Yield the rows in the parts of a checkpoint, then later rows, which make new parts.

    A part has the number of its first row, so a part of other bounds is never read.
    """
    done = 0
    while (pieces := checkpoint.result(STAGE, done)) is not None:
        for number in range(pieces.facts["batches"]):
            flags, scores = pieces.read(f"flags-{number}").view(bool), f"scores-{number}"
            done += len(flags)
            yield Batch(
                pieces.read(f"fingerprints-{number}"),
                pieces.read_ids(f"ids-{number}"),
                flags,
                scores=pieces.read(scores) if scores in pieces else None,
                pages=pieces.facts["pages"][number],
                **_read_keys(pieces, number),
                labels=_read_labels(pieces, number),
                **_read_sets(pieces, number),
            )
    before = first = done
    batches, chars = list[Batch](), 0
    for batch in read(before):
        batches.append(batch)
        done, chars = done + len(batch.flags), chars + batch.chars
        yield batch
        if done - first >= PART_ROWS or chars >= PART_CHARS:
            _write(checkpoint, first, batches)
            batches, first, chars = [], done, 0
    if done > first:
        _write(checkpoint, first, batches)
    checkpoint.note(READ, before, done)


def _write(checkpoint: Checkpoint, first: int, batches: list[Batch]) -> None:
    with checkpoint.create_result(STAGE, first) as writer:
        writer.facts["batches"] = len(batches)
        writer.facts["pages"] = [batch.pages for batch in batches]
        for number, batch in enumerate(batches):
            writer.add(f"flags-{number}", batch.flags.view(np.uint8))
            writer.add(f"fingerprints-{number}", batch.fingerprints)
            writer.add_ids(f"ids-{number}", batch.ids)
            if batch.scores is not None:
                writer.add(f"scores-{number}", batch.scores)
            for kind, column in _key_columns(batch).items():
                writer.add(f"{kind}-keys-{number}", column)
            for place, labels in enumerate(batch.labels):
                writer.add_ids(f"labels-{place}-{number}", labels.values)
                writer.add(f"codes-{place}-{number}", labels.codes)
            if batch.sets is not None and batch.text_chars is not None:
                for name, column in zip(SETS, (*batch.sets, batch.text_chars), strict=True):
                    writer.add(f"{name}-{number}", column)


def _join_keys(pieces: dict[str, list[Words]]) -> Keys:
    columns = {kind: KeyColumn.from_pieces(parts) for kind, parts in pieces.items()}
    return {kind: column for kind, column in columns.items() if len(column.places)}


def _key_columns(batch: Batch) -> dict[str, Words]:
    """Return the keys of a batch by their kind, one of KINDS."""
    columns = {"exact": batch.text_keys, "key": batch.keys}
    return {kind: column for kind, column in columns.items() if column is not None}


def _read_keys(pieces: Pieces, number: int) -> dict[str, Any]:
    """Return the keys of a batch, if a checkpoint has them."""
    fields = {"text_keys": f"exact-keys-{number}", "keys": f"key-keys-{number}"}
    return {field: pieces.read(name) for field, name in fields.items() if name in pieces}


def _read_labels(pieces: Pieces, number: int) -> tuple[Labels, ...]:
    """Return the labels of a batch, for each column that a checkpoint has."""
    labels = list[Labels]()
    while (name := f"{len(labels)}-{number}") and f"codes-{name}" in pieces:
        values = pieces.read_ids(f"labels-{name}")
        assert isinstance(values, StringColumn)
        labels.append(Labels(values, pieces.read(f"codes-{name}")))
    return tuple(labels)


def _read_sets(pieces: Pieces, number: int) -> dict[str, Any]:
    """Return the sets of a batch, and the characters of its texts, if a checkpoint has them."""
    if f"{SETS[0]}-{number}" not in pieces:
        return {}
    *sets, chars = (pieces.read(f"{name}-{number}") for name in SETS)
    return {"sets": FeatureSets(*sets), "text_chars": chars}


def convert_to_integers(ids: SpooledIds) -> SpooledIds:
    """Return ids of delimited text, which has no types, as integers if all of them are."""
    if ids.integers is not None:
        return ids
    integers = SpooledIds()
    for start in range(0, len(ids), ID_SLICE_ROWS):
        for _, (texts,) in ids_in_slices(
            [(ids, np.arange(start, min(start + ID_SLICE_ROWS, len(ids)), dtype=np.uint64))]
        ):
            if not all(map(is_plain_integer, map(str, texts))):
                return ids
            integers.add(np.array(list(map(int, texts)), np.uint64))
    integers.finish()
    return integers
