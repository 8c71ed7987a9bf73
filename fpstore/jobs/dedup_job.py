"""What a deduplication is asked for.

The columns of a corpus, what makes documents near-duplicates, and how they are searched.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from fpstore.base.arguments import check_choice, check_flag, check_number
from fpstore.base.width import WORD_BITS, Width, check_width
from fpstore.design.families import check_radius
from fpstore.errors import InputError, show
from fpstore.hashing.bands import Bands, planned_bands
from fpstore.hashing.base import USUAL_BITS, Fingerprinter
from fpstore.hashing.binomial import binomial_cdf
from fpstore.hashing.documents import DocumentFiles
from fpstore.hashing.fields import is_weighted, maker_of_columns
from fpstore.hashing.html import extractor_of, of_pages
from fpstore.hashing.minhash import USUAL_JACCARD, USUAL_RECALL, least_jaccard
from fpstore.hashing.registry import described_fingerprinter, text_fingerprinter
from fpstore.hashing.wrapper import can_have_bands, minhash_in
from fpstore.io.digits import check_signed
from fpstore.io.lines import LineRows
from fpstore.io.source import Projection, RowSource
from fpstore.jobs import GROUPINGS, KEEP_RULES, SEARCHES, UNKNOWN
from fpstore.jobs.checkpoint import JobIdentity
from fpstore.jobs.grouping import Grouping
from fpstore.jobs.reference import Reference

EXACT_ROWS = 1 << 20  # of which all are compared, unless a caller says how to search
# texts within the radius of a text by chance, on average: of more, bands keep most apart
MOST_CHANCE = 0.001
BANDS_RECALL = 0.995
UNRELATED = 0.05  # the most that unrelated texts have in common: a line of their page, or phrases
MOST_UNRELATED = 1e-4  # of them within the radius: of more, texts are compared, too
VERIFIED_BELOW = 0.5  # a threshold, unless a caller says whether texts are compared
DEDUP_METHOD = "minhash"  # unless a caller names another
PATHS_TEXT, PATHS_ID = "text", "id"  # where each file is a document


class DedupJob(NamedTuple):
    """How duplicates are looked for.

    By columns of texts or of fingerprints, and what makes the fingerprints of texts.

    ``unknown`` says what becomes of a row without a text, a fingerprint or an id, which is not
    compared. ``least_similarity`` is a bound: a row is removed if its Jaccard similarity to the
    kept row is at least this. None: fingerprints decide. ``search`` is one of SEARCHES; ``jaccard``
    is the similarity at which pairs are to be found, None without MinHash. ``can_verify``: texts
    may be compared where the radius asks for it, which `planned` decides.
    """

    projection: Projection
    grouping: Grouping
    unknown: str
    fingerprinter: Fingerprinter[Any] | None
    least_similarity: float | None = None
    search: str = "exact"
    jaccard: float | None = None
    fixed_radius: bool = False
    bands: Bands | None = None
    can_verify: bool = False

    def planned(self, corpus: RowSource) -> DedupJob:
        """Return the job as :meth:`planned_for` the rows of a corpus."""
        return self.planned_for(lambda: rows_told(corpus, self.projection))

    def planned_for(self, rows: Callable[[], float]) -> DedupJob:
        """Return the job with the bands that are searched, if that is asked for, or better for so many rows.

        Of many rows, they take less time. At a large radius, they keep texts apart that are near
        each other by chance alone. The radius leaves enough of the recall to the bands, unless it
        is fixed. Texts are compared if the radius does not keep unrelated ones apart: bands do not
        either, where texts have a line in common.
        """
        job = self._with_bands(rows)
        if not job.can_verify or job.unrelated < MOST_UNRELATED:
            return job
        return job._replace(least_similarity=job.jaccard)

    def _with_bands(self, count: Callable[[], float]) -> DedupJob:
        """Return the job with the bands that are searched, and their radius."""
        minhash = minhash_in(self.fingerprinter)
        auto = (
            self.search == "auto" and not self.fixed_radius and can_have_bands(self.fingerprinter)
        )
        auto = auto and ((rows := count()) > EXACT_ROWS or self.chance(rows) > MOST_CHANCE)
        if minhash is None or self.jaccard is None or not (auto or self.search == "bands"):
            return self
        bands = planned_bands(self.jaccard, BANDS_RECALL)
        if bands is None:
            if self.search == "auto":
                return self
            raise InputError(
                f"no bands find pairs of similarity {self.jaccard:.3g}: leave search='bands' "
                "(--search bands) out"
            )
        if self.fixed_radius:
            return self._replace(bands=bands)
        radius = minhash.radius(self.jaccard, USUAL_RECALL / bands.recall(self.jaccard))
        return self._replace(bands=bands, grouping=self.grouping._replace(radius=radius))

    def chance(self, rows: float) -> float:
        """Return how many of so many rows are within the radius of an earlier one by chance alone, on average for each."""
        return (
            binomial_cdf(self.grouping.radius, self.projection.width.bits, 0.5)
            * max(rows - 1, 0)
            / 2
        )

    @property
    def unrelated(self) -> float:
        """The share of the pairs of unrelated texts that are within the radius.

        Of those with a similarity of UNRELATED.
        """
        return binomial_cdf(self.grouping.radius, self.projection.width.bits, (1 - UNRELATED) / 2)

    def strangers(self, rows: float) -> float:
        """Return how many of so many rows, all of them unrelated, would be found near an earlier one, on average for each."""
        shared = 1 if self.bands is None else self.bands.recall(UNRELATED)
        return shared * self.unrelated * max(rows - 1, 0) / 2

    @property
    def stored_radius(self) -> int:
        """The radius of a store that is made of the rows: without what bands add."""
        minhash = minhash_in(self.fingerprinter)
        if minhash is None or self.jaccard is None or self.fixed_radius:
            return self.grouping.radius
        return minhash.radius(self.jaccard)

    @property
    def recall(self) -> float | None:
        """The share of the pairs of similarity ``jaccard`` that is found; None without MinHash."""
        minhash = minhash_in(self.fingerprinter)
        if self.jaccard is None or minhash is None:
            return None
        shared = 1 if self.bands is None else self.bands.recall(self.jaccard)
        return shared * minhash.recall(self.jaccard, self.grouping.radius)

    def identity(self, corpus: RowSource, reference: Reference | None = None) -> JobIdentity:
        """Return the facts that decide about the duplicates of a corpus."""
        projection = {**asdict(self.projection), "width": self.projection.width.bits}
        maker = (
            {} if self.fingerprinter is None else {"fingerprinter": self.fingerprinter.describe()}
        )
        files = {f"file {number}": state for number, state in enumerate(corpus.states(), 1)}
        asked = {
            **projection,
            **self.grouping._asdict(),
            "unknown": self.unknown,
            "bands": self.bands,
        }
        told = {} if reference is None else reference.identity()
        facts = {
            "job": "dedup",
            "encoding": corpus.encoding,
            "least_similarity": self.least_similarity,
        }
        return {**facts, **asked, **maker, **files, **told}


def rows_told(corpus: RowSource, projection: Projection, bytes_total: int | None = None) -> int:
    """Return how many rows a corpus has, as far as the first rows of its largest file tell.

    It may be a file of a larger one.
    """
    if isinstance(corpus, DocumentFiles):
        return len(corpus.paths)
    if corpus.rows is not None or corpus.bytes_total is None:
        return corpus.rows or 0
    total = corpus.bytes_total if bytes_total is None else bytes_total
    if isinstance(corpus, LineRows) and len(corpus.files) > 1:
        sizes = [file.size or 0 for file in corpus.files]
        corpus = corpus.alone(sizes.index(max(sizes)))
    with closing(corpus.batches(projection)) as batches:  # type: ignore[type-var]  # they are generators
        first = next(batches, None)
    return 0 if first is None else round(len(first.flags) * total / max(corpus.bytes_done, 1))


class Likeness(NamedTuple):
    """What makes two documents near-duplicates; None stands for a default that depends on the rest.

    ``method`` names the fingerprinter of texts. ``threshold`` is a Jaccard similarity, from which
    the radius follows.
    """

    radius: int | None = None
    width: int | None = None
    method: str | None = None
    threshold: float | None = None
    group: str | None = None
    keep: str = "first"
    verify: bool | None = None
    search: str = "auto"

    def maker(self, text: Any) -> Fingerprinter[Any]:
        """Return the fingerprinter of the method, for columns of texts."""
        width = {} if self.width is None else {"width": self.width}
        return text_fingerprinter(
            DEDUP_METHOD if self.method is None else self.method, is_weighted(text), **width
        )

    def grouping(self, maker: Fingerprinter[Any] | None, width: Width) -> Grouping:
        """Return the radius and the groups that are wanted; InputError for a wrong value."""
        minhash = minhash_in(maker)
        if (
            self.verify is not None
            and check_flag(self.verify, "verify")
            and self.group == "connected"
        ):
            raise InputError(
                "verify (--verify) makes groups without chains: leave group='connected' (--group "
                "connected) out"
            )
        if self.threshold is not None and not self.verify:
            if minhash is None:
                raise InputError(
                    "threshold (--threshold) is a Jaccard similarity, for MinHash or verify: give "
                    "radius (--radius)"
                )
            if self.radius is not None:
                raise InputError(
                    "give threshold (--threshold) or radius (--radius), not both: one follows "
                    "from the other"
                )
        if self.radius is not None:
            radius = self.radius
        elif self.threshold is not None and minhash is not None:
            radius = minhash.radius(check_number(self.threshold, 0, 1, "threshold"))
        else:
            radius = USUAL_BITS * width.bits // WORD_BITS if maker is None else maker.usual_radius
        usual = "connected" if maker is None else "greedy" if self.verify else maker.usual_group
        check_radius(radius, width.bits)
        group = check_choice(usual if self.group is None else self.group, GROUPINGS, "group")
        return Grouping(radius, group, check_choice(self.keep, KEEP_RULES, "keep"))

    def jaccard(self, maker: Fingerprinter[Any] | None, radius: int) -> float | None:
        """Return the similarity at which USUAL_RECALL of the pairs are found.

        None without MinHash, which bands need.
        """
        minhash = minhash_in(maker)
        if check_choice(self.search, SEARCHES, "search") == "bands" and not can_have_bands(maker):
            raise InputError(
                "search='bands' (--search bands) is for texts, and MinHash of 64 bits or more"
            )
        if minhash is None or self.radius is None:
            return (
                None
                if minhash is None
                else USUAL_JACCARD
                if self.threshold is None
                else self.threshold
            )
        return least_jaccard(minhash, radius)

    def can_verify(self, maker: Fingerprinter[Any] | None, jaccard: float | None) -> bool:
        """Return whether texts may be compared unasked.

        Sets of MinHash at a low threshold, in groups without chains.
        """
        minhash = minhash_in(maker)
        if (
            minhash is None
            or minhash.takes_field_weights
            or self.verify is not None
            or self.radius is not None
        ):
            return False
        return self.group != "connected" and jaccard is not None and jaccard < VERIFIED_BELOW


def dedup_job(
    how: Projection,
    text: Any,
    fingerprint: str | None,
    likeness: Likeness,
    unknown: str,
    fingerprinter: Fingerprinter[Any] | None,
    html: bool | str,
    reference: Reference | None = None,
) -> DedupJob:
    """Return the job that the arguments of :func:`fpstore.dedup` ask for.

    InputError if one is wrong.
    """
    if reference is not None and reference.store is not None:
        likeness, fingerprinter = _like_the_store(reference.store, likeness, text, fingerprinter)
    projection, fingerprinter = columns_and_maker(
        how, text, fingerprint, likeness, fingerprinter, html
    )
    grouping = likeness.grouping(fingerprinter, projection.width)
    check_choice(unknown, UNKNOWN, "unknown")
    if (grouping.keep == "highest") != (projection.score is not None):
        raise InputError(
            "keep='highest' (--keep highest) needs score= (--score-field), and the other way round"
        )
    if grouping.keep == "smallest" and projection.id is None:
        raise InputError("keep='smallest' (--keep smallest) needs a column of ids (--id-field)")
    least = None
    if likeness.verify:
        if fingerprinter is None:
            raise InputError("verify (--verify) compares texts, and the corpus has fingerprints")
        fingerprinter.feature_sets([])  # an error comes before the work
        least = (
            USUAL_JACCARD
            if likeness.threshold is None
            else check_number(likeness.threshold, 0, 1, "threshold")
        )
    jaccard = likeness.jaccard(fingerprinter, grouping.radius)
    job = DedupJob(
        projection,
        grouping,
        unknown,
        fingerprinter,
        least,
        likeness.search,
        jaccard,
        likeness.radius is not None,
    )
    of_store = reference is not None and reference.corpus is None
    return job._replace(can_verify=not of_store and likeness.can_verify(fingerprinter, jaccard))


def columns_and_maker(
    how: Projection,
    text: Any,
    fingerprint: str | None,
    likeness: Likeness,
    fingerprinter: Fingerprinter[Any] | None,
    html: bool | str,
) -> tuple[Projection, Fingerprinter[Any] | None]:
    """Return the columns to read, and what makes fingerprints of their texts, if they have some.

    InputError for wrong ones.
    """
    columns = text
    if likeness.width is not None:
        how = replace(how, width=check_width(likeness.width))
    if fingerprinter is not None and likeness.method is not None:
        raise InputError("a fingerprinter is a method: leave method out", got=likeness.method)
    if text is not None and text is not False:
        fingerprinter = likeness.maker(text) if fingerprinter is None else fingerprinter
        if text is not True:
            fingerprinter, columns = maker_of_columns(fingerprinter, text)
    projection = projection_of(how, columns, fingerprint)
    if fingerprinter is not None:
        fingerprinter = of_pages(_checked_maker(fingerprinter, projection, likeness.width), html)
        projection = replace(projection, width=Width(fingerprinter.width))
    elif likeness.method is not None:
        raise InputError("method (--method) is for texts, and the corpus has fingerprints")
    elif extractor_of(html) is not None:
        raise InputError("html=True (--html) is for texts, and the corpus has fingerprints")
    return projection, fingerprinter


def _checked_maker(maker: Any, projection: Projection, width: int | None) -> Fingerprinter[Any]:
    """Return what makes the fingerprints of a column of texts, or of several.

    InputError if it cannot.
    """
    if not isinstance(maker, Fingerprinter) or maker.items not in ("texts", "rows"):
        raise InputError(
            f"fingerprinter must be one of texts, such as MinHash(), got {type(maker).__name__}"
        )
    if projection.text is None:
        raise InputError("a fingerprinter is for texts, and the corpus has fingerprints")
    if isinstance(projection.text, tuple) != (maker.items == "rows"):
        raise InputError(
            "Fields is for columns of texts: name them, as in text={'title': 4, 'text': 1}",
            got=projection.text,
        )
    if width not in (None, maker.width):
        message = f"fingerprinter: it makes {maker.width} bits, not width={width}: leave width out"
        raise InputError(message, expected=maker.width, got=width)
    return maker


def _like_the_store(
    store: Any, likeness: Likeness, text: Any, fingerprinter: Fingerprinter[Any] | None
) -> tuple[Likeness, Fingerprinter[Any] | None]:
    """Return what is not asked for as the store of a reference has it.

    Radius, width, and the fingerprinter of texts.
    """
    of_texts = text not in (None, False)
    own = (
        described_fingerprinter(store.fingerprinter)
        if of_texts and store.fingerprinter is not None
        else None
    )
    if (
        likeness.radius is None
        and likeness.threshold is None
        and (own is None or own.usual_radius != store.radius)
    ):
        likeness = likeness._replace(radius=store.radius)
    if not of_texts:
        return likeness._replace(
            width=store.width if likeness.width is None else likeness.width
        ), fingerprinter
    if (likeness.method, likeness.width, fingerprinter) == (None, None, None):
        fingerprinter = own
    return likeness, fingerprinter


def projection_of(
    how: Projection, text: str | tuple[str, ...] | bool | None, fingerprint: str | None
) -> Projection:
    """Return the columns to read.

    Some of texts, True where files are texts, or one of fingerprints.
    """
    if (text in (None, False)) == (fingerprint is None):
        raise InputError(
            "name either the column of texts (text=, --text-field) or the column of fingerprints "
            "(fingerprint=, "
            "--fingerprint-field); text=True (--text) makes a document of each file"
        )
    if check_signed(how.signed, how.width) and fingerprint is None:
        raise InputError("signed=True (--signed) is for a column of fingerprints")
    if check_flag(how.decimal, "decimal") and fingerprint is None:
        raise InputError("decimal=True (--decimal) is for a column of fingerprints")
    columns = None if text is True or isinstance(text, tuple) else text or None
    for what, name in {
        "text": columns,
        "fingerprint": fingerprint,
        "id": how.id,
        "score": how.score,
    }.items():
        if name is not None and not (isinstance(name, str) and name):
            raise InputError(f"{what} must be the name of a column, got {show(name)}", got=name)
    if text is True:
        if how.id is not None or how.score is not None:
            raise InputError("files that are texts have no columns: their ids are their paths")
        return replace(how, text=PATHS_TEXT, id=PATHS_ID)
    return replace(how, text=text or None, fingerprint=fingerprint)
