"""fpstore.ImageHash: the fingerprints of the packages, bit for bit, from every kind of picture."""

import io
import subprocess
import sys

import imagehash
import numpy as np
import pdqhash
import pytest
from drawing import animation, decoded, encoded, noise, pictures, scene, with_orientation
from PIL import Image, ImageCms, ImageFilter, ImageOps, JpegImagePlugin
from speeds import crossed, slow

from fpstore import ImageHash
from fpstore.errors import InputError, StorageError
from fpstore.hashing import from_description

FUNCTIONS = {
    "average": imagehash.average_hash,
    "difference": imagehash.dhash,
    "difference-vertical": imagehash.dhash_vertical,
    "perceptual": imagehash.phash,
    "perceptual-mean": imagehash.phash_simple,
    "wavelet": imagehash.whash,
}
CASES = [(method, width) for method in FUNCTIONS for width in (64, 256)] + [
    ("color", 64),
    ("pdq", 256),
]
# these are scaled
PICTURES = {
    name: picture for name, picture in pictures().items() if picture.mode not in ("I", "F", "I;16")
}


def by_the_package(picture, method, width):
    """Return what the package makes of a picture as it is."""
    if method == "pdq":
        bits, _ = pdqhash.compute(np.asarray(picture.convert("RGB")))
        return int("".join(str(int(bit)) for bit in bits), 2)
    if method == "color":
        return int(str(imagehash.colorhash(picture, binbits=4)), 16)
    return int(str(FUNCTIONS[method](picture, hash_size=8 if width == 64 else 16)), 16)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("method", "width"), CASES)
def test_fingerprints_are_those_of_the_packages(method, width):
    hasher = ImageHash(method=method, width=width, min_quality=0 if method == "pdq" else None)
    compared = 0
    for name, picture in PICTURES.items():
        if not hasher.is_empty(picture):
            assert hasher.fingerprint(picture) == by_the_package(picture, method, width), name
            compared += 1
    assert compared >= len(PICTURES) - 5
    assert hasher.width == width
    assert from_description(hasher.describe()) == hasher


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("case", "threads"), crossed(CASES, [1, 2, 5], share=6))
def test_batch_fingerprints_equal_single_ones_on_any_threads(case, threads):
    method, width = case
    hasher = ImageHash(method=method, width=width)
    pictures = [noise(seed) for seed in range(20)] + [noise(1)] * 3
    items = [encoded(p) if i % 2 else p for i, p in enumerate(pictures)] + [
        decoded(encoded(noise(50)))
    ] * 9
    fingerprints = hasher.fingerprints(items, threads=threads)
    numbers = [hasher.fingerprint(item) for item in items]
    assert (
        fingerprints.tolist()
        if width == 64
        else [int.from_bytes(row.tobytes(), "big") for row in fingerprints]
    ) == numbers
    assert len(set(numbers)) > 10


def test_the_width_follows_from_the_method_and_is_checked():
    assert ImageHash() == ImageHash(method="perceptual", width=64, frame="first", min_quality=4)
    assert ImageHash(method="pdq") == ImageHash(method="pdq", width=256, min_quality=20)
    assert ImageHash(method="pdq").usual_radius == 31
    assert ImageHash(method="color").min_quality is None
    for parameters, message in (
        ({"method": "pdq", "width": 64}, "the method pdq has 256 bits, got width=64"),
        (
            {"method": "color", "width": 256},
            "the method color has 64 bits: it has 14 numbers of equal size, and 56",
        ),
        (
            {"method": "average", "width": 128},
            "the method average has 64 or 256 bits, got width=128",
        ),
        ({"method": "phash"}, "method must be one of average, .* got 'phash'"),
        ({"frame": "last"}, "frame must be one of first, all"),
        (
            {"method": "color", "min_quality": 0},
            "min_quality is for brightnesses, and the method color compares none",
        ),
        ({"method": "pdq", "min_quality": 101}, "min_quality must be a whole number"),
    ):
        with pytest.raises(InputError, match=message):
            ImageHash(**parameters)
    for method in ("average", "wavelet", "pdq"):
        assert ImageHash(method=method, min_quality=100).is_empty(
            scene(1).filter(ImageFilter.GaussianBlur(30))
        )


