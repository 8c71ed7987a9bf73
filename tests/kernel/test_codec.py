"""The kernel's codec against the readable decoder of reference.py and plain NumPy."""

import contextlib

import numpy as np
import pytest
import reference
import tableimage
from hypothesis import example, given
from hypothesis import strategies as st
from speeds import crossed
from tableimage import (
    BLOCK_SIZES,
    IDENTITY,
    KINDS,
    NO_CODE,
    block_sizes,
    check_index,
    codec_settings,
    grouped,
    key_sets,
    make_keys,
    open_table,
    permutations,
    permute_oracle,
    read_everything,
    seeds,
    symbols_of,
    top_mask,
    unsorted_words,
)

from fpstore import _kernel
from fpstore.design.blocks import CODECS
from fpstore.errors import CorruptStoreError, InputError

words = st.integers(0, 2**64 - 1)


# How keys are coded: by their own Huffman code, by any complete one, or by Elias-Fano.
codes = st.one_of(st.none(), seeds, st.just(NO_CODE))


def lengths_for(code, keys):
    if code is None:
        return tableimage.code_lengths(tableimage.histogram(keys))
    return code if code is NO_CODE else tableimage.complete_lengths(code, set(symbols_of(keys)))


# --- Blocks ---------------------------------------------------------------------------------------


@codec_settings(60)
@given(key_sets(), block_sizes, words, codes, st.lists(st.integers(0, 600), max_size=4))
@example(np.array([0], np.uint64), 128, 0, None, [])
@example(make_keys("dense", 1, 3000), 128, 1, None, [1, 2])
@example(np.array([2**64 - 1], np.uint64), 128, 0, NO_CODE, [])
@example(make_keys("dense", 1, 3000), 4096, 1, NO_CODE, [1, 2])
def test_encode_equals_the_reference(keys, block_bytes, seed, code, pieces):
    """Also with codes of up to 16 bits that no histogram asks for, and whatever pieces the keys come in."""
    lengths = lengths_for(code, keys)
    blocks, block_keys, counts = tableimage.encode(keys, lengths, block_bytes, seed, pieces)
    parts = reference.cut(keys.tolist(), lengths.tolist(), block_bytes)
    assert block_keys.tolist() == [part[-1] for part in parts]
    assert counts.tolist() == [len(part) for part in parts]
    assert blocks == reference.encode_blocks(keys.tolist(), lengths.tolist(), block_bytes, seed)


@codec_settings(60)
@given(key_sets(), permutations(), block_sizes, codes, st.data())
def test_decode_equals_the_reference(fingerprints, permutation, block_bytes, code, data):
    keys = np.sort(permute_oracle(fingerprints, permutation))
    image = tableimage.build(fingerprints, permutation, block_bytes, lengths_for(code, keys))
    readable = reference.Table(image)
    assert list(readable.permuted()) == keys.tolist()
    assert readable.verify() == fingerprints.tolist()
    table = open_table(image)
    check_index(image)
    values, counts, end = table.decode(0, table.block_count, len(keys))
    assert end == table.block_count
    assert np.array_equal(values, keys)
    assert counts.sum() == len(keys)
    first = data.draw(st.integers(0, table.block_count - 1))
    values, counts, end = table.decode(first, first + 1, 0)
    assert (values.tolist(), counts.tolist(), end) == (readable.block(first), [len(values)], first + 1)


@pytest.mark.parametrize(("kind", "block_bytes", "lengths"), crossed(KINDS, BLOCK_SIZES, [None, NO_CODE], share=5))
def test_every_kind_of_set_in_every_block_size(kind, block_bytes, lengths):
    fingerprints = make_keys(kind, 7, 4000)
    image = tableimage.build(fingerprints, np.roll(IDENTITY, 21), block_bytes, lengths)
    readable = reference.Table(image)
    assert readable.verify() == fingerprints.tolist()
    header = readable.header
    again = reference.encode_blocks(list(readable.permuted()), header.code_bits, block_bytes, header.seed)
    assert image[4096 : header.keys_offset] == again
    table = open_table(image)
    values = table.decode(0, table.block_count, len(fingerprints))[0]
    assert np.array_equal(np.sort(_kernel.permute(values, np.roll(IDENTITY, 21), True)), fingerprints)


