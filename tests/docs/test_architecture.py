"""The shape of the package.

Imports point down only, heavy things are imported where used, files stay small.
"""

import ast
import inspect
import re
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from layers import LAYERS

import fpstore

ROOT = Path(__file__).parents[2] / "fpstore"
SOURCES = sorted(ROOT.rglob("*.py"))
NATIVE = sorted(p for p in (ROOT / "_native").rglob("*") if p.is_file())

LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}

# Where each of these may be imported from: paths relative to the package.
OWNERS = {
    "zstandard": ("io/files.py", "building/strings.py", "format/strings.py"),
    "bitarray": ("format/huffman.py",),
    "lxml": ("hashing/page_text.py",),
    "click": ("cli/",),
    "rich": ("cli/",),
    "jinja2": ("pages/",),
    "pyarrow": (
        "io/arrow.py",
        "io/remote.py",
        "io/tables.py",
        "work/places.py",
    ),
    "pandas": ("io/tables.py",),
    "polars": ("io/tables.py",),
    "PIL": (
        "hashing/decoding.py",
        "hashing/image.py",
        "calibration/pictures.py",
        "calibration/image_changes.py",
    ),
    "imagehash": ("hashing/image.py",),
    "pdqhash": ("hashing/image.py",),
    "jieba": ("hashing/features.py",),
    "opencc": ("hashing/chinese.py",),
    "fsspec": ("io/remote.py",),
    "typing_extensions": ("base/aliases.py",),
    "regex": ("hashing/features.py",),
    "trafilatura": ("hashing/page_text.py",),
    "ada_url": ("io/urls.py",),
    "resiliparse": ("hashing/page_text.py",),
    "ray": ("ray.py",),
    "ctypes": ("disk/folders.py", "plans/api.py"),
    "msgspec": ("cli/serve.py", "service/"),
    "prometheus_client": ("cli/serve.py", "service/"),
    "starlette": ("cli/serve.py", "service/"),
    "threatexchange": ("adapters/threatexchange.py", "adapters/vpdq.py"),
    "datasketch": ("adapters/datasketch.py",),
    "uvicorn": ("cli/serve.py", "service/"),
    "mmap": (
        "disk/mapped.py",
        *(f"format/{name}.py" for name in ("column_table", "filter", "log", "log_writer", "table")),
    ),
    "xxhash": (
        "disk/folders.py",
        "format/",
        "hashing/base.py",
        "io/keys.py",
        "jobs/boilerplate.py",
    ),
}
DEPENDENCIES = {"bitarray", "click", "jinja2", "numpy", "rich", "xxhash", "zstandard"}
OF_TYPE_CHECKERS = {"typing_extensions"}  # which they bring: nothing runs it
EXTRAS = {
    *(
        "pyarrow",
        "pandas",
        "polars",
        "PIL",
        "imagehash",
        "pdqhash",
        "jieba",
        "fsspec",
        "lxml",
        "opencc",
        "ray",
        "regex",
        "resiliparse",
        "trafilatura",
        "ada_url",
        "msgspec",
        "prometheus_client",
        "starlette",
        "uvicorn",
    ),
    # what a user of an adapter has
    *("datasketch", "threatexchange"),
}


def relative(path):
    return path.relative_to(ROOT).as_posix()


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(["fpstore", *parts]).removesuffix(".__init__")


MODULES = {module_name(path) for path in SOURCES} | {"fpstore._kernel"}


@cache
def parsed(path):
    return ast.parse(path.read_text())


@cache
def imports(path):
    """Return (module, line, at module level) of each import.

    ``from package import module`` counts as an import of the module.
    """
    return list(imports_of(path))


def imports_of(path):
    tree = parsed(path)
    top = set(map(id, tree.body))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, id(node) in top
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{relative(path)}:{node.lineno}: relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield (full if full in MODULES else node.module), node.lineno, id(node) in top
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "import_package"
        ):
            yield ast.literal_eval(node.args[0]), node.lineno, False


def unit(module):
    """Name the layer member that a module of the package belongs to."""
    return module.split(".")[1] if "." in module else "__init__"


def is_own(module):
    return module == "fpstore" or module.startswith("fpstore.")


# --- Imports --------------------------------------------------------------------------------------


