"""Results as tables of Arrow, pandas and polars, and their columns as fingerprints and ids."""

import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from speeds import ALL_WIDTHS

import fpstore
from fpstore.base.width import Width
from fpstore.io.check import check_fingerprints, check_ids
from fpstore.jobs.joining import PairColumns

TYPES = {32: pa.uint32(), 64: pa.uint64(), 128: pa.binary(16), 256: pa.binary(32)}


def made(folder, bits, ids):
    """Build a store of near fingerprints, the second of which has two ids."""
    width = Width(bits)
    top = 1 << (bits - 1)
    values = [top | 1, top | 3, top | 3, 4]
    kinds = {"strings": ["a", "bb", "\u4e2d", "d"], "integers": [7, 2**64 - 1, 9, 1]}
    return fpstore.build(
        folder / "s", width.to_array(width.rows(values)), kinds[ids], radius=3, width=bits
    )


def plain(values, bits):
    """Return a fingerprint column of a table as numbers."""
    return [int.from_bytes(value, "big") if isinstance(value, bytes) else value for value in values]


@pytest.mark.parametrize("ids", ["strings", "integers"])
@pytest.mark.parametrize("bits", ALL_WIDTHS)
def test_matches_become_the_same_table_everywhere(tmp_path, bits, ids):
    width, top = Width(bits), 1 << (bits - 1)
    store = made(tmp_path, bits, ids)
    queries = width.to_array(width.rows([0, top | 1, 5]))
    matches = store.probe_many(queries, 2)
    names = ["x", "y", "z"]
    table = matches.to_arrow(query_ids=names)
    rows = [
        (query, names[query], number, match.fingerprint, match.distance, document_id)
        for query, (number, item) in enumerate(zip([0, top | 1, 5], matches, strict=True))
        for match in item
        for document_id in match.ids
    ]
    assert len(rows) == 7
    assert table.column_names == ["query_row", "query_id", "query", "fingerprint", "distance", "id"]
    assert table.schema.types == [
        *(pa.uint64(), pa.string(), TYPES[bits], TYPES[bits]),
        pa.uint8() if bits < 256 else pa.uint16(),
        pa.string() if ids == "strings" else pa.uint64(),
    ]
    frames = (matches.to_polars(query_ids=names), matches.to_pandas(query_ids=names))
    for columns in (
        [column.to_pylist() for column in table.columns],
        *([frame[n].to_list() for n in table.column_names] for frame in frames),
    ):
        columns[2:4] = [plain(columns[2], bits), plain(columns[3], bits)]
        assert list(zip(*columns, strict=True)) == rows
    np.testing.assert_array_equal(matches.queries, queries)
    table.validate(full=True)


@pytest.mark.parametrize("bits", ALL_WIDTHS)
def test_every_way_to_ask_keeps_the_queries(tmp_path, bits):
    width, top = Width(bits), 1 << (bits - 1)
    queries = width.to_array(width.rows([top | 1, 4]))
    store = made(tmp_path, bits, "integers")
    results = [
        store.probe_many(queries, 1),
        store.probe_many(queries, 1, limit=1),
        store.scan(queries, 1),
        store.scan(queries, 1, limit=1),
        store.nearest_many(queries, 1),
        *store.probe_batches(queries, 1),
    ]
    writing = fpstore.open(store.path, "r+")
    results.append(writing.probe_insert_many(queries, [100, 101]))
    for matches in results:
        np.testing.assert_array_equal(matches.queries, queries)
        assert plain(matches.to_arrow()["query"].to_pylist(), bits)[0] == top | 1


def test_successive_batches_have_their_own_queries(tmp_path):
    with fpstore.build(tmp_path / "s", np.arange(5000, dtype=np.uint64), radius=1) as store:
        queries = np.arange(5000, dtype=np.uint64)[::-1].copy()
        parts = list(store.probe_batches(queries, 0, matches=100))
        assert len(parts) > 1
        assert (
            np.concatenate([part.to_arrow()["query"].to_numpy() for part in parts]).tolist()
            == queries.tolist()
        )


@pytest.mark.parametrize("ids", ["strings", "integers"])
@pytest.mark.parametrize("bits", ALL_WIDTHS)
def test_pairs_have_a_row_for_each_pair_of_ids(tmp_path, bits, ids, set_limits):
    store = made(tmp_path, bits, ids)
    (pairs,) = store.pairs(1)
    whole = pairs.to_arrow()
    set_limits(id_pairs=1)
    table = pairs.to_arrow()
    stored = {item: store.fingerprints_of([item])[1].tolist() for item in table["id_b"].to_pylist()}
    assert table.equals(whole)
    assert table["a"].num_chunks == 2
    assert table.column_names == ["a", "b", "distance", "id_a", "id_b"]
    assert table.schema.types[:3] == [
        TYPES[bits],
        TYPES[bits],
        pa.uint8() if bits < 256 else pa.uint16(),
    ]
    top = 1 << (bits - 1)
    assert plain(table["a"].to_pylist(), bits) == [top | 1] * 2
    assert plain(table["b"].to_pylist(), bits) == [top | 3] * 2
    assert table["distance"].to_pylist() == [1, 1]
    first, others = ("a", {"bb", "\u4e2d"}) if ids == "strings" else (7, {2**64 - 1, 9})
    assert table["id_a"].to_pylist() == [first] * 2
    assert set(table["id_b"].to_pylist()) == others == set(stored)


