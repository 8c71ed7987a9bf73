"""A calibration for pictures: a random sample of files, each decoded once, changed in each way, and hashed by each setting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore.base.pools import in_order
from fpstore.base.resources import Resources, Room, parse_memory
from fpstore.calibration.image_changes import ImageChange
from fpstore.calibration.measures import Evidence, Places, family_heads, hashed_by
from fpstore.calibration.seeded import Draws, Reservoir
from fpstore.calibration.settings import Setting
from fpstore.errors import InputError
from fpstore.hashing.base import Hashed
from fpstore.hashing.decoding import eight_bits, frames, opened, refusals
from fpstore.hashing.documents import File, Notice, Walk, id_of, reason_of
from fpstore.hashing.image import DETAIL, detail
from fpstore.hashing.readers import WAITING_FILES

if TYPE_CHECKING:
    from PIL.Image import Image

LARGEST = 512  # pixels of a side: larger pictures are made smaller, so that copies take less time
_REPORTED = 64  # files between two reports of progress
SIDE = 32
# the share of both sides that a view has lost, and how many places it may have along a side
CROP, SHIFTS = 0.06, 3
_BLOCK_PAIRS = 1 << 20  # compared at once
_ROUNDING = 1e-6  # equal pictures have a product of nearly 1

Views = npt.NDArray[np.float32]


class ImageItem(NamedTuple):
    """A picture of the sample, or a copy of one: the path of the file, and the name of the change."""

    id: str
    change: str | None


@dataclass(frozen=True)
class Pictures:
    """The sample of pictures.

    Attributes
    ----------
    evidence : Evidence
    hashed : list of Hashed
        The fingerprints of its items, by setting.
    documents, blank : int
        The pictures among the files, and those of the sample that are blank.
    """

    evidence: Evidence
    hashed: list[Hashed]
    documents: int
    blank: int


class _Picture(NamedTuple):
    """A picture: its file, its views, the changes of its copies, and the fingerprints of all by setting."""

    file: File
    views: Views
    changes: list[str]
    hashed: list[Hashed]


def read_pictures(
    walk: Walk,
    settings: Sequence[Setting],
    changes: Sequence[ImageChange],
    sample: int,
    copies: int,
    seed: int,
    resemblance: float,
    resources: Resources,
    on_notice: Notice | None = None,
) -> Pictures:
    """Look at a sample of the pictures among files, and at copies of some; one of each family counts.

    The result does not depend on the threads.
    """
    held = Reservoir[File](sample, Draws(seed, "sample"))
    for number, file in enumerate(walk.files()):
        skipped = _no_picture(walk, file)
        if skipped is None:
            held.see(file)
        elif on_notice is not None:
            on_notice(file.path, skipped)
        if number % _REPORTED == 0:
            resources.report("reading", number + 1, None)
    files = held.sample()
    copied = set(Draws(seed, "order").order(len(files))[:copies])
    look = partial(_looked_at, settings, changes, seed, Room(parse_memory(None)))
    each = in_order(
        lambda at: look(at[1], copied=at[0] in copied),
        enumerate(files),
        resources.threads,
        WAITING_FILES,
    )
    pictures, blank, broken = list[_Picture](), 0, 0
    for (place, file), looked_at in each:
        resources.report("measuring", place + 1, len(files))
        if isinstance(looked_at, _Picture):
            pictures.append(looked_at)
            continue
        blank, broken = blank + (looked_at == "blank"), broken + (looked_at != "blank")
        if on_notice is not None:
            on_notice(file.path, looked_at)
    drawn = len(pictures)
    if drawn < 2:
        raise InputError(
            "a calibration compares pictures with each other: at least 2 that are not blank are "
            f"needed, got {drawn}",
            got=drawn,
        )
    # pictures with copies stand for their families, so that there are many copies
    with_copies = np.array([bool(picture.changes) for picture in pictures])
    alike = resembling_images([picture.views for picture in pictures], resemblance)
    pictures = [pictures[place] for place in family_heads(drawn, alike, with_copies)]
    hashed = [
        Hashed(*(_originals_first(column) for column in zip(*(one[:2] for one in of), strict=True)))
        for of in zip(*(picture.hashed for picture in pictures), strict=True)
    ]
    names = [change.name for change in changes]
    evidence = _evidence(pictures, names, drawn - len(pictures))
    return Pictures(evidence, hashed, held.seen - blank - broken, blank)


def _no_picture(walk: Walk, file: File) -> str | None:
    """Return why a file of a folder is skipped, if it is, by its beginning; InputError for a file that was named."""
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
    if max(picture.size) > LARGEST:
        picture.thumbnail((LARGEST, LARGEST))
    if detail(picture.convert("L")) < DETAIL:
        return "blank"
    copies = {}
    for change in changes if copied else ():
        copy = change.copy(picture, seed)
        if copy is not None:
            copies[change.name] = copy
    hashed = [hashed_by(setting, [picture, *copies.values()], 1) for setting in settings]
    return _Picture(file, views(picture), [*copies], hashed)


def _plain(image: Image) -> Image:
    """Return the colours of a picture alone: its Exif data would turn it once more."""
    plain = eight_bits(image).convert("RGB")
    plain.info.clear()
    return plain


def _evidence(pictures: Sequence[_Picture], changes: Iterable[str], alike: int) -> Evidence:
    items = [ImageItem(id_of(picture.file.path), None) for picture in pictures]
    pairs: dict[str, list[tuple[int, int]]] = {name: [] for name in changes}
    for place, picture in enumerate(pictures):
        for name in picture.changes:
            pairs[name].append((place, len(items)))
            items.append(ImageItem(items[place].id, name))
    copies = {name: np.array(each, np.intp).T for name, each in pairs.items() if each}
    if not copies:
        raise InputError(
            "no picture of the sample changes in any of these ways: name others with changes= "
            "(--change)"
        )
    return Evidence(items, len(pictures), copies, alike)


def _originals_first(parts: Sequence[Any]) -> Any:
    """Return the values of all pictures, then the values of all copies, of parts with a picture and its copies."""
    return np.concatenate([*(part[:1] for part in parts), *(part[1:] for part in parts)])


def views(picture: Image) -> Views:
    """Return the brightnesses of a picture and of nine crops of it, each scaled to 32 x 32, with mean 0 and length 1.

    The shape is (10, 1024). The values of a blank crop are all 0.
    """
    from PIL.Image import Resampling

    grey, (width, height) = picture.convert("L"), picture.size
    shifts = [
        (x / (SHIFTS - 1) * CROP, y / (SHIFTS - 1) * CROP)
        for x, y in product(range(SHIFTS), repeat=2)
    ]
    boxes = [(0.0, 0.0, 1.0, 1.0), *((x, y, x + 1 - CROP, y + 1 - CROP) for x, y in shifts)]
    scaled = [
        grey.resize(
            (SIDE, SIDE),
            Resampling.BOX,
            (left * width, top * height, right * width, bottom * height),
        )
        for left, top, right, bottom in boxes
    ]
    values = np.array([np.asarray(each, np.float32).reshape(-1) for each in scaled])
    values -= values.mean(1, keepdims=True)
    lengths = np.sqrt((values * values).sum(1, keepdims=True))
    out: Views = np.divide(values, lengths, out=np.zeros_like(values), where=lengths > 0)
    return out


def resembling_images(each: Sequence[Views], least: float) -> Places:
    """Return the places of the pairs of pictures whose resemblance is a bound or more, shape (2, pairs), ascending.

    The resemblance is the highest correlation coefficient of the brightnesses of one picture and of
    a view of the other: nearly 1 for copies of other sizes, with other light, or with lost edges
    (J. P. Lewis, *Fast normalized cross-correlation*, Vision Interface 1995, section 2).
    """
    every = np.array(each, np.float32).reshape(-1, 1 + SHIFTS**2, SIDE * SIDE)
    pairs = [np.empty((2, 0), np.intp)]
    step = max(_BLOCK_PAIRS // max(len(every), 1), 1)
    for start in range(0, len(every), step):
        block = every[start : start + step]
        near = np.zeros((len(block), len(every)), bool)
        for place in range(every.shape[1]):
            near |= block[:, place] @ every[:, 0].T >= least - _ROUNDING
        firsts, seconds = np.nonzero(near)
        pairs.append(np.sort([firsts + start, seconds], axis=0))
    both = np.concatenate(pairs, axis=1)
    return np.unique(both[:, both[0] != both[1]], axis=1)
