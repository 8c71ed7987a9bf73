"""One damaged store: everything is asked of it, and compared with what is right."""

from __future__ import annotations

import json
import os
import re
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import fpstore
from damage.stores import Pairs, Store, in_order
from fpstore.base.width import Width, distinct_rows
from fpstore.design.families import design as make_design
from fpstore.io.check import check_fingerprints

Words = npt.NDArray[np.uint64]
CPU_SECONDS, WALL_SECONDS = 5, 120  # of one operation


class Wrong(Exception):  # noqa: N818 (an answer, not an error)
    """An answer that is not right."""


class Untrue(Exception):  # noqa: N818 (a report, not an error)
    """A report that is not true."""


def expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Wrong(otherwise)


class Case:
    """One damaged store, asked everything.

    What comes of each operation is written to a descriptor, line by line.
    """

    def __init__(self, store: Store, path: Path, output: int, damage: str, *, forged: bool) -> None:
        self._store = store
        self._path = path
        self._output = output
        self._damage = damage
        self._forged = forged
        self._sound = damage == "nothing"
        self._verdicts: dict[str, str] = {}

    def _say(self, operation: str, verdict: str, detail: str = "") -> None:
        os.write(self._output, json.dumps([operation, verdict, detail[:2000]]).encode() + b"\n")
        self._verdicts[operation] = verdict

    @property
    def _width(self) -> Width:
        return self._store.width

    def _open(self, path: Path, mode: str = "r") -> Any:
        return fpstore.open(path, mode)

    @contextmanager
    def _doing(self, operation: str) -> Iterator[None]:
        """Do one operation, in bounded time, and say what came of it."""
        self._say(operation, "dead")
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        signal.setitimer(signal.ITIMER_REAL, WALL_SECONDS)
        try:
            yield
        except Wrong as error:
            self._say(operation, "wrong", str(error))
        except Untrue as error:
            self._say(operation, "false", str(error))
        except (fpstore.InputError, fpstore.errors.ClosedStoreError, MemoryError) as error:
            # The input was right, nothing is closed, and the store is small; of a forged one the
            # input may be of another kind.
            foreign = not (self._forged and isinstance(error, fpstore.InputError))
            self._say(
                operation, "foreign" if foreign else "refused", traceback.format_exc()[-1500:]
            )
        except fpstore.FpstoreError as error:
            self._say(operation, "refused", f"{type(error).__name__}: {error}")
        except BaseException:
            self._say(operation, "foreign", traceback.format_exc()[-1500:])
        else:
            self._say(operation, "right")
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _numbers(self, ids: Any) -> list[int]:
        if self._store.spec.ids != "string":
            return list(np.asarray(ids, np.uint64).tolist())
        try:
            return [self._store.numbers[name] for name in ids]
        except KeyError as error:
            raise Wrong(f"an id that never was: {str(error)[:80]}") from None

    def _content(self, store: fpstore.Store) -> Pairs:
        fingerprints, numbers = [self._width.empty(0)], [np.empty(0, np.uint64)]
        for keys, lims, ids in store.items():
            fingerprints.append(
                np.repeat(check_fingerprints(keys, self._width), np.diff(lims), axis=0)
            )
            numbers.append(np.array(self._numbers(ids), np.uint64))
        return in_order(np.concatenate(fingerprints), np.concatenate(numbers))

    def _known(self, fingerprints: npt.NDArray[Any]) -> list[int]:
        """Return fingerprints that the store gave, as numbers."""
        return self._width.numbers(check_fingerprints(fingerprints, self._width))

    def _check_content(self, store: Any, right: Any) -> None:
        held = self._content(store)
        if not held.equal(right):
            held_keys, right_keys = held.keys(self._width), right.keys(self._width)
            raise Wrong(
                f"{len(held_keys - right_keys)} pairs too many, {len(right_keys - held_keys)} "
                "missing"
            )

    def run(self) -> None:
        with self._doing("open"):
            opened = self._open(self._path)
        if self._verdicts["open"] == "right":
            for operation in self.operations():
                with self._doing(operation.__name__):
                    operation(opened)
            self.back_up(opened)
            opened.close()
        with self._doing("repair"):
            self.repair()
        self.change()

    def operations(self) -> list[Callable[[Any], None]]:
        return [
            self.probe_many,
            self.probe,
            self.look_up,
            self.ids_of,
            self.ids,
            self.find,
            self.items,
            self.scan,
            self.length,
            self.verify,
        ]

    def back_up(self, store: Any) -> None:
        with self._doing("backup"):
            store.backup(self._path.with_name("backup"))
        if self._verdicts["backup"] == "right":
            with self._doing("backup, read"), self._open(self._path.with_name("backup")) as backup:
                self.items(backup)

    def probe_many(self, store: fpstore.Store) -> None:
        truth = self._store
        columns = store.probe_many(self._width.to_array(truth.queries), threads=1)
        lims, ids = columns.read_ids()
        got = sorted(
            (query, distance, fingerprint)
            for query, (start, end) in enumerate(
                zip(columns.lims.tolist(), columns.lims.tolist()[1:], strict=False)
            )
            for distance, fingerprint in zip(
                columns.distances[start:end].tolist(),
                self._known(columns.fingerprints[start:end]),
                strict=True,
            )
        )
        expect(
            got == [(q, *match) for q, matches in enumerate(truth.matches) for match in matches],
            "other matches",
        )
        numbers = self._numbers(ids)
        for fingerprint, start, end in zip(
            self._known(columns.fingerprints), lims.tolist(), lims.tolist()[1:], strict=False
        ):
            expect(
                sorted(numbers[start:end]) == truth.of(fingerprint),
                f"other ids of {fingerprint:#x}",
            )

    def probe(self, store: fpstore.Store) -> None:
        truth = self._store
        for query, matches in zip(
            self._width.numbers(truth.queries[::4]), truth.matches[::4], strict=True
        ):
            got = store.probe(query)
            expect(
                [(match.distance, match.fingerprint) for match in got] == matches,
                f"other matches of {query:#x}",
            )
            for match in got:
                expect(
                    sorted(self._numbers(match.ids)) == truth.of(match.fingerprint),
                    f"other ids of {match.fingerprint:#x}",
                )

    def look_up(self, store: fpstore.Store) -> None:
        for query in self._width.numbers(self._store.queries):
            numbers = self._store.of(query)
            expect(
                (query in store) == bool(numbers), f"{query:#x} in the store is {query in store}"
            )
            try:
                got = sorted(self._numbers(store[query]))
            except KeyError:
                got = []
            expect(got == numbers, f"other ids of {query:#x}")

    def ids_of(self, store: fpstore.Store) -> None:
        stored = distinct_rows(self._store.now.fingerprints)[::7]
        try:
            lims, ids = store.ids_of(self._width.to_array(stored))
        except KeyError as error:
            raise Wrong(f"{error} is not stored") from None
        expected = [self._store.of(fingerprint) for fingerprint in self._width.numbers(stored)]
        numbers = self._numbers(ids)
        got = [
            sorted(numbers[start:end])
            for start, end in zip(lims.tolist(), lims.tolist()[1:], strict=False)
        ]
        expect(got == expected, "other ids")

    def _some_ids(self) -> tuple[Words, Any]:
        numbers = self._store.now.numbers[:: max(len(self._store.now.numbers) // 8, 1)]
        return numbers, self._store.ids(numbers)

    def ids(self, store: fpstore.Store) -> None:
        for identifier in list(self._some_ids()[1])[:4]:
            expect(identifier in store.ids, f"id {str(identifier)[-40:]} is not there")
        expect(
            ("no such id" if self._store.spec.ids == "string" else 2**60 + 1) not in store.ids,
            "an id that was never stored",
        )

    def find(self, store: fpstore.Store) -> None:
        numbers, ids = self._some_ids()
        lims, fingerprints = store.fingerprints_of(ids)
        for number, start, end in zip(numbers, lims.tolist(), lims.tolist()[1:], strict=False):
            expected = self._store.now.fingerprints[self._store.now.numbers == number]
            expect(
                np.array_equal(fingerprints[start:end], self._width.to_array(expected)),
                f"other fingerprints of id {number}",
            )

    def items(self, store: fpstore.Store) -> None:
        self._check_content(store, self._store.now)

    def scan(self, store: fpstore.Store) -> None:
        queries = self._store.queries[:3]
        matches = store.scan(self._width.to_array(queries), 12, threads=1)
        got = [[(m.distance, m.fingerprint) for m in row] for row in matches]
        expect(got == self._store.near(queries, 12), "other matches")

    def length(self, store: fpstore.Store) -> None:
        expect(
            len(store) == len(distinct_rows(self._store.now.fingerprints)),
            f"{len(store)} fingerprints",
        )
        store.stats()

    def _bad(self) -> list[str]:
        return [
            operation
            for operation, verdict in self._verdicts.items()
            if verdict not in ("right", "dead")
        ]

    def verify(self, store: fpstore.Store) -> None:
        report = store.verify()
        if self._sound and not report.ok:
            raise Untrue(f"verify finds a fault where there is none: {report.faults}")
        if report.ok and self._bad():
            raise Untrue(f"verify finds nothing, but not right: {', '.join(self._bad())}")

    def repair(self) -> None:
        output, lost = self._path.with_name("repaired"), self._path.with_name("lost.tsv")
        bad = [operation for operation in self._bad() if not operation.startswith("backup")]
        report = self._repaired(output, lost)
        if report.sound:
            self._say("report", "sound")
            if bad or report.output or report.losses or report.faults:
                raise Untrue(f"sound, but not right: {', '.join(bad)}")
            return
        if self._sound:
            raise Untrue(f"repair finds a fault where there is none: {report.faults}")
        self._say(
            "report",
            "complete" if report.complete else "losses",
            "; ".join(
                [*report.losses, "| faults:", *(fault["message"] for fault in report.faults)]
            ),
        )
        self._check_repaired(report, output, lost)

    def _repaired(self, output: Path, lost: Path) -> fpstore.RepairReport:
        return fpstore.repair(self._path, output, lost=lost, memory="64MiB", threads=1)

    def _check_repaired(self, report: fpstore.RepairReport, output: Path, lost: Path) -> None:
        right = self._store.now
        with fpstore.open(output) as store:
            held, verified = self._content(store), store.verify()
            if store.fingerprinter is None and report.complete:
                raise Untrue("complete, but how the fingerprints were made is lost")
            if report.complete and (store.radius, len(store.design.tables)) != self._shape():
                raise Untrue(
                    f"complete, but the design is {store.design.name}, radius {store.radius}"
                )
        if not verified.ok or (report.fingerprints, report.ids) != (
            len(distinct_rows(held.fingerprints)),
            len(held.numbers),
        ):
            raise Untrue(f"the new store is not what it says: {verified.faults}")
        if report.complete:
            if not held.equal(right) or lost.exists():
                raise Untrue(
                    f"complete, but {len(held.numbers)} pairs instead of {len(right.numbers)}"
                )
            return
        check_losses(self._store, held, report, lost)

    def _shape(self) -> tuple[int, int]:
        spec = self._store.spec
        design = make_design(spec.merge_design or spec.design, spec.radius, spec.width)
        return design.radius, len(design.tables)

    def change(self) -> None:
        """Insert, delete and merge.

        Once something is refused, what was done before must be there, and nothing else.
        """
        right, store = self._store.now, None
        with self._doing("open to change"):
            store = self._open(self._path, "r+")
        if store is None:
            return
        for number, (call, arguments, returned, after) in enumerate(self._store.steps):
            name = f"{call} {number}"
            with self._doing(name):
                ask = getattr(store, call)
                got = ask(**arguments) if isinstance(arguments, dict) else ask(*arguments)
                right = after
                got = getattr(got, "removed", got)
                expect(got == returned, f"it changed {got} pairs instead of {returned}")
            if self._verdicts[name] != "right":
                break
        with self._doing("merge"):
            store.merge(memory="64MiB", threads=1)
        with self._doing("close"):
            store.close()
        with self._doing("changed, read"), self._open(self._path) as store:
            self._check_content(store, right)


def check_losses(store: Store, held: Pairs, report: fpstore.RepairReport, lost: Path) -> None:
    """Compare what a repair says it lost with what is missing."""
    kept, stored = held.keys(store.width), store.now.keys(store.width)
    losses = " ".join(report.losses)
    changes = "the log:" in losses or "log record" in losses
    more = kept - (store.ever.keys(store.width) if changes else stored)
    if more:
        raise Untrue(f"{len(more)} pairs in the new store that are not stored: {losses}")
    if changes:
        return
    rows = (
        [line.split("\t") for line in lost.read_text("utf-8").splitlines()] if lost.exists() else []
    )
    named = {int(row[1], 16) for row in rows if row[1]}
    missing = {fingerprint for fingerprint, _ in stored - kept}
    unknown = re.search(r"(\d+) of \d+ fingerprints of the tables", losses)
    if len(missing - named) > (int(unknown[1]) if unknown else 0):
        raise Untrue(
            f"{len(missing - named)} fingerprints have lost something and are not listed: {losses}"
        )
    gone = {int(row[1], 16) for row in rows if row[0] == "fingerprint"}
    if gone & {fingerprint for fingerprint, _ in kept}:
        raise Untrue("a fingerprint that is called lost is there")
