"""The index of PDQ hashes beside the indexes of threatexchange."""

import io
import pickle
import threading

import numpy as np
import pytest

pytest.importorskip("threatexchange")

from threatexchange.signal_type.pdq.pdq_index import PDQIndex as FaissIndex
from threatexchange.signal_type.pdq.signal import PdqSignal

from fpstore import ClosedStoreError, InputError
from fpstore.adapters.threatexchange import PDQIndex

ZEROS = "0" * 64
GENERATOR = np.random.default_rng(1)


def near(code, bits):
    """Return a hash with that many other bits."""
    changed = np.unpackbits(np.frombuffer(bytes.fromhex(code), np.uint8))
    changed[GENERATOR.choice(256, bits, replace=False)] ^= 1
    return np.packbits(changed).tobytes().hex()


def hashes(count):
    """Return hashes of which each fourth is near the one before, or equal to it."""
    codes = []
    for number in range(count):
        far = GENERATOR.bytes(32).hex()
        codes.append(far if number % 4 else near(codes[-1] if codes else far, number // 4 % 40))
    return codes


def found(index, query):
    return sorted((int(m.similarity_info.distance), m.metadata) for m in index.query(query))


def check_equal(index, other, queries):
    for query in queries:
        assert found(index, query) == found(other, query)


@pytest.mark.parametrize("count", [0, 1, 2, 400])
def test_answers_are_those_of_the_index_by_faiss(count):
    codes = hashes(count)
    entries = [(code, number) for number, code in enumerate([*codes, *codes[:5]])]
    queries = [*PdqSignal.get_examples(), *codes[:60], *(near(c, 31) for c in codes[:20]), ZEROS]
    index, other = PDQIndex.build(entries), FaissIndex.build(entries)
    assert len(index) == len(other) == len(entries)
    check_equal(index, other, queries)
    added = [(near(codes[0] if codes else ZEROS, 3), 1000), (ZEROS, 1001)]
    index.add_all(added)
    other.add_all(added)
    index.add(ZEROS, 1002)
    other.add(ZEROS, 1002)
    check_equal(index, other, queries)


def test_real_hashes():
    examples = PdqSignal.get_examples()
    index = PDQIndex.build([(code, number) for number, code in enumerate(examples)])
    for query in examples:
        near_ones = {
            number
            for number, code in enumerate(examples)
            if PdqSignal.compare_hash(query, code).match
        }
        assert {number for _, number in found(index, query)} == near_ones
    assert len(found(index, examples[0])) > 1


@pytest.mark.parametrize("threshold", [0, 31, 52, 256])
def test_the_threshold_is_the_largest_distance(threshold):
    index = PDQIndex([(ZEROS, "a"), ("f" * 64, "b")], threshold=threshold)
    assert found(index, near(ZEROS, threshold))[-1:] == [(threshold, "a")]
    if threshold < 256:
        assert found(index, near(ZEROS, threshold + 1)) == []


def test_entries_of_any_type_are_serialized():
    index = PDQIndex([(ZEROS, {"id": 1}), (ZEROS, ("two", None))], threshold=40)
    index.add(near(ZEROS, 40), [3])
    buffer = io.BytesIO()
    index.serialize(buffer)
    buffer.seek(0)
    copy = PDQIndex.deserialize(buffer)
    assert (len(copy), copy.threshold) == (3, 40)
    assert copy.query(ZEROS) == index.query(ZEROS)
    copy.add(ZEROS, 4)  # both can be changed
    index.dispose()
    assert len(copy.query(ZEROS)) == 4
    again = pickle.loads(pickle.dumps(copy))
    assert again.query(ZEROS) == copy.query(ZEROS)


def test_a_refused_batch_changes_nothing():
    index = PDQIndex([(ZEROS, 1)])
    for wrong in ("", "0" * 63, "0" * 66, "g" * 64, " " * 64):
        with pytest.raises(InputError, match="64 hexadecimal digits"):
            index.add_all([(ZEROS, 2), (wrong, 3)])
        with pytest.raises(InputError, match="64 hexadecimal digits"):
            index.query(wrong)
    assert found(index, ZEROS) == [(0, 1)]
    assert found(index, ZEROS.upper()) == [(0, 1)]
    with pytest.raises(InputError, match="radius"):
        PDQIndex(threshold=257)


def test_queries_of_threads():
    codes = hashes(200)
    index = PDQIndex([(code, number) for number, code in enumerate(codes)])
    alone = [found(index, code) for code in codes]
    results = {}

    def ask(name):
        results[name] = [found(index, code) for code in codes]

    threads = [threading.Thread(target=ask, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [results[name] for name in range(4)] == [alone] * 4


def test_a_disposed_index_is_closed():
    index = PDQIndex([(ZEROS, 1)])
    folder = index.store.path
    index.dispose()
    index.dispose()
    assert not folder.exists()
    with pytest.raises(ClosedStoreError):
        index.query(ZEROS)
