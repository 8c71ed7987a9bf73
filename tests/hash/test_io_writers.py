"""Writers: every format read back, values they refuse, and disks that are full."""

import fcntl
import io
import json
import resource
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import MAX, put, read
from speeds import slow

from fpstore.errors import InputError, StorageError
from fpstore.io import Chunk, open_writer

STRING_IDS = st.text(min_size=1, max_size=8)


@settings(max_examples=50)
@given(
    rows=st.lists(st.tuples(st.integers(0, MAX), STRING_IDS, st.integers(0, MAX)), max_size=9),
    name=st.sampled_from(["a.tsv", "a.csv", "a.txt", "a.jsonl", "a.parquet"]),
    integers=st.booleans(),
    header=st.booleans(),
    cut=st.integers(0, 9),
)
def test_what_is_written_is_read(tmp_path_factory, rows, name, integers, header, cut):
    path = tmp_path_factory.getbasetemp() / name
    path.unlink(missing_ok=True)
    fingerprints, strings, numbers = ([row[index] for row in rows] for index in range(3))
    ids = numbers if integers else strings
    try:
        with open_writer(path, columns=["fingerprint", "id"], header=header) as writer:
            writer.write({"fingerprint": fingerprints[:cut], "id": ids[:cut]})
            writer.write({"id": ids[cut:], "fingerprint": fingerprints[cut:]})
    except InputError as error:
        assert "separator or a line break" in str(error)
        assert name != "a.csv"
        assert set("".join(strings)) & set("\t\r\n ,")
        assert not path.exists()
        return
    assert read(path, id_type="int" if integers else "str") == (fingerprints, ids if rows else None)


NAMES = ("a.npy", "a.u64", "a.tsv", "a.csv", "a.txt", "a.jsonl", "a.parquet")


COLUMNS = ("query", "fingerprint", "distance", "id")


def test_result_rows_in_every_text_format():
    rows = [(1, 3, 1, "a"), (1, MAX, 63, "b,")]
    expected = {
        "tsv": "0000000000000001\t0000000000000003\t1\ta\n"
        "0000000000000001\tffffffffffffffff\t63\tb,\n",
        "csv": '0000000000000001,0000000000000003,1,a\n0000000000000001,ffffffffffffffff,63,"b,"\n',
        "jsonl": '{"query": "0000000000000001", "fingerprint": "0000000000000003", "distance": 1, '
        '"id": "a"}'
        '\n{"query": "0000000000000001", "fingerprint": "ffffffffffffffff", "distance": 63, "id": '
        '"b,"}\n',
    }
    for name, text in expected.items():
        for stream in (io.StringIO(), io.BytesIO()):
            with open_writer(stream, format=name, columns=COLUMNS) as writer:
                writer.write(rows)
            assert stream.getvalue() in (text, text.encode())
    with open_writer(stream := io.StringIO(), columns=["a", "n%"], header=True) as writer:
        writer.write([(5, 6)])
    assert stream.getvalue() == "a\tn%\n0000000000000005\t6\n"
    with open_writer(stream := io.StringIO(), format="jsonl", columns={"n%": "value"}) as writer:
        writer.write({"n%": ["\u2028\n"]})
    assert json.loads(stream.getvalue()) == {"n%": "\u2028\n"}


def test_small_writes_make_large_row_groups(tmp_path):
    with open_writer(tmp_path / "a.parquet", columns=["fingerprint"]) as writer:
        for start in range(0, 600_000, 60_000):
            writer.write({"fingerprint": np.arange(start, start + 60_000, dtype=np.uint64)})
    metadata = pq.read_metadata(tmp_path / "a.parquet")
    assert (metadata.num_rows, metadata.num_row_groups) == (600_000, 2)


def test_refused_rows_leave_the_writer_as_it_was(tmp_path):
    with open_writer(tmp_path / "a.tsv", columns=["fingerprint", "id"]) as writer:
        writer.write([(1, "a")])
        for data, message in (
            ({"fingerprint": [1]}, "columns fingerprint given, fingerprint, id expected"),
            ({"fingerprint": [1, 2], "id": ["a"]}, "'id' has 1 rows, the columns before it 2"),
            ({"fingerprint": [1], "id": [""]}, "'id': the id at position 0: the id is empty"),
            (
                {"fingerprint": [1], "id": ["a\tb"]},
                r"cannot be written as tsv: .*JSON lines \(a file\.jsonl\)",
            ),
            ({"fingerprint": [1], "id": [5]}, "'id' mixes integers and strings"),
            ([(1,)], "a row of 1 values for the columns fingerprint, id"),
            (Chunk(np.zeros(1, dtype=np.uint64), None), "columns fingerprint given"),
        ):
            with pytest.raises(InputError, match=message):
                writer.write(data)
        writer.write([(2, "b")])
    assert read(tmp_path / "a.tsv") == ([1, 2], ["a", "b"])
    with (
        open_writer(io.StringIO(), columns=["distance"]) as writer,
        pytest.raises(InputError, match="0 to 64"),
    ):
        writer.write({"distance": [65]})


