"""Pictures in eight orientations: their fingerprints, and probes that unite them."""

import json
import subprocess

import numpy as np
import pytest
from commandline import COMMAND, failure, fine, run
from drawing import animation, encoded, scene
from PIL import Image

import fpstore
from fpstore import ImageHash
from fpstore.errors import InputError
from fpstore.hashing import ImageReader

CASES = [
    *((method, 64) for method in ("average", "difference", "difference-vertical", "perceptual")),
    *(("perceptual-mean", 64), ("wavelet", 64), ("color", 64)),
    *(("average", 256), ("difference", 256), ("perceptual", 256), ("pdq", 256)),
]


def transposed(picture):
    return [picture, *(picture.transpose(turn) for turn in Image.Transpose)]


def distances(rows, other_rows):
    bits = np.bitwise_count(rows ^ other_rows)
    return bits if bits.ndim == 1 else bits.sum(axis=1)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("method", "width"), CASES)
def test_orientations_are_the_fingerprints_of_turned_pictures(method, width):
    hasher, rounding = ImageHash(method=method, width=width), 0 if method == "pdq" else width // 32
    for seed in range(3):
        picture = scene(seed, (333, 240))
        rows = hasher.orientations(picture)
        turned = hasher.fingerprints(transposed(picture))
        assert rows.shape == turned.shape
        assert rows.dtype == turned.dtype
        assert distances(rows, turned).max() <= rounding
        assert (rows[0] == turned[0]).all()
        if method != "color":
            # other pictures are farther away than rounding moves bits
            assert distances(rows[1:], turned[:1]).min() > rounding


def test_a_picture_without_a_fingerprint_has_none_in_any_orientation():
    for method in ("perceptual", "difference", "pdq"):
        with pytest.raises(
            InputError, match=r"^an image of 60 x 50 pixels (is blank|has the qual)"
        ):
            ImageHash(method=method).orientations(Image.new("RGB", (60, 50), "navy"))
    with pytest.raises(InputError, match="has 3 frames"):
        ImageHash(frame="all").orientations(animation(3))
    # turned by a right angle, stripes are blank to a hash that compares along rows
    stripes = np.repeat(np.random.default_rng(5).integers(0, 256, (1, 60)).astype(np.uint8), 60, 0)
    hasher = ImageHash(method="difference", min_quality=0)
    rows = hasher.orientations(Image.fromarray(stripes))
    assert rows[3] == rows[0] == hasher.fingerprint(Image.fromarray(stripes))


def test_a_reader_has_eight_rows_of_each_frame(tmp_path):
    for seed in range(5):
        (tmp_path / f"{seed}.png").write_bytes(encoded(scene(seed)))
    (tmp_path / "5.gif").write_bytes(animation(2))
    (tmp_path / "6.png").write_bytes(encoded(Image.new("L", (90, 90))))
    hasher = ImageHash(frame="all")
    chunks = list(ImageReader(tmp_path, hasher, 3, orientations=8, threads=2))
    assert [len(chunk.ids) for chunk in chunks] == [24, 24, 8]
    names = [*(f"{tmp_path}/{seed}.png" for seed in range(5)), f"{tmp_path}/5.gif#0"]
    names.append(f"{tmp_path}/5.gif#1")
    assert [name for chunk in chunks for name in chunk.ids] == np.repeat(names, 8).tolist()
    first = ImageHash().orientations(tmp_path / "0.png")
    assert chunks[0].fingerprints[:8].tolist() == first.tolist()
    for value in (2, True, "8", 8.5, None):
        with pytest.raises(InputError, match="orientations must be 1 or 8"):
            ImageReader(tmp_path, hasher, orientations=value)


