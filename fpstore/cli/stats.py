"""``fpstore stats``."""

from __future__ import annotations

from typing import Any

import click

from fpstore.cli.options import json_option, store_argument
from fpstore.cli.output import print_json, print_table, shown, size
from fpstore.cli.verb import Verb

_PARTS = {
    "tables": "tables",
    "keys": "of which keys",
    "ids": "ids",
    "metadata": "metadata",
    "delta": "delta",
    "total": "total",
}


@click.command(cls=Verb)
@store_argument
@json_option
@click.option("--full", is_flag=True, help="Also read the whole first table: codes, fill of the blocks, skew.")
def stats(store: str, as_json: bool, full: bool) -> None:
    """Show what a store holds and what it takes.

    $ fpstore stats crawl.fps
    $ fpstore stats crawl.fps --full --json
    """
    import fpstore
    from fpstore.care.stats import distribution
    from fpstore.format.manifest import generation_folder
    from fpstore.format.table import TableReader, table_name

    with fpstore.open(store) as opened:
        found = opened.stats()
        if full:
            folder = opened.path / generation_folder(found["generation"])
            found["distribution"] = distribution(TableReader(folder / table_name(0)))
    if as_json:
        print_json(found)
        return
    _print_store(store, found)
    _print_bytes(found)
    _print_design(found)
    if full:
        _print_distribution(found["distribution"])


def _print_store(store: str, found: dict[str, Any]) -> None:
    made = found["fingerprinter"]
    if made is not None:
        parameters = ", ".join(f"{name}={value}" for name, value in made.get("parameters", {}).items())
        made = f"{made['name']} {made.get('version', '')} ({parameters})"
    rows = [
        ("fingerprints", f"{found['fingerprints']:,}"),
        ("ids", f"{found['ids']:,} ({found['id_kind']})"),
        ("radius", str(found["radius"])),
        ("design", found["design"]["name"]),
        ("block", f"{found['block_bytes']} bytes"),
        ("made by", made or "unknown"),
        ("generation", str(found["generation"])),
        ("changes since", f"{found['delta']['changes']:,}, {size(found['delta']['memory'])} of memory in each process"),
        ("format version", str(found["format_version"])),
    ]
    print_table(shown(store), ("", ""), rows, left=(0, 1))


def _print_bytes(found: dict[str, Any]) -> None:
    from fpstore.care.stats import TELLING

    n = found["fingerprints"]
    taken = found["bytes"]
    columns = ("part", "bytes", "", "bytes/fingerprint") if n >= TELLING else ("part", "bytes", "")
    rows = [
        (name, f"{taken[key]:,}", size(taken[key]), f"{taken[key] / max(n, 1):.2f}")[: len(columns)]
        for key, name in _PARTS.items()
        if key in taken
    ]
    print_table("\nSize", columns, rows)
    if found["ratio_to_limit"] is not None:
        click.echo(
            f"One table takes {found['bits_per_fingerprint']:.2f} bits per fingerprint: "
            f"{found['ratio_to_limit']:.3f} x the limit for any set of this size "
            f"({found['limit_bits_per_fingerprint']:.2f}), {found['ratio_to_raw']:.3f} x raw."
        )


def _print_design(found: dict[str, Any]) -> None:
    print_table(
        "\nTables",
        ("table", "prefix bits", "flips", "look-ups a probe"),
        [
            (str(number), str(table["prefix_bits"]), str(table["flips"]), str(table["lookups"]))
            for number, table in enumerate(found["design"]["tables"])
        ],
    )


def _print_distribution(found: dict[str, Any]) -> None:
    if not found["blocks"]:
        click.echo("\nThe first table is empty.")
        return
    pairs = sum(found["h"].values())
    mean = f"{found['mean_code_bits']:.2f}"
    if pairs:
        print_table(
            f"\nFirst differing bit h of neighbours in the first table (mean code {mean} bits)",
            ("h", "pairs", "share", "code bits"),
            [(str(h), f"{number:,}", f"{number / pairs:.2%}", str(found["code_bits"][h])) for h, number in found["h"].items()],
        )
    entries, skew = found["entries_per_block"], found["skew"]
    print_table(
        "\nBlocks of the first table",
        ("", ""),
        [
            ("blocks", f"{found['blocks']:,}"),
            ("fingerprints a block", f"{entries['least']} to {entries['most']}, mean {entries['mean']:.1f}"),
            ("fill", f"{found['fill']:.1%}"),
        ],
        left=(0, 1),
    )
    print_table(
        f"\nLargest runs with the same {skew['prefix_bits']} leading bits, of {skew['distinct_prefixes']:,}",
        ("prefix", "fingerprints"),
        [(run["prefix"], f"{run['fingerprints']:,}") for run in skew["largest"]],
    )
