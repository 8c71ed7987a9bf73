"""A reader of folders of pictures, and image hashes wherever stores take fingerprints."""

import os
from threading import Thread

import imagehash
import numpy as np
import pillow_heif
import pytest
from building import run_python
from drawing import animation, encoded, scene
from PIL import Image

import fpstore
from fpstore.base.resources import MemoryBudget
from fpstore.base.width import Width
from fpstore.errors import InputError, StorageError
from fpstore.hashing import DocumentReader, ImageHash, ImageReader, SimHash


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Make a folder of pictures and of what is none, and step into its parent."""
    files = {
        "a/one.png": encoded(scene(1)),
        "a/two.JPG": encoded(scene(2), "JPEG"),
        "b.gif": animation(3),
        "blank.png": encoded(Image.new("L", (50, 50), 200)),
        "cut.jpg": encoded(scene(3), "JPEG")[:2000],
        "empty.png": b"",
        "no extension": encoded(scene(4), "WEBP"),
        "rows.tsv": b"0123456789abcdef\tid\n",
        "text.txt": b"some text",
    }
    for name, data in files.items():
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def everything(reader):
    chunks = list(reader)
    return [name for chunk in chunks for name in chunk.ids], np.concatenate(
        [chunk.fingerprints for chunk in chunks]
    ).tolist()


PICTURES = ["photos/a/one.png", "photos/a/two.JPG", "photos/b.gif", "photos/no extension"]
LEFT_OUT = [
    ("blank.png", "blank"),
    ("cut.jpg", "broken"),
    ("empty.png", "broken"),
    ("rows.tsv", "other"),
    ("text.txt", "other"),
]


@pytest.mark.parametrize(
    "hasher", [ImageHash(), ImageHash(method="pdq", min_quality=1)], ids=["perceptual", "pdq"]
)
def test_folder_is_read_in_name_order_and_reports_omissions(tree, hasher):
    notices = []
    for threads in (1, 2, 7):
        reader = ImageReader(
            "photos",
            hasher,
            threads=threads,
            on_notice=lambda path, why: notices.append((path.name, why)),
        )
        notices.clear()
        ids, rows = everything(reader)
        assert ids == PICTURES
        width, numbers = Width(hasher.width), [hasher.fingerprint(path) for path in PICTURES]
        assert rows == width.to_array(width.rows(numbers)).tolist()
        assert [(name, "blank" if why == "quality" else why) for name, why in notices] == LEFT_OUT
        assert (reader.skipped, reader.broken, reader.empty) == (2, 2, 1)
        assert (
            reader.bytes_done
            == reader.bytes_total
            == sum(p.stat().st_size for p in tree.rglob("*") if p.is_file())
        )


def test_each_frame_has_an_id_of_its_own(tree):
    ids, rows = everything(ImageReader("photos", ImageHash(frame="all"), threads=2))
    assert ids == [*PICTURES[:2], "photos/b.gif#0", "photos/b.gif#1", "photos/b.gif#2", PICTURES[3]]
    with Image.open("photos/b.gif") as image:
        for number in range(3):
            image.seek(number)
            assert rows[2 + number] == ImageHash().fingerprint(image)
    assert [len(chunk.ids) for chunk in ImageReader("photos", ImageHash(frame="all"), 2)] == [
        2,
        2,
        2,
    ]
    (tree / "photos" / "loop").symlink_to(tree / "photos")  # which ends
    (tree / "photos" / os.fsdecode(b"caf\xe9.png")).write_bytes(encoded(scene(9)))
    ids, _ = everything(ImageReader("photos", ImageHash(), follow_symlinks=True))
    assert set(ids) == {*PICTURES, "photos/caf\\xe9.png"}


def test_suffixes_and_sizes_choose_files(tree):
    assert everything(ImageReader("photos", ImageHash(), suffixes=[".png"]))[0] == [PICTURES[0]]
    notices = []
    size = (tree / PICTURES[3]).stat().st_size
    assert size < (tree / PICTURES[0]).stat().st_size
    reader = ImageReader(
        "photos",
        ImageHash(),
        max_bytes=size,
        on_notice=lambda path, why: notices.append((path.name, why)),
    )
    assert PICTURES[0] not in everything(reader)[0]
    assert ("one.png", "large") in notices
    with pytest.raises(InputError, match=r"one\.png: [0-9]+ bytes, more than max_bytes=1000"):
        list(ImageReader([PICTURES[0]], ImageHash(), max_bytes=1000))


def test_named_files_must_be_pictures(tree):
    for name, message in (
        ("text.txt", "is no picture of a format that Pillow reads"),
        ("cut.jpg", "the picture is broken"),
        ("empty.png", "the picture is broken"),
    ):
        for threads in (1, 3):
            with pytest.raises(InputError, match=rf"{name}:? {message}"):
                list(ImageReader([PICTURES[0], f"photos/{name}"], ImageHash(), threads=threads))
    with pytest.raises(
        InputError, match=r"blank\.png is blank: all .* equal, so it has no fingerprint$"
    ):
        list(ImageReader("photos/blank.png", ImageHash()))


def test_huge_pictures_in_folders_are_counted_and_never_decoded(tree, monkeypatch):
    data = bytearray(encoded(scene(1), "BMP"))
    data[18:26] = (60_000).to_bytes(4, "little") * 2
    (tree / "photos" / "bomb.bmp").write_bytes(data)
    notices = []
    reader = ImageReader(
        "photos", ImageHash(), on_notice=lambda path, why: notices.append((path.name, why))
    )
    everything(reader)
    assert ("bomb.bmp", "large") in notices
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20_000)
    assert everything(reader)[0] == ["photos/b.gif"]
    assert ("one.png", "large") in notices
    assert reader.skipped == 7


def test_a_picture_above_the_memory_is_refused_undecoded(tree):
    large = tree / "photos" / "large.png"
    # 80 MB with its brightness, and a few KB in the file, whose end is lost: decoding fails
    large.write_bytes(encoded(Image.new("L", (8000, 5000)))[:-1000])
    notices = []
    reader = ImageReader(
        "photos",
        ImageHash(),
        memory="64MiB",
        on_notice=lambda path, why: notices.append((path.name, why)),
    )
    assert everything(reader)[0] == PICTURES
    assert ("large.png", "memory") in notices
    assert reader.skipped == 3
    advice = (
        r"large\.png: 8000 x 5000 pixels take 80\.0 MB, above the budget of 67\.1 MB: raise "
        r"memory=$"
    )
    with pytest.raises(InputError, match=advice):
        list(ImageReader(large, ImageHash(), memory="64MiB"))
    with pytest.raises(InputError, match="memory must be at least 64MiB"):
        ImageReader("photos", ImageHash(), memory=1000)


def test_a_budget_is_exceeded_only_by_a_single_reservation():
    budget, order = MemoryBudget(100), []

    def take(count):
        with budget.reserve(count):
            order.append(count)

    with budget.reserve(60):
        large, small = (Thread(target=take, args=(count,)) for count in (300, 40))
        large.start()
        small.start()
        small.join()  # what fits does not wait for what does not
        assert order == [40]
    large.join()
    assert order == [40, 300]


@pytest.mark.full
@pytest.mark.parametrize("suffix", [".heic", ".HEIF"])
def test_heic_is_read_where_its_package_is_installed(tmp_path, suffix):
    path = tmp_path / "photos" / f"a{suffix}"
    path.parent.mkdir()
    pillow_heif.from_pillow(scene(5)).save(path, quality=90)  # registers nothing with Pillow
    (tmp_path / "photos" / "b.png").write_bytes(encoded(scene(6)))
    ids, rows = everything(ImageReader(path, ImageHash()))
    assert ids == [str(path)]
    assert (rows[0] ^ ImageHash().fingerprint(scene(5))).bit_count() <= 6
    code = """
        import sys
        sys.modules["pillow_heif"] = None
        from fpstore.hashing import ImageHash, ImageReader
        notice = lambda path, why: print(path.name, why)
        reader = ImageReader(sys.argv[1], ImageHash(), on_notice=notice)
        print(sum(len(chunk.ids) for chunk in reader), reader.skipped)
        try:
            ImageHash().fingerprint(sys.argv[2])
        except Exception as error:
            print(error)
    """
    code, out, _ = run_python(code, path.parent, path)
    assert code == 0
    advice = f"{path}: is HEIC, which Pillow reads with another package: pip install pillow-heif"
    assert out.splitlines() == [f"{path.name} heif", "1 1", f"item 0: {advice}"]


EIGHT = """
    import resource, sys
    from pathlib import Path
    from fpstore.hashing import ImageHash, ImageReader

    def peak():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10

    hasher = ImageHash(method="pdq", min_quality=0)
    assert not hasher.is_empty(Path(sys.argv[1]) / "0-small.png")  # imports what is needed
    before = peak()
    reader = ImageReader(sys.argv[1], hasher, threads=8, memory="64MiB")
    count = sum(len(chunk.ids) for chunk in reader)
    print(count, peak() - before)
