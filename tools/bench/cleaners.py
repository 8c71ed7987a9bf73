"""Ways to find the near-duplicates of a corpus, each in a process of its own.

Fpstore, and packages from PyPI as they are shown.

The command is ``python -m bench.cleaners NAME CORPUS [SETTINGS]``, with a corpus in Parquet or JSON
lines, and the settings of `fpstore.dedup` in JSON. It prints JSON: the groups, as row numbers with
the row that is kept first; rows that are removed for a row without a name; the processor time, of
the work and of the whole process; and the most memory that the process had. The module loads in any
interpreter, without fpstore: rivals may need another one.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import inspect
import json
import os
import pickle
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

SIZE, THRESHOLD, FUNCTIONS, BANDS = 3, 0.7, 128, 16
SIMHASH_RADIUS = 3
Groups = list[list[int]]


class MissingError(Exception):
    """A tool lacks a setting in its installed version."""


def words(text: str) -> list[str]:
    """Return the runs of three words of a text."""
    pieces = re.findall(r"\w+", text.casefold())
    return [" ".join(pieces[i : i + SIZE]) for i in range(max(len(pieces) - SIZE + 1, 1))]


def texts_of(path: Path) -> Iterator[str]:
    """Yield the texts of a corpus, some at a time."""
    if path.suffix == ".jsonl":
        with path.open(encoding="utf-8") as lines:
            yield from (json.loads(line)["text"] for line in lines)
        return
    import pyarrow.parquet as pq

    for batch in pq.ParquetFile(path).iter_batches(1024, columns=["text"]):
        yield from batch.column(0).to_pylist()


class Sets:
    """Rows that links connect; the first row of each set stands for it."""

    def __init__(self) -> None:
        self._parents: list[int] = []

    def add(self, others: list[int]) -> None:
        """Add the next row, which is linked to some before it."""
        row = len(self._parents)
        self._parents.append(row)
        for other in others:
            a, b = sorted((self._first(row), self._first(other)))
            self._parents[b] = a

    def groups(self) -> Groups:
        """Return the sets of two rows or more."""
        return _groups((row, self._first(row)) for row in range(len(self._parents)))

    def _first(self, row: int) -> int:
        while self._parents[row] != row:
            self._parents[row] = self._parents[self._parents[row]]
            row = self._parents[row]
        return row


def _groups(clusters: Iterable[tuple[int, int]]) -> Groups:
    """Return the rows of each cluster, of ascending rows and the names of their clusters."""
    groups: dict[int, list[int]] = {}
    for row, name in clusters:
        groups.setdefault(name, []).append(row)
    return [group for group in groups.values() if len(group) > 1]


def fpstore(path: Path, **settings: Any) -> Groups:
    """Take `fpstore.dedup`, with its defaults but for some settings, from file to file."""
    import fpstore

    if unknown := settings.keys() - inspect.signature(fpstore.dedup).parameters:
        raise MissingError(f"dedup has no {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        output = Path(folder) / f"clean{path.suffix}"
        result = fpstore.dedup(path, output, text="text", threads=1, **settings)
        groups: dict[int, list[int]] = {}
        for row, kept in zip(
            result.removed.rows.tolist(), result.removed.kept_rows.tolist(), strict=True
        ):
            groups.setdefault(kept, [kept]).append(row)
        return list(groups.values())


def rensa(path: Path) -> Groups:
    """MinHash of 128 functions, 16 bands, links whose estimate is at least the threshold."""
    from rensa import RMinHash, RMinHashLSH

    index, sets, made = RMinHashLSH(THRESHOLD, FUNCTIONS, BANDS), Sets(), list[Any]()
    for row, text in enumerate(texts_of(path)):
        minhash = RMinHash(FUNCTIONS, 42)
        minhash.update(words(text))
        sets.add(
            [other for other in index.query(minhash) if minhash.jaccard(made[other]) >= THRESHOLD]
        )
        index.insert(row, minhash)
        made.append(minhash)
    return sets.groups()


def datasketch(path: Path) -> Groups:
    """MinHash of 128 functions, and the bands that the package chooses for the threshold."""
    from datasketch import MinHash, MinHashLSH

    index, sets = MinHashLSH(threshold=THRESHOLD, num_perm=FUNCTIONS), Sets()
    for row, text in enumerate(texts_of(path)):
        minhash = MinHash(num_perm=FUNCTIONS)
        minhash.update_batch([piece.encode("utf-8", "surrogatepass") for piece in set(words(text))])
        sets.add(index.query(minhash))
        index.insert(row, minhash)
    return sets.groups()


def simhash(path: Path) -> Groups:
    """Simhash of 64 bits and its index; each feature once.

    With weights above 255 the package fails under NumPy 2.
    """
    from simhash import Simhash, SimhashIndex

    index, sets = SimhashIndex([], k=SIMHASH_RADIUS, log=None), Sets()
    for row, text in enumerate(texts_of(path)):
        value = Simhash(list(set(words(text))))
        sets.add(list(map(int, index.get_near_dups(value))))
        index.add(str(row), value)
    return sets.groups()


def gaoya(path: Path) -> Groups:
    """MinHash of 100 functions, 20 bands and a threshold of 0.75, on single words."""
    from gaoya.minhash import MinHashStringIndex

    index, sets = MinHashStringIndex(), Sets()
    for row, text in enumerate(texts_of(path)):
        sets.add(list(index.query(text)))
        index.insert_document(row, text)
    return sets.groups()


def fast_dedup(path: Path) -> Groups:
    """MinHash of 128 functions; the package has no index, so all pairs are estimated."""
    from fast_dedup.fast_dedup_ext import MinHash

    sets, made = Sets(), list[Any]()
    for text in texts_of(path):
        minhash = MinHash()
        for piece in set(words(text)):
            minhash.update(piece)
        sets.add([row for row, other in enumerate(made) if minhash.jaccard(other) >= THRESHOLD])
        made.append(minhash)
    return sets.groups()


def dedup_rs(path: Path) -> Groups:
    """MinHash of 128 functions, with bands that the package chooses for the threshold."""
    import numpy as np
    from dedup_rs import EmbedFunc

    texts = list(texts_of(path))
    index = EmbedFunc(THRESHOLD, FUNCTIONS, SIZE, 0.5, 0.5, "text", "row", "u64", 0)
    index.batch_embed_shard(texts, np.arange(len(texts), dtype=np.uint32))
    links = index.cluster()
    return _groups((row, links.find(row)) for row in range(len(texts)))


def near_dupes(path: Path) -> Groups:
    """Jaccard of runs of three characters, from 0.85 on; the longest text is kept."""
    from near_dupes import find_duplicates

    result = find_duplicates(list(texts_of(path)))
    return [
        [kept, *(row for row in group if row != kept)]
        for kept, group in zip(result.representatives, result.groups, strict=True)
    ]


def lshcurator(path: Path) -> list[int]:
    """MinHash of runs of five characters, 8 bands of 4 rows, from 0.9 on: the example of its page.

    It names no kept row. Version 0.2.3 needs Python 3.13.
    """
    from lshcurator import Curator, CuratorConfig

    config = CuratorConfig(
        shingle_k=5,
        shingle_step=1,
        bands=8,
        rows_per_band=4,
        similarity_threshold=0.9,
        compute_mode="char",
        max_workers=1,
    )
    answers = Curator(config).process_corpus(
        files_path=[str(path)], fields="text", filter_low_freq_bucket_keys=1
    )
    return [row for row, (_, is_kept) in enumerate(answers) if not is_kept]


def fastsketchlsh(path: Path) -> Groups:
    """Sketches of 128 words, 16 bands, without a check: the example of its page."""
    from FastSketchLSH import LSH, FastSimilaritySketch

    sketches = FastSimilaritySketch(size=128, seed=42).batch(
        [sorted(set(text.lower().split())) for text in texts_of(path)]
    )
    index, sets = LSH(num_perm=128, num_bands=16), Sets()
    index.insert(sketches)
    for row, others in enumerate(index.query(sketches)):
        sets.add([other for other in others if other < row])
    return sets.groups()


def polars_simed(path: Path) -> Groups:
    """Cosine similarity of runs of three characters, the ten nearest, from 0.8 on.

    The package has no threshold of its own.
    """
    import polars as pl
    from polars_simed import join_sim

    frame = pl.DataFrame({"text": list(texts_of(path))}).with_row_index("number")
    pairs = join_sim(frame, frame, on="text").filter(pl.col("sim") >= 0.8)
    links: dict[int, list[int]] = {}
    for a, b in zip(pairs["number"].to_list(), pairs["number_right"].to_list(), strict=True):
        if a != b:
            links.setdefault(max(a, b), []).append(min(a, b))
    sets = Sets()
    for row in range(len(frame)):
        sets.add(links.get(row, []))
    return sets.groups()


_TEXT_DEDUP = """
[input]
input_type = "local_files"
file_type = "json"