def test_imports_point_down():
    assert {unit(module) for module in MODULES} == set(LEVEL)
    for path in SOURCES:
        own = unit(module_name(path))
        for module, line, _ in imports(path):
            if is_own(module) and unit(module) != own:
                assert LEVEL[unit(module)] < LEVEL[own], f"{relative(path)}:{line} imports {module}"
    assert imports(ROOT / "errors.py") == []


def test_packages_have_no_cycles():
    graph = {
        module_name(path): {
            m for m, _, _ in imports(path) if is_own(m) and unit(m) == unit(module_name(path))
        }
        for path in SOURCES
    }
    while graph:
        free = [module for module, needs in graph.items() if not needs & (set(graph) - {module})]
        assert free, f"a cycle among {sorted(graph)}"
        for module in free:
            del graph[module]


def test_outside_imports_are_known_and_in_their_place():
    for path in SOURCES:
        for module, line, at_top in imports(path):
            name = module.split(".")[0]
            if is_own(module) or (name in sys.stdlib_module_names and name not in OWNERS):
                continue
            where = f"{relative(path)}:{line} imports {name}"
            assert name in OWNERS or name == "numpy", where
            assert (
                name in DEPENDENCIES | EXTRAS | OF_TYPE_CHECKERS or name in sys.stdlib_module_names
            ), where
            assert relative(path).startswith(OWNERS.get(name, "")), where
            # the verb that needs them imports the modules of the service; a user, an adapter
            at_top = at_top and not relative(path).startswith(("adapters/", "service/"))
            assert not (at_top and name in EXTRAS | OF_TYPE_CHECKERS), (
                f"{where} before it is needed"
            )


def test_the_package_only_re_exports():
    """At once, or when a name is first used."""
    tree = ast.parse((ROOT / "__init__.py").read_text())
    later = set()
    for node in tree.body[1:]:
        if isinstance(node, ast.Assign):
            assert [target.id for target in node.targets] in (
                ["__version__"],
                ["__all__"],
                ["_DEFERRED"],
            )
            ast.literal_eval(node.value)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            later |= {
                (own.module.removeprefix("fpstore."), alias.name)
                for own in node.body
                for alias in own.names
            }
        elif isinstance(node, ast.If):
            assert [own.name for own in node.body] == ["__getattr__", "__dir__"]
        else:
            assert isinstance(node, ast.ImportFrom), f"line {node.lineno} runs something"
    assert isinstance(tree.body[0], ast.Expr)
    modules = {name for module, name in later if module == "fpstore"}
    assert all(inspect.ismodule(getattr(fpstore, name)) for name in modules)
    later -= {("fpstore", name) for name in modules}
    assert later == {
        (module, name) for module, names in fpstore._DEFERRED.items() for name in names
    }
    with pytest.raises(AttributeError, match="'fpstore' has no attribute 'Stores'"):
        fpstore.Stores  # noqa: B018
    assert set(fpstore.__all__) <= set(dir(fpstore))


# Modules that cost milliseconds and that opening and probing a store do not need.
HEAVY = {
    *(
        "click",
        "rich",
        "jinja2",
        "pyarrow",
        "pandas",
        "PIL",
        "imagehash",
        "pdqhash",
        "jieba",
        "resiliparse",
    ),
    *(
        "trafilatura",
        "bitarray",
        "multiprocessing",
        "asyncio",
        "unittest",
        "concurrent.futures",
        "logging",
    ),
    *("shutil", "lzma", "bz2", "csv", "secrets", "random", "hashlib", "importlib.metadata"),
    *(
        "fpstore.care",
        "fpstore.jobs",
        "fpstore.hashing",
        "fpstore.building",
        "fpstore.change",
        "fpstore.cli",
    ),
    *(
        "fpstore.design.planner",
        "fpstore.design.joins",
        "fpstore.io.source",
        "fpstore.io.reader",
        "fpstore.io.writers",
    ),
}


