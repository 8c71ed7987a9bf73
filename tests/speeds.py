"""Two speeds of one test: a thin sample of its cases by default, and the rest with ``-m slow``."""

import itertools

import pytest

# whether cases of the slow run are made at all: conftest.py knows which run this is
all_cases = True


def slow(*values):
    """Return a case of a parametrized test that the default run leaves out."""
    return pytest.param(*values, marks=pytest.mark.slow)


def crossed(*dimensions, share=None):
    """Return all combinations of some values, to parametrize a test with.

    One of each ``share`` is in the default run.

    Without ``share`` it is the size of the smallest dimension. With three or more dimensions each
    pair of values then comes together in the default run, as long as what is left can make up any
    remainder; with two each value comes at least once.
    """
    share = share or min(map(len, dimensions))
    cases = []
    for places in itertools.product(*(range(len(values)) for values in dimensions)):
        case = [values[place] for values, place in zip(dimensions, places, strict=True)]
        if sum(places) % share == 0:
            cases.append(pytest.param(*case))
        elif all_cases:
            cases.append(slow(*case))
    return cases


# in tests outside of the kernel: one word, and several
SOME_WIDTHS = [slow(32), 64, slow(128), 256]
