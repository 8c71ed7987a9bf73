"""The kernel's codecs and searches at every width, in every instruction set.

Against the readable decoder of reference.py and brute force. Above 64 bits, the sets have many
fingerprints with the same leading word, or only such.
"""

import contextlib
import itertools
from collections import Counter
from functools import cache

import brute_force
import numpy as np
import pytest
import reference
import reference_records
import tableimage
from speeds import crossed, slow
from tableimage import (
    NO_CODE,
    WIDTHS,
    check_index,
    kinds_of,
    make_keys,
    make_rows,
    open_table,
    read_everything,
    rows_near,
    sorted_rows,
)

from fpstore import _kernel
from fpstore.design.blocks import CODECS, HUFFMAN
from fpstore.errors import CorruptStoreError, InputError
from fpstore.format.mapping import unpack_record
from fpstore.format.packed_table import make_directory

# By default every second kind of 64 and 256 bits, and one of the others.
SHAPES = [
    (slow if place % 2 or (place and width in (32, 128)) else pytest.param)(width, kind)
    for width in WIDTHS
    for place, kind in enumerate(kinds_of(width))
]
BLOCK_SIZES = (128, 512, 4096)
SIZES = (1, 2, 3, 5, 8, 9, 17, 33, 64, 65, 400)


pytestmark = pytest.mark.usefixtures("isa")


@cache
def permutation_of(width):
    """Return a permutation that moves bits between words, and leaves a part where it is."""
    permutation = np.random.default_rng(width).permutation(width).astype(np.uint8)
    return np.roll(np.arange(width, dtype=np.uint8), 5) if width == 32 else permutation


def identity(width):
    return np.arange(width, dtype=np.uint8)


def rows_of(numbers, width):
    return brute_force.rows_of(numbers, width)


@cache
def tables(width, kind, size, block_bytes):
    """Return rows, and three times an image, its table and the readable one.

    They are of the identity, of another permutation, and of Elias-Fano codes.
    """
    rows = make_rows(kind, size, size, width)
    collected = []
    for number, permutation in enumerate((identity(width), permutation_of(width), identity(width))):
        keys = sorted_rows(_kernel.permute(rows, permutation))
        lengths = None
        if number == 1:  # codes that no histogram asks for
            lengths = tableimage.complete_lengths(
                size, set(tableimage.symbols_of(keys)), width=width
            )
        elif number == 2:
            lengths = NO_CODE
        image = tableimage.build(rows, permutation, block_bytes, lengths)
        readable = reference.Table(image)
        assert readable.verify() == brute_force.numbers_of(rows)
        collected.append((image, open_table(image), readable))
    return rows, collected


@cache
def reference_blocks(image):
    """Return the keys of an image, and the blocks that the reference makes of them."""
    readable = reference.Table(image)
    header, keys = readable.header, list(readable.permuted())
    return keys, reference.encode_blocks(
        keys, header.code_bits, header.block_bytes, header.seed, header.width
    )


def same(found, expected):
    for column, wanted in zip(found, expected, strict=True):
        assert column.dtype == wanted.dtype
        assert np.array_equal(column, wanted)


