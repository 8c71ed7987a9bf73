"""Perceptual hashes of pictures, frame by frame, by the packages ImageHash and pdqhash."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Bytes
from fpstore.base.arguments import check_choice, check_whole
from fpstore.base.resources import MemoryBudget
from fpstore.base.width import Width, check_width
from fpstore.errors import InputError, show
from fpstore.hashing.base import Fingerprinter, Hashed, batched, check_items
from fpstore.hashing.decoding import (
    PictureSource,
    eight_bits,
    frames,
    picture_source,
    pillow,
    reduction,
    translate_decoding_errors,
)
from fpstore.io.packages import import_package

if TYPE_CHECKING:
    from PIL.Image import Image

    from fpstore.hashing.decoding import Picture

# The functions of the package ImageHash, and radii at 64 bits that find nearly all copies that are
# scaled, compressed or blurred, and about 1% of other pairs (tools/image_distances).
_HASHES = {
    "average": ("average_hash", 5),
    "difference": ("dhash", 8),
    "difference-vertical": ("dhash_vertical", 8),
    "perceptual": ("phash", 10),
    "perceptual-mean": ("phash_simple", 10),
    "wavelet": ("whash", 4),
    "color": ("colorhash", 2),
}
METHODS = (*_HASHES, "pdq")
# methods that compare values within a row, or within a column
_LINE_METHODS = ("difference", "difference-vertical", "perceptual-mean")
FRAMES = ("first", "all")
ORIENTATIONS = (1, 8)
_EXCHANGING = ("ROTATE_90", "ROTATE_270", "TRANSPOSE", "TRANSVERSE")  # width and height
PDQ_QUALITY = 20  # docs/guides/pictures.md measures it; the authors of PDQ recommend 50
DETAIL = 4  # grey levels; docs/guides/pictures.md measures it on gradients, icons and photographs

_WIDTHS = {"color": (64,), "pdq": (256,)}
_SQUARES = (64, 256)  # the other methods have 8 x 8 and 16 x 16 bits
_COLOR_BITS = 4  # for each of 14 shares of colours: 56 bits, the most below 64
_PDQ_RADIUS = 31
# JPEG of more pixels is decoded in a smaller size; of PDQ, all pictures are made smaller
_MAX_PIXELS = 1 << 20
_PDQ_BYTES = 30  # of a pixel in pdqhash: sums of doubles, two floats and colours
_TURNED_BYTES = 4  # of a pixel of a turned copy
_SIDE = 32
_ACROSS = np.arange(1 - _SIDE, _SIDE, 2)  # twice the distance of a row from the middle
_SQUARES_LESS_MEAN = _ACROSS**2 - (_SIDE**2 - 1) // 3
_SURFACES = [  # polynomials that are orthogonal on the places
    np.outer(a, b)
    for a, b in (
        (_ACROSS**0, _ACROSS**0),
        (_ACROSS, _ACROSS**0),
        (_ACROSS**0, _ACROSS),
        (_ACROSS, _ACROSS),
        (_SQUARES_LESS_MEAN, _ACROSS**0),
        (_ACROSS**0, _SQUARES_LESS_MEAN),
    )
]
_BATCH_BYTES, _MIN_BYTES = 1 << 26, 1 << 22


class Rejection(NamedTuple):
    """Why a picture has no fingerprint: a word, and the end of a sentence about the picture."""

    reason: str
    sentence: str


_BLANK = Rejection("blank", "is blank: all brightnesses that the method compares are equal")


@dataclass(frozen=True, kw_only=True)
class ImageHash(Fingerprinter["Picture"]):
    """Perceptual hashes of pictures: similar pictures get fingerprints that differ in few bits.

    A picture is an image of Pillow, a path (str or PathLike), the content of a file (bytes), or a
    file that is open for reading bytes. It is turned upright as its Exif orientation says, and
    hashed by the package ImageHash or pdqhash: the fingerprint is the number ``int(str(hash), 16)``
    of the former's object, and the number that the bits of the latter make, the first the highest.

    ===================  =======  ==============================================================
    method               widths   a bit is 1 if
    ===================  =======  ==============================================================
    average              64, 256  a brightness of 8 x 8 (16 x 16) is above their mean
    difference           64, 256  a brightness is above the brightness to its left
    difference-vertical  64, 256  a brightness is above the brightness over it
    perceptual           64, 256  a low coefficient of the cosine transform is above the median
    perceptual-mean      64, 256  a low cosine coefficient of a row is above the mean
    wavelet              64, 256  a low coefficient of the Haar transform is above the median
    color                64       8 bits of 0, then 14 shares of colours, 4 binary digits each
    pdq                  256      a cosine coefficient is above the median: the PDQ of Facebook
    ===================  =======  ==============================================================

    The median or the mean is taken over the low coefficients.

    A blank picture has no fingerprint: all values that the method compares are equal, and the bits
    would be 0 for every blank picture, or come from errors of rounding. A nearly blank picture or a
    gradient has none either: its quality is below `min_quality`. With ``color``, no picture is
    blank. For ``wavelet`` each side must have 8 (16) pixels or more. Transparency is ignored, as
    the packages do.

    Brightnesses of 16 bits lose their lower bits, until the largest has 8. Brightnesses of 32 bits
    and floats are scaled from the range of their finite values to 0 to 255; NaN is 0. A JPEG of
    more than 2^20 pixels is decoded in a smaller size (half, a quarter or an eighth, of 2^18 pixels
    or more), except for ``color``. So an image of Pillow that is decoded already may give a
    fingerprint that differs in a few bits. ``pdq`` takes all pictures of more than 2^20 pixels in a
    smaller size: the sides are divided by the least whole number that leaves at most 2^20.

    Parameters
    ----------
    method : str
        One of the table.
    width : int, optional
        Bits; by default 256 for ``pdq``, else 64. A colour hash has 14 times as many bits as each
        share, which is never a width of a store; so it is a number of 56 bits in 64, and its
        distances are the package's with ``binbits=4``.
    frame : {"first", "all"}
        Of a file of several frames (an animation, the pages of a TIFF): hash the first one, or
        refuse the file here, while `fpstore.hashing.ImageReader` hashes each. An image of Pillow is
        the frame that it shows.
    min_quality : int, optional
        The least quality, 0 to 100; not for ``color``. For ``pdq`` it is what PDQ says of the
        edges, and by default 20, while its authors recommend 50. For the other methods it is
        `detail`, by default 4. With 0, only blank pictures are left out.

    Attributes
    ----------
    usual_radius : int
        A radius to begin with: 31 for ``pdq``, as its authors recommend; see
        ``docs/guides/pictures.md`` for the other methods.

    Raises
    ------
    InputError
        A parameter has the wrong type or is out of range, or the method does not have the width.
        `fingerprint` and `fingerprints`: an item is no picture, is broken, or is larger than the
        limits of Pillow (``PIL.Image.MAX_IMAGE_PIXELS``); its attribute ``reason`` is "other",
        "heif", "broken" or "large".
    MissingExtraError
        A package is not installed: ``pip install pillow ImageHash``, and for ``pdq`` ``pdqhash``.
    StorageError
        A file is missing or cannot be read.

    Notes
    -----
    J. Buchner, *ImageHash* (the package); N. Krawetz, *Looks Like It*, 2011 (average, difference,
    perceptual); Facebook, *The TMK+PDQF Video-Hashing Algorithm and the PDQ Image-Hashing
    Algorithm*, 2019, section 4 (PDQ), with its thresholds. Other versions of the packages, or of
    Pillow's decoders, may give other fingerprints.

    Examples
    --------
    >>> from PIL import Image
    >>> from fpstore.hashing import ImageHash
    >>> picture = Image.linear_gradient("L").rotate(30)
    >>> small = picture.resize((100, 100))
    >>> perceptual = ImageHash(method="perceptual")
    >>> a, b = perceptual.fingerprint(picture), perceptual.fingerprint(small)
    >>> (a ^ b).bit_count() <= perceptual.usual_radius
    True
    """

    name: ClassVar[str] = "image-hash"
    version: ClassVar[int] = 3
    items: ClassVar[str] = "pictures"
    usual_group: ClassVar[str] = "greedy"

    method: str = "perceptual"
    width: Any = None  # an int: by default the width of the method
    frame: str = "first"
    min_quality: int | None = None

    def __post_init__(self) -> None:
        check_choice(self.method, METHODS, "method")
        if self.method == "color":
            if self.min_quality is not None:
                reason = (
                    "min_quality is for brightnesses, and the method color compares none: leave "
                    "it out"
                )
                raise InputError(reason, got=self.min_quality)
        else:
            usual = PDQ_QUALITY if self.method == "pdq" else DETAIL
            self._keep(
                min_quality=check_whole(
                    usual if self.min_quality is None else self.min_quality, 0, 100, "min_quality"
                )
            )
        self._keep(width=_check_method_width(self.method, self.width))
        check_choice(self.frame, FRAMES, "frame")

    @property
    def usual_radius(self) -> int:
        """A radius to begin with."""
        return _PDQ_RADIUS if self.method == "pdq" else _HASHES[self.method][1] * self.width // 64

    def orientations(self, picture: Picture) -> npt.NDArray[Any]:
        """Return the fingerprints of a picture that is mirrored and turned in all eight ways.

        Each is the fingerprint of the mirrored or turned picture, of which rounding may move a few
        bits; with ``pdq`` none. So a probe with all eight finds what is stored of such copies: see
        :meth:`fpstore.Matches.unite`.

        Parameters
        ----------
        picture : image of Pillow, path, bytes or open file
            As for `fingerprint`.

        Returns
        -------
        ndarray
            In the form of `fingerprints`, 8 rows: upright, then in the order of
            ``PIL.Image.Transpose``. With ``color``, all are equal.

        Raises
        ------
        InputError
            As for `fingerprint`.

        Examples
        --------
        >>> from PIL import Image, ImageOps
        >>> from fpstore.hashing import ImageHash
        >>> picture, hasher = Image.linear_gradient("L").rotate(30), ImageHash()
        >>> hasher.fingerprint(ImageOps.mirror(picture)) == int(hasher.orientations(picture)[1])
        True
        """
        source = picture_source(picture)
        frame = self._single_frame(source, orientations=8)
        if isinstance(frame, Rejection):
            raise InputError(self._rejection_message(source, frame), got=picture)
        width = Width(self.width)
        return width.to_array(width.rows(frame))

    def empty_message(self, item: Picture | PictureSource) -> str:
        """Return why a picture has no fingerprint."""
        picture = picture_source(item)
        (rejection,) = self.frame_fingerprints(picture, every=False)
        assert isinstance(rejection, Rejection)
        return self._rejection_message(picture, rejection)

    def _rejection_message(self, picture: PictureSource, rejection: Rejection) -> str:
        return f"{picture.name} {rejection.sentence}: leave it out (is_empty() finds such pictures)"

    def hashed(self, items: Sequence[Picture | PictureSource]) -> Hashed:
        """Return the fingerprints of a batch of pictures."""
        values = [self._single_frame(picture_source(item)) for item in items]
        known = np.array([not isinstance(value, Rejection) for value in values], bool)
        numbers = (0 if isinstance(value, Rejection) else value[0] for value in values)
        return Hashed(Width(self.width).rows(numbers), known)

    def batches(self, items: Iterable[Picture]) -> Iterator[list[Any]]:
        """Cut pictures into batches of at most 16.

        Images of Pillow are decoded here, since threads cannot share their files.
        """
        check_items(items, "pictures", str, io.IOBase)
        pictures = (picture_source(item, place) for place, item in enumerate(items))
        return batched(pictures, _picture_bytes, _BATCH_BYTES)

    def frame_fingerprints(
        self,
        picture: PictureSource,
        *,
        every: bool,
        orientations: int = 1,
        budget: MemoryBudget | None = None,
    ) -> list[tuple[int, ...] | Rejection]:
        """Return the fingerprints of the first frame or of every frame, or why it has none.

        A frame has one fingerprint, or one in each of the eight `orientations`. InputError as in
        `translate_decoding_errors`.
        """
        fingerprints = list[tuple[int, ...] | Rejection]()
        most_pixels = None if self.method == "color" else _MAX_PIXELS
        decoded = frames(
            picture.source,
            every=every,
            budget=budget,
            most_pixels=most_pixels,
            hash_bytes=(
                _PDQ_BYTES + _TURNED_BYTES * (orientations > 1) if self.method == "pdq" else 0
            ),
        )
        with (
            translate_decoding_errors(picture.place + picture.name, picture.path),
            closing(decoded) as images,  # type: ignore[type-var]  # a generator
        ):
            for image in images:
                fingerprints.append(self._image_fingerprints(image, orientations))
                del image  # frames() needs its memory for the next frame
        return fingerprints

    def _single_frame(
        self, picture: PictureSource, orientations: int = 1
    ) -> tuple[int, ...] | Rejection:
        fingerprints = self.frame_fingerprints(
            picture, every=self.frame == "all", orientations=orientations
        )
        if len(fingerprints) > 1:
            fault = f"has {len(fingerprints)} frames, and frame='all' asks for each"
            raise InputError(
                f"{picture.place}{picture.name}: {fault}: read it with ImageReader, or take "
                "frame='first'",
                got=len(fingerprints),
            )
        return fingerprints[0]

    def _image_fingerprints(self, image: Image, orientations: int) -> tuple[int, ...] | Rejection:
        if not (image.width and image.height):
            return Rejection("blank", "has no pixels")
        image = eight_bits(image)
        if self.method == "color":
            package = import_package("imagehash", "ImageHash")
            return (int(str(package.colorhash(image, binbits=_COLOR_BITS)), 16),) * orientations
        if self.method == "pdq":
            factor = reduction(image.size, _MAX_PIXELS)
            image = image.convert("L").reduce(factor) if factor > 1 else image
            image = image if image.mode == "RGB" else image.convert("RGB")  # convert() would copy
            upright = self._pdq(image)
        else:
            image = image.convert("L")
            upright = self._hash_of_grey(image)
        if isinstance(upright, Rejection):
            return upright
        return (upright, *(self._turned(image, upright) if orientations > 1 else ()))

    def _turned(self, image: Image, upright: int) -> Iterator[int]:
        """Yield the fingerprints of a picture that is mirrored and turned.

        A picture that has no fingerprint when it is turned is not stored so, and has its upright
        one.
        """
        is_pdq = self.method == "pdq"
        images = (
            (image, image) if is_pdq else (self._scaled(image), self._scaled(image, exchanged=True))
        )
        for turn in pillow().Transpose:
            turned = images[turn.name in _EXCHANGING].transpose(turn)
            fingerprint = self._pdq(turned) if is_pdq else self._hash_of_scaled(turned)
            yield upright if isinstance(fingerprint, Rejection) else fingerprint

    def _hash_of_grey(self, grey: Image) -> int | Rejection:
        """Return the fingerprint of a picture of the mode L, or why it has none."""
        if self.method == "wavelet" and min(grey.size) < self._side:
            return Rejection(
                "small",
                f"has {grey.width} x {grey.height} pixels, and the method wavelet needs "
                f"{self._side} x {self._side}",
            )
        fingerprint = self._hash_of_scaled(self._scaled(grey))
        if isinstance(fingerprint, Rejection):
            return fingerprint
        quality = detail(grey)
        assert self.min_quality is not None
        if quality < self.min_quality:
            return Rejection(
                "quality",
                f"has {quality} grey levels of detail, below min_quality={self.min_quality}",
            )
        return fingerprint

    @property
    def _side(self) -> int:
        """The brightnesses along a side that the method compares."""
        return 8 if self.width == 64 else 16

    def _scaled(self, grey: Image, *, exchanged: bool = False) -> Image:
        """Return a picture in the size that the package compares, or with sides exchanged.

        The package scales a picture to this size itself, and leaves a picture of this size as it
        is.
        """
        if self.method == "wavelet":
            return grey
        size = self._shape(self._side)
        antialias = import_package("imagehash", "ImageHash").ANTIALIAS
        return grey.resize(size[::-1] if exchanged else size, antialias)

    def _hash_of_scaled(self, scaled: Image) -> int | Rejection:
        if self._is_blank(scaled):
            return _BLANK
        function = getattr(import_package("imagehash", "ImageHash"), _HASHES[self.method][0])
        return int(str(function(scaled, hash_size=self._side)), 16)

    def _shape(self, size: int) -> tuple[int, int]:
        large = (4 * size, 4 * size)
        shapes = {
            "perceptual": large,
            "perceptual-mean": large,
            "difference": (size + 1, size),
            "difference-vertical": (size, size + 1),
        }
        return shapes.get(self.method, (size, size))

    def _is_blank(self, grey: Image) -> bool:
        """Whether all values that the method compares are equal, in a picture of its size."""
        if self.method not in _LINE_METHODS:
            low, high = grey.getextrema()
            return low == high
        values: Bytes = np.asarray(grey)
        values = values.T if self.method == "difference-vertical" else values
        return bool((values[:, 1:] == values[:, :-1]).all())

    def _pdq(self, colours: Image) -> int | Rejection:
        bits, quality = import_package("pdqhash", "ImageHash with the method pdq").compute(
            np.asarray(colours)
        )
        assert self.min_quality is not None
        if quality < self.min_quality or not quality:
            return Rejection(
                "quality",
                f"has the quality {quality} for PDQ, below min_quality={self.min_quality}",
            )
        return int.from_bytes(np.packbits(np.asarray(bits, bool)).tobytes(), "big")


def detail(grey: Image) -> int:
    """Return how far a picture of the mode L is from a smooth surface, in whole grey levels.

    It is the standard deviation of the brightnesses at 32 x 32 from the best polynomial of degree 2
    in both places, rounded down: 0 for a single colour or a linear gradient, and little for noise
    and other gradients. The sums are of whole numbers.
    """
    from PIL.Image import Resampling

    values = np.asarray(grey.resize((_SIDE, _SIDE), Resampling.BOX), np.int64)
    squares = float((values * values).sum())
    for surface in _SURFACES:
        squares -= float((values * surface).sum()) ** 2 / float((surface * surface).sum())
    return int(max(squares, 0.0) ** 0.5 / _SIDE)


def _picture_bytes(picture: PictureSource) -> int:
    """Return the bytes of a picture in memory, at least a sixteenth of a batch."""
    source = picture.source
    size = (
        len(source)
        if isinstance(source, bytes)
        else 4 * getattr(source, "width", 0) * getattr(source, "height", 0)
    )
    return max(size, _MIN_BYTES)


def check_orientations(value: object) -> int:
    """Return how many orientations of a picture are hashed; InputError unless 1 or 8."""
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_whole or value not in ORIENTATIONS:
        raise InputError(
            f"orientations must be 1 or 8, got {show(value)}",
            expected=ORIENTATIONS,
            got=value,
            argument="orientations",
        )
    return int(value)


def _check_method_width(method: str, width: object) -> int:
    widths = _WIDTHS.get(method, _SQUARES)
    if width is None:
        return widths[0]
    bits = check_width(width).bits
    if bits not in widths:
        reason = (
            ": it has 14 numbers of equal size, and 56 bits are the most below 64"
            if method == "color"
            else ""
        )
        choices = " or ".join(map(str, widths))
        raise InputError(
            f"the method {method} has {choices} bits{reason}, got width={show(width)}",
            expected=widths,
            got=width,
        )
    return bits
