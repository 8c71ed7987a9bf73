"""A calibration: from a corpus, or from folders of pictures, to a setting and a radius."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from fpstore.base.aliases import Progress
from fpstore.base.arguments import check_progress, check_share, check_whole
from fpstore.base.resources import Resources, parse_threads
from fpstore.calibration.advice import Suggestion, Wish, suggestions
from fpstore.calibration.image_changes import IMAGE_CHANGES, ImageChange, parse_image_change
from fpstore.calibration.image_evidence import IMAGE_BOUND, ImageWork, LookedAt, image_sample, look_at
from fpstore.calibration.measures import (
    BOUND,
    Distances,
    Measured,
    SampledPairs,
    each_measured,
    evidence_of_changes,
    evidence_of_labels,
)
from fpstore.calibration.perturbations import CHANGES, TextChange, parse_change
from fpstore.calibration.samples import labelled_ids, labelled_texts, sample_of
from fpstore.calibration.settings import Setting, parse_setting, usual_settings
from fpstore.errors import InputError, show
from fpstore.hashing import Fingerprinter, ImageHash, SimHash
from fpstore.hashing.corpora import corpus_paths, open_corpus
from fpstore.hashing.documents import Notice, Walk
from fpstore.hashing.html import extractor_of
from fpstore.io.source import Projection, RowSource
from fpstore.jobs.dedup import projection_of

SAMPLE, COPIES, MOST_SAMPLE = 1500, 300, 10_000


class Sampling(NamedTuple):
    """How much is looked at: see :func:`calibrate`."""

    sample: int = SAMPLE
    copies: int = COPIES
    resemblance: float | None = None
    seed: int = 0
    html: bool | str = False

    def bound(self, usual: float) -> float:
        """Return the least resemblance of two items that are no strangers."""
        return usual if self.resemblance is None else self.resemblance

    def checked(self) -> Sampling:
        """Return the same; InputError for a value out of range."""
        if (check_share(self.resemblance, "resemblance") or 0) > 1:
            raise InputError(f"resemblance must be a share up to 1, such as 0.5, got {show(self.resemblance)}")
        return Sampling(
            check_whole(self.sample, 2, MOST_SAMPLE, "sample"),
            check_whole(self.copies, 1, MOST_SAMPLE, "copies"),
            self.resemblance,
            check_whole(self.seed, 0, 2**64 - 1, "seed"),
            extractor_of(self.html) or False,
        )


class Facts(NamedTuple):
    """The facts about the corpus of a calibration.

    Attributes
    ----------
    documents : int
        The documents of the corpus that are not empty. Of pictures, those that their beginnings show to be pictures, without the
        ones of the sample that are blank or broken.
    empty : int
        Those that are null, or of white space only; blank pictures of the sample.
    shortened : int
        Documents of the sample of which only the first 262,144 characters were looked at; pictures of it with more than 512
        pixels on a side, which were made smaller.
    items : {"documents", "pictures"}
    """

    documents: int
    empty: int
    shortened: int
    items: Literal["documents", "pictures"] = "documents"


class Calibration(NamedTuple):
    """How settings find near-duplicates, and a radius for each.

    Attributes
    ----------
    facts : Facts
    wish : Wish
    evidence : SampledPairs
        The texts or pictures, and which pairs are near-duplicates.
    suggestions : list of Suggestion
        One for each setting, the best first.
    """

    facts: Facts
    wish: Wish
    evidence: SampledPairs
    suggestions: list[Suggestion]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values, as ``fpstore calibrate --json`` prints it."""
        return {
            **self.facts._asdict(),
            "sample": self.evidence.documents,
            "left_out": self.evidence.alike,
            "resembling_pairs": self.evidence.resembling.shape[1],
            "for": {"documents": self.wish.documents, "recall": self.wish.recall, "false_pairs": self.wish.most_false},
            "settings": list(map(_record, self.suggestions)),
        }


