"""A calibration: from a corpus, or from folders of pictures, to a setting and a radius."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fpstore.base.aliases import Progress
from fpstore.base.arguments import (
    check_progress,
)
from fpstore.base.keywords import keyword
from fpstore.base.resources import Resources, parse_threads
from fpstore.calibration.measures import Evidence, Measurement, Rate, hash_items
from fpstore.calibration.pictures import read_pictures
from fpstore.calibration.settings import COPIES, GROUP, MOST_WRONG, SAMPLE, Options
from fpstore.calibration.texts import (
    WORDS,
    Removal,
    changed_copies,
    read_documents,
    shingle_sets,
)
from fpstore.errors import InputError
from fpstore.hashing import Fingerprinter
from fpstore.hashing.base import Hashed
from fpstore.hashing.corpora import corpus_paths, open_corpus
from fpstore.hashing.documents import Notice, Walk
from fpstore.hashing.minhash import MinHash, least_jaccard
from fpstore.hashing.page_text import check_extractor
from fpstore.io.source import Projection, RowSource
from fpstore.jobs.dedup_job import DEDUP_METHOD
from fpstore.jobs.row_spec import with_columns

FALSE_PAIRS = 0.01  # pairs of strangers within a radius, for each document


@dataclass(frozen=True)
class Suggestion:
    """A radius for a setting, and the pairs that it finds and removes.

    Attributes
    ----------
    measured : Measurement
        The setting, and the distances of copies from their originals and of strangers.
    radius : int or None
        None if strangers are within every radius.
    removed : Rate or None
        The share of the grouped documents that `dedup` removes; None for pictures.
    wrong : Rate or None
        The share of the removed documents that are unlike the kept ones; None for pictures.
    fits : bool
        Whether there is a radius, and few enough documents are removed wrongly.
    """

    measured: Measurement
    radius: int | None
    removed: Rate | None = None
    wrong: Rate | None = None
    fits: bool = False

    @property
    def recall(self) -> Rate:
        """The share of copies within the radius."""
        return self.measured.all_copies.within(self.radius)

    @property
    def strangers(self) -> Rate:
        """The share of pairs of strangers within the radius."""
        return self.measured.strangers.within(self.radius)

    @property
    def threshold(self) -> float | None:
        """The Jaccard similarity at the radius, with MinHash: the ``threshold`` of `dedup`."""
        maker = self.measured.setting.fingerprinter
        if self.radius is None or not isinstance(maker, MinHash):
            return None
        return self.measured.setting.threshold or least_jaccard(maker, self.radius)

    def to_dict(self) -> dict[str, Any]:
        """Return the suggestion as JSON values."""
        setting = self.measured.setting
        rates = {
            name: None
            if rate is None
            else {"count": rate.count, "total": rate.total, "interval": rate.interval}
            for name, rate in (
                ("recall", self.recall),
                ("strangers", self.strangers),
                ("removed", self.removed),
                ("wrong", self.wrong),
            )
        }
        kinds = {**self.measured.copies, "strangers": self.measured.strangers}
        return {
            "setting": setting.name,
            "fingerprinter": setting.fingerprinter.describe(),
            "width": self.measured.width,
            "radius": self.radius,
            "threshold": self.threshold,
            "fits": self.fits,
            **rates,
            "by_distance": {name: distances.counts.tolist() for name, distances in kinds.items()},
            "no_fingerprint": {name: distances.missed for name, distances in kinds.items()},
        }


@dataclass(frozen=True)
class Calibration:
    """The suggestions of a calibration, a radius for each setting.

    Attributes
    ----------
    items : {"documents", "pictures"}
    documents, empty : int
        The documents of the corpus with and without a text; for pictures, all pictures, and the
        blank ones of the sample.
    grouped : int or None
        The documents that are grouped as by `dedup`; None for pictures.
    evidence : Evidence
        The originals and their changed copies.
    most_wrong, group
        The arguments of :func:`calibrate`.
    suggestions : list of Suggestion
        One for each setting, the best first.
    """

    items: str
    documents: int
    empty: int
    grouped: int | None
    evidence: Evidence
    most_wrong: float
    group: str
    suggestions: list[Suggestion]

    def to_dict(self) -> dict[str, Any]:
        """Return the calibration as JSON values, as ``fpstore calibrate --json`` prints it."""
        text_fields = {"grouped": self.grouped, "most_wrong": self.most_wrong, "group": self.group}
        return {
            "items": self.items,
            "documents": self.documents,
            "empty": self.empty,
            "originals": self.evidence.originals,
            "left_out": self.evidence.alike,
            **({} if self.grouped is None else text_fields),
            "settings": [suggestion.to_dict() for suggestion in self.suggestions],
        }


def calibrate(
    source: Any,
    *,
    text: str | bool | None = None,
    image: bool = False,
    format: str | None = None,
    encoding: str | None = None,
    html: bool | str = False,
    settings: Iterable[str | Fingerprinter[Any]] | None = None,
    changes: Iterable[str] | None = None,
    most_wrong: float = MOST_WRONG,
    group: str = GROUP,
    sample: int = SAMPLE,
    copies: int = COPIES,
    resemblance: float | None = None,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress | None = None,
    on_notice: Notice | None = None,
) -> Calibration:
    """Choose a fingerprint and a radius for a corpus, or for folders of pictures.

    One document of each family of near-duplicates in a random sample is a stranger to the others.
    Changed copies of some of them are near-duplicates. For each setting, the distances of both are
    counted, and the documents that :func:`fpstore.dedup` removes, rightly and wrongly.

    Parameters
    ----------
    source : path, paths, or table
        As for :func:`fpstore.dedup`. For pictures files and folders.
    text : str or True, optional
        The column of the texts; True if each file is a text.
    image : bool
        The files are pictures. Pictures of more than 512 pixels on a side are made smaller before
        they are copied.
    format, encoding, html
        How the texts are read, as for :func:`fpstore.dedup`. Copies are made of the main texts of
        pages.
    settings : iterable of str or Fingerprinter, optional
        Parameters of `SimHash`, such as ``"shingle=words,size=2"``, or of `MinHash`, such as
        ``"method=minhash,size=2"``; for pictures of `ImageHash`, such as
        ``"method=difference,width=256"``; or fingerprinters. ``"method=minhash,threshold=0.7"`` and
        ``"size=3,width=256,radius=54"`` are measured at this radius only. By default some usual
        ones.
    changes : iterable of str, optional
        Kinds of changes with amounts, such as ``"words=2"`` or ``"typos=0.01"``, for pictures
        ``"resize=0.5"`` or ``"jpeg=20"``; or their names as tables show them, such as ``"resize
        50%"``.
    most_wrong : float
        The greatest share of the removed documents that may be removed wrongly: documents that
        share less than half of their shingles of three words with the kept document, or less than
        `resemblance`. Not for pictures.
    group : {"greedy", "connected"}
        How `dedup` groups near-duplicates.
    sample : int
        The most documents whose distances are measured, 2 to 10,000. All their pairs are compared:
        1,500 have 1.1 million. Up to 50,000 texts, with 32 million characters, are grouped to count
        what is removed.
    copies : int
        The most copies for each kind of change.
    resemblance : float, optional
        Documents with this share of shingles of five characters in common, or more, are of one
        family; by default 0.5. For pictures the correlation of their brightnesses, by default 0.9.
    seed : int
        The same seed gives the same sample and the same copies, on every machine; of pictures, with
        the same version of Pillow.
    threads : int, optional
        By default one per processor. The result does not depend on it.
    progress : callable, optional
        Called as ``progress(phase, done, total)``.
    on_notice : callable, optional
        Called with the path of each file that is left out, and the reason, as by `DocumentReader`
        and `ImageReader`.

    Returns
    -------
    Calibration

    Raises
    ------
    InputError
        There are fewer than two documents with text or two pictures, no stranger, no
        near-duplicate, or an argument is wrong.
    MissingExtraError
        A package for pictures is not installed.
    StorageError
        A file cannot be read.

    Notes
    -----
    Resemblance follows A. Broder, *On the resemblance and containment of documents*, SEQUENCES
    1997; of pictures the normalized cross-correlation (J. P. Lewis, Vision Interface 1995) at
    32 x 32. Intervals follow E. B. Wilson, JASA 22 (1927), and take the pairs for independent;
    pairs of strangers are not quite.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from fpstore.calibration import calibrate
    >>> letters = (" ".join(f"word{i * 31 + j * j % 97}" for j in range(60)) for i in range(40))
    >>> table = pa.table({"text": [f"Letter {i}: {words}" for i, words in enumerate(letters)]})
    >>> settings = ["size=1", "size=3"]
    >>> result = calibrate(table, text="text", settings=settings, changes=["words=1"], threads=1)
    >>> best = result.suggestions[0]
    >>> best.measured.setting.name, best.radius, best.recall
    ('size=1', 8, Rate(count=40, total=40))
    """
    check_progress(progress)
    options = Options(
        image, settings, changes, most_wrong, group, sample, copies, resemblance, seed
    )
    resources = Resources(0, parse_threads(threads), progress)
    if image:
        if text is not None or html:
            raise InputError("pictures are files and folders: leave out text= and html=")
        return calibrate_pictures(Walk(corpus_paths(source)), options, resources, on_notice)
    columns = text_columns(text)
    extractor = check_extractor(html) or False
    corpus = open_corpus(
        source,
        text is True,
        on_notice=on_notice,
        encoding=encoding,
        html=bool(html),
        format=format,
    )
    return calibrate_texts(corpus, columns, options, resources, extractor)


def text_columns(text: Any) -> Projection:
    """Return the columns to read; InputError unless ``text`` is one column or True."""
    if isinstance(text, tuple | dict):
        raise InputError(
            "a calibration looks at one column of texts: name the most informative one", got=text
        )
    if not text:
        raise InputError(
            f"name the column of texts ({keyword('text')}), or say that files are texts "
            f"({keyword('text', True)}) or pictures ({keyword('image', True)})"
        )
    return with_columns(Projection(), text, None)


def calibrate_texts(
    corpus: RowSource,
    columns: Projection,
    options: Options,
    resources: Resources,
    html: bool | str = False,
) -> Calibration:
    documents = read_documents(corpus, columns, options, html, resources)
    evidence = changed_copies(documents, options, resources)
    sets = shingle_sets(documents.whole_texts, WORDS, resources.threads)
    suggestions, grouped = list[Suggestion](), dict[Any, Hashed]()
    for number, setting in enumerate(options.settings):
        resources.report("measuring", number, len(options.settings))
        measured = Measurement(
            setting, evidence, hash_items(setting, evidence.items, resources.threads)
        )
        maker = str(setting.fingerprinter.describe())  # settings may differ in their radius only
        if maker not in grouped:
            grouped = {maker: hash_items(setting, documents.texts, resources.threads)}
        removal = Removal(grouped[maker], measured.width, sets, options, resources.threads)
        suggestions.append(
            _text_suggestion(measured, removal, documents.documents, options.most_wrong)
        )
    return Calibration(
        "documents",
        documents.documents,
        documents.empty,
        len(documents.texts),
        evidence,
        options.most_wrong,
        options.group,
        _ranked(suggestions),
    )


def calibrate_pictures(
    walk: Walk, options: Options, resources: Resources, on_notice: Notice | None
) -> Calibration:
    pictures = read_pictures(walk, options, resources, on_notice)
    suggestions = []
    for setting, hashed in zip(options.settings, pictures.hashed, strict=True):
        measured = Measurement(setting, pictures.evidence, hashed)
        radius = _largest_radius(measured, pictures.documents)
        suggestions.append(Suggestion(measured, radius, fits=radius is not None))
    return Calibration(
        "pictures",
        pictures.documents,
        pictures.blank,
        None,
        pictures.evidence,
        options.most_wrong,
        options.group,
        _ranked(suggestions),
    )


def _largest_radius(measured: Measurement, documents: int) -> int | None:
    """Return the radius of a setting, or the largest one with few expected pairs of strangers.

    As many are expected as in the sample: at most one for each hundred documents.
    """
    if measured.setting.radius is not None:
        return measured.setting.radius
    pairs = max(documents * (documents - 1) // 2, 1)
    allowed = int(FALSE_PAIRS * documents * int(measured.strangers.counts.sum()) / pairs)
    radius = measured.largest_radius(allowed)
    if radius < 0:
        return None
    # larger radii that find no more copies only take in strangers
    copies = measured.all_copies
    return next(
        less
        for less in range(radius + 1)
        if copies.within(less).count == copies.within(radius).count
    )


def _text_suggestion(
    measured: Measurement, removal: Removal, documents: int, most_wrong: float
) -> Suggestion:
    """Return the largest radius with few enough wrong removals, by bisection, or the smallest."""
    high = _largest_radius(measured, documents)
    if high is None:
        return Suggestion(measured, None)
    low = high if measured.setting.radius is not None else 0
    best, rates = high, removal.rates(high)
    if _wrong_share(rates[1]) > most_wrong and low < high:
        best, rates = low, removal.rates(low)
        while high - low > 1 and _wrong_share(rates[1]) <= most_wrong:
            middle = (low + high) // 2
            middle_rates = removal.rates(middle)
            if _wrong_share(middle_rates[1]) <= most_wrong:
                low, best, rates = middle, middle, middle_rates
            else:
                high = middle
    return Suggestion(measured, best, *rates, fits=_wrong_share(rates[1]) <= most_wrong)


def _wrong_share(rate: Rate | None) -> float:
    return 0.0 if rate is None or not rate.total else rate.value


def _ranked(suggestions: Sequence[Suggestion]) -> list[Suggestion]:
    """Return suggestions, the best first.

    Candidates for the first place fit, and their recall is within the confidence interval of the
    highest. The default method of `dedup` wins, then the fewest bits. The others follow by recall.
    Suggestions that do not fit come last.
    """
    ranked = sorted(
        suggestions,
        key=lambda suggestion: (
            suggestion.radius is None,
            not suggestion.fits,
            0 if suggestion.fits else _wrong_share(suggestion.wrong),
            -suggestion.recall.value,
        ),
    )
    if not ranked[0].fits:
        return ranked
    low = ranked[0].recall.interval[0]
    as_good = [each for each in ranked if each.fits and each.recall.value >= low]
    first = min(
        as_good,
        key=lambda suggestion: (
            suggestion.measured.setting.fingerprinter.name != DEDUP_METHOD,
            suggestion.measured.width,
        ),
    )
    return [first, *(suggestion for suggestion in ranked if suggestion is not first)]
