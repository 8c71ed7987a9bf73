"""The kernel at the edges of what it takes.

Prefixes of 0 to 64 bits, few and many queries and entries, small stacks.
"""

import itertools
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
import tableimage
from speeds import crossed

import fpstore
from fpstore import _kernel
from fpstore.query.batches import PROBE_QUERIES, concatenate, run, split_queries

ISAS = _kernel.available_isas()
SOME_SIZES = (0, 1, 2, 3, 5, 9, 20, 63, 64, 65, 66, 1000)
BATCHES = (1, 24, 25, 64, 65)  # around what is sorted by insertion, and what is looked up together
MANY = (2048, 70_000)  # sorted by themselves, and in several calls
PREFIXES = range(65)
FEW_PREFIXES = (0, 1, 9, 18, 24, 39, 40, 41, 63, 64)
RADIUS = 2
NONE, ONE = np.zeros(1, np.uint64), tuple(tableimage.flip_masks(p, min(p, 1)) for p in PREFIXES)


@pytest.fixture(autouse=True)
def same_isa() -> Iterator[None]:
    before = _kernel.isa()
    yield
    _kernel.select_isa(before)


def fingerprints_of(size: int) -> np.ndarray:
    """Return adjacent, clustered and random fingerprints with both ends of the range among them."""
    rng = np.random.default_rng(size)
    ends = np.array([0, 2**64 - 1, 1, 2**63], np.uint64)
    dense = np.uint64(0xABC << 40) + np.arange(size // 4, dtype=np.uint64) * np.uint64(5)
    near = rng.integers(0, 2**64, 3, np.uint64)[np.arange(size // 3) % 3] ^ (
        np.uint64(1) << rng.integers(0, 64, size // 3, np.uint64)
    )
    drawn = np.concatenate([ends, dense, near, rng.integers(0, 2**64, size, np.uint64)])
    _, first = np.unique(drawn, return_index=True)
    return np.sort(drawn[np.sort(first)][:size])


def queries_of(fingerprints: np.ndarray, count: int) -> np.ndarray:
    rng = np.random.default_rng(count)
    stored = rng.choice(fingerprints, count) if len(fingerprints) else np.zeros(count, np.uint64)
    for _ in range(3):
        flip = np.uint64(1) << rng.integers(0, 64, count, np.uint64)
        stored = np.where(rng.random(count) < 0.5, stored ^ flip, stored)
    return np.where(rng.random(count) < 0.2, rng.integers(0, 2**64, count, np.uint64), stored)


class Pairs:
    """Every pair of a query and a fingerprint within the radius, in the order of matches."""

    def __init__(self, fingerprints: np.ndarray, queries: np.ndarray) -> None:
        self.count = len(queries)
        parts = [np.zeros((0, 3), np.uint64)]
        for start in range(0, len(queries) if len(fingerprints) else 0, 4096):
            difference = queries[start : start + 4096, None] ^ fingerprints
            place, entry = np.nonzero(np.bitwise_count(difference) <= RADIUS)
            parts.append(
                np.column_stack(
                    [
                        np.uint64(start) + place.astype(np.uint64),
                        fingerprints[entry],
                        difference[place, entry],
                    ]
                )
            )
        self.query, self.fingerprint, self.difference = np.concatenate(parts).T
        self.distance = np.bitwise_count(self.difference)
        order = np.lexsort((self.fingerprint, self.distance, self.query))
        for name in ("query", "fingerprint", "difference", "distance"):
            setattr(self, name, getattr(self, name)[order])

    def meeting(self, prefix_bits: int, flips: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the columns of the pairs that differ in at most so many of the leading bits."""
        mask = np.uint64(2**64 - 2 ** (64 - prefix_bits))
        kept = np.bitwise_count(self.difference & mask) <= flips
        lims = np.zeros(self.count + 1, np.int64)
        np.cumsum(
            np.bincount(self.query[kept].astype(np.int64), minlength=self.count), out=lims[1:]
        )
        return lims, self.fingerprint[kept], self.distance[kept]


def check_probes(
    size: int, count: int, prefixes: Iterable[int], threads: int, flips: Iterable[int]
) -> None:
    """Look up each prefix in every order, in turn with every instruction set and block size."""
    fingerprints = fingerprints_of(size)
    queries = queries_of(fingerprints, count)
    pairs = Pairs(fingerprints, queries)
    tables = [
        tableimage.open_table(tableimage.build(fingerprints, block_bytes=b))
        for b in (128, 512, 4096)
    ]
    for prefix_bits, flip, order in itertools.product(prefixes, flips, ("best", "near", "sorted")):
        if flip > prefix_bits:
            continue
        _kernel.select_isa(ISAS[prefix_bits % len(ISAS)])
        prober = _kernel.Prober()
        prober.add(
            tables[(prefix_bits + size) % 3], prefix_bits, flip, ONE[prefix_bits] if flip else NONE
        )

        def work(part, stop=None, prober=prober, order=order):
            return prober.probe(part, RADIUS, order=order, stop=stop)[:3]

        answer = concatenate(run(work, split_queries(queries, threads, PROBE_QUERIES), threads))
        for column, wanted in zip(answer, pairs.meeting(prefix_bits, flip), strict=True):
            assert np.array_equal(column, wanted), (prefix_bits, flip, order)


# --- Probes ---------------------------------------------------------------------------------------


def test_prefix_of_no_bits_and_a_sweep(tmp_path):
    """Five fingerprints and 5,000 queries.

    Look-ups with no bit to sort by were sorted by a shift of 64.
    """
    fingerprints, queries = np.arange(5, dtype=np.uint64), np.arange(5000, dtype=np.uint64)
    with fpstore.build(tmp_path / "store", fingerprints, design="flip-2") as store:
        matches = store.probe_many(queries, threads=1)
    near = np.bitwise_count(queries[:, None] ^ fingerprints) <= 3
    assert np.array_equal(np.diff(matches.lims), near.sum(axis=1))
    assert np.array_equal(np.sort(matches.fingerprints), np.sort(np.nonzero(near)[1]))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("size", SOME_SIZES)
def test_every_prefix_with_few_queries(size):
    for i, count in enumerate(BATCHES):
        check_probes(size, count, PREFIXES[i % 2 :: 2], 1, (0,))
        check_probes(size, count, PREFIXES[(i + size) % 3 :: 3], 1, (1,))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("size", "count"), crossed([0, 300, 1, 64], MANY))
def test_many_queries(size, count):
    check_probes(size, count, FEW_PREFIXES, 1, (0,))
    check_probes(size, count, FEW_PREFIXES[::3], 3, (0, 1) if count == MANY[0] else (0,))


# --- Other calls ----------------------------------------------------------------------------------


def deep_ties(size: int) -> np.ndarray:
    """Return keys: half agree on the first 9 bits, half of those on the next 9, and so on."""
    rng = np.random.default_rng(size)
    return rng.integers(0, 2**64, size, np.uint64) >> (
        np.uint64(9) * rng.geometric(0.5, size).clip(1, 7).astype(np.uint64)
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize("isa", ISAS)
def test_sorts_by_any_number_of_bits(isa):
    _kernel.select_isa(isa)
    for size in (*range(27), 63, 64, 65, 2048, 65_537, 140_000):
        check_sorts(size)


def check_sorts(size):
    keys = deep_ties(size)
    scratch, permuted = np.empty_like(keys), np.empty_like(keys)
    numbered = np.column_stack([keys, np.arange(size, dtype=np.uint64)]).ravel()
    _kernel.sort_pairs(numbered, np.empty_like(numbered))
    order = np.argsort(keys, kind="stable")
    assert np.array_equal(numbered[::2], keys[order])
    assert np.array_equal(numbered[1::2], order)
    source = np.sort(keys)
    other = np.random.default_rng(size).permutation(64).astype(np.uint8)
    dealt = _kernel.permute(source, other, False)
    for bits in range(1, 65) if size < 3000 else (1, 8, 9, 10, 18, 19, 40, 63, 64):
        shift = np.uint64(64 - bits)
        part = keys.copy()
        _kernel.sort_keys(part, scratch, bits)
        assert np.array_equal(part, keys[np.argsort(keys >> shift, kind="stable")])
        _kernel.permute_sort(source, tableimage.IDENTITY, permuted, scratch, bits)
        assert np.array_equal(permuted, source)
        _kernel.permute_sort(source, other, permuted, scratch, bits)
        assert np.array_equal(permuted, dealt[np.argsort(dealt >> shift, kind="stable")])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 255, 256, 257, 4095, 4096, 4097])
def test_a_delta_at_the_ends_of_its_pieces(isa, size):
    """Fingerprints share a bucket, which is compared by 256 and scanned by 4,096 at a time."""
    _kernel.select_isa(isa)
    fingerprints = np.uint64(2**63) + np.arange(size, dtype=np.uint64)
    queries = np.concatenate(
        [fingerprints[:3], fingerprints[-3:], np.array([0, 2**64 - 1], np.uint64)]
    )
    delta = _kernel.Delta(RADIUS, tableimage.IDENTITY)
    nothing = np.zeros(size, np.uint8)
    delta.apply(nothing, fingerprints, np.arange(size, dtype=np.uint64), nothing, 1)
    wanted = Pairs(fingerprints, queries).meeting(0, 0)
    for item in (delta.probe(queries, RADIUS, 1), delta.scan(queries, RADIUS, 1)):
        for column, expected in zip(item, wanted, strict=True):
            assert np.array_equal(column, expected)


def test_arguments_that_no_store_has():
    keys, counts = np.zeros(2, np.uint64), np.ones(2, np.uint64)
    for ids, per_key, blocks, match in (
        (2, counts, [0], "entries"),
        (2, counts, [3], "disagree"),
        (3, counts, [2], "disagree"),
        (2, counts * 0, [2], "needs an id"),
        (2, counts[:1], [2], "different lengths"),
    ):
        with pytest.raises(ValueError, match=match):
            _kernel.IdPacker(_kernel.SealedEncoder(1), 0).feed(
                keys,
                per_key,
                np.zeros(ids, np.uint64),
                np.array(blocks, np.uint32),
            )
    image = tableimage.build(fingerprints_of(9))
    room = np.zeros(len(image) + 8, np.uint8)
    start = -room.ctypes.data % 8 + 1
    room[start : start + len(image)] = np.frombuffer(image, np.uint8)
    with pytest.raises(ValueError, match="multiple of 8"):
        _kernel.Table(room[start : start + len(image)], "image")


def test_rules_of_a_join_that_do_not_fit_together():
    mask = np.zeros(1, np.uint64)
    right = {
        "permutation": np.arange(64, dtype=np.uint8),
        "bucket_masks": mask,
        "tag_masks": mask,
        "flips": [0],
        "both": [1],
        "tag_bits": 16,
        "radius": 3,
    }
    rules = _kernel.JoinRules(**right)
    for name, value, match in (
        ("permutation", np.zeros(64, np.uint8), "permutation"),
        ("permutation", np.arange(48, dtype=np.uint8), "permutation"),
        ("permutation", np.arange(128, dtype=np.uint8), "one of each"),
        ("bucket_masks", np.zeros(2, np.uint64), "one of each"),
        ("tag_masks", mask[:0], "one of each"),
        ("both", [1, 1], "one of each"),
        ("flips", [2], "at least flips"),
        ("tag_bits", 17, "at most 16"),
    ):
        with pytest.raises(ValueError, match=match):
            _kernel.JoinRules(**right | {name: value})
    with pytest.raises(ValueError, match="one of each"):
        _kernel.JoinRules(
            **right | {"bucket_masks": mask[:0], "tag_masks": mask[:0], "flips": [], "both": []}
        )
    rows, starts = np.zeros((3, 2), np.uint64), np.array([0, 3], np.uint64)
    tags = np.zeros(len(rows) + _kernel.TAG_ROOM, np.uint16)
    for search in (
        lambda: _kernel.PairJoin(rows, starts, tags, rules, 0, 1),
        lambda: _kernel.Linking(rows, starts, tags, rules),
        lambda: _kernel.PartSearch([(rows, starts, False)], rules, 0, 0, False),
    ):
        with pytest.raises(ValueError, match="rows of another width"):
            search()


@pytest.mark.parametrize("words", [0, 3, 5, 9, 2**31])
def test_keys_of_widths_that_no_store_has(tmp_path, words):
    """Keys are copied to arrays of four words."""
    (tmp_path / "f").write_bytes(bytes(8192))
    descriptor = os.open(tmp_path / "f", os.O_RDONLY)
    for make in (
        lambda: _kernel.SealedEncoder(words),
        lambda: _kernel.SealedFile(os.dup(descriptor), "f", words, 0),
    ):
        with pytest.raises(ValueError, match="1, 2 or 4 words"):
            make()
    os.close(descriptor)


SMALL_STACK = """
import sys, threading
sys.path[:0] = [sys.argv[1] + "/helpers", sys.argv[1] + "/kernel"]
import numpy as np
import tableimage
from fpstore import _kernel
from test_kernel_edges import NONE, deep_ties, fingerprints_of

_kernel.select_isa(sys.argv[2])
fingerprints = fingerprints_of(1000)
table = tableimage.open_table(tableimage.build(fingerprints, block_bytes=4096))
keys = deep_ties(140_000)
scratch, out = np.empty_like(keys), np.empty_like(keys)
prober = _kernel.Prober()
prober.add(table, 20, 0, NONE)
done = []

def work():
    done.append(len(prober.probe(keys[:5000], 3, order="sorted")))
    done.append(len(prober.probe(fingerprints[:1], 3)))
    done.append(len(table.locate(fingerprints)))
    done.append(len(table.scan(fingerprints[:9], 3, 0, table.block_count)))
    done.append(len(table.decode(0, table.block_count, 0)))
    _kernel.permute_sort(fingerprints, tableimage.IDENTITY, out[:1000], scratch, 64)
    _kernel.permute_sort(keys, tableimage.IDENTITY, out, scratch, 64)
    _kernel.sort_keys(keys, scratch, 64)
    done.append(len(keys))

threading.stack_size(int(sys.argv[3]))
thread = threading.Thread(target=work)
thread.start()
thread.join()
print(len(done))
"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize("isa", ISAS)
def test_calls_need_little_stack(isa):
    """A probe took 400 KB, more than the threads of some systems have in all."""
    here = str(Path(__file__).parents[1])
    command = [sys.executable, "-P", "-c", SMALL_STACK, here, isa, str(96 << 10)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "6", "")


NO_MEMORY = """
import resource, sys
import numpy as np
import fpstore
from fpstore import _kernel

keys, bits = np.zeros(1 << 23, np.uint64), np.arange(64, dtype=np.uint8)
content = b"x" * (1 << 26) + bytes([255])
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (32 << 20), resource.RLIM_INFINITY))
try:
    _kernel.permute(keys, bits)
except fpstore.MemoryLimitError as error:
    print(error)
try:
    words = [np.array(n, np.uint64) for n in ([1], [0, 1], [0], [0])]
    _kernel.place_strings([content], *words, [""])
except MemoryError as error:
    print(type(error).__name__)
"""


@pytest.mark.full
@pytest.mark.skipif(
    "asan" in os.environ.get("LD_PRELOAD", ""), reason="the sanitizer ends a process without memory"
)
def test_a_call_without_memory_says_so():
    """It raised a bare MemoryError, or took a string that it could not decode for a damaged one."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", NO_MEMORY], capture_output=True, text=True, check=False
    )
    message = "out of memory: work on fewer rows at a time\nMemoryError\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, message, "")
