"""A calibration: from a corpus, or from folders of pictures, to a setting and a radius."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fpstore.base.aliases import Progress
from fpstore.base.keywords import keyword
from fpstore.base.resources import Resources, make_resources
from fpstore.calibration.measures import CalibrationSample, Measurement
from fpstore.calibration.pictures import read_pictures
from fpstore.calibration.rates import Rate
from fpstore.calibration.removals import RuleMeasurement, Verdict
from fpstore.calibration.settings import COPIES, MAX_WRONG, SAMPLE, CalibrationOptions
from fpstore.calibration.texts import read_texts
from fpstore.errors import InputError
from fpstore.hashing import Fingerprinter
from fpstore.hashing.corpora import corpus_paths, open_corpus
from fpstore.hashing.documents import Notice, walk_pictures
from fpstore.hashing.minhash import MinHash, least_jaccard
from fpstore.hashing.page_text import check_extractor
from fpstore.io.source import Projection
from fpstore.jobs.dedup_job import DEDUP_METHOD
from fpstore.jobs.row_spec import with_columns, with_roles


@dataclass(frozen=True)
class Suggestion:
    """A radius for a setting, for stores and where fingerprints decide, and what is within it.

    Attributes
    ----------
    measured : Measurement
        The setting, and the distances of copies from their originals and of strangers.
    radius : int or None
        None if strangers are within every radius.
    fits : bool
        Whether there is a radius, and few enough documents are removed wrongly.
    removed : Rate or None
        The share of the grouped documents that `dedup` removes at this radius, if fingerprints
        decide; None for pictures.
    wrong : Rate or None
        The share of the removed documents that are unlike the kept ones; None for pictures.
    """

    measured: Measurement
    radius: int | None
    fits: bool
    removed: Rate | None = None
    wrong: Rate | None = None

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
        fingerprinter = self.measured.setting.fingerprinter
        if self.radius is None or not isinstance(fingerprinter, MinHash):
            return None
        return self.measured.setting.threshold or least_jaccard(fingerprinter, self.radius)

    def to_dict(self) -> dict[str, Any]:
        """Return the suggestion as JSON values."""
        measured, setting = self.measured, self.measured.setting
        names = ("recall", "strangers", "removed", "wrong")
        rates: list[Rate | None] = [getattr(self, name) for name in names]
        kinds = {**measured.copies, "strangers": measured.strangers}
        return {
            "setting": setting.name,
            "fingerprinter": setting.fingerprinter.describe(),
            "width": measured.width,
            "radius": self.radius,
            "threshold": self.threshold,
            "fits": self.fits,
            **{name: rate and rate.to_dict() for name, rate in zip(names, rates, strict=True)},
            "by_distance": {name: distances.counts.tolist() for name, distances in kinds.items()},
            "no_fingerprint": {name: distances.missed for name, distances in kinds.items()},
        }


@dataclass(frozen=True)
class Calibration:
    """The rules and radii of a calibration.

    Attributes
    ----------
    sample : CalibrationSample
        The documents or pictures, and their changed copies.
    options : CalibrationOptions
        The arguments of :func:`calibrate`.
    suggestions : list of Suggestion
        A radius for each setting, the best first.
    rules : list of RuleMeasurement
        Rules of `dedup` with the pieces of settings of MinHash, the best first; none for pictures.
    """

    sample: CalibrationSample
    options: CalibrationOptions
    suggestions: list[Suggestion]
    rules: list[RuleMeasurement]

    def to_dict(self) -> dict[str, Any]:
        """Return the calibration as JSON values, as ``fpstore calibrate --json`` prints it."""
        sample, options = self.sample, self.options
        text_fields = {
            "grouped": sample.grouped,
            "most_wrong": options.most_wrong,
            "rules": [rule.to_dict() for rule in self.rules],
        }
        return {
            "items": options.items,
            "documents": sample.documents,
            "empty": sample.empty,
            "originals": len(sample.strangers),
            "left_out": sample.alike,
            **({} if options.images else text_fields),
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
    roles: Any = None,
    skip_bad: bool = False,
    settings: Iterable[str | Fingerprinter[Any]] | None = None,
    changes: Iterable[str] | None = None,
    most_wrong: float = MAX_WRONG,
    sample: int = SAMPLE,
    copies: int = COPIES,
    resemblance: float | None = None,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress | None = None,
    on_notice: Notice | None = None,
) -> Calibration:
    """Choose a rule, a fingerprint and a radius for a corpus, or a radius for pictures.

    One document of each family of near-duplicates in a random sample is a stranger to the others.
    Changed copies of some of them are near-duplicates. For each setting, the distances of both are
    counted, and the documents that :func:`fpstore.dedup` removes, rightly and wrongly: by texts
    with the pieces of the settings of MinHash, and by fingerprints.

    Parameters
    ----------
    source, format, encoding, html, roles, skip_bad
        As for :func:`fpstore.dedup`; for pictures files and folders. Copies are made of the main
        texts of pages.
    text : str or True, optional
        The column of the texts; True if each file is a text.
    image : bool
        The files are pictures. Pictures of more than 512 pixels on a side are made smaller before
        they are copied.
    settings : iterable of str or Fingerprinter, optional
        Fingerprinters, or parameters such as ``"shingle=words,size=2"`` of `SimHash`,
        ``"method=minhash,size=2"`` of `MinHash` and ``"method=difference,width=256"`` of
        `ImageHash`. ``"method=minhash,threshold=0.7"`` and ``"size=3,width=256,radius=54"`` are
        measured at this radius only. A threshold is that of the rule, too. By default some usual
        ones.
    changes : iterable of str, optional
        Kinds of changes with amounts, such as ``"words=2"`` or ``"typos=0.01"``, for pictures
        ``"resize=0.5"`` or ``"jpeg=20"``.
    most_wrong : float
        The greatest share of the removed documents that may be removed wrongly. The kept document
        has less than 80% of their shingles of three words, and the Jaccard similarity of both is
        below 0.5, or below `resemblance`. Not for pictures.
    sample : int
        The most documents whose distances are measured, 2 to 10,000. All their pairs are compared:
        1,500 have 1.1 million. Up to 10,000 texts, with 17 million characters, are grouped to count
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
    32 x 32. Intervals (E. B. Wilson, JASA 22, 1927) take the pairs for independent; pairs of
    strangers are not quite.

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
    options = CalibrationOptions(
        image, settings, changes, most_wrong, sample, copies, resemblance, seed
    )
    resources = make_resources(None, threads, progress)
    if image:
        if text is not None or html:
            raise InputError("pictures are files and folders: leave out text= and html=")
        walk = walk_pictures(corpus_paths(source))
        pictures = read_pictures(walk, options, resources, on_notice)
        return measure(pictures, options, resources)
    columns, extractor = text_columns(text, roles), check_extractor(html) or False
    corpus = open_corpus(
        source,
        text is True,
        on_notice=on_notice,
        encoding=encoding,
        html=bool(html),
        format=format,
        skip_bad=skip_bad,
    )
    texts = read_texts(corpus, columns, options, extractor, resources)
    return measure(texts, options, resources)


