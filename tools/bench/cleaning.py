"""The operation join: pairs of two sets. And the texts of this machine."""

from __future__ import annotations

import shutil
import sysconfig
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

import fpstore
from bench import data
from bench.corpus import RADIUS
from bench.harness import Bench, Result, ratio

QUERY_LOG2 = 20
DOCUMENTATION = (".txt", ".md", ".rst")
SUFFIXES = (".py", ".pyi", ".txt", ".md", ".rst", ".html", ".h", ".c", ".hpp", ".json")
MAX_BYTES, SMOKE_BYTES = 300 << 20, 1 << 20
MAX_TEXT_BYTES = 1 << 20


def join(bench: Bench) -> Result:
    """Find the pairs of a store and 2^20 other fingerprints, beside probes of each, one thread."""
    out: Result = {}
    for log2 in bench.sizes(24, 26):
        keys = data.uniform(bench.seed, log2)
        others = data.near(bench.seed, keys, min(1 << QUERY_LOG2, len(keys)))
        others[::2] = data.uniform(bench.seed + 1, log2)[: len(others)][::2]
        with fpstore.build(bench.folder / "join.fps", keys, radius=RADIUS) as store:
            probing = bench.seconds(partial(store.probe_many, others, RADIUS, threads=1))
            joining = bench.seconds(partial(_joined, store, others))
            pairs = _joined(store, others)
            matches = len(store.probe_many(np.unique(others), RADIUS).fingerprints)
            if pairs != matches:
                raise AssertionError(f"a join finds {pairs} pairs, and probes {matches}")
            out[f"2^{log2}"] = {
                "design": store.design.name,
                "queries": len(others),
                "pairs": pairs,
                "probes_microseconds_per_query": round(probing / len(others) * 1e6, 3),
                "join_microseconds_per_query": round(joining / len(others) * 1e6, 3),
                "probes_to_join": ratio(probing, joining),
            }
        shutil.rmtree(store.path)
    return out


def _joined(store: fpstore.Store, others: data.Words) -> int:
    return sum(map(len, store.join(others, RADIUS, threads=1)))


def texts_here(
    most: int, suffixes: Sequence[str] = SUFFIXES, roots: Sequence[Path] | None = None
) -> list[str]:
    """Return the texts in some folders.

    By default the documentation and Python's packages on this machine, ordered by path.
    """
    own = [
        Path("/usr/share/doc"),
        Path("/usr/include"),
        *(Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")),
    ]
    out, size = [], 0
    for folder in own if roots is None else roots:
        for path in sorted(folder.rglob("*")) if size < most else ():
            if (
                path.suffix in suffixes
                and path.is_file()
                and size < most
                and path.stat().st_size <= MAX_TEXT_BYTES
            ):
                out.append(path.read_text("utf-8", "replace"))
                size += len(out[-1])
    return out
