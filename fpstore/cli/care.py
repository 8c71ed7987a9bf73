"""The verbs that take care of a store.

``stats``, ``report``, ``verify``, ``repair``, ``backup`` and ``export``.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import numpy as np

import fpstore
from fpstore.api import open_store
from fpstore.base.arguments import check_path, printable
from fpstore.base.resources import format_size
from fpstore.base.width import Width
from fpstore.care.stats import describe as described
from fpstore.care.stats import distribution
from fpstore.cli import options
from fpstore.cli.options import argument, option, output_option
from fpstore.cli.output import (
    print_error,
    print_facts,
    print_json,
    print_table,
    summary,
    write_page,
)
from fpstore.cli.verb import (
    Arguments,
    fail,
    index_module,
    output_guess,
    translate_usage_errors,
    verb,
)
from fpstore.design.estimates import MIN_FINGERPRINTS_FOR_BYTES
from fpstore.design.families import check_radius
from fpstore.errors import plural
from fpstore.format.manifest import is_index, is_openable, is_sharded, looks_like_store
from fpstore.hashing.registry import readable_description
from fpstore.io import open_writer
from fpstore.io.reader import check_format
from fpstore.io.source import FORMATS
from fpstore.store import store_snapshot

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


@verb(
    options.STORE,
    options.JSON,
    option(
        "--full", "Also read the whole first table, to show codes, fill of the blocks, and skew."
    ),
    option("--prometheus", "Print metrics in the text format of Prometheus."),
)
def stats(args: Arguments) -> None:
    """Show the contents and sizes of a store or index.

    $ fpstore stats crawl.fps
    $ fpstore stats crawl.fps --full --json
    $ fpstore stats crawl.fps --prometheus
    $ fpstore stats pages.lsh
    """
    if index := index_module(args):
        index.stats(args)
        return
    if args.prometheus and (args.as_json or args.full):
        fail("--prometheus cannot be combined with --json or --full")
    with open_store(args.store) as opened:
        facts = opened.stats()
        if args.full:
            _refuse_sharded(args, opened, "--full")
            facts["distribution"] = distribution(store_snapshot(opened).generation.tables[0])
    if args.prometheus:
        _print_metrics(args.store, facts)
    elif args.as_json:
        print_json(facts)
    else:
        _print_store(args.store, facts)
        _print_bytes(facts)
        _print_design(facts)
        if args.full:
            _print_distribution(facts["distribution"])


def _refuse_sharded(args: Arguments, store: fpstore.Store, option_name: str) -> None:
    if is_sharded(store.path):
        fail(
            f"{args.store}: {option_name} is for one store, not for a sharded one: name one of "
            "its shards"
        )


def _print_store(store: str, stats: dict[str, Any]) -> None:
    fingerprinter, delta, of_blocks = stats["fingerprinter"], stats["delta"], {}
    if _has_blocks(stats):
        filters = {True: "all that save time", False: "none"}.get(
            stats["filter"], "those that pay for their bytes"
        )
        of_blocks = {"block": f"{stats['block_bytes']} bytes, {stats['codec']}", "filters": filters}
    facts = {
        "fingerprints": f"{stats['fingerprints']:,}",
        "ids": f"{stats['ids']:,} ({stats['id_kind']})",
        **({"shards": f"{stats['shards']:,}"} if "shards" in stats else {}),
        "width": f"{stats['width']} bits",
        "radius": str(stats["radius"]),
        "design": stats["design"]["name"],
        **of_blocks,
        "fingerprinter": "unknown"
        if fingerprinter is None
        else readable_description(fingerprinter),
        "generation": str(stats["generation"]),
        "delta": f"{plural(delta['changes'], 'change')}, {format_size(delta['memory'])} of memory "
        "in each process",
        "format version": str(stats["format_version"]),
        **({"last merge failed": stats["merge_error"]} if stats["merge_error"] else {}),
    }
    print_facts(printable(store), facts.items())


def _has_blocks(stats: dict[str, Any]) -> bool:
    return bool(stats["design"]["tables"][0]["kind"] == "blocks")


def _print_bytes(stats: dict[str, Any]) -> None:
    n, sizes = stats["fingerprints"], stats["bytes"]
    columns = ("part", "bytes", "", "bytes/fingerprint")[
        : 4 if n >= MIN_FINGERPRINTS_FOR_BYTES else 3
    ]
    rows = [
        (name, f"{sizes[key]:,}", format_size(sizes[key]), f"{sizes[key] / max(n, 1):.2f}")[
            : len(columns)
        ]
        for key, name in _PARTS.items()
        if key in sizes
    ]
    print_table("\nSize", columns, rows)
    if stats["ratio_to_limit"] is not None:
        subject = (
            "The rows take" if stats["design"]["tables"][0]["kind"] == "rows" else "One table takes"
        )
        click.echo(
            f"{subject} {stats['bits_per_fingerprint']:.2f} bits per fingerprint: "
            f"{stats['ratio_to_limit']:.3f} x the limit for "
            f"any set of this size ({stats['limit_bits_per_fingerprint']:.2f}), "
            f"{stats['ratio_to_raw']:.3f} x raw."
        )


def _print_design(stats: dict[str, Any]) -> None:
    of_blocks, rows = _has_blocks(stats), []
    for number, table in enumerate(stats["design"]["tables"]):
        looked_up = table["kind"] != "rows" and (of_blocks or table["flips"] >= 0)
        prefix = "" if table["kind"] == "rows" else table["prefix_bits"]
        cells = (
            number,
            prefix,
            table["flips"] if looked_up else "",
            table["lookups"] if looked_up else 0,
        )
        rows.append(
            [*map(str, cells), str(table["filter_bits"] or "") if of_blocks else table["kind"]]
        )
    first, last = ("prefix bits", "filter bits") if of_blocks else ("bucket bits", "kind")
    print_table(
        "\nTables",
        ("table", first, "flips", "look-ups per probe", last),
        rows,
        text_columns=(0,) if of_blocks else (4,),
    )


def _print_distribution(distribution: dict[str, Any]) -> None:
    skew, bits, pairs = (
        distribution["skew"],
        distribution.get("code_bits"),
        sum(distribution.get("h", {}).values()),
    )
    if not skew["largest"]:
        click.echo("\nThe first table is empty.")
        return
    if pairs and bits is not None:
        print_table(
            "\nFirst differing bit h of neighbours in the first table (mean code "
            f"{distribution['mean_code_bits']:.2f} bits)",
            ("h", "pairs", "share", "code bits"),
            [
                (str(h), f"{number:,}", f"{number / pairs:.2%}", str(bits[h]))
                for h, number in distribution["h"].items()
            ],
        )
    part = "bucket" if "buckets" in distribution else "block"
    facts, entries = (
        {f"{part}s": f"{distribution[f'{part}s']:,}"},
        distribution[f"entries_per_{part}"],
    )
    if part == "bucket":
        facts["empty"] = f"{distribution['empty_buckets']:,}"
    facts[f"fingerprints per {part}"] = (
        f"{entries['least']} to {entries['most']}, mean {entries['mean']:.1f}"
    )
    if bits is not None:
        facts["fill"] = f"{distribution['fill']:.1%}"
    print_facts(f"\n{part.title()}s of the first table", facts.items())
    print_table(
        f"\nLargest runs with the same {skew['prefix_bits']} leading bits, of "
        f"{skew['distinct_prefixes']:,}",
        ("prefix", "fingerprints"),
        [(run["prefix"], f"{run['fingerprints']:,}") for run in skew["largest"]],
    )


def _print_metrics(store: str, stats: dict[str, Any]) -> None:
    """Print gauges in Prometheus' text format, version 0.0.4."""
    label = store.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    parts = {part: size for part, size in stats["bytes"].items() if part not in ("total", "keys")}
    for name, meaning, value in (
        ("fingerprints", "Distinct fingerprints stored.", stats["fingerprints"]),
        ("ids", "Pairs of fingerprint and id stored.", stats["ids"]),
        ("bytes", "Bytes on disk by part.", parts),
        ("generation", "Number of the current generation.", stats["generation"]),
        (
            "generation_timestamp_seconds",
            "When the current generation was published.",
            stats["generation_since"],
        ),
        ("delta_changes", "Changes since the last merge.", stats["delta"]["changes"]),
        (
            "delta_memory_bytes",
            "Memory that the changes take in each process.",
            stats["delta"]["memory"],
        ),
        ("log_records", "Records in the log.", stats["log"]["records"]),
        ("log_bytes", "Bytes of the log, with the space made ahead.", stats["log"]["bytes"]),
        ("merge_failed", "1 if the last merge failed.", int(stats["merge_error"] is not None)),
    ):
        click.echo(f"# HELP fpstore_{name} {meaning}\n# TYPE fpstore_{name} gauge")
        for part, number in (value if isinstance(value, dict) else {"": value}).items():
            extra = f',part="{part}"' if part else ""
            click.echo(f'fpstore_{name}{{store="{label}"{extra}}} {number}')


