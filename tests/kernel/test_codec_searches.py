"""Searches in tables against the readable decoder and plain NumPy."""

import brute_force
import numpy as np
import reference
import tableimage
from hypothesis import given
from hypothesis import strategies as st
from tableimage import (
    IDENTITY,
    NO_CODE,
    block_sizes,
    codec_settings,
    flip_masks,
    key_sets,
    open_table,
    permutations,
    permute_oracle,
    queries_near,
    seeds,
    top_mask,
)

from fpstore import _kernel

# The lengths of codes: of the keys' own Huffman code, or none, for Elias-Fano.
lengths_of_codecs = st.sampled_from([None, NO_CODE])


@codec_settings(40)
@given(key_sets(), permutations(), block_sizes, lengths_of_codecs, seeds)
def test_locate(fingerprints, permutation, block_bytes, lengths, seed):
    image = tableimage.build(fingerprints, permutation, block_bytes, lengths)
    table, readable = open_table(image), reference.Table(image)
    places = {}
    for block in range(table.block_count):
        for rank, key in enumerate(readable.block(block)):
            places[reference.unpermute(key, permutation.tolist())] = (block, rank)
    queries = np.concatenate([fingerprints, queries_near(fingerprints, seed)])
    blocks, ranks = table.locate(queries)
    for query, block, rank in zip(queries.tolist(), blocks.tolist(), ranks.tolist(), strict=True):
        assert (block, rank) == places.get(query, (2**64 - 1, 0))
    assert table.locate_one(int(queries[-3])) == places.get(int(queries[-3]))


@codec_settings(40)
@given(key_sets(), permutations(), block_sizes, lengths_of_codecs, seeds, st.integers(0, 64))
def test_scan(fingerprints, permutation, block_bytes, lengths, seed, radius):
    table = open_table(tableimage.build(fingerprints, permutation, block_bytes, lengths))
    queries = queries_near(fingerprints, seed, 4)
    columns = table.scan(queries, radius, 0, table.block_count)
    for got, expected in zip(columns, brute_force.brute_force_many(fingerprints, queries, radius), strict=True):
        assert np.array_equal(got, expected)
    first = seed % (table.block_count + 1)
    values = _kernel.permute(table.decode(first, table.block_count, len(fingerprints))[0], permutation, True)
    columns = table.scan(queries, radius, first, table.block_count)
    for got, expected in zip(columns, brute_force.brute_force_many(values, queries, radius), strict=True):
        assert np.array_equal(got, expected)


table_shapes = st.tuples(permutations(), st.integers(0, 40), st.integers(0, 2), block_sizes)


@codec_settings(60)
@given(key_sets(400), st.lists(table_shapes, min_size=1, max_size=4), lengths_of_codecs, seeds, st.integers(0, 64))
def test_probe(fingerprints, shapes, lengths, seed, radius):
    """Once each: what lies within the radius and shares enough leading bits with the query in some table."""
    prober = _kernel.Prober()
    tables = []
    queries = queries_near(fingerprints, seed)
    differences = queries[:, None] ^ fingerprints[None, :]
    near = np.bitwise_count(differences) <= radius
    reached = np.zeros(near.shape, bool)
    candidates = 0
    for permutation, wanted_bits, wanted_flips, block_bytes in shapes:
        flips = min(wanted_flips, wanted_bits if wanted_bits < 12 else 1)
        table = open_table(tableimage.build(fingerprints, permutation, block_bytes, lengths))
        tables.append(table)
        prober.add(table, wanted_bits, flips, flip_masks(wanted_bits, flips))
        leading = permute_oracle(differences.ravel(), permutation).reshape(differences.shape) & top_mask(wanted_bits)
        looked_at = np.bitwise_count(leading) <= flips
        candidates += int(looked_at.sum())
        reached |= looked_at
    lims, found, distances, blocks_read, counted = prober.probe(queries, radius)
    assert counted >= candidates  # an instruction set may compare every entry of a block
    assert blocks_read > 0
    orders = ({"order": "sorted"}, {"order": "near"}, {"order": "near", "fetch": True})
    for options in (*orders, {"fetch": True}, {"most": len(found)}):
        for column, same in zip((lims, found, distances), prober.probe(queries, radius, **options), strict=False):
            assert np.array_equal(column, same)
    if len(found):
        assert prober.probe(queries, radius, most=len(found) - 1) is None
    for i, query in enumerate(queries.tolist()):
        expected = brute_force.brute_force(fingerprints[near[i] & reached[i]], query, radius)
        assert np.array_equal(found[lims[i] : lims[i + 1]], expected[0])
        assert np.array_equal(distances[lims[i] : lims[i + 1]], expected[1])
    one = prober.probe_one(int(queries[0]), radius, tables[0])
    assert [(f, d) for f, d, _, _ in one] == list(zip(found[: lims[1]].tolist(), distances.tolist(), strict=False))
    for fingerprint, _, block, rank in one:
        assert tables[0].locate_one(fingerprint) == (block, rank)


@codec_settings(20)
@given(key_sets(400), seeds, block_sizes, lengths_of_codecs)
def test_two_halves_with_one_flip_are_exact_for_radius_three(fingerprints, seed, block_bytes, lengths):
    prober = _kernel.Prober()
    for shift in (0, 32):
        table = open_table(tableimage.build(fingerprints, np.roll(IDENTITY, -shift), block_bytes, lengths))
        prober.add(table, 32, 1, flip_masks(32, 1))
    queries = queries_near(fingerprints, seed, 40)
    columns = prober.probe(queries, 3)[:3]
    for got, expected in zip(columns, brute_force.brute_force_many(fingerprints, queries, 3), strict=True):
        assert np.array_equal(got, expected)
