"""The folder in which calls are made.

Small stores and files, and the names that expressions use.
"""

from __future__ import annotations

import collections
import decimal
import json
import os
import pathlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import fpstore
import fpstore.calibration
import fpstore.hashing
import fpstore.io
import fpstore.lsh
import fpstore.plans


def planning(kind: Any) -> Any:
    """Return a function of the fields of a spec, which plans it."""
    return lambda **fields: fpstore.plans.Plan.of(kind(**fields), "plan")


TEXTS = [
    "it was the best of times it was the worst of times it was the age of wisdom",
    "call me ishmael some years ago never mind how long precisely having little money",
    "it was the best of times it was the worst of times it was the age of foolishness",
]
VECTORS = np.arange(16, dtype=np.int32).reshape(2, 8) % 9
NAMES: dict[str, Any] = {
    "fpstore": fpstore,
    "np": np,
    "pa": pa,
    "pathlib": pathlib,
    "collections": collections,
    "decimal": decimal,
    "TEXTS": TEXTS,
    "planning": planning,
    "VECTORS": VECTORS,
    "CODES": np.arange(16, dtype=np.uint8).reshape(2, 8),
    "SKETCHES": np.arange(1, 17, dtype=np.uint64).reshape(2, 8),
    "loop": [],
}
NAMES["loop"].append(NAMES["loop"])


def make_world(folder: Path) -> None:
    """Write the stores and files."""
    os.chdir(folder)
    fpstore.build("s.fps", [7, 11, 1 << 40], [7, 8, 9]).close()
    fpstore.build("t.fps", [7, 12], ["a", "b"]).close()
    Path("sharded").mkdir()
    for number in range(2):
        fpstore.build(f"sharded/shard-0000{number}.fps", [7 + number, 99]).close()
    fpstore.ShardedStore.combine("sharded").close()
    fpstore.lsh.build("i.lsh", TEXTS, hasher=fpstore.MinHash(), threshold=0.8).close()
    rows = [{"id": f"x{i}", "text": text, "n": i} for i, text in enumerate(TEXTS)]
    for name, part in (("r.jsonl", rows), ("b.jsonl", rows[:1])):
        Path(name).write_text("".join(json.dumps(row) + "\n" for row in part))
    Path("f.tsv").write_text("0000000000000007\t1\n000000000000000b\t2\n")
    Path("q.tsv").write_text("fingerprint\n0000000000000007\n")
    Path("a.txt").write_text(TEXTS[0])
    Path("b.txt").write_text(TEXTS[1])
    np.save("v.npy", VECTORS.astype(np.float32))
    from PIL import Image

    Image.fromarray((np.indices((32, 32)).sum(0) * 4).astype(np.uint8)).save("p.png")
    spec = fpstore.plans.BuildSpec("r.jsonl", "planned", text="text")
    fpstore.plans.Plan.of(spec, "p")
    Path("link").symlink_to("link")
