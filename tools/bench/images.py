"""Operation on fingerprints of pictures.

ImageReader beside Pillow's decoding of the same files, one thread and two (images).
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import fpstore
from bench.harness import Bench, Result, ratio
from fpstore.base.pools import map_in_order
from fpstore.hashing import ImageReader
from fpstore.hashing.readers import WAITING_FILES
from fpstore.io import Chunk

PICTURES, SMOKE_PICTURES = 2000, 4
SIZES = ((640, 480), (800, 600), (1024, 768), (1280, 960), (480, 640), (960, 1280))
QUALITY = 85
CANVAS = (1600, 1400)  # from which pictures are cut
CANVASES, SMOKE_CANVASES = 24, 1
SHAPES = 300  # on a canvas: a picture has some dozens
GRAIN = 4.0  # standard deviation of a brightness
CHECKED = 20  # pictures whose fingerprints are compared with those of the package
SETTINGS = (("perceptual", 64), ("difference", 64), ("average", 64), ("wavelet", 64), ("pdq", 256))

Pixels = npt.NDArray[np.uint8]


def images(bench: Bench) -> Result:
    """Hash drawn JPEG pictures of 640 x 480 to 1280 x 960, beside Pillow's decoding alone.

    One thread and two.
    """
    folder = bench.folder / "images"
    folder.mkdir()
    pixels = draw_pictures(folder, bench)
    files = sorted(folder.iterdir())
    out: Result = {
        "pictures": len(files),
        "bytes": sum(file.stat().st_size for file in files),
        "pixels": pixels,
    }
    decode_one, decode_two = _medians(bench, [lambda: _decode(files, 1), lambda: _decode(files, 2)])
    out["decoding"] = {
        "pictures_per_second": round(len(files) / decode_one, 1),
        "megapixels_per_second": round(pixels / decode_one / 1e6, 1),
        "two_threads_faster": ratio(decode_one, decode_two),
    }
    for method, width in SETTINGS:
        try:
            out[f"{method} {width}"] = _method(
                bench, folder, files, fpstore.ImageHash(method=method, width=width)
            )
        except fpstore.MissingExtraError as error:
            out[f"{method} {width}"] = str(error)
    shutil.rmtree(folder)
    return out


def _method(bench: Bench, folder: Path, files: list[Path], hasher: fpstore.ImageHash) -> Result:
    """Return how fast a method is, in turn with decoding.

    What else the machine does then falls on both.
    """
    _check(folder, files, hasher)
    decoding, one, two = _medians(
        bench,
        [
            lambda: _decode(files, 1),
            lambda: _read(folder, hasher, 1),
            lambda: _read(folder, hasher, 2),
        ],
    )
    return {
        "pictures_per_second": round(len(files) / one, 1),
        "decoding_share": ratio(decoding, one),
        "two_threads_faster": ratio(one, two),
    }


def _medians(bench: Bench, works: Sequence[Callable[[], object]]) -> list[float]:
    """Return the median time of each work; they take turns, and the files have been read before."""
    rounds = []
    for _ in range(bench.repeats):
        times = [time.perf_counter()]
        for work in works:
            work()
            times.append(time.perf_counter())
        rounds.append(np.diff(times).tolist())
    return [statistics.median(times) for times in zip(*rounds, strict=True)]


def _decode(files: list[Path], threads: int) -> None:
    from PIL import Image

    def load(path: Path) -> None:
        with Image.open(path) as picture:
            picture.load()

    for _ in map_in_order(load, files, threads, WAITING_FILES):
        pass


def _read(folder: Path, hasher: fpstore.ImageHash, threads: int) -> dict[str, bytes]:
    """Return the fingerprint of each file as bytes."""
    fingerprints: dict[str, bytes] = {}
    for chunk in ImageReader(folder, hasher, threads=threads):
        fingerprints |= {
            name: row.tobytes() for name, row in zip(_names(chunk), chunk.fingerprints, strict=True)
        }
    return fingerprints


def _names(chunk: Chunk) -> list[str]:
    assert isinstance(chunk.ids, list)
    return chunk.ids


def _check(folder: Path, files: list[Path], hasher: fpstore.ImageHash) -> None:
    """Compare one thread with two, and with what the packages return."""
    fingerprints = _read(folder, hasher, 1)
    if fingerprints != _read(folder, hasher, 2) or not fingerprints:
        raise AssertionError(f"{hasher.method}: two threads give other fingerprints than one")
    from PIL import Image

    for file in files[:CHECKED]:
        with Image.open(file) as picture:
            if hasher.method == "pdq":
                # larger ones are hashed after they were made smaller, by `ImageHash` alone
                picture.thumbnail((1024, 1024))
            taken = picture if hasher.method == "pdq" else file
            if str(file) in fingerprints and hasher.fingerprint(taken) != _of_package(
                picture, hasher
            ):
                raise AssertionError(f"{hasher.method}: the package gives another fingerprint")


def _of_package(picture: Any, hasher: fpstore.ImageHash) -> int:
    if hasher.method == "pdq":
        import pdqhash

        bits, _ = pdqhash.compute(np.asarray(picture.convert("RGB")))
        return int("".join(map(str, bits)), 2)
    import imagehash

    names = {
        "perceptual": "phash",
        "difference": "dhash",
        "average": "average_hash",
        "wavelet": "whash",
    }
    made = getattr(imagehash, names[hasher.method])(
        picture, hash_size=8 if hasher.width == 64 else 16
    )
    return int(str(made), 16)


def draw_pictures(folder: Path, bench: Bench) -> int:
    """Write pictures of seeded scenes, each a part of a canvas with light and colours of its own.

    Return their pixels.
    """
    from PIL import Image

    rng = np.random.default_rng([bench.seed, len("images")])
    canvases = list(_canvases(rng, SMOKE_CANVASES if bench.smoke else CANVASES))
    pixels = 0
    for number in range(SMOKE_PICTURES if bench.smoke else PICTURES):
        width, height = SIZES[number % len(SIZES)]
        canvas = canvases[int(rng.integers(len(canvases)))]
        x, y = int(rng.integers(CANVAS[0] - width + 1)), int(rng.integers(CANVAS[1] - height + 1))
        part = canvas[y : y + height, x : x + width, rng.permutation(3)]
        darker = part[:, :: int(rng.choice([-1, 1]))] * rng.uniform(0.6, 1.0)
        Image.fromarray(darker.astype(np.uint8)).save(
            folder / f"{number:05}.jpg", "JPEG", quality=QUALITY
        )
        pixels += width * height
    return pixels


def _canvases(rng: np.random.Generator, count: int) -> Iterator[Pixels]:
    """Yield scenes with the slow light, the edges and the grain of photographs."""
    from PIL import Image, ImageDraw, ImageFilter

    width, height = CANVAS
    for _ in range(count):
        light = Image.fromarray(rng.integers(0, 256, (6, 7, 3), np.uint8))
        picture = light.resize(CANVAS, Image.Resampling.BICUBIC)
        draw = ImageDraw.Draw(picture)
        for _ in range(SHAPES):
            x, y = int(rng.integers(width)), int(rng.integers(height))
            box = (
                x,
                y,
                x + int(rng.integers(8, width // 6)),
                y + int(rng.integers(8, height // 6)),
            )
            colour = tuple(rng.integers(0, 256, 3).tolist())
            (draw.ellipse if rng.random() < 0.5 else draw.rectangle)(box, fill=colour)
        soft = np.asarray(picture.filter(ImageFilter.GaussianBlur(1.2)), np.float32)
        yield np.clip(soft + rng.normal(0, GRAIN, soft.shape), 0, 255).astype(np.uint8)
