"""Benchmarks of fpstore.

Named operations, one JSON object out with machine, ISA, seed and versions beside the figures.

    python tools/bench probe single --log2 26 --json-out probe.json
    python tools/bench probe --log2 24 --designs manku-10,flip-2 --data clustered
    python tools/bench growth frontier plots --plots-to docs
    python tools/bench plots --json-in growth.json --json-in frontier.json
    python tools/bench memory --log2 28 --memory 1GiB
    python tools/bench billion
    python tools/bench all --smoke                # small, asserts equality of answers, for CI

Figures are medians over repeated runs in one process, and ratios are taken against the rival timed
in the same run, which must give the same answers. The rivals that others wrote come with `pip
install faiss-cpu simhash`; where one is missing, the report says so. The uncompressed tables
(rival.cpp) are compiled for this machine.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench import (
    banded,
    billion,
    building,
    column_prices,
    cores,
    corpus,
    data,
    engines,
    far,
    filters,
    hashing,
    images,
    jobs,
    kernel,
    living,
    lsh,
    naming,
    near_vectors,
    oriented,
    passages,
    planning,
    plots,
    probing,
    removal,
    service,
    single,
    tasked,
    thresholds,
    vectors,
)
from bench.harness import Bench, Result, machine, versions
from fpstore.design.blocks import CODECS

OPERATIONS: dict[str, Callable[[Bench], Result]] = {
    "sizes": kernel.sizes,
    "decode": kernel.decode,
    "probe": probing.probe,
    "single": single.single,
    "growth": probing.growth,
    "frontier": probing.frontier,
    "build": building.build,
    "memory": building.memory,
    "start": building.start,
    "filters": filters.filter_sizes,
    "far": far.far,
    "radii": far.radii,
    "pairs": corpus.pairs,
    "clusters": corpus.clusters,
    "join": corpus.join,
    "cores": cores.cores,
    "passages": passages.passages,
    "removal": removal.removal,
    "bands": banded.bands,
    "tasks": tasked.tasks,
    "scale": tasked.scale,
    "spark": engines.spark,
    "thresholds": thresholds.thresholds,
    "jobs": jobs.jobs,
    "insert": living.insert,
    "probe-insert": living.probe_insert,
    "delta": living.delta,
    "merge": living.merge,
    "pause": living.pause,
    "service": service.service,
    "strings": naming.strings,
    "by-id": naming.by_id,
    "costs": planning.costs,
    "column-costs": column_prices.column_prices,
    "ranking": planning.ranking,
    "hash": hashing.hash_,
    "images": images.images,
    "orientations": oriented.orientations,
    "lsh": lsh.lsh,
    "p-stable": near_vectors.p_stable,
    "hyperplanes": vectors.hyperplanes,
    "billion": billion.billion,
    "plots": plots.plots,
}
BY_NAME_ONLY = (
    "billion",
    "plots",
    "removal",
    "scale",
    "spark",
)  # not part of `all`, except in a smoke run


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _parser() -> argparse.ArgumentParser:
    lines = [f"  {name:10} {work.__doc__}" for name, work in OPERATIONS.items()]
    parser = argparse.ArgumentParser(
        prog="python tools/bench",
        description=__doc__,
        epilog="\n".join(["operations:", *lines]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("operations", nargs="+", choices=["all", *OPERATIONS], metavar="OPERATION")
    parser.add_argument(
        "--log2",
        type=int,
        help="log2 of the number of fingerprints (by default each operation's own, mostly 24)",
    )
    parser.add_argument(
        "--rows",
        type=int,
        help="of bands: so many rows, such as 100000000, in place of its own sizes",
    )
    parser.add_argument(
        "--width", type=int, help="of far and ranking: the cases of this width alone"
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--processor-time",
        action="store_true",
        help="least processor time, not median time: for a machine that others use too, and one "
        "thread only",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--folder",
        type=Path,
        help="where to put the stores (in a temporary folder that is removed)",
    )
    parser.add_argument(
        "--smoke",
        action="store_true",
        help="small sizes, run once: shows that answers agree, not how fast",
    )
    parser.add_argument(
        "--json-out",
        type=Path,
        help="write the report here after each operation, and not to standard output",
    )
    parser.add_argument(
        "--designs", type=_names, help="comma-separated; by default each operation's own"
    )
    parser.add_argument(
        "--codecs",
        type=_names,
        default=CODECS,
        help="of probe, single and decode: huffman,elias-fano",
    )
    parser.add_argument(
        "--rivals", type=_names, default=(), help="of probe: those whose names contain one of these"
    )
    parser.add_argument(
        "--data",
        type=_names,
        default=tuple(data.KINDS),
        help="of probe and single: uniform,clustered",
    )
    parser.add_argument("--queries", type=int, default=1 << 22, help="most queries of a timed run")
    parser.add_argument("--memory", help="memory budget of the builds, such as 1GiB")
    parser.add_argument(
        "--texts",
        type=Path,
        help="of copies: a folder of texts; by default the documentation of this machine",
    )
    parser.add_argument(
        "--pictures",
        type=Path,
        help="of orientations: a folder of pictures; by default drawn ones",
    )
    parser.add_argument("--only", type=_names, help="of removal: sets, such as prose,code")
    parser.add_argument(
        "--tool",
        action="append",
        help="of removal: a setting of fpstore, or a rival (repeatable)",
    )
    parser.add_argument(
        "--held-out",
        action="store_true",
        help="of removal: the sets that are held apart: other packages, releases and templates",
    )
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        help="of removal: another interpreter to look for rivals in (repeatable)",
    )
    parser.add_argument(
        "--large",
        action="store_true",
        help="of lsh: one index of 2^26 sketches alone; takes 20 GB of disk",
    )
    parser.add_argument(
        "--json-in",
        type=Path,
        action="append",
        default=[],
        help="of plots: an earlier report (repeatable)",
    )
    parser.add_argument(
        "--plots-to", type=Path, default=Path(), help="of plots: the folder of the pictures"
    )
    return parser


def main() -> None:
    """Run the operations that were named and report."""
    parser = _parser()
    args = parser.parse_args()
    if unknown := set(args.data) - set(data.KINDS):
        parser.error(f"unknown --data {', '.join(unknown)}")
    if unknown := set(args.codecs) - set(CODECS):
        parser.error(f"unknown --codecs {', '.join(unknown)}")
    names = args.operations
    if "all" in names:
        names = [name for name in OPERATIONS if args.smoke or name not in BY_NAME_ONLY]
    with tempfile.TemporaryDirectory(dir=args.folder, prefix="fpstore-bench-") as folder:
        bench = Bench(args, Path(folder))
        command = re.sub(
            r" --(?:json-out|folder)[ =]\S+",
            "",
            shlex.join(["python", "tools/bench", *sys.argv[1:]]),
        )
        bench.report.update(
            command=command,
            machine=machine(),
            versions=versions(),
            seed=args.seed,
            log2=args.log2,
            width=args.width,
            repeats=bench.repeats,
            smoke=args.smoke,
        )
        for name in names:
            print(f"{name} ...", file=sys.stderr, flush=True)
            bench.report[name] = OPERATIONS[name](bench)
            if args.json_out:
                args.json_out.write_text(
                    json.dumps(bench.report, indent=2) + "\n", encoding="utf-8"
                )
            bench.forget()
        if not args.json_out:
            print(json.dumps(bench.report, indent=2))