def read_in_turn(table: _kernel.Table, blocks: int, room: int) -> None:
    start = 0
    while start < blocks:
        _, _, end = table.decode(start, blocks, room)
        assert end > start
        start = end


def test_decode_stops_when_the_room_is_used():
    """However little room is asked for, two of the fullest blocks are decoded."""
    keys = make_keys("dense", 5, 200_000)
    table = open_table(tableimage.build(keys, block_bytes=4096))
    values, counts, end = table.decode(0, table.block_count, 100_000)
    assert 0 < end < table.block_count
    assert 0 < len(values) == counts.sum() <= 100_000
    assert 2 <= table.decode(0, table.block_count, 0)[2] <= end
    rest, _, stop = table.decode(end, table.block_count, len(keys))
    assert stop == table.block_count
    assert np.array_equal(np.concatenate([values, rest]), keys)


@pytest.mark.parametrize("count", [0, 1, 32769, 65535])
def test_a_changed_count_is_an_error_whatever_the_room(count):
    """Not an empty answer, which would have a reader ask for the same blocks for ever."""
    image = tableimage.build(make_keys("random", 6, 30), block_bytes=128)
    blocks = open_table(image).block_count
    for changed in ([0], [1], range(blocks)):
        damaged = bytearray(image)
        for block in changed:
            at = 4096 + 128 * block + 4
            damaged[at : at + 2] = count.to_bytes(2, "little")
        table = open_table(bytes(damaged))
        for room in (0, 65536, 131072):
            with pytest.raises(CorruptStoreError):
                read_in_turn(table, blocks, room)


def test_an_empty_table():
    image = tableimage.build(np.empty(0, np.uint64))
    assert len(image) == 4096 + 16
    assert reference.Table(image).verify() == []
    table = open_table(image)
    check_index(image)
    assert table.locate_one(5) is None
    assert table.decode(0, 0, 1)[2] == 0
    prober = _kernel.Prober()
    prober.add(table, 10, 0, np.zeros(1, np.uint64))
    assert prober.probe(np.zeros(3, np.uint64), 64)[0].tolist() == [0, 0, 0, 0]


def test_code_lengths_stay_within_the_format_for_fibonacci_counts():
    """Such counts give the deepest Huffman tree there is for their sum."""
    counts = [1, 1]
    while len(counts) < 64:
        lengths = tableimage.code_lengths(counts)
        reference.check_code(lengths.tolist())
        assert (lengths[: len(counts)] > 0).all()
        counts.append(counts[-1] + counts[-2])


@pytest.mark.parametrize(
    "lengths",
    [[1], [1, 0], [0, 2, 2], [1, 1, 1], [1, 2, 3], [17, 17, 16, *range(15, 0, -1)], [255, 1]],
    ids=["one", "half", "incomplete", "over", "short", "17 bits", "255 bits"],
)
def test_encoder_refuses_a_code(lengths):
    padded = np.array([*lengths, *[0] * (65 - len(lengths))], np.uint8)
    with pytest.raises(reference.FormatError):
        reference.check_code(padded.tolist())
    with pytest.raises(ValueError, match="complete code"):
        _kernel.BlockEncoder(padded, 128, 0)


@pytest.mark.parametrize("block_bytes", [0, 64, 127, 129, 384, 8192])
def test_encoder_refuses_a_block_size(block_bytes):
    with pytest.raises(ValueError, match="power of two"):
        _kernel.BlockEncoder(tableimage.code_lengths([1, 1]), block_bytes, 0)


