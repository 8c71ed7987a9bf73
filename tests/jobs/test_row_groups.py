"""Row groups that threads encode make the file that pyarrow would write."""

import random
from datetime import datetime
from decimal import Decimal

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fpstore
from fpstore.io.row_groups import PAGE_STEP, RowGroups, write_batches
from fpstore.io.sink import Sink
from fpstore.io.thrift import Field, decode_struct, encode_struct

ROWS = 1000


def columns(rng):
    """Return a column of each kind that a footer describes in its own way."""
    numbers = [rng.choice([None, 0, -1, rng.randrange(-(2**40), 2**40)]) for _ in range(ROWS)]
    words = [rng.choice([None, "", "a", "\u4e00" * rng.randrange(300)]) for _ in range(ROWS)]
    return {
        "number": pa.array(numbers, pa.int64()),
        "unsigned": pa.array([abs(n or 0) % 256 for n in numbers], pa.uint8()),
        "flag": pa.array([None if n is None else n > 0 for n in numbers]),
        "none": pa.nulls(ROWS),
        "double": pa.array([n and n / 3 for n in numbers]),
        "text": pa.array(words),
        "dictionary": pa.array(words).dictionary_encode(),
        "bytes": pa.array([w and w.encode() for w in words], pa.binary()),
        "list": pa.array([[n, n] if n else None for n in numbers]),
        "struct": pa.array([{"a": n, "b": {"c": w}} for n, w in zip(numbers, words, strict=True)]),
        "map": pa.array([[(str(n), n)] for n in numbers], pa.map_(pa.string(), pa.int64())),
        "time": pa.array([datetime(2020, 1, 1, microsecond=abs(n or 0) % 10**6) for n in numbers]),
        "decimal": pa.array([n and Decimal(n) for n in numbers], pa.decimal128(20, 3)),
        **{f"column {number}": pa.array(numbers) for number in range(20)},
    }


def written_by_pyarrow(table, sizes, path, compression):
    with pq.ParquetWriter(
        path, table.schema, compression=compression, write_batch_size=PAGE_STEP
    ) as writer:
        start = 0
        for size in sizes:
            writer.write_table(table.slice(start, size))
            start += size
    return path.read_bytes()


def written_in_parts(table, sizes, path, compression, threads, set_limits):
    set_limits(parquet_group_rows=sizes[0] if sizes else 1)
    batches, start = [], 0
    for size in sizes:
        batches += table.slice(start, size).combine_chunks().to_batches()
        start += size
    with Sink(path) as sink:
        write_batches(pa, batches, table.schema, sink, compression, threads)
    return path.read_bytes()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("compression", "sizes"),
    [("snappy", [ROWS]), ("zstd", [100] * 10), ("none", [7] * 142 + [6]), ("gzip", [])],
)
def test_the_file_has_the_bytes_that_pyarrow_writes(
    tmp_path, set_limits, compression, sizes, threads
):
    table = pa.table(columns(random.Random(1))).replace_schema_metadata({"key": "v" * 200})
    expected = written_by_pyarrow(table, sizes, tmp_path / "expected", compression)
    found = written_in_parts(table, sizes, tmp_path / "found", compression, threads, set_limits)
    assert found == expected


def test_another_reader_reads_the_joined_file(tmp_path, set_limits):
    table = pa.table({"id": range(ROWS), "text": [str(number) * 9 for number in range(ROWS)]})
    path = tmp_path / "found.parquet"
    written_in_parts(table, [30] * 33 + [10], path, "zstd", 2, set_limits)
    assert pq.ParquetFile(path).metadata.num_row_groups == 34
    assert duckdb.sql(f"select sum(id), sum(length(text)) from '{path}'").fetchall() == [
        (sum(range(ROWS)), sum(9 * len(str(number)) for number in range(ROWS)))
    ]


def test_a_row_group_ends_at_its_rows_or_its_bytes(set_limits):
    set_limits(parquet_group_rows=5, parquet_group_bytes=1000)
    small = pa.record_batch({"n": pa.array([1, 2], pa.int64())})
    groups = RowGroups()
    assert [len(groups.add(small)) for _ in range(4)] == [0, 0, 3, 0]
    assert len(groups.take()) == 1
    assert groups.take() == []
    assert len(groups.add(pa.record_batch({"n": pa.array(["x" * 2000])}))) == 1


def test_a_copy_needs_no_memory_for_a_row_group_of_each_thread(tmp_path):
    """The budget was divided to no thread at all."""
    texts = [f"text {number} of several words" for number in range(50)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "t.parquet")
    for memory in ("64MiB", "1GiB"):
        path = tmp_path / f"{memory}.parquet"
        fpstore.dedup(tmp_path / "t.parquet", path, text="text", threads=2, memory=memory)
        assert pq.read_table(path)["text"].to_pylist() == texts


def test_structs_of_thrift_are_kept_field_by_field():
    flags = Field(9, (1, [b"\x01", b"\x02"] * 10))
    fields = {
        1: Field(1, None),
        2: Field(3, b"\xff"),
        20: Field(6, -(2**63)),  # a step of more than 15
        21: Field(7, b"\0" * 8),
        22: Field(12, {5: Field(8, b"x" * 300), 3: Field(4, 7)}),  # a step back
        23: flags,
        24: Field(10, (5, [2**31 - 1, -1])),
    }
    assert decode_struct(memoryview(encode_struct(fields))) == fields
    for encoded in (b"\x1b\x00\x00", b"\x19\x1b\x00\x00"):  # a map, and a list of one
        with pytest.raises(ValueError, match="no type 11"):
            decode_struct(memoryview(encoded))
