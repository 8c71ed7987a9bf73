"""The members of sets, in the kernel.

By brute force, at both sizes of numbers, and with what it refuses.
"""

import numpy as np
import pytest

from fpstore import _kernel
from fpstore.base.arrays import first_places, repeated_places
from fpstore.jobs.clusters import are_distinct
from fpstore.jobs.grouping import members_in_sets

KINDS = [np.uint32, np.uint64]


def drawn_sets(rng, count):
    """Return sets with numbers: many of one, some of several, one large."""
    label = np.where(
        rng.random(count) < 0.6, np.arange(count), rng.integers(0, max(count // 4, 1), count)
    )
    label[rng.random(count) < 0.2] = count
    return rng.permutation(2 * count + 1)[label]


def by_brute_force(sets, documents):
    groups = {}
    for place in np.argsort(documents).tolist():
        groups.setdefault(int(sets[place]), []).append(place)
    return [group for group in groups.values() if len(group) > 1]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("other", KINDS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [0, 1, 2, 3, 63, 64, 65, 1000, 70_000])
def test_members_are_those_of_brute_force(kind, other, count):
    rng = np.random.default_rng(count)
    sets = drawn_sets(rng, count)
    documents = rng.permutation(3 * count)[:count].astype(other) << other(
        4 if other is np.uint32 else 40
    )
    members, places = members_in_sets(sets.astype(kind), documents)
    groups = by_brute_force(sets, documents)
    assert members.lims.tolist() == np.cumsum([0, *map(len, groups)]).tolist()
    assert places.tolist() == [place for group in groups for place in group]
    assert members.documents.dtype == np.uint64
    assert members.documents.tolist() == documents[places].tolist()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [0, 1, 64, 1000])
def test_documents_may_be_their_places(kind, count):
    sets = drawn_sets(np.random.default_rng(count), count).astype(kind)
    members, places = members_in_sets(sets)
    expected, _ = members_in_sets(sets, np.arange(count, dtype=np.uint64))
    assert (members.lims == expected.lims).all()
    assert members.documents.tolist() == expected.documents.tolist() == places.tolist()


def test_the_kernel_refuses_other_columns():
    labels = np.zeros(3, np.uint32)
    with pytest.raises(ValueError, match="a label for each document"):
        _kernel.documents_in_sets(labels, labels[:2])
    for wrong in (
        labels.astype(np.int64),
        labels.astype(np.uint16),
        labels.astype(float),
        labels[::2],
    ):
        with pytest.raises(TypeError):
            _kernel.documents_in_sets(wrong, labels)
        with pytest.raises(TypeError):
            _kernel.documents_in_sets(labels, wrong)


@pytest.mark.parametrize("kind", [np.uint32, np.uint64])
@pytest.mark.parametrize("count", [0, 1, 2, 64, 100_000])
def test_distinct_numbers(kind, count):
    for step in (1, 7):  # dense, and not
        numbers = np.random.default_rng(count).permutation(3 * count)[:count].astype(kind) * kind(
            step
        )
        assert are_distinct(numbers)
        for place in range(1, count, max(count // 5, 1)):
            again = numbers.copy()
            again[place] = numbers[place - 1]
            assert not are_distinct(again)


@pytest.mark.parametrize("words", [1, 2, 3, 4])
def test_first_places_of_equal_rows(words):
    rng = np.random.default_rng(words)
    rows = rng.integers(0, 3, (200, words)).astype(np.uint64)
    seen = {}
    expected = [seen.setdefault(tuple(row), place) for place, row in enumerate(rows.tolist())]
    columns = [rows[:, 0], rows[:, 1:]] if words > 1 else [rows[:, 0]]
    assert first_places(*columns).tolist() == expected
    repeats, firsts = repeated_places(*columns)
    pairs = [(place, first) for place, first in enumerate(expected) if place != first]
    assert list(zip(repeats.tolist(), firsts.tolist(), strict=True)) == pairs
    assert first_places(*(column[:0] for column in columns)).tolist() == []
