"""Near-duplicates made from pictures: other sizes, JPEG, lost edges, blur, other light, watermarks, slight turns."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from fpstore import _kernel
from fpstore.calibration.perturbations import kind_and_amount
from fpstore.calibration.seeded import Draws
from fpstore.errors import InputError, show

if TYPE_CHECKING:
    from PIL.Image import Image

_WHITE, _BLACK = (255, 255, 255, 128), (0, 0, 0, 160)  # of a watermark: half transparent, with darker letters
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_WORD_LETTERS, _WATERMARK_WORDS, _MARGIN = 8, 4, 2


class _Case(NamedTuple):
    """A picture to change, how much, and with which random numbers."""

    picture: Image
    amount: float
    draws: Draws


def _resize(case: _Case) -> Image:
    """Scale both sides."""
    width, height = (max(round(side * case.amount), 1) for side in case.picture.size)
    return case.picture.resize((width, height))


def _jpeg(case: _Case) -> Image:
    """Save as JPEG with a quality, and read again."""
    from PIL.Image import open as open_image

    stream = io.BytesIO()
    case.picture.save(stream, "JPEG", quality=int(case.amount))
    with open_image(stream) as decoded:
        return decoded.convert("RGB")


def _crop(case: _Case) -> Image:
    """Cut off a share of the width and of the height, of each at both sides or one."""
    box = []
    for side in case.picture.size:
        lost = min(round(side * case.amount), side - 1)
        first = case.draws.below(lost + 1)
        box.append((first, first + side - lost))
    (left, right), (top, bottom) = box
    return case.picture.crop((left, top, right, bottom))


def _blur(case: _Case) -> Image:
    """Blur with a Gaussian of this standard deviation in pixels."""
    from PIL.ImageFilter import GaussianBlur

    return case.picture.filter(GaussianBlur(case.amount))


def _brightness(case: _Case) -> Image:
    """Multiply all brightnesses."""
    from PIL.ImageEnhance import Brightness

    return Brightness(case.picture).enhance(case.amount)


def _watermark(case: _Case) -> Image:
    """Lay a half transparent bar with letters over a share of the height, anywhere."""
    width, height = case.picture.size
    thick = max(round(height * case.amount), 1)
    top = case.draws.below(height - thick + 1)
    bar = _bar(case.draws).resize((width, thick))
    whole = case.picture.convert("RGBA")
    whole.alpha_composite(bar, (0, top))
    return whole.convert("RGB")


def _bar(draws: Draws) -> Image:
    """Return a bar with some words of random letters."""
    from PIL.Image import new
    from PIL.ImageDraw import Draw

    words = ("".join(draws.pick(_LETTERS) for _ in range(_WORD_LETTERS)) for _ in range(_WATERMARK_WORDS))
    text = "   ".join(words)
    _, _, right, bottom = Draw(new("RGBA", (1, 1))).textbbox((0, 0), text)
    bar = new("RGBA", (int(right) + 2 * _MARGIN, int(bottom) + 2 * _MARGIN), _WHITE)
    Draw(bar).text((_MARGIN, _MARGIN), text, fill=_BLACK)
    return bar


def _rotate(case: _Case) -> Image:
    """Turn by some degrees to the left or right; the corners become black."""
    from PIL.Image import Resampling

    degrees = case.amount if case.draws.below(2) else -case.amount
    return case.picture.rotate(degrees, Resampling.BICUBIC)


def _grey(case: _Case) -> Image:
    """Take all colour away."""
    return case.picture.convert("L").convert("RGB")


def _mirror(case: _Case) -> Image:
    """Exchange left and right."""
    from PIL.Image import Transpose

    return case.picture.transpose(Transpose.FLIP_LEFT_RIGHT)


class _Kind(NamedTuple):
    """A kind of change: its function, its amounts in words, an example, the bounds, and whether the amount is a share."""

    make: Callable[[_Case], Image]
    takes: str = ""
    example: str = ""
    least: float = 0.0
    most: float = 0.0
    share: bool = False


_KINDS = {
    "resize": _Kind(_resize, "a factor from 0.01 to 4", "0.5", 0.01, 4, share=True),
    "jpeg": _Kind(_jpeg, "a quality from 1 to 95", "75", 1, 95),
    "crop": _Kind(_crop, "a share from 0.001 to 0.9", "0.05", 0.001, 0.9, share=True),
    "blur": _Kind(_blur, "pixels from 0.1 to 100", "2", 0.1, 100),
    "brightness": _Kind(_brightness, "a factor from 0.05 to 10", "1.2", 0.05, 10, share=True),
    "watermark": _Kind(_watermark, "a share of the height from 0.01 to 1", "0.1", 0.01, 1, share=True),
    "rotate": _Kind(_rotate, "degrees from 0.1 to 45", "1", 0.1, 45),
    "grey": _Kind(_grey),
    "mirror": _Kind(_mirror),
}
IMAGE_KINDS = tuple(_KINDS)


class ImageChange(NamedTuple):
    """A way to make a near-duplicate of a picture.

    Attributes
    ----------
    kind : str
        One of :data:`IMAGE_KINDS`.
    amount : float
        ``resize`` and ``brightness``: a factor; ``crop``: the share of the width and of the height that is lost; ``watermark``:
        that of the height which is covered; ``jpeg``: the quality; ``blur``: the standard deviation in pixels; ``rotate``:
        degrees; ``grey`` and ``mirror``: 0.
    """

    kind: str
    amount: float = 0.0

    @property
    def name(self) -> str:
        """The kind and the amount, for people."""
        kind = _KINDS[self.kind]
        if not kind.takes:
            return self.kind
        return f"{self.kind} {100 * self.amount:.3g}%" if kind.share else f"{self.kind} {self.amount:.3g}"

    def copy(self, picture: Image, seed: int = 0) -> Image | None:
        """Return a changed copy of a picture.

        Parameters
        ----------
        picture : PIL.Image.Image
            In the mode RGB.
        seed : int
            The same seed and picture give the same copy, with the same version of Pillow; other pictures lose other edges.

        Returns
        -------
        PIL.Image.Image or None
            In the mode RGB. None if the copy would be equal, such as the grey copy of a grey picture.
        """
        data = picture.tobytes()
        draws = Draws(seed, self.kind, str(self.amount), _kernel.xxh64(data))
        made = _KINDS[self.kind].make(_Case(picture, self.amount, draws))
        return None if made.size == picture.size and made.tobytes() == data else made


def parse_image_change(text: str) -> ImageChange:
    """Return a change given as ``resize=0.5`` or ``grey``, or by its name, ``resize 50%``; InputError says what is wrong."""
    name, amount = kind_and_amount(text)
    kind = _KINDS.get(name)
    if kind is None:
        raise InputError(
            f"a change of pictures is one of {', '.join(IMAGE_KINDS)}, as resize=0.5 or grey: got {show(text)}", got=text
        )
    if not kind.takes:
        if amount is not None:
            raise InputError(f"{name} takes no amount: got {show(text)}", got=text)
        return ImageChange(name)
    if amount is None or not kind.least <= amount <= kind.most or (name == "jpeg" and amount != int(amount)):
        raise InputError(f"{name} takes {kind.takes}, as {name}={kind.example}: got {show(text)}", got=text)
    return ImageChange(name, amount)


#: The changes of a calibration for pictures that names none.
IMAGE_CHANGES = tuple(
    map(
        parse_image_change,
        ("resize=0.5", "resize=0.125", "jpeg=75", "jpeg=20", "crop=0.02", "crop=0.06", "blur=2", "brightness=0.8",
         "brightness=1.2", "watermark=0.1", "grey"),
    )
)  # fmt: skip
