"""``fpstore stats``."""

from __future__ import annotations

from typing import Any

import click

from fpstore.base.resources import shown_size
from fpstore.cli.options import json_option, store_argument
from fpstore.cli.output import print_json, print_table, shown
from fpstore.cli.verb import Verb
from fpstore.errors import counted

_PARTS = {
    "tables": "tables",
    "keys": "tables: keys only",
    "filters": "filters",
    "ids": "ids",
    "strings": "strings",
    "id_index": "index by id",
    "metadata": "metadata",
    "delta": "delta",
    "total": "total",
}

_ONE = {"blocks": "One table takes", "copies": "One table takes", "rows": "The rows take"}


@click.command(cls=Verb)
@store_argument
@json_option
@click.option("--full", is_flag=True, help="Also read the whole first table, to show codes, fill of the blocks, and skew.")
@click.option("--prometheus", is_flag=True, help="Print metrics in the text format of Prometheus.")
def stats(store: str, as_json: bool, full: bool, prometheus: bool) -> None:
    """Show the contents and the sizes of a store.

    $ fpstore stats crawl.fps
    $ fpstore stats crawl.fps --full --json
    $ fpstore stats crawl.fps --prometheus
    """
    if prometheus and (as_json or full):
        raise click.UsageError("--prometheus cannot be combined with --json or --full")
    import fpstore
    from fpstore.care.stats import distribution

    with fpstore.open(store) as opened:
        found = opened.stats()
        if full:
            found["distribution"] = distribution(opened.snapshot().generation.tables[0])
    if prometheus:
        _print_metrics(store, found)
        return
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
        from fpstore.hashing.registry import in_words

        made = in_words(made)
    rows = [
        ("fingerprints", f"{found['fingerprints']:,}"),
        ("ids", f"{found['ids']:,} ({found['id_kind']})"),
        ("width", f"{found['width']} bits"),
        ("radius", str(found["radius"])),
        ("design", found["design"]["name"]),
        *_blocks(found),
        ("fingerprinter", made or "unknown"),
        ("generation", str(found["generation"])),
        (
            "delta",
            f"{counted(found['delta']['changes'], 'change')}, {shown_size(found['delta']['memory'])} of memory in each process",
        ),
        ("format version", str(found["format_version"])),
    ]
    if found["merge_error"]:
        rows.append(("last merge failed", found["merge_error"]))
    print_table(shown(store), ("", ""), rows, left=(0, 1))


def _blocks(found: dict[str, Any]) -> list[tuple[str, str]]:
    if not _has_blocks(found):
        return []
    wanted = {True: "all that save time", False: "none"}.get(found["filter"], "those that pay for their bytes")
    return [("block", f"{found['block_bytes']} bytes, {found['codec']}"), ("filters", wanted)]


def _has_blocks(found: dict[str, Any]) -> bool:
    return bool(found["design"]["tables"][0]["kind"] == "blocks")


def _print_bytes(found: dict[str, Any]) -> None:
    from fpstore.care.stats import TELLING

    n = found["fingerprints"]
    taken = found["bytes"]
    columns = ("part", "bytes", "", "bytes/fingerprint") if n >= TELLING else ("part", "bytes", "")
    rows = [
        (name, f"{taken[key]:,}", shown_size(taken[key]), f"{taken[key] / max(n, 1):.2f}")[: len(columns)]
        for key, name in _PARTS.items()
        if key in taken
    ]
    print_table("\nSize", columns, rows)
    if found["ratio_to_limit"] is not None:
        click.echo(
            f"{_ONE[found['design']['tables'][0]['kind']]} {found['bits_per_fingerprint']:.2f} bits per fingerprint: "
            f"{found['ratio_to_limit']:.3f} x the limit for any set of this size "
            f"({found['limit_bits_per_fingerprint']:.2f}), {found['ratio_to_raw']:.3f} x raw."
        )


