"""Signed integers as the bits of fingerprints: two's complement of 32 and 64 bits."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import failure, fine, folder, prepared
from inputs import parse_fingerprint, put

from fpstore.base.width import Width
from fpstore.errors import InputError
from fpstore.io import open_reader
from fpstore.io.digits import Digits, parse_block

__all__ = ["folder", "prepared"]

BITS = (32, 64)


def signed(bits):
    return [-1, 0, 1, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1, -12345]


def fingerprints(path, bits, **options):
    return [one for chunk in open_reader(path, width=bits, signed=True, **options) for one in chunk.fingerprints.tolist()]


def files(folder, bits):
    """Write files of every kind with the same signed integers; yield them with the options that they need."""
    values, kind = signed(bits), f"int{bits}"
    for name, dtype in (("a", kind), ("b", "int64"), ("c", f">i{bits // 8}")):
        np.save(folder / f"{name}.npy", np.array(values, dtype))
        yield folder / f"{name}.npy", {}
    for name, column in (
        ("a", pa.array(values, kind)),
        ("b", pa.array(values, pa.int64())),
        ("c", pa.array(list(map(str, values)))),
    ):
        pq.write_table(pa.table({"fingerprint": column}), folder / f"{name}.parquet")
        yield folder / f"{name}.parquet", {"decimal": name == "c"}
    lines = [json.dumps({"fingerprint": value}) + "\n" for value in values]
    yield put(folder, "a.jsonl", "".join(lines).encode()), {}
    yield put(folder, "b.jsonl", "\n".join(lines).encode()), {}  # read line by line
    yield (
        put(folder, "c.jsonl", "".join(json.dumps({"fingerprint": str(value)}) + "\n" for value in values).encode()),
        {"decimal": True},
    )
    for name in ("a.tsv", "a.csv", "a.txt"):
        yield put(folder, name, "".join(f"{value}\n" for value in values).encode()), {"decimal": True}
    yield put(folder, "b.csv", "".join(f'"{value}"\n' for value in values).encode()), {"decimal": True}


@pytest.mark.parametrize("bits", BITS)
def test_every_format_holds_signed_integers(tmp_path, bits):
    expected = [value % 2**bits for value in signed(bits)]
    for path, options in files(tmp_path, bits):
        assert fingerprints(path, bits, **options) == expected, path
        if path.name not in ("a.txt", "b.csv"):
            with pytest.raises(InputError):
                list(open_reader(path, width=bits, **options))


@pytest.mark.parametrize("bits", BITS)
def test_unsigned_ones_are_read_as_before(tmp_path, bits):
    values = [0, 2**bits - 1, 7]
    np.save(tmp_path / "a.npy", np.array(values, f"uint{bits}"))
    pq.write_table(pa.table({"fingerprint": pa.array(values, f"uint{bits}")}), tmp_path / "a.parquet")
    put(tmp_path, "a.jsonl", "".join(json.dumps({"fingerprint": value}) + "\n" for value in values).encode())
    put(tmp_path, "a.tsv", "".join(f"{value:0{bits // 4}x}\n" for value in values).encode())
    for name in ("a.npy", "a.parquet", "a.jsonl", "a.tsv"):
        assert fingerprints(tmp_path / name, bits) == values


@pytest.mark.parametrize("bits", BITS)
def test_what_does_not_fit_is_named(tmp_path, bits):
    low, high = -(2 ** (bits - 1)) - 1, 2**bits
    for value in (low, high):
        put(tmp_path, "a.jsonl", f'{{"fingerprint": 1}}\n{{"fingerprint": {value}}}\n'.encode())
        with pytest.raises(InputError, match=r"a\.jsonl:2: "):
            fingerprints(tmp_path / "a.jsonl", bits)
        put(tmp_path, "a.tsv", f"1\n{value}\n".encode())
        with pytest.raises(InputError, match=rf"a\.tsv:2: '{value}' is not a fingerprint: it (is below -2\^|takes)"):
            fingerprints(tmp_path / "a.tsv", bits, decimal=True)
    if bits == 32:
        for value in (low, high):
            np.save(tmp_path / "a.npy", np.array([1, value]))
            with pytest.raises(InputError, match=f"at position 1 does not fit: {value} "):
                fingerprints(tmp_path / "a.npy", bits)
            pq.write_table(pa.table({"fingerprint": [1, value]}), tmp_path / "a.parquet")
            with pytest.raises(InputError, match=f"row 2: the fingerprint does not fit: {value} "):
                fingerprints(tmp_path / "a.parquet", bits)


def test_signed_integers_of_another_width_are_refused(tmp_path):
    """An int32 that is negative would have ones in its upper half."""
    for kind in ("int32", "int16"):
        np.save(tmp_path / "a.npy", np.array([-1], kind))
        pq.write_table(pa.table({"fingerprint": pa.array([-1], kind)}), tmp_path / "a.parquet")
        for name in ("a.npy", "a.parquet"):
            with pytest.raises(InputError, match=kind):
                fingerprints(tmp_path / name, 64)
    for bits in (128, 256):
        with pytest.raises(InputError, match=f"signed integers have 32 or 64 bits, but the width is {bits}"):
            open_reader(tmp_path / "a.npy", width=bits, signed=True)
        with pytest.raises(InputError, match="signed integers have 32 or 64 bits"):
            parse_fingerprint("-1", True, bits, signed=True)
    with pytest.raises(InputError, match="signed must be True or False"):
        open_reader(tmp_path / "a.npy", signed=1)


def test_messages_about_negatives_name_the_option(tmp_path):
    np.save(tmp_path / "a.npy", np.array([-1]))
    pq.write_table(pa.table({"fingerprint": [-1]}), tmp_path / "a.parquet")
    put(tmp_path, "a.jsonl", b'{"fingerprint": -1}\n')
    put(tmp_path, "a.tsv", b"-1\n")
    for name, options in (("a.npy", {}), ("a.parquet", {}), ("a.jsonl", {}), ("a.tsv", {}), ("a.tsv", {"decimal": True})):
        with pytest.raises(InputError, match=r"signed=True.*--signed"):
            list(open_reader(tmp_path / name, **options))
        with pytest.raises(InputError) as caught:
            list(open_reader(tmp_path / name, width=128, **options))
        assert "--signed" not in str(caught.value)


@pytest.mark.parametrize("bits", BITS)
def test_regular_signed_blocks_take_the_fast_path(bits):
    digits = Digits(Width(bits), decimal=True, signed=True)
    block = "".join(f"{value}\t{place}\n" for place, value in enumerate(signed(bits))).encode()
    rows, ids = parse_block(block, b"\t", digits, "int", True)
    assert Width(bits).numbers(rows) == [value % 2**bits for value in signed(bits)]
    assert ids.tolist() == list(range(6))
    for line in (f"{-(2 ** (bits - 1)) - 1}\n", f"{2**bits}\n", "-\n", "--1\n", "1-\n", "+1\n"):
        assert parse_block(b"1\n" + line.encode(), b"\t", digits) is None
    assert parse_block(b"-1\n", b"\t", digits._replace(signed=False)) is None


def test_a_header_is_told_from_negative_digits(tmp_path):
    put(tmp_path, "a.tsv", b"-1\tfingerprint\n")
    (chunk,) = open_reader(tmp_path / "a.tsv", decimal=True, signed=True)
    assert (chunk.fingerprints.tolist(), chunk.ids) == ([2**64 - 1], ["fingerprint"])


def test_the_command_line_takes_signed_integers(folder):
    fine("build", "x.fps", "signed.csv", "--decimal", "--signed", "-q")
    assert fine("export", "x.fps") == fine("export", "crawl.fps")
    assert fine("probe", "x.fps", "--decimal", "--signed", "-r", 0, "--", "-1") == f"{'f' * 16}\t{'f' * 16}\t0\tones\n"
    for verb in (("probe",), ("scan", "-r", 0), ("nearest",)):
        out = fine(*verb, "x.fps", "--input", "signed.csv", "--decimal", "--signed")
        assert [line.split("\t")[2] for line in out.splitlines() if line.endswith("\tones")] == ["0"]
    assert "--signed" in failure("probe", "x.fps", "--decimal", "--", "-1", code=2)
    fine("build", "wide.fps", "pdq.tsv", "--width", 256, "-q")
    message = failure("probe", "wide.fps", "--decimal", "--signed", "1")
    assert message.startswith("fpstore: signed integers have 32 or 64 bits, but this store holds 256 bits")
