"""Ways to find the near-duplicates of a corpus, each in a process of its own.

Fpstore, and packages from PyPI as they are shown.

The command is ``python -m bench.cleaners NAME CORPUS [SETTINGS]``, with a corpus in Parquet or JSON
lines, and the settings of `fpstore.dedup` in JSON. It prints JSON: the groups, as row numbers with
the row that is kept first; rows that are removed for a row without a name; the processor time, of
the work and of the whole process; and the most memory that the process had. The module loads in any
interpreter, without fpstore: rivals may need another one.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
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
        groups: dict[int, list[int]] = {}
        for row in range(len(self._parents)):
            groups.setdefault(self._first(row), []).append(row)
        return [group for group in groups.values() if len(group) > 1]

    def _first(self, row: int) -> int:
        while self._parents[row] != row:
            self._parents[row] = self._parents[self._parents[row]]
            row = self._parents[row]
        return row


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


CLEANERS = {"fpstore": fpstore, "rensa": rensa, "datasketch": datasketch, "simhash": simhash}


def peak_bytes() -> int:
    """Return the most memory that this process had."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def main() -> None:
    """Run one tool over a corpus, and print its answer."""
    name, path, *settings = sys.argv[1:]
    began = time.process_time()
    try:
        answer = CLEANERS[name](Path(path), **json.loads(settings[0] if settings else "{}"))
    except ImportError as error:
        print(json.dumps({"missing": f"{error.name} is missing: pip install {error.name}"}))
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
            }
        )
    )


if __name__ == "__main__":
    main()