@pytest.mark.parametrize("width", [32, 64, 128, 256])
@pytest.mark.parametrize("limit", [None, 1, 3])
def test_united_matches_are_the_nearest_of_all_variants(tmp_path, width, limit):
    rng = np.random.default_rng(width)
    centres = [int.from_bytes(rng.bytes(width // 8)) for _ in range(6)]

    def near(count):
        flips = rng.integers(0, width, (count, 3)).tolist()
        return [
            centres[int(rng.integers(6))] ^ sum(1 << bit for bit in set(bits)) for bits in flips
        ]

    stored, queries = near(90), near(64)
    store = fpstore.build(tmp_path / "s.fps", stored, width=width, radius=3)
    for count in (1, 2, 8):
        matches = store.probe_many(queries, limit=limit)
        united = matches.unite(count, limit=limit)
        assert len(united) == len(queries) // count
        for place, answer in enumerate(united):
            variants = queries[place * count : (place + 1) * count]
            expected = {}
            for value in set(stored):
                distance = min((value ^ query).bit_count() for query in variants)
                if distance <= 3:
                    expected[value] = distance
            nearest = sorted(expected, key=lambda value: (expected[value], value))
            assert [(m.fingerprint, m.distance) for m in answer] == [
                (value, expected[value]) for value in nearest[:limit]
            ]
            assert answer.more == (limit is not None and len(nearest) > limit)
            assert all(m.ids == store[m.fingerprint] for m in answer)
    with pytest.raises(InputError, match=r"64 queries cannot be united by 7"):
        matches.unite(7)
    assert len(store.probe_many(queries[:0]).unite(8)) == 0


def test_ids_at_the_time_of_a_change_can_be_united(tmp_path):
    fpstore.build(tmp_path / "s.fps", [8, 11], ["a", "b"], radius=1).close()
    with fpstore.open(tmp_path / "s.fps", "r+") as store:
        matches = store.probe_insert_many([9, 10, 1 << 40, 9], ["c", "d", "e", "f"])
        assert [[(m.distance, m.ids) for m in each] for each in matches.unite(2)] == [
            [(1, ["a"]), (1, ["b"])],
            [(1, ["a"]), (1, ["b"])],
        ]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("orientations")
    (folder / "photos").mkdir()
    (folder / "turned").mkdir()
    for seed in range(9):
        picture = scene(seed)
        (folder / "photos" / f"{seed}.png").write_bytes(encoded(picture))
        if seed:
            turned = picture.transpose(Image.Transpose(seed % 7)).resize((150, 120))
            (folder / "turned" / f"{seed}.jpg").write_bytes(encoded(turned, "JPEG"))
    fine("build", folder / "photos.fps", folder / "photos", "--image", "-q")
    return folder


def test_questions_find_mirrored_and_turned_pictures(photos):
    store, turned = photos / "photos.fps", photos / "turned"
    assert run("probe", store, turned).exit_code == 1
    out = fine("probe", store, turned, "--orientations", 8, "--with-queries", "--threads", 2)
    rows = [line.split("\t") for line in out.splitlines()]
    assert [(row[3], row[4], row[5]) for row in rows] == [
        (f"{photos}/photos/{seed}.png", str(seed - 1), f"{turned}/{seed}.jpg")
        for seed in range(1, 9)
    ]
    assert all(int(row[2]) <= 6 for row in rows)
    picture = turned / "3.jpg"
    with picture.open("rb") as stream:
        command = [*COMMAND, "scan", store, "-", "-r", "10", "--orientations", "8", "--json"]
        piped = subprocess.run(command, stdin=stream, capture_output=True, check=True)
    answer = json.loads(piped.stdout)
    assert answer["query"] == f"{ImageHash().fingerprint(picture):016x}"
    assert [match["ids"] for match in answer["matches"]] == [[f"{photos}/photos/3.png"]]
    options = ("-k", 2, "--orientations", 8, "--with-queries")
    nearest = fine("nearest", store, turned, *options).splitlines()
    assert len(nearest) == 16
    assert [row.split("\t")[3] for row in nearest[::2]] == [row[3] for row in rows]


def test_orientations_are_for_pictures(photos):
    store = photos / "photos.fps"
    refused = "--orientations is for pictures, not for fingerprints"
    assert refused in failure("probe", store, "9d3a5b1c00f7e642", "--orientations", 8)
    assert "'3' is not one of '1', '8'" in failure(
        "probe", store, photos / "turned", "--orientations", 3
    )
