"""Table images made in memory by the kernel, and the key sets that the codec tests share."""

import tempfile
from collections.abc import Sequence
from itertools import combinations, pairwise
from pathlib import Path

import brute_force
import numpy as np
import reference
from bitarray.util import canonical_huffman
from hypothesis import settings
from hypothesis import strategies as st

from fpstore import _kernel
from fpstore.format.packed_table import PackedTable, make_directory

IDENTITY = np.arange(64, dtype=np.uint8)
MAX_CODE_BITS = 16
SYMBOLS = 65
NO_CODE = np.zeros(SYMBOLS, np.uint8)  # of the Elias-Fano codec
WIDTHS = reference.WIDTHS


def code_lengths(counts: Sequence[int]) -> np.ndarray:
    """Choose code lengths for a histogram of h.

    A complete code of two symbols or more, none above 16 bits.

    Rare symbols are counted as if they were less rare, and more so until the longest code is short
    enough.
    """
    weights = {symbol: int(n) for symbol, n in enumerate(counts) if n}
    for symbol in (31, 30):
        if len(weights) < 2:
            weights.setdefault(symbol, 1)
    floor = max(1, sum(weights.values()) >> 14)
    while True:
        code = canonical_huffman({symbol: max(n, floor) for symbol, n in weights.items()})[0]
        if max(len(bits) for bits in code.values()) <= MAX_CODE_BITS:
            break
        floor *= 2
    lengths = np.zeros(SYMBOLS, np.uint8)
    for symbol, bits in code.items():
        lengths[symbol] = len(bits)
    return lengths


def histogram(keys: np.ndarray) -> np.ndarray:
    counts = np.zeros(SYMBOLS, np.uint64)
    assert _kernel.histogram(keys, counts) == len(keys)
    return counts


def feed(
    encoder: _kernel.BlockEncoder, keys: np.ndarray, block_bytes: int
) -> tuple[np.ndarray, ...]:
    """Feed keys, and return (bytes, key, entry count) of each block that was completed."""
    most = encoder.most_blocks(len(keys))
    blocks = np.empty(most * block_bytes + _kernel.OVERREAD_BYTES, np.uint8)
    block_keys, counts = np.empty((most, *keys.shape[1:]), np.uint64), np.empty(most, np.uint32)
    n = encoder.feed(keys, blocks, block_keys, counts)
    return blocks[: n * block_bytes], block_keys[:n], counts[:n]


def encode(
    keys: np.ndarray,
    lengths: np.ndarray,
    block_bytes: int,
    seed: int,
    pieces: Sequence[int] = (),
    width: int = 64,
) -> tuple[bytes, np.ndarray, np.ndarray]:
    """Return block bytes, block keys and entry counts.

    The keys are fed in pieces cut at the given places.
    """
    encoder = _kernel.BlockEncoder(lengths, block_bytes, seed, width)
    cuts = [0, *sorted(min(piece, len(keys)) for piece in pieces), len(keys)]
    parts = [feed(encoder, keys[a:b], block_bytes) for a, b in pairwise(cuts)]
    parts.append(encoder.finish())
    blocks, block_keys, counts = (np.concatenate(column) for column in zip(*parts, strict=True))
    return blocks.tobytes(), block_keys, counts


def build(
    fingerprints: np.ndarray,
    permutation: np.ndarray = IDENTITY,
    block_bytes: int = 512,
    lengths: np.ndarray | None = None,
    *,
    table: int = 0,
    table_count: int = 1,
    prefix_bits: int | None = None,
    flips: int = 0,
) -> bytes:
    """Return a table file of distinct fingerprints in any order, as wide as the permutation."""
    keys = sorted_rows(_kernel.permute(np.ascontiguousarray(fingerprints), permutation))
    digest = _kernel.digest(keys, permutation)
    if lengths is None:
        lengths = code_lengths(histogram(keys))
    seed = _kernel.block_seed(permutation, lengths, digest)
    blocks, block_keys, counts = encode(keys, lengths, block_bytes, seed, width=len(permutation))
    assert counts.sum() == len(keys)
    design = (
        table,
        table_count,
        min(len(permutation), 64) if prefix_bits is None else prefix_bits,
        flips,
    )
    header = _kernel.make_header(
        permutation, lengths, digest, len(keys), len(counts), block_bytes, *design
    )
    return header + blocks + index_of(block_keys) + make_directory(block_keys).tobytes()


