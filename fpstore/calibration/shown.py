"""What people see of a calibration.

Cells of tables, for the terminal and for the page, and the page.
"""

from __future__ import annotations

from typing import Any

from fpstore.base.width import WORD_BITS
from fpstore.calibration.advice import Suggestion, false_pairs
from fpstore.calibration.job import Calibration
from fpstore.calibration.measures import Measured, Rate
from fpstore.errors import counted
from fpstore.pages import render
from fpstore.pages.pictures import Bar, few, line_picture, lines

_SETTING, _FOUND, _REMOVED = (
    ("setting", "width", "radius"),
    ("recall", "95%"),
    ("removed", "grouped", "wrong", "by chars"),
)
_PRICE = ("false pairs", "design", "bytes/fp", "µs")
_SHOWN_RADII = (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24)  # at 64 bits
MOST_NAME = 26  # characters beside a bar on a narrow screen; the table below has the whole name
EN_DASH = "\u2013"
_EMPTY = {"documents": "empty", "pictures": "blank or nearly so"}
_SHORTENED = {"documents": "shortened", "pictures": "made smaller"}


def radii_of(width: int) -> list[int]:
    """Return the radii that tables show.

    At 64 bits 0 to 8 and some up to 24, at other widths in proportion.
    """
    return sorted({round(radius * width / WORD_BITS) for radius in _SHOWN_RADII})


def percent(rate: Rate) -> str:
    """Return a share in percent; nothing without cases."""
    return f"{rate.value:.1%}" if rate.total else ""


def interval(rate: Rate) -> str:
    """Return the ends of the confidence interval."""
    low, high = rate.interval
    return f"{100 * low:.1f}{EN_DASH}{100 * high:.1f}%"


def pairs_expected(number: float, observed: bool) -> str:
    """Return an expected number of pairs; one that is extrapolated begins with a tilde."""
    digits = f"{number:,.0f}" if number >= 10 else f"{number:.1g}"
    return digits if observed else f"~{digits}"


def summary(found: Calibration) -> tuple[tuple[str, ...], list[tuple[str, ...]], tuple[int, int]]:
    """Return headings, a row for each setting, and which columns are words.

    What is removed is counted of texts.
    """
    is_of_texts = found.evidence.drawn is not None
    headings = (
        *_SETTING,
        *(("threshold",) if is_of_texts else ()),
        *_FOUND,
        *(_REMOVED if is_of_texts else ()),
        *_PRICE,
    )
    return (
        headings,
        [_summary(one, len(headings)) for one in found.suggestions],
        (0, headings.index("design")),
    )


def _summary(one: Suggestion, columns: int) -> tuple[str, ...]:
    first = (one.measured.setting.name, str(one.measured.width))
    if one.radius is None or one.plan is None:
        return (*first, "none", *[""] * (columns - 3))
    threshold: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    if one.removal is not None:
        threshold = ("" if one.threshold is None else f"{one.threshold:.2f}",)
        unlike = (one.removal.unlike_words, one.removal.unlike_characters)
        removed = (
            f"{one.removal.documents:,}",
            f"{one.removal.of:,}",
            *(percent(Rate(some, max(one.removal.documents, 1))) for some in unlike),
        )
    return (
        *first,
        str(one.radius),
        *threshold,
        percent(one.recall),
        interval(one.recall),
        *removed,
        pairs_expected(one.false_pairs, one.observed),
        one.plan.name,
        f"{one.plan.bytes_per_fingerprint:.1f}",
        few(one.plan.microseconds) if one.plan.microseconds >= 0.05 else "<0.1",
    )


def recall_table(one: Measured) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows.

    For each kind of near-duplicates, the share that each radius finds.
    """
    radii = radii_of(one.width)
    rows = [
        [name, *(f"{each.within(r).value:.0%}" for r in radii)]
        for name, each in one.duplicates.items()
    ]
    if len(rows) > 1:
        rows.append(["all", *(f"{one.recall(r).value:.0%}" for r in radii)])
    if one.different is not None and one.different.within(0).total:
        rows.append(
            ["labelled different", *(f"{one.different.within(r).value:.0%}" for r in radii)]
        )
    return ["kind", *map(str, radii)], rows


def false_pairs_table(
    one: Measured, documents: int
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return headings and rows.

    For each radius, the recall, the share of strangers, and the false pairs expected.
    """
    rows: list[tuple[str, ...]] = []
    for radius in range(max(radii_of(one.width)) + 1):
        recall, rate = one.recall(radius), one.strangers.within(radius)
        expected = pairs_expected(false_pairs(one, radius, documents), one.tail.is_observed(radius))
        rows.append(
            (
                str(radius),
                percent(recall),
                interval(recall),
                f"{rate.value:.2g}",
                f"{rate.interval[1]:.2g}",
                expected,
            )
        )
    return ("radius", "recall", "95%", "strangers within", "at most (95%)", "false pairs"), rows