def text_columns(text: Any, roles: Any = None) -> Projection:
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
    return with_roles(with_columns(Projection(), text, None), roles)


def measure(
    sample: CalibrationSample, options: CalibrationOptions, resources: Resources
) -> Calibration:
    """Measure each setting on a sample, and rank rules and settings."""
    suggestions, rules = list[Suggestion](), list[RuleMeasurement]()
    for number, setting in enumerate(options.settings):
        resources.report("measuring", number, len(options.settings))
        hashed = sample.hashed(number)
        measured = Measurement(setting, sample, hashed)
        radius = measured.largest_radius(sample.documents)
        if sample.removals is not None:
            rules += sample.removals.by_texts(number, hashed, sample.copies)
        if radius is None or sample.removals is None:
            suggestions.append(Suggestion(measured, radius, fits=radius is not None))
        else:
            judge = sample.removals.within(hashed, measured.width, radius)
            suggestions.append(_suggest_radius(measured, radius, judge, options.most_wrong))
    return Calibration(sample, options, _rank_suggestions(suggestions), _rank_rules(rules))


def _suggest_radius(
    measured: Measurement, max_radius: int, judge: Callable[[int], Verdict], most_wrong: float
) -> Suggestion:
    """Suggest the largest radius with few enough wrong removals, by bisection, or radius 0."""

    def suggest(radius: int) -> Suggestion:
        verdict = judge(radius)
        fits = verdict.fits(most_wrong)
        return Suggestion(measured, radius, fits, verdict.removed, verdict.wrong)

    best = suggest(max_radius)
    if best.fits or measured.setting.radius is not None:
        return best
    low, high, best = 0, max_radius, suggest(0)
    while best.fits and high - low > 1:
        middle = (low + high) // 2
        suggestion = suggest(middle)
        if suggestion.fits:
            low, best = middle, suggestion
        else:
            high = middle
    return best


def _rank_rules(rules: list[RuleMeasurement]) -> list[RuleMeasurement]:
    """Return rules, those that fit first, by the share of copies that they find.

    The first place goes to the first rule that fits and is as good as the best one, within the
    confidence interval.
    """
    ranked = sorted(rules, key=lambda rule: (not rule.fits, -rule.found.value))
    if not ranked or not ranked[0].fits:
        return ranked
    low = ranked[0].found.interval[0]
    first = next(rule for rule in rules if rule.fits and rule.found.value >= low)
    return [first, *(rule for rule in ranked if rule is not first)]


def _rank_suggestions(suggestions: Sequence[Suggestion]) -> list[Suggestion]:
    """Return suggestions, the best first.

    Candidates for the first place fit, and their recall is within the confidence interval of the
    highest. The default method of `dedup` wins, then the fewest bits. The others follow by recall.
    Suggestions that do not fit come last, by the share that is removed wrongly.
    """
    ranked = sorted(
        suggestions,
        key=lambda suggestion: (
            suggestion.radius is None,
            not suggestion.fits,
            0 if suggestion.fits or suggestion.wrong is None else suggestion.wrong.value,
            -suggestion.recall.value,
        ),
    )
    if not ranked[0].fits:
        return ranked
    low = ranked[0].recall.interval[0]
    first = min(
        (suggestion for suggestion in ranked if suggestion.fits and suggestion.recall.value >= low),
        key=lambda suggestion: (
            suggestion.measured.setting.fingerprinter.name != DEDUP_METHOD,
            suggestion.measured.width,
        ),
    )
    return [first, *(suggestion for suggestion in ranked if suggestion is not first)]