@pytest.mark.full
def test_opening_and_probing_load_nothing_heavy(tmp_path):
    """Masked arrays of NumPy take longer to load than a batch takes; threads take 3 ms more."""
    path = tmp_path / "s"
    fpstore.build(path, [1, 2, 3], ["a", "b", "c"]).close()
    np.save(tmp_path / "rows.npy", np.ones(5000, np.uint64))
    code = "import sys, numpy\nbefore = set(sys.modules)\nimport fpstore\n"
    code += f"rows = numpy.load({str(tmp_path / 'rows.npy')!r}, mmap_mode='r')\n"
    code += f"with fpstore.open({str(path)!r}) as store:\n"
    code += "    assert store.probe_many(rows, threads=1).read_ids()[1]\n"
    code += "print(*set(sys.modules) - before)"
    loaded = set(
        subprocess.run(
            [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
    )
    assert "fpstore.store" in loaded
    assert loaded & {*HEAVY, "numpy.ma", "fpstore.lsh", "fpstore.sharded"} == set()


def test_arrow_columns_are_read_without_pandas(tmp_path):
    """Some functions of pyarrow import pandas, for .25 seconds."""
    assert find_spec("pandas")
    n = 60
    texts = [None if i == 7 else f"one of {i // 2} texts with a few words" for i in range(n)]
    table = pa.table({"id": [f"u{i}" for i in range(n)], "score": pa.array([*range(n)])})
    table = table.append_column("text", pa.array(texts).dictionary_encode())
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=20)
    code = "import sys, fpstore\n"
    code += "fpstore.dedup('a.parquet', 'b.parquet', text='text', id='id', score='score')\n"
    code += "print('pandas' in sys.modules)"
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "False\n"


# --- Sources --------------------------------------------------------------------------------------


def test_the_list_of_sources_names_every_file_of_the_kernel():
    lines = (ROOT / "_native" / "sources.txt").read_text().splitlines()
    listed = [line.split()[1] for line in lines if line[:1] not in ("", "#")]
    files = [
        p.relative_to(ROOT / "_native").as_posix()
        for p in NATIVE
        if p.suffix == ".cpp" and p.parent.name != "python"
    ]
    assert sorted(listed) == sorted(files)


def test_ci_runs_every_fuzz_target():
    lines = (ROOT.parent / ".ci" / "run").read_text().splitlines()
    assert "tools/fuzz/run 2000" in map(str.strip, lines)  # no target named: all of them


def test_nothing_is_decided_by_a_clock():
    """Slowness must not change what is done.

    A clock may be named only where people are told how long something took, where a commit waits
    for others to join it, where one process waits for another, and where requests are timed.
    """
    clock = re.compile(
        r"\b(chrono|clock_gettime|clock|gettimeofday|rdtsc\w*|monotonic|perf_counter|time_ns|process_time|thread_time)\b|time\.time\b"
    )
    assert [path.name for path in NATIVE if clock.search(path.read_text())] == []
    using = {relative(path) for path in SOURCES if clock.search(path.read_text())}
    assert using == {"cli/verb.py", "cli/signals.py", "change/committer.py", "service/metrics.py"}


def test_only_the_binding_knows_python():
    knowing = [
        p.name for p in NATIVE if "nanobind/" in p.read_text() or "Python.h" in p.read_text()
    ]
    assert knowing == ["gil.hpp", "module.hpp"]
    including = {relative(p.parent) for p in NATIVE if '"python/module.hpp"' in p.read_text()}
    assert including == {"_native/python"}


def test_one_helper_fetches_lines():
    """GCC leaves out calls of functions that only prefetch, and look-ups wait for memory."""
    fetching = [
        p.relative_to(ROOT).as_posix()
        for p in NATIVE
        if "__builtin_prefetch" in p.read_text(encoding="utf-8")
    ]
    assert fetching == ["_native/format/common.hpp"]


# --- Public names ---------------------------------------------------------------------------------


def test_all_is_sorted_and_true():
    assert sorted(fpstore.__all__) == fpstore.__all__
    assert len(set(fpstore.__all__)) == len(fpstore.__all__)
    public = {
        name
        for name in dir(fpstore)
        if not name.startswith("_")
        and not inspect.ismodule(getattr(fpstore, name))
        and name != "TYPE_CHECKING"
    }
    assert public == set(fpstore.__all__)
    assert (Path(fpstore.__file__).parent / "py.typed").exists()


def test_all_errors_are_public_and_of_one_family():
    from fpstore import errors

    defined = {name for name, value in vars(errors).items() if isinstance(value, type)}
    assert defined <= set(fpstore.__all__)
    assert all(
        issubclass(getattr(errors, name), fpstore.FpstoreError)
        for name in defined - {"ScanWarning"}
    )
    assert issubclass(fpstore.ScanWarning, UserWarning)