def sorted_rows(rows: np.ndarray) -> np.ndarray:
    return np.sort(rows) if rows.ndim == 1 else np.ascontiguousarray(rows[np.lexsort(rows.T[::-1])])


def index_of(keys: np.ndarray) -> bytes:
    """Return a key index: the leading words of all keys, then the words behind them."""
    return keys.tobytes() if keys.ndim == 1 else keys[:, 0].tobytes() + keys[:, 1:].tobytes()


def open_table(image: bytes, path: str = "image") -> _kernel.Table:
    return _kernel.Table(np.frombuffer(image, np.uint8), path)


def header_fields(image: bytes) -> bytearray:
    """Return the header of an image, to be changed.

    ``sealed`` puts it back with the right checksum.
    """
    return bytearray(image[: _kernel.HEADER_BYTES])


def sealed(header: bytes | bytearray, image: bytes = b"") -> bytes:
    """Return the header with its checksum recomputed, followed by the sections of the image."""
    body = bytes(header[:-8])
    return body + _kernel.xxh64(body).to_bytes(8, "little") + image[_kernel.HEADER_BYTES :]


# --- Strategies -----------------------------------------------------------------------------------

BLOCK_SIZES = (128, 256, 512, 1024, 2048, 4096)
seeds = st.integers(0, 2**32 - 1)


