"""Measures settings of fpstore and other simhashes on real texts of several kinds.

    python tools/calibration                                   # all corpora
    python tools/calibration short classical --sample 600      # some
    python tools/calibration --folder packages --json          # keep the downloads; print JSON
    python tools/calibration --tails                           # how true extrapolated shares of strangers are
    python tools/calibration --plots-to docs                   # also draw the pictures of docs/guides/calibration.md (needs matplotlib)
    python tools/calibration --json-in found.json --plots-to . # draw what an earlier run printed with --json

Downloads the packages that tools/calibration/corpora.py names, with apt-get and pip. Prints tables
in Markdown: the recall of near-duplicates at equal shares of strangers. Between two radii, recall
and share are interpolated, as on a ROC curve.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from calibration.baselines import TextDedupSimhash
from calibration.corpora import CORPORA, texts_of
from calibration.plots import draw
from calibration.tails import tails_of
from fpstore.base.resources import Resources, parse_threads
from fpstore.calibration.evidence import SampledPairs, evidence_of_changes, fingerprints_of
from fpstore.calibration.measures import Distances, Measured, measured
from fpstore.calibration.perturbations import CHANGES
from fpstore.calibration.request import BOUND
from fpstore.calibration.samples import LONGEST
from fpstore.calibration.seeded import Draws
from fpstore.calibration.settings import SETTINGS, Setting, parse_setting
from fpstore.hashing import SimHash

RATES = (1e-3, 1e-4, 1e-5)
SHOWN_RATE = 1e-4
SHOWN_RADIUS = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="tools/calibration", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "corpora",
        nargs="*",
        metavar="CORPUS",
        help=f"which of {', '.join(CORPORA)}; by default all",
    )
    parser.add_argument("--sample", type=int, default=1500, help="documents of each")
    parser.add_argument("--copies", type=int, default=200, help="copies of each kind of change")
    parser.add_argument(
        "--setting",
        action="append",
        help="parameters of SimHash; by default those of fpstore calibrate",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int)
    parser.add_argument(
        "--folder", type=Path, help="where downloads are kept; by default they are not"
    )
    parser.add_argument(
        "--tails",
        action="store_true",
        help="compare extrapolated shares of strangers with observed ones",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--json-in", type=Path, help="measure nothing: take the JSON of an earlier run"
    )
    parser.add_argument(
        "--plots-to", type=Path, metavar="FOLDER", help="draw pictures of the usual settings"
    )
    options = parser.parse_args(arguments)
    if options.tails and (options.json_in or options.plots_to):
        parser.error("--tails has no pictures: leave --json-in and --plots-to out")
    if options.plots_to and options.setting:
        parser.error("pictures are of the usual settings: leave --setting out")
    unknown = sorted(set(options.corpora) - set(CORPORA))
    if unknown:
        parser.error(f"no corpus {', '.join(unknown)}: there are {', '.join(CORPORA)}")
    if options.json_in:
        if options.corpora:
            parser.error("--json-in has its corpora: name none")
        return _show(json.loads(options.json_in.read_text(encoding="utf-8")), options)
    baselines = (
        Setting("simhash-package", SimHash.of_simhash_package()),
        Setting("text-dedup", TextDedupSimhash()),
    )
    usual = (name for name in SETTINGS if "threshold" not in name)  # every radius is measured
    settings = [*map(parse_setting, options.setting or usual), *baselines]
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        folder, names = folder.resolve(), options.corpora or list(CORPORA)
        if options.tails:
            threads = parse_threads(options.threads)
            tails = {
                name: tails_of(_cut(texts_of(name, folder)), options.seed, threads)
                for name in names
            }
            print(json.dumps(tails, indent=1)) if options.json else _print_tails(tails)
            return 0
        found = {name: _corpus(name, folder, settings, options) for name in names}
    return _show(found, options)


def _show(found: dict[str, dict[str, Any]], options: argparse.Namespace) -> int:
    """Draw and print the figures."""
    if options.plots_to:
        draw(found, options.plots_to)
    print(json.dumps(found, indent=1)) if options.json else _print(found)
    return 0


def _corpus(
    name: str, folder: Path, settings: Sequence[Setting], options: argparse.Namespace
) -> dict[str, Any]:
    """Return the figures of a corpus."""
    texts = _cut(texts_of(name, folder))
    places = Draws(options.seed, name).places(len(texts), options.sample)
    sample = [texts[place] for place in places]
    resources = Resources(0, parse_threads(options.threads))
    evidence = evidence_of_changes(sample, CHANGES, options.copies, options.seed, BOUND, resources)
    lengths = sorted(map(len, sample))
    return {
        "package": CORPORA[name].package,
        "documents": len(texts),
        "sample": len(sample),
        "median_characters": lengths[len(lengths) // 2],
        "left_out": evidence.alike,
        "settings": {
            setting.name: _figures(evidence, setting, resources.threads) for setting in settings
        },
    }


def _figures(evidence: SampledPairs, setting: Setting, threads: int) -> dict[str, Any]:
    found = measured(evidence, setting, fingerprints_of(evidence.items, setting, threads))
    return {
        "recall_at_rate": {
            f"{rate:g}": recall_at(found, found.all_duplicates, rate) for rate in RATES
        },
        "by_kind": {
            kind: recall_at(found, each, SHOWN_RATE) for kind, each in found.duplicates.items()
        },
        "recall_by_radius": [found.recall(radius).value for radius in range(found.width + 1)],
        "strangers_by_radius": [
            found.strangers.within(radius).value for radius in range(found.width + 1)
        ],
    }


def _cut(texts: list[str]) -> list[str]:
    return [text[:LONGEST] for text in texts]


def recall_at(found: Measured, duplicates: Distances, rate: float) -> float:
    """Return the recall where a share of strangers is within the radius, interpolated between two radii."""
    share = recall = 0.0
    for radius in range(found.width + 1):
        next_share, next_recall = (
            found.strangers.within(radius).value,
            duplicates.within(radius).value,
        )
        if next_share > rate:
            return recall + (next_recall - recall) * (rate - share) / (next_share - share)
        share, recall = next_share, next_recall
    return recall


def _print(found: dict[str, dict[str, Any]]) -> None:
    names = list(found)
    print("| corpus | package | documents | sample | median length |\n|---|---|---|---|---|")
    for name, each in found.items():
        cells = (
            name,
            f"`{each['package']}`",
            f"{each['documents']:,}",
            f"{each['sample']:,}",
            f"{each['median_characters']:,}",
        )
        print("|", " | ".join(cells), "|")
    settings = list(found[names[0]]["settings"])
    for rate in RATES:
        print(f"\nRecall where a share of {rate:g} of strangers is within the radius:\n")
        print("| setting |", " | ".join(names), "|\n|---|" + "---|" * len(names))
        for setting in settings:
            values = [
                found[name]["settings"][setting]["recall_at_rate"][f"{rate:g}"] for name in names
            ]
            print(f"| `{setting}` |", " | ".join(f"{value:.1%}" for value in values), "|")
    print(
        f"\nRecall within {SHOWN_RADIUS} bits; in brackets the share of strangers, if there are "
        "any:\n"
    )
    print("| setting |", " | ".join(names), "|\n|---|" + "---|" * len(names))
    for setting in settings:
        print(
            f"| `{setting}` |",
            " | ".join(_near(found[name]["settings"][setting]) for name in names),
            "|",
        )
    print(f"\nBy kind of change, the mean over corpora, at {SHOWN_RATE:g}:\n")
    kinds = [change.name for change in CHANGES]
    print("| setting |", " | ".join(kinds), "|\n|---|" + "---|" * len(kinds))
    for setting in settings:
        print(f"| `{setting}` |", " | ".join(_mean(found, setting, kind) for kind in kinds), "|")


def _near(figures: dict[str, Any]) -> str:
    """Return the recall within the shown radius, and the share of strangers."""
    strangers = figures["strangers_by_radius"][SHOWN_RADIUS]
    return f"{figures['recall_by_radius'][SHOWN_RADIUS]:.1%}" + (
        f" ({strangers:.0e})" if strangers else ""
    )


def _print_tails(found: dict[str, list[dict[str, Any]]]) -> None:
    print(
        "| corpus | documents | setting | radius | extrapolated | observed "
        "|\n|---|---|---|---|---|---|"
    )
    for name, rows in found.items():
        for row in rows:
            shares = f"{row['extrapolated']:.1e} | {row['observed']:.1e}"
            print(
                f"| {name} | {row['documents']:,} | `{row['setting']}` | {row['radius']} | "
                f"{shares} |"
            )


def _mean(found: dict[str, dict[str, Any]], setting: str, kind: str) -> str:
    """Return the mean of the corpora in which there are such changes."""
    values = [
        each["settings"][setting]["by_kind"][kind]
        for each in found.values()
        if kind in each["settings"][setting]["by_kind"]
    ]
    return f"{sum(values) / len(values):.0%}" if values else ""