@verb(options.STORE, *options.RESULT)
def verify(args: Arguments) -> None:
    """Read every byte of a store or index.

    Checks checksums, order, counts, keys, codes, id records, the log, and that all tables hold the
    same set. In an LSH index, checks both stores, and that every document has keys. The exit
    code is 1 if something is wrong. Each fault is a line with the file and the block.

    $ fpstore verify crawl.fps
    $ fpstore verify crawl.fps --json
    $ fpstore verify crawl.fps --quiet
    $ fpstore verify pages.lsh
    """
    path, note = Path(args.store), ""
    try:
        with args.bars() as bars, fpstore.open(path) as opened:
            report = opened.verify(progress=bars)
    except (
        fpstore.CorruptStoreError,
        fpstore.FormatVersionError,
        fpstore.StoreNotFoundError,
    ) as error:
        if not (looks_like_store(path) or is_openable(path)):
            raise
        report = fpstore.Report()
        report.note(error)
        note = "; it cannot be opened, so the rest was not read"
    noun = "document" if is_index(path) else "fingerprint"
    repair = "fpstore repair of a shard" if is_sharded(path) else "fpstore repair"
    if args.as_json:
        names = ("ok", "tables", "blocks", "fingerprints", "ids", "faults")
        print_json({name: getattr(report, name) for name in names})
    else:
        for fault in report.faults:
            click.echo(printable(_describe_fault(fault)))
        if report.ok and not args.quiet:
            parts = (
                plural(report.tables, "table"),
                plural(report.blocks, "block"),
                plural(report.ids, "id"),
            )
            click.echo(
                f"{printable(args.store)}: sound: {plural(report.fingerprints, noun)}, "
                f"{', '.join(parts)}"
            )
    if not report.ok:
        print_error(
            f"{args.store}: {plural(len(report.faults), 'fault')}{note}: {repair} keeps what "
            "is intact"
        )
        raise click.exceptions.Exit(1)


