"""The operation plots: pictures of growth and frontier, from this run or from JSON files (`--json-in`) of earlier ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.harness import Bench, Result


def plots(bench: Bench) -> Result:
    """Draw growth.png and frontier.png into `--plots-to`."""
    try:
        import matplotlib as mpl
    except ImportError:
        return {"missing": "matplotlib is missing: pip install 'fpstore[bench]'"}
    mpl.use("Agg")
    found: Result = {}
    for path in bench.options.inputs:
        found.update(json.loads(path.read_text(encoding="utf-8")))
    found.update(bench.report)
    drawn: dict[str, str] = {}
    for name, draw in (("growth", _growth), ("frontier", _frontier)):
        if name in found:
            path = bench.options.pictures / f"{name}.png"
            draw(found[name], path)
            drawn[name] = path.name
    return drawn or {"skipped": "no growth or frontier, neither in this run nor with --json-in"}


def _axes() -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    axes.grid(True, which="both", alpha=0.3)
    return figure, axes


def _growth(report: Result, path: Path) -> None:
    figure, axes = _axes()
    for design, result in report.items():
        points = [p for p in result["points"] if "microseconds" in p]
        sizes = [1 << p["log2"] for p in points]
        (line,) = axes.plot(sizes, [p["microseconds"] for p in points], "o-", label=f"{design}, probe_many")
        axes.plot(
            sizes,
            [p["single_median_microseconds"] for p in points],
            "s--",
            color=line.get_color(),
            label=f"{design}, probe, median",
        )
    axes.set_xscale("log", base=2)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("fingerprints")
    axes.set_ylabel("microseconds a probe, one thread")
    axes.set_title("Radius 3, uniform keys, page cache warm")
    axes.legend()
    figure.savefig(path, dpi=120)


def _frontier(report: Result, path: Path) -> None:
    figure, axes = _axes()
    styles = {"design": ("o", "fpstore"), "rival": ("s", "rivals"), "uncompressed": ("^", "uncompressed tables")}
    for kind, (marker, label) in styles.items():
        points = [p for p in report["points"] if p["kind"] == kind and "microseconds" in p and "limit" not in p]
        sizes = [p["bytes_per_fingerprint"] for p in points]
        axes.scatter(sizes, [p["microseconds"] for p in points], marker=marker, label=label, zorder=3)
        for point in points:
            axes.annotate(
                point["name"].removeprefix("faiss ").removeprefix("uncompressed "),
                (point["bytes_per_fingerprint"], point["microseconds"]),
                xytext=(5, 3), textcoords="offset points", fontsize=7,
            )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.margins(x=0.2)
    axes.set_xlabel("bytes a fingerprint (stores: tables; rivals: memory)")
    axes.set_ylabel("microseconds a query in a batch, one thread")
    axes.set_title(f"Radius 3, {report['n']:,} uniform keys, exact answers")
    axes.legend()
    figure.savefig(path, dpi=120)
