"""The report on a store: its figures, as rows of tables and pictures.

The template ``report.html`` has the words around them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import ceil, log2
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.resources import Resources, format_size
from fpstore.base.width import WORD_BITS, leading_words
from fpstore.design.sample import EvenRows
from fpstore.errors import InputError, plural
from fpstore.format import huffman
from fpstore.format.column_table import ColumnTable
from fpstore.format.packed_table import PackedTable
from fpstore.hashing.registry import readable_description
from fpstore.jobs.clusters import Clusters, cluster_grouping, find_clusters
from fpstore.jobs.pairs import find_pairs, load_fingerprints
from fpstore.jobs.report_files import Files
from fpstore.pages import render
from fpstore.pages.pictures import SHARES, Bar, format_small, lines, standing_bars
from fpstore.query.ids import fingerprints_of
from fpstore.query.store_snapshot import StoreSnapshot

WHOLE = 1 << 20  # fingerprints; a larger set is sampled
SPANS = 32  # of successive fingerprints, in a sample
MAX_PAIRS = 10_000_000  # counted at most
LARGEST, SPREAD, SHOWN = 8, 6, 6  # clusters shown: largest, others; documents shown of each
DIRECTORY = 1 << 22  # words in a batch
PARTS = {
    "tables": "Tables",
    "filters": "Filters",
    "ids": "Ids",
    "strings": "Strings of ids",
    "id_index": "Index by id",
    "delta": "Log of changes",
    "metadata": "Metadata",
}
EN_DASH = "\u2013"

Section = dict[str, Any]  # the values of a section of the template


def report_page(
    snapshot: StoreSnapshot,
    stats: dict[str, Any],
    radius: int | None,
    files: Files,
    resources: Resources,
) -> str:
    """Return the page of a snapshot; without a radius, it has no pairs and no clusters."""
    resources.report("reading", 0)
    shown = stats["radius"] if radius is None else radius
    grouping = cluster_grouping(shown, None, "first", stats["fingerprinter"])
    first, fingerprinter = snapshot.generation.tables[0], stats["fingerprinter"]
    coding = (
        _codes(first, snapshot.generation.count)
        if isinstance(first, PackedTable)
        else _buckets(snapshot)
    )
    skew = _skew(snapshot, resources)
    pairs, clusters, largest, spread = None, None, list[Section](), list[Section]()
    if radius is not None:
        pairs = _pairs(snapshot, stats, radius, resources)
        try:
            all_clusters = find_clusters(snapshot, grouping, resources)
        except InputError:  # pictures with several fingerprints, whose groups have chains
            grouping = grouping._replace(group="connected")
            all_clusters = find_clusters(snapshot, grouping, resources)
        clusters = _clusters(all_clusters)
        largest, spread = _families(snapshot, all_clusters, files)
    return render(
        "report.html",
        name=snapshot.generation.path.name,
        stats=stats,
        facts=_facts(stats),
        radius=shown,
        size=_size(stats),
        made=f"Fingerprints by {readable_description(fingerprinter)}."
        if fingerprinter
        else "The store does not say how its fingerprints were made.",
        same=stats["ids"] - stats["fingerprints"],
        clusters=clusters,
        largest=largest,
        spread=spread,
        missing=files.sentence(),
        pairs=pairs,
        skew=skew,
        packed=isinstance(first, PackedTable),
        coding=coding,
        grouping=grouping.group,
    )


def _facts(stats: dict[str, Any]) -> list[tuple[str, str]]:
    facts = [
        ("Fingerprints", f"{stats['fingerprints']:,}"),
        ("Ids", f"{stats['ids']:,}"),
        ("Width", f"{stats['width']} bits"),
        ("Radius", str(stats["radius"])),
        ("Design", stats["design"]["name"]),
        ("Bytes on disk", format_size(stats["bytes"]["total"])),
    ]
    if stats["ratio_to_limit"] is not None:
        facts.append(("Bytes per fingerprint", f"{stats['bytes_per_fingerprint']['total']:.2f}"))
    if stats["delta"]["changes"]:
        facts.append(("Changes since the last merge", f"{stats['delta']['changes']:,}"))
    return facts


# Clusters, families and pairs


def _clusters(clusters: Clusters) -> Section:
    sizes = {_format_range(name): n for name, n in clusters.histogram().items()}
    bars = [
        Bar(f"{name} documents", n, f"{n:,}, {n / len(clusters):.1%}") for name, n in sizes.items()
    ]
    return {"all": clusters, "bars": bars, "rows": [(name, f"{n:,}") for name, n in sizes.items()]}


def _families(
    snapshot: StoreSnapshot, clusters: Clusters, files: Files
) -> tuple[list[Section], list[Section]]:
    """Return the largest clusters, and others spread over the rest, with nearest members."""
    order = clusters.by_size()
    smaller = order[LARGEST:]
    places_of_smaller = (
        smaller[(np.arange(SPREAD) * 2 + 1) * len(smaller) // (2 * SPREAD)]
        if len(smaller) > SPREAD
        else smaller
    )
    places = [*order[:LARGEST].tolist(), *places_of_smaller.tolist()]
    shown: list[Any] = [clusters.first(place, SHOWN) for place in places]
    ids = [name for members in shown for name in members]
    lims, rows = fingerprints_of(
        snapshot, ids if snapshot.totals.id_kind == "string" else np.array(ids, np.uint64)
    )
    numbers = snapshot.width.numbers(rows)
    fingerprints = {
        name: numbers[a:b] for name, (a, b) in zip(ids, pairwise(lims.tolist()), strict=True)
    }
    families: list[Section] = []
    for place, names in zip(places, shown, strict=True):
        distances = {
            name: min(
                (a ^ b).bit_count() for a in fingerprints[name] for b in fingerprints[names[0]]
            )
            for name in names
        }
        members = [
            {
                "id": name,
                "distance": distances[name],
                "excerpt": files.excerpt(name, fingerprints[name]),
            }
            for name in sorted(names, key=distances.__getitem__)
        ]
        families.append({"size": int(clusters.sizes[place]), "members": members})
    return families[:LARGEST], families[LARGEST:]


def _pairs(
    snapshot: StoreSnapshot, stats: dict[str, Any], radius: int, resources: Resources
) -> Section:
    """Count the pairs of fingerprints by distance.

    A count that stops early is made by one thread, so that it is always the same.
    """
    counts, stopped = _count_pairs(snapshot, radius, resources)
    if stopped and resources.threads > 1:
        counts, stopped = _count_pairs(snapshot, radius, resources._replace(threads=1))
    same = stats["ids"] - stats["fingerprints"]
    by_distance = list(enumerate(counts, 1))
    bars = [
        Bar("0", same, plural(same, "id"), other=True),
        *(Bar(str(d), n, plural(n, "pair")) for d, n in by_distance),
    ]
    rows = [("0", f"{same:,}", "further ids of a fingerprint")]
    rows += [(str(d), f"{n:,}", "pairs of fingerprints") for d, n in by_distance]
    return {"total": sum(counts), "stopped": stopped, "picture": standing_bars(bars), "rows": rows}


def _count_pairs(
    snapshot: StoreSnapshot, radius: int, resources: Resources
) -> tuple[list[int], bool]:
    counts = np.zeros(radius + 1, np.int64)
    done, stopped = 0, False
    for pairs in find_pairs(snapshot, radius, resources):
        distances = pairs.distances[: MAX_PAIRS - done]
        counts += np.bincount(distances, minlength=radius + 1)
        done, stopped = done + len(distances), len(distances) < len(pairs)
        if stopped:
            break
    return counts[1:].tolist(), stopped


# Size


def _size(stats: dict[str, Any]) -> Section:
    part_bytes, count = stats["bytes"], stats["fingerprints"]
    total = max(part_bytes["total"], 1)
    sizes = [(name, part_bytes[key]) for key, name in PARTS.items()]
    bars = [
        Bar(name, size, f"{format_size(size)}, {size / total:.1%}") for name, size in sizes if size
    ]
    sizes = [
        sizes[0],
        ("of these, keys in memory", part_bytes["keys"]),
        *sizes[1:],
        ("All", part_bytes["total"]),
    ]
    rows: list[tuple[str, ...]] = [
        (name, f"{size:,}", f"{size / total:.1%}", f"{size / max(count, 1):.2f}")
        for name, size in sizes
    ]
    least = round(stats["limit_bits_per_fingerprint"] * stats["delta"]["tables"] / 8)
    bounds = [
        ("Raw fingerprints", f"{count * stats['width'] // 8:,}"),
        ("The least that any set of as many can take", f"{least:,}"),
    ]
    columns: tuple[str, ...] = ("Part", "Bytes", "Share", "per fingerprint")
    against, words = None, ""
    if stats["ratio_to_limit"] is None:  # of few fingerprints
        columns, rows = columns[:3], [row[:3] for row in rows]
    else:
        subject, verb = (
            ("The rows", "take")
            if stats["design"]["tables"][0]["kind"] == "rows"
            else ("One table", "takes")
        )
        bits, limit = stats["bits_per_fingerprint"], stats["limit_bits_per_fingerprint"]
        against = [
            Bar(f"{subject} of this store", bits, f"{bits:.2f} bits"),
            Bar("The limit for any set of this size", limit, f"{limit:.2f} bits", other=True),
            Bar("Raw", stats["width"], f"{stats['width']} bits", other=True),
        ]
        words = (
            f"{subject} {verb} {stats['ratio_to_limit']:.3f} times the limit, log₂ of the number "
            f"of sets of this size, and {stats['ratio_to_raw']:.1%} of the raw size."
        )
    return {
        "bars": bars,
        "total": total,
        "columns": columns,
        "rows": rows,
        "bounds": bounds,
        "against": against,
        "words": words,
    }


# Skew


def _skew(snapshot: StoreSnapshot, resources: Resources) -> Section:
    """Compare the bits with random ones: ones at each bit, and shared leading bits."""
    count, width = snapshot.totals.fingerprints, snapshot.width
    rows = load_fingerprints(snapshot, resources)[0] if count <= WHOLE else _sample(snapshot)
    m = len(rows)
    if count < 2:
        return {}
    one_counts = np.zeros(width.bits, np.int64)
    for start in range(0, m, DIRECTORY >> 6):
        one_counts += np.unpackbits(
            width.to_bytes(rows[start : start + (DIRECTORY >> 6)]), axis=1
        ).sum(axis=0, dtype=np.int64)
    ones = (one_counts / max(m, 1)).tolist()
    bars = [Bar(str(bit), share, f"{share:.2%}") for bit, share in enumerate(ones)]
    far = max(range(len(ones)), key=lambda bit: abs(ones[bit] - 0.5))
    section = {
        "far": far,
        "far_share": ones[far],
        "sample": None if m == count else m,
        "picture": standing_bars(bars, SHARES._replace(base=0.5)),
        "rows": [(bar.name, bar.words) for bar in bars],
    }
    # A sample shows buckets that have some of its fingerprints; a whole set shows a few bits more
    # than there are.
    deepest = 0 if m < 2 else ceil(log2(m)) + (2 if m == count else -3)
    bits = range(1, max(min(deepest, width.bits, WORD_BITS), 0) + 1)
    actual = [_shared_prefix_share(rows, b) * (count - 1) for b in bits]
    uniform = [(count - 1) / 2**b for b in bits]
    if actual:
        section["shared"] = lines([uniform, actual], list(map(str, bits)))
        section["shared_rows"] = [
            (str(b), format_small(here), format_small(even), f"{here / even:,.2f}")
            for b, here, even in zip(bits, actual, uniform, strict=True)
        ]
    return section


def _sample(snapshot: StoreSnapshot) -> Words:
    """Return fingerprints spread over the set: those of the tables, unless much has changed."""
    if 2 * snapshot.generation.count > snapshot.totals.fingerprints:
        return snapshot.generation.full_sample()
    sample = EvenRows(snapshot.width.words)
    for rows in snapshot.fingerprints():
        sample.add(rows)
    return sample.rows()


def _shared_prefix_share(rows: Words, bits: int) -> float:
    """Return the mean share of other fingerprints with the same leading bits; rows ascend."""
    leading = leading_words(rows) >> np.uint64(WORD_BITS - bits)
    begins = np.flatnonzero(np.append(True, leading[1:] != leading[:-1]))
    sizes = np.diff(np.append(begins, len(rows))).astype(np.float64)
    return float(sizes @ (sizes - 1)) / (len(rows) * (len(rows) - 1))


# How the first table is coded


def _codes(table: PackedTable, fingerprint_count: int) -> Section:
    """Show the first differing bit h of neighbours in a table of blocks, or in its spans."""
    histogram = np.zeros(huffman.SYMBOLS, np.uint64)
    whole = fingerprint_count <= WHOLE
    last = None
    for keys in _spans(table, whole):
        _kernel.histogram(keys if last is None else np.concatenate([last, keys]), histogram)
        last = keys[-1:] if whole else None
    counts: dict[int, int] = {int(h): int(histogram[h]) for h in np.flatnonzero(histogram)}
    if not counts:
        return {}
    code = np.frombuffer(table.kernel.code_bits, np.uint8)
    bits = {int(h): int(code[h]) for h in np.flatnonzero(code)}
    pairs, shown = sum(counts.values()), range(min(counts), max(counts) + 1)
    columns = ("h", "Fingerprints", "Share", *(["Bits of the code"] if bits else []))
    return {
        "sampled": not whole,
        "reaches_64": 64 in counts,
        "coded": bool(bits),
        "mean": sum(n * bits.get(h, 0) for h, n in counts.items()) / pairs,
        "picture": standing_bars(
            [Bar(str(h), counts.get(h, 0), plural(counts.get(h, 0), "fingerprint")) for h in shown]
        ),
        "bits": standing_bars(
            [Bar(str(h), bits.get(h, 0), f"{bits.get(h, 0)} bits", other=True) for h in shown],
            height=80,
        ),
        "columns": columns,
        "rows": [
            (str(h), f"{n:,}", f"{n / pairs:.2%}", str(bits.get(h, "")))[: len(columns)]
            for h, n in counts.items()
        ],
    }


def _spans(table: PackedTable, whole: bool) -> Iterator[Words]:
    """Yield all keys of a table, or a piece at each of SPANS places."""
    if whole:
        yield from (keys for keys, _ in table.pieces())
        return
    for start in np.unique(np.arange(SPANS) * table.kernel.block_count // SPANS).tolist():
        for keys, _ in table.pieces(start):
            yield keys
            break


def _buckets(snapshot: StoreSnapshot) -> Section:
    """Show the number of buckets by their size, in the first column table of a look-up.

    Sizes are exact, or ranges like 4-7.
    """
    generation = snapshot.generation
    place = generation.design.ring[0][0] if generation.design.ring else 0
    table = generation.tables[place]
    assert isinstance(table, ColumnTable)
    directory = table.directory
    exponents: npt.NDArray[np.int64] = np.zeros(WORD_BITS, np.int64)  # of sizes 0, 1, 2-3, 4-7, ...
    for start in range(0, len(directory) - 1, DIRECTORY):
        sizes = np.diff(directory[start : start + DIRECTORY + 1].astype(np.int64))
        exponents += np.bincount(np.frexp(sizes)[1], minlength=WORD_BITS)
    names = ["0", "1", *(f"{1 << e}-{(2 << e) - 1}" for e in range(1, WORD_BITS))]
    most = int(np.flatnonzero(exponents)[-1]) if exponents.any() else 0
    bars = [
        Bar(_format_range(name), int(n), f"{n:,} buckets")
        for name, n in zip(names[: most + 1], exponents[: most + 1], strict=True)
    ]
    return {
        "table": place,
        "prefix_bits": generation.design.tables[place].prefix_bits,
        "picture": standing_bars(bars),
        "rows": [(bar.name, f"{bar.value:,}") for bar in bars],
    }


def _format_range(name: str) -> str:
    return EN_DASH.join(f"{int(end):,}" for end in name.split("-"))
