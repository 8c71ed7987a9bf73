"""Changed copies of pictures: other sizes, JPEG, lost edges, blur, watermarks, frames, turns."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, ClassVar

from fpstore import _kernel
from fpstore.calibration.changes import Change, ChangeKind
from fpstore.calibration.seeded import Draws

if TYPE_CHECKING:
    from PIL.Image import Image

# of a watermark: half transparent, with darker letters
_WHITE, _BLACK = (255, 255, 255, 128), (0, 0, 0, 160)
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_WORD_LETTERS, _WATERMARK_WORDS, _MARGIN = 8, 4, 2


def _resize(picture: Image, amount: float, draws: Draws) -> Image:
    width, height = (max(round(side * amount), 1) for side in picture.size)
    return picture.resize((width, height))


def _jpeg(picture: Image, amount: float, draws: Draws) -> Image:
    from PIL.Image import open as open_image

    stream = io.BytesIO()
    picture.save(stream, "JPEG", quality=int(amount))
    with open_image(stream) as decoded:
        return decoded.convert("RGB")


def _crop(picture: Image, amount: float, draws: Draws) -> Image:
    """Cut off a share of the width and of the height, each at one side or both."""
    box = []
    for side in picture.size:
        lost = min(round(side * amount), side - 1)
        first = draws.below(lost + 1)
        box.append((first, first + side - lost))
    (left, right), (top, bottom) = box
    return picture.crop((left, top, right, bottom))


def _blur(picture: Image, amount: float, draws: Draws) -> Image:
    """Blur with a Gaussian; ``amount`` is its standard deviation in pixels."""
    from PIL.ImageFilter import GaussianBlur

    return picture.filter(GaussianBlur(amount))


def _brightness(picture: Image, amount: float, draws: Draws) -> Image:
    from PIL.ImageEnhance import Brightness

    return Brightness(picture).enhance(amount)


def _watermark(picture: Image, amount: float, draws: Draws) -> Image:
    """Lay a half transparent bar with letters over a share of the height, anywhere."""
    width, height = picture.size
    thick = max(round(height * amount), 1)
    top = draws.below(height - thick + 1)
    bar = _bar(draws).resize((width, thick))
    whole = picture.convert("RGBA")
    whole.alpha_composite(bar, (0, top))
    return whole.convert("RGB")


def _bar(draws: Draws) -> Image:
    """Return a bar with words of random letters."""
    from PIL.Image import new
    from PIL.ImageDraw import Draw

    words = (
        "".join(draws.pick(_LETTERS) for _ in range(_WORD_LETTERS)) for _ in range(_WATERMARK_WORDS)
    )
    text = "   ".join(words)
    _, _, right, bottom = Draw(new("RGBA", (1, 1))).textbbox((0, 0), text)
    bar = new("RGBA", (int(right) + 2 * _MARGIN, int(bottom) + 2 * _MARGIN), _WHITE)
    Draw(bar).text((_MARGIN, _MARGIN), text, fill=_BLACK)
    return bar


def _corner(picture: Image, amount: float, draws: Draws) -> Image:
    """Lay a white box over a share of the width and of the height, in a corner."""
    width, height = (max(round(side * amount), 1) for side in picture.size)
    left, top = (picture.width - width) * draws.below(2), (picture.height - height) * draws.below(2)
    whole = picture.copy()
    whole.paste(_WHITE[:3], (left, top, left + width, top + height))
    return whole


def _border(picture: Image, amount: float, draws: Draws) -> Image:
    """Put a white frame around a picture: at each side a share of the longer one."""
    from PIL.ImageOps import expand

    return expand(picture, max(round(max(picture.size) * amount), 1), _WHITE[:3])


def _caption(picture: Image, amount: float, draws: Draws) -> Image:
    """Put letters on white below a picture: a share of its height."""
    from PIL.Image import new

    width, height = picture.size
    thick = max(round(height * amount), 1)
    whole = new("RGB", (width, height + thick), _WHITE[:3])
    whole.paste(picture, (0, 0))
    bar = _bar(draws).resize((width, thick))
    whole.paste(bar, (0, height), bar)
    return whole


def _turn(picture: Image, amount: float, draws: Draws) -> Image:
    return picture.rotate(amount, expand=True)


def _rotate(picture: Image, amount: float, draws: Draws) -> Image:
    """Turn by some degrees to the left or right; the corners become black."""
    from PIL.Image import Resampling

    degrees = amount if draws.below(2) else -amount
    return picture.rotate(degrees, Resampling.BICUBIC)


def _grey(picture: Image, amount: float, draws: Draws) -> Image:
    return picture.convert("L").convert("RGB")


def _mirror(picture: Image, amount: float, draws: Draws) -> Image:
    from PIL.Image import Transpose

    return picture.transpose(Transpose.FLIP_LEFT_RIGHT)


class ImageChange(Change):
    """A change of pictures."""

    kinds: ClassVar = {
        "resize": ChangeKind(_resize, "a factor from 0.01 to 4", "0.5", 0.01, 4),
        "jpeg": ChangeKind(_jpeg, "a quality from 1 to 95", "75", 1, 95, step=1),
        "crop": ChangeKind(_crop, "a share from 0.001 to 0.9", "0.05", 0.001, 0.9),
        "blur": ChangeKind(_blur, "pixels from 0.1 to 100", "2", 0.1, 100),
        "brightness": ChangeKind(_brightness, "a factor from 0.05 to 10", "1.2", 0.05, 10),
        "watermark": ChangeKind(_watermark, "a share of the height from 0.01 to 1", "0.1", 0.01, 1),
        "rotate": ChangeKind(_rotate, "degrees from 0.1 to 45", "1", 0.1, 45),
        "grey": ChangeKind(_grey),
        "mirror": ChangeKind(_mirror),
        "corner": ChangeKind(_corner, "a share of the sides from 0.01 to 0.9", "0.2", 0.01, 0.9),
        "border": ChangeKind(
            _border, "a share of the longer side from 0.001 to 1", "0.05", 0.001, 1
        ),
        "caption": ChangeKind(_caption, "a share of the height from 0.01 to 1", "0.1", 0.01, 1),
        "turn": ChangeKind(_turn, "90, 180 or 270 degrees", "90", 90, 270, step=90),
    }
    usage = ("a change of pictures", ", as resize=0.5 or grey")

    def copy(self, picture: Image, seed: int = 0) -> Image | None:
        """Return a changed copy of a picture, both in the mode RGB.

        None if it would be equal, such as a grey copy of a grey one. The same seed and picture give
        the same copy, with the same version of Pillow; other pictures lose other edges.
        """
        data = picture.tobytes()
        draws = Draws(seed, self.kind, str(self.amount), _kernel.xxh64(data))
        changed: Image = self.kinds[self.kind].make(picture, self.amount, draws)
        return None if changed.size == picture.size and changed.tobytes() == data else changed


#: The changes of a calibration for pictures that names none.
IMAGE_CHANGES = (
    *("resize=0.5", "resize=0.125", "jpeg=75", "jpeg=20", "crop=0.02", "crop=0.06"),
    *("blur=2", "brightness=0.8", "brightness=1.2", "watermark=0.1", "grey"),
)
