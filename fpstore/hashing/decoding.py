"""Pictures in any form, decoded by Pillow frame by frame, upright and in bounded memory."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib import import_module
from math import ceil, sqrt
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fpstore.base.arguments import check_path
from fpstore.base.keywords import keyword
from fpstore.base.resources import MemoryBudget, format_size
from fpstore.disk.refusals import refusal_error
from fpstore.errors import FpstoreError, InputError, one_line
from fpstore.io.packages import import_package

if TYPE_CHECKING:
    from PIL.Image import Image

    Picture = str | os.PathLike[str] | bytes | IO[bytes] | Image

_ORIENTATION = 0x0112  # the tag of Exif
# Pillow starts another program to read these formats, which files of strangers must not cause.
_FORMATS_OF_PROGRAMS = {"EPS"}
_HEIF_SUFFIXES = (".heic", ".heif", ".hif")
# Bytes of a pixel while it is decoded, and made a brightness of 8 bits. Pillow keeps other modes in
# 4 bytes.
_PIXEL_BYTES = {
    "1": 1,
    "L": 1,
    "P": 1,
    "I;16": 8,
    "I;16L": 8,
    "I;16B": 8,
    "I;16N": 8,
    "I": 32,
    "F": 32,
}
# formats whose decoders have a second copy of the picture
_COPYING_FORMATS = ("AVIF", "HEIF", "JPEG2000", "TIFF", "WEBP")
_PROGRESSIVE_BYTES = 6  # of a pixel in the decoder of progressive JPEG
# modes that Pillow cannot make grey, and the mode to convert them to first
_INTERMEDIATE_MODES = {"LAB": "RGB", "La": "LA"}
_SIXTEEN_BIT_FORMATS = ("PNG", "PPM")  # their values of the mode I have 16 bits


class PictureSource(NamedTuple):
    """A picture in a form that threads can share, and its name and place in messages."""

    source: Path | bytes | Image
    name: str
    place: str = ""

    @property
    def path(self) -> Path | None:
        """The file, if it is one."""
        return self.source if isinstance(self.source, Path) else None


def pillow() -> Any:
    """Return the module PIL.Image with all readers, also of HEIC if pillow-heif is installed."""
    module = import_package("PIL.Image", "ImageHash")
    module.init()
    _register_heif()
    return module


@cache
def _register_heif() -> None:
    with suppress(ImportError):
        import_module("pillow_heif").register_heif_opener()


def picture_source(picture: object, place: int | None = None) -> PictureSource:
    """Return a picture with its name and, among several items, its place."""
    if isinstance(picture, PictureSource):
        return picture
    where = "" if place is None else f"item {place}: "
    if isinstance(picture, str | os.PathLike):
        path = check_path(picture)
        return PictureSource(path, str(path), where)
    if isinstance(picture, bytes | bytearray | memoryview):
        data = bytes(picture)
        return PictureSource(data, f"a picture of {len(data):,} bytes", where)
    if hasattr(picture, "read"):
        return _content(picture, where)
    if isinstance(picture, pillow().Image):
        name = f"an image of {picture.width} x {picture.height} pixels"
        with translate_decoding_errors(where + name):
            image = upright(picture)
            # The caller may seek to another frame before this one is hashed.
            has_frames = image is picture and getattr(picture, "n_frames", 1) > 1
            return PictureSource(image.copy() if has_frames else image, name, where)
    kinds = "an image of Pillow, a path, bytes, or a file that is open for reading bytes"
    raise InputError(
        f"{where}a picture is {kinds}, got {type(picture).__name__}", got=type(picture)
    )


def _content(stream: Any, where: str) -> PictureSource:
    """Read an open file, from its beginning if it has one."""
    path = getattr(stream, "name", None)
    name = path if isinstance(path, str) else "an open file"
    if isinstance(stream, io.TextIOBase):
        raise InputError(f"{where}{name}: open it for reading bytes ('rb')", got=type(stream))
    try:
        if stream.seekable():
            stream.seek(0)
        data = stream.read()
    except OSError as error:
        raise refusal_error(name, error) from error
    except ValueError as error:
        raise InputError(f"{where}{name}: {error}", got=stream) from error
    return PictureSource(data, name, where)


def frames(
    source: Path | bytes | Image,
    *,
    every: bool,
    budget: MemoryBudget | None = None,
    most_pixels: int | None = None,
    hash_bytes: int = 0,
) -> Iterator[Image]:
    """Yield the first frame of a picture, or every frame, upright.

    Use it within `translate_decoding_errors`. A frame takes memory of the budget, if any, until
    the next frame. JPEG above ``most_pixels`` is decoded in a smaller size, and its brightness
    alone. To hash a pixel takes ``hash_bytes`` more. An image of Pillow is one frame, and stays as
    it is.
    """
    images = pillow()
    if isinstance(source, images.Image):
        yield source
        return
    assert isinstance(source, Path | bytes)
    with ExitStack() as memory, open_picture(source) as image:
        for number in range(getattr(image, "n_frames", 1) if every else 1):
            if number:
                image.seek(number)
            is_progressive = image.info.get("progressive")
            other_bytes = _PROGRESSIVE_BYTES * image.width * image.height if is_progressive else 0
            if most_pixels is not None and (factor := reduction(image.size, most_pixels)) > 1:
                image.draft("L", tuple(max(side // factor, 1) for side in image.size))
            memory.close()
            if budget is not None:
                other_bytes += hash_bytes * min(image.width * image.height, most_pixels or 0)
                frame_bytes = _frame_bytes(image, budget, other_bytes)
                memory.enter_context(budget.reserve(frame_bytes))
            yield upright(image)
        del image  # frees its memory before the budget counts it as free


def reduction(size: tuple[int, int], most_pixels: int) -> int:
    """Return the least divisor of both sides that leaves at most ``most_pixels``."""
    return max(ceil(sqrt(size[0] * size[1] / most_pixels)), 1)


class _PictureTooLargeError(MemoryError):
    """A picture alone takes more than the memory budget."""


def _frame_bytes(image: Any, budget: MemoryBudget, other_bytes: int) -> int:
    """Return the bytes to decode a picture whose head was read, to make it grey, and to hash it."""
    pixel_bytes = _PIXEL_BYTES.get(image.mode, 4)
    # without such data in the head, Pillow would read on to search it behind the picture
    is_turned = "exif" in image.info and _is_rotated(image)
    copies = 1 + (image.format in _COPYING_FORMATS) + is_turned
    pixels = image.width * image.height
    total: int = other_bytes + pixels * (pixel_bytes * copies + 1)
    if total > budget.total:
        size = f"{image.width} x {image.height} pixels"
        limit = f"the budget of {format_size(budget.total)}"
        raise _PictureTooLargeError(
            f"{size} take {format_size(total)}, above {limit}: raise {keyword('memory')}"
        )
    return total


def eight_bits(image: Image) -> Image:
    """Return a picture in a mode of 8 bits.

    Values of 16 bits lose their lower bits, until the largest one has 8: a picture of 12 bits loses
    4. Whole numbers of 32 bits and floats are scaled by the range of their finite values; NaN is
    the least value.
    """
    if image.mode in _INTERMEDIATE_MODES:
        return image.convert(_INTERMEDIATE_MODES[image.mode])
    if image.mode.startswith("I;16"):
        return _upper_bits(np.asarray(image))
    if image.mode not in ("I", "F"):
        return image
    values = np.asarray(image)
    if image.mode == "I" and image.format in _SIXTEEN_BIT_FORMATS:
        return _upper_bits(values.clip(0, (1 << 16) - 1))
    finite = np.isfinite(values)
    low, high = (
        (float(values[finite].min()), float(values[finite].max())) if finite.any() else (0.0, 0.0)
    )
    with np.errstate(invalid="ignore"):  # infinity less a number stays infinity
        scaled = (values - np.float64(low)) * (255 / ((high - low) or 1.0))
    return _grey(np.nan_to_num(scaled, nan=0).clip(0, 255).round())


def _upper_bits(values: Any) -> Image:
    """Return values of up to 16 bits without the lower bits that the largest has above 8."""
    return _grey(values >> max(int(values.max()).bit_length() - 8, 0))


def _grey(values: Any) -> Image:
    image: Image = pillow().fromarray(values.astype(np.uint8))
    return image


@contextmanager
def open_picture(source: Path | bytes) -> Iterator[Any]:
    """Open a picture of any format that needs no other program; only its head is read.

    Use it within `translate_decoding_errors`.
    """
    images = pillow()
    formats = [name for name in images.ID if name not in _FORMATS_OF_PROGRAMS]
    with (
        io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as stream,
        images.open(stream, formats=formats) as image,
    ):
        yield image


def upright(image: Image) -> Image:
    """Return an image turned as its Exif data say, or itself if they are missing or broken."""
    image.load()
    return (
        import_package("PIL.ImageOps", "ImageHash").exif_transpose(image)
        if _is_rotated(image)
        else image
    )


def _is_rotated(image: Image) -> bool:
    try:
        return image.getexif().get(_ORIENTATION, 1) in range(2, 9)
    except Exception:  # Pillow's readers of metadata raise many kinds of errors for broken ones
        return False


@contextmanager
def translate_decoding_errors(name: str, path: Path | None = None) -> Iterator[None]:
    """Turn every error of Pillow inside the block into an error of fpstore.

    The attribute ``reason`` of an InputError is "other" (no picture), "heif" (HEIC without its
    reader), "large" (for Pillow's limits, or the memory), "memory" (for the budget) or "broken".
    """
    images = pillow()
    try:
        yield
    except FpstoreError:
        raise
    except (images.DecompressionBombError, images.DecompressionBombWarning) as error:
        advice = "raise PIL.Image.MAX_IMAGE_PIXELS if it is to be trusted"
        raise InputError(
            f"{name}: {_message(error)}: {advice}", path=path, reason="large"
        ) from error
    except _PictureTooLargeError as error:
        raise InputError(f"{name}: {error}", path=path, reason="memory") from error
    except MemoryError as error:
        raise InputError(
            f"{name}: takes more memory than there is", path=path, reason="large"
        ) from error
    except Exception as error:  # Pillow's readers raise many kinds of errors for broken files
        if isinstance(error, OSError) and error.errno is not None:
            raise refusal_error(path, error) from error
        unknown = isinstance(error, import_package("PIL", "ImageHash").UnidentifiedImageError)
        if (
            unknown
            and path is not None
            and path.suffix.lower() in _HEIF_SUFFIXES
            and "HEIF" not in images.OPEN
        ):
            advice = "is HEIC, which Pillow reads with another package: pip install pillow-heif"
            raise InputError(f"{name}: {advice}", path=path, reason="heif") from error
        if unknown and (path is None or path.suffix.lower() not in images.registered_extensions()):
            raise InputError(
                f"{name}: is no picture of a format that Pillow reads", path=path, reason="other"
            ) from error
        fault = "Pillow does not recognize its content" if unknown else _message(error)
        raise InputError(
            f"{name}: the picture is broken ({fault})", path=path, reason="broken"
        ) from error


def _message(error: Exception) -> str:
    return one_line(str(error)).removesuffix(".") or type(error).__name__
