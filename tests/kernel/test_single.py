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


def forms_of(value, bits):
    """Yield the forms of one fingerprint that a probe takes in one call."""
    data = value.to_bytes(bits // 8, "big")
    yield value
    yield data
    yield np.frombuffer(data, np.uint8)
    if bits == 64:
        yield np.uint64(value)
    if bits > 64:
        yield np.frombuffer(data, ">u8").astype(np.uint64)


def odd_values(value, bits):
    """Yield other forms of a fingerprint, and values that are none."""
    data = value.to_bytes(bits // 8, "big")
    row = np.frombuffer(data, np.uint8)
    words = np.frombuffer(data.ljust(8, b"\0"), ">u8").astype(np.uint64)
    yield from (True, np.True_, -1, 2**bits, 2**300, 1.0, None, "", data.hex(), f"0x{value:x}")
    yield from (np.int64(5), np.int64(-5), np.uint32(7), np.uint64(2**63 + 1), np.float64(2))
    yield from (data[:-1], data + b"\0", b"", bytearray(data), memoryview(data), np.void(data))
    yield from (row[:-1], np.repeat(row, 2)[::2], row.reshape(1, -1), row.view("S1"), row > 9)
    yield from (np.unpackbits(row).astype(bool), row.astype(np.int8), row.astype(np.uint16))
    yield from (np.ma.masked_array(row), np.ma.masked_array(row, row > 100), np.array(7, np.uint64))
    yield from (words, words.astype(">u8"), words.astype(np.int64), words[:1], np.repeat(words, 2))
    yield from ([value], object())


def outcome(probe, *how):
    try:
        matches = probe(*how)
    except Exception as error:
        return type(error), str(error)
    return type(matches), matches, [(type(m), type(m.fingerprint), type(m.ids)) for m in matches]


@pytest.mark.parametrize("bits", [32, 64, 128, 256])
@pytest.mark.parametrize("kind", ["integer", "string"])
def test_a_usual_probe_answers_as_one_with_a_radius(tmp_path, bits, kind):
    rng = np.random.default_rng(bits)
    stored = [*numbers(rng, 500, bits), 0, 1, 2**bits - 1]
    ids = [n if kind == "integer" else str(n) for n in range(len(stored))]
    with fpstore.build(tmp_path / "s", stored, ids, width=bits, radius=3) as store:
        in_one_call = store._tracker.current.probe
        for value in [*stored[:5], *stored[-3:], *numbers(rng, 5, bits), near(rng, 1, bits, 3)]:
            expected = outcome(store.probe, value, 3)
            for form in forms_of(value, bits):
                assert (in_one_call(form) is None) == (kind == "string")
                assert outcome(store.probe, form) == outcome(store.probe, form, 3) == expected
            for other in odd_values(value, bits):
                assert outcome(store.probe, other) == outcome(store.probe, other, 3), repr(other)
    assert in_one_call(stored[0]) is None
    with pytest.raises(fpstore.ClosedStoreError):
        store.probe(stored[0])


def test_one_call_sees_what_is_current(tmp_path):
    """Not the tables alone once there are changes, and those of a merge."""
    with (
        fpstore.build(tmp_path / "s", [1, 2**40 - 1]) as reader,
        fpstore.open(tmp_path / "s", mode="r+") as writer,
    ):
        in_one_call = reader._tracker.current.probe
        assert reader.probe(1) == in_one_call(1) == [(1, 0, [0])]
        writer.insert([3], [7])
        assert in_one_call(1) is None
        for store in (reader, writer):
            assert store.probe(1) == [(1, 0, [0]), (3, 1, [7])]
        writer.delete(fingerprints=[1])
        for store in (reader, writer):
            assert store.probe(1) == [(3, 1, [7])]
        writer.merge()
        for store in (reader, writer):
            assert store.probe(1) == store._tracker.current.probe(1) == [(3, 1, [7])]


def test_a_store_that_is_closed_in_the_middle_of_a_probe(tmp_path, monkeypatch):
    store = fpstore.build(tmp_path / "s", [1, 2], design="flip-1")
    generation = store.snapshot().generation

    class ClosingTable(dict):
        def __contains__(self, radius):
            known = super().__contains__(radius)
            store.close()
            return known

    table = ClosingTable({store.radius: generation.prober(store.radius)})
    monkeypatch.setattr(generation, "_probers", table)
    with pytest.raises(fpstore.ClosedStoreError):
        store.probe(1)
