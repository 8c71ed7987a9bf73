"""The question of a deduplication: columns, the rule for near-duplicates, and the search."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import KW_ONLY, asdict, dataclass, field, fields, replace
from typing import Any

from fpstore.base.arguments import check_choice, check_flag, check_number, check_whole
from fpstore.base.keywords import keyword
from fpstore.base.width import WORD_BITS, Width
from fpstore.design.families import check_radius
from fpstore.errors import InputError, show
from fpstore.hashing.bands import Bands, plan_bands
from fpstore.hashing.base import USUAL_BITS, Fingerprinter
from fpstore.hashing.binomial import binomial_cdf
from fpstore.hashing.documents import DocumentFiles
from fpstore.hashing.exact import EXACT, ExactText, check_normalize
from fpstore.hashing.fields import check_fields, is_weighted
from fpstore.hashing.html import MainText
from fpstore.hashing.image import ImageHash, check_orientations
from fpstore.hashing.minhash import USUAL_JACCARD, USUAL_RECALL, least_jaccard
from fpstore.hashing.pictures import KEEP_PICTURES
from fpstore.hashing.plain_pages import AUTO, PlainPages
from fpstore.hashing.registry import fingerprinter_from_description
from fpstore.hashing.wrapper import can_have_bands, unwrap_minhash
from fpstore.io.keys import KEY_RULES
from fpstore.io.lines import LineRows
from fpstore.io.source import Projection, RowSource
from fpstore.jobs import GROUPINGS, KEEP_RULES, SEARCHES, UNKNOWN
from fpstore.jobs.annotations import Annotation
from fpstore.jobs.compared import ComparedColumns
from fpstore.jobs.excerpts import MAX_CHARACTERS
from fpstore.jobs.grouping import Grouping
from fpstore.jobs.reference import Reference
from fpstore.jobs.row_spec import RESOLVED, HashedRowsSpec, with_columns
from fpstore.jobs.text_sets import LOSSLESS_CONTAINMENT, NEVER, Rule
from fpstore.work.checkpoint import JobIdentity

EXACT_ROWS = 1 << 20  # up to which search='auto' is exact
# earlier texts within the radius of a text by chance, on average, up to which "auto" is exact
MAX_CHANCE = 0.001
BANDS_RECALL = 0.995
UNRELATED = 0.05  # similarity of unrelated texts, by a line of their page, or by phrases
DEDUP_METHOD = "minhash"  # the default
# options that plans do not have
ONE_PROCESS = ("excerpts_of", "annotate", "count_column", "most_removed")
_NEAR_OPTIONS = (  # which the method "exact" does not take
    "threshold",
    "contained",
    "lossless",
    "estimate",
    "radius",
    "group",
    "search",
    "width",
    "fingerprinter",
    "html",
)


@dataclass(frozen=True)
class DedupJob:
    """The columns of a deduplication, its fingerprinter, and its rule for duplicates.

    ``unknown`` says whether to keep, drop or refuse rows without a text, a fingerprint or an id,
    which are not compared. ``rule`` decides by the texts which rows go. None: fingerprints decide,
    by the radius and the groups of ``grouping``; then ``search`` is one of SEARCHES, and
    ``jaccard`` the similarity at which pairs are to be found, None without MinHash.
    ``near_store``: fingerprints are needed beside a rule, since a store has no texts.
    ``excerpts_of`` is how many characters of texts the list of removed rows has, None for none.
    ``source_field`` is the column of sources, and ``most_removed`` the largest share that goes of
    one. Rows are only compared inside of a value of the column ``within``.
    ``annotation`` has the new columns of the output, if there are any. The source has ``variants``
    of each fingerprint: rows are near if variants of them are.
    """

    projection: Projection
    grouping: Grouping
    unknown: str
    fingerprinter: Fingerprinter[Any] | None
    rule: Rule | None = None
    search: str = "exact"
    jaccard: float | None = None
    fixed_radius: bool = False
    bands: Bands | None = None
    near_store: bool = False
    excerpts_of: int | None = None
    source_field: str | None = None
    most_removed: float | None = None
    within: str | None = None
    annotation: Annotation | None = None
    variants: int = 1

    @classmethod
    def of_pictures(
        cls, fingerprinter: ImageHash, radius: int | None, group: str, keep: str, orientations: int
    ) -> DedupJob:
        """Return the job for `fpstore.hashing.pictures.PictureFiles`; InputError for a value."""
        check_choice(keep, KEEP_PICTURES, "keep")
        radius = fingerprinter.usual_radius if radius is None else radius
        check_radius(radius, fingerprinter.width)
        score = None if keep == "first" else "score"
        return cls(
            Projection(
                fingerprint="fingerprint", id="id", score=score, width=Width(fingerprinter.width)
            ),
            Grouping(radius, check_choice(group, GROUPINGS, "group"), "highest" if score else keep),
            "keep",
            None,
            fixed_radius=True,
            variants=check_orientations(orientations),
        )

    @property
    def is_exact(self) -> bool:
        """Whether only equal texts go."""
        return isinstance(self.fingerprinter, ExactText)

    @property
    def columns(self) -> ComparedColumns:
        """The columns of rows that the job compares."""
        return ComparedColumns(
            self.projection,
            self.fingerprinter,
            self.bands,
            makes_sets=self.rule is not None,
            makes_fingerprints=self.rule is None or self.near_store,
            refuses_unknown=self.unknown == "refuse",
            variants=self.variants,
        )

    @property
    def reference_columns(self) -> ComparedColumns:
        """The columns of the rows of another corpus, which stay."""
        labels = () if self.within is None else (self.within,)
        return self.columns._replace(
            projection=replace(self.projection, score=None, labels=labels),
            bands=None,
            makes_fingerprints=self.rule is None,
            refuses_unknown=False,
        )

    def plan_search(self, corpus: RowSource) -> DedupJob:
        """Return the job by :meth:`plan_for_rows` for the rows of a corpus."""
        return self.plan_for_rows(lambda: estimate_rows(corpus, self.projection))

    def plan_for_rows(self, rows: Callable[[], float]) -> DedupJob:
        """Return the job with its search by bands, if any, for a number of rows.

        For many rows, bands take less time. At a large radius, they keep texts apart that are near
        each other by chance alone. The radius leaves enough of the recall to the bands, unless it
        is fixed.
        """
        return self if self.rule is not None else self._with_bands(rows)

    def _with_bands(self, count: Callable[[], float]) -> DedupJob:
        minhash = unwrap_minhash(self.fingerprinter)
        auto = (
            self.search == "auto" and not self.fixed_radius and can_have_bands(self.fingerprinter)
        )
        auto = auto and ((rows := count()) > EXACT_ROWS or self.chance(rows) > MAX_CHANCE)
        if minhash is None or self.jaccard is None or not (auto or self.search == "bands"):
            return self
        bands = plan_bands(self.jaccard, BANDS_RECALL)
        if bands is None:
            if self.search == "auto":
                return self
            raise InputError(
                f"no bands find pairs of similarity {self.jaccard:.3g}: leave "
                f"{keyword('search', 'bands')} out"
            )
        if self.fixed_radius:
            return replace(self, bands=bands)
        radius = minhash.radius(self.jaccard, USUAL_RECALL / bands.recall(self.jaccard))
        return replace(self, bands=bands, grouping=self.grouping._replace(radius=radius))

    def chance(self, rows: float) -> float:
        """Return the mean number of earlier rows within the radius of a row by chance alone."""
        return (
            binomial_cdf(self.grouping.radius, self.projection.width.bits, 0.5)
            * max(rows - 1, 0)
            / 2
        )

    @property
    def unrelated_share(self) -> float:
        """The share of pairs of unrelated texts, of similarity UNRELATED, within the radius."""
        return binomial_cdf(self.grouping.radius, self.projection.width.bits, (1 - UNRELATED) / 2)

    def unrelated_matches(self, rows: float) -> float:
        """Return the mean number of earlier matches of a row, if all rows are unrelated."""
        shared = 1 if self.bands is None else self.bands.recall(UNRELATED)
        return shared * self.unrelated_share * max(rows - 1, 0) / 2

    @property
    def stored_radius(self) -> int:
        """The radius of a store of the rows: without the rows that bands add."""
        minhash = unwrap_minhash(self.fingerprinter)
        if minhash is None or self.jaccard is None or self.fixed_radius:
            return self.grouping.radius
        return minhash.radius(self.jaccard)

    @property
    def recall(self) -> float | None:
        """The share of the pairs of similarity ``jaccard`` that is found; None without MinHash."""
        minhash = unwrap_minhash(self.fingerprinter)
        if self.jaccard is None or minhash is None:
            return None
        shared = 1 if self.bands is None else self.bands.recall(self.jaccard)
        return shared * minhash.recall(self.jaccard, self.grouping.radius)

    def identity(self, corpus: RowSource, reference: Reference | None = None) -> JobIdentity:
        """Return the facts on which the duplicates of a corpus depend."""
        projection = {**asdict(self.projection), "width": self.projection.width.bits}
        description = (
            {} if self.fingerprinter is None else {"fingerprinter": self.fingerprinter.describe()}
        )
        files = {f"file {number}": state for number, state in enumerate(corpus.states(), 1)}
        arguments = {
            **projection,
            **self.grouping._asdict(),
            "unknown": self.unknown,
            "bands": self.bands,
        }
        reference_facts = {} if reference is None else reference.identity()
        facts: dict[str, Any] = {
            "job": "dedup",
            "encoding": corpus.encoding,
            "skip_bad": corpus.skip_bad,
            "rule": self.rule,
            "within": self.within,
        }
        if self.annotation is not None:
            facts["new columns"] = self.annotation._asdict()
        return {**facts, **arguments, **description, **files, **reference_facts}


def estimate_rows(corpus: RowSource, projection: Projection, bytes_total: int | None = None) -> int:
    """Return the number of rows of a corpus, estimated by the start of its largest file.

    ``bytes_total`` is the size of a larger corpus to which it belongs.
    """
    if isinstance(corpus, DocumentFiles):
        return len(corpus.paths)
    if corpus.rows is not None or corpus.bytes_total is None:
        return corpus.rows or 0
    total = corpus.bytes_total if bytes_total is None else bytes_total
    if isinstance(corpus, LineRows) and len(corpus.files) > 1:
        sizes = [file.size or 0 for file in corpus.files]
        corpus = corpus.single_file(sizes.index(max(sizes)))
    with closing(corpus.batches(projection)) as batches:  # type: ignore[type-var]  # they are generators
        first = next(batches, None)
    return 0 if first is None else round(len(first.flags) * total / max(corpus.bytes_done, 1))


@dataclass(frozen=True)
class DedupSpec(HashedRowsSpec):
    """A deduplication; None stands for a default that depends on other fields.

    Parameters
    ----------
    source, output : path-like or other
        As for :func:`fpstore.dedup`. Of a plan, files and folders, or their URIs.
    text, fingerprint, id, score, method, width, keep, threshold, contained, lossless : optional
        As for :func:`fpstore.dedup`.
    normalize, key, key_rule : optional
        As for :func:`fpstore.dedup`.
    estimate, radius, group, search : optional
        As for :func:`fpstore.dedup`.
    unknown, fingerprinter, decimal, signed, encoding, html, format : optional
        As for :func:`fpstore.dedup`.
    source_field, most_removed, within : optional
        As for :func:`fpstore.dedup`.
    against : Store, path, iterable of Stores and paths, or table, optional
        As for :func:`fpstore.dedup`. Of a plan, stores, which tasks open by their paths.
    removed : path-like, optional
        Of a plan: where :meth:`fpstore.plans.Plan.finish` lists the removed rows, as .tsv, .csv,
        .jsonl or .parquet, with the columns of ``fpstore dedup --removed``.
    excerpts_of, annotate, count_column : optional
        As for :func:`fpstore.dedup`; not of a plan.
    """

    source: Any = field(metadata=RESOLVED)
    output: Any = field(default=None, metadata=RESOLVED)
    _: KW_ONLY
    score: str | None = None
    threshold: float | None = None
    contained: float | None = None
    lossless: bool = False
    html: bool | str = AUTO
    normalize: Any = ()
    key: str | None = None
    key_rule: str = KEY_RULES[0]
    estimate: bool | None = None
    radius: int | None = None
    keep: str | None = None
    group: str | None = None
    unknown: str = "keep"
    search: str = "auto"
    source_field: str | None = None
    most_removed: float | None = None
    within: str | None = None
    against: Any = field(default=None, metadata=RESOLVED)
    removed: Any = field(default=None, metadata=RESOLVED)
    excerpts_of: int | None = None
    annotate: bool = False
    count_column: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep is not None:
            check_choice(self.keep, KEEP_RULES, "keep")
        check_choice(self.unknown, UNKNOWN, "unknown")
        check_choice(self.search, SEARCHES, "search")
        if self.group is not None:
            check_choice(self.group, GROUPINGS, "group")
        check_choice(self.key_rule, KEY_RULES, "key_rule")
        object.__setattr__(self, "normalize", check_normalize(self.normalize))
        for name in ("threshold", "contained", "most_removed"):
            if getattr(self, name) is not None:
                check_number(getattr(self, name), 0, 1, name)
        check_flag(self.lossless, "lossless")
        Annotation.choose(self.annotate, self.count_column)  # an error comes before the work
        if self.excerpts_of is not None:
            check_whole(self.excerpts_of, 1, MAX_CHARACTERS, "excerpts_of")
        if self.estimate is not None:
            check_flag(self.estimate, "estimate")
        for name in ("source_field", "within"):
            column = getattr(self, name)
            if column is not None and not (isinstance(column, str) and column):
                raise InputError(
                    f"must be the name of a column, got {show(column)}", got=column, argument=name
                )
        if self.most_removed is not None and self.source_field is None:
            raise InputError(
                f"{keyword('most_removed')} is a share of each source: name the column of sources "
                f"with {keyword('source_field')}"
            )
        if self.lossless and (self.threshold, self.contained) != (None, None):
            raise InputError(
                f"{keyword('lossless')} is the rule {keyword('contained', LOSSLESS_CONTAINMENT)}: "
                f"leave {keyword('threshold')} and {keyword('contained')} out"
            )

    def check_for_plan(self, reference: Reference | None) -> None:
        """Raise InputError for what a plan does not do."""
        if self.text is True:
            raise InputError(
                f"{keyword('text', True)}: a plan is for rows of files, not for files that are "
                "texts: run one process"
            )
        for name in ONE_PROCESS:
            value = getattr(self, name)
            if value is not None and value is not False:  # 0 is a bound
                raise InputError(
                    f"{keyword(name)} is not for plans: leave it out, or run one process"
                )
        if reference is not None and (reference.corpus is not None or not reference.stores):
            raise InputError(
                f"{keyword('against')}: a plan compares with a store: fpstore build makes one of "
                "files"
            )

    def rule(self, fingerprinter: Fingerprinter[Any] | None) -> Rule | None:
        """Return the rule by which texts decide; None if fingerprints do.

        They do if one of their options is named, or if the features of their method are not those
        of near-duplicates.
        """
        if isinstance(fingerprinter, ExactText):
            return Rule(NEVER, NEVER)
        of_estimates = [
            name
            for name, is_set in (
                ("radius", self.radius is not None),
                ("group", self.group is not None),
                ("search", self.search != "auto"),
                ("keep", self.keep == "central"),
                ("estimate", self.estimate is True),
            )
            if is_set
        ]
        has_features = unwrap_minhash(fingerprinter) is not None or (
            self.estimate is False and fingerprinter is not None
        )
        of_rules = [
            name
            for name, is_set in (
                ("contained", self.contained is not None),
                ("lossless", self.lossless),
                ("key", self.key is not None),
            )
            if is_set
        ]
        if has_features and not of_estimates:
            return (
                Rule(LOSSLESS_CONTAINMENT, NEVER)
                if self.lossless
                else Rule.choose(self.contained, self.threshold)
            )
        if self.estimate is False and of_estimates:
            raise InputError(
                f"{keyword(of_estimates[0])} is for estimates: leave {keyword('estimate', False)} "
                "out"
            )
        texts = (
            f"leave {keyword(of_estimates[0])} out"
            if of_estimates
            else "the corpus has fingerprints"
            if fingerprinter is None
            else f"leave the method {fingerprinter.name} out"
        )
        if of_rules or self.keep == "longest" or self.estimate is False:
            name = of_rules[0] if of_rules else "keep" if self.keep == "longest" else "estimate"
            raise InputError(
                f"{keyword(name, self.keep if name == 'keep' else getattr(self, name))} compares "
                f"texts: {texts}"
            )
        return None

    def hashed_columns(
        self, projection: Projection, usual_method: str
    ) -> tuple[Projection, Fingerprinter[Any] | None]:
        """Return the columns and the fingerprinter of their texts, also of the method "exact"."""
        if self.key is None and self.key_rule != KEY_RULES[0]:
            raise InputError(f"{keyword('key_rule')} is for {keyword('key')}: name the column")
        if self.method != EXACT:
            if self.normalize:
                raise InputError(f"{keyword('normalize')} is for {keyword('method', EXACT)}")
            spec = replace(self, html=False) if self.html == AUTO else self
            return super(DedupSpec, spec).hashed_columns(projection, usual_method)
        self._check_exact()
        if is_weighted(self.text):
            raise InputError(
                f"{keyword('method', EXACT)} compares texts as wholes: name columns without weights"
            )
        has_columns = not any(self.text is absent for absent in (None, False, True))
        columns = tuple(check_fields(self.text)) if has_columns else ()
        text = self.text if not columns else columns[0] if len(columns) == 1 else columns
        projection = with_columns(projection, text, self.fingerprint)
        if projection.text is None:
            raise InputError(f"{keyword('method')} is for texts, and the corpus has fingerprints")
        return projection, ExactText(self.normalize, columns if len(columns) > 1 else None)

    def _check_exact(self) -> None:
        """Raise InputError for an option that does not go with the method "exact"."""
        usual = {field.name: field.default for field in fields(self)}
        for name in _NEAR_OPTIONS:
            if getattr(self, name) not in (usual[name], False):
                raise InputError(
                    f"{keyword(name, getattr(self, name))} is for near-duplicates: leave it or "
                    f"{keyword('method', EXACT)} out"
                )

    def grouping(self, fingerprinter: Fingerprinter[Any] | None, width: Width) -> Grouping:
        """Return the radius and the groups; InputError for a wrong field."""
        minhash = unwrap_minhash(fingerprinter)
        if self.threshold is not None:
            if minhash is None:
                raise InputError(
                    f"{keyword('threshold')} is a Jaccard similarity, for texts and MinHash: give "
                    f"{keyword('radius')}"
                )
            if self.radius is not None:
                raise InputError(
                    f"give {keyword('threshold')} or {keyword('radius')}, not both: one follows "
                    "from the other"
                )
        if self.radius is not None:
            radius = self.radius
        elif self.threshold is not None and minhash is not None:
            radius = minhash.radius(self.threshold)
        else:
            radius = (
                USUAL_BITS * width.bits // WORD_BITS
                if fingerprinter is None
                else fingerprinter.usual_radius
            )
        usual = "connected" if fingerprinter is None else fingerprinter.usual_group
        check_radius(radius, width.bits)
        keep = self.keep or ("first" if self.score is None else "highest")
        return Grouping(radius, usual if self.group is None else self.group, keep)

    def jaccard(self, fingerprinter: Fingerprinter[Any] | None, radius: int) -> float | None:
        """Return the similarity at which USUAL_RECALL of the pairs are found.

        None without MinHash, which bands need.
        """
        minhash = unwrap_minhash(fingerprinter)
        if self.search == "bands" and not can_have_bands(fingerprinter):
            raise InputError(
                f"{keyword('search', 'bands')} is for texts, and MinHash of 64 bits or more"
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

    def job(self, reference: Reference | None = None) -> DedupJob:
        """Return the deduplication with its columns, fingerprinter, radius and groups.

        The first store of the references gives the defaults of radius, width and fingerprinter.

        Raises
        ------
        InputError
            A field is wrong, or does not go with another one.
        """
        if reference is not None and reference.stores:
            store = reference.stores[0]
            return self._with_store_defaults(store)._job(near_store=True, store_radius=store.radius)
        return self._job(near_store=reference is not None and reference.has_stores)

    def _job(self, near_store: bool, store_radius: int | None = None) -> DedupJob:
        projection, fingerprinter = self.hashed_columns(
            Projection(
                id=self.id,
                score=self.score,
                key=self.key,
                key_rule=self.key_rule,
                labels=tuple(
                    name
                    for name in dict.fromkeys((self.source_field, self.within))
                    if name is not None
                ),
                width=Width(WORD_BITS),
                decimal=self.decimal,
                signed=self.signed,
            ),
            DEDUP_METHOD,
        )
        if self.threshold is not None and fingerprinter is None:
            raise InputError(
                f"{keyword('threshold')} is a share of the pieces of texts, and the corpus has "
                f"fingerprints: give {keyword('radius')}"
            )
        rule = self.rule(fingerprinter)
        grouping = self.grouping(fingerprinter, projection.width)
        if store_radius is not None and self.threshold is None and self.radius is None:
            grouping = grouping._replace(radius=store_radius)
        if rule is not None and self.keep is None and self.score is None:
            grouping = grouping._replace(keep="longest")
        if (grouping.keep == "highest") != (projection.score is not None):
            raise InputError(
                f"{keyword('keep', 'highest')} needs {keyword('score')}, and {keyword('score')} "
                f"needs {keyword('keep', 'highest')}"
            )
        if grouping.keep == "smallest" and projection.id is None:
            raise InputError(
                f"{keyword('keep', 'smallest')} needs a column of ids ({keyword('id')})"
            )
        if self.excerpts_of is not None and fingerprinter is None:
            raise InputError(
                f"{keyword('excerpts_of')} shows texts, and the corpus has fingerprints"
            )
        if self.method == EXACT and near_store:
            raise InputError(
                f"{keyword('method', EXACT)} compares texts, which a store does not have: give "
                f"{keyword('against')} files"
            )
        if self.method == EXACT and grouping.keep == "central":
            raise InputError(f"{keyword('keep', 'central')} is for fingerprints: name another rule")
        if self.within is not None and near_store:
            raise InputError(
                f"{keyword('within')}: a store ({keyword('against')}) has no such column: compare "
                "with files"
            )
        if self.within is not None and rule is None:
            raise InputError(
                f"{keyword('within')} compares texts, and here fingerprints decide: leave "
                f"{keyword('estimate', True)}, {keyword('radius')} and other options of estimates "
                "out"
            )
        if rule is not None and fingerprinter is not None:
            fingerprinter.feature_sets([])  # an error comes before the work
        jaccard = self.jaccard(fingerprinter, grouping.radius)
        # a store takes fingerprints, which texts without words do not have
        key_suffices = self.key is not None and self.unknown == "keep" and not near_store
        projection = replace(projection, key_suffices=key_suffices)
        if self._takes_pages(fingerprinter, near_store):
            assert fingerprinter is not None
            fingerprinter = PlainPages(fingerprinter)
        return DedupJob(
            projection,
            grouping,
            self.unknown,
            fingerprinter,
            rule=rule,
            search=self.search,
            jaccard=jaccard,
            fixed_radius=self.radius is not None or store_radius == grouping.radius,
            near_store=near_store,
            excerpts_of=self.excerpts_of,
            source_field=self.source_field,
            most_removed=self.most_removed,
            within=self.within,
            annotation=Annotation.choose(self.annotate, self.count_column),
        )

    def _takes_pages(self, fingerprinter: Fingerprinter[Any] | None, near_store: bool) -> bool:
        """Whether pages among texts lose their tags; a store says itself how pages are hashed."""
        return (
            self.html == AUTO
            and fingerprinter is not None
            and not isinstance(fingerprinter, MainText | PlainPages | ExactText)
            and not near_store
        )

    def _with_store_defaults(self, store: Any) -> DedupSpec:
        """Return the spec with the width and the fingerprinter of a store, if it has none."""
        has_texts = self.text not in (None, False)
        fingerprinter = (
            fingerprinter_from_description(store.fingerprinter)
            if has_texts and store.fingerprinter is not None
            else None
        )
        if not has_texts:
            return replace(self, width=store.width if self.width is None else self.width)
        if (self.method, self.width, self.fingerprinter) == (None, None, None):
            return replace(self, fingerprinter=fingerprinter)
        return self