# --- Blocks ---------------------------------------------------------------------------------------


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("width", "kind"), SHAPES)
def test_blocks_are_those_of_the_reference(width, kind):
    """Encoded byte for byte, in whatever pieces the keys come, and decoded alone and together."""
    for size, block_bytes in zip(SIZES, itertools.cycle(BLOCK_SIZES)):
        for image, table, readable in tables(width, kind, size, block_bytes)[1]:
            header = readable.header
            keys, again = reference_blocks(image)
            assert image[4096 : header.keys_offset] == again
            lengths = np.array(header.code_bits, np.uint8)
            blocks, block_keys, _ = tableimage.encode(
                rows_of(keys, width), lengths, block_bytes, header.seed, [1, size // 2], width
            )
            assert blocks == again
            assert brute_force.numbers_of(block_keys) == readable.keys
            assert (table.width, table.block_count) == (width, header.block_count)
            check_index(image)
            values, counts, end = table.decode(0, table.block_count, size)
            assert (brute_force.numbers_of(values), end) == (keys, table.block_count)
            assert counts.sum() == len(values)
            for block in {0, table.block_count // 2, table.block_count - 1}:
                alone = table.decode(block, block + 1, 0)[0]
                assert brute_force.numbers_of(alone) == readable.block(block)
            assert [table.key_of(block) for block in range(table.block_count)] == readable.keys


@pytest.mark.parametrize("width", WIDTHS)
def test_the_encoder_refuses_repeats_and_names_them(width):
    rows = make_rows(kinds_of(width)[1], 3, 40, width)
    lengths = tableimage.complete_lengths(1, set(range(reference.symbols_of(width))), width=width)
    for place in (1, 7, len(rows) - 1):
        wrong = rows.copy()
        wrong[place] = rows[place - 1]
        with pytest.raises(InputError, match=f"out of order at {place}:") as caught:
            tableimage.encode(wrong, lengths, 128, 0, [place // 2], width)
        before = brute_force.numbers_of(rows[place - 1 : place])[0]
        assert (caught.value.expected, caught.value.got) == (before, before)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_code_that_the_keys_do_not_have_is_refused(width):
    # 256: two that tie
    rows = rows_of([1 << 200, 3 << 200] if width == 256 else [1 << 40, 3 << 40], width)
    symbol = tableimage.symbols_of(rows)[0]
    lengths = np.zeros(65, np.uint8)
    lengths[[1, 3]] = 1
    assert symbol not in (1, 3)
    with pytest.raises(ValueError, match="no symbol for a key"):
        tableimage.encode(rows, lengths, 128, 0, width=width)


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


def test_a_directory_is_that_of_the_reference():
    for count in (*range(35), 600):
        keys = make_keys("random", count, count)
        bits = reference.directory_bits_for(len(keys))
        assert make_directory(keys).tolist() == reference.make_directory(keys.tolist(), bits)


@pytest.mark.parametrize(
    "lengths",
    [[1], [1, 0], [0, 2, 2], [1, 1, 1], [1, 2, 3], [17, 17, 16, *range(15, 0, -1)], [255, 1]],
    ids=["one", "half", "incomplete", "over", "short", "17 bits", "255 bits"],
)
def test_the_encoder_refuses_a_code(lengths):
    padded = np.array([*lengths, *[0] * (65 - len(lengths))], np.uint8)
    with pytest.raises(reference.FormatError):
        reference.check_code(padded.tolist())
    with pytest.raises(ValueError, match="complete code"):
        _kernel.BlockEncoder(padded, 128, 0)


@pytest.mark.parametrize("block_bytes", [0, 64, 127, 129, 384, 8192])
def test_the_encoder_refuses_a_block_size(block_bytes):
    with pytest.raises(ValueError, match="power of two"):
        _kernel.BlockEncoder(tableimage.code_lengths([1, 1]), block_bytes, 0)


# --- Damage ---------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("width", "codec"), crossed(WIDTHS, CODECS))
def test_a_changed_bit_of_a_section_is_found(width, codec):
    rng = np.random.default_rng(width)
    image = tables(width, kinds_of(width)[0], 65, 128)[1][1 if codec == HUFFMAN else 2][0]
    for at in rng.integers(4096, len(image), 30).tolist():
        changed = bytearray(image)
        changed[at] ^= 1 << rng.integers(8)
        with pytest.raises(CorruptStoreError):
            read_everything(bytes(changed))
        with pytest.raises(reference.FormatError):
            reference.Table(bytes(changed)).verify()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("width", "kind"), [shape for shape in SHAPES if shape.values[0] > 64])
def test_a_wrong_word_of_an_index_is_found_or_does_no_harm(width, kind):
    """The words behind the leading ones are meant, which checksums of other blocks do not cover.

    test_probe.py has the leading words alone.
    """
    rows, result = tables(width, kind, 33, 128)
    image, table, _ = result[2 * (kind in ("constant", "last"))]  # of either codec
    truth = list(zip(*(column.tolist() for column in table.locate(rows)), strict=True))
    numbers = brute_force.numbers_of(rows)
    leads = rows[:, 0]
    for at in range(table.keys_offset, len(image), 8):
        for change in (-1, 1, 2**40, 2**63):
            word = (int.from_bytes(image[at : at + 8], "little") + change) % 2**64
            damaged = image[:at] + word.to_bytes(8, "little") + image[at + 8 :]
            with pytest.raises(CorruptStoreError):
                read_everything(damaged)
            wrong = open_table(damaged)
            prober = _kernel.Prober()
            prober.add(wrong, min(width, 64), 0, np.zeros(1, np.uint64))
            for i, number in enumerate(numbers):
                with contextlib.suppress(CorruptStoreError):
                    assert wrong.locate_one(number) == truth[i], (at, change)
                with contextlib.suppress(CorruptStoreError):
                    assert len(prober.probe(rows[i : i + 1], width)[1]) == (leads == leads[i]).sum()


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("width", "codec"), crossed(WIDTHS, CODECS))
def test_blocks_with_a_right_checksum_are_judged_alike(width, codec):
    """Whatever else the block says.

    The reference alone looks at order, padding, and bits behind a short fingerprint.
    """
    rng = np.random.default_rng(width)
    lenient = ("entries out of order", "padding is not zero", "bits behind the fingerprint")
    judged = set()
    for trial in range(100):
        result = tables(width, kinds_of(width)[trial % 5], SIZES[trial % 6], 128)[1]
        image = bytearray(result[0 if codec == HUFFMAN else 2][0])
        header = reference.parse_header(image, len(image))
        key = reference.decode_keys(image[header.keys_offset :], header.block_count, width)[0]
        for at in rng.choice([4, 5, 6, 7] * 30 + [*range(5, 128)], rng.integers(0, 3)).tolist():
            image[4096 + at] ^= rng.integers(256)
        seed = reference.block_seed(header.seed, 0, reference.leading_word(key, width), 0)
        image[4096:4100] = reference.block_sum(image[4096 : 4096 + 128], seed).to_bytes(4, "little")
        table = open_table(bytes(image))
        try:
            expected = reference.decode_block(
                image[4096:][:128], header.code_bits, header.seed, 0, key, None, width
            )
        except reference.FormatError as error:
            judged.add(str(error))
            if str(error) not in lenient:
                with pytest.raises(CorruptStoreError):
                    table.decode(0, 1, 0)
        else:
            judged.add("")
            assert brute_force.numbers_of(table.decode(0, 1, 0)[0]) == expected
    assert {"", "padding is not zero"} <= judged
    assert len(judged) > 3
    assert ("the words behind the leading ones are longer than the block" in judged) == (width > 64)


def read_in_turn(table: _kernel.Table, blocks: int, room: int) -> None:
    start = 0
    while start < blocks:
        _, _, end = table.decode(start, blocks, room)
        assert end > start
        start = end


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


@pytest.mark.parametrize("lengths", [None, NO_CODE], ids=CODECS)
def test_a_key_beyond_the_last_entry_is_found(lengths):
    """What only a faulty or hostile writer can make.

    Whoever looks for such a key is told, not answered.
    """
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
        lambda: table.decode(0, 1, 0),
        lambda: table.scan(wanted, 0, 0, 1),
    ):
        with pytest.raises(CorruptStoreError, match="key index does not match the block"):
            use()
    assert table.locate_one(int(keys[3])) == (0, 3)


# --- Keys -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", WIDTHS)
def test_permutations_and_digests(width):
    for kind in kinds_of(width):
        rows = make_rows(kind, 5, 150, width)
        permutation = permutation_of(width)
        keys = _kernel.permute(rows, permutation)
        numbers, expected = brute_force.numbers_of(rows), brute_force.numbers_of(keys)
        assert [reference.permute(number, permutation.tolist()) for number in numbers] == expected
        assert [reference.unpermute(key, permutation.tolist()) for key in expected] == numbers
        assert np.array_equal(_kernel.permute(keys, permutation, True), rows)
        assert (
            _kernel.digest(keys, permutation)
            == _kernel.digest(rows)
            == reference.set_digest(numbers, width)
        )


@pytest.mark.parametrize("width", WIDTHS)
def test_histograms(width):
    for kind in kinds_of(width):
        rows = make_rows(kind, 6, 300, width)
        counts = np.zeros(65, np.uint64)
        assert _kernel.histogram(rows, counts) == len(rows)
        assert np.array_equal(counts, np.bincount(tableimage.symbols_of(rows), minlength=65))
        for place in (1, len(rows) // 2, len(rows) - 1):
            wrong = rows.copy()
            wrong[place] = rows[place - 1]
            assert _kernel.histogram(wrong, counts) == place


@pytest.mark.parametrize("width", [width for width in WIDTHS if width > 64])
def test_sorts_of_several_words_are_stable(width):
    """By all bits, and by a part of the leading word; rows and pairs have repeats."""
    for size in (0, 1, 2, 3, 24, 25, 300, 2000):
        check_stable_sorts(width, size)


def check_stable_sorts(width, size):
    rng = np.random.default_rng(size)
    words = reference.words_of(width)
    for kind in kinds_of(width)[:3]:
        rows = make_rows(kind, size, size + 1, width)
        rows = np.ascontiguousarray(rows[rng.integers(0, len(rows), size)])
        numbers = brute_force.numbers_of(rows)
        bits = 64 * words
        for count in {1, 20, min(bits, 64), bits}:
            part = rows.copy()
            _kernel.sort_keys(part, np.empty_like(part), count)
            assert brute_force.numbers_of(part) == sorted(
                numbers, key=lambda number, by=bits - count: number >> by
            )
        ids = rng.integers(0, 5, size, np.uint64)
        pairs = np.column_stack([rows, ids]).ravel()
        _kernel.sort_pairs(pairs, np.empty_like(pairs), words)
        order = sorted(range(size), key=numbers.__getitem__)
        assert np.array_equal(pairs.reshape(-1, words + 1), np.column_stack([rows, ids])[order])
        sorted_keys, counts = rows[order], np.empty(size, np.uint64)
        sorted_ids = ids[order]
        key_count, id_count = _kernel.group_numbered(sorted_keys, sorted_ids, counts)
        expected = sorted({(numbers[i], int(ids[i])) for i in range(size)})
        keys = rows_of(sorted(set(numbers)), width)
        assert np.array_equal(sorted_keys[:key_count], keys)
        assert sorted_ids[:id_count].tolist() == [number for _, number in expected]
        assert counts[:key_count].tolist() == list(
            Counter(number for number, _ in expected).values()
        )


# --- Searches -------------------------------------------------------------------------------------


@pytest.mark.sampled(9)
@pytest.mark.parametrize(("width", "kind"), SHAPES)
def test_locate(width, kind):
    for size, block_bytes in zip(SIZES[::2], itertools.cycle(BLOCK_SIZES[:2])):
        rows, result = tables(width, kind, size, block_bytes)
        queries = np.concatenate([rows, rows_near(rows, size, width, most=2)])
        for _, table, readable in result:
            places = {}
            for block in range(table.block_count):
                for rank, key in enumerate(readable.block(block)):
                    places[reference.unpermute(key, readable.header.permutation)] = (block, rank)
            blocks, ranks = table.locate(queries)
            for query, block, rank in zip(
                brute_force.numbers_of(queries), blocks.tolist(), ranks.tolist(), strict=True
            ):
                assert (block, rank) == places.get(query, (2**64 - 1, 0))
                assert table.locate_one(query) == places.get(query)


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("width", "kind"), SHAPES)
def test_scan_and_nearest(width, kind):
    for size in (1, 9, 65, 400):
        rows, result = tables(width, kind, size, 512)
        queries = rows_near(rows, size, width, 5)
        absent = np.ascontiguousarray(rows[::3])
        left = np.delete(rows, np.s_[::3], axis=0)
        for radius in (0, 2, width // 3, width):
            for _, table, _ in result:
                expected = brute_force.brute_force_many(rows, queries, radius)
                same(table.scan(queries, radius, 0, table.block_count), expected)
            _, table, _ = result[0]
            lims, nearest, distances, more = table.nearest(
                queries, radius, 3, 0, table.block_count, absent
            )
            for i, query in enumerate(queries):
                near, far = brute_force.brute_force(left, query, radius)
                assert np.array_equal(nearest[lims[i] : lims[i + 1]], near[:3])
                assert np.array_equal(distances[lims[i] : lims[i + 1]], far[:3])
                assert more[i] == (len(near) > 3)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("width", "kind", "prefix_bits"),
    [
        case
        for case in crossed(WIDTHS, range(3), (0, 1, 9, 20, 31, 32, 41, 64), share=6)
        if case.values[2] <= case.values[0]
    ],
)
def test_probe(width, kind, prefix_bits):
    """Each is found once: those within the radius that share a prefix in one of two tables."""
    kind = kinds_of(width)[kind]
    for size, block_bytes in ((3, 128), (65, 512), (400, 128)):
        rows, result = tables(width, kind, size, block_bytes)
        queries = rows_near(rows, size + prefix_bits, width, 40)
        prober = _kernel.Prober()
        reached = np.zeros((len(queries), len(rows)), bool)
        result = [result[2], result[2]] if size == 400 else result[:2]  # of one codec
        for (_, table, _), flips in zip(result, (min(prefix_bits, 1), 0), strict=True):
            prober.add(table, prefix_bits, flips, tableimage.flip_masks(prefix_bits, flips))
            permutation = np.frombuffer(table.permutation, np.uint8)
            ahead, entries = (
                _kernel.permute(part, permutation).reshape(len(part), -1)[:, 0]
                for part in (queries, rows)
            )
            mask = tableimage.top_mask(prefix_bits) if prefix_bits else np.uint64(0)
            reached |= np.bitwise_count((ahead[:, None] ^ entries[None, :]) & mask) <= flips
        for radius in (0, 3, width // 4, width):
            *got, opened, compared = prober.probe(queries, radius)
            assert (opened > 0, compared >= reached.sum()) == (True, True)
            for options in ({"order": "sorted"}, {"order": "near"}, {"fetch": True}):
                same(prober.probe(queries, radius, **options)[:3], got)
            for i, query in enumerate(queries):
                near, distances = brute_force.brute_force(rows[reached[i]], query, radius)
                part = slice(*got[0][i : i + 2])
                assert np.array_equal(got[1][part], near)
                assert np.array_equal(got[2][part], distances)


def test_fingerprints_that_differ_in_all_of_256_bits():
    rows = rows_of([0, 1, 2**256 - 2, 2**256 - 1], 256)
    table = open_table(tableimage.build(rows, identity(256), 128))
    lims, matches, distances = table.scan(rows[:1], 256, 0, table.block_count)
    assert (lims.tolist(), distances.dtype, distances.tolist()) == (
        [0, 4],
        np.uint16,
        [0, 1, 255, 256],
    )
    assert np.array_equal(matches, rows)
    assert table.scan(rows[:1], 255, 0, table.block_count)[2].tolist() == [0, 1, 255]


@pytest.mark.parametrize(("width", "kind"), crossed(WIDTHS, ["clustered", "extreme"]))
def test_id_records_of_every_width_lead_back(width, kind):
    """The seed of a record is the digest and all words of the key.

    One of another key is refused.
    """
    _, result = tables(width, kind, 65, 128)
    _, table, readable = result[0]
    key = table.key_of(0)
    seed = reference_records.record_seed(table.set_digest, key, width)
    record = reference_records.encode_record([[i] for i in range(len(readable.block(0)))], seed)
    assert unpack_record(record, seed, "x")[1].tolist() == list(range(len(readable.block(0))))
    with pytest.raises(CorruptStoreError):
        unpack_record(
            record,
            reference_records.record_seed(
                table.set_digest, key ^ 1 << (64 if width > 64 else 32), width
            ),
            "x",
        )
