"""Pictures of any kind that Pillow reads, upright, frame by frame; a picture that cannot be read is refused with a reason."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from fpstore.base.arguments import check_path
from fpstore.disk.refusals import refused
from fpstore.errors import FpstoreError, InputError, one_line
from fpstore.io.packages import import_package

if TYPE_CHECKING:
    from PIL.Image import Image

    Picture = str | os.PathLike[str] | bytes | IO[bytes] | Image

_ORIENTATION = 0x0112  # the tag of Exif
_TURNS = {  # the turn that makes a picture with this orientation upright
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}
# Pillow reads these by starting another program, which must not happen to files of strangers.
_PROGRAMS = {"EPS"}


class Given(NamedTuple):
    """A picture, and its name in messages: its place among others if it has no name of its own."""

    source: Path | bytes | Image
    name: str
    place: str = ""

    @property
    def path(self) -> Path | None:
        """The file, if it is one."""
        return self.source if isinstance(self.source, Path) else None


def pillow() -> Any:
    """Return the module PIL.Image, with the readers of all formats loaded."""
    module = import_package("PIL.Image", "ImageHash")
    module.init()
    return module


def given(picture: object, place: int | None = None) -> Given:
    """Return a picture in a form that threads can share, and a name with its place among others.

    Raises
    ------
    InputError
        It is not a picture, or an image that cannot be decoded.
    StorageError
        An open file cannot be read.
    """
    if isinstance(picture, Given):
        return picture
    where = "" if place is None else f"item {place}: "
    if isinstance(picture, str | os.PathLike):
        path = check_path(picture)
        return Given(path, str(path), where)
    if isinstance(picture, bytes | bytearray | memoryview):
        data = bytes(picture)
        return Given(data, f"a picture of {len(data):,} bytes", where)
    if hasattr(picture, "read"):
        return _content(picture, where)
    if isinstance(picture, pillow().Image):
        name = f"an image of {picture.width} x {picture.height} pixels"
        with refusals(where + name):
            image = upright(picture)
            # A picture of several frames may show another one when its turn comes.
            moving = image is picture and getattr(picture, "n_frames", 1) > 1
            return Given(image.copy() if moving else image, name, where)
    kinds = "an image of Pillow, a path, bytes, or a file that is open for reading bytes"
    raise InputError(f"{where}a picture is {kinds}, got {type(picture).__name__}", got=type(picture))


def _content(stream: Any, where: str) -> Given:
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
        raise refused(name, error) from error
    except ValueError as error:
        raise InputError(f"{where}{name}: {error}", got=stream) from error
    return Given(data, name, where)


def frames(source: Path | bytes | Image, *, every: bool) -> Iterator[Image]:
    """Yield the first frame of a picture, or every one, upright; use it within `refusals`, and each before the next.

    An image of Pillow is one frame, and stays as it is.
    """
    images = pillow()
    if isinstance(source, images.Image):
        yield source
        return
    assert isinstance(source, Path | bytes)
    with opened(source) as image:
        for number in range(getattr(image, "n_frames", 1) if every else 1):
            if number:
                image.seek(number)
            yield upright(image)


@contextmanager
def opened(source: Path | bytes) -> Iterator[Any]:
    """Open a picture of any format that needs no other program; only its head is read. Use it within `refusals`."""
    images = pillow()
    formats = [name for name in images.ID if name not in _PROGRAMS]
    with _stream(source) as stream, images.open(stream, formats=formats) as image:
        yield image


def _stream(source: Path | bytes) -> IO[bytes]:
    return io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")


def upright(image: Image) -> Image:
    """Return an image turned as its Exif data say; without such data, or with broken ones, the image itself.

    The result has the pixels of ``PIL.ImageOps.exif_transpose``.
    """
    image.load()
    try:
        turn = _TURNS.get(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # Pillow's readers of metadata raise many kinds of errors for broken ones
        turn = None
    return image if turn is None else image.transpose(getattr(pillow().Transpose, turn))


@contextmanager
def refusals(name: str, path: Path | None = None) -> Iterator[None]:
    """Turn every error of Pillow inside the block into one of fpstore.

    Raises
    ------
    InputError
        Its attribute ``reason`` is "other" (no picture), "large" (for the limits of Pillow, or for the memory) or "broken".
    StorageError
        The system cannot read the file.
    """
    images = pillow()
    try:
        yield
    except FpstoreError:
        raise
    except (images.DecompressionBombError, images.DecompressionBombWarning) as error:
        advice = "raise PIL.Image.MAX_IMAGE_PIXELS if it is to be trusted"
        raise InputError(f"{name}: {_told(error)}: {advice}", path=path, reason="large") from error
    except MemoryError as error:
        raise InputError(f"{name}: takes more memory than there is", path=path, reason="large") from error
    except Exception as error:  # Pillow's readers raise many kinds of errors for broken files
        if isinstance(error, OSError) and error.errno is not None:
            raise refused(path, error) from error
        unknown = isinstance(error, import_package("PIL", "ImageHash").UnidentifiedImageError)
        if unknown and (path is None or path.suffix.lower() not in images.registered_extensions()):
            raise InputError(f"{name}: is no picture of a format that Pillow reads", path=path, reason="other") from error
        said = "Pillow does not recognize its content" if unknown else _told(error)
        raise InputError(f"{name}: the picture is broken ({said})", path=path, reason="broken") from error


def _told(error: Exception) -> str:
    return one_line(str(error)).removesuffix(".") or type(error).__name__