@codec_settings(40)
@given(key_sets(300, smallest=2), st.integers(0, 299), st.integers(0, 299), block_sizes)
def test_encoder_names_the_key_out_of_order(keys, place, cut, block_bytes):
    place = 1 + place % (len(keys) - 1)
    wrong = keys.copy()
    wrong[place] = keys[place - 1]
    encoder = _kernel.BlockEncoder(tableimage.complete_lengths(1, set(range(64))), block_bytes, 0)
    cut %= place + 1
    tableimage.feed(encoder, wrong[:cut], block_bytes)
    with pytest.raises(InputError, match=f"out of order at {place}:") as caught:
        tableimage.feed(encoder, wrong[cut:], block_bytes)
    assert (caught.value.expected, caught.value.got) == (int(wrong[place - 1]), int(wrong[place]))


@codec_settings(30)
@given(key_sets(200), block_sizes, seeds, st.sampled_from([None, NO_CODE]))
def test_a_changed_bit_of_a_section_is_found(keys, block_bytes, seed, lengths):
    """Any bit of the blocks, the key index or the directory."""
    image = tableimage.build(keys, block_bytes=block_bytes, lengths=lengths)
    rng = np.random.default_rng(seed)
    for _ in range(20):
        changed = bytearray(image)
        changed[rng.integers(4096, len(image))] ^= 1 << rng.integers(8)
        with pytest.raises(CorruptStoreError):
            read_everything(bytes(changed))
        with pytest.raises(reference.FormatError):
            reference.Table(bytes(changed)).verify()


@codec_settings(100)
@given(
    key_sets(60),
    st.sampled_from(BLOCK_SIZES[:2]),
    st.lists(st.tuples(st.integers(4, 127), words), max_size=4),
    st.sampled_from([None, NO_CODE]),
)
def test_blocks_with_a_right_checksum_are_judged_alike(keys, block_bytes, changes, lengths):
    """Whatever else the block says; the reference alone looks at order and padding."""
    image = bytearray(tableimage.build(keys, block_bytes=block_bytes, lengths=lengths))
    header = reference.parse_header(image, len(image))
    for offset, change in changes:
        image[4096 + offset] ^= change % 256
    key = int.from_bytes(image[header.keys_offset :][:8], "little") ^ (len(changes) == 3)
    seed = reference.block_seed(header.seed, 0, key, 0)
    image[4096:4100] = reference.block_sum(bytes(image[4096 : 4096 + block_bytes]), seed).to_bytes(4, "little")
    image[header.keys_offset : header.keys_offset + 8] = key.to_bytes(8, "little")
    table = open_table(bytes(image))
    try:
        expected = reference.decode_block(image[4096:][:block_bytes], header.code_bits, header.seed, 0, key, None)
    except reference.FormatError as error:
        if str(error) not in ("entries out of order", "padding is not zero"):
            with pytest.raises(CorruptStoreError):
                table.decode(0, 1, 0)
    else:
        assert table.decode(0, 1, 0)[0].tolist() == expected


@pytest.mark.parametrize("section", ["keys", "directory"])
@pytest.mark.parametrize("lengths", [None, NO_CODE], ids=CODECS)
def test_a_wrong_word_of_an_index_is_found_or_does_no_harm(section, lengths):
    fingerprints = make_keys("random", 2, 450)
    image = tableimage.build(fingerprints, block_bytes=128, lengths=lengths)
    table = open_table(image)
    truth = table.locate(fingerprints)
    start, end = (table.keys_offset, table.directory_offset, len(image))[section == "directory" :][:2]
    for at in range(start, end, 8):
        for change in (-1, 1, 5):
            word = (int.from_bytes(image[at : at + 8], "little") + change) % 2**64
            damaged = image[:at] + word.to_bytes(8, "little") + image[at + 8 :]
            wrong = open_table(damaged)
            with pytest.raises(CorruptStoreError):
                read_everything(damaged)
            prober = _kernel.Prober()
            prober.add(wrong, 64, 0, np.zeros(1, np.uint64))
            for i, fingerprint in enumerate(fingerprints):  # one by one: an error of another may not hide a wrong answer
                with contextlib.suppress(CorruptStoreError):
                    assert wrong.locate_one(int(fingerprint)) == (truth[0][i], truth[1][i])
                with contextlib.suppress(CorruptStoreError):
                    assert prober.probe(fingerprints[i : i + 1], 0)[1].tolist() == [fingerprint]


