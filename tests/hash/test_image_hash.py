"""fpstore.ImageHash: the fingerprints of the packages, bit for bit, from every kind of picture."""

import io
import subprocess
import sys

import imagehash
import numpy as np
import pdqhash
import pytest
from drawing import animation, decoded, drawn, encoded, noise, scene, with_orientation
from PIL import Image, ImageFilter, ImageOps
from speeds import crossed

import fpstore
from fpstore import ImageHash
from fpstore.errors import InputError, StorageError
from fpstore.hashing import from_description
from fpstore.hashing.image import detail

FUNCTIONS = {
    "average": imagehash.average_hash,
    "difference": imagehash.dhash,
    "difference-vertical": imagehash.dhash_vertical,
    "perceptual": imagehash.phash,
    "wavelet": imagehash.whash,
}
CASES = [(method, width) for method in FUNCTIONS for width in (64, 256)] + [("color", 64), ("pdq", 256)]
PICTURES = drawn()


def by_the_package(picture, method, width):
    """Return what the package makes of a picture as it is."""
    if method == "pdq":
        bits, _ = pdqhash.compute(np.asarray(picture.convert("RGB")))
        return int("".join(str(int(bit)) for bit in bits), 2)
    if method == "color":
        return int(str(imagehash.colorhash(picture, binbits=4)), 16)
    return int(str(FUNCTIONS[method](picture, hash_size=8 if width == 64 else 16)), 16)


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


@pytest.mark.parametrize(("case", "threads"), crossed(CASES, [1, 2, 5]))
def test_many_fingerprints_are_the_single_ones_whatever_the_threads(case, threads):
    method, width = case
    hasher = ImageHash(method=method, width=width)
    pictures = [noise(seed) for seed in range(20)] + [noise(1)] * 3
    items = [encoded(p) if i % 2 else p for i, p in enumerate(pictures)] + [decoded(encoded(noise(50)))] * 9
    found = hasher.fingerprints(items, threads=threads)
    single = [hasher.fingerprint(item) for item in items]
    assert (found.tolist() if width == 64 else [int.from_bytes(row.tobytes(), "big") for row in found]) == single
    assert len(set(single)) > 10


def test_the_width_follows_from_the_method_and_is_checked():
    assert ImageHash() == ImageHash(method="perceptual", width=64, frame="first")
    assert ImageHash(method="pdq") == ImageHash(method="pdq", width=256, min_quality=50)
    assert ImageHash(method="pdq").usual_radius == 31
    with pytest.raises(InputError, match="the method pdq has 256 bits, got width=64"):
        ImageHash(method="pdq", width=64)
    with pytest.raises(InputError, match="the method color has 64 bits: it has 14 numbers of equal size, and 56"):
        ImageHash(method="color", width=256)
    with pytest.raises(InputError, match="the method average has 64 or 256 bits, got width=128"):
        ImageHash(method="average", width=128)
    with pytest.raises(InputError, match=r"method must be one of average, .* got 'phash'"):
        ImageHash(method="phash")
    with pytest.raises(InputError, match="frame must be one of first, all"):
        ImageHash(frame="last")
    assert (ImageHash().min_quality, ImageHash(method="color").min_quality) == (4, None)
    with pytest.raises(InputError, match="min_quality is for brightnesses, and the method color compares none"):
        ImageHash(method="color", min_quality=0)
    for method in ("average", "wavelet", "pdq"):
        assert ImageHash(method=method, min_quality=100).is_empty(scene(1).filter(ImageFilter.GaussianBlur(30)))
    with pytest.raises(InputError, match="min_quality must be a whole number"):
        ImageHash(method="pdq", min_quality=101)


def test_a_colour_hash_has_the_distances_of_the_package():
    a, b = scene(1), scene(2)
    distance = (ImageHash(method="color").fingerprint(a) ^ ImageHash(method="color").fingerprint(b)).bit_count()
    assert distance == imagehash.colorhash(a, binbits=4) - imagehash.colorhash(b, binbits=4) > 0
    assert ImageHash(method="color").fingerprint(Image.new("RGB", (9, 9), "red")) != 0


def test_every_form_of_a_picture_has_the_same_fingerprint(tmp_path):
    path = tmp_path / "p\xe9.png"
    data = encoded(scene(5))
    path.write_bytes(data)
    with path.open("rb") as stream:
        items = [decoded(data), data, bytearray(data), memoryview(data), path, str(path), stream, stream, io.BytesIO(data)]
        found = ImageHash().fingerprints(items, threads=2)
        assert len(set(found.tolist())) == 1
        assert ImageHash().fingerprint(stream) == found[0]
        stream.read()
        assert ImageHash().fingerprint(stream) == found[0]  # read from its beginning


@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_are_turned_upright(orientation):
    data = with_orientation(scene(7), orientation)
    upright = ImageOps.exif_transpose(decoded(data))
    for method in ("difference", "perceptual"):
        expected = by_the_package(upright, method, 64)
        assert ImageHash(method=method).fingerprints([data, decoded(data)]).tolist() == [expected, expected]
    if orientation > 1:
        assert by_the_package(decoded(data), "difference", 64) != by_the_package(upright, "difference", 64)


