"""``fpstore demo``."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import sysconfig
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from fpstore.cli.build import build
from fpstore.cli.care import stats
from fpstore.cli.jobs import cluster
from fpstore.cli.options import option
from fpstore.cli.output import print_table, some_ids
from fpstore.cli.questions import probe
from fpstore.cli.verb import Given, verb
from fpstore.errors import StorageError, StoreExistsError

MODULES = "*.py"
_LEFT_OUT = {"test", "tests", "site-packages", "dist-packages"}
_SHOWN_FAMILIES = 10
_SHOWN_PATHS = 6


@verb(option("--keep DIR", "Write to the folder DIR and keep it. By default, a temporary folder is used and removed."))
def demo(given: Given) -> None:
    """Try fpstore on the source files of Python.

    Builds a store in a temporary folder and prints each command as it runs, the families that it finds (such as
    code pages of the package encodings), and the sizes. Takes a few seconds and needs no network.

    $ fpstore demo
    $ fpstore demo --keep python-demo
    """
    import fpstore

    keep = given.keep
    library, packages = python_sources()
    with contextlib.ExitStack() as stack:
        folder = _folder(keep, stack)
        stack.enter_context(contextlib.chdir(library))
        store, clusters = str(folder / "python.fps"), str(folder / "clusters.tsv")
        click.echo("The source files of this Python as documents, 64 bits per document:\n")
        _show("cd", str(library))
        options = ["--text", "--suffix", ".py"]
        _run(build, [store, *options, MODULES, *packages])
        click.echo("\nFiles near one of them. Query, fingerprint, distance, id:\n")
        _run(probe, [store, _example(packages)])
        click.echo("\nAll families of near-duplicates:\n")
        _run(cluster, [store, "--output", clusters])
        with fpstore.open(store) as opened:
            print_families(opened.clusters())
        click.echo("\nSizes:\n")
        _run(stats, [store])
    click.echo(f"\nKept in {keep}." if keep else "\nThe folder is removed; fpstore demo --keep DIR keeps it.")


def _folder(keep: str | None, stack: contextlib.ExitStack) -> Path:
    """Return a folder for the store: the one to keep, or a temporary one that the stack removes."""
    if keep is None:
        folder = Path(tempfile.mkdtemp(prefix="fpstore-demo-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        return folder
    folder = Path(keep).absolute()
    if folder.is_dir() and any(folder.iterdir()):
        raise StoreExistsError(f"{keep} exists and is not empty: choose another folder", path=folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{keep}: {error.strerror}", path=folder) from error
    return folder


def _run(command: click.Command, arguments: Sequence[str]) -> None:
    """Print a command and run it as the shell would, with the names of modules in place of the pattern."""
    assert command.name is not None
    _show("fpstore", command.name, *arguments)
    expanded: list[str] = []
    for argument in arguments:
        expanded += sorted(map(str, Path().glob(MODULES))) if argument == MODULES else [argument]
    with command.make_context(f"fpstore {command.name}", expanded) as ctx:
        command.invoke(ctx)


def _show(*words: str) -> None:
    click.echo("$ " + " ".join(word if word == MODULES else shlex.quote(word) for word in words))


def _example(packages: Sequence[str]) -> str:
    """Return a file that has near-duplicates, or another file if this Python does not have it."""
    wanted = Path("encodings", "cp1254.py")
    return str(wanted if wanted.is_file() else Path(packages[0], "__init__.py"))


def print_families(clusters: Iterable[list[Any]]) -> None:
    """Print the documents of each cluster, sorted, the largest cluster first."""
    found = sorted(map(sorted, clusters), key=lambda ids: (-len(ids), ids))
    noun = "family" if len(found) == 1 else "families"
    rows = [(str(len(ids)), some_ids(ids, _SHOWN_PATHS)) for ids in found[:_SHOWN_FAMILIES]]
    print_table(f"\n{len(found)} {noun} of near-duplicates", ("files", ""), rows, left=(1,))
    if len(found) > _SHOWN_FAMILIES:
        click.echo(f"and {len(found) - _SHOWN_FAMILIES} more")


def python_sources() -> tuple[Path, list[str]]:
    """Return the folder of the standard library, and the packages in it with source files, without tests.

    Raises
    ------
    StorageError
        This Python has no source files: they are in an archive or were removed.
    """
    library = Path(sysconfig.get_path("stdlib"))
    entries = sorted(library.iterdir()) if library.is_dir() else []
    packages = [path.name for path in entries if path.name not in _LEFT_OUT and (path / "__init__.py").is_file()]
    if not packages or not any(library.glob(MODULES)):
        raise StorageError(f"{library}: this Python comes without its source files, which the demo needs", path=library)
    return library, packages