def _print_design(found: dict[str, Any]) -> None:
    tables = list(enumerate(found["design"]["tables"]))
    if _has_blocks(found):
        rows = [
            (str(n), str(t["prefix_bits"]), str(t["flips"]), str(t["lookups"]), str(t["filter_bits"] or "")) for n, t in tables
        ]
        print_table("\nTables", ("table", "prefix bits", "flips", "look-ups per probe", "filter bits"), rows)
        return
    columns = ("table", "bucket bits", "flips", "look-ups per probe", "kind")
    print_table("\nTables", columns, [(str(number), *_of_columns(table), table["kind"]) for number, table in tables], left=(4,))


def _of_columns(table: dict[str, Any]) -> tuple[str, str, str]:
    if table["flips"] < 0 or table["kind"] == "rows":  # it is not looked up
        return "" if table["kind"] == "rows" else str(table["prefix_bits"]), "", "0"
    return str(table["prefix_bits"]), str(table["flips"]), str(table["lookups"])


def _print_distribution(found: dict[str, Any]) -> None:
    if not found["skew"]["largest"]:
        click.echo("\nThe first table is empty.")
        return
    if "buckets" in found:
        _print_buckets(found)
    else:
        _print_blocks(found)
    skew = found["skew"]
    print_table(
        f"\nLargest runs with the same {skew['prefix_bits']} leading bits, of {skew['distinct_prefixes']:,}",
        ("prefix", "fingerprints"),
        [(run["prefix"], f"{run['fingerprints']:,}") for run in skew["largest"]],
    )


def _print_buckets(found: dict[str, Any]) -> None:
    entries = found["entries_per_bucket"]
    rows = [
        ("buckets", f"{found['buckets']:,}"),
        ("empty", f"{found['empty_buckets']:,}"),
        ("fingerprints per bucket", f"{entries['least']} to {entries['most']}, mean {entries['mean']:.1f}"),
    ]
    print_table("\nBuckets of the first table", ("", ""), rows, left=(0, 1))


def _print_blocks(found: dict[str, Any]) -> None:
    pairs = sum(found["h"].values())
    coded = found["code_bits"] is not None
    if pairs and coded:
        mean = f"{found['mean_code_bits']:.2f}"
        print_table(
            f"\nFirst differing bit h of neighbours in the first table (mean code {mean} bits)",
            ("h", "pairs", "share", "code bits"),
            [(str(h), f"{number:,}", f"{number / pairs:.2%}", str(found["code_bits"][h])) for h, number in found["h"].items()],
        )
    entries = found["entries_per_block"]
    print_table(
        "\nBlocks of the first table",
        ("", ""),
        [
            ("blocks", f"{found['blocks']:,}"),
            ("fingerprints per block", f"{entries['least']} to {entries['most']}, mean {entries['mean']:.1f}"),
            *([("fill", f"{found['fill']:.1%}")] if coded else []),
        ],
        left=(0, 1),
    )


def _print_metrics(store: str, found: dict[str, Any]) -> None:
    """Print gauges in Prometheus' text format, version 0.0.4."""
    label = store.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    for name, meaning, value in _metrics(found):
        parts = value if isinstance(value, dict) else {"": value}
        click.echo(f"# HELP fpstore_{name} {meaning}\n# TYPE fpstore_{name} gauge")
        for part, number in parts.items():
            extra = f',part="{part}"' if part else ""
            click.echo(f'fpstore_{name}{{store="{label}"{extra}}} {number}')


def _metrics(found: dict[str, Any]) -> list[tuple[str, str, Any]]:
    parts = {part: taken for part, taken in found["bytes"].items() if part not in ("total", "keys")}
    return [
        ("fingerprints", "Distinct fingerprints stored.", found["fingerprints"]),
        ("ids", "Pairs of fingerprint and id stored.", found["ids"]),
        ("bytes", "Bytes on disk by part.", parts),
        ("generation", "Number of the current generation.", found["generation"]),
        ("generation_timestamp_seconds", "When the current generation was published.", found["generation_since"]),
        ("delta_changes", "Changes since the last merge.", found["delta"]["changes"]),
        ("delta_memory_bytes", "Memory that the changes take in each process.", found["delta"]["memory"]),
        ("log_records", "Records in the log.", found["log"]["records"]),
        ("log_bytes", "Bytes of the log, with the space made ahead.", found["log"]["bytes"]),
        ("merge_failed", "1 if the last merge failed.", int(found["merge_error"] is not None)),
    ]