def test_every_form_of_a_picture_has_the_same_fingerprint(tmp_path):
    path = tmp_path / "p\xe9.png"
    data = encoded(scene(5))
    path.write_bytes(data)
    with path.open("rb") as stream:
        items = [
            decoded(data),
            data,
            bytearray(data),
            memoryview(data),
            path,
            str(path),
            stream,
            stream,
            io.BytesIO(data),
        ]
        fingerprints = ImageHash().fingerprints(items, threads=2)
        assert len(set(fingerprints.tolist())) == 1
        assert ImageHash().fingerprint(stream) == fingerprints[0]
        stream.read()
        assert ImageHash().fingerprint(stream) == fingerprints[0]  # read from its beginning


def test_pictures_are_turned_upright():
    for orientation in range(1, 9):
        data = with_orientation(scene(7), orientation)
        upright = ImageOps.exif_transpose(decoded(data))
        for method in ("difference", "perceptual"):
            expected = by_the_package(upright, method, 64)
            assert ImageHash(method=method).fingerprints([data, decoded(data)]).tolist() == [
                expected,
                expected,
            ]
        if orientation > 1:
            assert by_the_package(decoded(data), "difference", 64) != by_the_package(
                upright, "difference", 64
            )
    # broken data hide no picture
    data = data.replace(b"Exif\0\0II", b"Exif\0\0XX").replace(b"Exif\0\0MM", b"Exif\0\0XX")
    assert ImageHash().fingerprint(data) == by_the_package(decoded(data), "perceptual", 64)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("form", ["GIF", "TIFF", "PNG", "WEBP"])
def test_the_first_frame_of_an_animation_is_hashed(form):
    data = animation(4, form)
    image = decoded(data)
    assert image.n_frames == 4
    frames = []
    for number in range(4):
        image.seek(number)
        frames.append(by_the_package(image, "perceptual", 64))
    assert len(set(frames)) == 4
    assert ImageHash().fingerprint(data) == frames[0]
    with pytest.raises(
        InputError,
        match=r"item 1: .* has 4 frames, and frame='all' asks for each: read it with ImageReader",
    ):
        ImageHash(frame="all").fingerprints([encoded(scene(1)), data])
    with pytest.raises(InputError, match="has 2 frames"):
        ImageHash(frame="all").fingerprint(animation(2, form))
    image.seek(2)
    assert ImageHash().fingerprint(image) == frames[2]  # an image is the frame that it shows

    def shown():
        image = decoded(data)
        for number in range(4):
            image.seek(number)
            yield image

    assert ImageHash().fingerprints(shown(), threads=2).tolist() == frames


# ---- pictures of more than 8 bits, and large ones ----

