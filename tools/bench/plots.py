"""The operation plots: pictures of growth, frontier and radii, from reports (`--json-in`)."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

from bench.harness import Bench, Result

# What the picture of the frontier shows of the rivals, and how it calls them; the simhash package
# cannot take sets as large.
SHOWN = {
    "faiss IndexBinaryMultiHash 2x32 nflip=1": "FAISS MultiHash 2 x 32, 1 flip",
    "faiss IndexBinaryMultiHash 4x16 nflip=0": "FAISS MultiHash 4 x 16",
    "faiss IndexBinaryFlat": "FAISS Flat (a scan)",
}
STYLES = {"fpstore": ("o", "tab:blue"), "in memory, uncompressed": ("s", "tab:orange")}


def plots(bench: Bench) -> Result:
    """Draw growth.png, frontier.png and radii.png into `--plots-to`."""
    try:
        import matplotlib as mpl
    except ImportError:
        return {"missing": "matplotlib is missing: pip install matplotlib"}
    mpl.use("Agg")
    report: Result = {}
    for path in bench.options.json_in:
        report.update(json.loads(path.read_text(encoding="utf-8")))
    report.update(bench.report)
    drawn: dict[str, str] = {}
    for name, draw in (("growth", _growth), ("frontier", _frontier), ("radii", _radii)):
        if name in report:
            path = (bench.folder if bench.smoke else bench.options.plots_to) / f"{name}.png"
            draw(report[name], path)
            drawn[name] = path.name
    return drawn or {
        "skipped": "no growth, frontier or radii, neither in this run nor with --json-in"
    }


def _axes(title: str, x: str, y: str) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    axes.grid(True, which="major", alpha=0.3)
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    return figure, axes


def _growth(report: Result, path: Path) -> None:
    figure, axes = _axes(
        "Radius 3, uniform fingerprints, page cache warm",
        "fingerprints",
        "microseconds per query, one thread",
    )
    for design, result in report.items():
        color = None
        for key, style, how in (
            ("single_median_microseconds", "s--", "one at a time"),
            ("microseconds", "o-", "in a batch"),
        ):
            points = {1 << p["log2"]: p[key] for p in result["points"] if key in p}
            (line,) = axes.plot(
                [*points], [*points.values()], style, color=color, label=f"{design}, {how}"
            )
            color = line.get_color()
        axes.set_xticks([1 << p["log2"] for p in result["points"]])
    axes.set_xscale("log", base=2)
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left")
    figure.savefig(path, dpi=120)


def _frontier(report: Result, path: Path) -> None:
    n = report["n"].bit_length() - 1
    figure, axes = _axes(
        f"Exact answers at radius 3, $2^{{{n}}}$ uniform fingerprints",
        "bytes per fingerprint, ids included",
        "microseconds per query in a batch, one thread",
    )
    names: list[str] = []
    places: list[tuple[float, float]] = []
    for label, (marker, color) in STYLES.items():
        points = [p for p in map(_point, report["points"]) if p is not None and p[0] == label]
        axes.scatter(
            [p[2] for p in points],
            [p[3] for p in points],
            s=50,
            marker=marker,
            color=color,
            label=label,
            zorder=3,
        )
        names += [p[1] for p in points]
        places += [p[2:] for p in points]
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.margins(x=0.15, y=0.15)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
    legend = axes.legend(loc="upper right")
    _label(figure, axes, legend, names, places)
    figure.savefig(path, dpi=120)


def _radii(report: Result, path: Path) -> None:
    figure, axes = _axes(
        "Uniform fingerprints, designs that auto takes",
        "radius",
        "microseconds per query in a batch, one thread",
    )
    for width, result in report.items():
        points = result["points"]
        radii = [p["radius"] for p in points]
        label = f"{width} bits, $2^{{{result['log2']}}}$"
        (line,) = axes.plot(radii, [p["microseconds"] for p in points], "o-", label=label)
        axes.plot(
            radii,
            [p["scan_microseconds"] for p in points],
            "--",
            color=line.get_color(),
            label=f"{label}, a scan",
        )
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=120)


def _point(point: Result) -> tuple[str, str, float, float] | None:
    """Return group, name, bytes and microseconds of a point that the picture shows."""
    if "microseconds" not in point or "limit" in point:
        return None
    if point["kind"] == "design":
        return "fpstore", point["name"], point["bytes_with_ids"], point["microseconds"]
    if point["name"] not in SHOWN:
        return None
    return (
        "in memory, uncompressed",
        SHOWN[point["name"]],
        point["bytes_per_fingerprint"],
        point["microseconds"],
    )


def _label(
    figure: Any, axes: Any, legend: Any, names: list[str], places: list[tuple[float, float]]
) -> None:
    """Write each name beside its point, clear of other names, points, the legend and the edge."""
    from matplotlib.transforms import Bbox

    figure.canvas.draw()
    inside = axes.get_window_extent()
    dots = axes.transData.transform(places)
    taken = [legend.get_window_extent(), *(Bbox.from_bounds(x - 8, y - 8, 16, 16) for x, y in dots)]
    sides = [
        *product(("left", "right"), ("center", "bottom", "top")),
        ("center", "bottom"),
        ("center", "top"),
    ]
    for name, place in zip(names, places, strict=True):
        # the nearest first; the last one anyway
        for times, (across, along) in product(range(1, 5), sides):
            offset = (
                {"left": 9, "right": -9, "center": 0}[across],
                {"bottom": 7, "top": -7, "center": 0}[along] * times,
            )
            text = axes.annotate(
                name, place, offset, textcoords="offset points", ha=across, va=along, fontsize=9
            )
            box = text.get_window_extent()
            fits = (
                inside.containsx(box.x0)
                and inside.containsx(box.x1)
                and not any(box.overlaps(other) for other in taken)
            )
            if fits or (times, across, along) == (4, *sides[-1]):
                taken.append(box)
                break
            text.remove()