@pytest.mark.parametrize("lengths", [None, NO_CODE], ids=CODECS)
def test_a_key_beyond_the_last_entry_is_found_though_every_checksum_is_right(lengths):
    """What only a faulty or hostile writer can make: whoever looks for such a key is told, not answered."""
    keys = make_keys("random", 5, 12)
    image = bytearray(tableimage.build(keys, block_bytes=256, lengths=lengths))
    header = reference.parse_header(image, len(image))
    assert header.block_count == 1
    key = int(keys[-1]) + 1
    seed = reference.block_seed(header.seed, 0, key, 0)
    image[4096:4100] = reference.block_sum(image[4096 : 4096 + 256], seed).to_bytes(4, "little")
    image[header.keys_offset : header.keys_offset + 8] = key.to_bytes(8, "little")
    table = open_table(bytes(image))
    prober = _kernel.Prober()
    prober.add(table, 64, 0, np.zeros(1, np.uint64))
    wanted = np.array([key], np.uint64)
    for use in (
        lambda: table.locate(wanted),
        lambda: table.locate_one(key),
        lambda: prober.probe(wanted, 0),
        lambda: prober.probe_one(key, 0, table),
        lambda: table.decode(0, 1, 0),
        lambda: table.scan(wanted, 0, 0, 1),
    ):
        with pytest.raises(CorruptStoreError, match="key index does not match the block"):
            use()
    assert table.locate_one(int(keys[3])) == (0, 3)


# --- Keys -----------------------------------------------------------------------------------------


@codec_settings(40)
@given(key_sets(), st.integers(0, 1000))
def test_histogram(keys, offset):
    counts = np.arange(65, dtype=np.uint64)
    assert _kernel.histogram(keys, counts) == len(keys)
    expected = np.arange(65) + np.bincount(symbols_of(keys), minlength=65)
    assert np.array_equal(counts, expected)
    if len(keys) > 1:
        place = 1 + offset % (len(keys) - 1)
        keys[place] = keys[place - 1]
        assert _kernel.histogram(keys, counts) == place


@codec_settings(30)
@given(key_sets(300), permutations())
def test_permute_and_digest(fingerprints, permutation):
    keys = _kernel.permute(fingerprints, permutation)
    assert np.array_equal(keys, permute_oracle(fingerprints, permutation))
    assert np.array_equal(_kernel.permute(keys, permutation, True), fingerprints)
    for fingerprint, key in list(zip(fingerprints.tolist(), keys.tolist(), strict=True))[:5]:
        assert reference.permute(fingerprint, permutation.tolist()) == key
        assert reference.unpermute(key, permutation.tolist()) == fingerprint
    assert _kernel.digest(keys, permutation) == reference.set_digest(fingerprints.tolist())


@codec_settings(30)
@given(key_sets(300), permutations(), words, words)
def test_permute_select(fingerprints, permutation, low, high):
    out = np.empty(len(fingerprints), np.uint64)
    kept = _kernel.permute_select(fingerprints, permutation, np.array([low], np.uint64), np.array([high], np.uint64), out)
    keys = permute_oracle(fingerprints, permutation)
    assert np.array_equal(out[:kept], keys[(keys >= np.uint64(low)) & (keys <= np.uint64(high))])


sort_cases = (seeds, st.one_of(st.integers(0, 70), st.integers(71, 4000)), st.sampled_from(KINDS))