def _describe_fault(fault: dict[str, Any]) -> str:
    message, path, block = str(fault["message"]), fault["path"], fault["block"]
    place = "" if path is None or path in message else f"{path}: "
    return (
        place
        + ("" if block is None or f"block {block}" in message else f"block {block}: ")
        + message
    )


@verb(
    options.STORE,
    argument("path", "PATH"),
    options.replace_option("PATH", "a store"),
    *options.RESULT,
    guesses=output_guess("the copy is the second argument"),
)
def backup(args: Arguments) -> None:
    """Copy a store or index, even while it is in use.

    PATH gets the store as it is at one moment. Other processes can go on inserting and merging. The
    copy is an ordinary store. It appears complete or not at all. The copy is not verified. So
    verify the store first, and keep two copies: then a copy of a damaged store does not replace the
    last good one.

    $ fpstore backup crawl.fps crawl-backup.fps
    $ fpstore backup crawl.fps crawl-backup.fps --force --json
    $ fpstore backup pages.lsh copy.lsh
    """
    with args.bars() as bars, fpstore.open(args.store) as opened:
        opened.backup(args.path, overwrite=args.overwrite, progress=bars)
    if args.as_json or not args.quiet:
        with fpstore.open(args.path) as copied:
            stats = copied.stats()
        args.result(stats, args.with_time(args.path, summary(stats)))


@verb(
    options.STORE,
    option("-o --output NEW", "The store to write. By default STORE.repaired."),
    option(
        "--yes",
        "Put the new store in place of STORE, and keep that as STORE.damaged.",
        into="in_place",
    ),
    option(
        "--lost FILE",
        "Where to list losses, if there are any. By default STORE.lost.tsv, with -o NEW.lost.tsv.",
    ),
    option(
        "-r --radius N",
        "The radius of the new store if the manifest is lost, which had it. By default 3.",
        options.RADIUS,
    ),
    *options.LIMITS,
    *options.RESULT,
)
def repair(args: Arguments) -> None:
    """Make a sound store or index from a damaged one.

    Each table holds the whole set, so one intact table restores all others. Ids, strings and the
    latest changes exist only once. The damaged store is never changed or deleted. Prints what was
    done and what is lost. The exit code is 1 if something is lost. If nothing is wrong, nothing is
    written.

    The lsh.json of an LSH index must be intact. A document that has lost some of its keys is found
    less often.

    $ fpstore repair crawl.fps
    $ fpstore repair crawl.fps -o repaired.fps --lost lost.tsv --json
    $ fpstore repair crawl.fps --yes --radius 3
    $ fpstore repair pages.lsh
    """
    store, noun = args.store, "store"
    if is_index(Path(store)):
        args.refuse(f"is not for an LSH index, which {store} is", "in_place", "lost", "radius")
        noun = "index"
    if args.in_place and args.output is not None:
        fail("--yes does not go with --output")
    with args.bars() as bars:
        report = fpstore.repair(
            store,
            args.output,
            in_place=args.in_place,
            lost=args.lost,
            radius=args.radius,
            memory=args.memory,
            threads=args.threads,
            progress=bars,
        )
    if args.as_json:
        print_json({**dataclasses.asdict(report), "complete": report.complete})
    elif not args.quiet:
        if report.sound:
            click.echo(f"{printable(store)}: sound: nothing to repair")
        faults = [fault["message"] for fault in report.faults]
        for heading, lines in {
            "fault": faults,
            "done": report.actions,
            "lost": report.losses,
        }.items():
            for line in lines:
                click.echo(printable(f"{heading}: {line}"))
        if report.output is not None and not args.in_place:
            click.echo(
                printable(
                    f"next: to use the new {noun}, move {store} away and rename {report.output} "
                    f"to {store}"
                )
            )
    if not report.complete:
        print_error(f"{store}: repaired, but not all could be recovered")
        raise click.exceptions.Exit(1)


