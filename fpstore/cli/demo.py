"""``fpstore demo``."""

from __future__ import annotations

import shlex
import sysconfig
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

import fpstore
from fpstore.cli.build import build
from fpstore.cli.care import stats
from fpstore.cli.jobs import cluster
from fpstore.cli.options import option
from fpstore.cli.output import format_ids, print_table
from fpstore.cli.questions import probe
from fpstore.cli.verb import Arguments, verb
from fpstore.errors import StorageError, StoreExistsError

MODULES = "*.py"
_LEFT_OUT = {"test", "tests", "site-packages", "dist-packages"}
_SHOWN_FAMILIES = 10
_SHOWN_PATHS = 6


@verb(
    option(
        "--keep DIR",
        "Write to the folder DIR and keep it. By default, a temporary folder is used and removed.",
    )
)
def demo(args: Arguments) -> None:
    """Try fpstore on the source files of Python.

    Builds a store in a temporary folder and prints each command as it runs, the families that it
    finds (such as code pages of the package encodings), and the sizes. Takes a few seconds and
    needs no network.

    $ fpstore demo
    $ fpstore demo --keep python-demo
    """
    library, packages = python_sources()
    example = "encodings/cp1254.py"  # has near-duplicates, if this Python has it
    with ExitStack() as stack:
        folder = Path(
            args.keep or stack.enter_context(TemporaryDirectory(prefix="fpstore-demo-"))
        ).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise StoreExistsError(
                f"{args.keep} exists and is not empty: choose another folder", path=folder
            )
        stack.enter_context(chdir(library))
        store, clusters = str(folder / "python.fps"), str(folder / "clusters.tsv")
        click.echo("The source files of this Python as documents, 64 bits per document:\n")
        _show("cd", str(library))
        _run(build, [store, "--text", "--suffix", ".py", MODULES, *packages])
        click.echo("\nFiles near one of them. Query, fingerprint, distance, id:\n")
        _run(probe, [store, example if Path(example).is_file() else f"{packages[0]}/__init__.py"])
        click.echo("\nAll families of near-duplicates:\n")
        _run(cluster, [store, "--output", clusters])
        with fpstore.open(store) as opened:
            print_families(opened.clusters())
        click.echo("\nSizes:\n")
        _run(stats, [store])
    click.echo(
        f"\nKept in {args.keep}."
        if args.keep
        else "\nThe folder is removed; fpstore demo --keep DIR keeps it."
    )


def _run(command: click.Command, arguments: Sequence[str]) -> None:
    """Print a command and run it as a shell would."""
    _show("fpstore", str(command.name), *arguments)
    expanded: list[str] = []
    for argument in arguments:
        expanded += sorted(map(str, Path().glob(MODULES))) if argument == MODULES else [argument]
    with command.make_context(f"fpstore {command.name}", expanded) as ctx:
        command.invoke(ctx)


def _show(*words: str) -> None:
    click.echo("$ " + " ".join(word if word == MODULES else shlex.quote(word) for word in words))


def print_families(clusters: Iterable[list[Any]]) -> None:
    """Print the documents of each cluster, sorted, the largest cluster first."""
    families = sorted(map(sorted, clusters), key=lambda ids: (-len(ids), ids))
    noun = "family" if len(families) == 1 else "families"
    rows = [(str(len(ids)), format_ids(ids, _SHOWN_PATHS)) for ids in families[:_SHOWN_FAMILIES]]
    print_table(
        f"\n{len(families)} {noun} of near-duplicates", ("files", ""), rows, text_columns=(1,)
    )
    if len(families) > _SHOWN_FAMILIES:
        click.echo(f"and {len(families) - _SHOWN_FAMILIES} more")


def python_sources() -> tuple[Path, list[str]]:
    """Return the folder of the standard library, and its packages without tests."""
    library = Path(sysconfig.get_path("stdlib"))
    entries = sorted(library.iterdir()) if library.is_dir() else []
    packages = [
        path.name
        for path in entries
        if path.name not in _LEFT_OUT and (path / "__init__.py").is_file()
    ]
    if not packages or not any(library.glob(MODULES)):
        raise StorageError(
            f"{library}: this Python comes without its source files, which the demo needs",
            path=library,
        )
    return library, packages
