"""Pictures of numbers: where their bars, lines and words lie.

The template ``parts.html`` draws them in SVG.

Places across are in percent and places down in pixels, so a picture is as wide as the page, and its
letters keep their size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import ceil, floor, log10
from typing import Any, NamedTuple

TOP, FOOT = 12, 26  # pixels above and below what is drawn
LINES_HEIGHT = 200  # pixels
MIN_TICKS = 2
MAX_LABELS = 9
MIN_BAR_PIXELS = 1.5  # pixels of a bar that stands for more than nothing
SHORT = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))


class Bar(NamedTuple):
    """A bar: its name, value, value in words, and whether it stands out from the others."""

    name: str
    value: float
    words: str
    other: bool = False


# for the macro `drawn`: height, ticks, names, bars and series, the last of which is the main line
Picture = dict[str, Any]


class Scale(NamedTuple):
    """The axis beside the bars.

    It has the values with a line, their words, the value where bars begin, and the ends.
    """

    ticks: Sequence[float]
    words: Callable[[float], str]
    base: float
    low: float
    high: float

    def place(self, value: float, height: int) -> float:
        """Return the place of a value: pixels from the top."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return TOP + height * (1 - share)

    def picture(self, height: int, names: Iterable[tuple[float, str]], **drawn: Any) -> Picture:
        """Return a picture of bars or series beside this scale."""
        ticks = [
            {"y": self.place(tick, height), "words": self.words(tick), "is_base": tick == self.base}
            for tick in self.ticks
        ]
        return {"height": TOP + height + FOOT, "ticks": ticks, "names": list(names), **drawn}


SHARES = Scale((0, 0.25, 0.5, 0.75, 1), "{:.0%}".format, 0, 0, 1)


def standing_bars(bars: Sequence[Bar], scale: Scale | None = None, height: int = 160) -> Picture:
    """Return a picture of many bars beside each other; some of their names are below."""
    scale = scale or counts_up_to(max((bar.value for bar in bars), default=0))
    step, drawn = 100 / max(len(bars), 1), list[dict[str, Any]]()
    gap = 0.18 if len(bars) <= 80 else 0.0
    for number, bar in enumerate(bars):
        a, b = sorted((scale.place(bar.value, height), scale.place(scale.base, height)))
        tall = max(b - a, MIN_BAR_PIXELS if bar.value != scale.base else 0)
        top = b - tall if bar.value > scale.base else a
        drawn.append(
            {
                "bar": bar,
                "x": (number + gap / 2) * step,
                "y": top,
                "width": step * (1 - gap),
                "height": tall,
            }
        )
    every = ceil(len(bars) / MAX_LABELS)
    if len(bars) > 12:
        every = next(step for step in (1, 2, 4, 8, 16, 32, 64) if step >= every)
    names = (
        ((number + 0.5) * step, bar.name)
        for number, bar in enumerate(bars)
        if (int(bar.name) if bar.name.isdecimal() and len(bars) > 12 else number) % every == 0
    )
    return scale.picture(height, names, bars=drawn, series=[])


def lines(series: Sequence[Sequence[float]], names: Sequence[str]) -> Picture:
    """Return a picture of two lines over the same numbers, on a logarithmic scale.

    Values below a tenth lie at its lower end.
    """
    logs = [[log10(max(value, 0.1)) for value in values] for values in series]
    top = max(1, ceil(max(max(values) for values in logs)))
    every = ceil((top + 1) / 6)
    scale = Scale(
        [t for t in range(-1, top + 1) if t % every == 0],
        lambda t: format_short(10**t),
        -1,
        -1,
        top,
    )
    return line_picture(logs, names, scale)


def line_picture(
    series: Sequence[Sequence[float]], names: Sequence[str], scale: Scale = SHARES
) -> Picture:
    """Return a picture of two lines over the same numbers, by default of shares."""
    step = 100 / len(names)
    points = [
        [((i + 0.5) * step, scale.place(value, LINES_HEIGHT)) for i, value in enumerate(values)]
        for values in series
    ]
    every = ceil(len(names) / MAX_LABELS)
    below = (((i + 0.5) * step, name) for i, name in enumerate(names) if int(name) % every == 0)
    return scale.picture(LINES_HEIGHT, below, bars=[], series=points)


def counts_up_to(most: float) -> Scale:
    """Return a scale from 0 to a number that is at least ``most``, with some round numbers."""
    step = max(10.0 ** floor(log10(most / MIN_TICKS)), 1) if most > MIN_TICKS else 1.0
    for times in (5, 2):
        if most / (step * times) >= MIN_TICKS:
            step *= times
            break
    count = max(ceil(most / step), 1)
    return Scale([i * step for i in range(count + 1)], format_short, 0, 0, count * step)


def format_short(value: float) -> str:
    """Return a number in few characters: 12k, 3.4M."""
    for unit, letter in SHORT:
        if value >= unit:
            return f"{value / unit:.3g}{letter}"
    return f"{value:.3g}"


def format_small(value: float) -> str:
    """Return a number that may be small, with its significant digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
