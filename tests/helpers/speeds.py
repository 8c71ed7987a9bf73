"""Three tiers of tests: quick by default, full with ``-m "not slow"``, and slow with ``-m slow``.

The quick tier has the facts of each subject, with one width outside of tests/kernel. ``full`` and
``sampled(count)`` mark what it leaves out: sweeps, fault campaigns, and all but a few tests that
start processes. ``slow`` marks what takes minutes.
"""

import itertools

import pytest

# whether slow cases are made at all: conftest.py knows which run this is
all_cases = True


def full(*values):
    """Return a case of a parametrized test that the quick run leaves out."""
    return pytest.param(*values, marks=pytest.mark.full)


def slow(*values):
    """Return a case of a parametrized test that the quick run and the full one leave out."""
    return pytest.param(*values, marks=pytest.mark.slow)


def crossed(*dimensions, share=None):
    """Return all combinations of some values, as cases of a parametrized test.

    One of each ``share`` combinations is not slow. The default of ``share`` is the size of the
    smallest dimension: with two dimensions, each value is then in a case that is not slow. With
    three or more, each pair of values is, if the other dimensions can make up any remainder.
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


def leave_to_full(items):
    """Mark all but ``count`` cases of each test that has the mark ``sampled(count)`` as full."""
    cases = {}
    for item in items:
        sampled = item.get_closest_marker("sampled")
        if sampled and not any(item.iter_markers("full")) and not any(item.iter_markers("slow")):
            cases.setdefault((item.parent, item.originalname, *sampled.args), []).append(item)
    for (*_, count), all_items in cases.items():
        quick = {place * len(all_items) // count for place in range(count)}
        for place, item in enumerate(all_items):
            if place not in quick:
                item.add_marker(pytest.mark.full)


# in tests outside of the kernel: one word, and several
SOME_WIDTHS = [slow(32), 64, slow(128), full(256)]
ALL_WIDTHS = [full(32), 64, full(128), full(256)]
