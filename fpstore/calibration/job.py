"""A calibration: from a corpus, or from folders of pictures, to a setting and a radius."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from fpstore.base.aliases import Progress
from fpstore.base.arguments import check_progress
from fpstore.base.resources import Resources, parse_threads
from fpstore.calibration.advice import Suggestion, checked_first, suggestions
from fpstore.calibration.evidence import SampledPairs, from_images, from_texts
from fpstore.calibration.measures import Distances, Measured, measured
from fpstore.calibration.removal import WHOLE, CorpusRemovals, CountedSample, SampleRemovals
from fpstore.calibration.request import COPIES, GROUP, MOST_WRONG, SAMPLE, Request, Wish
from fpstore.calibration.samples import Facts
from fpstore.hashing import Fingerprinter
from fpstore.hashing.corpora import corpus_paths, open_corpus
from fpstore.hashing.documents import Notice, Walk
from fpstore.io.source import RowSource


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
        drawn = self.evidence.drawn
        wrongly = (
            {} if drawn is None else {"most_wrong": self.wish.most_wrong, "group": self.wish.group}
        )
        return {
            **self.facts._asdict(),
            "sample": self.evidence.documents,
            "left_out": self.evidence.alike,
            "grouped": None if drawn is None else len(drawn),
            "resembling_pairs": self.evidence.resembling.shape[1],
            "for": {
                "documents": self.wish.documents,
                "recall": self.wish.recall,
                "false_pairs": self.wish.most_false,
            }
            | wrongly,
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
        "threshold": one.threshold,
        "fits": one.fits,
        "removal": None
        if one.removal is None
        else {**one.removal._asdict(), "wrong": one.removal.wrong},
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
    return {
        "pairs": found.within(len(found.counts)).total,
        "no_fingerprint": found.missed,
        "by_distance": found.counts.tolist(),
    }


def calibrate(
    source: Any = None,
    *,
    text: str | bool | None = None,
    image: bool = False,
    pairs: Any = None,
    id: str | None = None,
    format: str | None = None,
    encoding: str | None = None,
    html: bool | str = False,
    settings: Iterable[str | Fingerprinter[Any]] | None = None,
    changes: Iterable[str] | None = None,
    documents: int | None = None,
    recall: float | None = None,
    false_pairs: float | None = None,
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
    """Measure which fingerprint and which radius find the near-duplicates of a corpus, or of folders of pictures.

    A random sample of the documents is taken, and of each family of near-duplicates in it one
    document is kept: those are strangers. Copies of some are changed in known ways:
    near-duplicates. For each setting, the distances of both are counted, and what
    :func:`fpstore.dedup` removes: of how many near-duplicates one or both, and how many documents
    wrongly.

    Parameters
    ----------
    source : path, paths, or table, optional
        As for :func:`fpstore.dedup`. May be left out if the pairs hold texts. For pictures files
        and folders.
    text : str or True, optional
        The column of the texts; True if each file is a text.
    image : bool
        The files are pictures. Pictures of more than 512 pixels on a side are made smaller before
        they are copied.
    pairs : path or table, optional
        Pairs with labels, instead of changed copies. With `id` its columns are ``a``, ``b`` (ids of
        documents) and ``label``; without, ``text_a``, ``text_b`` and ``label``. The label is 1 for
        near-duplicates, 0 for others.
    id : str, optional
        The column of the ids that the pairs name. Files that are texts have their paths as ids.
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
    documents : int, optional
        The number of documents for which to choose; by default the number in the corpus.
    recall : float, optional
        The share of near-duplicates to find: then the fewest false pairs are best.
    false_pairs : float, optional
        The most pairs of strangers within the radius. By default one for each hundred documents, if
        no recall is wanted.
    most_wrong : float
        The greatest share of the removed documents that may be removed wrongly: documents that
        share less than `resemblance` of their shingles of three words with the kept document. Not
        for pictures.
    group : {"greedy", "connected"}
        How `dedup` groups near-duplicates. A sample has fewer chains than its corpus: it shows too
        little of what ``"connected"`` removes.
    sample : int
        The most documents that are looked at, 2 to 10,000. All their pairs are compared: 1,500 have
        1.1 million. Up to ten times as many texts, with 16 million characters, are grouped to count
        what is removed. The first setting is counted again on the whole corpus, if that has up to
        50,000 documents and is not of HTML; up to two others, if it is not the best then.
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
    Resemblance follows A. Broder, *On the resemblance and containment of documents*, SEQUENCES 1997; of pictures the
    normalized cross-correlation (J. P. Lewis, Vision Interface 1995) at 32 x 32. Intervals follow E. B. Wilson, JASA 22
    (1927), and take the pairs for independent; pairs of strangers are not quite.

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
    wanted = Request(
        text=text,
        image=image,
        pairs=pairs,
        id=id,
        html=html,
        settings=settings,
        changes=changes,
        documents=documents,
        recall=recall,
        false_pairs=false_pairs,
        most_wrong=most_wrong,
        group=group,
        sample=sample,
        copies=copies,
        resemblance=resemblance,
        seed=seed,
        with_source=source is not None,
    ).checked()
    corpus: RowSource | Walk | None = None
    if image:
        corpus = Walk(corpus_paths(source))
    elif source is not None:
        corpus = open_corpus(source, text is True, None, on_notice, encoding, bool(html), format)
    return calibrated(wanted, corpus, Resources(0, parse_threads(threads), progress), on_notice)


def calibrated(
    wanted: Request, source: RowSource | Walk | None, resources: Resources, on_notice: Notice | None
) -> Calibration:
    """Return the calibration that is asked for, of a corpus, of pictures, or of pairs with texts alone."""
    if isinstance(source, Walk):
        facts, evidence, hashed = from_images(wanted, source, resources, on_notice)
    else:
        facts, evidence, hashed = from_texts(wanted, source, resources)
    each, removals = list[Measured](), list[SampleRemovals]()
    sample = (
        None if evidence.drawn is None else CountedSample(evidence, wanted.wish, resources.threads)
    )
    for setting, one in zip(wanted.compared, hashed, strict=True):
        each.append(measured(evidence, setting, one))
        if sample is not None:
            removals.append(SampleRemovals(sample, one, each[-1].width))
    wish = (
        wanted.wish
        if wanted.wish.documents
        else wanted.wish._replace(documents=max(facts.documents, 2))
    )
    found = suggestions(each, wish, removals or None)
    if sample is not None and _is_part(wanted, facts, sample):

        def of_corpus(one: Suggestion) -> CorpusRemovals:
            assert isinstance(source, RowSource)
            assert wanted.columns is not None
            same = removals[each.index(one.measured)]
            return CorpusRemovals(
                source, wanted.columns, one.measured.setting.fingerprinter, same, wish, resources
            )

        found = checked_first(found, wish, of_corpus)
    return Calibration(facts, wish, evidence, found)


def _is_part(wanted: Request, facts: Facts, sample: CountedSample) -> bool:
    """Return whether documents were left out of what is grouped, and the corpus is so small that it can be counted."""
    return wanted.pairs is None and not wanted.html and sample.documents < facts.documents <= WHOLE
