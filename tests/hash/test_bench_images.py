"""`tools/bench images --smoke`: drawn pictures, the same fingerprints as the packages, and nothing left behind."""

import argparse
import importlib
from pathlib import Path

import numpy as np
import pytest
from drawing import decoded

from fpstore.hashing import ImageHash

TOOLS = Path(__file__).resolve().parents[2] / "tools"


@pytest.fixture
def images(monkeypatch):
    monkeypatch.syspath_prepend(TOOLS)
    return importlib.import_module("bench.images")


@pytest.fixture
def bench(images, tmp_path):
    harness = importlib.import_module("bench.harness")
    return harness.Bench(argparse.Namespace(repeats=1, seed=3, smoke=True), tmp_path)


def test_the_smoke_run_reports_all_methods_and_removes_its_pictures(images, bench, tmp_path):
    command = importlib.import_module("bench.command")
    found = command.OPERATIONS["images"](bench)
    assert list(tmp_path.iterdir()) == []
    assert (found["pictures"], found["bytes"] > 100_000) == (images.SMOKE_PICTURES, True)
    assert found["pixels"] == sum(w * h for w, h in (images.SIZES * 2)[: images.SMOKE_PICTURES])
    assert set(found["decoding"]) == {"pictures_per_second", "megapixels_per_second", "two_threads_faster"}
    for method, width in images.SETTINGS:
        assert set(found[f"{method} {width}"]) == {"pictures_per_second", "decoding_share", "two_threads_faster"}


def test_the_pictures_are_drawn_from_the_seed(images, bench, tmp_path):
    folders = [tmp_path / name for name in ("one", "again", "other")]
    for folder, seed in zip(folders, (3, 3, 4), strict=True):
        folder.mkdir()
        bench.seed = seed
        images._draw(folder, bench)
    one, again, other = ([file.read_bytes() for file in sorted(folder.iterdir())] for folder in folders)
    assert one == again
    assert all(a != b for a, b in zip(one, other, strict=True))
    assert [decoded(data).size for data in one] == list((images.SIZES * 2)[: images.SMOKE_PICTURES])
    assert len({ImageHash().fingerprint(data) for data in one}) == len(one)


def test_other_fingerprints_than_those_of_the_package_are_told(images, bench, tmp_path, monkeypatch):
    (tmp_path / "pictures").mkdir()
    images._draw(tmp_path / "pictures", bench)
    files = sorted((tmp_path / "pictures").iterdir())
    images._check(tmp_path / "pictures", files, ImageHash(method="difference"))
    monkeypatch.setattr(images, "_of_package", lambda file, hasher: hasher.fingerprint(file) ^ 1)
    with pytest.raises(AssertionError, match="the package gives another fingerprint"):
        images._check(tmp_path / "pictures", files, ImageHash(method="difference"))
    monkeypatch.setattr(images, "_read", lambda folder, hasher, threads: {"a": np.uint64(threads).tobytes()})
    with pytest.raises(AssertionError, match="two threads give other fingerprints"):
        images._check(tmp_path / "pictures", files, ImageHash(method="difference"))
