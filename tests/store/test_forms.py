"""One fingerprint in each of its forms, and lists of them, in every method of a store.

Those of another width are refused.
"""

import re
import shutil
from pathlib import Path

import imagehash
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import failure, fine
from speeds import ALL_WIDTHS, SOME_WIDTHS, slow
from wide import Bits, as_bits, as_uint8, numbers

import fpstore
from fpstore.base.width import Width
from fpstore.hashing import iter_documents
from fpstore.io import open_reader
from fpstore.io.source import SUFFIXES

COUNT = 20


def forms_of(value, bits):
    """Return every form of one fingerprint."""
    data, width = value.to_bytes(bits // 8, "big"), Width(bits)
    hashed = Bits(value, bits)
    forms = [
        value,
        data,
        bytearray(data),
        memoryview(data),
        np.void(data),
        as_uint8([value], bits)[0],
        as_bits([value], bits)[0],
        hashed.hash,
        hashed,
        imagehash.ImageHash(hashed.hash),
        width.text(value),
        hex(value),
    ]
    return [*forms, width.row(value)[0]] if bits > 64 else [*forms, np.uint64(value)]


def lists_of(values, bits):
    """Return lists of one array for each fingerprint."""
    lists = [
        list(as_uint8(values, bits)),
        list(as_bits(values, bits)),
        [Bits(value, bits).hash for value in values],
    ]
    return [*lists, list(Width(bits).rows(values))] if bits > 64 else lists


@pytest.mark.parametrize("bits", SOME_WIDTHS)
def test_every_form_of_one_fingerprint_is_one_for_each_method(tmp_path, bits):
    values = sorted(set(numbers(bits, COUNT)))
    query = values[3] ^ 1
    fpstore.build(tmp_path / "s", values, width=bits).close()
    with fpstore.open(tmp_path / "s", "r+") as store:
        expected = store.nearest(query, 2)
        for form in forms_of(query, bits):
            assert store.nearest(form, 2) == expected
            assert store.probe(form, 1) == store.probe(query, 1)
            assert form not in store
            assert (store.insert(form), form in store, len(store[form])) == (1, True, 1)
            assert (store.upsert(form, 10**6), store[form]) == (1, [*store[query]])
            assert store.delete(fingerprints=form).removed == 2
        assert len(store.nearest_many(as_bits(values, bits), 2)) == len(values)


@pytest.mark.parametrize(
    ("bits", "ids"), [(64, True), (256, False), slow(32, False), slow(128, True)]
)
def test_lists_and_generators_of_rows_are_built_and_inserted(tmp_path, bits, ids):
    values = sorted(set(numbers(bits, COUNT)))
    names = [f"row {place}" for place in range(len(values))] if ids else None
    for rows in lists_of(values, bits):
        with fpstore.build(tmp_path / "s", iter(rows), names, width=bits, overwrite=True) as store:
            assert list(store) == values
            assert store[values[2]] == ["row 2" if ids else 2]
        with fpstore.open(tmp_path / "s", "r+") as store:
            store.delete(fingerprints=tuple(rows))
            assert store.insert(rows, names) == len(values)
            assert list(store) == values


def test_ids_of_single_rows_are_as_many(tmp_path):
    rows = as_uint8([1, 2, 3], 64)
    for ids, message in (
        ([1, 2], "2 ids for 3"),
        ([1, 2, 3, 4], "more ids"),
        ("abc", "one for each fingerprint, got str"),
    ):
        with pytest.raises(fpstore.InputError, match=message):
            fpstore.build(tmp_path / "s", iter(rows), ids)


@pytest.mark.parametrize("bits", SOME_WIDTHS)
def test_a_row_of_bytes_is_not_many_fingerprints(tmp_path, bits):
    """A row of eight bytes was probed as eight small numbers, which found nothing."""
    row = as_uint8([1], bits)[0]
    with fpstore.build(tmp_path / "s", [1, 2], width=bits) as store:
        for use in (
            store.probe_many,
            store.ids_of,
            lambda q: store.scan(q, 3),
            lambda q: list(store.probe_batches(q)),
        ):
            with pytest.raises(
                fpstore.InputError,
                match=r"one fingerprint\? pass row.tobytes\(\); several\? use shape",
            ):
                use(row)
    with pytest.raises(fpstore.InputError, match="several"):
        fpstore.build(tmp_path / "new", row, width=bits)


@pytest.mark.parametrize("bits", SOME_WIDTHS)
def test_one_fingerprint_of_another_width_is_named_with_both(tmp_path, bits):
    other = 64 if bits == 256 else 256
    with fpstore.build(tmp_path / "s", [1, 2], width=bits) as built:
        path = built.path
    with fpstore.open(path, "r+") as store:
        digits = "f" * (other // 4)
        for form in (
            bytes(other // 8),
            np.zeros(other // 8, np.uint8),
            np.zeros(other, bool),
            Bits(0, other),
            digits,
        ):
            for use in (
                store.probe,
                lambda q: store.nearest(q, 1),
                store.insert,
                store.__contains__,
                store.__getitem__,
                lambda q: store.delete(fingerprints=q),
                lambda q: store.upsert(q, 7),
            ):
                with pytest.raises(
                    fpstore.InputError,
                    match=rf"of {other} bits\b.*, but this store holds {bits} bits$",
                ):
                    use(form)
        with pytest.raises(
            fpstore.InputError,
            match=rf"it has .* of {other} bits|of {other} bits .*this store holds {bits} bits$",
        ):
            store.probe_many(np.zeros((5, other // 8), np.uint8))
    message = f"a fingerprint of {other} bits, but this store holds {bits} bits"
    for words in (("probe", path, digits), ("delete", path, "--fingerprints", digits)):
        assert message in failure(*words, code=2)


def test_numbers_of_32_bits_are_not_fingerprints_of_64(tmp_path):
    """They were widened, and probes found nothing."""
    narrow = np.arange(5, dtype=np.uint32)
    advice = r"fingerprints of 32 bits.*, but the width is 64: pass width=32"
    for column in (narrow, pa.array(narrow)):
        with pytest.raises(fpstore.InputError, match=advice):
            fpstore.build(tmp_path / "s", column)
    with (
        fpstore.build(tmp_path / "s", [1, 2]) as store,
        pytest.raises(fpstore.InputError, match="but this store holds 64 bits"),
    ):
        store.probe_many(narrow)


def test_file_of_another_width_is_named_with_both(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fpstore.build("s", [1, 2]).close()
    np.save("a.npy", np.arange(5, dtype=np.uint32))
    np.save("b.npy", np.zeros((5, 32), np.uint8))
    pq.write_table(pa.table({"fingerprint": np.arange(5, dtype=np.uint32)}), "a.parquet")
    Path("a.tsv").write_text("000000ff\n")
    for name, width, reason in (
        ("a.npy", 32, "fingerprints of 32 bits (dtype uint32, shape (5,))"),
        ("b.npy", 256, "fingerprints of 256 bits (dtype uint8, shape (5, 32))"),
        ("a.parquet", 32, "has type uint32: fingerprints of 32 bits"),
        ("a.tsv", 32, "8 hexadecimal digits, a fingerprint of 32 bits"),
    ):
        wrong = rf"{name}.*: .*{re.escape(reason)}.*, but"
        with pytest.raises(
            fpstore.InputError, match=f"{wrong} the width is 64: pass width={width}$"
        ):
            fpstore.build("new", open_reader(name))
        message = failure("build", "new", name)
        assert re.match(f"fpstore: {wrong} the width is 64: pass --width {width}\n", message)
        for words in (("probe", "s", "--input", name), ("insert", "s", name)):
            assert re.match(f"fpstore: {wrong} this store holds 64 bits\n", failure(*words))
        assert not Path("new").exists()
        assert len(list(open_reader(name, width=width))) == 1
        fine("build", "new", name, "--width", width, "--force", "-q")
        shutil.rmtree("new")
    with pytest.raises(fpstore.InputError, match="256 bits, but the width is 64"):
        fpstore.build("new", open_reader("b.npy", width=256))


def test_what_is_no_fingerprint_is_refused(tmp_path):
    wrong = {"5": "it has 1 of 16 hexadecimal digits", 2**64: "takes 65 bits"}
    others = (-1, 1.0, 5.0, None, True, np.int64(1), np.float64(1), [1])
    with fpstore.build(tmp_path / "s", [1, 5]) as store:
        for use in (
            *(store.probe, lambda value: store.nearest(value, 1)),
            *(store.__contains__, store.__getitem__),
        ):
            for value, message in wrong.items():
                with pytest.raises(fpstore.InputError, match=message):
                    use(value)
            for value in others:
                form = (
                    rf"a fingerprint is an int from 0 to 2\^64 - 1, .*, got {type(value).__name__}"
                )
                with pytest.raises(fpstore.InputError, match=form):
                    use(value)


@pytest.mark.parametrize("width", ALL_WIDTHS)
def test_fingerprint_of_any_form_that_is_not_stored_is_named(tmp_path, width):
    """Digits, bytes and rows of numbers ended in a ValueError or TypeError of Python."""
    value = 0xF1 << width - 8
    message = f"the fingerprint {value if width <= 64 else f'0x{value:x}'} is not stored"
    with fpstore.build(tmp_path / "s", [1], [7], width=width) as store:
        for form in forms_of(value, width):
            with pytest.raises(fpstore.NotStoredError) as caught:
                store[form]
            assert str(caught.value) == message
        with pytest.raises(fpstore.NotStoredError, match=message):
            store.ids_of([1, value])
        with pytest.raises(fpstore.NotStoredError, match="the id 99 is not stored") as caught:
            store.ids[99]
        assert caught.value.got == 99
        assert isinstance(caught.value, fpstore.FpstoreError)
        assert isinstance(caught.value, KeyError)
        assert [column.tolist() for column in store.ids_of([])] == [[0], []]


def test_arrays_of_each_width_come_back_as_they_went_in(tmp_path):
    rng = np.random.default_rng(1)
    for width, values in (
        (32, rng.integers(0, 2**32, 50, np.uint32)),
        (128, rng.integers(0, 256, (50, 16), np.uint8)),
        (256, rng.integers(0, 256, (50, 32), np.uint8)),
    ):
        with fpstore.build(tmp_path / str(width), values, width=width) as store:
            matches = store.probe_many(values, 0)
            assert (matches.fingerprints.dtype, matches.fingerprints.shape) == (
                values.dtype,
                values.shape,
            )
            assert np.array_equal(matches.fingerprints, values)
            assert matches.distances.dtype == (np.uint16 if width == 256 else np.uint8)


@pytest.mark.parametrize("width", ALL_WIDTHS)
def test_match_shows_its_fingerprint_as_python_reads_it(tmp_path, width):
    """At 128 and 256 bits it had up to 78 decimal digits, which nobody has as a query."""
    value = 0x0123_4567 << width - 32
    with fpstore.build(tmp_path / "s", [value], width=width) as store:
        (match,) = store.probe(value ^ 1)
        digits = str(value) if width <= 64 else f"0x{value:0{width // 4}x}"
        assert repr(match) == f"Match(fingerprint={digits}, distance=1, ids=[0])"
        assert eval(repr(match), {"Match": fpstore.Match}) == match
        assert repr([*store.probe_many([value])]) == repr([store.nearest(value, 1)])


def test_every_format_of_rows_is_skipped_among_texts(tmp_path):
    """A .u32 file was read as a text."""
    for suffix in SUFFIXES:
        (tmp_path / f"a{suffix}").write_text("some words")
    texts = [str(tmp_path / name) for name in ("a.json", "a.txt")]  # of which either may be text
    assert [document.id for document in iter_documents(tmp_path)] == texts
