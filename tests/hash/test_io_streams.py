"""Files that cannot be opened, standard streams, pipes, several inputs, missing packages."""

import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from inputs import put, read
from speeds import slow

from fpstore.errors import InputError, MissingExtraError, StorageError
from fpstore.io import open_reader, open_writer
from fpstore.io.packages import import_package


def test_what_the_system_refuses_is_named(tmp_path):
    with pytest.raises(StorageError, match=r"gone\.tsv: no such file"):
        open_reader(tmp_path / "gone.tsv")
    with pytest.raises(InputError, match="is a folder, not a file"):
        open_reader(tmp_path, format="tsv")
    with pytest.raises(InputError, match="NUL character"):
        open_reader("a\0b.tsv")
    with pytest.raises(InputError, match="no input"):
        open_reader([])


def test_no_permission_is_a_storage_error(tmp_path, with_mode):
    path = put(tmp_path, "a.tsv", b"0xff\n")
    with with_mode(path, 0), pytest.raises(StorageError, match=r"a\.tsv: Permission denied"):
        open_reader(path)
    with (
        with_mode(tmp_path, 0o555),
        pytest.raises(StorageError, match=r"b\.tsv: Permission denied"),
    ):
        open_writer(tmp_path / "b.tsv", columns=["fingerprint"])


def test_file_name_that_is_not_utf8_can_be_printed(tmp_path):
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.tsv"))
    path.write_bytes(b"zz\n")
    with pytest.raises(InputError, match=r"xff\.tsv:1: ") as caught:
        read(path)
    assert str(caught.value).encode("utf-8")


def test_several_inputs_are_one(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(3, dtype=np.uint64))
    paths = [
        tmp_path / "a.npy",
        put(tmp_path, "b.u64", b"\x07" + bytes(7)),
        put(tmp_path, "c.tsv", b"0xff\n"),
    ]
    reader = open_reader(paths, chunk_rows=2)
    assert reader.rows is None
    assert reader.bytes_total == sum(path.stat().st_size for path in paths)
    assert reader.has_ids is False
    for _ in range(2):  # a reader can be read again
        assert [chunk.fingerprints.tolist() for chunk in reader] == [[0, 1], [2, 7], [255]]
        assert reader.bytes_done == reader.bytes_total
    iter(reader)
    assert reader.bytes_done == 0
    assert open_reader(paths[:2]).rows == 4
    reader = open_reader(put(tmp_path, "d.tsv", b"0xff\ta\n"))
    assert (reader.has_ids, reader.rows) == (None, None)  # known after the first row
    assert len(list(reader)) == 1
    assert reader.has_ids is True
    os.mkfifo(tmp_path / "pipe.tsv")
    with subprocess.Popen(
        ["/bin/sh", "-c", 'printf "0xff\\n0x1\\n" > "$0"', tmp_path / "pipe.tsv"]
    ):
        assert read(tmp_path / "pipe.tsv") == ([255, 1], None)


def test_inputs_must_agree_on_ids(tmp_path):
    with_ids = put(tmp_path, "a.tsv", b"0xff\t1\n")
    without = put(tmp_path, "b.tsv", b"# c\n0xff\n")
    raw = put(tmp_path, "c.u64", bytes(8))
    empty = put(tmp_path, "d.u64", b"")
    for paths, where in [
        ((with_ids, without), "b.tsv:2: no id"),
        ((without, with_ids), "a.tsv:1: an id"),
        ((with_ids, raw), "c.u64: no id"),
        ((raw, with_ids), "a.tsv:1: an id"),
    ]:
        with pytest.raises(InputError, match=where):
            read(paths)
    assert read([empty, with_ids]) == ([255], [1])


def test_id_type_is_decided_by_the_first_chunk_of_all_inputs(tmp_path):
    numbers, names = (
        put(tmp_path, "a.tsv", b"0x1\t1\n0x2\t2\n"),
        put(tmp_path, "b.tsv", b"0x3\tx\n"),
    )
    assert read([numbers, names]) == ([1, 2, 3], ["1", "2", "x"])
    with pytest.raises(InputError, match=r"b\.tsv:1: the id 'x' .*id_type='str'"):
        read([numbers, names], chunk_rows=2)
    assert read([numbers, names], chunk_rows=2, id_type="str") == ([1, 2, 3], ["1", "2", "x"])
    assert read([names, numbers], chunk_rows=1) == ([3, 1, 2], ["x", "1", "2"])
    typed = put(tmp_path, "c.jsonl", b'{"fingerprint": 4, "id": "x"}')
    with pytest.raises(InputError, match=r"c\.jsonl:1: .*type str, but earlier ids are integers"):
        read([numbers, typed])


SCRIPT = """
import sys
from fpstore.io import open_reader, open_writer
reader = open_reader("-", format=sys.argv[1])
assert reader.bytes_total is None
columns = ["fingerprint"] if sys.argv[1] == "u64" else ["fingerprint", "id"]
with open_writer("-", format=sys.argv[2], columns=columns) as writer:
    for chunk in reader:
        writer.write(chunk)
try:
    list(reader)
except ValueError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("source", "target", "given_bytes", "printed"),
    [
        (
            "tsv",
            "jsonl",
            b"0xff\t\xc3\xa9\n",
            '{"fingerprint": "00000000000000ff", "id": "\u00e9"}',
        ),
        slow("jsonl", "tsv", b'{"fingerprint": 1, "id": 7}', "0000000000000001\t7"),
        slow("u64", "tsv", b"\x02" + bytes(7), "0000000000000002"),
    ],
)
def test_standard_streams(tmp_path, source, target, given_bytes, printed):
    environment = dict(os.environ, PYTHONUTF8="0", LC_ALL="C", PYTHONIOENCODING="ascii")
    command = [sys.executable, "-c", SCRIPT, source, target]
    done = subprocess.run(
        command, input=given_bytes, capture_output=True, env=environment, cwd=tmp_path, check=True
    )
    assert done.stdout.decode().splitlines() == [printed, "standard input can be read only once"]


def test_standard_input_is_named_in_errors(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"0xff\nzz\n")))
    with pytest.raises(InputError, match=r"^<stdin>:2: 'zz'"):
        read("-")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(bytes(9))))
    with pytest.raises(InputError, match=r"^<stdin>: truncated: 1 bytes"):
        read("-", format="u64")
    with pytest.raises(InputError, match="more than once"):
        open_reader(["-", "-"])
    for name in ("npy", "parquet"):
        with pytest.raises(InputError, match=r"<stdin>: .* must be a regular file"):
            open_reader("-", format=name)


def test_missing_pyarrow_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    Path("a.parquet").write_bytes(b"PAR1")
    for name, call in (("a", open_reader), ("b", lambda path: open_writer(path, columns=["id"]))):
        with pytest.raises(
            MissingExtraError,
            match=rf"^{name}\.parquet: Parquet needs the package pyarrow: pip install pya",
        ):
            call(f"{name}.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


def test_package_that_fails_to_import_is_not_reported_as_missing(tmp_path, monkeypatch):
    """Trafilatura was installed, but not a package that it needs.

    The message said to install trafilatura.
    """
    (tmp_path / "broken_package.py").write_text("raise ImportError('it needs another package')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        MissingExtraError, match=r"installed but cannot be imported \(it needs another package\)"
    ):
        import_package("broken_package", "the test")
