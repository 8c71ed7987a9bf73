"""Pictures of what was measured: recall by radius, and distances of copies and of strangers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

#: The settings that are drawn, and what the pictures call them.
RECALL = {
    "shingle=auto,size=1": "size=1 (default)",
    "shingle=auto,size=2": "size=2",
    "shingle=chars,size=5": "chars,size=5",
    "shingle=auto,size=2,width=128": "size=2,width=128",
}
DISTANCES = ("shingle=auto,size=1", "shingle=chars,size=5", "shingle=auto,size=2,width=128")
RATE = 1e-4
LONGEST = 44  # the largest radius that is drawn

Found = dict[str, dict[str, Any]]


def draw(found: Found, folder: Path) -> None:
    """Draw calibration-recall.png and calibration-distances.png of the figures that the command prints as JSON."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise SystemExit("pictures need matplotlib: pip install matplotlib") from None
    mpl.use("Agg")
    _recall(found, folder / "calibration-recall.png")
    _distances(found, folder / "calibration-distances.png")


def last_radius(strangers: Sequence[float], rate: float) -> int:
    """Return the largest radius within which no more than a share of strangers are.

    -1 if there is none.
    """
    return sum(share <= rate for share in strangers) - 1


def shares(within: Sequence[float]) -> list[float]:
    """Return the share at each distance, from the shares within each radius."""
    return [following - share for share, following in pairwise([0.0, *within])]


def _recall(found: Found, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6.4), layout="constrained")
    panels = figure.subplots(
        -(-len(found) // 3), min(len(found), 3), sharex=True, sharey=True, squeeze=False
    )
    for axes, (corpus, each) in zip(panels.flat, found.items(), strict=False):
        axes.set_title(corpus)
        axes.grid(True, alpha=0.3)
        for setting, label in RECALL.items():
            figures = each["settings"][setting]
            recall = figures["recall_by_radius"][: LONGEST + 1]
            (line,) = axes.plot(range(len(recall)), recall, label=label)
            last = last_radius(figures["strangers_by_radius"], RATE)
            if 0 <= last < len(recall):
                axes.plot([last], [recall[last]], "o", color=line.get_color())
        axes.set_xlim(0, LONGEST)
        axes.set_ylim(0, 1.03)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    for axes in panels.flat[len(found) :]:
        axes.set_visible(False)
    handles, labels = panels.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    figure.supxlabel(
        "radius in bits; the dot: the largest with at most one in ten thousand pairs of strangers",
        fontsize=11,
    )
    figure.supylabel("copies found", fontsize=11)
    figure.savefig(path, dpi=100)


def _distances(found: Found, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 1.9 * len(found) + 0.6), layout="constrained")
    panels = figure.subplots(len(found), len(DISTANCES), sharex="col", squeeze=False)
    for row, (corpus, each) in zip(panels, found.items(), strict=True):
        for axes, setting in zip(row, DISTANCES, strict=True):
            figures = each["settings"][setting]
            for key, label, color in (
                ("recall_by_radius", "copies", "tab:blue"),
                ("strangers_by_radius", "strangers", "tab:orange"),
            ):
                heights = shares(figures[key])
                places = [x - 0.5 for x in range(len(heights) + 1)]
                axes.stairs(heights, places, fill=True, alpha=0.6, color=color, label=label)
            last = last_radius(figures["strangers_by_radius"], RATE)
            axes.axvline(last + 0.5, color="black", linewidth=0.8, linestyle="--")
            axes.set_xlim(-1, len(figures["recall_by_radius"]) * 0.7)
            axes.set_yticks([])
        row[0].set_ylabel(corpus)
    for axes, setting in zip(panels[0], DISTANCES, strict=True):
        axes.set_title(RECALL[setting])
    handles, labels = panels.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=2, frameon=False)
    figure.supxlabel(
        "distance in bits; to the left of the line is at most one in ten thousand pairs of "
        "strangers",
        fontsize=11,
    )
    figure.savefig(path, dpi=100)
