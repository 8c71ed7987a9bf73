"""LSH indexes to be damaged; a damaged index is compared with the sound one."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import fpstore
from damage.case import Case, Untrue, Wrong, expect
from damage.stores import SPECS
from fpstore.lsh.manifest import DOCUMENTS, KEYS

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Content(NamedTuple):
    """What an index holds and answers."""

    rows: dict[int | str, int]  # of the store of documents, by id
    answers: list[list[tuple[int | str, float]]]  # to each query


class Index:
    """An index to be damaged.

    Its folder, older states, a stranger, a twin (same texts, other ids), the truth.
    """

    def __init__(self, folder: Path, name: str, seed: int) -> None:
        self.spec, self.name, self.folder = SPECS[name], name, folder
        self._chance = random.Random(f"{seed} {name}")
        folder.mkdir(parents=True)
        self.path, self.stranger, self.twin = folder / "now", folder / "stranger", folder / "twin"
        self.older: list[Path] = []
        self.parts = [DOCUMENTS, KEYS]
        self.ever: set[tuple[int | str, int]] = set()  # ids and rows
        count = self.spec.fingerprint_count
        texts, first = self._texts(count), count
        self.queries = [*texts[::4], *map(self._near, texts[1::4]), *self._texts(5)]
        for path, items, numbers in (
            (self.path, texts, range(count)),
            (self.stranger, self._texts(count), range(count)),
            (self.twin, texts, range(count)[::-1]),
        ):
            ids = None if self.spec.ids == "row" else self._ids(numbers)
            hasher = fpstore.MinHash()
            fpstore.lsh.build(
                path,
                items,
                ids,
                hasher=hasher,
                threshold=0.6,
                index_ids=self.spec.index_ids,
                threads=1,
            ).close()
        for merging in [False] * self.spec.changed + [True] * self.spec.merged:
            self.older.append(folder / f"older-{len(self.older)}")
            shutil.copytree(self.path, self.older[-1])
            steps = self._changes(first)
            first += 100
            for path in (self.path, self.stranger, self.twin):
                with fpstore.open(path, "r+") as index:
                    if merging:
                        index.merge(threads=1)
                    for call, arguments in steps:
                        if path == self.path:
                            self.ever.update(self.content(index).rows.items())
                        getattr(index, call)(*arguments)
        with fpstore.open(self.path) as index:
            self.now = self.content(index)
            self.pairs = pairs_of(index)
        self.ever.update(self.now.rows.items())
        self.steps = self._steps(self._changes(first))

    def _texts(self, count: int) -> list[str]:
        """Return texts of which half are near others."""
        own = [
            " ".join("".join(self._chance.choices(LETTERS, k=5)) for _ in range(40))
            for _ in range(count - count // 2)
        ]
        return [*own, *map(self._near, own[: count // 2])]

    def _near(self, text: str) -> str:
        words = text.split(" ")
        words[self._chance.randrange(len(words))] = "another"
        return " ".join(words)

    def _ids(self, numbers: range) -> list[Any]:
        return (
            [f"document {number}" for number in numbers]
            if self.spec.ids == "string"
            else list(numbers)
        )

    def _changes(self, first: int) -> list[tuple[str, tuple[Any, ...]]]:
        """Return changes whose new ids are from a number on."""
        old = self._ids(range(first - 100, first))
        added = self._ids(range(first, first + 21))
        return [
            ("insert", (self._texts(20), added[:20])),
            ("upsert", (self._texts(10), old[5:15])),
            ("probe_insert", (self.queries[0], added[20])),
            ("delete", (added[15:20] + old[12:18],)),
        ]

    def _steps(
        self, changes: list[tuple[str, tuple[Any, ...]]]
    ) -> list[tuple[str, Any, Any, Content]]:
        """Return changes: what is called, with what, what it returns, and what is stored then."""
        sound, steps = self.folder / "changed", []
        shutil.copytree(self.path, sound)
        with fpstore.open(sound, "r+") as index:
            for call, arguments in changes:
                returned = getattr(index, call)(*arguments)
                steps.append(
                    (call, arguments, getattr(returned, "removed", returned), self.content(index))
                )
        return steps

    def content(self, index: Any) -> Content:
        rows: dict[int | str, int] = {}
        with fpstore.open(index.path / DOCUMENTS) as documents:
            for fingerprints, _, ids in documents.items():
                names = ids if isinstance(ids, list) else ids.tolist()
                rows.update(
                    zip(
                        names,
                        (int.from_bytes(bytes(row), "big") for row in fingerprints),
                        strict=True,
                    )
                )
        return Content(
            rows,
            [sorted(map(tuple, matches)) for matches in index.probe_many(self.queries, threads=1)],
        )


def pairs_of(index: Any) -> list[tuple[Any, Any]]:
    """Return the ids of each pair."""
    return sorted(
        pair
        for pairs in index.pairs(threads=1)
        for pair in zip(pairs.ids_a(), pairs.ids_b(), strict=True)
    )


class IndexCase(Case):
    """One damaged index, asked everything."""

    _store: Any  # an Index

    def _open(self, path: Path, mode: str = "r") -> Any:
        return fpstore.open(path, mode)

    def operations(self) -> list[Callable[[Any], None]]:
        return [self.probe, self.ids, self.items, self.pairs, self.length, self.verify]

    def probe(self, index: Any) -> None:
        for query, matches in zip(
            self._store.queries[::9], self._store.now.answers[::9], strict=True
        ):
            expect(sorted(map(tuple, index.probe(query))) == matches, "other matches of a query")

    def ids(self, index: Any) -> None:
        expect(
            all(name in index.ids for name in [*self._store.now.rows][::40]), "an id is not there"
        )

    def pairs(self, index: Any) -> None:
        expect(pairs_of(index) == self._store.pairs, "other pairs")

    def length(self, index: Any) -> None:
        expect(len(index) == len(self._store.now.rows), f"{len(index)} documents")
        index.stats()

    def _check_content(self, index: Any, right: Content) -> None:
        content = self._store.content(index)
        if content != right:
            raise Wrong(
                f"{len(content.rows)} documents instead of {len(right.rows)}, or other answers"
            )

    def _repaired(self, output: Path, lost: Path) -> fpstore.RepairReport:
        return fpstore.repair(self._path, output, memory="64MiB", threads=1)

    def _check_repaired(self, report: fpstore.RepairReport, output: Path, lost: Path) -> None:
        right, losses = self._store.now, " ".join(report.losses)
        with self._open(output) as index:
            content, verified = self._store.content(index), index.verify()
        if not verified.ok or report.fingerprints != len(content.rows):
            raise Untrue(
                f"the new index is not what it says: {report.fingerprints}, {len(content.rows)}, "
                f"{verified.faults}"
            )
        if report.complete and content != right:
            raise Untrue(
                f"complete, but {len(content.rows)} documents instead of {len(right.rows)}, or "
                "other answers"
            )
        if "the log:" in losses or "log record" in losses or "current generation" in losses:
            if more := content.rows.items() - self._store.ever:
                raise Untrue(f"{len(more)} documents in the new index that never were: {losses}")
            return
        if content.rows.items() - right.rows.items() or any(
            set(matches) - set(known)
            for matches, known in zip(content.answers, right.answers, strict=True)
        ):
            raise Untrue(f"documents or answers in the new index that are not stored: {losses}")
        listed = sum(file.read_bytes().count(b"\n") for file in output.parent.glob("*.lost.tsv"))
        unknown = re.search(r"(\d+) of \d+ fingerprints of the tables", losses)
        if len(right.rows) - len(content.rows) > listed + (int(unknown[1]) if unknown else 0):
            raise Untrue(
                f"{len(right.rows) - len(content.rows)} documents are lost, {listed} are listed: "
                f"{losses}"
            )