GREY = ImageOps.autocontrast(scene(20).convert("L"))  # from 0 to 255
VALUES = np.asarray(GREY)
DEEP = {
    "PNG of 16 bits": encoded(Image.fromarray(VALUES.astype(np.uint16) * 257)),
    "TIFF of 16 bits": encoded(Image.fromarray(VALUES.astype(np.uint16) * 257), "TIFF"),
    "PNG of 12 bits in 16": encoded(Image.fromarray(VALUES.astype(np.uint16) * 16 + 15)),
    "TIFF of 10 bits in 16": encoded(Image.fromarray(VALUES.astype(np.uint16) * 4 + 3), "TIFF"),
    "PGM of 16 bits": b"P5 320 240 65535\n" + (VALUES.astype(">u2") * 257).tobytes(),
    "TIFF of 32 bits": encoded(
        Image.fromarray(VALUES.astype(np.int32) * 8_000_000 - 2**30), "TIFF"
    ),
    "TIFF of floats": encoded(Image.fromarray(VALUES.astype(np.float32) / 255), "TIFF"),
    "large floats": Image.fromarray((VALUES.astype(np.float32) - 127) * np.float32(2e36)),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", DEEP)
@pytest.mark.parametrize(("method", "width"), CASES)
def test_deep_pictures_hash_as_their_8_bits_do(method, width, name):
    hasher = ImageHash(method=method, width=width)
    assert hasher.fingerprint(DEEP[name]) == hasher.fingerprint(GREY)
    assert hasher.is_empty(Image.new("I;16", (60, 50), 40_000)) == (method != "color")


def test_values_that_are_no_numbers_do_not_hide_a_picture():
    values = VALUES.astype(np.float32) / 255
    values[VALUES == 0], values[VALUES == 255] = np.nan, np.inf
    values[0, :2] = 0, 1
    hasher = ImageHash()
    assert (hasher.fingerprint(Image.fromarray(values)) ^ hasher.fingerprint(GREY)).bit_count() <= 2
    for blank in (np.nan, np.inf, -np.inf, 7.0):
        assert hasher.is_empty(Image.fromarray(np.full((50, 60), blank, np.float32)))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("mode", ["LAB", "HSV", "PA", "La", "RGBa", "RGBX", "CMYK", "I;16B"])
def test_every_mode_of_pillow_has_a_fingerprint(mode):
    if mode == "LAB":
        profiles = ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB")
        picture = ImageCms.profileToProfile(scene(20), *profiles, outputMode="LAB")
    elif mode == "I;16B":
        picture = Image.frombytes(mode, GREY.size, (VALUES.astype(">u2") * 257).tobytes())
    else:
        through = {"PA": "P", "La": "LA", "RGBa": "RGBA"}.get(mode, "RGB")
        picture = scene(20).convert(through).convert(mode)
    assert picture.mode == mode
    for method in ("perceptual", "pdq"):
        apart = ImageHash(method=method).fingerprint(picture) ^ ImageHash(
            method=method
        ).fingerprint(scene(20))
        assert apart.bit_count() <= 10


def smoothed(seed, size):
    return scene(seed, (size[0] // 4, size[1] // 4)).resize(size, Image.Resampling.BICUBIC)


@pytest.mark.full
@pytest.mark.parametrize(
    ("form", "mode"),
    [("PNG", "RGB"), ("PNG", "L"), ("PNG", "P"), ("JPEG", "RGB"), ("JPEG", "CMYK")],
)
def test_pdq_of_large_pictures_is_made_of_smaller_ones(form, mode, monkeypatch):
    hasher, taken = ImageHash(method="pdq"), []
    small = smoothed(3, (1024, 1000)).convert(mode)
    assert hasher.fingerprint(encoded(small, form)) == by_the_package(
        decoded(encoded(small, form)), "pdq", 256
    )
    large = encoded(smoothed(3, (1500, 1600)).convert(mode), form)
    expected, compute = by_the_package(decoded(large), "pdq", 256), pdqhash.compute
    monkeypatch.setattr(
        pdqhash, "compute", lambda pixels: taken.append(pixels.shape) or compute(pixels)
    )
    for item in (large, decoded(large)):
        assert (hasher.fingerprint(item) ^ expected).bit_count() <= 8
    assert max(rows * columns for rows, columns, _ in taken) <= 1 << 20


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("method", "width"), CASES[:-1])
def test_large_jpeg_is_decoded_in_a_smaller_size(method, width, monkeypatch):
    data, sizes = encoded(smoothed(3, (1200, 1000)), "JPEG"), []
    load = JpegImagePlugin.JpegImageFile.load
    monkeypatch.setattr(
        JpegImagePlugin.JpegImageFile, "load", lambda self: sizes.append(self.size) or load(self)
    )
    hasher = ImageHash(method=method, width=width)
    apart = hasher.fingerprint(data) ^ by_the_package(decoded(data), method, width)
    assert apart.bit_count() <= width // 32
    assert sizes[0] == ((1200, 1000) if method == "color" else (600, 500))


# ---- pictures without a fingerprint ----


@pytest.mark.parametrize(
    ("case", "colour"), crossed([*CASES[:-2], CASES[-1]], ["black", "white", "#0000ff"])
)
def test_blank_pictures_have_no_fingerprint(case, colour):
    method, width = case
    hasher, blank = ImageHash(method=method, width=width), Image.new("RGB", (300, 200), colour)
    assert hasher.is_empty(blank)
    known = hasher.fingerprints([blank, noise(1)], empty="mask")[1]
    assert known.tolist() == [False, True]
    reason = (
        "has the quality 0 for PDQ, below min_quality=20"
        if method == "pdq"
        else "is blank: all brightnesses"
    )
    with pytest.raises(InputError, match=rf"^item 1: an image of 300 x 200 pixels {reason}"):
        hasher.fingerprints([noise(1), blank])
    with pytest.raises(InputError, match=rf"^an image of 300 x 200 pixels {reason}"):
        hasher.fingerprint(blank)


def test_stripes_are_blank_to_methods_that_compare_along_them():
    stripes = np.repeat(np.random.default_rng(5).integers(0, 256, (60, 1)).astype(np.uint8), 60, 1)
    results = {
        method: [
            ImageHash(method=method, min_quality=0).is_empty(Image.fromarray(picture))
            for picture in (stripes, stripes.T)
        ]
        for method in (
            "average",
            "perceptual",
            "perceptual-mean",
            "difference",
            "difference-vertical",
        )
    }
    neither = [False, False]
    assert results == {
        "average": neither,
        "perceptual": neither,
        "perceptual-mean": [True, False],
        "difference": [True, False],
        "difference-vertical": [False, True],
    }


def surface(kind, seed, size=(200, 150)):
    """Draw what has no content.

    A gradient to some side, rings of light around a point, or grain on one colour.
    """
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0 : size[1], 0 : size[0]] / max(size)
    if kind == "linear":
        values = 128 + 60 * rng.uniform(-1, 1) * x + 60 * rng.uniform(-1, 1) * y
    elif kind == "radial":
        values = 60 + 50 * np.hypot(x - rng.random(), y - rng.random())
    else:
        values = 120 + rng.normal(0, 3, x.shape)
    return Image.fromarray(values.clip(0, 255).astype(np.uint8))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("method", "width"), [case for case in CASES if case[0] not in ("color", "pdq")]
)
def test_nearly_blank_pictures_have_no_fingerprint_by_default(method, width):
    flat = [surface(kind, seed) for kind in ("linear", "radial", "grain") for seed in range(3)]
    hasher, all_of_them = (
        ImageHash(method=method, width=width),
        ImageHash(method=method, width=width, min_quality=0),
    )
    assert not hasher.fingerprints(flat, empty="mask")[1].any()
    assert all_of_them.fingerprints(flat, empty="mask")[1].all()
    with pytest.raises(
        InputError, match=r"has \d grey levels of detail, below min_quality=4: leave it out"
    ):
        hasher.fingerprint(flat[0])
    scenes = [scene(seed) for seed in range(8)]
    assert hasher.fingerprints(scenes).tolist() == all_of_them.fingerprints(scenes).tolist()


