"""What the documentation shows is run, and every public name is in it."""

import doctest
import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fpstore

ROOT = Path(__file__).parent.parent
API = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")


def blocks(page, language):
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_python_examples_run(page, tmp_path):
    code = "\n".join(blocks(page, "python"))
    assert "fpstore.build" in code
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "distance" in done.stdout or "Match(" in done.stdout


def test_readme_shell_example_runs(tmp_path):
    (code,) = blocks("README.md", "sh")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-euc", code], cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert any(line.endswith("pages/b.txt") for line in lines)
    assert any('"doc-1"' in line for line in lines)


@pytest.mark.parametrize("name", fpstore.__all__)
def test_public_name_is_documented(name):
    assert re.search(rf"\b{name}\b", API)
    assert inspect.getdoc(getattr(fpstore, name))


@pytest.mark.parametrize("name", [n for n in vars(fpstore.Store) if not n.startswith("_")])
def test_store_member_is_documented(name):
    assert re.search(rf"\b{name}\b", API)
    assert inspect.getdoc(getattr(fpstore.Store, name))


@pytest.mark.parametrize("name", ["api", "store", "plan", "design", "hashing.text", "io.check", "io.reader", "io.writers"])
def test_docstring_examples(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(importlib.import_module(f"fpstore.{name}"))
    assert result.attempted > 0
    assert result.failed == 0


def test_pages_link_to_files_that_exist():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_stub_lists_what_the_kernel_has():
    from fpstore import _kernel

    stub = (ROOT / "fpstore" / "_kernel.pyi").read_text(encoding="utf-8")
    declared = set(re.findall(r"^(?:def|class) (\w+)|^(\w+): int", stub, flags=re.MULTILINE))
    names = {a or b for a, b in declared}
    assert names == {n for n in vars(_kernel) if not n.startswith("__")}
    for kind in ("Table", "TableParts", "Prober", "BlockEncoder"):
        body = stub.split(f"class {kind}:")[1].split("\nclass ")[0]
        members = set(re.findall(r"    def (\w+)", body)) - {"__init__"}
        assert members == {n for n in vars(getattr(_kernel, kind)) if not n.startswith("_")}
