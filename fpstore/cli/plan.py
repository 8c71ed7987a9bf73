"""``fpstore plan``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from fpstore.base.resources import shown_size
from fpstore.cli import types
from fpstore.cli.options import (
    codec_option,
    disk_budget_option,
    filter_option,
    json_option,
    prefer_option,
    storage_option,
    width_option,
)
from fpstore.cli.output import print_json, print_table, say
from fpstore.cli.verb import Verb
from fpstore.design.families import SCAN, lookup_radius
from fpstore.errors import InputError, counted, show

if TYPE_CHECKING:
    from fpstore.design.estimates import Plan
    from fpstore.design.planner import Crossover

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9, "t": 10**12,
          "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}  # fmt: skip
_MOST = 1 << 64
SHOWN = 12
_ESTIMATES = (
    "Times are estimates for one slow thread, to compare designs with: µs of a query in a batch of 4,096, and alone.\n"
    "bytes/fp leaves out ids; disk includes row numbers as ids, which take 3.5 to 4.3 bytes each."
)
_HEADINGS = ("design", "bytes/fp", "disk", "look-ups", "µs")
_LAST = {"hot": "µs alone", "cold": "cold ms"}


def parse_count(text: str) -> int:
    """Return a number given as ``16777216``, ``16,777,216``, ``2^24``, ``1e9``, ``16M`` or ``16Mi``."""
    compact = re.sub(r"[_,\s]", "", text)
    value: float | None = None
    power = re.fullmatch(r"(\d{1,6})(?:\^|\*\*)(\d{1,3})", compact)
    scaled = re.fullmatch(r"(\d{1,30}(?:\.\d{1,30})?(?:[eE]\+?\d{1,2})?)([kKmMgGbBtT]i?)?", compact)
    if power:
        value = int(power[1]) ** int(power[2])
    elif scaled and (scaled[2] or "").lower() in _UNITS:
        unit = _UNITS[(scaled[2] or "").lower()]
        value = int(scaled[1]) * unit if scaled[1].isdigit() else float(scaled[1]) * unit
    if value is None or value != int(value):
        raise InputError(f"{show(text)} is not a number of fingerprints: write it as 16777216, 2^24, 1e9 or 16M", got=text)
    if value > _MOST:
        raise InputError(f"{show(text)} is more than 2^64, the number of all fingerprints", got=text)
    return int(value)


@click.command(cls=Verb, guesses=dict.fromkeys(("-n", "--n", "--count"), "N stands alone, as in fpstore plan 1000000"))
@click.argument("n", metavar="N", type=types.Checked("number", parse_count))
@click.option(
    "-r",
    "--radius",
    type=types.RADIUS,
    default=3,
    show_default=True,
    metavar="N",
    help="Largest radius of probes, 0 to the width; above a quarter of it, the only design is scan.",
)
@width_option
@codec_option
@filter_option
@disk_budget_option
@click.option(
    "--memory-budget",
    type=types.BUDGET,
    metavar="SIZE",
    help="Memory for the tables; by default half of this machine's memory with --storage hot.",
)
@storage_option
@prefer_option
@click.option("--all", "show_all", is_flag=True, help=f"Show all designs; by default the best {SHOWN}.")
@json_option
def plan(
    n: int,
    radius: int,
    width: int,
    codec: str,
    filter: bool | str,  # noqa: A002
    disk_budget: int | None,
    memory_budget: int | None,
    storage: str,
    prefer: str,
    show_all: bool,
    as_json: bool,
) -> None:
    """Compare the designs for a number of fingerprints.

    N is a number such as 16777216, 2^24, 1e9, 16M (million), 16Mi (16 x 2^20) or 2G (billion).

    The costs are estimates for uniform fingerprints and one thread. bytes/fp are the bytes per fingerprint without its id.
    µs is the time of a probe in a batch of 4,096, with the tables in memory; in larger batches, tables of blocks take a third
    to a ninth of it. µs alone is the time of a single probe; a call from Python adds 3 µs. With --storage cold, cold ms is the
    time of a probe that reads every block from a solid-state disk. look-ups is the number of look-ups that a probe makes.
    A design blocks-M-C with M - C below the radius also looks up prefixes that differ in some bits: it makes more look-ups
    than it has tables.
    --json adds the number of tables, and the number of fingerprints that a probe compares.

    The designs that fit the budgets come first. The first row is the design that fpstore build takes by itself (auto). To get
    another one, pass its name to fpstore build as --design. By default auto takes twice the bytes only for three times the
    speed. --prefer changes that. Bytes and times are with the filters that the note tells of. The other rows are in the order
    of the mean of µs and µs alone, the latter with the 3 µs of a call; with --storage cold in the order of cold ms. The
    design scan has one table, which a probe reads as a whole. The last line says when a scan takes less time than look-ups.

    $ fpstore plan 2^24
    $ fpstore plan 1e9 --radius 3 --disk-budget 40GB --memory-budget 16GiB
    $ fpstore plan 16M --storage cold --json
    $ fpstore plan 50M --radius 12 --prefer space
    $ fpstore plan 16M --width 128 --all
    $ fpstore plan 2^26 --codec elias-fano --filter
    """
    import fpstore
    from fpstore.design.planner import crossover
    from fpstore.design.preference import knee

    types.usage_error_for_radius(radius, width)
    plans = fpstore.plan(
        n, radius, disk_budget=disk_budget, memory_budget=memory_budget, storage=storage, codec=codec, filter=filter,
        prefer=prefer, width=width,
    )  # fmt: skip
    crossing = crossover(n, radius, storage, width)
    if as_json:
        scan = {"cheaper_from_radius": crossing.radius, "cheaper_up_to_fingerprints": crossing.fingerprints}
        print_json({"fingerprints": n, "radius": radius, "width": width, "scan": scan, "plans": [_record(p) for p in plans]})
        return
    print_table(
        f"{counted(n, 'fingerprint')}, radius {radius}, width {width}, {storage} storage",
        (*_HEADINGS, _LAST[storage], "note"),
        [_row(p, n, storage) for p in (plans if show_all else plans[:SHOWN])],
        left=(0, 6),
    )
    if len(plans) > SHOWN and not show_all:
        say(f"and {len(plans) - SHOWN} more: --all shows them.")
    say(_ESTIMATES)
    if plans[0].chosen and prefer == "balance" and (best := knee([p for p in plans if p.fits], storage)).name != plans[0].name:
        say(f"auto takes {plans[0].name} in place of {best.name}, which is hardly better.")
    differs = plans[0].chosen and prefer != "speed" and (plans[0].name == SCAN) != (radius >= crossing.radius)
    say(_crossing(n, radius, width, crossing) + (" auto weighs bytes, too." if differs else ""))
    if not plans[0].fits:
        then = "." if disk_budget or storage == "cold" else "; build would then choose as with --storage cold."
        say(f"No design fits the budgets{then}")


def _crossing(n: int, radius: int, width: int, crossing: Crossover) -> str:
    """Say where a scan takes less time than look-ups, in one line."""
    if radius > lookup_radius(width):
        return f"Above radius {lookup_radius(width)} there are no look-ups, only a scan."
    if crossing.radius > lookup_radius(width):
        told = f"For {counted(n, 'fingerprint')}, look-ups take less time than a scan up to radius {lookup_radius(width)}, "
        told += f"above which there are none. At radius {radius} a scan is cheaper for "
    else:
        told = f"By time alone, for {counted(n, 'fingerprint')} a scan is cheaper than look-ups from radius {crossing.radius} on."
        told += f" At radius {radius}, it is cheaper for "
    if crossing.fingerprints is None:
        return told + "any number."
    return told + (f"up to {counted(crossing.fingerprints, 'fingerprint')}." if crossing.fingerprints else "none.")


def _record(p: Plan) -> dict[str, Any]:
    return {
        "design": p.name,
        "tables": len(p.design.tables),
        "filters": p.filters,
        "bytes_per_fingerprint": p.bytes_per_fingerprint,
        "disk_bytes": p.disk_bytes,
        "lookups": p.lookups,
        "candidates": p.candidates,
        "microseconds": p.microseconds,
        "single_microseconds": p.single_microseconds,
        "cold_milliseconds": p.cold_milliseconds,
        "fits": p.fits,
        "reason": p.reason,
        "chosen": p.chosen,
    }


def _row(p: Plan, n: int, storage: str) -> tuple[str, ...]:
    return (
        p.name,
        f"{p.bytes_per_fingerprint:.1f}" if n else "",
        shown_size(p.disk_bytes),
        f"{p.lookups:,}",
        _decimal(p.microseconds),
        _decimal(p.single_microseconds if storage == "hot" else p.cold_milliseconds),
        _note(p),
    )


def _note(p: Plan) -> str:
    fits = "auto" if p.chosen else p.reason.replace(" the", "").removesuffix(" budget")
    return ", ".join(filter(None, (fits, counted(p.filters, "filter") if p.filters else "")))


def _decimal(value: float) -> str:
    return "<0.1" if 0 < value < 0.05 else f"{value:,.{0 if value >= 1000 else 1}f}"
