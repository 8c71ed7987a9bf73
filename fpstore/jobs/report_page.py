"""The page of a report: the rows of its tables and its pictures; the template ``report.html`` has the words around them."""

from __future__ import annotations

from typing import Any

from fpstore.base.resources import shown_size
from fpstore.errors import counted
from fpstore.hashing.registry import in_words
from fpstore.jobs.report import Figures
from fpstore.pages import render
from fpstore.pages.pictures import SHARES, Bar, few, lines, standing_bars

PARTS = {
    "tables": "Tables",
    "filters": "Filters",
    "ids": "Ids",
    "strings": "Strings of ids",
    "id_index": "Index by id",
    "delta": "Log of changes",
    "metadata": "Metadata",
}
HOLDING = {"rows": "The rows"}
EN_DASH = "\u2013"

Part = dict[str, Any]  # what the template shows in a section


def page_of(figures: Figures) -> str:
    """Return the page."""
    stats = figures.stats
    return render(
        "report.html",
        figures=figures,
        stats=stats,
        facts=_facts(stats),
        made="The store does not say how its fingerprints were made."
        if stats["fingerprinter"] is None
        else f"Fingerprints by {in_words(stats['fingerprinter'])}.",
        same=stats["ids"] - stats["fingerprints"],
        clusters=_clusters(figures),
        pairs=_pairs(figures),
        size=_size(stats),
        skew=_skew(figures),
        coding=_buckets(figures) if figures.codes is None else _codes(figures),
    )


def _facts(stats: dict[str, Any]) -> list[tuple[str, str]]:
    facts = [
        ("Fingerprints", f"{stats['fingerprints']:,}"),
        ("Ids", f"{stats['ids']:,}"),
        ("Width", f"{stats['width']} bits"),
        ("Radius", str(stats["radius"])),
        ("Design", stats["design"]["name"]),
        ("Bytes on disk", shown_size(stats["bytes"]["total"])),
    ]
    if stats["ratio_to_limit"] is not None:
        facts.append(("Bytes per fingerprint", f"{stats['bytes_per_fingerprint']['total']:.2f}"))
    if stats["delta"]["changes"]:
        facts.append(("Changes since the last merge", f"{stats['delta']['changes']:,}"))
    return facts


def _clusters(figures: Figures) -> Part:
    found = figures.clusters
    if not found:
        return {}
    sizes = {_range(name): n for name, n in found.histogram().items()}
    bars = [Bar(f"{name} documents", n, f"{n:,}, {n / len(found):.1%}") for name, n in sizes.items()]
    return {"bars": bars, "rows": [(name, f"{n:,}") for name, n in sizes.items()]}


def _pairs(figures: Figures) -> Part:
    if figures.distances is None:
        return {}
    same = figures.stats["ids"] - figures.stats["fingerprints"]
    counts = list(enumerate(figures.distances.counts, 1))
    bars = [Bar("0", same, counted(same, "id"), other=True), *(Bar(str(d), n, counted(n, "pair")) for d, n in counts)]
    rows = [("0", f"{same:,}", "further ids of a fingerprint"), *((str(d), f"{n:,}", "pairs of fingerprints") for d, n in counts)]
    return {"picture": standing_bars(bars), "rows": rows}


def _size(stats: dict[str, Any]) -> Part:
    taken, n = stats["bytes"], stats["fingerprints"]
    total = max(taken["total"], 1)
    bars = [
        Bar(name, taken[key], f"{shown_size(taken[key])}, {taken[key] / total:.1%}") for key, name in PARTS.items() if taken[key]
    ]
    named = {"tables": PARTS["tables"], "keys": "of these, keys in memory", **PARTS, "total": "All"}
    rows = [
        (name, f"{taken[key]:,}", f"{taken[key] / total:.1%}", f"{taken[key] / max(n, 1):.2f}") for key, name in named.items()
    ]
    least = round(stats["limit_bits_per_fingerprint"] * stats["delta"]["tables"] / 8)
    size = {
        "bars": bars,
        "total": total,
        "columns": ("Part", "Bytes", "Share", "per fingerprint"),
        "rows": rows,
        "bounds": [
            ("Raw fingerprints", f"{n * stats['width'] // 8:,}"),
            ("The least that any set of as many can take", f"{least:,}"),
        ],
        "against": None,
    }
    if stats["ratio_to_limit"] is None:  # of few fingerprints
        return {**size, "columns": size["columns"][:3], "rows": [row[:3] for row in rows]}
    one = HOLDING.get(stats["design"]["tables"][0]["kind"], "One table")
    bits, limit = stats["bits_per_fingerprint"], stats["limit_bits_per_fingerprint"]
    size["against"] = [
        Bar(f"{one} of this store", bits, f"{bits:.2f} bits"),
        Bar("The limit for any set of this size", limit, f"{limit:.2f} bits", other=True),
        Bar("Raw", stats["width"], f"{stats['width']} bits", other=True),
    ]
    size["words"] = (
        f"{one} {'takes' if one == 'One table' else 'take'} {stats['ratio_to_limit']:.3f} times the limit, log₂ of the number of "
        f"sets of this size, and {stats['ratio_to_raw']:.1%} of the raw size."
    )
    return size


def _skew(figures: Figures) -> Part:
    skew = figures.skew
    if figures.stats["fingerprints"] < 2:
        return {}
    ones = [Bar(str(bit), share, f"{share:.2%}") for bit, share in enumerate(skew.ones)]
    part = {
        "far": max(range(len(ones)), key=lambda bit: abs(skew.ones[bit] - 0.5)),
        "picture": standing_bars(ones, SHARES._replace(base=0.5)),
        "rows": [(bar.name, bar.words) for bar in ones],
    }
    if skew.others:
        names = [str(bits) for bits in range(1, len(skew.others) + 1)]
        part["shared"] = lines([skew.uniform, skew.others], names)
        part["shared_rows"] = [
            (name, few(here), few(even), f"{here / even:,.2f}")
            for name, here, even in zip(names, skew.others, skew.uniform, strict=True)
        ]
    return part


def _codes(figures: Figures) -> Part:
    codes = figures.codes
    if codes is None or not codes.counts:
        return {}
    pairs, shown = sum(codes.counts.values()), range(min(codes.counts), max(codes.counts) + 1)
    counts = [Bar(str(h), codes.counts.get(h, 0), counted(codes.counts.get(h, 0), "fingerprint")) for h in shown]
    bits = [Bar(str(h), codes.bits.get(h, 0), f"{codes.bits.get(h, 0)} bits", other=True) for h in shown]
    columns = ("h", "Fingerprints", "Share", *(["Bits of the code"] if codes.bits else []))
    rows = [(str(h), f"{n:,}", f"{n / pairs:.2%}", str(codes.bits.get(h, "")))[: len(columns)] for h, n in codes.counts.items()]
    mean = sum(n * codes.bits.get(h, 0) for h, n in codes.counts.items()) / pairs
    return {
        "mean": mean, "picture": standing_bars(counts), "bits": standing_bars(bits, height=80), "columns": columns, "rows": rows,
    }  # fmt: skip


def _buckets(figures: Figures) -> Part:
    assert figures.buckets is not None
    bars = [Bar(_range(name), n, f"{n:,} buckets") for name, n in figures.buckets.histogram.items()]
    return {"picture": standing_bars(bars), "rows": [(bar.name, f"{bar.value:,}") for bar in bars]}


def _range(name: str) -> str:
    """Return ``1024-2047`` with thousands separators and a dash."""
    return EN_DASH.join(f"{int(end):,}" for end in name.split("-"))
