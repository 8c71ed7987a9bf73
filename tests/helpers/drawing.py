"""Drawn pictures: gradients, shapes, noise, and scenes like photographs."""

import io

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "I", "F", "I;16")
ORIENTATION = 0x0112


def scene(seed, size=(320, 240)):
    """Draw something like a photograph.

    Light that changes slowly, objects with edges, and grain.
    """
    rng = np.random.default_rng(seed)
    width, height = size
    coarse = Image.fromarray(rng.integers(0, 256, (4, 5, 3), np.uint8))
    picture = coarse.resize(size, Image.Resampling.BICUBIC)
    draw = ImageDraw.Draw(picture)
    for _ in range(12):
        x, y = int(rng.integers(0, width)), int(rng.integers(0, height))
        w, h = (
            int(rng.integers(width // 20, width // 3)),
            int(rng.integers(height // 20, height // 3)),
        )
        colour = tuple(int(c) for c in rng.integers(0, 256, 3))
        (draw.ellipse if rng.random() < 0.5 else draw.rectangle)((x, y, x + w, y + h), fill=colour)
    grain = rng.normal(0, 4, (height, width, 3))
    return Image.fromarray(
        np.clip(np.asarray(picture.filter(ImageFilter.GaussianBlur(1))) + grain, 0, 255).astype(
            np.uint8
        )
    )


def noise(seed, size=(120, 90)):
    return Image.fromarray(
        np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    )


def in_mode(picture, mode):
    """Convert a picture to a mode, with real transparency, and all of 16 bits."""
    if mode in ("RGBA", "LA"):
        picture = picture.convert(mode)
        picture.putalpha(Image.linear_gradient("L").resize(picture.size))
        return picture
    if mode == "I;16":
        return Image.fromarray(np.asarray(picture.convert("L")).astype(np.uint16) * 200)
    return picture.convert(mode)


def pictures():
    """Return pictures of many kinds, by name."""
    pictures = {
        "linear": Image.linear_gradient("L"),
        "radial": Image.radial_gradient("L"),
        "noise": noise(1),
        "tiny": noise(2, (9, 8)),
        "tall": scene(3, (40, 500)),
        "wide": scene(4, (640, 33)),
    }
    pictures |= {f"scene {seed}": scene(seed) for seed in range(10, 14)}
    return pictures | {f"mode {mode}": in_mode(scene(20), mode) for mode in MODES}


def encoded(picture, form="PNG", **options):
    stream = io.BytesIO()
    picture.save(stream, form, **options)
    return stream.getvalue()


def decoded(data):
    return Image.open(io.BytesIO(data))


def with_orientation(picture, orientation):
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    return encoded(picture, "JPEG", quality=95, exif=exif)


def animation(count=4, form="GIF"):
    first, *others = [scene(seed, (64, 48)) for seed in range(count)]
    return encoded(first, form, save_all=True, append_images=others)
