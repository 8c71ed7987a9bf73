"""Deals the bits to the blocks of column tables by a sample (GPH: Qin et al., ICDE 2018).

A look-up meets the fingerprints that differ from the query in few bits of a block. Real
fingerprints have bits that depend on each other, or that hardly vary: where these lie together, a
block separates few fingerprints, and look-ups in it meet many.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Words
from fpstore.base.width import Width
from fpstore.design.families import DEALT, Design, column_tables, deal_in_turn, design
from fpstore.design.sample import SAMPLE_SIZE, Sample
from fpstore.design.tables import block_thresholds

PAIRS = 1 << 15  # pairs of the sample that are compared
TRIALS = 1 << 11  # exchanges of two bits
SEED = 0

Bits = npt.NDArray[np.uint8]


def deal(block_count: int, bucket_bits: int, radius: int, sample: Sample) -> Design:
    """Return column tables whose look-ups meet few fingerprints of the sample.

    Bits are dealt in turn; then two bits of different blocks are exchanged wherever that helps.
    InputError if there are no bits to deal.
    """
    bits = sample.width.bits
    cut, leading_blocks = deal_in_turn(block_count, bits)
    dealt = np.array(cut[leading_blocks:])
    threshold = max(*block_thresholds(block_count, radius)[leading_blocks:], 1)
    exchange(dealt, bucket_bits, threshold, sample)
    blocks = [sorted(block[:bucket_bits]) + sorted(block[bucket_bits:]) for block in dealt.tolist()]
    return Design(
        f"{DEALT}-{block_count}-{bucket_bits}",
        radius,
        tuple(column_tables(cut[:leading_blocks] + blocks, bucket_bits, radius, bits)),
    )


def exchange(
    blocks: npt.NDArray[np.int64], bucket_bits: int, threshold: int, sample: Sample
) -> None:
    """Exchange bits of blocks while that lowers the expected number of entries per look-up.

    The share of pairs within t of b bits is at most the mean of w^(d - t) over their distances d,
    for every w below 1; the bound is least at about w = t / (b - t) (Chernoff). It is far more
    certain than a count of the few pairs that are so near.
    """
    planes = sample.differences(PAIRS)
    planes = planes[:, : planes.shape[1] // 2 * 2]
    weights = (threshold / max(bucket_bits - threshold, threshold + 1)) ** np.arange(256)
    # for two distances at once: their two bytes are one index
    weights_of_two = np.add.outer(weights, weights).ravel()

    def cost(distances: Bits) -> float:
        return float(weights_of_two.take(distances.view(np.uint16)).sum())

    rng = np.random.default_rng(SEED)
    distances = [planes[block[:bucket_bits]].sum(axis=0, dtype=np.uint8) for block in blocks]
    costs = [cost(d) for d in distances]
    count, length = blocks.shape
    for _ in range(TRIALS):
        i, j = rng.choice(count, 2, replace=False)
        a, b = rng.integers(0, bucket_bits), rng.integers(0, length)
        plane_a, plane_b = planes[blocks[i, a]], planes[blocks[j, b]]
        first = distances[i] - plane_a + plane_b
        second = distances[j] - plane_b + plane_a if b < bucket_bits else distances[j]
        new_costs = cost(first), cost(second)
        if sum(new_costs) < costs[i] + costs[j]:
            blocks[i, a], blocks[j, b] = blocks[j, b], blocks[i, a]
            distances[i], distances[j] = first, second
            costs[i], costs[j] = new_costs


def resolve_design(
    choice: str | Design,
    radius: int,
    count: int,
    width: Width,
    sample: Words | None,
) -> Design:
    """Return the design of a name for ``count`` fingerprints; a design stays as it is.

    If the name begins with ``dealt``, the sample deals the bits. InputError if the name is unknown
    or the design not exact, or a probe would make too many look-ups.
    """
    resolved = choice if isinstance(choice, Design) else design(choice, radius, width.bits)
    is_dealt = isinstance(choice, str) and choice.startswith(DEALT)
    if is_dealt and sample is not None and len(sample) >= SAMPLE_SIZE:
        bucket_bits = resolved.ring[0][1].prefix_bits
        resolved = deal(len(resolved.ring), bucket_bits, radius, Sample(sample, width))
    resolved.lookups(count)
    return resolved
