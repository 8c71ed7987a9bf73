"""Lists of texts that share a feature, and what pairs of them share, in the kernel."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from fpstore import _kernel


def words(*values):
    return np.array(values, np.uint64)


def counts(*values):
    return np.array(values, np.uint32)


def head_span(start, count, is_crowded=False):
    return start << 8 | count << 1 | is_crowded


def lists(sizes=(1, 3, 2), ranks=(2, 0, 1, 3, 1, 2), order=(7, 5, 9, 4), most=2, crowded=1, at=0):
    columns = _kernel.list_texts(words(*sizes), counts(*ranks), counts(*order), most, crowded, at)
    return [column.tolist() for column in columns]


def test_lists_of_two_or_more():
    assert lists() == [
        [7, 5, 5],
        [5, 4, 9],
        [head_span(0, 1), head_span(0, 2), head_span(2, 1)],
    ]
    assert lists(most=1, at=40) == [
        [7, 5],
        [5, 4, 9],
        [head_span(40, 1), head_span(40, 1, True), head_span(41, 1)],
    ]
    assert lists((1, 0, 1), (0, 1)) == [[], [], []]
    assert lists((), ()) == [[], [], []]


def test_no_more_than_127_are_before_a_text():
    heads, texts, places = lists((300,), range(300), range(300), 127, 127)
    assert heads == list(range(127))
    assert texts == list(range(1, 300))
    assert places == [head_span(0, min(n, 127), n > 127) for n in range(1, 300)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sizes": (1, 3, 3)}, "more texts than there are ranks"),
        ({"sizes": (1, (1 << 64) - 1, 6)}, "more texts than there are ranks"),
        ({"sizes": (1, 3)}, "fewer texts than there are ranks"),
        ({"order": (7, 5, 9)}, "no such rank"),
        ({"most": 128}, "1 to 127"),
        ({"most": 0, "crowded": 0}, "1 to 127"),
        ({"crowded": 3}, "1 to 127"),
        ({"crowded": 0}, "1 to 127"),
        ({"at": (1 << 56) - 6}, "too many"),
    ],
)
def test_refused_lists(arguments, message):
    with pytest.raises(ValueError, match=message):
        lists(**arguments)


PLACES = (head_span(0, 3), head_span(1, 2, True), head_span(2, 2))


class Paired:
    """Text 3 has 0, 2, 1 before it in one list and 2, 1 in a crowded one; text 4 has 1, 0."""

    def __init__(self, heads=(0, 2, 1, 0), text_count=3):
        self.counter = _kernel.SharedCounter(counts(*heads), text_count)

    def count(self, texts=(3, 4), sizes=(2, 1), places=PLACES, least=(0, 0)):
        columns = self.counter.count(words(*texts), words(*sizes), words(*places), counts(*least))
        return list(zip(*(column.tolist() for column in columns), strict=True))


ALL = [(3, 0, 1, 1, 1), (3, 1, 1, 2, 1), (3, 2, 1, 2, 1), (4, 0, 1, 1, 0), (4, 1, 1, 1, 0)]


def test_features_that_pairs_share():
    paired = Paired()
    assert paired.count() == ALL
    assert paired.count(least=(2, 1)) == ALL[1:]
    assert paired.count(least=(3, 2)) == []
    assert paired.count() == ALL  # a call forgets what the one before it counted
    assert paired.count((), (), (), ()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sizes": (2, 2)}, "more spans than there are"),
        ({"sizes": (1, 1)}, "fewer spans than there are"),
        ({"sizes": ((1 << 64) - 1, 4)}, "more spans than there are"),
        ({"sizes": (2,)}, "different lengths"),
        ({"least": (1,)}, "different lengths"),
        ({"places": (head_span(0, 3), head_span(1, 4), head_span(2, 2))}, "no such place"),
        ({"places": (head_span(0, 3), head_span(5, 0), head_span(2, 2))}, "no such place"),
        ({"places": (head_span(0, 3), (1 << 64) - 1, head_span(2, 2))}, "no such place"),
    ],
)
def test_refused_places(arguments, message):
    paired = Paired()
    with pytest.raises(ValueError, match=message):
        paired.count(**arguments)
    assert paired.count() == ALL


def test_threads_take_turns_with_a_counter():
    """The counts of a text are kept in the counter until the next one."""
    counter = _kernel.SharedCounter(np.arange(400, dtype=np.uint32) % 100, 100)
    texts = np.arange(4_000, dtype=np.uint64)
    spans = np.arange(3 * len(texts), dtype=np.uint64) % np.uint64(290)

    def count(start):
        places = (spans + np.uint64(start)) << np.uint64(8) | np.uint64(100 << 1)
        sizes, least = np.full_like(texts, 3), np.full(len(texts), 3, np.uint32)
        return counter.count(texts, sizes, places, least)

    expected = list(map(count, range(4)))
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(count, range(4)))
    assert all(map(np.array_equal, sum(results, ()), sum(expected, ())))


def test_texts_in_heads_are_below_their_number():
    with pytest.raises(ValueError, match="no such text"):
        Paired(text_count=2).count()
    with pytest.raises(ValueError, match="too many"):
        Paired(text_count=1 << 32)


SETS = (np.array([1, 4, 6, 2, 9], np.uint32), words(0, 3, 3, 5))


def test_samples_with_the_rank_and_the_salt_of_their_set():
    sets = _kernel.FeatureSets(*SETS)
    keys, ranks = sets.samples(words(2, 0, 1), counts(2, 2, 0), counts(8, 5, 7), counts())
    assert (keys.tolist(), ranks.tolist()) == ([2, 9, 1, 4], [8, 8, 5, 5])
    salted, _ = sets.samples(words(2, 0), counts(1, 3), counts(0, 1), counts(1 << 31, 3))
    assert salted.tolist() == [2 ^ 1 << 31, 1 ^ 3, 4 ^ 3, 6 ^ 3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((words(3), counts(1), counts(0), counts()), "no such set"),
        ((words(0), counts(4), counts(0), counts()), "more than its set"),
        ((words(0), counts(1, 1), counts(0), counts()), "different lengths"),
        ((words(0), counts(1), counts(), counts()), "different lengths"),
        ((words(0), counts(1), counts(0), counts(1, 2)), "different lengths"),
    ],
)
def test_refused_samples(arguments, message):
    with pytest.raises(ValueError, match=message):
        _kernel.FeatureSets(*SETS).samples(*arguments)
