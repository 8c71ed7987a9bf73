"""Every instruction set gives the bytes of the scalar one, at any size and alignment."""

import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tableimage
import xxhash
from brute_force import distances_of
from isas import ISAS
from speeds import crossed
from tableimage import IDENTITY, KINDS, make_keys, open_table

from fpstore import _kernel
from fpstore.design.blocks import CODECS
from fpstore.errors import CorruptStoreError

SIZES = range(71)
SHUFFLED = np.random.default_rng(5).permutation(64).astype(np.uint8)
Arrays = tuple[object, ...]


def same(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def check(isa: str, work: Callable[..., object], *arguments: object) -> None:
    _kernel.select_isa("scalar")
    expected = work(*arguments)
    _kernel.select_isa(isa)
    assert _kernel.isa() == isa
    assert same(work(*arguments), expected)


def unaligned(values: np.ndarray, shift: int) -> np.ndarray:
    """Copy to a place that begins shift words after a 64-byte boundary."""
    room = np.empty(len(values) + 24, values.dtype)
    start = -(room.ctypes.data // 8) % 8 + shift
    part = room[start : start + len(values)]
    part[:] = values
    return part


def words(seed: int, size: int) -> np.ndarray:
    """Return unsorted words with repeats, of the kinds by turns."""
    rng = np.random.default_rng(seed)
    return rng.choice(make_keys(KINDS[seed % len(KINDS)], seed, size + 1), size + 1)[:size]


def test_scalar_is_always_there_and_the_best_is_in_use():
    assert ISAS[0] == "scalar"
    if "FPSTORE_ISA" not in os.environ:
        assert _kernel.isa() == ISAS[-1]


def test_an_unknown_isa_cannot_be_selected():
    before = _kernel.isa()
    with pytest.raises(ValueError, match="instruction set"):
        _kernel.select_isa("sse9")
    assert _kernel.isa() == before


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", [*ISAS, ""])
def test_the_environment_variable_forces_a_set(name):
    """An empty one forces nothing."""
    command = [sys.executable, "-P", "-c", "from fpstore import _kernel; print(_kernel.isa())"]
    done = subprocess.run(
        command, env={**os.environ, "FPSTORE_ISA": name}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == (name or ISAS[-1])


MISSING = sorted({"sse9", "AVX2", " scalar", "a\nb\xff", "avx512"} - set(ISAS))


@pytest.mark.full
@pytest.mark.parametrize(("name", "start"), crossed(MISSING, ["import", "module", "script"]))
def test_an_environment_variable_that_names_no_set_is_an_error(tmp_path, name, start):
    script = tmp_path / "fpstore"  # as pip writes it
    script.write_text("import sys\nfrom fpstore.cli import main\nsys.exit(main())\n")
    command = {
        "import": ["-c", "import fpstore"],
        "module": ["-m", "fpstore", "plan", "9"],
        "script": [str(script), "plan", "9"],
    }
    environment = {**os.environb, b"FPSTORE_ISA": name.encode("latin-1")}
    done = subprocess.run(
        [sys.executable, "-P", *command[start]],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    shown = name.replace("\n", "?").replace("\xff", "?")
    message = (
        f"FPSTORE_ISA is '{shown}', an instruction set that is unknown or that this machine "
        f"lacks; it has {', '.join(ISAS)}"
    )
    lines = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (1, "")
    if start == "import":
        assert lines[-1].startswith(f"ImportError: {message}")
        assert sum("Error" in line for line in lines) == 1
    else:
        assert len(lines) == 1
        assert lines[0].startswith(f"fpstore: {message}")


def permute(keys: np.ndarray, size: int) -> Arrays:
    permutations = (IDENTITY, np.roll(IDENTITY, 11), SHUFFLED)
    permuted = [
        _kernel.permute(keys, p, inverse) for p in permutations for inverse in (False, True)
    ]
    return *permuted, *(_kernel.digest(keys, p) for p in permutations)


def histogram(keys: np.ndarray, size: int) -> Arrays:
    collected = []
    for part in (np.sort(keys), np.unique(keys)):  # a repeat is a key out of order
        counts = np.arange(65, dtype=np.uint64)
        collected += [_kernel.histogram(unaligned(part, size % 8), counts), counts]
    return tuple(collected)


@pytest.mark.parametrize("work", [permute, histogram])
def test_calls_with_keys(isa, work):
    for size in (*SIZES, 511, 512, 513, 2000):
        check(isa, work, unaligned(words(size, size), size % 8), size)


@pytest.mark.parametrize("kind", KINDS)
def test_encode(isa, kind):
    for size in (*range(1, 71), 1500):
        keys = unaligned(make_keys(kind, size, size), size % 8)
        for lengths in (tableimage.complete_lengths(size, set(range(64))), tableimage.NO_CODE):
            for block_bytes in (128, 1024):
                check(isa, tableimage.encode, keys, lengths, block_bytes, 77, [size // 3])


def test_blocks_of_any_size_hold_low_parts_of_every_width(isa):
    _kernel.select_isa(isa)
    rng = np.random.default_rng(7)
    widths = set()
    for bits in range(64):
        for count in (*range(1, 20), 31, 32, 33, 200):
            ends = np.cumsum(
                rng.integers(1, (2 << bits) - 1, count, np.uint64, endpoint=True).astype(object)
            )
            keys = np.array([end for end in ends if end < 2**64], np.uint64)
            image = tableimage.build(keys, IDENTITY, (128, 512)[count % 2], tableimage.NO_CODE)
            table = open_table(image)
            values, counts, _ = table.decode(0, table.block_count, 1 << 16)
            assert same(values, keys)
            assert counts.sum() == len(keys)
            nearest_first = np.argsort(distances_of(keys, keys[0]), kind="stable")
            assert same(table.scan(keys[:1], 64, 0, table.block_count)[1], keys[nearest_first])
            widths.add(int.from_bytes(image[4102:4104], "little"))
    assert widths == set(range(64))


def errors(table: _kernel.Table) -> list[str]:
    collected = []
    for block in range(table.block_count):
        try:
            table.decode(block, block + 1, 1 << 16)
        except CorruptStoreError as error:
            collected.append(str(error))
    return collected


@pytest.mark.parametrize("lengths", [None, tableimage.NO_CODE], ids=CODECS)
def test_damaged_blocks_give_the_same_error(isa, lengths):
    image = tableimage.build(make_keys("clustered", 4, 300), SHUFFLED, 128, lengths)
    rng = np.random.default_rng(8)
    for place in rng.integers(4096, open_table(image).directory_offset, 200).tolist():
        damaged = bytearray(image)
        damaged[place] ^= 1 << rng.integers(8)
        table = open_table(bytes(damaged))
        check(isa, errors, table)
        assert errors(table)


def test_xxh64_equals_the_package():
    data = random.Random(3).randbytes(2000)
    for length in range(2001):
        for seed in (0, 1, 2**63 + length, 2**64 - 1):
            assert _kernel.xxh64(data[:length], seed) == xxhash.xxh64_intdigest(
                data[:length], seed
            ), length


@pytest.mark.parametrize("name", ["avx2", "avx512"])
def test_instruction_set_asks_the_cpu_for_all_its_features(name: str) -> None:
    native = Path(__file__).parents[2] / "fpstore" / "_native"
    features = set(
        re.findall(
            r"-m(\w+)",
            (native / "sources.txt")
            .read_text()
            .partition(f"target_{name}.cpp ")[2]
            .partition("\n")[0],
        )
    )
    assert {"avx2", "lzcnt"} <= features
    queries = re.findall(
        r'__builtin_cpu_supports\("(\w+)"\)|\bhas_(\w+)\(\) &&',
        (native / "isa" / "cpu.cpp").read_text(),
    )
    assert features <= {a or b for a, b in queries}
