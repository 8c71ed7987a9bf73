"""The evidence of a calibration.

Documents or pictures, and which pairs of them are near-duplicates or strangers.

Texts are a random sample of a corpus with changed copies, or pairs with labels. Pictures are a
random sample of files; each is decoded once, changed in each way, and all forms are hashed at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fpstore.base.pools import in_order
from fpstore.base.resources import Resources, Room, parse_memory
from fpstore.base.width import Width
from fpstore.calibration.image_changes import ImageChange
from fpstore.calibration.perturbations import Material, TextChange
from fpstore.calibration.request import Request
from fpstore.calibration.resemblance import (
    Places,
    Views,
    one_of_each,
    resembling_images,
    resembling_pairs,
    views,
)
from fpstore.calibration.samples import Facts, Labelled, labelled_ids, labelled_texts, sample_of
from fpstore.calibration.seeded import Draws, Reservoir
from fpstore.calibration.settings import Setting
from fpstore.errors import InputError
from fpstore.hashing.base import Hashed
from fpstore.hashing.corpora import open_corpus
from fpstore.hashing.decoding import eight_bits, frames, opened, refusals
from fpstore.hashing.documents import File, Notice, Walk, id_of, reason_of
from fpstore.hashing.image import DETAIL, detail
from fpstore.hashing.readers import WAITING_FILES
from fpstore.io.source import RowSource

if TYPE_CHECKING:
    from PIL.Image import Image

LABELLED = "labelled"
LARGEST = 512  # pixels of a side: larger pictures are made smaller, so that copies take less time
_REPORTED = 64  # files between two reports of progress


class SampledPairs(NamedTuple):
    """The items on which settings are measured, and which pairs of them are near-duplicates.

    Pairs are the places of both items: ndarray of intp, shape (2, pairs).

    Attributes
    ----------
    items : list
        Documents, then copies of some: texts, or an `ImageItem` for each picture. Then texts that
        are only grouped.
    documents : int
        The number of items that are no copies. Pairs of them are strangers, unless they are in
        `resembling`.
    duplicates : dict of str to pairs
        The near-duplicates, by the way in which they were made.
    different : pairs or None
        Pairs with the label 0.
    resembling : pairs
        With labels, the pairs of documents that resemble each other or are near-duplicates.
        Otherwise there are none, since only one document of each family is looked at.
    alike : int
        Documents of the sample that are no strangers, because another document of their family is
        looked at.
    drawn : ndarray of intp or None
        The places of all documents that are grouped as by `dedup`, in the order of the corpus; None
        for pictures.
    whole_texts : list of str or None
        Of pages of HTML, the whole texts of the documents of `drawn`: their words decide which
        removed documents are unlike.
    """

    items: list[Any]
    documents: int
    duplicates: dict[str, Places]
    different: Places | None
    resembling: Places
    alike: int = 0
    drawn: Places | None = None
    whole_texts: Sequence[str] | None = None


class LookedAt(NamedTuple):
    """The facts about the corpus, the evidence, and the fingerprints that each setting gives its items."""

    facts: Facts
    evidence: SampledPairs
    hashed: Iterable[Hashed]


def fingerprints_of(items: Iterable[Any], setting: Setting, threads: int) -> Hashed:
    """Return the fingerprints that a setting gives some items."""
    found, known = setting.fingerprinter.fingerprints(items, empty="mask", threads=threads)
    width = Width(setting.fingerprinter.width)
    return Hashed(width.from_bytes(found) if width.words > 1 else found.astype(np.uint64), known)


def _one_of_each(count: int, pairs: Places, preferred: Any, items: str) -> list[int]:
    """Return the place of one item of each family; InputError if there is one family.

    Then no two are strangers.
    """
    families: list[int] = one_of_each(count, pairs, preferred).tolist()
    if len(families) < 2:
        raise InputError(
            f"all {count:,} {items} of the sample resemble each other, so nothing shows how near "
            "strangers are: "
            f"take a larger sample, other {items}, or a higher resemblance= (--resemblance)",
            got=len(families),
        )
    return families


# Texts


def from_texts(wanted: Request, corpus: RowSource | None, resources: Resources) -> LookedAt:
    """Look at a sample of a corpus with changed copies.

    Or at pairs with labels, of texts or of ids of the corpus.
    """
    if wanted.pairs is not None:
        pairs = open_corpus(wanted.pairs, texts=False)
        if corpus is None or wanted.columns is None:
            found = labelled_texts(pairs)
        elif wanted.columns.id is None:
            raise InputError(
                "pairs of ids need the column of the ids of the documents (id=, --id-field)"
            )
        else:
            found = labelled_ids(pairs, corpus, wanted.columns)
        facts, evidence = (
            found.facts,
            evidence_of_labels(found, wanted.wish.resemblance, resources.threads),
        )
    else:
        assert corpus is not None
        assert wanted.columns is not None
        sampled = sample_of(
            corpus, wanted.columns, wanted.sample, wanted.seed, resources.progress, html=wanted.html
        )
        facts = sampled.facts
        ways: Any = wanted.ways
        evidence = evidence_of_changes(
            sampled.texts,
            ways,
            wanted.copies,
            wanted.seed,
            wanted.wish.resemblance,
            resources,
            sampled.looked_at,
            sampled.whole_texts,
        )

    def hashed() -> Iterator[Hashed]:
        # settings that differ in their radius have the same fingerprints
        done: list[tuple[Setting, Hashed]] = []
        for number, setting in enumerate(wanted.compared):
            resources.report("measuring", number, len(wanted.compared))
            same = (found for other, found in done if other.fingerprinter == setting.fingerprinter)
            done.append(
                (
                    setting,
                    next(same, None) or fingerprints_of(evidence.items, setting, resources.threads),
                )
            )
            yield done[-1][1]

    return LookedAt(facts, evidence, hashed())


def evidence_of_changes(
    drawn: Sequence[str],
    changes: Sequence[TextChange],
    copies: int,
    seed: int,
    bound: float,
    resources: Resources,
    looked_at: Sequence[int] | None = None,
    whole_texts: Sequence[str] | None = None,
) -> SampledPairs:
    """Return one document of each family of a sample, with at most ``copies`` copies that are changed in each way.

    The sample are all documents that are drawn, or those at some places of them.

    A corpus has near-duplicates of its own. They are no strangers to each other, and would count
    twice. Documents whose resemblance is the bound or more are of one family, and so are those that
    a chain of such pairs connects.

    Raises
    ------
    InputError
        There are fewer than two families, or no document can be changed.
    """
    sample = np.arange(len(drawn)) if looked_at is None else np.array(looked_at, np.intp)
    size = len(sample)
    if size < 2:
        raise InputError(
            "a calibration compares documents with each other: at least 2 with text are needed, "
            f"got {size}",
            got=size,
        )
    words = drawn if whole_texts is None else whole_texts
    alike = resembling_pairs([words[place] for place in sample], bound, resources.threads)
    families = sample[_one_of_each(size, alike, np.ones(size, bool), "documents")]
    texts, duplicates = [drawn[place] for place in families], dict[str, Places]()
    material, documents = Material(list(texts)), len(texts)
    order = Draws(seed, "order").order(documents)
    for number, change in enumerate(changes):
        places, changed = list[int](), list[str]()
        for place in order:
            copy = change.copy(material, place, seed) if len(places) < copies else None
            if copy is not None:
                places.append(place)
                changed.append(copy)
        if places:
            duplicates[change.name] = np.array(
                [places, range(len(texts), len(texts) + len(changed))], np.intp
            )
            texts += changed
        resources.report("changing", number + 1, len(changes))
    if not duplicates:
        raise InputError(
            "no document of the sample can be changed in any of these ways: they are too short, "
            "or have no numbers"
        )
    others = np.setdiff1d(np.arange(len(drawn)), families)
    every = np.argsort(np.concatenate([families, others]))
    every[every >= documents] += len(texts) - documents  # behind the copies
    texts += [drawn[place] for place in others]
    none = np.empty((2, 0), np.intp)
    return SampledPairs(
        texts, documents, duplicates, None, none, size - documents, every, whole_texts
    )


def evidence_of_labels(found: Labelled, bound: float, threads: int) -> SampledPairs:
    """Return the evidence of pairs with labels.

    Strangers are all other pairs of their texts that do not resemble each other.
    """
    same, different = (
        np.array([(a, b) for a, b, duplicate in found.pairs if duplicate == wanted], np.intp)
        .reshape(-1, 2)
        .T
        for wanted in (True, False)
    )
    ordered = np.sort(same, axis=0)
    left_out = np.concatenate(
        [ordered[:, ordered[0] != ordered[1]], resembling_pairs(found.texts, bound, threads)],
        axis=1,
    )
    every = np.arange(len(found.texts))
    return SampledPairs(
        found.texts, len(every), {LABELLED: same}, different, np.unique(left_out, axis=1), 0, every
    )


# Pictures


class ImageItem(NamedTuple):
    """A picture of the sample, or a copy of one.

    The path of the file, and the name of the change.
    """

    id: str
    change: str | None


class _Picture(NamedTuple):
    """A picture: its file, whether it was made smaller, its views, the changes of its copies, fingerprints by setting."""

    file: File
    shrunk: bool
    views: Views
    changes: list[str]
    hashed: list[Hashed]


def from_images(
    wanted: Request, walk: Walk, resources: Resources, on_notice: Notice | None
) -> LookedAt:
    """Look at a sample of the pictures among some files, and at copies of some.

    The result does not depend on the threads.

    One picture of each family is looked at, as for texts.
    """
    held = Reservoir[File](wanted.sample, Draws(wanted.seed, "sample"))
    for number, file in enumerate(walk.files()):
        skipped = _no_picture(walk, file)
        if skipped is None:
            held.see(file)
        elif on_notice is not None:
            on_notice(file.path, skipped)
        if number % _REPORTED == 0:
            resources.report("reading", number + 1, None)
    files = held.sample()
    ways: Any = wanted.ways
    copied = set(Draws(wanted.seed, "order").order(len(files))[: wanted.copies])
    found, blank, broken = list[_Picture](), 0, 0
    look = partial(_looked_at, wanted.compared, ways, wanted.seed, Room(parse_memory(None)))
    each = in_order(
        lambda at: look(at[1], copied=at[0] in copied),
        enumerate(files),
        resources.threads,
        WAITING_FILES,
    )
    for (place, file), one in each:
        resources.report("measuring", place + 1, len(files))
        if isinstance(one, _Picture):
            found.append(one)
            continue
        blank, broken = blank + (one == "blank"), broken + (one != "blank")
        if on_notice is not None:
            on_notice(file.path, one)
    drawn = len(found)
    if drawn < 2:
        message = (
            "a calibration compares pictures with each other: at least 2 that are not blank are "
            f"needed, got {drawn}"
        )
        raise InputError(message, got=drawn)
    # stand for their families, so that there are many copies
    with_copies = np.array([bool(one.changes) for one in found])
    alike = resembling_images([one.views for one in found], wanted.wish.resemblance)
    found = [found[place] for place in _one_of_each(drawn, alike, with_copies, "pictures")]
    evidence = _evidence(found, [change.name for change in ways], drawn - len(found))
    hashed = [
        Hashed(
            *(_originals_first(column) for column in zip(*(one[:2] for one in each), strict=True))
        )
        for each in zip(*(picture.hashed for picture in found), strict=True)
    ]
    facts = Facts(held.seen - blank - broken, blank, sum(one.shrunk for one in found), "pictures")
    return LookedAt(facts, evidence, hashed)


def _no_picture(walk: Walk, file: File) -> str | None:
    """Return why a file of a folder is skipped, if it is, by its beginning.

    InputError for a file that was named.
    """
    try:
        with refusals(str(file.path), file.path), opened(file.path):
            walk.check_size(file, file.size)
    except InputError as error:
        return reason_of(file, error)
    return None


def _looked_at(
    settings: Sequence[Setting],
    changes: Sequence[ImageChange],
    seed: int,
    room: Room,
    file: File,
    *,
    copied: bool,
) -> _Picture | str:
    """Decode a picture, change it in each way if it is copied, and make the fingerprints of all forms."""
    try:
        with refusals(str(file.path), file.path):
            (picture,) = (_plain(image) for image in frames(file.path, every=False, room=room))
    except InputError as error:
        return reason_of(file, error)
    shrunk = max(picture.size) > LARGEST
    if shrunk:
        picture.thumbnail((LARGEST, LARGEST))
    if detail(picture.convert("L")) < DETAIL:
        return "blank"
    found = views(picture)
    copies = (
        [
            (change.name, copy)
            for change in changes
            if (copy := change.copy(picture, seed)) is not None
        ]
        if copied
        else []
    )
    forms = [picture, *(copy for _, copy in copies)]
    hashed = [fingerprints_of(forms, setting, 1) for setting in settings]
    return _Picture(file, shrunk, found, [name for name, _ in copies], hashed)


def _plain(image: Image) -> Image:
    """Return the colours of a picture alone: its Exif data would turn it once more."""
    plain = eight_bits(image).convert("RGB")
    plain.info.clear()
    return plain


def _evidence(found: Sequence[_Picture], changes: Iterable[str], alike: int) -> SampledPairs:
    """Return which pictures are copies of which."""
    items = [ImageItem(id_of(one.file.path), None) for one in found]
    pairs: dict[str, list[tuple[int, int]]] = {name: [] for name in changes}
    for place, one in enumerate(found):
        for name in one.changes:
            pairs[name].append((place, len(items)))
            items.append(ImageItem(items[place].id, name))
    duplicates = {name: np.array(each, np.intp).T for name, each in pairs.items() if each}
    if not duplicates:
        raise InputError(
            "no picture of the sample changes in any of these ways: name others with changes= "
            "(--change)"
        )
    return SampledPairs(items, len(found), duplicates, None, np.empty((2, 0), np.intp), alike)


def _originals_first(parts: Sequence[Any]) -> Any:
    """Return the values of all pictures, then the values of all copies, of parts with a picture and its copies."""
    return np.concatenate([*(part[:1] for part in parts), *(part[1:] for part in parts)])
