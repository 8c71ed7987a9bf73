"""Pictures of numbers in SVG: bars that lie, bars that stand, and lines.

Places across are in percent and places down in pixels, so a picture is as wide as the page, and its letters keep their size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import ceil, floor, log10
from typing import NamedTuple

from fpstore.jobs.markup import Html, element, joined

ROW, LYING = 40, 10  # pixels for a lying bar with its words, and of the bar
TOP, FOOT, GUTTER = 12, 26, 52  # pixels above and below bars that stand, and left of them
FEWEST_TICKS = 2
MOST_LABELS = 9
LEAST_SHOWN = 1.5  # pixels of a bar that stands for more than nothing
SHORT = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))


class Bar(NamedTuple):
    """A bar: its name, its value, the value in words, and whether it is of another kind than most."""

    name: str
    value: float
    words: str
    other: bool = False


class Scale(NamedTuple):
    """What stands beside the bars: the values with a line, how they read, the value where bars begin, and the ends."""

    ticks: Sequence[float]
    words: Callable[[float], str]
    base: float
    low: float
    high: float

    def place(self, value: float, height: int) -> float:
        """Return the place of a value: pixels from the top."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return TOP + height * (1 - share)


def lying_bars(bars: Sequence[Bar], title: str, whole: float) -> Html:
    """Return a picture of few bars, each with its name and its value above it: shares of a whole, which would fill the width."""
    rows = []
    for number, bar in enumerate(bars):
        top = number * ROW
        width = f"{100 * bar.value / whole:.2f}%"
        rows += [
            element("text", bar.name, x=0, y=top + 15, class_="name"),
            element("text", bar.words, x="100%", y=top + 15, text_anchor="end", class_="value"),
            element("rect", x=0, y=top + 22, width="100%", height=LYING, rx=2, class_="groove"),
            element("rect", x=0, y=top + 22, width=width, height=LYING, rx=2, class_="other" if bar.other else "bar"),
        ]
    return _picture(title, len(bars) * ROW, joined(rows))


def standing_bars(bars: Sequence[Bar], title: str, scale: Scale | None = None, height: int = 160) -> Html:
    """Return a picture of many bars beside each other; some of their names are below."""
    scale = scale or counts_up_to(max((bar.value for bar in bars), default=0))
    step, rects = 100 / max(len(bars), 1), []
    gap = 0.18 if len(bars) <= 80 else 0.0
    for number, bar in enumerate(bars):
        a, b = sorted((scale.place(bar.value, height), scale.place(scale.base, height)))
        tall = max(b - a, LEAST_SHOWN if bar.value != scale.base else 0)
        top = b - tall if bar.value > scale.base else a
        hint = element("title", f"{bar.name}: {bar.words}")
        across = {"x": f"{(number + gap / 2) * step:.3f}%", "width": f"{step * (1 - gap):.3f}%"}
        kind = "other" if bar.other else "bar"
        rects.append(element("rect", hint, **across, y=f"{top:.1f}", height=f"{tall:.1f}", class_=kind))
    every = ceil(len(bars) / MOST_LABELS) if len(bars) <= 12 else _round_step(len(bars) / MOST_LABELS)
    names = [
        element("text", bar.name, x=f"{(number + 0.5) * step:.3f}%", y=TOP + height + 18, text_anchor="middle", class_="tick")
        for number, bar in enumerate(bars)
        if (int(bar.name) if bar.name.isdecimal() and len(bars) > 12 else number) % every == 0
    ]
    return _beside(scale, joined([*rects, *names]), title, height)


def lines(series: Sequence[Sequence[float]], names: Sequence[str], title: str, height: int = 200) -> Html:
    """Return a picture of two lines over the same numbers, on a logarithmic scale; values below a tenth lie at its lower end."""
    logs = [[log10(max(value, 0.1)) for value in values] for values in series]
    top = max(1, ceil(max(max(values) for values in logs)))
    every = ceil((top + 1) / 6)
    scale = Scale([t for t in range(-1, top + 1) if t % every == 0], lambda t: short(10**t), -1, -1, top)
    return _two_lines(logs, names, title, scale, height)


def shares(series: Sequence[Sequence[float]], names: Sequence[str], title: str, height: int = 200) -> Html:
    """Return a picture of two lines of shares over the same numbers."""
    scale = Scale((0, 0.25, 0.5, 0.75, 1), lambda share: f"{share:.0%}", 0, 0, 1)
    return _two_lines(series, names, title, scale, height)


def _two_lines(series: Sequence[Sequence[float]], names: Sequence[str], title: str, scale: Scale, height: int) -> Html:
    step = 100 / len(names)
    drawn = []
    for values, kind in zip(series, ("other", "main"), strict=True):
        points = [(f"{(i + 0.5) * step:.3f}%", f"{scale.place(value, height):.1f}") for i, value in enumerate(values)]
        for (x1, y1), (x2, y2) in pairwise(points):
            drawn.append(element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=f"line {kind}"))
        drawn += [element("circle", cx=x, cy=y, r=3, class_=f"dot {kind}") for x, y in points]
    every = ceil(len(names) / MOST_LABELS)
    drawn += [
        element("text", name, x=f"{(i + 0.5) * step:.3f}%", y=TOP + height + 18, text_anchor="middle", class_="tick")
        for i, name in enumerate(names)
        if int(name) % every == 0
    ]
    return _beside(scale, joined(drawn), title, height)


def counts_up_to(most: float) -> Scale:
    """Return a scale from 0 to a number that is at least ``most``, with some round numbers."""
    step = max(10.0 ** floor(log10(most / FEWEST_TICKS)), 1) if most > FEWEST_TICKS else 1.0
    for times in (5, 2):
        if most / (step * times) >= FEWEST_TICKS:
            step *= times
            break
    count = max(ceil(most / step), 1)
    return Scale([i * step for i in range(count + 1)], short, 0, 0, count * step)


def short(value: float) -> str:
    """Return a number in few characters: 12k, 3.4M."""
    for unit, letter in SHORT:
        if value >= unit:
            return f"{value / unit:.3g}{letter}"
    return f"{value:.3g}"


def _round_step(least: float) -> int:
    return next(step for step in (1, 2, 4, 8, 16, 32, 64) if step >= least)


def _beside(scale: Scale, inner: Html, title: str, height: int) -> Html:
    """Return a picture with lines across for the values of a scale, and the values left of it, in a column of its own."""
    words, grid = [], []
    for tick in scale.ticks:
        y = scale.place(tick, height)
        grid.append(
            element("line", x1=0, x2="100%", y1=f"{y:.1f}", y2=f"{y:.1f}", class_="base" if tick == scale.base else "grid")
        )
        words.append(element("text", scale.words(tick), x=GUTTER - 8, y=f"{y + 4:.1f}", text_anchor="end", class_="tick"))
    whole = TOP + height + FOOT
    left = element("svg", *words, width=GUTTER, height=whole, aria_hidden="true")
    return element("div", left, _picture(title, whole, joined([*grid, inner])), class_="beside")


def _picture(title: str, height: int, inner: Html) -> Html:
    return element("svg", element("title", title), inner, role="img", aria_label=title, width="100%", height=height)