@pytest.mark.parametrize("ids", ["strings", "integers"])
def test_clusters_are_their_columns(tmp_path, ids):
    store = made(tmp_path, 64, ids)
    clusters = store.clusters(1)
    table, columns = clusters.to_arrow(), clusters.columns()
    assert table.column_names == ["id", "cluster", "representative"]
    assert table.num_rows == 3
    for name, values in columns.items():
        assert table[name].to_pylist() == list(values)
    assert clusters.to_polars()["representative"].to_list() == list(columns["representative"])
    assert clusters.to_pandas()["cluster"].tolist() == [0, 0, 0]


@pytest.mark.parametrize("ids", ["strings", "integers"])
@pytest.mark.parametrize("bits", ALL_WIDTHS)
def test_empty_results_keep_their_types(tmp_path, bits, ids):
    width = Width(bits)
    store = made(tmp_path, bits, ids)
    full = store.probe_many(width.to_array(width.rows([4])), 0).to_arrow().schema
    for query in ([], [0]):
        table = store.probe_many(width.to_array(width.rows(query)), 0).to_arrow()
        assert (table.schema, table.num_rows) == (full, 0)
    (pairs,) = store.pairs(1)
    empty = fpstore.Pairs(
        PairColumns(pairs.rows_a[:0], pairs.rows_b[:0], pairs.distances[:0]), store.snapshot()
    ).to_arrow()
    assert (empty.schema, empty.num_rows) == (pairs.to_arrow().schema, 0)
    clusters = store.clusters(0).to_arrow()
    assert clusters.num_rows == 2  # two documents have one fingerprint


@pytest.mark.parametrize("result", ["matches", "pairs", "clusters"])
def test_other_packages_take_the_stream(tmp_path, result):
    store = made(tmp_path, 64, "strings")
    thing = {
        "matches": lambda: store.probe_many([4, 5], 2),
        "pairs": lambda: next(store.pairs(1)),
        "clusters": lambda: store.clusters(1),
    }[result]()
    table = thing.to_arrow()
    assert table.num_rows > 0
    assert pa.table(thing).equals(table)
    # a column of rows, since polars cannot know better
    assert pl.from_arrow(thing).struct.unnest().equals(pl.from_arrow(table))
    assert pl.DataFrame(thing).equals(pl.from_arrow(table))
    reader = pa.RecordBatchReader.from_stream(thing)
    assert reader.read_all().equals(table)


def test_numbers_are_not_copied(tmp_path):
    with fpstore.build(tmp_path / "s", [1, 2, 3]) as store:
        matches = store.probe_many([1, 2, 3], 1)
        table = matches.to_arrow()
    for name, values in (("fingerprint", matches.fingerprints), ("distance", matches.distances)):
        (chunk,) = table[name].chunks
        assert chunk.buffers()[1].address == values.ctypes.data


def test_columns_are_renamed(tmp_path):
    store = made(tmp_path, 64, "strings")
    matches, (pairs,), clusters = store.probe_many([4], 0), store.pairs(1), store.clusters(1)
    assert matches.to_arrow(names={"id": "url", "query": "hash"}).column_names == [
        *("query_row", "hash", "fingerprint", "distance", "url")
    ]
    assert pairs.to_polars(names={"id_a": "left"}).columns == ["a", "b", "distance", "left", "id_b"]
    assert list(clusters.to_pandas(names={"representative": "keep"}).columns) == [
        "id",
        "cluster",
        "keep",
    ]
    assert matches.to_arrow(names={"id": "query", "query": "id"}).column_names[1] == "id"
    for names, message in (
        (
            {"url": "id"},
            (
                r"there is no column 'url' to rename "
                r"\(columns here: query_row, query, fingerprint, distance, id\)"
            ),
        ),
        ({"query_id": "q"}, "there is no column 'query_id'"),
        ({"id": "query"}, "two columns would have one name"),
        ({"id": ""}, "the new name of 'id' must be a string"),
        ({"id": 3}, "the new name of 'id' must be a string"),
        (["id"], "names must be a dict"),
    ):
        with pytest.raises(fpstore.InputError, match=message):
            matches.to_arrow(names=names)


