"""Weights of features, learnt from a sample of a corpus."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fpstore.base.aliases import Counts, Words
from fpstore.base.arguments import check_whole
from fpstore.base.arrays import NO_WORDS
from fpstore.errors import InputError, show

MAX_WEIGHT = 2**16 - 1
MAX_FEATURES = 2**16
_STEPS = 16  # added to a weight when half as many documents have the feature


@dataclass(frozen=True, eq=False)
class FeatureWeights:
    """Weights of the most frequent features, 1 to 65,535, by their hashes, which ascend.

    All others weigh the same.

    The weight of a feature is its inverse document frequency (Sparck Jones, *A statistical
    interpretation of term specificity*, 1972): 1 + 16 log2(N / documents that have it), rounded.
    """

    hashes: Words
    weights: Counts
    other: int

    def __post_init__(self) -> None:
        # The kernel adds them up in 63 bits.
        if not (
            1 <= self.other <= MAX_WEIGHT
            and self.weights.all()
            and self.weights.max(initial=1) <= MAX_WEIGHT
        ):
            raise InputError(f"a weight of a feature is 1 to {MAX_WEIGHT:,}", got=self)

    @classmethod
    def learn(cls, documents: Iterable[Words], most: int) -> Self:
        """Learn the weights of the ``most`` frequent features.

        A document is the hashes of its features, without repetition.
        """
        most = check_whole(most, 1, MAX_FEATURES, "most")
        hashes, counts, document_count = NO_WORDS, np.empty(0, np.int64), 0
        batch: list[Words] = []
        batch_size = 0
        for document in documents:
            document_count += 1
            batch.append(document)
            batch_size += len(document)
            if batch_size > max(len(hashes), 1 << 20):
                hashes, counts = _add_counts(hashes, counts, batch)
                batch, batch_size = [], 0
        if not document_count:
            raise InputError("no text has features: weights cannot be learnt from none")
        hashes, counts = _add_counts(hashes, counts, batch)
        frequent = np.sort(np.lexsort((hashes, -counts))[:most])
        weights = [_weight(document_count, int(count)) for count in counts[frequent]]
        return cls(hashes[frequent], np.array(weights, np.uint32), _weight(document_count, 1))

    def lookup(self, hashes: Words) -> Counts:
        """Return the weights of features by their hashes."""
        if not len(self.hashes):
            return np.full(len(hashes), self.other, np.uint32)
        places = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        return np.where(self.hashes[places] == hashes, self.weights[places], np.uint32(self.other))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FeatureWeights) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash((self.hashes.tobytes(), self.weights.tobytes(), self.other))

    def __repr__(self) -> str:
        return f"<weights of {len(self.hashes)} features, {self.other} for others>"

    def to_json(self) -> dict[str, Any]:
        """Return JSON values: little-endian arrays in base 64, and the weight of other features."""
        parts = (self.hashes.astype("<u8"), self.weights.astype("<u2"))
        hashes, weights = (base64.b64encode(part.tobytes()).decode() for part in parts)
        return {"hashes": hashes, "weights": weights, "other": self.other}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return the weights that `to_json` describes; InputError for other values."""
        try:
            hashes = np.frombuffer(base64.b64decode(value["hashes"], validate=True), "<u8")
            weights = np.frombuffer(base64.b64decode(value["weights"], validate=True), "<u2")
            other = check_whole(value["other"], 1, MAX_WEIGHT, "other")
        except (KeyError, TypeError, ValueError, binascii.Error):
            raise InputError(
                f"weights of features are hashes, weights and other, got {show(value)}", got=value
            ) from None
        if (
            len(hashes) != len(weights)
            or len(hashes) > MAX_FEATURES
            or not (hashes[1:] > hashes[:-1]).all()
        ):
            raise InputError(
                "the hashes of weighted features ascend, and each has a weight", got=value
            )
        return cls(hashes.astype(np.uint64), weights.astype(np.uint32), other)


def _add_counts(hashes: Words, counts: Any, batch: list[Words]) -> tuple[Words, Any]:
    all_hashes, all_counts = np.unique(np.concatenate([hashes, *batch]), return_counts=True)
    all_counts[np.searchsorted(all_hashes, hashes)] += counts - 1
    return all_hashes, all_counts


def _weight(document_count: int, count: int) -> int:
    return min(1 + round(_STEPS * math.log2(document_count / count)), MAX_WEIGHT)
