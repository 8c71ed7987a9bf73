"""Operation on pictures that are mirrored or turned, and changed.

The share of the copies that a probe finds, with one orientation and with eight, beside that of
upright copies (orientations).
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import fpstore
from bench.harness import Bench, Result
from bench.images import draw_pictures
from fpstore.calibration.image_changes import ImageChange
from fpstore.hashing import ImageHash

MAX_SIDE = 512  # pixels; larger pictures are scaled down, as for a calibration
CHANGES = ("none", "resize=0.125", "jpeg=20", "blur=2", "brightness=1.2", "crop=0.02")
METHODS = ("average", "difference", "perceptual", "pdq")
TURNS = range(7)  # of PIL.Image.Transpose
SMOKE_TURNS, SMOKE_CHANGES = (0, 2), ("none", "jpeg=20")
DRAWN = 60  # of the pictures of `images`


def orientations(bench: Bench) -> Result:
    """Probe with changed copies that are mirrored or turned: found, and other pictures found."""
    pictures = _pictures(bench)
    return {
        "pictures": len(pictures),
        **{method: _method(bench, pictures, method) for method in METHODS},
    }


def _pictures(bench: Bench) -> list[Any]:
    from PIL import Image

    folder, pictures = bench.options.pictures, []
    if folder is None:
        folder = bench.folder / "drawn"
        folder.mkdir()
        draw_pictures(folder, bench)
    warnings.filterwarnings("ignore", module=r"PIL\b")
    for path in sorted(path for path in Path(folder).rglob("*") if path.is_file()):
        try:
            with Image.open(path) as opened:
                picture = opened.convert("RGB")
        except OSError:
            continue
        picture.thumbnail((MAX_SIDE, MAX_SIDE))
        pictures.append(picture)
    return pictures if bench.options.pictures else pictures[:DRAWN]


def _method(bench: Bench, pictures: list[Any], method: str) -> Result:
    """Return shares by change; a picture without a fingerprint has none in its copies."""
    from PIL import Image

    hasher = ImageHash(method=method)
    rows, known = hasher.fingerprints(pictures, empty="mask", threads=1)
    stored = [picture for picture, is_known in zip(pictures, known, strict=True) if is_known]
    path, radius = bench.folder / f"{method}.fps", hasher.usual_radius
    out: Result = {"stored": len(stored), "radius": radius}
    changes = SMOKE_CHANGES if bench.smoke else CHANGES
    once, eight = 0.0, 0.0
    with fpstore.build(path, rows[known], width=hasher.width, radius=radius) as store:
        for change in changes:
            counts = Counter[str]()
            for number, picture in enumerate(stored):
                upright = _changed(picture, change)
                if upright is None or hasher.is_empty(upright):
                    continue
                found = store.probe(hasher.fingerprint(upright))
                _count(counts, "upright", number, found)
                for turn in SMOKE_TURNS if bench.smoke else TURNS:
                    copy = _changed(picture.transpose(Image.Transpose(turn)), change)
                    if copy is None or hasher.is_empty(copy):
                        continue
                    begin = time.process_time()
                    single = store.probe(hasher.fingerprint(copy))
                    middle = time.process_time()
                    united = store.probe_many(hasher.orientations(copy)).unite(8)[0]
                    once, eight = once + middle - begin, eight + time.process_time() - middle
                    _count(counts, "one", number, single)
                    _count(counts, "eight", number, united)
            out[change] = {
                name: {
                    "copies": counts[name],
                    "found": round(counts[f"{name} found"] / counts[name], 4),
                    "other pictures a query": round(counts[f"{name} others"] / counts[name], 4),
                }
                for name in ("upright", "one", "eight")
            }
    queries = sum(out[change]["one"]["copies"] for change in changes)
    out["milliseconds a query"] = {
        "one": round(1e3 * once / queries, 2),
        "eight": round(1e3 * eight / queries, 2),
    }
    return out


def _changed(picture: Any, change: str) -> Any:
    """Return a changed copy; None if it would be equal."""
    return picture if change == "none" else ImageChange.parse(change).copy(picture)


def _count(counts: Counter[str], name: str, number: int, matches: list[fpstore.Match[int]]) -> None:
    ids = {place for match in matches for place in match.ids}
    counts[name] += 1
    counts[f"{name} found"] += number in ids
    counts[f"{name} others"] += len(ids - {number})
