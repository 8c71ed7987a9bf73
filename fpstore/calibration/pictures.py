"""The sample of a calibration for pictures: each is decoded once, changed, and hashed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore.base.keywords import keyword
from fpstore.base.pools import map_in_order
from fpstore.base.resources import MemoryBudget, Resources, parse_memory
from fpstore.calibration.measures import BLOCK_PAIRS, CalibrationSample, family_heads, hash_items
from fpstore.calibration.rates import Places
from fpstore.calibration.seeded import Draws, Reservoir
from fpstore.calibration.settings import CalibrationOptions
from fpstore.errors import InputError
from fpstore.hashing.base import Hashed
from fpstore.hashing.decoding import eight_bits, frames, open_picture, translate_decoding_errors
from fpstore.hashing.documents import File, Notice, Walk, document_id, skip_reason
from fpstore.hashing.image import DETAIL, detail
from fpstore.hashing.readers import WAITING_FILES

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_SIDE = 512  # pixels of a side; larger pictures are scaled down, so that copies take less time
_REPORTED = 64  # files between two reports of progress
SIDE = 32
# the share of both sides that a view lacks, and its number of places along a side
CROP, SHIFTS = 0.06, 3
_ROUNDING = 1e-6  # equal pictures have a product of nearly 1

Views = npt.NDArray[np.float32]


class _Picture(NamedTuple):
    """A picture: its path, views, the changes of its copies, and all fingerprints by setting."""

    path: str
    views: Views
    changes: list[str]
    hashed: list[Hashed]


def read_pictures(
    walk: Walk, options: CalibrationOptions, resources: Resources, on_notice: Notice | None = None
) -> CalibrationSample:
    """Sample the pictures among files, and make changed copies of some.

    Each picture is decoded once. The result does not depend on the threads.
    """
    on_notice = on_notice or (lambda path, reason: None)
    reservoir = Reservoir[File](options.sample, Draws(options.seed, "sample"))
    for number, file in enumerate(walk.files()):
        skipped = _skip_reason(walk, file)
        if skipped is None:
            reservoir.add(file)
        else:
            on_notice(file.path, skipped)
        if number % _REPORTED == 0:
            resources.report("reading", number + 1, None)
    files = reservoir.sample()
    copied = set(Draws(options.seed, "order").order(len(files))[: options.copies])
    look = partial(_measure, options, MemoryBudget(parse_memory(None)))
    results = map_in_order(
        lambda at: look(at[1], copied=at[0] in copied),
        enumerate(files),
        resources.threads,
        WAITING_FILES,
    )
    pictures, reasons = list[_Picture](), list[str]()
    for (place, file), result in results:
        resources.report("measuring", place + 1, len(files))
        if isinstance(result, _Picture):
            pictures.append(result)
        else:
            reasons.append(result)
            on_notice(file.path, result)
    if len(pictures) < 2:
        raise InputError(
            "a calibration compares pictures with each other: at least 2 that are not blank are "
            f"needed, got {len(pictures)}",
            got=len(pictures),
        )
    return _sample(pictures, options, reservoir.count - len(reasons), reasons.count("blank"))


def _sample(
    pictures: Sequence[_Picture], options: CalibrationOptions, documents: int, blank: int
) -> CalibrationSample:
    resembling = resembling_images([picture.views for picture in pictures], options.resemblance)
    # pictures with copies stand for their families, so that there are many copies
    with_copies = [bool(picture.changes) for picture in pictures]
    strangers = family_heads(len(pictures), resembling, with_copies)
    items: list[Any] = [(picture.path, None) for picture in pictures]
    pairs: dict[str, list[tuple[int, int]]] = {change.name: [] for change in options.changes}
    for place, picture in enumerate(pictures):
        for name in picture.changes:
            if place in strangers:
                pairs[name].append((place, len(items)))
            items.append((picture.path, name))
    copies = {name: np.array(places, np.intp).T for name, places in pairs.items() if places}
    if not copies:
        raise InputError(
            "no picture of the sample changes in any of these ways: name others with "
            f"{keyword('changes')}"
        )
    hashed = [
        Hashed(
            _originals_first([picture.hashed[number].rows for picture in pictures]),
            _originals_first([picture.hashed[number].known for picture in pictures]),
        )
        for number in range(len(options.settings))
    ]
    alike = len(pictures) - len(strangers)
    return CalibrationSample(items, strangers, copies, alike, documents, blank, hashed.__getitem__)


def _originals_first(parts: Sequence[Any]) -> Any:
    """Concatenate the first values of all parts, then the others."""
    return np.concatenate([*(part[:1] for part in parts), *(part[1:] for part in parts)])


def _skip_reason(walk: Walk, file: File) -> str | None:
    """Return why a file of a folder is skipped, or None; InputError for a file that was named."""
    try:
        with translate_decoding_errors(str(file.path), file.path), open_picture(file.path):
            walk.check_size(file, file.size)
    except InputError as error:
        return skip_reason(file, error)
    return None


def _measure(
    options: CalibrationOptions, budget: MemoryBudget, file: File, *, copied: bool
) -> _Picture | str:
    """Decode a picture, change it in each way if ``copied``, and make all fingerprints.

    Returns a reason if there is no picture.
    """
    try:
        with translate_decoding_errors(str(file.path), file.path):
            (picture,) = (_plain(image) for image in frames(file.path, every=False, budget=budget))
    except InputError as error:
        return skip_reason(file, error)
    if max(picture.size) > MAX_SIDE:
        picture.thumbnail((MAX_SIDE, MAX_SIDE))
    if detail(picture.convert("L")) < DETAIL:
        return "blank"
    copies = {}
    for change in options.changes if copied else ():
        copy = change.copy(picture, options.seed)
        if copy is not None:
            copies[change.name] = copy
    hashed = [
        hash_items(setting.fingerprinter, [picture, *copies.values()], 1)
        for setting in options.settings
    ]
    return _Picture(document_id(file.path), views(picture), [*copies], hashed)


def _plain(image: Image) -> Image:
    """Return the colours of a picture alone: its Exif data would turn it once more."""
    plain = eight_bits(image).convert("RGB")
    plain.info.clear()
    return plain


def views(picture: Image) -> Views:
    """Return the brightnesses of a picture and of nine crops of it, shape (10, 1024).

    Each is scaled to 32 x 32, with mean 0 and length 1. The values of a blank crop are all 0.
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
    values = np.array([np.asarray(image, np.float32).reshape(-1) for image in scaled])
    values -= values.mean(1, keepdims=True)
    lengths = np.sqrt((values * values).sum(1, keepdims=True))
    scaled_values: Views = np.divide(values, lengths, out=np.zeros_like(values), where=lengths > 0)
    return scaled_values


def resembling_images(pictures: Sequence[Views], least: float) -> Places:
    """Return the pairs of pictures whose resemblance is at least a bound, shape (2, pairs).

    Places ascend. The resemblance is the highest correlation coefficient of the brightnesses of one
    picture and of a view of the other: nearly 1 for copies of other sizes, with other light, or
    with lost edges (J. P. Lewis, *Fast normalized cross-correlation*, Vision Interface 1995,
    section 2).
    """
    stacked = np.array(pictures, np.float32).reshape(-1, 1 + SHIFTS**2, SIDE * SIDE)
    pairs = [np.empty((2, 0), np.intp)]
    step = max(BLOCK_PAIRS // max(len(stacked), 1), 1)
    for start in range(0, len(stacked), step):
        block = stacked[start : start + step]
        near = np.zeros((len(block), len(stacked)), bool)
        for place in range(stacked.shape[1]):
            near |= block[:, place] @ stacked[:, 0].T >= least - _ROUNDING
        firsts, seconds = np.nonzero(near)
        pairs.append(np.sort([firsts + start, seconds], axis=0))
    both = np.concatenate(pairs, axis=1)
    return np.unique(both[:, both[0] != both[1]], axis=1)