def test_there_is_one_id_for_each_query(tmp_path):
    store = made(tmp_path, 64, "strings")
    matches = store.probe_many([4, 5], 1)
    assert matches.to_arrow(query_ids=pl.Series([10, 20]))["query_id"].to_pylist() == [10, 20]
    with pytest.raises(fpstore.InputError, match="3 ids for 2"):
        matches.to_arrow(query_ids=["a", "b", "c"])
    with pytest.raises(fpstore.InputError, match="position 1 is null"):
        matches.to_arrow(query_ids=pa.array(["a", None]))


@pytest.mark.parametrize(
    ("package", "ways", "line"),
    [
        (
            "pyarrow",
            ["to_arrow", "to_pandas", "to_polars", "__arrow_c_stream__"],
            "pip install pyarrow",
        ),
        ("pandas", ["to_pandas"], "pip install pandas"),
        ("polars", ["to_polars"], "pip install polars"),
    ],
)
def test_a_missing_package_is_named(tmp_path, monkeypatch, package, ways, line):
    store = made(tmp_path, 64, "integers")
    results = store.probe_many([4], 1), next(store.pairs(1)), store.clusters(1)
    monkeypatch.setitem(sys.modules, package, None)
    for result in results:
        for way in ways:
            with pytest.raises(fpstore.MissingExtraError, match=f"{package}: {line}$"):
                getattr(result, way)()


# --- Columns as input -----------------------------------------------------------------------------

NUMBERS = [1, 2**63 | 5, 2**31]