def facts_of(found: Calibration) -> list[tuple[str, str]]:
    """Return what was looked at, as names and values."""
    evidence, facts = found.evidence, found.facts
    pairs = sum(each.shape[1] for each in evidence.duplicates.values())
    strangers = evidence.documents * (evidence.documents - 1) // 2 - evidence.resembling.shape[1]
    out = [
        (facts.items, f"{facts.documents + facts.empty:,}"),
        *([(f"{_EMPTY[facts.items]}, left out", f"{facts.empty:,}")] if facts.empty else []),
        ("looked at", f"{evidence.documents:,}"),
        ("near-duplicates", counted(pairs, "pair")),
        ("strangers", counted(strangers, "pair")),
    ]
    if evidence.drawn is not None:
        out.insert(len(out) - 2, ("grouped as by dedup", f"{len(evidence.drawn):,}"))
    if evidence.resembling.shape[1]:
        out.append(
            (
                "similar pairs, not counted as strangers",
                counted(evidence.resembling.shape[1], "pair"),
            )
        )
    if evidence.alike:
        out.append(("near-duplicates of these, left out", f"{evidence.alike:,}"))
    if facts.shortened:
        out.append((_SHORTENED[facts.items], f"{facts.shortened:,}"))
    return out


def wanted(found: Calibration) -> str:
    """Return what the suggestions are for, as the rest of a sentence."""
    wish = found.wish
    parts = [f"{wish.documents:,} {found.facts.items}"]
    if wish.recall is not None:
        parts.append(f"recall of {wish.recall:.3g} or more")
    if wish.most_false is not None:
        parts.append(f"at most {pairs_expected(wish.most_false, True)} false pairs")
    if found.evidence.drawn is not None:
        parts.append(f"at most {100 * wish.most_wrong:.3g}% removed wrongly")
    return ", ".join(parts)


def verdict(found: Calibration) -> str:
    """Return which setting is suggested; or that none is, and which comes nearest."""
    first = found.suggestions[0]
    named = f"{first.measured.setting.name} with radius {first.radius}"
    if first.fits:
        return f"Suggested: {named}."
    nearest = (
        ""
        if first.radius is None
        else f" Nearest is {named}: {first.wrong:.1%} of what it removes is removed wrongly."
    )
    return (
        "No setting meets the wish: allow more, ask for less recall, or compare other "
        f"settings.{nearest}"
    )


def page_of(found: Calibration) -> str:
    """Return the page in HTML."""
    first, documents = found.suggestions[0], found.wish.documents
    bars = [
        Bar(
            f"{_cut(one.measured.setting.name)}, radius {one.radius}",
            one.recall.value,
            percent(one.recall),
            one is not first,
        )
        for one in found.suggestions
        if one.radius is not None
    ]
    headings, rows, words = summary(found)
    return render(
        "calibration.html",
        wanted=wanted(found),
        facts=[(name.capitalize(), value) for name, value in facts_of(found)],
        verdict=verdict(found),
        bars=bars,
        summary=([name if name == "µs" else name.capitalize() for name in headings], rows),
        words=words[1:],
        wish=found.wish,
        settings=[_setting(one.measured, documents) for one in found.suggestions],
        documents=documents,
        items=found.facts.items,
    )


def _cut(name: str) -> str:
    return name if len(name) <= MOST_NAME else f"{name[: MOST_NAME - 1]}…"


def _setting(found: Measured, documents: int) -> dict[str, Any]:
    """Return what the page shows of a setting."""
    radii = range(max(radii_of(found.width)) + 1)
    names = list(map(str, radii))
    rates = [found.strangers.within(r) for r in radii]
    pairs = documents * (documents - 1) / 2
    expected = [false_pairs(found, r, documents) for r in radii]
    return {
        "name": found.setting.name,
        "shares": line_picture(
            [[rate.value for rate in rates], [found.recall(r).value for r in radii]], names
        ),
        "false_pairs": lines([[pairs * rate.interval[1] for rate in rates], expected], names),
        "recall": recall_table(found),
        "numbers": false_pairs_table(found, documents),
    }
