"""Every fuzz target still fits the kernel: built without libFuzzer, it takes the kept inputs and some random ones."""

import os
import subprocess
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NATIVE = ROOT / "fpstore" / "_native"
FUZZ = ROOT / "tools" / "fuzz"
TARGETS = sorted(path.stem.removeprefix("fuzz_") for path in FUZZ.glob("fuzz_*.cpp"))
KERNEL = ["cpu", "delta", "header", "huffman", "idpack", "merge", "near_index", "results", "target_scalar"]


@pytest.fixture(scope="module")
def objects(tmp_path_factory):
    """Return the folder with the objects of the kernel, its scalar set alone, and of all targets."""
    folder = tmp_path_factory.mktemp("objects")
    sources = [NATIVE / f"{name}.cpp" for name in KERNEL] + sorted(FUZZ.glob("*.cpp"))
    compiler = [os.environ.get("CXX", "g++"), "-std=c++17", "-O0", f"-I{NATIVE}", f"-I{FUZZ}", "-c"]

    def build(source):
        subprocess.run([*compiler, source, "-o", folder / f"{source.stem}.o"], check=True)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(build, sources))
    return folder


@pytest.mark.parametrize("target", TARGETS)
def test_a_fuzz_target_runs_on_the_kept_inputs_and_on_random_ones(target, objects, tmp_path):
    parts = [objects / f"{name}.o" for name in [*KERNEL, "replay", f"fuzz_{target}"]]
    subprocess.run([os.environ.get("CXX", "g++"), *parts, "-o", tmp_path / target], check=True)
    with tarfile.open(FUZZ / "corpus" / f"{target}.tar.gz") as archive:
        archive.extractall(tmp_path / "inputs", filter="data")
    run = subprocess.run([tmp_path / target, tmp_path / "inputs", "100"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    files, inputs = [int(word) for word in run.stdout.split() if word.isdigit()]
    assert files > 10
    assert inputs == 100


def test_ci_runs_every_fuzz_target():
    commands = (ROOT / ".ci" / "run").read_text().splitlines()
    assert "tools/fuzz/run 20000" in commands  # no target named: all of them
