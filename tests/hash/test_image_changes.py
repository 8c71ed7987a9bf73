"""Changed copies of pictures, each against what Pillow does, and the resemblance of pictures."""

import io
import itertools

import numpy as np
import pytest
from drawing import noise, scene
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from speeds import slow

from fpstore.calibration import image_changes
from fpstore.calibration.image_changes import ImageChange
from fpstore.calibration.pictures import resembling_images, views
from fpstore.errors import InputError

IMAGE_CHANGES = [*map(ImageChange.parse, image_changes.IMAGE_CHANGES)]
PICTURE = scene(1, (200, 150))


def pixels(picture):
    return np.asarray(picture).astype(int)


def copy(text, picture=PICTURE, seed=0):
    made = ImageChange.parse(text).copy(picture, seed)
    assert made is None or made.mode == "RGB"
    return made


def same(one, other):
    return one.size == other.size and (pixels(one) == pixels(other)).all()


def test_sizes_and_light_are_those_of_pillow():
    assert same(copy("resize=0.5"), PICTURE.resize((100, 75)))
    assert copy("resize=0.01").size == (2, 2)
    assert copy("resize=0.01", PICTURE.resize((9, 300))).size == (1, 3)
    assert same(copy("blur=2"), PICTURE.filter(ImageFilter.GaussianBlur(2)))
    assert same(copy("brightness=1.2"), ImageEnhance.Brightness(PICTURE).enhance(1.2))
    assert same(copy("grey"), PICTURE.convert("L").convert("RGB"))
    assert same(copy("mirror"), ImageOps.mirror(PICTURE))
    stream = io.BytesIO()
    PICTURE.save(stream, "JPEG", quality=20)
    assert same(copy("jpeg=20"), Image.open(stream))


@pytest.mark.parametrize("share", [0.05, slow(0.3), slow(0.9)])
def test_a_crop_is_a_part_at_a_random_place(share):
    whole, collected = pixels(PICTURE), set()
    lost = round(200 * share), round(150 * share)
    for seed in range(8):
        part = pixels(copy(f"crop={share}", seed=seed))
        assert part.shape == (150 - lost[1], 200 - lost[0], 3)
        places = [
            (x, y)
            for x in range(lost[0] + 1)
            for y in range(lost[1] + 1)
            if (whole[y, x] == part[0, 0]).all()
            and (whole[y : y + part.shape[0], x : x + part.shape[1]] == part).all()
        ]
        collected |= set(places)
    assert len(collected) > 4
    assert {x for x, _ in collected} != {x for x, _ in collected if x in (0, lost[0])}
    assert same(
        copy("crop=0.9", PICTURE.crop((0, 0, 1, 1)).resize((2, 1))), PICTURE.crop((0, 0, 1, 1))
    )


def test_a_watermark_is_a_band_with_letters():
    tops = set()
    for seed in range(9):
        changed = np.flatnonzero(
            (pixels(copy("watermark=0.1", seed=seed)) != pixels(PICTURE)).any((1, 2))
        )
        assert changed[-1] - changed[0] + 1 == len(changed) == 15
        tops.add(int(changed[0]))
    assert len(tops) > 4
    band = pixels(copy("watermark=1", Image.new("RGB", (300, 60), (0, 0, 0))))
    assert 100 < np.median(band) < 150  # half of white over black
    assert band.min() < 60  # and letters in it


def test_a_turn_goes_either_way():
    ways = [PICTURE.rotate(degrees, Image.Resampling.BICUBIC) for degrees in (2, -2)]
    seen = {
        next(number for number, way in enumerate(ways) if same(way, copy("rotate=2", seed=seed)))
        for seed in range(8)
    }
    assert seen == {0, 1}


def test_the_same_seed_gives_the_same_copy():
    for change in IMAGE_CHANGES:
        assert same(change.copy(PICTURE, 1), change.copy(PICTURE.copy(), 1))
        if change.kind in ("crop", "watermark"):
            assert any(
                not same(change.copy(PICTURE, 1), change.copy(PICTURE, seed))
                for seed in range(2, 5)
            )
    grey = PICTURE.convert("L").convert("RGB")  # a copy that would be equal is none
    assert [
        copy("grey", grey),
        copy("resize=1"),
        copy("brightness=1"),
        copy("mirror", Image.new("RGB", (5, 5))),
    ] == [None] * 4
    assert copy("crop=0.001") is None  # not a pixel


