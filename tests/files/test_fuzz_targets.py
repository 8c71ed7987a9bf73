"""A fuzz target, built by GCC without libFuzzer, shows what a compiler has made of the kernel."""

import os
import subprocess
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fpstore import _kernel

ROOT = Path(__file__).parents[2]
NATIVE, FUZZ = ROOT / "fpstore" / "_native", ROOT / "tools" / "fuzz"


@pytest.mark.slow
@pytest.mark.skipif(
    "avx512" not in _kernel.available_isas(), reason="this processor has no such instructions"
)
def test_mask_on_the_stack_has_no_stale_bits(tmp_path):
    """With these checks between its lines, GCC 12 had no register for a mask of AVX-512.

    It stored one byte and read four.
    """
    compiler = os.environ.get("CXX", "g++")
    listed = [
        line.split()
        for line in (NATIVE / "sources.txt").read_text().splitlines()
        if line[:1] not in ("", "#")
    ]
    sources = {
        NATIVE / name: ["-O1", *flags]
        for processor, name, *flags in listed
        if processor in ("any", "x86")
    }
    widest = next(iter(sources))
    sources[widest][:1] = ["-O2", "-fsanitize=alignment"]
    sources |= {FUZZ / name: ["-O0"] for name in ("fuzz_sweep.cpp", "replay.cpp")}
    includes = ["-std=c++17", "-w", f"-I{NATIVE}", f"-I{FUZZ}", "-DFPSTORE_X86=1"]

    def build(source):
        subprocess.run(
            [
                compiler,
                *includes,
                *sources[source],
                "-c",
                source,
                "-o",
                tmp_path / f"{source.stem}.o",
            ],
            check=True,
        )

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(build, sources))
    objects = [tmp_path / f"{source.stem}.o" for source in sources]
    subprocess.run(
        [compiler, *objects, "-fsanitize=alignment", "-o", tmp_path / "sweep"], check=True
    )
    with tarfile.open(FUZZ / "corpus" / "sweep.tar.gz") as archive:
        archive.extractall(tmp_path / "inputs", filter="data")
    subprocess.run([tmp_path / "sweep", tmp_path / "inputs", "100"], check=True)