@codec_settings(60)
@given(*sort_cases)
def test_sort_keys(seed, size, kind):
    keys = unsorted_words(seed, size, kind, 12)
    expected = np.sort(keys)
    _kernel.sort_keys(keys, np.empty_like(keys))
    assert np.array_equal(keys, expected)


@codec_settings(60)
@given(*sort_cases, st.integers(1, 63))
def test_sort_keys_by_leading_bits_is_stable(seed, size, kind, bits):
    keys = unsorted_words(seed, size, kind, bits)
    expected = keys[np.argsort(keys & top_mask(bits), kind="stable")]
    _kernel.sort_keys(keys, np.empty_like(keys), bits)
    assert np.array_equal(keys, expected)


@codec_settings(30)
@given(key_sets(), permutations(), st.integers(1, 64))
@example(make_keys("random", 1, 50_000), np.roll(IDENTITY, 20), 64)
@example(make_keys("clustered", 1, 50_000), np.roll(IDENTITY, 20), 30)
@example(make_keys("dense", 1, 50_000), np.roll(IDENTITY, 50), 11)
def test_permute_sort(fingerprints, permutation, bits):
    out, scratch = np.empty_like(fingerprints), np.empty_like(fingerprints)
    _kernel.permute_sort(fingerprints, permutation, out, scratch, bits)
    keys = permute_oracle(fingerprints, permutation)
    assert np.array_equal(out, keys[np.argsort(keys & top_mask(bits), kind="stable")])


@pytest.mark.parametrize("bits", [64, 63, 40, 13, 11, 3, 1])
@pytest.mark.parametrize("kind", ["random", "clustered", "dense", "skewed"])
def test_sorts_beyond_the_cache(kind, bits):
    """More than the number of words that the sorts take in one piece."""
    keys = unsorted_words(3, 80_000, kind, 30)
    values = np.arange(len(keys), dtype=np.uint64)
    order = np.argsort(keys & top_mask(bits), kind="stable")
    pairs = np.column_stack([keys, values]).ravel()
    expected = keys[order]
    _kernel.sort_keys(keys, np.empty_like(keys), bits)
    assert np.array_equal(keys, expected)
    if bits == 64:
        _kernel.sort_pairs(pairs, np.empty_like(pairs))
        assert np.array_equal(pairs[0::2], expected)
        assert np.array_equal(pairs[1::2], values[order])


@codec_settings(40)
@given(*sort_cases)
def test_pairs_are_sorted_and_grouped(seed, size, kind):
    rng = np.random.default_rng(seed)
    keys = unsorted_words(seed, size, kind, 64)
    values = rng.integers(0, max(1, size // 4), size, np.uint64)
    pairs = np.column_stack([keys, values]).ravel()
    order = np.argsort(keys, kind="stable")
    _kernel.sort_pairs(pairs, np.empty_like(pairs))
    assert np.array_equal(pairs[0::2], keys[order])
    assert np.array_equal(pairs[1::2], values[order])
    expected: dict[int, set[int]] = {}
    for key, value in zip(keys.tolist(), values.tolist(), strict=True):
        expected.setdefault(key, set()).add(value)
    distinct, counts, ids = grouped(pairs)
    assert distinct.tolist() == sorted(expected)
    assert counts.tolist() == [len(expected[key]) for key in sorted(expected)]
    assert ids.tolist() == [value for key in sorted(expected) for value in sorted(expected[key])]


@codec_settings(40)
@given(key_sets(600))
@example(np.empty(0, np.uint64))
@example(make_keys("random", 1, 7))
@example(make_keys("random", 1, 15))
@example(make_keys("random", 1, 16))
def test_make_directory(keys):
    bits = reference.directory_bits_for(len(keys))
    assert _kernel.make_directory(keys).tolist() == reference.make_directory(keys.tolist(), bits)
