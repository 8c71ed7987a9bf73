"""Single probes in one call.

The same answers as those of a batch, with ids, at every width, and without a lock.
"""

import signal

import numpy as np
import pytest
from speeds import crossed

import fpstore
from fpstore.base.width import check_width

COUNT = 4000


@pytest.fixture(autouse=True)
def checks_pages_as_they_are_used(set_limits):
    """As a large file does."""
    set_limits(bytes_checked_at_open=0)


def numbers(rng, count, bits):
    return [int.from_bytes(rng.bytes(bits // 8), "big") for _ in range(count)]


def near(rng, value, bits, most):
    for place in rng.choice(bits, rng.integers(0, most + 1), replace=False).tolist():
        value ^= 1 << place
    return value


def answers(store, queries, **how):
    return list(store.probe_many(queries, **how))


STORES = [
    *((bits, design, "integer") for design in ("manku-4", "flip-2", "flip-1") for bits in (32, 64)),
    *((bits, "blocks-4-1", "integer") for bits in (128, 256)),
    (64, "manku-10", "string"),
    (128, "blocks-4-1", "string"),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("made", "codec"), crossed(STORES, ["huffman", "elias-fano"]))
def test_single_probes_answer_as_batches_do(tmp_path, made, codec):
    bits, design, kind = made
    rng = np.random.default_rng(bits)
    centres = numbers(rng, COUNT // 4, bits)
    stored = [near(rng, centre, bits, 4) for centre in centres for _ in range(4)]
    # whole blocks with one prefix, and more matches than places are noted
    stored += [centres[0] ^ n for n in range(400)]
    ids = [int(n) for n in rng.integers(0, 2**40, 2 * len(stored))]
    named = ids if kind == "integer" else list(map(str, ids))
    store = fpstore.build(
        tmp_path / "s", stored * 2, named, width=bits, design=design, radius=3, codec=codec
    )
    queries = [near(rng, centre, bits, 2) for centre in centres[:300]]
    generation = store.snapshot().generation
    for radius in (0, 2, 3):
        expected = answers(store, queries, radius=radius)
        assert [store.probe(query, radius) for query in queries] == expected
        inner = [check_width(bits).to_number(query) for query in queries]
        results = [generation.single_prober(radius).probe(query) for query in inner]
        assert [len(matches) for matches in results] == list(map(len, expected))
        assert all(type(match) is fpstore.Match for matches in results for match in matches)
    assert [store.probe(query) for query in queries] == answers(store, queries)
    store.close()


def test_more_matches_than_are_ordered_in_place(tmp_path):
    rng = np.random.default_rng(5)
    stored = sorted({near(rng, 2**63, 64, 3) for _ in range(3000)})
    with fpstore.build(tmp_path / "s", stored, design="manku-4") as store:
        matches = store.probe(2**63)
        assert len(matches) == len(stored) > 1000
        assert [matches] == answers(store, [2**63])


@pytest.mark.filterwarnings("ignore::fpstore.ScanWarning")
def test_a_handler_in_the_middle_of_a_probe_probes_too(tmp_path):
    rng = np.random.default_rng(9)
    stored = numbers(rng, 1 << 17, 64)
    with fpstore.build(tmp_path / "s", stored, design="manku-4") as store:
        expected = store.probe(stored[0])
        collected = []
        old = signal.signal(signal.SIGALRM, lambda *_: collected.append(store.probe(stored[0])))
        try:
            while not collected:
                signal.setitimer(signal.ITIMER_REAL, 0.0001)
                matches = store.probe(stored[1], 24)
                signal.setitimer(signal.ITIMER_REAL, 0)
        finally:
            signal.signal(signal.SIGALRM, old)
        assert set(map(repr, collected)) == {repr(expected)}
        assert [matches] == answers(store, [stored[1]], radius=24)


def test_a_thread_asks_stores_of_several_widths(tmp_path):
    """It keeps memory for matches, which differ in size."""
    how = {"radius": 3, "design": "flip-1"}
    stores = [
        fpstore.build(tmp_path / str(bits), list(range(1000)), width=bits, **how)
        for bits in (64, 256, 32, 128)
    ]
    for store in [*stores, *reversed(stores)]:
        for query in range(20):
            wanted = sorted(
                (x for x in range(1000) if (x ^ query).bit_count() <= 3),
                key=lambda x: ((x ^ query).bit_count(), x),
            )
            assert [match.fingerprint for match in store.probe(query)] == wanted