def test_boxes_borders_captions_and_turns_keep_the_picture():
    width, height = PICTURE.size
    boxed = np.asarray(copy("corner=0.25"))
    changed = (boxed != np.asarray(PICTURE)).any(2)
    box = np.ix_(changed.any(1), changed.any(0))
    assert (boxed[box] == 255).all()
    assert [len(box[0]), len(box[1].T)] == [round(height / 4), round(width / 4)]
    assert changed[0].any() or changed[-1].any()
    side = round(max(PICTURE.size) / 10)
    framed = copy("border=0.1")
    assert framed.size == (width + 2 * side, height + 2 * side)
    assert same(framed.crop((side, side, side + width, side + height)), PICTURE)
    assert framed.getpixel((0, 0)) == (255, 255, 255)
    written = copy("caption=0.2")
    assert written.size == (width, height + round(height / 5))
    assert same(written.crop((0, 0, width, height)), PICTURE)
    assert len(set(written.crop((0, height, *written.size)).get_flattened_data())) > 1
    assert same(copy("turn=90"), PICTURE.transpose(Image.Transpose.ROTATE_90))


def test_changes_are_named_and_wrong_ones_refused():
    names = ["resize=0.125", "jpeg=75", "blur=2.5", "mirror"]
    assert [ImageChange.parse(name).name for name in names] == names
    assert {change.kind for change in IMAGE_CHANGES} < set(ImageChange.kinds)
    for text, message in (
        ("", "one of resize, jpeg"),
        ("words=2", "one of resize"),
        ("resize", "a factor from 0.01 to 4, as resize=0.5"),
        ("resize=0", "a factor"),
        ("resize=5", "a factor"),
        ("jpeg=0.5", "a quality"),
        ("jpeg=74.5", "a quality"),
        ("jpeg=96", "a quality"),
        ("crop=0.95", "a share"),
        ("blur=x", "pixels"),
        ("blur=101", "pixels"),
        ("rotate=46", "degrees"),
        ("turn=45", "90, 180 or 270"),
        ("turn=135", "90, 180 or 270"),
        ("corner=1", "a share of the"),
        ("watermark=2", "share of the height"),
        ("brightness=-1", "a factor"),
        ("grey=1", "grey takes no amount"),
        ("mirror=", "mirror takes no amount"),
    ):
        with pytest.raises(InputError, match=message):
            ImageChange.parse(text)


def test_pictures_resemble_as_their_brightnesses_correlate():
    pictures = [scene(seed) for seed in range(6)] + [noise(seed) for seed in range(3)]
    pictures += [change.copy(pictures[number % 6]) for number, change in enumerate(IMAGE_CHANGES)]
    pictures.append(Image.new("RGB", (30, 20), (7, 7, 7)))
    results = [views(picture) for picture in pictures]

    def small(picture, left, top, right, bottom):
        box = (
            left * picture.width,
            top * picture.height,
            right * picture.width,
            bottom * picture.height,
        )
        return pixels(picture.convert("L").resize((32, 32), Image.Resampling.BOX, box)).reshape(-1)

    whole = [small(picture, 0, 0, 1, 1) for picture in pictures[:-1]]
    true = np.corrcoef(whole)
    for x, y in itertools.product((0, 0.03, 0.06), repeat=2):
        crops = [small(picture, x, y, x + 0.94, y + 0.94) for picture in pictures[:-1]]
        between = np.corrcoef(whole, crops)[: len(whole), len(whole) :]
        true = np.max([true, between, between.T], axis=0)
    for least in (0.2, 0.9, 0.99):
        pairs = set(map(tuple, resembling_images(results, least).T.tolist()))
        assert pairs == {(a, b) for a, b in zip(*np.nonzero(true >= least), strict=True) if a < b}
        assert pairs
    assert not results[-1].any()
    assert set(map(tuple, resembling_images([results[0], results[0]], 1.0).T.tolist())) == {(0, 1)}
    assert resembling_images([], 0.5).shape == (2, 0)
