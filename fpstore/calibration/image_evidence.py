"""The pictures that a calibration looks at: a random sample of files, with copies that are changed; each is decoded once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fpstore.base.resources import Resources
from fpstore.base.threads import in_order
from fpstore.calibration.image_changes import ImageChange
from fpstore.calibration.measures import Measured, SampledPairs, check_families, fingerprints_of, measured
from fpstore.calibration.resemblance import Places, Views, one_of_each, resembling_images, views
from fpstore.calibration.seeded import Draws, Reservoir
from fpstore.calibration.settings import Setting
from fpstore.errors import InputError
from fpstore.hashing.base import Hashed
from fpstore.hashing.documents import File, Notice, Walk, id_of, reason_of
from fpstore.hashing.image import DETAIL, detail, frames, opened, refusals
from fpstore.hashing.readers import WAITING_FILES

if TYPE_CHECKING:
    from PIL.Image import Image

IMAGE_BOUND = 0.9
LARGEST = 512  # pixels of a side: larger pictures are made smaller, so that copies take less time
_REPORTED = 64  # files between two reports of progress


class ImageItem(NamedTuple):
    """A picture of the sample, or a copy of one.

    Attributes
    ----------
    id : str
        The path of the file, as `ImageReader` has it.
    change : str, optional
        The name of the change; None for the picture itself.
    """

    id: str
    change: str | None


class ImageSample(NamedTuple):
    """Some pictures of folders, in the order of the files.

    Attributes
    ----------
    files : list of File
    pictures : int
        Files that are pictures, by their beginnings.
    """

    files: list[File]
    pictures: int


class LookedAt(NamedTuple):
    """The result of decoding the pictures of a sample.

    Attributes
    ----------
    evidence : SampledPairs
        Its items are `ImageItem`.
    hashed : list of Hashed
        For each setting the fingerprints of the items.
    blank : int
        Pictures with less than `DETAIL` grey levels of detail, which are left out.
    broken : int
        Files that could not be decoded, which are left out.
    shrunk : int
        Pictures with more than 512 pixels on a side, which were made smaller.
    """

    evidence: SampledPairs
    hashed: list[Hashed]
    blank: int
    broken: int
    shrunk: int

    def each_measured(self, settings: Sequence[Setting]) -> Iterator[Measured]:
        """Yield the distances of each setting."""
        return (measured(self.evidence, setting, hashed) for setting, hashed in zip(settings, self.hashed, strict=True))


class _Picture(NamedTuple):
    """A picture: its file, whether it was made smaller, its views, the changes of its copies, fingerprints by setting."""

    file: File
    shrunk: bool
    views: Views
    changes: list[str]
    hashed: list[Hashed]


def image_sample(walk: Walk, size: int, seed: int, on_notice: Notice | None, resources: Resources) -> ImageSample:
    """Return a random sample of the pictures among some files, of which only the beginnings are read.

    Parameters
    ----------
    walk : Walk
    size : int
        The most pictures in the sample.
    seed : int
        The same seed gives the same sample of the same files.
    on_notice : callable, optional
        As for `ImageReader`.
    resources : Resources
        Progress.

    Raises
    ------
    InputError
        A named file is no picture.
    """
    held = Reservoir[File](size, Draws(seed, "sample"))
    for number, file in enumerate(walk.files()):
        skipped = _no_picture(walk, file)
        if skipped is None:
            held.see(file)
        elif on_notice is not None:
            on_notice(file.path, skipped)
        if number % _REPORTED == 0:
            resources.report("reading", number + 1, None)
    return ImageSample(held.sample(), held.seen)


def _no_picture(walk: Walk, file: File) -> str | None:
    """Return why a file of a folder is skipped, if it is; InputError for a file that was named."""
    try:
        with refusals(str(file.path), file.path), opened(file.path):
            walk.check_size(file, file.size)
    except InputError as error:
        return reason_of(file, error)
    return None


class ImageWork(NamedTuple):
    """The work on each picture of a sample: settings, changes, and the most copies of each kind with their seed."""

    settings: Sequence[Setting]
    changes: Sequence[ImageChange]
    copies: int
    seed: int

    def of(self, file: File, *, copied: bool) -> _Picture | str:
        """Decode a picture, change it in each way, and make the fingerprints of all forms."""
        try:
            with refusals(str(file.path), file.path):
                (picture,) = (_plain(image) for image in frames(file.path, every=False))
        except InputError as error:
            return reason_of(file, error)
        shrunk = max(picture.size) > LARGEST
        if shrunk:
            picture.thumbnail((LARGEST, LARGEST))
        if detail(picture.convert("L")) < DETAIL:
            return "blank"
        found = views(picture)
        forms, names = [picture], list[str]()
        for change in self.changes if copied else ():
            copy = change.copy(picture, self.seed)
            if copy is not None:
                forms.append(copy)
                names.append(change.name)
        return _Picture(file, shrunk, found, names, [fingerprints_of(forms, setting, 1) for setting in self.settings])


def _plain(image: Image) -> Image:
    """Return the colours of a picture alone: its Exif data would turn it once more."""
    plain = image.convert("RGB")
    plain.info.clear()
    return plain


def look_at(sample: ImageSample, work: ImageWork, bound: float, on_notice: Notice | None, resources: Resources) -> LookedAt:
    """Return the fingerprints of the pictures of a sample and of copies that are changed.

    Parameters
    ----------
    sample : ImageSample
    work : ImageWork
    bound : float
        Pictures whose resemblance is this or more are of one family, and so are those that a chain of such pairs connects. One
        of each family is looked at.
    on_notice : callable, optional
        As for `ImageReader`.
    resources : Resources
        Threads and progress. The result does not depend on the threads.

    Raises
    ------
    InputError
        There are fewer than two families, or no picture can be changed; a named file is broken.
    """
    copied = set(Draws(work.seed, "order").order(len(sample.files))[: work.copies])
    found, blank, broken = list[_Picture](), 0, 0
    places = enumerate(sample.files)
    each = in_order(lambda at: work.of(at[1], copied=at[0] in copied), places, resources.threads, WAITING_FILES)
    for (place, file), one in each:
        resources.report("measuring", place + 1, len(sample.files))
        if isinstance(one, _Picture):
            found.append(one)
            continue
        blank, broken = blank + (one == "blank"), broken + (one != "blank")
        if on_notice is not None:
            on_notice(file.path, one)
    if len(found) < 2:
        told = f"a calibration compares pictures with each other: at least 2 that are not blank are needed, got {len(found)}"
        raise InputError(told, got=len(found))
    copied_ones = np.array([bool(one.changes) for one in found])  # stand for their families, so that there are many copies
    families = one_of_each(len(found), resembling_images([one.views for one in found], bound), copied_ones)
    check_families(len(families), len(found), "pictures")
    alike = len(found) - len(families)
    found = [found[place] for place in families.tolist()]
    evidence = _evidence(found, work.changes, alike)
    order = _originals_first(found)
    by_setting = zip(*(one.hashed for one in found), strict=True)
    hashed = [
        Hashed(np.concatenate([one.rows for one in each])[order], np.concatenate([one.known for one in each])[order])
        for each in by_setting
    ]
    return LookedAt(evidence, hashed, blank, broken, sum(one.shrunk for one in found))


def _evidence(found: Sequence[_Picture], changes: Iterable[ImageChange], alike: int) -> SampledPairs:
    """Return which pictures are copies of which."""
    items = [ImageItem(id_of(one.file.path), None) for one in found]
    pairs: dict[str, list[tuple[int, int]]] = {change.name: [] for change in changes}
    for place, one in enumerate(found):
        for name in one.changes:
            pairs[name].append((place, len(items)))
            items.append(ImageItem(items[place].id, name))
    duplicates = {name: np.array(each, np.intp).T for name, each in pairs.items() if each}
    if not duplicates:
        raise InputError("no picture of the sample changes in any of these ways: name others with changes= (--change)")
    return SampledPairs(items, len(found), duplicates, None, np.empty((2, 0), np.intp), alike)


def _originals_first(found: Sequence[_Picture]) -> Places:
    """Return the places of the items of the evidence among the forms of one picture after the other."""
    begins = np.cumsum([0, *(1 + len(one.changes) for one in found)])
    copies = np.ones(begins[-1], bool)
    copies[begins[:-1]] = False
    return np.concatenate([begins[:-1], np.flatnonzero(copies)])
