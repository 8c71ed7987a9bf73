"""The page of a calibration: suggestions, and for each setting what a radius finds."""

from __future__ import annotations

from fpstore.calibration.advice import Suggestion, false_pairs
from fpstore.calibration.job import Calibration
from fpstore.calibration.tables import (
    SUMMARY,
    facts_of,
    false_pairs_table,
    percent,
    radii_of,
    recall_table,
    summary_rows,
    wanted,
)
from fpstore.jobs.markup import Html, element, joined
from fpstore.jobs.page_parts import boxes, figure, folded, keys, page, paragraph, section, table
from fpstore.jobs.pictures import Bar, lines, lying_bars, shares

MOST_NAME = 26  # characters beside a bar on a narrow screen; the table below has the whole name


def page_of(found: Calibration) -> str:
    """Return the page."""
    each = (_setting(one, found) for one in found.suggestions)
    return page("Which fingerprint, which radius", (_head(found), _suggested(found), *each))


def _head(found: Calibration) -> Html:
    return joined(
        [
            element("h1", "Which fingerprint, which radius"),
            element("p", f"A calibration of fpstore for {wanted(found)}.", class_="lead"),
            boxes((name.capitalize(), value) for name, value in facts_of(found)),
        ]
    )


def _suggested(found: Calibration) -> Html:
    first = found.suggestions[0]
    if first.radius is None:
        told = "No setting meets the wish: allow more false pairs, ask for less recall, or compare other settings."
    else:
        told = f"Suggested: {first.measured.setting.name} with radius {first.radius}."
    bars = [
        Bar(_named(one), one.recall.value, percent(one.recall), other=one is not first)
        for one in found.suggestions
        if one.radius is not None
    ]
    picture = (
        figure(lying_bars(bars, "Recall by setting", 1), "Near-duplicates found, with the radius of each setting:")
        if bars
        else Html()
    )
    return section(
        "Settings",
        paragraph(told),
        picture,
        table([name.capitalize() if name != "µs" else name for name in SUMMARY], summary_rows(found), left=(6,)),
        element(
            "p",
            f"False pairs are the pairs of strangers within the radius that are expected among these {found.facts.items}. "
            "A number with a tilde is extrapolated below the distances that the sample has met. Bytes and microseconds are from "
            "fpstore plan.",
            class_="note",
        ),
    )


def _named(one: Suggestion) -> str:
    name = one.measured.setting.name
    short = name if len(name) <= MOST_NAME else f"{name[: MOST_NAME - 1]}…"
    return f"{short}, radius {one.radius}"


def _setting(one: Suggestion, calibration: Calibration) -> Html:
    found, documents = one.measured, calibration.wish.documents
    radii = range(max(radii_of(found.width)) + 1)
    names = list(map(str, radii))
    recall = [found.recall(r).value for r in radii]
    strangers = [found.strangers.within(r).value for r in radii]
    pairs = documents * (documents - 1) / 2
    expected = [false_pairs(found, r, documents) for r in radii]
    highest = [pairs * found.strangers.within(r).interval[1] for r in radii]
    headings, rows = recall_table(found)
    more, all_rows = false_pairs_table(found, documents)
    return section(
        found.setting.name,
        figure(
            shares([strangers, recall], names, "Recall and strangers by radius"),
            "Pairs within the radius, by radius:",
            keys("near-duplicates", "strangers"),
        ),
        figure(
            lines([highest, expected], names, "False pairs by radius"),
            f"False pairs among {documents:,} {calibration.facts.items}, by radius:",
            keys("expected", "upper end of the 95% interval of what was observed"),
        ),
        element("h3", "Recall by kind of near-duplicates and radius"),
        table(headings, rows),
        folded(table(more, all_rows)),
    )
