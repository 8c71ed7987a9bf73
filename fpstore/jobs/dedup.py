"""Deduplication of a corpus: fingerprints, groups, one of each kept, and the rows of those copied."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fpstore.aliases import Words
from fpstore.arguments import check_choice, check_flag, check_path, printable
from fpstore.design.families import check_radius
from fpstore.errors import InputError, StorageError, StoreExistsError, show
from fpstore.hashing.base import Fingerprinter
from fpstore.hashing.corpus import TextCorpus
from fpstore.hashing.text import SimHash
from fpstore.io.check import is_plain_integer
from fpstore.io.corpus import Chosen, Corpus, Flags, Part, Scores
from fpstore.io.corpus_rows import DelimitedCorpus
from fpstore.io.corpus_tables import TableCorpus
from fpstore.io.digits import check_signed
from fpstore.io.source import IdColumn, join_ids
from fpstore.jobs.choices import GROUPINGS, KEPT, UNKNOWN
from fpstore.jobs.clusters import Clusters
from fpstore.jobs.grouping import Asked, grouped, members_of, of_documents
from fpstore.jobs.linking import connected
from fpstore.jobs.pairs import join_design
from fpstore.resources import Resources
from fpstore.string_column import StringColumn
from fpstore.threads import Job, Pool
from fpstore.width import WORD_BITS, distinct_places

PATHS_TEXT, PATHS_ID = "text", "id"  # where each file is a document
Listing = Callable[[Clusters], AbstractContextManager[object]]
WAITING_PARTS = 4  # for each thread: what is read while others are hashed


@dataclass(frozen=True)
class Rules:
    """What a duplicate is, and which of its group is kept.

    Attributes
    ----------
    radius : int
    keep : {"first", "smallest", "central", "highest"}
    group : {"connected", "greedy"}
    unknown : {"keep", "drop", "refuse"}
        What becomes of a row without a text, a fingerprint or an id, which is not compared.
    """

    radius: int
    keep: str = "first"
    group: str = "connected"
    unknown: str = "keep"

    def check(self, chosen: Chosen) -> None:
        """Raise InputError for a rule that is not known, or that needs a column which is not chosen."""
        check_radius(self.radius, chosen.width.bits)
        check_choice(self.keep, KEPT, "keep")
        check_choice(self.group, GROUPINGS, "group")
        check_choice(self.unknown, UNKNOWN, "unknown")
        if (self.keep == "highest") != (chosen.score is not None):
            raise InputError("keep='highest' (--keep highest) needs score= (--score-field), and the other way round")
        if self.keep == "smallest" and chosen.id is None:
            raise InputError("keep='smallest' (--keep smallest) needs a column of ids (--id-field)")


class Duplicates(NamedTuple):
    """What is found in a corpus.

    Attributes
    ----------
    kept : ndarray of bool, shape (rows,)
    clusters : Clusters
    unknown : int
        Rows that were not compared, because they have no text, no fingerprint or no id.
    """

    kept: Flags
    clusters: Clusters
    unknown: int


class Documents(NamedTuple):
    """The rows of a corpus that can be compared: a value for each in every column."""

    known: Flags  # of all rows
    fingerprints: Words
    ids: IdColumn
    scores: Scores | None


def chosen_columns(how: Chosen, text: str | bool | None, fingerprint: str | None) -> Chosen:
    """Return the columns to read: either one of texts, True where files are texts, or one of fingerprints."""
    if (text in (None, False)) == (fingerprint is None):
        raise InputError(
            "name either the column of texts (text=, --text-field) or that of fingerprints (fingerprint=, --fingerprint-field); "
            "text=True (--text) makes a document of each file"
        )
    if fingerprint is None and how.width.bits != WORD_BITS:
        raise InputError(f"fingerprints of texts have 64 bits, not {how.width.bits}")
    if check_signed(how.signed, how.width) and fingerprint is None:
        raise InputError("signed=True (--signed) is for a column of fingerprints")
    if check_flag(how.decimal, "decimal") and fingerprint is None:
        raise InputError("decimal=True (--decimal) is for a column of fingerprints")
    names = {"text": PATHS_TEXT if text is True else text or None, "fingerprint": fingerprint, "id": how.id, "score": how.score}
    for what, name in names.items():
        if name is not None and not (isinstance(name, str) and name):
            raise InputError(f"{what} must be the name of a column, got {show(name)}", got=name)
    if text is True:
        if how.id is not None or how.score is not None:
            raise InputError("files that are texts have no columns: their ids are their paths")
        return replace(how, text=PATHS_TEXT, id=PATHS_ID)
    return replace(how, text=text or None, fingerprint=fingerprint)


def check_output(output: str | os.PathLike[str], corpus: Corpus, overwrite: bool, *, of_rows: bool = True) -> Path:
    """Return the path to write to; an error if it exists, or is an input, or is to hold rows in another format."""
    path = check_path(output, "output")
    if of_rows and isinstance(corpus, TextCorpus):
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise StoreExistsError(f"{printable(output)} exists: texts are copied to a new folder", path=path)
    elif path.exists() and any(path.samefile(name) for name in corpus.paths if Path(name).exists()):
        raise InputError(f"{printable(output)}: is an input too", path=path)
    elif path.exists() and not overwrite:
        raise StoreExistsError(f"{printable(output)} exists: overwrite=True (--force) replaces it", path=path)
    if of_rows and corpus.suffix is not None and path.suffix.lower() != corpus.suffix:
        raise InputError(f"{printable(output)}: rows are written as they were read: name a {corpus.suffix} file", path=path)
    if not path.parent.is_dir():
        raise StorageError(f"{printable(path.parent)}: no such folder", path=path)
    return path


def kept_of(corpus: Corpus, kept: Flags) -> Any:
    """Return the rows that are kept: those of a table as a table, and of files their numbers."""
    return corpus.kept(kept) if isinstance(corpus, TableCorpus) else np.flatnonzero(kept)


@dataclass(frozen=True)
class Task:
    """A deduplication: of which corpus, by which columns, what is kept, and where it is written.

    Attributes
    ----------
    corpus : Corpus
    chosen : Chosen
        Names a column of texts or one of fingerprints.
    rules : Rules
    target : Path, optional
        As :func:`check_output` returns it.
    """

    corpus: Corpus
    chosen: Chosen
    rules: Rules
    target: Path | None = None

    def run(self, fingerprinter: Fingerprinter[str] | None, resources: Resources, listing: Listing = nullcontext) -> Duplicates:
        """Find the duplicates, and write the rows that are kept.

        Parameters
        ----------
        fingerprinter : Fingerprinter, optional
            As for :func:`find_duplicates`.
        resources : Resources
        listing : callable, optional
            Returns a context in which the rows are written: it writes the clusters, too, and neither if the other fails.
        """
        found = find_duplicates(self.corpus, self.chosen, self.rules, fingerprinter, resources)
        with listing(found.clusters):
            if self.target is not None:
                resources.report("writing", int(found.kept.sum()))
                self.corpus.copy(found.kept, self.target)
        return found


def find_duplicates(
    corpus: Corpus, chosen: Chosen, rules: Rules, fingerprinter: Fingerprinter[str] | None, resources: Resources
) -> Duplicates:
    """Return the duplicates of a corpus and the rows to keep.

    Parameters
    ----------
    corpus : Corpus
    chosen : Chosen
        Names a column of texts or one of fingerprints.
    rules : Rules
    fingerprinter : Fingerprinter, optional
        Makes the fingerprints of texts; by default ``SimHash()``.
    resources : Resources
        Threads and progress.
    """
    rules.check(chosen)
    if fingerprinter is None and chosen.text is not None:
        fingerprinter = SimHash()
    if (chosen.text is None) != (fingerprinter is None):
        raise InputError("a fingerprinter is for texts, and the corpus has fingerprints")
    if fingerprinter is not None and not isinstance(fingerprinter, Fingerprinter):
        raise InputError(f"fingerprinter must be one such as SimHash(), got {type(fingerprinter).__name__}")
    documents = _read(corpus, chosen, rules, fingerprinter, resources)
    rows = np.flatnonzero(documents.known)
    resources.report("comparing", 0)
    fingerprints, places = distinct_places(documents.fingerprints)
    sets = connected(fingerprints, join_design(fingerprints, rules.radius, chosen.width), resources)
    members, _ = members_of(of_documents(sets, places), np.arange(len(rows), dtype=np.uint64))
    members = grouped(
        members,
        Asked(rules.radius, rules.group, rules.keep),
        lambda: documents.fingerprints[members.documents],
        lambda wanted: _ids_of(documents.ids, wanted),
        documents.scores,
    )
    kept = np.full(len(documents.known), rules.unknown == "keep")
    kept[rows] = True
    behind = np.ones(len(members.documents), bool)
    behind[members.lims[:-1]] = False
    kept[rows[members.documents[behind]]] = False
    ids = rows[members.documents].astype(np.uint64) if documents.ids is None else _ids_of(documents.ids, members.documents)
    return Duplicates(kept, Clusters(members.lims, ids, len(kept)), len(kept) - len(rows))


def _ids_of(ids: IdColumn, numbers: Words) -> Words | list[str]:
    """Return some of the ids."""
    if isinstance(ids, np.ndarray):
        return ids[numbers]
    assert ids is not None
    data, ends = ids.data, ids.ends
    starts = np.concatenate([np.zeros(1, np.uint64), ends[:-1]])
    return [data[a:b].decode() for a, b in zip(starts[numbers].tolist(), ends[numbers].tolist(), strict=True)]


def _decided(ids: IdColumn) -> IdColumn:
    """Return ids of delimited text, which has no types: as integers, if all of them are."""
    if not isinstance(ids, StringColumn) or not ids.data.isdigit():
        return ids
    texts = ids.texts()
    return np.array(list(map(int, texts)), np.uint64) if all(map(is_plain_integer, texts)) else ids


def _read(
    corpus: Corpus, chosen: Chosen, rules: Rules, fingerprinter: Fingerprinter[str] | None, resources: Resources
) -> Documents:
    parts, fingerprints, done = [], [], 0
    for part, rows in _hashed(corpus, chosen, fingerprinter, resources.threads):
        if rules.unknown == "refuse" and not part.known.all():
            row = done + int(np.argmin(part.known)) + 1
            raise InputError(f"{', '.join(corpus.names[:3])}: row {row} has no text, fingerprint or id")
        done += len(part.known)
        parts.append(part._replace(texts=None, fingerprints=None))
        fingerprints.append(rows)
        resources.report("reading", done)
    known = np.concatenate([np.empty(0, bool), *(part.known for part in parts)])
    if not len(known):
        raise InputError(f"{', '.join(corpus.names[:3])}: no rows")
    ids = join_ids([part.ids for part in parts]) if chosen.id is not None else None
    if isinstance(corpus, DelimitedCorpus):
        ids = _decided(ids)
    scores = np.concatenate([part.scores for part in parts if part.scores is not None]) if chosen.score is not None else None
    return Documents(known, np.concatenate([chosen.width.empty(0), *fingerprints]), ids, scores)


def _hashed(
    corpus: Corpus, chosen: Chosen, fingerprinter: Fingerprinter[str] | None, threads: int
) -> Iterator[tuple[Part, Words]]:
    """Yield the parts of a corpus with the fingerprints of their known rows, made by threads while others are read."""
    if fingerprinter is None:
        for part in corpus.parts(chosen):
            assert part.fingerprints is not None
            yield part, part.fingerprints
        return
    waiting: deque[Job[tuple[Part, Words]]] = deque()
    with Pool(threads) as pool:
        try:
            for part in corpus.parts(chosen):
                waiting.append(pool.submit(_fingerprinted, part, fingerprinter))
                if len(waiting) > WAITING_PARTS * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BaseException:
            pool.cancel()
            raise


def _fingerprinted(part: Part, fingerprinter: Fingerprinter[str]) -> tuple[Part, Words]:
    """Return the fingerprints of the texts of a part; a text without words is not known."""
    assert part.texts is not None
    rows = fingerprinter.fingerprints(part.texts, empty="zero")
    empty = [place for place in np.flatnonzero(rows == 0).tolist() if fingerprinter.is_empty(part.texts[place])]
    if not empty:
        return part, rows
    filled = np.ones(len(rows), bool)
    filled[empty] = False
    known = part.known.copy()
    known[np.flatnonzero(known)[empty]] = False
    ids = part.ids if part.ids is None else part.ids[filled] if isinstance(part.ids, np.ndarray) else part.ids.filter(filled)
    scores = part.scores if part.scores is None else part.scores[filled]
    return Part(known, None, None, ids, scores), rows[filled]