def test_pdq_leaves_out_pictures_of_low_quality():
    dull = scene(8).filter(ImageFilter.GaussianBlur(40))
    _, quality = pdqhash.compute(np.asarray(dull))
    assert 0 < quality < 20
    assert ImageHash(method="pdq").is_empty(dull)
    assert ImageHash(method="pdq", min_quality=quality + 1).is_empty(dull)
    assert ImageHash(method="pdq", min_quality=quality).fingerprint(dull) == by_the_package(
        dull, "pdq", 256
    )
    # PDQ hashes none so small
    assert ImageHash(method="pdq", min_quality=0).is_empty(noise(1, (4, 4)))


# ---- wrong items ----


def test_what_is_no_picture_is_refused(tmp_path):
    for item, message in (
        (5, "item 0: a picture is an image of Pillow, a path, bytes, or a file .* got int"),
        (None, "got NoneType"),
        (np.zeros((9, 9)), "got ndarray"),
        (io.StringIO("text"), "an open file: open it for reading bytes"),
        (b"", "item 0: a picture of 0 bytes: is no picture of a format that Pillow reads"),
        (b"text of some length", "is no picture"),
        ("", "path is empty"),
        # for which Pillow starts a program
        (encoded(scene(1), "EPS"), "is no picture of a format"),
    ):
        with pytest.raises(InputError, match=message):
            ImageHash().fingerprints([item], empty="mask")
    data = encoded(scene(1))
    for picture in (data, "a.png", io.BytesIO(data), decoded(data), tmp_path / "a.png"):
        with pytest.raises(InputError, match="expected an iterable of pictures"):
            ImageHash().fingerprints(picture)
    with pytest.raises(InputError, match="has 7 x 20 pixels, and the method wavelet needs 8 x 8"):
        ImageHash(method="wavelet").fingerprint(noise(1, (7, 20)))


