"""`fpstore calibrate --image` against brute force, and from end to end."""

import json
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from commandline import failure, fine, run
from drawing import encoded, scene, with_orientation
from PIL import Image, ImageFilter, ImageOps

from fpstore.calibration import calibrate, settings
from fpstore.calibration.image_changes import ImageChange
from fpstore.calibration.pictures import MAX_SIDE
from fpstore.errors import InputError, MissingExtraError
from fpstore.hashing import ImageHash, SimHash

COUNT = 7
CHANGES = ("resize=0.5", "crop=0.05", "grey")
QUICK = [
    "--setting",
    "method=difference",
    "--setting",
    "method=perceptual,width=256",
    "--threads",
    "1",
]
WAYS = [word for change in CHANGES for word in ("--change", change)]


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Make a folder of pictures and of what is none, and step into its parent."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for seed in range(COUNT - 1):
        (folder / f"{seed}.png").write_bytes(encoded(scene(seed, (120, 90))))
    (folder / "turned.jpg").write_bytes(with_orientation(scene(50, (120, 90)), 6))
    monkeypatch.chdir(tmp_path)
    return folder


def upright(path):
    with Image.open(path) as image:
        turned = ImageOps.exif_transpose(image).convert("RGB")
    turned.info.clear()  # or what is made of it would be turned again
    return turned


def found_by(photos, **more):
    arguments = {
        "settings": ["method=difference", "method=average,width=256"],
        "changes": CHANGES,
        "threads": 1,
        **more,
    }
    return calibrate("photos", image=True, **arguments)


def test_distances_are_those_of_brute_force(photos):
    paths = [str(path.relative_to(photos.parent)) for path in sorted(photos.iterdir())]
    pictures = {path: upright(Path(path)) for path in paths}
    for copies, seed in ((300, 0), (3, 5)):
        result = found_by(photos, copies=copies, seed=seed)
        items = result.sample.items
        assert items[:COUNT] == [(path, None) for path in paths]
        for suggestion in result.suggestions:
            hasher, measured = suggestion.measured.setting.fingerprinter, suggestion.measured
            numbers = {path: hasher.fingerprint(path) for path in paths}
            for change in map(ImageChange.parse, CHANGES):
                apart = []
                for place, other in result.sample.copies[change.name].T.tolist():
                    path = items[place][0]
                    assert items[other] == (path, change.name)
                    apart.append(
                        (
                            numbers[path] ^ hasher.fingerprint(change.copy(pictures[path], seed))
                        ).bit_count()
                    )
                assert len(apart) == min(copies, COUNT)
                counts = np.bincount(apart, minlength=hasher.width + 1).tolist()
                assert measured.copies[change.name].counts.tolist() == counts
            apart = [
                (numbers[paths[a]] ^ numbers[paths[b]]).bit_count()
                for a, b in combinations(range(COUNT), 2)
            ]
            assert (
                measured.strangers.counts.tolist()
                == np.bincount(apart, minlength=hasher.width + 1).tolist()
            )
        assert result.to_dict()["items"] == "pictures"
        assert found_by(photos, copies=copies, seed=seed, threads=3).to_dict() == result.to_dict()
    names = list(result.suggestions[0].measured.copies)
    assert names == ["resize=0.5", "crop=0.05", "grey"]
    assert found_by(photos, copies=3, seed=5, changes=names).to_dict() == result.to_dict()
    taken = [
        [path for path, _ in found_by(photos, sample=3, seed=seed).sample.items[:3]]
        for seed in (1, 1, 2, 3)
    ]
    assert taken[0] == taken[1]
    assert len(set(map(tuple, taken))) > 1
    assert all(names == sorted(names) and len(set(names)) == 3 for names in taken)


def test_copies_in_the_folder_do_not_change_what_is_suggested(photos):
    clean = found_by(photos)
    for seed in (0, 3):
        original = scene(seed, (120, 90))
        (photos / f"copy-{seed}.jpg").write_bytes(encoded(original.resize((80, 60)), "JPEG"))
        (photos / f"crop-{seed}.png").write_bytes(encoded(original.crop((7, 5, 120, 90))))
        (photos / f"dark-{seed}.png").write_bytes(
            encoded(ImageChange.parse("brightness=0.8").copy(original))
        )
    result = found_by(photos)
    sample = result.sample
    assert (sample.documents, len(sample.strangers), sample.alike) == (COUNT + 6, COUNT, 6)
    strangers = [sample.items[place] for place in sample.strangers]
    assert strangers == clean.sample.items[:COUNT]
    expected = clean.to_dict()["settings"]
    assert [(item["setting"], item["by_distance"]) for item in result.to_dict()["settings"]] == [
        (item["setting"], item["by_distance"]) for item in expected
    ]
    assert result.to_dict()["left_out"] == 6
    printed = fine("calibrate", "photos", "--image", *QUICK, *WAYS)
    assert ["near-duplicates of these", "6"] in [
        line.rsplit(maxsplit=1) for line in printed.splitlines()
    ]
    assert found_by(photos, resemblance=1.0).sample.alike == 0
    # a picture with copies stands for its family
    kept = found_by(photos, copies=3, seed=2).sample
    assert kept.copies["grey"].shape == (2, 3)