def _record(one: Suggestion) -> dict[str, Any]:
    found = one.measured
    price = None
    if one.plan is not None:
        price = {
            "design": one.plan.name,
            "bytes_per_fingerprint": one.plan.bytes_per_fingerprint,
            "microseconds": one.plan.microseconds,
        }
    return {
        "setting": found.setting.name,
        "fingerprinter": found.setting.fingerprinter.describe(),
        "width": found.width,
        "radius": one.radius,
        "recall": one.recall.value,
        "recall_interval": one.recall.interval,
        "false_pairs": one.false_pairs,
        "false_pairs_upper": one.most_false,
        "false_pairs_observed": one.observed,
        "plan": price,
        "strangers": _by_distance(found.strangers),
        "different": None if found.different is None else _by_distance(found.different),
        "duplicates": {name: _by_distance(each) for name, each in found.duplicates.items()},
    }


def _by_distance(found: Distances) -> dict[str, Any]:
    return {"pairs": found.within(len(found.counts)).total, "no_fingerprint": found.missed, "by_distance": found.counts.tolist()}


def calibrate(
    source: Any = None,
    *,
    text: str | bool | None = None,
    image: bool = False,
    pairs: Any = None,
    id: str | None = None,  # noqa: A002 (as in fpstore.dedup)
    encoding: str | None = None,
    html: bool | str = False,
    settings: Iterable[str | Fingerprinter[Any]] | None = None,
    changes: Iterable[str] | None = None,
    documents: int | None = None,
    recall: float | None = None,
    false_pairs: float | None = None,
    sample: int = SAMPLE,
    copies: int = COPIES,
    resemblance: float | None = None,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress | None = None,
    on_notice: Notice | None = None,
) -> Calibration:
    """Measure which fingerprint and which radius find the near-duplicates of a corpus, or of folders of pictures.

    A random sample of the documents is taken, and of each family of near-duplicates in it one document is kept: those are
    strangers. Copies of some are changed in known ways: near-duplicates. For each setting, the distances of both are counted.

    Parameters
    ----------
    source : path, paths, or table, optional
        As for :func:`fpstore.dedup`. May be left out if the pairs hold texts. For pictures files and folders.
    text : str or True, optional
        The column of the texts; True if each file is a text.
    image : bool
        The files are pictures. Those of more than 512 pixels on a side are made smaller, and copies are made of that.
    pairs : path or table, optional
        Pairs with labels, instead of changed copies. With `id` its columns are ``a``, ``b`` (ids of documents) and ``label``;
        without, ``text_a``, ``text_b`` and ``label``. The label is 1 for near-duplicates, 0 for others.
    id : str, optional
        The column of the ids that the pairs name. Files that are texts have their paths as ids.
    encoding, html
        How the texts are read, as for :func:`fpstore.dedup`. Copies are made of the main texts of pages.
    settings : iterable of str or Fingerprinter, optional
        Parameters of `SimHash`, such as ``"shingle=words,size=2"``, for pictures of `ImageHash`, such as
        ``"method=difference,width=256"``; or fingerprinters. By default some usual ones.
    changes : iterable of str, optional
        Kinds of changes with amounts, such as ``"words=2"`` or ``"typos=0.01"``, for pictures ``"resize=0.5"`` or ``"jpeg=20"``;
        or their names as tables show them, such as ``"resize 50%"``.
    documents : int, optional
        The number of documents for which to choose; by default those of the corpus.
    recall : float, optional
        The share of near-duplicates to find: then the fewest false pairs are best.
    false_pairs : float, optional
        The most pairs of strangers within the radius. By default one for each hundred documents, if no recall is wanted.
    sample : int
        The most documents that are looked at, 2 to 10,000. All their pairs are compared: 1,500 have 1.1 million.
    copies : int
        The most copies for each kind of change.
    resemblance : float, optional
        Documents with this share of shingles in common, or more, are of one family; by default 0.5. For pictures the correlation
        of their brightnesses, by default 0.9.
    seed : int
        The same seed gives the same sample and the same copies, on every machine; of pictures, with the same version of Pillow.
    threads : int, optional
        By default one per processor. The result does not depend on it.
    progress : callable, optional
        Called as ``progress(phase, done, total)``.
    on_notice : callable, optional
        Called with the path of each file that is left out, and the reason, as by `DocumentReader` and `ImageReader`.

    Returns
    -------
    Calibration

    Raises
    ------
    InputError
        There are fewer than two documents with text or two pictures, no stranger, no near-duplicate, or an argument is wrong.
    MissingExtraError
        A package for pictures is not installed.
    StorageError
        A file cannot be read.

    Notes
    -----
    Resemblance is that of A. Broder, *On the resemblance and containment of documents*, SEQUENCES 1997; of pictures the
    normalized cross-correlation (J. P. Lewis, Vision Interface 1995) at 32 x 32. Intervals are those of E. B. Wilson, JASA 22
    (1927), which take the pairs for independent; those of strangers are not quite.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from fpstore.calibration import calibrate
    >>> texts = [f"Letter {i}: " + " ".join(f"word{i * 31 + j * j % 97}" for j in range(60)) for i in range(40)]
    >>> found = calibrate(pa.table({"text": texts}), text="text", settings=["size=1", "size=3"], changes=["words=1"], threads=1)
    >>> best = found.suggestions[0]
    >>> best.measured.setting.name, best.radius, best.recall
    ('size=1', 8, Rate(found=40, total=40))
    """
    check_progress(progress)
    wanted = request_of(
        text=text, image=image, pairs=pairs, id=id, html=html, settings=settings, changes=changes, documents=documents,
        recall=recall, false_pairs=false_pairs, sample=sample, copies=copies, resemblance=resemblance, seed=seed,
        with_source=source is not None,
    )  # fmt: skip
    corpus: RowSource | Walk | None = None
    if image:
        corpus = Walk(corpus_paths(source), None, True, False, None)
    elif source is not None:
        corpus = open_corpus(source, text is True, None, on_notice, encoding, bool(html))
    return calibrated(wanted, corpus, Resources(0, parse_threads(threads), progress), on_notice)