def test_broken_exif_data_do_not_hide_a_picture():
    data = with_orientation(scene(7), 6).replace(b"Exif\0\0II", b"Exif\0\0XX").replace(b"Exif\0\0MM", b"Exif\0\0XX")
    assert data != with_orientation(scene(7), 6)
    assert ImageHash().fingerprint(data) == by_the_package(decoded(data), "perceptual", 64)


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
    with pytest.raises(InputError, match=r"item 1: .* has 4 frames, and frame='all' asks for each: read it with ImageReader"):
        ImageHash(frame="all").fingerprints([encoded(scene(1)), data])
    image.seek(2)
    assert ImageHash().fingerprint(image) == frames[2]  # an image is the frame that it shows

    def shown():
        image = decoded(data)
        for number in range(4):
            image.seek(number)
            yield image

    assert ImageHash().fingerprints(shown(), threads=2).tolist() == frames


# ---- pictures without a fingerprint ----


@pytest.mark.parametrize(("method", "width"), [case for case in CASES if case[0] != "color"])
@pytest.mark.parametrize("colour", ["black", "white", "#808080", "#0000ff"])
def test_blank_pictures_have_no_fingerprint(method, width, colour):
    hasher, blank = ImageHash(method=method, width=width), Image.new("RGB", (300, 200), colour)
    assert hasher.is_empty(blank)
    known = hasher.fingerprints([blank, noise(1)], empty="mask")[1]
    assert known.tolist() == [False, True]
    reason = "has the quality 0 for PDQ, below min_quality=50" if method == "pdq" else "is blank: all brightnesses"
    with pytest.raises(InputError, match=rf"^item 1: an image of 300 x 200 pixels {reason}"):
        hasher.fingerprints([noise(1), blank])
    with pytest.raises(InputError, match=rf"^an image of 300 x 200 pixels {reason}"):
        hasher.fingerprint(blank)


def test_what_the_method_does_not_see_is_blank():
    stripes = Image.linear_gradient("L")  # brighter from row to row
    assert ImageHash(method="difference").is_empty(stripes)
    assert not ImageHash(method="difference-vertical", min_quality=0).is_empty(stripes)
    assert ImageHash(method="difference-vertical").is_empty(stripes.rotate(90))
    speck = Image.new("L", (2000, 2000), 255)
    speck.putpixel((700, 700), 254)
    for method in ("average", "difference", "perceptual"):
        assert ImageHash(method=method).is_empty(speck)


