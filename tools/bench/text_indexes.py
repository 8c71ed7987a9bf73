"""Indexes that find similar texts.

Of fpstore, and of others as their documentation shows them, by runs of three words.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import fpstore.lsh
from bench.cleaners import FUNCTIONS, words
from bench.harness import Growth, folder_bytes
from bench.rivals import MissingError

LookUp = Callable[[str], list[int]]
TIMED_THRESHOLD = 0.8
MIN_RECALL = 0.9  # of rensa's bands, which its user chooses
MAX_RESULTS = 10  # of Lance, which returns the nearest


class TextIndex(ABC):
    """A tool that finds the rows of similar texts."""

    name: ClassVar[str]
    timed_texts: ClassVar[int]  # that it can take some times
    queries: ClassVar[int]  # that it can take
    bytes = 0  # of the last index that `found` is of

    def prepared(self, texts: list[str]) -> Any:
        """Return texts as the tool takes them."""
        return texts

    @abstractmethod
    def build(self, prepared: Any) -> object:
        """Make an index of prepared texts."""

    @abstractmethod
    def take(self, texts: list[str]) -> None:
        """Take the texts that `found` looks among."""

    @abstractmethod
    def look_up(self, threshold: float) -> LookUp:
        """Return what finds the rows of the texts that are similar to one."""

    def sign(self, text: str) -> Any:
        """Return the signature of a text, if it can be made apart from the index."""
        return None

    def look_up_batch(self, texts: list[str]) -> Any:
        """Return the rows that many texts find at the last threshold, if the tool takes many."""
        return None


class Fpstore(TextIndex):
    """`fpstore.lsh.build` with its defaults."""

    name, timed_texts, queries = "fpstore", 100_000, 30_000

    def __init__(self, folder: Path) -> None:
        self._path, self._hasher = folder / "texts.lsh", fpstore.MinHash()
        self._count = 0

    def build(
        self, prepared: list[str], threshold: float = TIMED_THRESHOLD
    ) -> fpstore.lsh.LshStore:
        index = fpstore.lsh.build(
            self._path,
            prepared,
            hasher=self._hasher,
            threshold=threshold,
            threads=1,
            overwrite=True,
        )
        self._count = index.bands[0] * index.bands[1]
        return index

    def take(self, texts: list[str]) -> None:
        self._texts = texts

    def look_up(self, threshold: float) -> LookUp:
        self._index = index = self.build(self._texts, threshold)
        self.bytes = index.stats()["bytes"]["total"]
        return lambda text: [int(match.id) for match in index.probe(text)]

    def look_up_batch(self, texts: list[str]) -> Any:
        return self._index.probe_many(texts, threads=1).read_ids()

    def sign(self, text: str) -> Any:
        return next(self._hasher.sketched([text], self._count))


class InMemory(TextIndex):
    """An index in memory of signatures, which are made once for all thresholds."""

    @abstractmethod
    def insert(self, made: list[Any], threshold: float) -> Callable[[Any], list[int]]:
        """Return the look-up of an index of signatures."""

    def build(self, prepared: list[str]) -> object:
        return self.insert([self.sign(text) for text in prepared], TIMED_THRESHOLD)

    def take(self, texts: list[str]) -> None:
        self._made = [self.sign(text) for text in texts]

    def look_up(self, threshold: float) -> LookUp:
        with Growth() as grown:
            look_up = self.insert(self._made, threshold)
        self.bytes = grown.bytes
        return lambda text: look_up(self.sign(text))


class Datasketch(InMemory):
    """`MinHashLSH`, whose bands the package chooses for the threshold."""

    name, timed_texts, queries = "datasketch", 2000, 5000

    def __init__(self) -> None:
        try:
            import datasketch
        except ImportError as error:
            raise MissingError("datasketch is missing: pip install datasketch") from error
        self._package = datasketch

    def sign(self, text: str) -> Any:
        minhash = self._package.MinHash(num_perm=FUNCTIONS)
        minhash.update_batch([piece.encode() for piece in set(words(text))])
        return minhash

    def insert(self, made: list[Any], threshold: float) -> Callable[[Any], list[int]]:
        index = self._package.MinHashLSH(threshold=threshold, num_perm=FUNCTIONS)
        for row, minhash in enumerate(made):
            index.insert(row, minhash)
        look_up: Callable[[Any], list[int]] = index.query
        return look_up


class Rensa(InMemory):
    """`RMinHashLSH` with the fewest bands of a computed recall of 0.9.

    What it finds is compared by its estimate.
    """

    name, timed_texts, queries = "rensa", 10_000, 10_000

    def __init__(self) -> None:
        try:
            import rensa
        except ImportError as error:
            raise MissingError("rensa is missing: pip install rensa") from error
        self._package = rensa

    def sign(self, text: str) -> Any:
        minhash = self._package.RMinHash(FUNCTIONS, 42)
        minhash.update(words(text))
        return minhash

    def insert(self, made: list[Any], threshold: float) -> Callable[[Any], list[int]]:
        divisors = (bands for bands in range(1, FUNCTIONS + 1) if FUNCTIONS % bands == 0)
        bands = next(
            bands
            for bands in divisors
            if 1 - (1 - threshold ** (FUNCTIONS // bands)) ** bands >= MIN_RECALL
        )
        index = self._package.RMinHashLSH(threshold, FUNCTIONS, bands)
        for row, minhash in enumerate(made):
            index.insert(row, minhash)

        def look_up(minhash: Any) -> list[int]:
            return [row for row in index.query(minhash) if minhash.jaccard(made[row]) >= threshold]

        return look_up


class Lance(TextIndex):
    """The index `MINHASHLSH` of a data set on disk, of 16 bands, and its estimate.

    The nearest ten are asked for.
    """

    name, timed_texts, queries = "lance", 20_000, 2000

    def __init__(self, folder: Path) -> None:
        try:
            import lance
            import pyarrow
            from lance.query import MinHashQuery
        except ImportError as error:
            raise MissingError("lance is missing: pip install pylance") from error
        self._package, self._arrow, self._query, self._folder = lance, pyarrow, MinHashQuery, folder

    def prepared(self, texts: list[str]) -> Any:
        table = self._arrow.table({"id": range(len(texts)), "text": texts})
        return self._package.write_dataset(
            table, self._folder / f"{len(texts)}.lance", mode="overwrite"
        )

    def build(self, prepared: Any) -> object:
        prepared.create_scalar_index("text", "MINHASHLSH")
        return prepared

    def take(self, texts: list[str]) -> None:
        self._data = self.prepared(texts)
        self.build(self._data)
        self.bytes = folder_bytes(self._folder / f"{len(texts)}.lance" / "_indices")

    def look_up(self, threshold: float) -> LookUp:
        def look_up(text: str) -> list[int]:
            query = self._query(text, "text")
            table = self._data.to_table(
                nearest=query, columns=["id", "_distance"], limit=MAX_RESULTS
            )
            nearest = zip(table["id"].to_pylist(), table["_distance"].to_pylist(), strict=True)
            return [row for row, distance in nearest if distance <= 1 - threshold]

        return look_up


def text_indexes(folder: Path) -> list[tuple[str, Callable[[], TextIndex]]]:
    """Return the names of the tools, and what makes them."""
    return [
        (Fpstore.name, lambda: Fpstore(folder)),
        (Datasketch.name, Datasketch),
        (Rensa.name, Rensa),
        (Lance.name, lambda: Lance(folder)),
    ]