def fingerprint_columns(bits):
    """Yield columns of every kind with the same fingerprints."""
    width = Width(bits)
    values = [value % 2**bits for value in NUMBERS]
    raw, texts = (
        [value.to_bytes(bits // 8, "big") for value in values],
        [f"{value:0{bits // 4}x}" for value in values],
    )
    yield pa.array(raw, pa.binary(bits // 8))
    yield pa.array([b"x" * (bits // 8), *raw], pa.binary(bits // 8))[1:]
    yield pa.chunked_array([raw[:1], [], raw[1:]], pa.binary(bits // 8))
    yield pa.array(raw)
    yield pl.Series(raw)
    yield pd.Series(raw, dtype=object)
    yield pa.array(texts)
    yield pa.array(texts, pa.large_string())
    yield pa.array([text.upper() for text in texts]).dictionary_encode()
    yield pa.chunked_array([texts[:2], texts[2:]])
    yield pl.Series(texts)
    yield pl.Series(["0x" + text for text in texts])
    yield pl.Series(texts, dtype=pl.Categorical)
    yield pd.Series(texts)
    yield pd.Series(texts, dtype="category")
    if width.words == 1:
        name = f"uint{bits}"
        yield pa.array(values, name)
        yield pa.chunked_array([values[:2], values[2:]], name)
        yield pl.Series(values, dtype=pl.UInt32 if bits == 32 else pl.UInt64)
        for kind in (name, f"UI{name[2:]}", f"{name}[pyarrow]"):
            yield pd.Series(values, dtype=kind)


@pytest.mark.parametrize("bits", ALL_WIDTHS)
def test_columns_of_every_kind_are_fingerprints(tmp_path, bits):
    width = Width(bits)
    values = [value % 2**bits for value in NUMBERS]
    store = fpstore.build(tmp_path / "all", values, width=bits, radius=1)
    for number, column in enumerate(fingerprint_columns(bits)):
        assert width.numbers(check_fingerprints(column, width)) == values, column
        assert [[m.fingerprint for m in item] for item in store.probe_many(column, 0)] == [
            [value] for value in values
        ]
        assert len(store.nearest_many(column, 1)) == len(store.scan(column, 0)) == 3
        if number % 7:
            continue
        with fpstore.build(tmp_path / str(number), column, width=bits, radius=1) as built:
            assert list(built) == sorted(values)
        with fpstore.open(tmp_path / str(number), "r+") as opened:
            assert opened.insert(column, pa.array([10, 11, 12])) == 3
            assert opened.delete(fingerprints=column).removed == 6


@pytest.mark.parametrize("bits", ALL_WIDTHS)
def test_a_table_is_taken_back(tmp_path, bits):
    store = made(tmp_path, bits, "strings")
    table = store.probe_many(next(store.items())[0], 0).to_arrow()
    for number, frame in enumerate((table, pl.from_arrow(table), table.to_pandas())):
        with fpstore.build(
            tmp_path / str(number), frame["fingerprint"], frame["id"], width=bits
        ) as copy:
            assert list(copy) == list(store)
            assert [ids for _, _, ids in copy.items()] == [ids for _, _, ids in store.items()]


STRINGS = ["a", "\u4e2d", "a"]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(STRINGS),
        pa.array(STRINGS, pa.large_string()),
        pa.array(STRINGS).dictionary_encode(),
        pa.chunked_array([STRINGS[:1], STRINGS[1:]]),
        pl.Series(STRINGS),
        pl.Series(STRINGS, dtype=pl.Categorical),
        pl.Series(STRINGS, dtype=pl.Enum(["a", "\u4e2d"])),
        pd.Series(STRINGS),
        pd.Series(STRINGS, dtype=object),
        pd.Series(STRINGS, dtype="category"),
        pd.Series(STRINGS, dtype="string[pyarrow]"),
        pd.Index(STRINGS),
    ],
    ids=lambda column: (
        f"{type(column).__module__.split('.')[0]} "
        f"{getattr(column, 'dtype', getattr(column, 'type', ''))}"
    ),
)
def test_columns_of_strings_are_ids(tmp_path, column):
    assert check_ids(column, 3) == STRINGS
    with fpstore.build(tmp_path / "s", [1, 2, 3], column) as store:
        assert store.ids["a"] == [1, 3]
        assert store.fingerprints_of(column)[1].tolist() == [1, 3, 2, 1, 3]
    with fpstore.open(tmp_path / "s", "r+") as store:
        assert store.delete(ids=column).removed == 3


def test_columns_of_integers_are_ids():
    for column in (
        pa.array([5, 6]),
        pa.array([5, 6], pa.uint64()).dictionary_encode(),
        pl.Series([5, 6]),
        pd.Series([5, 6]),
        pd.Series([5, 6], dtype="Int64"),
        pd.Series([5, 6], dtype="category"),
    ):
        assert check_ids(column, 2).tolist() == [5, 6]
    with pytest.raises(fpstore.InputError, match="negative"):
        check_ids(pl.Series([5, -6]), 2)


NULLS = [
    pa.array([5, None], pa.uint64()),
    pa.chunked_array([[5], [None]], pa.uint64()),
    pa.array(["00" * 8, None]),
    pa.array(["00" * 8, None]).dictionary_encode(),
    pa.array([b"x" * 8, None], pa.binary(8)),
    pl.Series([5, None], dtype=pl.UInt64),
    pl.Series(["00" * 8, None]),
    pl.Series([b"x" * 8, None]),
    pd.Series([5, None], dtype="UInt64"),
    pd.Series([5, None]),
    pd.Series([5, None], dtype="uint64[pyarrow]"),
    pd.Series(["00" * 8, None]),
    pd.Series(["00" * 8, None], dtype=object),
    pd.Series(["00" * 8, None], dtype="category"),
    pd.Series(["00" * 8, None], dtype="string[pyarrow]"),
]


@pytest.mark.parametrize("column", NULLS, ids=range(len(NULLS)))
def test_nulls_are_refused_with_their_place(tmp_path, column):
    with pytest.raises(fpstore.InputError, match=r"^the fingerprint at position 1 is null"):
        fpstore.build(tmp_path / "s", column)
    with pytest.raises(fpstore.InputError, match=r"^the id at position 1 is null"):
        fpstore.build(tmp_path / "s", [1, 2], column)
    assert list(tmp_path.iterdir()) == []


def test_strings_that_are_no_fingerprints_are_named():
    full = "00" * 8
    for other, message in (
        ("ff", "it has 2 of 16 hexadecimal digits"),
        ("12345678 1234567", "expected 16 hexadecimal digits"),
        ("12345678  123456", "expected 16 hexadecimal digits"),
        (" " * 16, "expected 16 hexadecimal digits"),  # as many blanks as digits
        ("00" * 16, "a fingerprint of 128 bits, but the width is 64"),
        ("-000000000000001", "it is negative"),
        ("", "expected 16 hexadecimal digits"),
    ):
        with pytest.raises(fpstore.InputError, match=f"the fingerprint at position 1: .*{message}"):
            check_fingerprints(pl.Series([full, other]))
    assert check_fingerprints([full]).tolist() == [0]
    with pytest.raises(fpstore.InputError, match="it has 2 of 16 hexadecimal digits"):
        check_fingerprints([full, "ff"])
    with pytest.raises(fpstore.InputError, match="must be unsigned"):
        check_fingerprints(pl.Series([1, 2]))


def test_columns_without_rows_are_taken(tmp_path):
    for column in (
        pa.array([], pa.uint64()),
        pa.chunked_array([], pa.binary(8)),
        pa.array([], pa.binary(8)),
        pa.array([], pa.string()),
        pl.Series([], dtype=pl.UInt64),
        pl.Series([], dtype=pl.String),
        pd.Series([], dtype="uint64"),
        pd.Series([], dtype="str"),
    ):
        assert check_fingerprints(column).shape == (0,)