@verb(
    options.STORE,
    output_option("Where to write the page.", replaces=False),
    options.FORCE_OUTPUT,
    options.PAIR_RADIUS,
    option("--no-pairs", "Leave out pairs, clusters and families, which read all fingerprints."),
    option(
        "--files-in FOLDER",
        "Folder in which the ids are paths of texts or pictures. By default the current folder.",
    ),
    *options.LIMITS,
    *options.TALK,
)
def report(args: Arguments) -> None:
    """Write a page in HTML about a store.

    The page shows clusters and families of near-duplicates, pairs, sizes, skew and codes. It is one
    file that needs no network and no script. The same store makes the same page. If ids are paths,
    as `fpstore build --text` and `--image` make them, the page shows the texts and pictures of
    files that have not changed since.

    $ fpstore report crawl.fps --output report.html --radius 2
    $ fpstore report notes.fps --output report.html --force --files-in .
    $ fpstore report crawl.fps --no-pairs > report.html
    """
    from fpstore.jobs.report import report_page
    from fpstore.jobs.report_files import Files

    if not args.is_given("output") and sys.stdout is not None and sys.stdout.isatty():
        fail(
            "a report is a page in HTML, which a terminal does not show: name a file, as --output "
            "report.html"
        )
    if args.no_pairs and args.radius is not None:
        fail("--radius is for pairs: leave out --no-pairs")
    args.check_new(args.output)
    folder = None if args.files_in is None else check_path(args.files_in, "--files-in")
    with open_store(args.store) as opened, args.bars() as bars:
        _refuse_sharded(args, opened, "a report")
        snapshot = store_snapshot(opened)
        radius = opened.radius if args.radius is None else check_radius(args.radius, opened.width)
        stats, files = (
            described(snapshot, opened.stats()["bytes"]["delta"]),
            Files(folder, opened.fingerprinter),
        )
        page = report_page(
            snapshot, stats, None if args.no_pairs else radius, files, args.resources(bars)
        )
    if files.missing:
        args.note(
            f"{files.sentence()}: paths are read from {folder or check_path('.')}; --files-in "
            "names another folder"
        )
    write_page(args.output, page)


@verb(
    options.STORE,
    output_option("Where to write: .tsv, .csv, .txt, .jsonl, .parquet, .npy, .u32 or .u64."),
    option("--format", "Format of the output. By default from its extension.", FORMATS),
    options.JSON,
    *options.TALK,
)
def export(args: Arguments) -> None:
    """Write all fingerprints and ids of a store.

    Writes one row `fingerprint id` per id, which fpstore build can read, in ascending order of
    fingerprint. --json is --format jsonl. The formats npy, u32 and u64 hold each fingerprint once,
    without ids. An id that contains a tab or a line break is refused in TSV and txt: write such ids
    as CSV, JSON lines or Parquet.

    $ fpstore export crawl.fps --output crawl-copy.tsv
    $ fpstore export crawl.fps --json | head -n 3
    $ fpstore export crawl.fps --format csv
    $ fpstore export crawl.fps --output crawl-copy.parquet
    """
    if args.as_json and args.format not in (None, "jsonl"):
        fail(f"--json does not go with --format {args.format}")
    format_name = "jsonl" if args.as_json else args.format
    plain = check_format(args.output, format_name) in ("npy", "u32", "u64")
    columns = ["fingerprint"] if plain else ["fingerprint", "id"]
    with open_store(args.store) as opened, args.bars() as bars:
        total, done = len(opened) if plain else len(opened.ids), 0
        with translate_usage_errors():
            opening = open_writer(
                args.output,
                format=format_name,
                columns=columns,
                width=opened.width,
            )
        data: dict[str, Any]
        pieces: Iterable[Any] = opened.snapshot().fingerprints() if plain else opened.items()
        with opening as writer:
            for piece in pieces:
                if plain:
                    data = {"fingerprint": Width(opened.width).to_array(piece)}
                else:
                    data = {
                        "fingerprint": np.repeat(piece[0], np.diff(piece[1]), axis=0),
                        "id": piece[2],
                    }
                writer.write(data)
                done += len(data["fingerprint"])
                bars("exporting", done, total)