[input.read_arguments]
path = "json"
data_files = [{path}]
split = "train"

[algorithm]
algorithm_name = "minhash"
text_column = "text"
num_proc = 1
seed = 42
batch_size = 10000
num_perm = 240
threshold = 0.7
false_positive_weight = 0.5
false_negative_weight = 0.5
hash_bits = 64
ngram_size = 5
check_false_positive = true

[output]
output_dir = "output"
save_clusters = true

[debug]
enable_profiling = false
"""


def text_dedup(path: Path) -> Groups:
    """MinHash of 240 functions on runs of five words, checked: its command, as its page has it."""
    if importlib.util.find_spec("text_dedup") is None:
        raise ModuleNotFoundError(name="text_dedup")
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        config = _TEXT_DEDUP.format(path=json.dumps(str(path)))
        (Path(folder) / "config.toml").write_text(config, encoding="utf-8")
        subprocess.run(
            [sys.executable, "-m", "text_dedup.minhash"],
            cwd=folder,
            env=os.environ | {"HF_HOME": folder, "HF_HUB_OFFLINE": "1"},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        # written by the command above
        clusters = pickle.loads((Path(folder) / "output/clusters.pickle").read_bytes())
    return _groups(sorted(clusters.items()))


CLEANERS: dict[str, Callable[..., Groups | list[int]]] = {
    "fpstore": fpstore,
    "rensa": rensa,
    "datasketch": datasketch,
    "simhash": simhash,
    "text-dedup": text_dedup,
    "gaoya": gaoya,
    "fast-dedup": fast_dedup,
    "dedup-rs": dedup_rs,
    "near-dupes": near_dupes,
    "lshcurator": lshcurator,
    "fastsketchlsh": fastsketchlsh,
    "polars-simed": polars_simed,
}


def peak_bytes() -> int:
    """Return the most memory that this process had, or the largest of its children."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    own = int(status.partition("VmHWM:")[2].split()[0])
    return max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) << 10


def main() -> None:
    """Run one tool over a corpus, and print its answer."""
    name, path, *settings = sys.argv[1:]
    began = time.process_time()
    try:
        answer = CLEANERS[name](Path(path), **json.loads(settings[0] if settings else "{}"))
    except ImportError as error:
        print(json.dumps({"missing": f"{error.name} is missing: pip install {name}"}))
        return
    except MissingError as error:
        print(json.dumps({"missing": str(error)}))
        return
    spent = time.process_time() - began
    groups = [group for group in answer if isinstance(group, list)]
    print(
        json.dumps(
            {
                "groups": groups,
                "unnamed": [row for row in answer if isinstance(row, int)],
                "seconds": spent,
                # user and system, of this process and of its children, from their start
                "processor_seconds": sum(os.times()[:4]),
                "peak_bytes": peak_bytes(),
                "version": importlib.metadata.version(name),
            }
        )
    )


if __name__ == "__main__":
    main()