class Request(NamedTuple):
    """What a calibration is asked for: see :func:`calibrate`."""

    settings: list[Setting]
    changes: Sequence[TextChange] | Sequence[ImageChange]
    amounts: Sampling
    wish: Wish
    columns: Projection | None
    pairs: Any


def request_of(
    *,
    text: Any = None,
    image: bool = False,
    pairs: Any = None,
    id: str | None = None,  # noqa: A002
    html: bool | str = False,
    settings: Iterable[str | Fingerprinter[Any]] | None = None,
    changes: Iterable[str] | None = None,
    documents: int | None = None,
    recall: float | None = None,
    false_pairs: float | None = None,
    with_source: bool = True,
    **amounts: Any,
) -> Request:
    """Return what a calibration is asked for; InputError for a wrong argument of :func:`calibrate`."""
    checked = Sampling(html=html, **amounts).checked()
    if documents is not None:
        check_whole(documents, 2, 2**64, "documents")
    wish = Wish(0 if documents is None else documents, recall, false_pairs).checked()
    for what, given in {"settings": settings, "changes": changes}.items():
        if isinstance(given, str):
            raise InputError(f"{what} must be a list, got one str: wrap {show(given)} in a list", got=given)
    made = [_setting(one, image) for one in (usual_settings(image) if settings is None else settings)]
    if not made:
        raise InputError("no setting is given: leave them out to compare the usual ones")
    if pairs is not None and changes is not None:
        raise InputError("changes are made in copies of documents: leave them out with pairs, or leave out the pairs")
    if html and (pairs is not None or image):
        raise InputError("html=True (--html) is for documents of which copies are made: leave it out with pairs and pictures")
    if isinstance(text, tuple | dict):
        raise InputError("a calibration looks at one column of texts: name the one that tells most", got=text)
    ways: Any = IMAGE_CHANGES if image else CHANGES
    if changes is not None:
        ways = [*map(parse_image_change if image else parse_change, changes)]
    if image and (not with_source or any(value is not None for value in (text, pairs, id))):
        raise InputError("pictures are files and folders: give these alone, without text=, pairs= and id=")
    if not with_source and pairs is None:
        raise InputError("there is nothing to measure: give a corpus, or pairs with labels")
    if with_source and not image and not text:
        raise InputError(
            "say what is measured: the column of texts (text=, --text-field), files that are texts (text=True, --text), "
            "or pictures (image=True, --image)"
        )
    columns = projection_of(Projection(id=id), text, None) if with_source and not image else None
    return Request(made, ways, checked, wish, columns, pairs)


