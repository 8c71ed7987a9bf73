"""Id records: the kernel against the readable encoder and decoder of reference.py."""

from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import reference
import reference_records
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fpstore import _kernel
from fpstore.disk.sealed import SealedReader, SealedWriter
from fpstore.errors import CorruptStoreError, InputError
from fpstore.format.mapping import unpack_record

words = st.integers(0, 2**64 - 1)
id_lists = st.lists(
    st.lists(words, min_size=1, max_size=6, unique=True).map(sorted), min_size=1, max_size=40
)
small_lists = st.lists(
    st.lists(st.integers(0, 40), min_size=1, max_size=3, unique=True).map(sorted),
    min_size=1,
    max_size=60,
)


def records_of(path, seed, fed):
    """Return {key: record} of a file, by what is fed to a packer one after the other."""
    writer = SealedWriter(path)
    packer = _kernel.IdPacker(writer.encoder, seed)
    for group, blocks in fed:
        packer.feed(*group, np.array(blocks, np.uint32))
        writer.write_pages()
    reader = SealedReader(path, writer.finish())
    records = dict(reader.items())
    reader.close()
    path.unlink()
    return records


def one_by_one(rows, lists, sizes):
    """Yield the rows of blocks of these sizes one by one; a block is complete one row later."""
    nothing, ends = np.empty(0, np.uint64), np.cumsum(sizes).tolist()
    for at, ids in enumerate(lists):
        group = rows[at : at + 1], np.array([len(ids)], np.uint64), np.array(ids, np.uint64)
        yield group, sizes[ends.index(at) :][:1] if at in ends else []
    yield (nothing, nothing, nothing), sizes[-1:]


@pytest.mark.parametrize("buffered", [False, True])
@pytest.mark.parametrize("key", [9, 4])
def test_blocks_out_of_order_are_refused(buffered, key):
    packer = _kernel.IdPacker(_kernel.SealedEncoder(1), 0)
    counts, none = np.ones(2, np.uint64), np.empty(0, np.uint64)
    packer.feed(np.array([1, 9], np.uint64), counts, counts, np.array([2], np.uint32))
    rows = np.array([2, key], np.uint64), counts, counts
    if buffered:
        packer.feed(*rows, np.empty(0, np.uint32))
        assert packer.buffered_rows == 2
        rows = none, none, none
    with pytest.raises(InputError, match="out of order") as error:
        packer.feed(*rows, np.array([2], np.uint32))
    assert (error.value.expected, error.value.got) == (9, key)


@settings(max_examples=60)
@given(st.one_of(id_lists, small_lists), words, st.integers(0, 2**32))
@example([[7]], 2**64 - 1, 0)
@example([[0, 2**64 - 1]], 0, 3)
def test_id_records_equal_the_reference(lists, seed, cut):
    """Two blocks: the lists before and after the cut."""
    cut = cut % len(lists)
    blocks = [part for part in (lists[:cut], lists[cut:]) if part]
    ids = np.array([number for part in lists for number in part], np.uint64)
    counts = np.array([*map(len, lists)], np.uint64)
    rows = np.arange(len(lists), dtype=np.uint64) * np.uint64(2**50) + np.uint64(9)
    sizes = [len(part) for part in blocks]
    keys = rows[np.cumsum(sizes) - 1].tolist()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "ids.mdb"
        records = records_of(path, seed, [((rows, counts, ids), sizes)])
        assert records_of(path, seed, one_by_one(rows, lists, sizes)) == records
    assert [*records] == keys
    for part, (key, record) in zip(blocks, records.items(), strict=True):
        record_seed = (seed + key) % 2**64
        assert record == reference_records.encode_record(part, record_seed)
        assert reference_records.decode_record(record, record_seed) == part
        counts, values = unpack_record(record, record_seed, "ids")
        assert counts.tolist() == [len(numbers) for numbers in part]
        assert values.tolist() == [number for numbers in part for number in numbers]
        rank = cut % len(part)
        assert _kernel.unpack_rank(record, record_seed, rank, "ids") == part[rank]
        with pytest.raises(CorruptStoreError):
            _kernel.unpack_rank(record, record_seed, len(part), "ids")


def gather(parts, keys, places, seed):
    """Return the ids of (record, rank) places from the records with these keys."""
    records = [
        reference_records.encode_record(part, (seed + key) % 2**64)
        for part, key in zip(parts, keys, strict=True)
    ]
    of_record = np.array([record for record, _ in places], np.uint64)
    ranks = np.array([rank for _, rank in places], np.uint32)
    lims, ids = _kernel.gather_ids(
        records, np.array(keys, np.uint64), of_record, ranks, seed, "ids"
    )
    assert len(ids) == lims[-1]
    return [ids[a:b].tolist() for a, b in pairwise(lims.tolist())]


@settings(max_examples=40)
@given(
    st.lists(st.one_of(small_lists, id_lists), max_size=4), words, st.randoms(use_true_random=False)
)
def test_gather_ids(parts, seed, random):
    """Any places of several records, in any order and more than once."""
    keys = [random.getrandbits(64) for _ in parts]
    places = [(r, rank) for r, part in enumerate(parts) for rank in range(len(part))]
    places = random.choices(places, k=30) if places else []
    assert gather(parts, keys, places, seed) == [parts[record][rank] for record, rank in places]


def test_gather_ids_refuses_a_place_outside_its_records():
    parts, keys = [[[1], [2, 3]], [[4]]], [7, 9]
    assert gather(parts, keys, [(0, 1), (1, 0)], 5) == [[2, 3], [4]]
    with pytest.raises(CorruptStoreError):
        gather(parts, keys, [(0, 0), (1, 1)], 5)
    with pytest.raises(IndexError):
        gather(parts, keys, [(2, 0)], 5)


@settings(max_examples=100)
@given(
    st.binary(min_size=12, max_size=80),
    st.integers(0, 66),
    st.one_of(st.just(0), st.integers(0, 58)),
    st.integers(0, 9),
    st.booleans(),
    words,
)
def test_records_with_a_right_checksum_are_judged_alike(
    body, id_bits, count_bits, count, fitting, seed
):
    """Whatever else a record says, kernel and reference both refuse it or read the same ids."""
    body = bytes([id_bits, count_bits, count, 0]) + body[4:]
    if fitting:  # the length of a record with one id each
        body = body[: 12 + (count * (count_bits + id_bits) + 7) // 8]
    record = (_kernel.xxh64(body, seed) % 2**32).to_bytes(4, "little") + body
    try:
        expected = reference_records.decode_record(record, seed)
    except reference.FormatError:
        with pytest.raises(CorruptStoreError):
            unpack_record(record, seed, "ids")
    else:
        counts, values = unpack_record(record, seed, "ids")
        assert counts.tolist() == [len(part) for part in expected]
        assert values.tolist() == [number for part in expected for number in part]
        wanted = np.unique(values[::2])
        _, ranks, ids = _kernel.find_ids([record], 0, np.zeros(1, np.uint64), seed, wanted, "ids")
        places = [
            (rank, number)
            for rank, part in enumerate(expected)
            for number in part
            if number in wanted
        ]
        assert list(zip(ranks.tolist(), ids.tolist(), strict=True)) == places
