"""Pictures on the command line, from real files to matches."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from commandline import COMMAND, failure, fine, run
from drawing import animation, encoded, scene
from PIL import Image

import fpstore
from fpstore import ImageHash


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder of pictures and step into its parent."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for seed in range(6):
        (folder / f"{seed}.png").write_bytes(encoded(scene(seed)))
    (folder / "moving.gif").write_bytes(animation(3))
    (folder / "cut.jpg").write_bytes(encoded(scene(1), "JPEG")[:1500])
    (folder / "notes.txt").write_text("no picture")
    (tmp_path / "new.jpg").write_bytes(encoded(scene(2).resize((200, 150)), "JPEG"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


NAMES = [*(f"photos/{seed}.png" for seed in range(6)), "photos/moving.gif"]
NOTES = (
    "fpstore: 1 file left out, broken pictures: photos/cut.jpg\nfpstore: 1 file left out, no "
    "picture: photos/notes.txt\n"
)


@pytest.mark.full
def test_hash_image_writes_what_build_reads(photos: Path) -> None:
    for options, hasher in (
        ((), ImageHash()),
        (("--image-hash", "pdq", "--min-quality", 1), ImageHash(method="pdq", min_quality=1)),
        (("--image-hash", "average", "--width", 256), ImageHash(method="average", width=256)),
    ):
        result = run("hash", "--image", "photos", *options)
        assert (result.exit_code, result.stderr) == (0, NOTES)
        rows = [line.split("\t") for line in result.stdout.splitlines()]
        assert rows == [
            [f"{hasher.fingerprint(name):0{hasher.width // 4}x}", name] for name in NAMES
        ]
        Path("rows.tsv").write_text(result.stdout)
        fine("build", "rows.fps", "rows.tsv", "--width", hasher.width, "-q", "--force")
        assert fine("hash", "--image", "photos", *options, "--threads", 1, "-q") == result.stdout
        objects = [
            json.loads(line)
            for line in fine("hash", "--image", "photos", *options, "--json", "-q").splitlines()
        ]
        assert [[each["fingerprint"], each["id"]] for each in objects] == rows


def test_what_is_left_out_is_listed_in_a_file(photos: Path) -> None:
    (photos / "photos" / "a").mkdir()
    for number in range(5):
        (photos / "photos" / "a" / f"{number}.png").write_bytes(
            encoded(Image.new("RGB", (50, 50), "white"))
        )
    rows = [
        *(f"photos/a/{number}.png\tblank" for number in range(5)),
        "photos/cut.jpg\tbroken",
        "photos/notes.txt\tother",
    ]
    for words in (
        ("build", "s.fps", "photos", "--image"),
        ("hash", "photos", "--image"),
        ("probe", "s.fps", "photos"),
        ("insert", "s.fps", "photos"),
    ):
        assert run(*words, "--left-out", "left.tsv").exit_code == 0
        assert sorted(Path("left.tsv").read_text().splitlines()) == rows
        Path("left.tsv").unlink()
    (photos / "texts.jsonl").write_text('{"t": "some words"}\n{"t": null}\n{"t": " "}\n')
    fine("hash", "texts.jsonl", "--text-field", "t", "--left-out", "left.jsonl", "-q")
    objects = [json.loads(line) for line in Path("left.jsonl").read_text().splitlines()]
    assert objects == [{"item": "1", "reason": "no words"}, {"item": "2", "reason": "no words"}]
    Path("rows.tsv").write_text("0123456789abcdef\ta\n")
    assert "--left-out is for files of texts" in failure(
        "build", "x", "rows.tsv", "--left-out", "left.tsv", code=2
    )


@pytest.mark.full
def test_hash_image_reads_standard_input(photos: Path) -> None:
    def ask(path: str, *options: str) -> subprocess.CompletedProcess[bytes]:
        data = Path(path).read_bytes()
        return subprocess.run(
            [*COMMAND, "hash", "--image", *options], input=data, capture_output=True, check=False
        )

    expected = fine("hash", "--image", "photos/1.png", "new.jpg", "photos/0.png")
    assert (
        ask("new.jpg", "photos/1.png", "-", "photos/0.png")
        .stdout.decode()
        .replace("\t-\n", "\tnew.jpg\n")
        == expected
    )
    frames = ask("photos/moving.gif", "-", "--frame", "all").stdout.splitlines()
    assert [line.split(b"\t")[1] for line in frames] == [b"-#0", b"-#1", b"-#2"]
    refused = ask("photos/notes.txt", "-")
    assert (refused.returncode, refused.stdout) == (1, b"")
    assert refused.stderr.startswith(b"fpstore: standard input: is no picture of a format")


def test_a_store_of_pictures_is_built_asked_and_extended(photos: Path) -> None:
    built = run("build", "photos.fps", "photos", "--image")
    assert (built.exit_code, built.stderr) == (0, NOTES)
    with fpstore.open("photos.fps") as store:
        assert (store.width, store.radius) == (64, ImageHash().usual_radius)
        assert fpstore.hashing.from_description(store.fingerprinter) == ImageHash()
    line = fine("probe", "photos.fps", "new.jpg").splitlines()
    assert [row.split("\t")[3] for row in line] == ["photos/2.png"]
    (matches,) = (
        json.loads(text) for text in fine("nearest", "photos.fps", "new.jpg", "--json").splitlines()
    )
    assert matches["document"] == "new.jpg"
    assert matches["matches"][0]["ids"] == ["photos/2.png"]
    assert len(fine("scan", "photos.fps", "photos", "-r", 0, "-q", code=0)) == 0
    fine("insert", "photos.fps", "new.jpg", "-q")
    again = fine("probe", "photos.fps", "photos/2.png", "-r", 9).splitlines()
    assert {row.split("\t")[3] for row in again} == {"photos/2.png", "new.jpg"}
    summary = json.loads(fine("insert", "photos.fps", "photos", "--suffix", ".png", "--json"))
    assert (summary["rows"], summary["inserted"]) == (6, 0)


@pytest.mark.full
def test_width_and_radius_follow_the_hash_unless_they_are_given(photos: Path) -> None:
    for options, width, radius in (
        (("--image-hash", "pdq"), 256, 31),
        (("--image-hash", "pdq", "--radius", 20), 256, 20),
        (("--width", 256), 256, ImageHash(width=256).usual_radius),
        (("--width", 64, "--radius", 3), 64, 3),
        (("--image-hash", "color"), 64, ImageHash(method="color").usual_radius),
    ):
        fine("build", "s.fps", "photos", "--image", *options, "--force", "-q")
        with fpstore.open("s.fps") as store:
            assert (store.width, store.radius) == (width, radius)
            assert store.fingerprinter is not None
            assert store.fingerprinter["parameters"]["width"] == width


def test_all_frames_are_remembered_by_the_store(photos: Path) -> None:
    fine("build", "s.fps", "photos", "--image", "--frame", "all", "-q")
    with fpstore.open("s.fps") as store:
        assert len(store.ids) == 9
    (photos / "still.png").write_bytes(encoded(scene(2, (64, 48))))
    assert "photos/moving.gif#2" in fine("probe", "s.fps", "still.png")
    shutil.copy("photos/moving.gif", "again.gif")
    fine("insert", "s.fps", "again.gif", "-q")
    assert fine("ids", "s.fps", "again.gif#0", "again.gif#1", "again.gif#2").count("again.gif") == 3


def test_what_does_not_go_together_is_a_usage_error(photos: Path) -> None:
    fine("build", "p.fps", "photos", "--image", "-q")
    fine("build", "t.fps", "photos/notes.txt", "--text", "-q")
    np.save("rows.npy", np.arange(3, dtype=np.uint64))
    fine("build", "n.fps", "rows.npy", "-q")
    for words, message in (
        (("build", "x", "photos", "--image", "--text"), "--image does not go with --text"),
        (
            ("build", "x", "photos", "--image", "--shingle", "chars"),
            "(--text or --text-field), not for pictures",
        ),
        (
            ("build", "x", "rows.npy", "--image-hash", "pdq"),
            "--image-hash is for pictures (--image), not for fingerprints",
        ),
        (
            ("build", "x", "photos", "--image", "--image-hash", "pdq", "--width", 64),
            "the method pdq has 256 bits, got width=64",
        ),
        (("probe", "p.fps", "new.jpg", "--input", "rows.npy"), "--input does not go with pictures"),
        (("probe", "p.fps", "0x2a", "new.jpg"), "give fingerprints or files, not both"),
        (("nearest", "n.fps", "new.jpg"), "pictures and vectors need a store built of them"),
        (("insert", "p.fps", "-"), "not from standard input"),
    ):
        assert message in failure(*words, code=2)
    for words, message in (
        (
            ("probe", "p.fps", "--input", "x.jsonl", "--text-field", "t"),
            "(image-hash), so it takes no columns of texts",
        ),
        (
            ("insert", "n.fps", "x.jsonl", "--text-field", "t"),
            "give it fingerprints, or build it with --text-field",
        ),
        (("probe", "t.fps", "new.jpg"), "not a text"),
        (
            ("build", "x", "photos", "--image", "--suffix", ".txt"),
            "no picture to make a fingerprint of; left out: 1",
        ),
    ):
        assert message in failure(*words)
    assert "--image of the pictures" in failure("build", "x", "photos")
    assert not Path("x").exists()
