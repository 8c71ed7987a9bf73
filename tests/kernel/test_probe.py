"""Look-ups over many blocks of a table, in every order, also when its index is damaged."""

import brute_force
import numpy as np
import pytest
import tableimage
from speeds import crossed, slow

from fpstore import _kernel
from fpstore.errors import CorruptStoreError

NO_FLIP = np.zeros(1, np.uint64)
ORDERS = ("asked", "near", "sorted")
LENGTHS = (None, tableimage.NO_CODE)  # of the code of each codec


def prober_of(table: _kernel.Table, prefix_bits: int, flips: int = 0) -> _kernel.Prober:
    prober = _kernel.Prober()
    prober.add(
        table, prefix_bits, flips, tableimage.flip_masks(prefix_bits, flips) if flips else NO_FLIP
    )
    return prober


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("section", "prefix_bits", "lengths", "order"),
    crossed(
        ["keys", "directory"], [0, 1, 3, 6, 40, 64], LENGTHS, ["asked", "near", "sorted"], share=3
    ),
)
@pytest.mark.parametrize("every", [5, slow(1)])
def test_lookup_with_a_wrong_index_word_is_right_or_an_error(
    section, prefix_bits, lengths, order, every
):
    """A range of blocks is found by its two ends.

    Between queries that are far apart, the directory leads to the next block.
    """
    fingerprints = tableimage.make_keys("random", 2, 3000)
    image = tableimage.build(fingerprints, block_bytes=128, lengths=lengths)
    right = tableimage.open_table(image)
    queries = fingerprints[499::500].copy()
    queries[-1] = fingerprints.max()
    mask = tableimage.top_mask(prefix_bits) if prefix_bits else np.uint64(0)
    wanted = [fingerprints[(fingerprints ^ query) & mask == 0].tolist() for query in queries]
    # One by one as they are asked: the error of another query may not hide a wrong answer.
    parts = [slice(i, i + 1) for i in range(len(queries))] if order == "asked" else [slice(None)]
    start, end = (right.keys_offset, right.directory_offset, len(image))[section == "directory" :][
        :2
    ]
    refused = 0
    for at in [*range(start, end, 8 * every), end - 8]:
        for change in (0, -1, 1, 5, 1 << 50, -(1 << 60)):
            word = (int.from_bytes(image[at : at + 8], "little") + change) % 2**64
            prober = prober_of(
                tableimage.open_table(image[:at] + word.to_bytes(8, "little") + image[at + 8 :]),
                prefix_bits,
            )
            for part in parts:
                try:
                    lims, matches, *_ = prober.probe(queries[part], 64, order=order)
                except CorruptStoreError:
                    assert change
                    refused += 1
                    continue
                assert [
                    sorted(subset.tolist()) for subset in np.split(matches, lims[1:-1])
                ] == wanted[part]
    assert refused or section == "directory"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("lengths", LENGTHS, ids=["huffman", "elias-fano"])
@pytest.mark.parametrize("prefix_bits", [0, 5, 17, 19, 33, 40])
def test_batches_give_the_same_in_every_order(lengths, prefix_bits):
    """As they were asked, nearly in the order of the table, and in one sweep."""
    keys = tableimage.make_keys("random", 3, 260_000 if prefix_bits > 16 else 3_000)
    table = tableimage.open_table(tableimage.build(keys, block_bytes=128, lengths=lengths))
    rng = np.random.default_rng(4)
    queries = rng.choice(keys, 4200 if prefix_bits > 16 else 300) ^ (
        np.uint64(1) << rng.integers(0, 30, 1, np.uint64)
    )
    assert prefix_bits < 16 or len(queries) / 3 < table.block_count / 8
    prober = prober_of(table, prefix_bits)
    in_order, near, swept = (prober.probe(queries, 3, order=order)[:3] for order in ORDERS)
    assert len(in_order[1]) >= len(queries)
    for other in (near, swept):
        assert all(np.array_equal(a, b) for a, b in zip(in_order, other, strict=True))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("lengths", "flipped", "order"),
    crossed(LENGTHS, ["leading bits", "bits behind the leading ones"], ["best", "near", "sorted"]),
)
def test_more_look_ups_than_are_sorted_at_once(lengths, flipped, order):
    """They are taken window by window of the table.

    With the same leading bits they are all of one window.
    """
    keys = tableimage.make_keys("random", 5, 500)
    first = 0
    if flipped != "leading bits":
        first = 8
        keys = np.unique(np.uint64(0xA5 << 56) | keys >> np.uint64(8))
    table = tableimage.open_table(tableimage.build(keys, block_bytes=128, lengths=lengths))
    masks = np.arange(256, dtype=np.uint64) << np.uint64(56 - first)
    prober = _kernel.Prober()
    prober.add(table, first + 8, 8, masks)
    queries = np.random.default_rng(6).permutation(np.tile(keys, 34)) ^ np.uint64(1 << 50 | 1 << 40)
    assert len(queries) * len(masks) > 1 << 22
    in_order, matches = (prober.probe(queries, 3, order=taken)[:3] for taken in ("asked", order))
    assert len(in_order[1]) >= len(queries)
    assert all(np.array_equal(a, b) for a, b in zip(in_order, matches, strict=True))


@pytest.mark.parametrize("prefix_bits", [41, 52, 64])
@pytest.mark.parametrize("order", ["ascending", "descending", "random"])
def test_look_ups_that_differ_behind_the_bits_they_are_sorted_by(prefix_bits, order):
    """Look-ups of more than 40 bits are not sorted.

    A sorted look-up shares a word with the number of its query.
    """
    keys = np.unique(
        np.uint64(0xABCDEF0123 << 24) | np.random.default_rng(1).integers(0, 2**24, 3000, np.uint64)
    )
    table = tableimage.open_table(tableimage.build(keys, block_bytes=128))
    queries = {
        "ascending": keys,
        "descending": keys[::-1].copy(),
        "random": np.random.default_rng(2).permutation(keys),
    }[order]
    lims, near, _ = brute_force.brute_force_many(keys, queries.tolist(), 2)
    expected = [
        (q, f) for q, f in _pairs(lims, queries, near) if (q ^ f) >> (64 - prefix_bits) == 0
    ]
    assert len(expected) >= len(keys)
    for taken in ORDERS:
        lims, matches, _, _, _ = prober_of(table, prefix_bits).probe(queries, 2, order=taken)
        assert _pairs(lims, queries, matches) == expected


@pytest.mark.parametrize(
    "masks", [[1 << 63, 0], [0, 0], [0, 1 << 47]], ids=["descend", "twice", "behind"]
)
def test_variants_that_a_prober_cannot_take(masks):
    table = tableimage.open_table(
        tableimage.build(tableimage.make_keys("random", 5, 30), block_bytes=128)
    )
    with pytest.raises(ValueError, match="variants ascend, and change only bits of the prefix"):
        _kernel.Prober().add(table, 16, 1, np.array(masks, np.uint64))


def test_an_order_that_there_is_not():
    table = tableimage.open_table(
        tableimage.build(tableimage.make_keys("random", 5, 30), block_bytes=128)
    )
    with pytest.raises(ValueError, match="order is best, asked, near or sorted"):
        prober_of(table, 5).probe(NO_FLIP, 3, order="dense")


def _pairs(lims: np.ndarray, queries: np.ndarray, found: np.ndarray) -> list[tuple[int, int]]:
    return list(zip(np.repeat(queries, np.diff(lims)).tolist(), found.tolist(), strict=True))