def test_impossible_targets_are_named(tmp_path):
    for target, options, message in (
        ("a.xyz", {"columns": ["fingerprint"]}, "unknown extension"),
        ("a.npy", {"columns": ["fingerprint", "id"]}, "npy format holds one column"),
        ("a.tsv", {"columns": ["id", "id"]}, "distinct names"),
        ("a.tsv", {"columns": ["a\tb"], "header": True}, "cannot be written"),
        (".", {"columns": ["id"], "format": "tsv"}, "is a folder"),
        (io.BytesIO(), {"columns": ["fingerprint"], "format": "npy"}, "needs a file"),
    ):
        with pytest.raises(InputError, match=message):
            open_writer(tmp_path / target if isinstance(target, str) else target, **options)
    assert list(tmp_path.iterdir()) == []


def test_failed_block_leaves_the_old_file(tmp_path):
    for name in NAMES:
        put(tmp_path, name, b"old")
        writer = open_writer(tmp_path / name, columns=["fingerprint"])
        writer.write({"fingerprint": [1]})
        with pytest.raises(KeyError), writer:
            raise KeyError
        assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [(name, b"old")]
        with pytest.raises(InputError, match="closed"):
            writer.write({"fingerprint": [1]})
        (tmp_path / name).unlink()


@pytest.mark.parametrize("name", ["a.npy", slow("a.u64"), "a.tsv", slow("a.jsonl"), "a.parquet"])
def test_full_disk_leaves_nothing(tmp_path, name):
    values = np.random.default_rng(7).integers(0, MAX, 400_000, dtype=np.uint64)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with (
            pytest.raises(StorageError, match=f"{name}: File too large"),
            open_writer(tmp_path / name, columns=["fingerprint"]) as writer,
        ):
            writer.write({"fingerprint": values})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


def test_device_is_written_directly():
    writer = open_writer("/dev/full", format="tsv", columns=["fingerprint"])
    writer.write({"fingerprint": [1]})
    with pytest.raises(StorageError, match="/dev/full: No space left on device"):
        writer.close()
    assert not Path("/dev/full").is_file()


def test_symbolic_link_stays_and_its_file_is_replaced(tmp_path):
    put(tmp_path, "real.tsv", b"old")
    (tmp_path / "link.tsv").symlink_to("real.tsv")
    with open_writer(tmp_path / "link.tsv", columns=["fingerprint"]) as writer:
        writer.write({"fingerprint": [1]})
    assert (tmp_path / "link.tsv").is_symlink()
    assert (tmp_path / "real.tsv").read_bytes() == b"0000000000000001\n"


def test_files_of_a_killed_writer_are_removed_by_the_next_one(tmp_path):
    names = [
        ".a.tsv.0123abcd.tmp",
        ".a.tsv.0123abcd.tmp.tmp",
        ".a.tsv.copy.tmp",
        ".b.tsv.0123abcd.tmp",
    ]
    for name in names:
        (tmp_path / name).touch()
    with open_writer(tmp_path / "a.tsv", columns=["fingerprint"]) as writer:
        writer.write([(1,)])
        assert not (tmp_path / names[0]).exists()
        # which leaves that of a live one
        with open_writer(tmp_path / "a.tsv", columns=["fingerprint"]) as another:
            another.write([(2,)])
    assert read(tmp_path / "a.tsv") == ([1], None)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names[1:], "a.tsv"])


def test_output_removed_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    """Another writer takes the new file for abandoned."""
    lock, removed = fcntl.flock, []

    def lock_late(descriptor, operation):
        if not removed:
            removed.append(Path(f"/proc/self/fd/{descriptor}").readlink())
            removed[0].unlink()
        return lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", lock_late)
    with open_writer(tmp_path / "a.tsv", columns=["fingerprint"]) as writer:
        writer.write([(1,)])
    assert removed
    assert read(tmp_path / "a.tsv") == ([1], None)
    assert [path.name for path in tmp_path.iterdir()] == ["a.tsv"]
