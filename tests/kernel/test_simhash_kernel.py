"""The kernel of SimHash, called with what Python would not give it."""

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from isas import isa  # noqa: F401
from simhash_oracle import AS_THEY_ARE, normal_form_of

from fpstore import _kernel
from fpstore.hashing import SimHash
from fpstore.hashing.normal import char_map


def xxh64(text):
    return xxhash.xxh64_intdigest(text.encode())


def kernel(text, offsets, columns=AS_THEY_ARE, **given):
    """Call the kernel with arguments of which some are given."""
    none = np.empty(0, np.uint64)
    values = {
        "words": True,
        "length": 1,
        "counting": "count",
        "hashing": "xxh64",
        "seed": 0,
        "row_words": 1,
        "weighted": none,
        "weights": np.empty(0, np.uint32),
        "other_weight": 1,
        "stops": none,
        "fields": np.ones(1, np.uint32),
    } | given
    return _kernel.TextFeatures(**values).simhash(text, offsets, _kernel.CharTables(*columns))


def test_the_kernel_checks_its_arguments():
    offsets, two = np.array([0, 3], dtype=np.uint64), np.array([5, 5], np.uint64)
    for text, limits, changed, message in (
        (b"abc", offsets[::-1].copy(), {}, "descend"),
        (b"ab", offsets, {}, "past the text"),
        (b"abc", offsets[:0], {}, "offsets have a start"),
        (b"abc", offsets, {"length": 0}, "at least 1"),
        (b"abc", offsets, {"length": 1 << 16}, "not above 65535"),
        (b"abc", offsets, {"row_words": 3}, "1, 2 or 4 words"),
        (b"abc", offsets, {"counting": "each"}, "count, set or log"),
        (b"abc", offsets, {"hashing": "md5"}, "xxh64 and fnv1a"),
        (b"abc", offsets, {"stops": two}, "stop words ascend"),
        (b"abc", offsets, {"weighted": two}, "a weight for each"),
        (b"abc", offsets, {"fields": np.empty(0, np.uint32)}, "a text for each field"),
        (b"abc", offsets, {"fields": np.ones(2, np.uint32)}, "a text for each field"),
        (b"abc", offsets, {"fields": np.zeros(1, np.uint32)}, "1 to 65535"),
        (b"abc", offsets, {"fields": np.full(1, 2**16, np.uint32)}, "1 to 65535"),
        (
            b"abc",
            offsets,
            {"weighted": two, "weights": np.ones(2, np.uint32)},
            "weighted features ascend",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            kernel(text, limits, **changed)
    assert len(kernel(b"", offsets[:1])[0]) == 0
    for weights, flags in ((1, len(offsets)), (len(offsets), 1)):
        with pytest.raises(ValueError, match="a weight and a flag for each row"):
            _kernel.simhash_weighted(offsets, np.zeros(weights), np.zeros(flags, np.uint8), 1)


@given(
    st.binary(max_size=200),
    st.integers(1, 4),
    st.booleans(),
    st.sampled_from(["count", "log", "set"]),
    st.sampled_from(["auto", "words", "chars"]),
)
def test_the_kernel_takes_any_bytes(data, length, words, counting, units):
    offsets = np.array([0, len(data) // 2, len(data) // 2, len(data)], dtype=np.uint64)
    stops = np.array([7], np.uint64)
    for tables in (AS_THEY_ARE, char_map(normal_form_of(SimHash(shingle=units))).columns):
        rows, states, *_ = kernel(
            data,
            offsets,
            tables,
            length=length,
            words=words,
            counting=counting,
            row_words=4,
            stops=stops,
        )
        assert rows.shape == (3, 4)
        assert states[1] == 1


def word_with_hash_zero():
    """Return the eight bytes whose XXH64 with seed 0 is 0.

    Every step of that hash has an inverse.
    """
    p1, p2, p4 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x85EBCA77C2B2AE63
    p5, modulus = 0x27D4EB2F165667C5, 2**64

    def turn_right(x, bits):
        return (x >> bits | x << (64 - bits)) % modulus

    # The avalanche takes 0 to 0 only: the state before it is 0.
    lane = turn_right((0 - p4) * pow(p1, -1, modulus) % modulus, 27) ^ (p5 + 8)
    word = turn_right(lane * pow(p1, -1, modulus) % modulus, 31) * pow(p2, -1, modulus) % modulus
    return word.to_bytes(8, "little")


def test_a_hash_of_zero_is_counted_once_in_a_set():
    zero = word_with_hash_zero()
    assert xxhash.xxh64_intdigest(zero) == 0
    assert b" " not in zero
    for others in (["a"], ["a", "b"], ["a", "b", "c"]):
        text = b" ".join([zero, zero, zero, *(other.encode() for other in others)])
        hashes = [0, *map(xxh64, others)]
        majority = sum(
            1 << i for i in range(64) if sum(h >> i & 1 for h in hashes) * 2 > len(hashes)
        )
        offsets = np.array([0, len(text)], dtype=np.uint64)
        assert kernel(text, offsets, counting="set")[0].tolist() == [majority]


def simhash_of(hashes):
    """Return the simhash of features that weigh the same."""
    bits = np.unpackbits(np.array(hashes, "<u8").view(np.uint8), bitorder="little").reshape(-1, 64)
    above = bits.sum(0, dtype=np.int64) * 2 > len(hashes)
    return int(np.packbits(above, bitorder="little").view("<u8")[0])


def shingles_of(text, length, words):
    units = text.split(" ") if words else list(text)
    joined = (" " if words else "").join
    return [joined(units[i : i + length]) for i in range(max(len(units) - length, 0) + 1)]


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("words", [True, False])
def test_texts_of_many_units_and_long_words(words):
    random = np.random.default_rng(8)
    for count, longest, length in (
        *((count, 9, 2) for count in (1, 2, 3, 7, 8, 9, 15, 16, 17, 63, 64, 65, 127, 129, 1023)),
        *((count, 9, 3) for count in (1024, 1026, 1027, 3000)),
        (1500, 40, 1),
        (700, 150, 3),
        (2500, 3, 255),
        (200, 3, 255),
    ):
        sizes = random.integers(1, longest + 1, count)
        text = " ".join("".join(random.choice(list("abc\u00e9\u4e2d"), n)) for n in sizes)
        data = text.encode()
        offsets = np.array([0, len(data)], dtype=np.uint64)
        rows = kernel(data, offsets, words=words, length=length)[0]
        assert rows.tolist() == [simhash_of(list(map(xxh64, shingles_of(text, length, words))))]


@pytest.mark.usefixtures("isa")
def test_ascii_that_becomes_spaces_or_nothing():
    random = np.random.default_rng(9)
    ascii_table = bytearray(range(128))
    ascii_table[ord(".")] = ord(" ")
    for gone in (None, 0xFE, 0xFF):
        if gone:
            ascii_table[ord("-")] = gone
        tables = AS_THEY_ARE._replace(ascii=bytes(ascii_table))
        for size in (*range(1, 70), *range(120, 135), 400):
            for letters in ("ab.", "abcdefgh .-", "-. "):
                text = "x" + "".join(random.choice(list(letters), size))
                form = " ".join(text.replace("-", "" if gone else "-").replace(".", " ").split())
                offsets = np.array([0, size + 1], dtype=np.uint64)
                rows = kernel(text.encode(), offsets, tables)[0]
                assert rows.tolist() == [simhash_of(list(map(xxh64, form.split())))]


def test_runs_of_chinese_characters_with_separators():
    random = np.random.default_rng(10)
    hasher = SimHash(size=1, weighting="count")
    for size in (*range(1, 20), 63, 64, 65, 66, 200, 1000):
        units = random.choice(list("\u4e2d\u6587\u5b57\u7b26\uff0c\u3002"), size)
        text = "\u4e2d" + "".join(units)
        kept = [unit for unit in text if unit not in "\uff0c\u3002"]
        assert hasher.fingerprint(text) == simhash_of(list(map(xxh64, kept)))
