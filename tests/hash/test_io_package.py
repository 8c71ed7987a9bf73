"""fpstore.io as a package: the optional pyarrow, and the examples of its docstrings."""

import doctest
import importlib
import subprocess
import sys

import pytest
from inputs import put

from fpstore.errors import MissingExtraError
from fpstore.io.packages import import_package


def test_missing_pyarrow_names_the_extra(tmp_path):
    put(tmp_path, "a.parquet", b"PAR1")
    script = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from fpstore.io import open_reader, open_writer\n"
        "for call in (lambda: open_reader('a.parquet'), lambda: open_writer('b.parquet', columns=['id'])):\n"
        "    try: call()\n"
        "    except ImportError as error: print(type(error).__name__, error)\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        f"MissingExtraError {name}: Parquet needs the package pyarrow: pip install pyarrow" for name in ("a.parquet", "b.parquet")
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


def test_import_brings_no_pyarrow(tmp_path):
    script = "import sys, fpstore.io; print([name for name in sys.modules if name.startswith('pyarrow')])"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", ["reader", "writers"])
def test_examples_of_the_docstrings(name):
    failed, attempted = doctest.testmod(importlib.import_module(f"fpstore.io.{name}"))
    assert attempted > 0
    assert failed == 0


def test_a_package_that_cannot_be_imported_is_not_said_to_be_missing(tmp_path, monkeypatch):
    """Trafilatura was installed, a package that it needs was not, and the message said to install trafilatura."""
    (tmp_path / "broken_package.py").write_text("raise ImportError('it needs another package')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingExtraError, match=r"installed but cannot be imported \(it needs another package\)"):
        import_package("broken_package", "the test")