def surface(kind, seed, size=(200, 150)):
    """Draw what has no content: a gradient to some side, rings of light around a point, or grain on one colour."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0 : size[1], 0 : size[0]] / max(size)
    if kind == "linear":
        values = 128 + 60 * rng.uniform(-1, 1) * x + 60 * rng.uniform(-1, 1) * y
    elif kind == "radial":
        values = 60 + 50 * np.hypot(x - rng.random(), y - rng.random())
    else:
        values = 120 + rng.normal(0, 3, x.shape)
    return Image.fromarray(values.clip(0, 255).astype(np.uint8))


@pytest.mark.parametrize(("method", "width"), [case for case in CASES if case[0] not in ("color", "pdq")])
def test_nearly_blank_pictures_have_no_fingerprint_unless_asked_for(method, width):
    flat = [surface(kind, seed) for kind in ("linear", "radial", "grain") for seed in range(8)]
    hasher, all_of_them = ImageHash(method=method, width=width), ImageHash(method=method, width=width, min_quality=0)
    assert not hasher.fingerprints(flat, empty="mask")[1].any()
    assert all_of_them.fingerprints(flat, empty="mask")[1].all()
    with pytest.raises(InputError, match=r"has \d grey levels of detail, below min_quality=4: leave it out"):
        hasher.fingerprint(flat[0])
    scenes = [scene(seed) for seed in range(8)]
    assert hasher.fingerprints(scenes).tolist() == all_of_them.fingerprints(scenes).tolist()


def test_detail_is_what_no_smooth_surface_explains():
    for picture in [
        surface("radial", 1),
        scene(1),
        scene(2).filter(ImageFilter.GaussianBlur(30)),
        noise(1, (9, 7)),
        Image.new("L", (5, 5), 9),
    ]:
        grey = picture.convert("L")
        values = np.asarray(grey.resize((32, 32), Image.Resampling.BOX), float)
        y, x = np.mgrid[0:32, 0:32]
        columns = np.stack([x**a * y**b for a, b in ((0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (0, 2))], -1).reshape(1024, 6)
        rest = values.reshape(-1) - columns @ np.linalg.lstsq(columns.astype(float), values.reshape(-1))[0]
        assert detail(grey) == int(rest.std() + 1e-6)


def test_pdq_leaves_out_pictures_of_low_quality():
    dull = scene(8).filter(ImageFilter.GaussianBlur(40))
    _, quality = pdqhash.compute(np.asarray(dull))
    assert 0 < quality < 50
    assert ImageHash(method="pdq").is_empty(dull)
    assert ImageHash(method="pdq", min_quality=quality + 1).is_empty(dull)
    assert ImageHash(method="pdq", min_quality=quality).fingerprint(dull) == by_the_package(dull, "pdq", 256)
    assert ImageHash(method="pdq", min_quality=0).is_empty(noise(1, (4, 4)))  # PDQ hashes none so small


def test_wavelets_need_as_many_pixels_as_bits():
    assert ImageHash(method="wavelet").fingerprint(noise(1, (8, 20)))
    with pytest.raises(InputError, match="has 7 x 20 pixels, and the method wavelet needs 8 x 8"):
        ImageHash(method="wavelet").fingerprint(noise(1, (7, 20)))
    assert ImageHash(method="wavelet", width=256).is_empty(noise(1, (15, 99)))


# ---- wrong items ----


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (5, "item 0: a picture is an image of Pillow, a path, bytes, or a file .* got int"),
        (None, "got NoneType"),
        (np.zeros((9, 9)), "got ndarray"),
        (io.StringIO("text"), "an open file: open it for reading bytes"),
        (b"", "item 0: a picture of 0 bytes: is no picture of a format that Pillow reads"),
        (b"text of some length", "is no picture"),
        ("", "path is empty"),
    ],
)
def test_what_is_no_picture_is_refused(item, message):
    with pytest.raises(InputError, match=message):
        ImageHash().fingerprints([item], empty="mask")


def test_a_single_picture_is_not_taken_for_many(tmp_path):
    data = encoded(scene(1))
    for single in (data, "a.png", io.BytesIO(data), decoded(data), tmp_path / "a.png"):
        with pytest.raises(InputError, match="takes an iterable of pictures"):
            ImageHash().fingerprints(single)


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
        with pytest.raises(InputError, match=r"item 0: .* exceeds limit of .*: raise PIL\.Image\.MAX_IMAGE_PIXELS") as caught:
            ImageHash().fingerprints([data], threads=threads)
        assert caught.value.reason == "large"


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP", "PPM", "ICO", "TGA", "PCX", "JPEG2000"])
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
    with pytest.raises(InputError, match=r"half\.jpg: the picture is broken \(.*truncated") as caught:
        ImageHash().fingerprint(path)
    assert (caught.value.reason, caught.value.path) == ("broken", path)
    path.write_bytes(b"")
    with pytest.raises(InputError, match=r"half\.jpg: the picture is broken \(Pillow does not recognize its content\)"):
        ImageHash().fingerprint(path)


def test_no_program_is_started_for_a_picture():
    assert Image.open(io.BytesIO(encoded(scene(1), "EPS"))).format == "EPS"
    with pytest.raises(InputError, match="is no picture of a format"):
        ImageHash().fingerprint(encoded(scene(1), "EPS"))


@pytest.mark.parametrize(
    ("missing", "method", "packages"),
    [("PIL", "average", "pillow ImageHash"), ("imagehash", "average", "imagehash"), ("pdqhash", "pdq", "pdqhash")],
)
def test_the_error_for_a_missing_package_says_what_to_install(tmp_path, missing, method, packages):
    (tmp_path / "a.png").write_bytes(encoded(scene(1)))
    code = f"""
import sys
sys.modules[{missing!r}] = None
import fpstore
try:
    fpstore.ImageHash(method={method!r}).fingerprint({str(tmp_path / "a.png")!r})
except fpstore.MissingExtraError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith(f"needs the package {missing}: pip install {packages}\n")


# ---- similar pictures ----


@pytest.mark.parametrize("method", ["difference", "perceptual", "wavelet", "pdq"])
def test_copies_are_within_the_usual_radius_and_others_are_not(method):
    hasher = ImageHash(method=method)
    pictures = [scene(seed) for seed in range(14)]
    others = 0
    numbers = [hasher.fingerprint(picture) for picture in pictures]
    for picture, number in zip(pictures, numbers, strict=True):
        copies = [
            encoded(picture, "JPEG", quality=60),
            picture.resize((200, 150)),
            picture.resize((640, 480), Image.Resampling.BICUBIC),
            picture.convert("L"),
        ]
        distances = [(number ^ hasher.fingerprint(copy)).bit_count() for copy in copies]
        assert max(distances) <= hasher.usual_radius, distances
        others += sum((number ^ other).bit_count() <= hasher.usual_radius for other in numbers) - 1
    assert others <= 0.01 * 14 * 13


def test_a_store_of_pictures(tmp_path):
    hasher = ImageHash(method="pdq")
    pictures = [scene(seed) for seed in range(12)]
    rows = hasher.fingerprints(pictures, threads=2)
    store = fpstore.build(tmp_path / "s", rows, width=256, radius=hasher.usual_radius, fingerprinter=hasher)
    assert from_description(store.fingerprinter) == hasher
    (match,) = store.probe(hasher.fingerprint(pictures[7].resize((200, 150))))
    assert match.ids == [7]