def test_what_is_left_out_or_made_smaller_is_counted(photos):
    (photos / "blank.png").write_bytes(encoded(Image.new("RGB", (60, 60), (9, 9, 9))))
    (photos / "cut.jpg").write_bytes(encoded(scene(30), "JPEG")[:3000])
    (photos / "empty.png").write_bytes(b"")
    (photos / "notes.txt").write_text("no picture")
    (photos / "large.png").write_bytes(encoded(scene(31, (MAX_SIDE + 1, 40))))
    notices = []
    result = found_by(photos, on_notice=lambda path, why: notices.append((path.name, why)))
    assert (result.sample.documents, result.sample.empty) == (COUNT + 1, 1)
    assert ("photos/large.png", None) in result.sample.items
    assert notices == [
        ("empty.png", "broken"),
        ("notes.txt", "other"),
        ("blank.png", "blank"),
        ("cut.jpg", "broken"),
    ]
    done = run("calibrate", "photos", "--image", *QUICK, *WAYS)
    assert done.exit_code == 0
    assert [line.split(": ", 1)[1] for line in done.stderr.splitlines()] == [
        "1 file left out, blank pictures: photos/blank.png",
        "2 files left out, broken pictures: photos/empty.png, photos/cut.jpg",
        "1 file left out, no picture: photos/notes.txt",
    ]
    facts = [line.rsplit(maxsplit=1) for line in done.stdout.split("Sample\n")[1].splitlines()]
    assert ["empty or blank, left out", "1"] in facts


def test_pictures_that_pdq_refuses_are_missed(photos):
    (photos / "dull.png").write_bytes(encoded(scene(8).filter(ImageFilter.GaussianBlur(40))))
    (suggestion,) = found_by(photos, settings=["method=pdq"]).suggestions
    assert ImageHash(method="pdq").is_empty(photos / "dull.png")
    assert suggestion.measured.copies["resize=0.5"].missed >= 1
    assert suggestion.measured.strangers.within(256).total <= COUNT * (COUNT - 1) // 2


def test_too_little_and_wrong_arguments_are_refused(photos):
    def refused(message, source="photos", kind=InputError, **arguments):
        with pytest.raises(kind, match=message):
            calibrate(source, image=True, threads=1, **arguments)

    refused(
        "at least 2 that are not blank are needed, got 1",
        "photos/1.png",
        settings=["method=average"],
    )
    refused(
        "all 2 items of the sample resemble each other",
        ["photos/1.png", "photos/1.png"],
        settings=["method=average"],
    )
    refused(
        "no picture of the sample changes in any of these ways",
        changes=["resize=1"],
        settings=["method=average"],
    )
    refused("no picture of the sample changes", changes=[])
    refused("settings is empty", settings=[])
    refused("method=difference,width=256; parameters are method, width", settings=["size=2"])
    refused("a fingerprinter of pictures", settings=[SimHash()])
    refused("leave out text=", text="body")
    refused("a change of pictures is one of", changes=["words=2"])
    (photos / "x.png").write_text("no picture")
    refused("x.png: the picture is broken", ["photos", "photos/x.png"], settings=["method=average"])


def test_a_missing_package_is_told(photos, monkeypatch):
    monkeypatch.setattr(settings, "is_installed", lambda package: package != "pdqhash")
    monkeypatch.setattr(settings, "IMAGE_SETTINGS", ("method=average",))
    done = run("calibrate", "photos", "--image", "--threads", 1, *WAYS)
    assert (done.exit_code, done.stderr) == (
        0,
        "fpstore: method=pdq is not compared: pip install pdqhash\n",
    )
    assert "method=pdq" not in done.stdout
    monkeypatch.undo()
    monkeypatch.chdir(photos.parent)
    assert settings.usual_settings(True)[-1] == "method=pdq"
    monkeypatch.setitem(sys.modules, "pdqhash", None)
    with pytest.raises(MissingExtraError, match="pip install pdqhash"):
        found_by(photos, settings=["method=pdq"])


def test_the_command_prints_what_the_library_returns(photos):
    arguments = ("calibrate", "photos", "--image", *QUICK, *WAYS, "--seed", 3)
    printed_json = json.loads(fine(*arguments, "--json"))
    how = {
        "settings": ["method=difference", "method=perceptual,width=256"],
        "seed": 3,
        "threads": 2,
    }
    assert printed_json == json.loads(json.dumps(found_by(photos, **how).to_dict()))
    printed = fine(*arguments)
    assert printed.startswith(f"Settings for {COUNT} pictures, the suggested one first\n")
    for line, item in zip(printed.splitlines()[2:4], printed_json["settings"], strict=True):
        recall = item["recall"]["count"] / item["recall"]["total"]
        cells = [item["setting"], str(item["width"]), str(item["radius"]), f"{recall:.1%}"]
        assert line.split()[:4] == cells
    assert "fpstore build photos.fps photos --image --image-hash difference" in printed
    assert "fpstore dedup" not in printed


def test_suffixes_and_wrong_use(photos):
    answer = json.loads(
        fine("calibrate", "photos", "--image", "--suffix", ".png", *QUICK, *WAYS, "--json")
    )
    assert answer["documents"] == COUNT - 1
    for words, message in (
        (("--text",), "--image does not go with --text"),
        (("--text-field", "a"), "--image does not go with --text-field"),
        (("--most-wrong", "0.1"), "--most-wrong does not go with --image"),
        (("--setting", "size=1"), "parameters are method"),
        (("--change", "words=1"), "a change of pictures is one of"),
    ):
        assert message in failure("calibrate", "photos", "--image", *words, code=2)
    assert "Missing argument" in failure("calibrate", "--image", code=2)
    assert "a change is one of" in failure(
        "calibrate", "photos", "--text", "--change", "resize=0.5", code=2
    )