def _setting(one: object, image: bool) -> Setting:
    wanted, kind = ("pictures", ImageHash) if image else ("texts", SimHash)
    if isinstance(one, str):
        return parse_setting(one, kind)
    if isinstance(one, Fingerprinter) and one.items == wanted:
        return Setting(f"{one.name} {', '.join(f'{key}={value}' for key, value in one.parameters.items())}".strip(), one)
    example = "method=difference,width=256" if image else "shingle=words,size=2"
    raise InputError(f"a setting is a str such as '{example}', or a fingerprinter of {wanted}: got {show(one)}", got=one)


def calibrated(wanted: Request, source: RowSource | Walk | None, resources: Resources, on_notice: Notice | None) -> Calibration:
    """Return the calibration that is asked for, of a corpus, of pictures, or of pairs with texts alone."""
    amounts = wanted.amounts
    found: Iterable[Measured]
    if isinstance(source, Walk):
        facts, looked_at = from_images(wanted, source, resources, on_notice)
        evidence, found = looked_at.evidence, looked_at.each_measured(wanted.settings)
    else:
        if wanted.pairs is not None:
            facts, evidence = _from_pairs(wanted, source)
        else:
            assert source is not None
            assert wanted.columns is not None
            sample = sample_of(source, wanted.columns, amounts.sample, amounts.seed, resources.progress, html=amounts.html)
            facts = Facts(sample.documents, sample.empty, sample.shortened)
            changes: Any = wanted.changes
            evidence = evidence_of_changes(sample, changes, amounts.copies, amounts.seed, amounts.bound(BOUND), resources)
        found = each_measured(evidence, wanted.settings, resources)
    each = list(found)
    wish = wanted.wish if wanted.wish.documents else wanted.wish._replace(documents=max(facts.documents, 2))
    return Calibration(facts, wish, evidence, suggestions(each, wish))


def from_images(wanted: Request, walk: Walk, resources: Resources, on_notice: Notice | None) -> tuple[Facts, LookedAt]:
    """Return what a sample of pictures tells, with copies that are changed."""
    amounts, changes = wanted.amounts, wanted.changes
    work = ImageWork(wanted.settings, changes, amounts.copies, amounts.seed)  # type: ignore[arg-type]
    sample = image_sample(walk, amounts.sample, amounts.seed, on_notice, resources)
    found = look_at(sample, work, amounts.bound(IMAGE_BOUND), on_notice, resources)
    return Facts(sample.pictures - found.blank - found.broken, found.blank, found.shrunk, "pictures"), found


def _from_pairs(wanted: Request, corpus: RowSource | None) -> tuple[Facts, SampledPairs]:
    """Return what pairs with labels tell: of texts, or of ids of the documents of a corpus."""
    pairs, columns = open_corpus(wanted.pairs, texts=False), wanted.columns
    if corpus is None or columns is None:
        found = labelled_texts(pairs)
    elif columns.id is None:
        raise InputError("pairs of ids need the column of the ids of the documents (id=, --id-field)")
    else:
        found = labelled_ids(pairs, corpus, columns)
    return Facts(found.documents, found.empty, found.shortened), evidence_of_labels(found, wanted.amounts.bound(BOUND))
