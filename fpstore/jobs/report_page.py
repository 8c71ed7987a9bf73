"""The page of a report: one file of HTML that needs nothing else, no network and no script."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fpstore.base.resources import shown_size
from fpstore.errors import counted
from fpstore.hashing.registry import in_words
from fpstore.jobs.markup import Html, element, joined
from fpstore.jobs.page_parts import boxes, few, figure, folded, keys, page, paragraph, section, table
from fpstore.jobs.pictures import Bar, Scale, lines, lying_bars, standing_bars
from fpstore.jobs.report import Codes, Family, Figures, Member, Skew

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
LONG_ID = 160  # characters; of a longer one, both ends are shown


def page_of(figures: Figures) -> str:
    """Return the page."""
    sections = (_head, _clusters, _families, _pairs, _sizes, _skew, _coding)
    return page(f"{figures.name}: report", (part(figures) for part in sections))


# Parts of the page


def _head(figures: Figures) -> Html:
    stats = figures.stats
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
    return joined(
        [
            element("h1", element("bdi", figures.name)),
            element(
                "p", "A store of fpstore: how near its documents are to each other, and the bytes that they take.", class_="lead"
            ),
            boxes(facts),
            element("p", _made(stats["fingerprinter"]), class_="note"),
        ]
    )


def _made(description: dict[str, Any] | None) -> str:
    if description is None:
        return "The store does not say how its fingerprints were made."
    return f"Fingerprints by {in_words(description)}."


def _sizes(figures: Figures) -> Html:
    stats, taken = figures.stats, figures.stats["bytes"]
    n, total = stats["fingerprints"], max(taken["total"], 1)
    bars = [
        Bar(name, taken[key], f"{shown_size(taken[key])}, {taken[key] / total:.1%}") for key, name in PARTS.items() if taken[key]
    ]
    named = {"tables": PARTS["tables"], "keys": "of these, keys in memory", **PARTS, "total": "All"}
    rows = [
        (name, f"{taken[key]:,}", f"{taken[key] / total:.1%}", f"{taken[key] / max(n, 1):.2f}") for key, name in named.items()
    ]
    columns = ("Part", "Bytes", "Share", "per fingerprint")[: 3 if stats["ratio_to_limit"] is None else 4]
    limit = round(stats["limit_bits_per_fingerprint"] * stats["delta"]["tables"] / 8)
    bounds = [("Raw fingerprints", n * stats["width"] // 8), ("The least that any set of as many can take", limit)]
    return section(
        "Size",
        figure(lying_bars(bars, "Bytes by part of the store", total), "Bytes on disk, by part."),
        table(columns, [row[: len(columns)] for row in rows]),
        element("h3", "Against the raw fingerprints"),
        _against(stats),
        table(("One copy of the fingerprints", "Bytes"), [(name, f"{value:,}") for name, value in bounds]),
    )


def _against(stats: dict[str, Any]) -> Html:
    if stats["ratio_to_limit"] is None:
        return paragraph("With fewer than 4,096 fingerprints, headers and pages outweigh the rest, so sizes say little here.")
    one = HOLDING.get(stats["design"]["tables"][0]["kind"], "One table")
    bits, limit = stats["bits_per_fingerprint"], stats["limit_bits_per_fingerprint"]
    bars = [
        Bar(f"{one} of this store", bits, f"{bits:.2f} bits"),
        Bar("The limit for any set of this size", limit, f"{limit:.2f} bits", other=True),
        Bar("Raw", stats["width"], f"{stats['width']} bits", other=True),
    ]
    told = f"{one} takes" if one == "One table" else f"{one} take"
    words = (
        f"{told} {stats['ratio_to_limit']:.3f} times the limit, log₂ of the number of sets of this size, "
        f"and {stats['ratio_to_raw']:.1%} of the raw size."
    )
    return figure(lying_bars(bars, "Bits per fingerprint against the limit and the raw size", stats["width"]), words)


def _coding(figures: Figures) -> Html:
    if figures.codes is not None:
        return _code(figures.codes, figures.stats)
    return _buckets(figures)


def _code(codes: Codes, stats: dict[str, Any]) -> Html:
    pairs, title = sum(codes.counts.values()), "First differing bit"
    if not pairs:
        return section(title, paragraph("The tables hold fewer than two fingerprints: there is nothing to code."))
    shown = range(min(codes.counts), max(codes.counts) + 1)
    if codes.bits:
        mean = sum(codes.counts[h] * codes.bits[h] for h in codes.counts) / pairs
        words = (
            "A table stores, for each fingerprint, the position h of the first bit in which it differs from the one before it, "
            f"by a Huffman code: {mean:.2f} bits on average in the first table."
        )
    else:
        words = (
            "The position h of the first bit in which a fingerprint of the first table differs from the one before it. The table "
            "is packed with the Elias-Fano codec, which has no code for it."
        )
    if stats["width"] > 64 and 64 in codes.counts:
        words += " The h 64 stands for neighbours whose first 64 bits are equal."
    counts = [Bar(str(h), codes.counts.get(h, 0), counted(codes.counts.get(h, 0), "fingerprint")) for h in shown]
    figures = [figure(standing_bars(counts, "Fingerprints by h"), "Fingerprints by h.")]
    bits = [Bar(str(h), codes.bits.get(h, 0), f"{codes.bits.get(h, 0)} bits", other=True) for h in shown]
    if codes.bits:
        figures.append(figure(standing_bars(bits, "Bits of the code by h", height=80), "Bits of the code by h."))
    headings = ("h", "Fingerprints", "Share", *(["Bits of the code"] if codes.bits else []))
    rows = [(str(h), f"{n:,}", f"{n / pairs:.2%}", str(codes.bits.get(h, "")))[: len(headings)] for h, n in codes.counts.items()]
    return section(
        title,
        paragraph(words),
        _sampled("the successive fingerprints of some parts of the table" if codes.sampled else None),
        *figures,
        folded(table(headings, rows)),
    )


def _buckets(figures: Figures) -> Html:
    found = figures.buckets
    assert found is not None
    names = [_range(name) for name in found.histogram]
    bars = [Bar(name, n, f"{n:,} buckets") for name, n in zip(names, found.histogram.values(), strict=True)]
    words = (
        f"Table {found.table} sorts the fingerprints into buckets by {found.prefix_bits} bits, and a look-up reads some of them. "
        "Bits that are far from random make a few large buckets."
    )
    return section(
        "Buckets",
        paragraph(words),
        figure(standing_bars(bars, "Buckets by size"), "Buckets by the number of fingerprints in them."),
        folded(table(("Fingerprints", "Buckets"), [(bar.name, f"{bar.value:,}") for bar in bars])),
    )


def _pairs(figures: Figures) -> Html:
    found, stats = figures.distances, figures.stats
    title, same = "Pairs", stats["ids"] - stats["fingerprints"]
    again = f"{same:,} further {'id has' if same == 1 else 'ids have'} the fingerprint of another id."
    if found is None:
        return section(title, paragraph(f"{again} Pairs of near fingerprints were left out of this report."))
    total = sum(found.counts)
    words = f"{counted(total, 'pair')} of different fingerprints within radius {figures.radius}. {again}"
    if found.stopped:
        words = f"The count stopped at {total:,} pairs of fingerprints within radius {figures.radius}; there are more. {again}"
    bars = [Bar("0", same, counted(same, "id"), other=True)]
    bars += [Bar(str(d), n, counted(n, "pair")) for d, n in enumerate(found.counts, 1)]
    rows = [("0", f"{same:,}", "further ids of a fingerprint")]
    rows += [(str(d), f"{n:,}", "pairs of fingerprints") for d, n in enumerate(found.counts, 1)]
    colours = keys("pairs of fingerprints", "further ids of a fingerprint")
    numbers = table(("Distance", "Number", ""), rows, left=(2,))
    return section(
        title,
        paragraph(words),
        figure(standing_bars(bars, "Pairs by distance"), "By distance, in bits:", colours) if total or same else Html(),
        numbers if len(rows) <= 12 else folded(numbers),
    )


def _clusters(figures: Figures) -> Html:
    found, title = figures.clusters, "Clusters"
    if found is None:
        return section(title, paragraph("Clusters were left out of this report."))
    if not len(found):
        return section(title, paragraph(f"No two of {counted(found.documents, 'document')} are within radius {figures.radius}."))
    share = found.duplicates / max(found.documents, 1)
    sizes = found.histogram()
    bars = [Bar(f"{_range(name)} documents", n, f"{n:,}, {n / len(found):.1%}") for name, n in sizes.items()]
    return section(
        title,
        paragraph(
            f"Of {found.documents:,} documents, {int(found.lims[-1]):,} are in {counted(len(found), 'cluster')} "
            f"{_joining(figures)}. One document of each cluster would stay: {found.duplicates:,} are duplicates ({share:.1%})."
        ),
        figure(lying_bars(bars, "Clusters by size", len(found)), "Clusters by the number of their documents."),
        folded(table(("Documents", "Clusters"), [(_range(name), f"{n:,}") for name, n in sizes.items()])),
    )


def _joining(figures: Figures) -> str:
    if figures.grouping == "greedy":
        return f"whose documents are within radius {figures.radius} of the first one"
    return f"that chains of pairs within radius {figures.radius} connect"


def _skew(figures: Figures) -> Html:
    skew, title = figures.skew, "Skew"
    if figures.stats["fingerprints"] < 2:
        return section(title, paragraph("A single fingerprint, or none, has no skew."))
    ones = [Bar(str(bit), share, f"{share:.2%}") for bit, share in enumerate(skew.ones)]
    scale = Scale((0, 0.25, 0.5, 0.75, 1), lambda share: f"{share:.0%}", 0.5, 0, 1)
    far = max(skew.ones, key=lambda share: abs(share - 0.5))
    words = (
        "A random bit is one in half of the fingerprints. The bit that is furthest from that is "
        f"bit {skew.ones.index(far)}: one in {far:.1%} of them. Bit 0 is the most significant."
    )
    return section(
        title,
        paragraph(words),
        _sampled(None if skew.sample is None else f"{skew.sample:,} fingerprints"),
        figure(standing_bars(ones, "Share of ones by bit", scale), "Share of ones, by bit."),
        folded(table(("Bit", "Share of ones"), [(bar.name, bar.words) for bar in ones])),
        _sharing(skew),
    )


def _sharing(skew: Skew) -> Html:
    if not skew.others:
        return Html()
    names = [str(bits) for bits in range(1, len(skew.others) + 1)]
    rows = [
        (name, few(here), few(even), f"{here / even:,.2f}")
        for name, here, even in zip(names, skew.others, skew.uniform, strict=True)
    ]
    picture = lines([skew.uniform, skew.others], names, "Fingerprints with the same leading bits, by the number of bits")
    caption = "Others with the same leading bits as a fingerprint, on average, by the number of bits:"
    return joined(
        [
            element("h3", "Shared leading bits"),
            figure(picture, caption, keys("this store", "random bits")),
            folded(table(("Leading bits", "Others", "of random bits", "times"), rows)),
        ]
    )


def _families(figures: Figures) -> Html:
    if not figures.largest:
        return Html()
    parts = [
        paragraph(
            "The number before each document is its distance to the first one, in bits."
            + ("" if figures.grouping == "greedy" else f" In a long chain, it can be more than {figures.radius}.")
        ),
        *([paragraph(f"{figures.missing} in the folder from which their paths were read.")] if figures.missing else []),
        element("h3", "The largest"),
        *map(_family, figures.largest),
    ]
    if figures.others:
        parts += [element("h3", "Some others"), *map(_family, figures.others)]
    return section("Families", *parts)


def _family(family: Family) -> Html:
    more = family.size - len(family.members)
    rows = [*map(_member, family.members)]
    if more:
        rows.append(element("li", element("span", class_="far"), element("span", f"and {more:,} more", class_="note")))
    return element("div", element("h4", f"{family.size:,} documents"), element("ol", *rows), class_="family")


def _member(member: Member) -> Html:
    said = member.found.text if member.found.text is not None else member.found.reason
    text = [element("p", element("bdi", cleaned(said)), class_="text")] if said else []
    what = element("div", element("bdi", short_id(str(member.id))), *text, class_="what")
    picture = member.found.thumbnail
    shown = [] if picture is None else [element("img", src=f"data:image/jpeg;base64,{picture}", alt="")]
    return element("li", element("span", str(member.distance), class_="far"), *shown, what)


# Pieces of parts


def _sampled(what: str | None) -> Html:
    return Html() if what is None else element("p", f"From a sample: {what}.", class_="note")


def _range(name: str) -> str:
    """Return ``1024-2047`` with thousands separators and a dash."""
    return EN_DASH.join(f"{int(end):,}" for end in name.split("-"))


def short_id(name: str) -> str:
    """Return an id, without the middle of a very long one."""
    half = LONG_ID // 2
    return name if len(name) <= LONG_ID else f"{name[:half]}…{name[-half:]}"


def cleaned(text: str) -> str:
    """Return a text with U+FFFD for controls, which a text holds by accident."""
    keep: Callable[[str], bool] = str.isprintable
    return "".join(c if keep(c) or c in "\u200c\u200d\ufe0f" else "\ufffd" for c in text)
