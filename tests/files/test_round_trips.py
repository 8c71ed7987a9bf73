"""Columns of every kind through deduplication, files and results.

The same documents come back, with the types they had.
"""

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from speeds import crossed, slow

import fpstore
from fpstore.base.width import WIDTHS
from fpstore.errors import InputError
from fpstore.io import open_reader

# of radius 1: 0, 2 and 6 are near, 1, 3 and 4, and 5 is alone
VALUES = [7, 1 << 31, 5, (1 << 31) | 3, (1 << 31) | 1, 9 << 10, 7]
CLUSTERS, KEPT = [[0, 2, 6], [1, 4, 3]], [0, 1, 5]
NAMES = [f"d\u00e9{n}" for n in range(len(VALUES))]


def widened(value, bits):
    """Return a number that uses the highest bit of the width if that of 32 bits is used."""
    return value if value < 1 << 31 else value ^ (1 << 31) ^ (1 << (bits - 1))


def fingerprint_columns(bits):
    """Return columns of the same fingerprints, and the arguments with which they are read."""
    values = [widened(value, bits) for value in VALUES]
    raw, texts = (
        [value.to_bytes(bits // 8, "big") for value in values],
        [f"{value:0{bits // 4}x}" for value in values],
    )
    results = {
        "fixed_size_binary": (pa.array(raw, pa.binary(bits // 8)), {}),
        "binary": (pa.array(raw), {}),
        "large_binary": (pa.array(raw, pa.large_binary()), {}),
        "hexadecimal": (pa.array(texts), {}),
        "large_string": (pa.array(texts, pa.large_string()), {}),
        "dictionary": (pa.array(texts).dictionary_encode(), {}),
        "decimal": (pa.array([str(value) for value in values]), {"decimal": True}),
    }
    if bits <= 64:
        signed = [value - (1 << bits) if value >> (bits - 1) else value for value in values]
        results["unsigned"] = (pa.array(values, f"uint{bits}"), {})
        results["signed"] = (pa.array(signed, f"int{bits}"), {"signed": True})
        results["signed decimal"] = (
            pa.array([str(value) for value in signed]),
            {"signed": True, "decimal": True},
        )
    return results


def id_columns():
    count = len(VALUES)
    return {
        "strings": pa.array(NAMES),
        "large_string": pa.array(NAMES, pa.large_string()),
        "dictionary": pa.array(NAMES).dictionary_encode(),
        "integers": pa.array([2**64 - 1 - n for n in range(count)], pa.uint64()),
        "signed": pa.array(range(10, 10 + count), pa.int32()),
        "null-free int64 with an offset": pa.array([0, *range(10, 10 + count)])[1:],
    }


def sliced(table):
    """Return the same rows as a part of a longer table."""
    return (
        pa.concat_tables([table.slice(0, 3), table, table.slice(2, 1)])
        .combine_chunks()
        .slice(3, table.num_rows)
    )


def chunked(table):
    return pa.concat_tables(
        [table.slice(0, 1), table.slice(1, 0), table.slice(1, 4), table.slice(5)]
    )


FORMS = {"whole": lambda table: table, "sliced": sliced, "chunked": chunked}


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("bits", "form"), crossed(WIDTHS, list(FORMS)))
def test_columns_of_every_kind_are_deduplicated(tmp_path, bits, form):
    for number, (kind, (fingerprints, how)) in enumerate(fingerprint_columns(bits).items()):
        for name, ids in id_columns().items():
            plain = pa.table(
                {
                    "hash": fingerprints,
                    "name": ids,
                    "other": pa.array([[n] for n in range(len(VALUES))]),
                }
            )
            table, where = FORMS[form](plain), f"{kind}, {name}"
            result = fpstore.dedup(
                table, fingerprint="hash", id="name", radius=1, width=bits, **how
            )
            expected = [[ids[row].as_py() for row in rows] for rows in CLUSTERS]
            assert [sorted(rows) for rows in result.clusters] == [
                sorted(rows) for rows in expected
            ], where
            assert [rows[0] for rows in result.clusters] == [rows[0] for rows in expected], where
            assert result.kept.equals(plain.take(KEPT)), where
            assert result.kept.schema == plain.schema, where
        path, clean = tmp_path / f"{number}.parquet", tmp_path / f"{number}-clean.parquet"
        pq.write_table(table, path, row_group_size=2)
        result = fpstore.dedup(
            path, clean, fingerprint="hash", id="name", radius=1, width=bits, **how
        )
        assert result.kept.tolist() == KEPT, kind
        assert pq.read_table(clean).equals(pq.read_table(path).take(KEPT)), kind
        assert pq.read_schema(clean) == pq.read_schema(path), kind


CARRIERS = {
    "polars": pl.from_arrow,
    "polars, categorical": lambda table: pl.from_arrow(table).with_columns(
        pl.col("name").cast(pl.Categorical)
    ),
    "polars, sliced": lambda table: pl.concat([pl.from_arrow(table)[:2], pl.from_arrow(table)])[2:],
    "polars, chunks": lambda table: pl.concat(
        [pl.from_arrow(table)[:2], pl.from_arrow(table)[2:]], rechunk=False
    ),
    "pandas": lambda table: table.to_pandas(),
    "pandas, categorical": lambda table: table.to_pandas().astype({"name": "category"}),
    "pandas of Arrow": lambda table: table.to_pandas(types_mapper=pd.ArrowDtype),
    "pandas, other index": lambda table: table.to_pandas().set_index(
        pd.Index(range(90, 90 + table.num_rows))
    ),
}


@pytest.mark.parametrize(
    ("carrier", "kind"),
    crossed(list(CARRIERS), ["unsigned", "signed", "hexadecimal", "fixed_size_binary", "decimal"]),
)
def test_tables_of_other_packages_are_deduplicated(carrier, kind):
    fingerprints, how = fingerprint_columns(64)[kind]
    inputs = CARRIERS[carrier](pa.table({"hash": fingerprints, "name": NAMES}))
    result = fpstore.dedup(inputs, fingerprint="hash", id="name", radius=1, **how)
    assert [sorted(rows) for rows in result.clusters] == [
        sorted(NAMES[row] for row in rows) for rows in CLUSTERS
    ]
    assert type(result.kept) is type(inputs)
    assert list(result.kept["name"]) == [NAMES[row] for row in KEPT]
    if carrier.startswith("polars"):
        assert result.kept.schema == inputs.schema
    else:
        assert (result.kept.dtypes == inputs.dtypes).all()
        assert result.kept.index.tolist() == inputs.index[KEPT].tolist()


def test_a_polars_table_with_views_in_other_types_is_written(tmp_path):
    """Strings in categories, lists and structs, of which pyarrow cannot take some as they are."""
    inputs = pl.DataFrame(
        {
            "hash": pl.Series(VALUES, dtype=pl.UInt64),
            "category": pl.Series(["x", None, "y", "x", "y", "x", None], dtype=pl.Categorical),
            "enum": pl.Series(["x", "y"] * 3 + ["x"], dtype=pl.Enum(["x", "y"])),
            "list": [["a", "b"], [], None, ["c"], ["d", None], ["e"], ["f"]],
            "struct": [{"s": str(n), "l": [[str(n)]]} for n in range(7)],
        }
    )
    result = fpstore.dedup(inputs, tmp_path / "clean.parquet", fingerprint="hash", radius=1)
    assert result.kept.equals(inputs[KEPT])
    written = pl.read_parquet(tmp_path / "clean.parquet")
    assert written.with_columns(pl.col("category", "enum").cast(pl.String)).equals(
        inputs[KEPT].with_columns(pl.col("category", "enum").cast(pl.String))
    )


@pytest.mark.parametrize(("ids", "bits"), crossed(["strings", "integers"], [64, 256, 32, 128]))
def test_results_are_built_from_again(tmp_path, bits, ids):
    """Pairs, joins and matches in Parquet have fingerprints and ids that a store takes back."""
    values = [widened(value, bits) for value in VALUES]
    names = NAMES if ids == "strings" else [2**64 - 1 - n for n in range(len(VALUES))]
    with fpstore.build(tmp_path / "s", values, names, width=bits, radius=1) as store:
        held = {(value, name) for value, name in zip(values, names, strict=True)}
        tables = {
            "pairs": [batch.to_arrow() for batch in store.pairs()],
            "join": [batch.to_arrow() for batch in store.join(values, ids=names)],
            "matches": [
                store.probe_many(values).to_arrow(names={"fingerprint": "b", "id": "id_b"})
            ],
        }
        for what, parts in tables.items():
            pq.write_table(pa.concat_tables(parts), tmp_path / f"{what}.parquet")
            reader = open_reader(
                tmp_path / f"{what}.parquet", fingerprint_field="b", id_field="id_b", width=bits
            )
            with fpstore.build(tmp_path / what, reader, width=bits, radius=1) as copy:
                again = {(value, item) for value in copy for item in copy[value]}
                assert again <= held
                assert what == "pairs" or again == held
        clusters = store.clusters().to_arrow()
        pq.write_table(clusters, tmp_path / "clusters.parquet")
        assert pq.read_table(tmp_path / "clusters.parquet").equals(clusters)
        assert clusters.schema.field("id").type == (
            pa.string() if ids == "strings" else pa.uint64()
        )
        frame = pl.read_parquet(tmp_path / "clusters.parquet")
        assert (
            frame["id"].to_list()
            == store.clusters().to_pandas()["id"].tolist()
            == clusters["id"].to_pylist()
        )


@pytest.mark.parametrize("bits", [32, *map(slow, (64, 128, 256))])
def test_tables_without_rows(tmp_path, bits):
    for number, (fingerprints, how) in enumerate(fingerprint_columns(bits).values()):
        for ids in id_columns().values():
            table = pa.table({"hash": fingerprints, "name": ids}).slice(0, 0)
            for value in (table, pl.from_arrow(table), table.to_pandas(types_mapper=pd.ArrowDtype)):
                with pytest.raises(InputError, match="no rows"):
                    fpstore.dedup(value, fingerprint="hash", id="name", width=bits, **how)
            path = tmp_path / f"{number}.parquet"
            pq.write_table(table, path)
            reader = open_reader(path, fingerprint_field="hash", id_field="name", width=bits, **how)
            assert sum(len(batch.fingerprints) for batch in reader) == 0
        reader = open_reader(path, fingerprint_field="hash", id_field="name", width=bits, **how)
        with fpstore.build(tmp_path / f"s{number}", reader, width=bits) as store:
            assert (len(store), list(store.clusters())) == (0, [])