"""


@pytest.mark.full
def test_large_pictures_in_eight_threads_take_bounded_memory(tmp_path):
    """PDQ took 29 bytes of each pixel at once: 1.5 GB for eight pictures."""
    large, small = scene(1).resize((3000, 2200)), encoded(scene(1))
    files = {
        "large.png": encoded(large.convert("L"), compress_level=1),
        "large.jpg": encoded(large, "JPEG"),
        "small.png": small,
    }
    for name, data in files.items():
        for number in range(4):
            (tmp_path / f"{number}-{name}").write_bytes(data)
    code, out, err = run_python(EIGHT, tmp_path)
    assert (code, err) == (0, ""), err
    count, more = map(int, out.split())
    assert count == 12
    assert more < 96, "MiB"  # the budget, and what threads have of their own


def test_unreadable_files_are_storage_errors(tree, with_mode):
    with (
        with_mode(tree / PICTURES[0], 0),
        pytest.raises(StorageError, match=r"one\.png: Permission denied"),
    ):
        list(ImageReader("photos", ImageHash(), threads=2))
    with pytest.raises(StorageError, match="nowhere"):
        ImageReader("nowhere", ImageHash())


def test_wrong_arguments_are_refused(tree):
    for options, message in (
        ({"chunk_pictures": 0}, "chunk_pictures must be"),
        ({"threads": 0}, "threads must be"),
        ({"on_notice": 1}, "on_notice must be a function"),
        ({"fingerprinter": SimHash()}, "fingerprinter must be one of pictures, such as ImageHash"),
    ):
        with pytest.raises(InputError, match=message):
            ImageReader(**{"paths": "photos", "fingerprinter": ImageHash(), **options})
    with pytest.raises(InputError, match="fingerprinter must be one of texts, such as SimHash"):
        DocumentReader("photos", ImageHash())


def test_progress_of_pictures_is_told_before_many_are_read(tmp_path):
    (tmp_path / "photos").mkdir()
    for seed in range(70):
        (tmp_path / "photos" / f"{seed:02}.png").write_bytes(encoded(scene(seed, (40, 30))))
    reader = ImageReader(tmp_path / "photos", ImageHash(), threads=1)
    messages = []
    with fpstore.build(
        tmp_path / "s.fps",
        reader,
        progress=lambda *call: messages.append((*call, reader.bytes_done)),
    ):
        pass
    first = next(call for call in messages if call[1])
    assert first[:3] == ("reading", 64, None)
    assert 0 < first[3] < reader.bytes_total


SIZES = {64: 8, 256: 16}


@pytest.fixture(scope="module", params=SIZES)
def hashes(request):
    return request.param, [
        imagehash.phash(scene(seed, (160, 120)), hash_size=SIZES[request.param])
        for seed in range(8)
    ]