def test_files_that_cannot_be_read_are_storage_errors(tmp_path, with_mode):
    with pytest.raises(StorageError, match=r"none\.png: No such file"):
        ImageHash().fingerprint(tmp_path / "none.png")
    with pytest.raises(StorageError, match="Is a directory"):
        ImageHash().fingerprint(tmp_path)
    (tmp_path / "a.png").write_bytes(encoded(scene(1)))
    with with_mode(tmp_path / "a.png", 0), pytest.raises(StorageError, match="Permission denied"):
        ImageHash().fingerprint(tmp_path / "a.png")
    with (tmp_path / "a.png").open("rb") as stream:
        pass
    with pytest.raises(InputError, match="closed file"):
        ImageHash().fingerprint(stream)


def test_pictures_above_the_limits_of_pillow_are_refused(monkeypatch):
    data = encoded(scene(1))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 320 * 240 // 2 - 1)
    for threads in (1, 2):
        with pytest.raises(
            InputError, match=r"item 0: .* exceeds limit of .*: raise PIL\.Image\.MAX_IMAGE_PIXELS"
        ) as caught:
            ImageHash().fingerprints([data], threads=threads)
        assert caught.value.reason == "large"


@pytest.mark.parametrize(
    "form",
    ["PNG", "JPEG", "WEBP", *map(slow, ["GIF", "TIFF", "BMP", "PPM", "ICO", "TGA", "JPEG2000"])],
)
def test_broken_pictures_are_refused_or_read_but_nothing_else(form):
    data = encoded(scene(3, (64, 48)), form)
    rng = np.random.default_rng(form.encode()[0])
    refused = 0
    cut = [data[: int(end)] for end in rng.integers(0, len(data), 20)]
    for _ in range(60):
        changed = bytearray(data)
        for place in rng.integers(0, min(len(data), 400), 3):
            changed[place] = rng.integers(0, 256)
        cut.append(bytes(changed))
    for broken in cut:
        try:
            ImageHash().is_empty(broken)
        except InputError as error:
            assert error.reason in ("broken", "other", "large")
            refused += 1
    assert refused > 5


def test_truncated_pictures_are_refused(tmp_path):
    path = tmp_path / "half.jpg"
    data = encoded(scene(3), "JPEG")
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(
        InputError, match=r"half\.jpg: the picture is broken \(.*truncated"
    ) as caught:
        ImageHash().fingerprint(path)
    assert (caught.value.reason, caught.value.path) == ("broken", path)
    path.write_bytes(b"")
    with pytest.raises(
        InputError,
        match=r"half\.jpg: the picture is broken \(Pillow does not recognize its content\)",
    ):
        ImageHash().fingerprint(path)


@pytest.mark.full
@pytest.mark.parametrize(
    ("missing", "method", "packages"),
    [
        ("PIL", "average", "pillow ImageHash"),
        ("imagehash", "average", "imagehash"),
        ("pdqhash", "pdq", "pdqhash"),
    ],
)
def test_the_error_for_a_missing_package_says_what_to_install(tmp_path, missing, method, packages):
    (tmp_path / "a.png").write_bytes(encoded(scene(1)))
    code = f"from sys import modules; modules[{missing!r}] = None\nimport fpstore\n"
    code += f"try: fpstore.ImageHash(method={method!r}).fingerprint('a.png')\n"
    code += "except fpstore.MissingExtraError as error: print(error)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.endswith(f"needs the package {missing}: pip install {packages}\n")