def make_keys(kind: str, seed: int, size: int) -> np.ndarray:
    """Return at most size distinct ascending keys of one kind."""
    rng = np.random.default_rng(seed)
    if kind == "random":
        keys = rng.integers(0, 2**64, size, np.uint64)
    elif kind == "clustered":
        centres = rng.integers(0, 2**64, max(1, size // 16), np.uint64)
        keys = rng.choice(centres, size) ^ (np.uint64(1) << rng.integers(0, 64, size, np.uint64))
    elif kind == "dense":
        start = rng.choice(
            np.array([0, 2**63 - size, 2**64 - size, rng.integers(2**63)], np.uint64)
        )
        keys = start + np.arange(size, dtype=np.uint64)
    elif kind == "skewed":
        keys = rng.integers(0, 2**64, size, np.uint64) >> rng.integers(0, 64, size, np.uint64)
    else:  # "extreme": single bits and their complements, both ends of the range
        bits = np.uint64(1) << np.arange(64, dtype=np.uint64)
        keys = np.concatenate(
            [bits, ~bits, bits - np.uint64(1), np.array([0, 2**64 - 1], np.uint64)]
        )
        keys = rng.permutation(keys)[:size]
    return np.unique(keys)


def make_rows(kind: str, seed: int, size: int, width: int) -> np.ndarray:
    """Return at most size distinct ascending rows of one kind and width.

    Those of more than 64 bits are "tied" (few leading words), "constant" (one leading word), "last"
    (alike but for the last word) or of a kind of :func:`make_keys`, with random words behind the
    leading ones.
    """
    rng = np.random.default_rng(seed)
    words = reference.words_of(width)
    if width == 32:
        if kind == "dense":  # of a few thousand, every second one
            return np.sort(rng.choice(2 * size, size, replace=False)).astype(np.uint64) + np.uint64(
                2**31 - size
            ) << np.uint64(32)
        return np.unique(make_keys(kind, seed, size) & top_mask(32))
    if width == 64:
        return make_keys(kind, seed, size)
    rows = rng.integers(0, 2**64, (size, words), np.uint64)
    if kind == "tied":
        rows[:, 0] = rng.choice(make_keys("random", seed, max(size // 8, 1)), size)
    elif kind == "constant":
        rows[:, 0] = rows[0, 0]
    elif kind == "last":
        rows[:, :-1] = rows[0, :-1]
        rows[:, -1] = rng.choice(make_keys("clustered", seed, 2 * size), size)
    else:
        rows[:, 0] = rng.choice(make_keys(kind, seed, size), size)
    return np.unique(rows, axis=0)


WIDE_KINDS = ("tied", "constant", "last", "clustered", "extreme")


def kinds_of(width: int) -> tuple[str, ...]:
    return KINDS if width <= 64 else WIDE_KINDS


KINDS = ("random", "clustered", "dense", "skewed", "extreme")


def key_sets(largest: int = 600, smallest: int = 1) -> st.SearchStrategy[np.ndarray]:
    """Draw sorted distinct keys: a few one by one, or many from a seed."""
    drawn = st.lists(st.integers(0, 2**64 - 1), min_size=smallest, max_size=40, unique=True)
    few = drawn.map(lambda keys: np.array(sorted(keys), np.uint64))
    many = st.builds(
        make_keys, st.sampled_from(KINDS), seeds, st.integers(max(1, smallest), largest)
    )
    return st.one_of(few, many.filter(lambda keys: len(keys) >= smallest))


def complete_lengths(
    seed: int, present: set[int], deepest: int = MAX_CODE_BITS, width: int = 64
) -> np.ndarray:
    """Grow a random tree leaf by leaf.

    Complete code lengths that give every present symbol a code.
    """
    rng = np.random.default_rng(seed)
    known = reference.symbols_of(width)
    symbols = sorted(
        present | set(rng.choice(known, int(rng.integers(2, known + 1)), replace=False).tolist())
    )
    leaves = [0]
    bias = rng.choice([0.0, 0.5, 0.95])  # how often the deepest leaf is split: long codes
    while len(leaves) < len(symbols):
        open_leaves = [i for i, depth in enumerate(leaves) if depth < deepest]
        deepest_leaf = max(open_leaves, key=lambda i: leaves[i])
        i = deepest_leaf if rng.random() < bias else int(rng.choice(open_leaves))
        leaves[i] += 1
        leaves.append(leaves[i])
    lengths = np.zeros(SYMBOLS, np.uint8)
    lengths[symbols] = rng.permutation(np.array(leaves, np.uint8))
    return lengths


# --- Plain answers --------------------------------------------------------------------------------


def symbols_of(keys: np.ndarray) -> list[int]:
    width = 64 if keys.ndim == 1 else 64 * keys.shape[1]
    return [
        reference.symbol_between(a, b, width) for a, b in pairwise(brute_force.numbers_of(keys))
    ]


def top_mask(bits: int) -> np.uint64:
    return np.uint64(2**64 - 2 ** (64 - bits))


def rows_near(
    rows: np.ndarray, seed: int, width: int, count: int = 12, most: int = 4
) -> np.ndarray:
    """Return rows with up to ``most`` bits changed, their neighbours in order, and both ends."""
    rng = np.random.default_rng(seed)
    numbers = brute_force.numbers_of(rows[rng.integers(0, len(rows), count)])
    bits = 64 * reference.words_of(width)
    for i in range(count):
        for bit in rng.integers(0, width, rng.integers(0, most + 1)).tolist():
            numbers[i] ^= 1 << (bits - 1 - bit)
    step, end = 2 ** (bits - width), 2**bits
    first, last = brute_force.numbers_of(rows[[0, -1]])
    return brute_force.rows_of(
        [*numbers, (last + step) % end, (first - step) % end, 0, end - step], width
    )


def codec_settings(examples: int) -> settings:
    """Return settings for tests of the codecs, whose time depends on the machine."""
    return settings(max_examples=examples)


def flip_masks(prefix_bits: int, flips: int) -> np.ndarray:
    """Return every mask of at most this many of the leading bits."""
    sets = [c for n in range(flips + 1) for c in combinations(range(prefix_bits), n)]
    return np.array(sorted(sum(1 << (63 - bit) for bit in chosen) for chosen in sets), np.uint64)


def check_index(image):
    """Check the key index and the directory of a table, as verify does."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(image)
        file.flush()
        PackedTable(Path(file.name), None).check_index()


def read_everything(image):
    check_index(image)
    table = open_table(image)
    for block in range(table.block_count):
        table.decode(block, block + 1, 0)
