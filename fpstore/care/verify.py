"""Looking inside a store: sizes and shapes (stats), and reading every byte (verify)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.care.log_check import check_journal, check_totals
from fpstore.design.families import Design
from fpstore.design.planner import limit_bits
from fpstore.disk.refusals import is_damage
from fpstore.errors import CorruptStoreError, FpstoreError
from fpstore.format import huffman
from fpstore.format.id_map import iter_entry_counts
from fpstore.format.table import TableReader
from fpstore.query.journal import Journal
from fpstore.query.snapshot import View

SKEW_BITS = 16
TELLING = 4096  # with fewer fingerprints a store takes what headers, pages and last blocks do, so sizes for each mean nothing

PHASE_TABLES = "tables"
PHASE_IDS = "ids"
PHASE_NAMES = "names"
PHASE_LOG = "changes"


@dataclass
class Report:
    """What ``verify`` found.

    Attributes
    ----------
    ok : bool
    tables, blocks, fingerprints, ids : int
        How much was read; of fingerprints and ids, with what was inserted and deleted since the last merge.
    faults : list of dict
        ``message``, ``path``, ``block`` (None when the fault is not in one block).
    """

    tables: int = 0
    blocks: int = 0
    fingerprints: int = 0
    ids: int = 0
    faults: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether no fault was found."""
        return not self.faults

    def note(self, error: FpstoreError) -> None:
        """Add a fault, once; raise an error that is this process's, not the store's."""
        if not is_damage(error):
            raise error
        if any(fault["message"] == str(error) for fault in self.faults):
            return
        path = None if error.path is None else str(error.path)
        self.faults.append({"message": str(error), "path": path, "block": error.block})


class _Phase:
    """Rows done in one phase, told to the caller's callback."""

    def __init__(self, callback: Callable[[str, int, int | None], None] | None, name: str, total: int | None) -> None:
        self._callback = callback
        self._name, self._total = name, total
        self.reach(0)

    def tick(self, rows: int) -> None:
        """Add to what is done."""
        self.reach(self._done + rows)

    def reach(self, done: int) -> None:
        """Say how much is done."""
        self._done = done
        if self._callback:
            self._callback(self._name, done, self._total)


def verify_store(view: View, journal: Journal | None, progress: Callable[[str, int, int | None], None] | None = None) -> Report:
    """Read every table, id record, name and log record; go on after a fault, so that all damaged parts are named."""
    generation, tables, ids, names = view.generation.record, view.generation.tables, view.generation.ids, view.generation.names
    report = Report(fingerprints=generation["fingerprints"])
    try:
        view.generation.reader.verify()
    except FpstoreError as error:
        report.note(error)
    phase = _Phase(progress, PHASE_TABLES, report.fingerprints * len(tables))
    for table in tables:
        try:
            table.verify(phase.tick)
        except FpstoreError as error:
            report.note(error)
        report.tables += 1
        report.blocks += table.kernel.block_count
        phase.reach(report.fingerprints * report.tables)
    phase = _Phase(progress, PHASE_IDS, report.fingerprints)
    try:
        report.ids = ids.verify(iter_entry_counts(counts for _, counts in tables[0].pieces()), phase.tick)
        if report.ids != generation["ids"]:
            raise CorruptStoreError(
                f"{ids.path}: {report.ids} ids, the store says {generation['ids']}",
                path=ids.path, expected=generation["ids"], got=report.ids,
            )  # fmt: skip
    except FpstoreError as error:
        report.note(error)
    if names is not None:
        phase = _Phase(progress, PHASE_NAMES, None)
        try:
            names.verify(phase.tick)
        except FpstoreError as error:
            report.note(error)
    if journal is not None and journal.path.parent == view.generation.folder:  # a merge may have come in between
        phase = _Phase(progress, PHASE_LOG, None)
        check_journal(journal, generation["number"], report.note, phase.tick)
        if report.ok and view.version:
            try:
                check_totals(view, phase.tick)
                report.fingerprints, report.ids = view.totals.fingerprints, view.totals.ids
            except FpstoreError as error:
                report.note(error)
    return report


def describe(view: View, journal: Journal | None) -> dict[str, Any]:
    """Return the numbers of ``Store.stats``."""
    record, generation, design = view.generation.store, view.generation.record, view.generation.design
    tables, ids, reader = view.generation.tables, view.generation.ids, view.generation.reader
    n = generation["fingerprints"]
    table_bytes = sum(t.kernel.file_bytes for t in tables)
    key_bytes = sum(t.kernel.file_bytes - t.kernel.keys_offset for t in tables)
    id_bytes = ids.file_bytes
    dictionary_bytes = reader.file_bytes + view.generation.names_bytes
    delta_bytes = 0 if journal is None else journal.file_bytes
    total = table_bytes + id_bytes + dictionary_bytes + delta_bytes
    bits = table_bytes * 8 / n / len(tables) if n else 0.0
    limit = limit_bits(n)
    stored = view.totals.fingerprints
    return {
        "fingerprints": stored,
        "ids": view.totals.ids,
        "radius": design.radius,
        "design": {
            "name": design.name,
            "tables": [
                {"prefix_bits": t.prefix_bits, "flips": t.flips, "lookups": look.variant_count if look else 0}
                for t, look in zip(design.tables, _by_table(design, n), strict=True)
            ],
        },
        "bytes": {
            "tables": table_bytes,
            "keys": key_bytes,
            "ids": id_bytes,
            "delta": delta_bytes,
            "metadata": dictionary_bytes,
            "total": total,
        },
        "bytes_per_fingerprint": {
            "tables": table_bytes / stored if stored else 0.0,
            "keys": key_bytes / stored if stored else 0.0,
            "ids": id_bytes / stored if stored else 0.0,
            "total": total / stored if stored else 0.0,
        },
        "delta": {
            "fingerprints": 0 if view.delta is None else view.delta.kernel.entries,
            "changes": 0 if view.delta is None else view.delta.kernel.operations,
            "memory": 0 if view.delta is None else view.delta.kernel.memory_bytes,
            "tables": n,
        },
        "bits_per_fingerprint": bits,
        "limit_bits_per_fingerprint": limit,
        "ratio_to_limit": bits / limit if n >= TELLING else None,
        "ratio_to_raw": bits / 64 if n >= TELLING else None,
        "block_bytes": record["block_bytes"],
        "id_kind": view.totals.id_kind,
        "generation": generation["number"],
        "format_version": record["format_version"],
        "fingerprinter": record["fingerprinter"],
    }


def _by_table(design: Design, n: int) -> list[Any]:
    lookups = {look.table: look for look in design.lookups(n)}
    return [lookups.get(i) for i in range(len(design.tables))]


def distribution(table: TableReader) -> dict[str, Any]:
    """Read a whole table and return its h histogram, code lengths, block fill, and its largest runs of equal leading bits."""
    histogram = np.zeros(huffman.SYMBOLS, np.uint64)
    last: npt.NDArray[np.uint64] = np.empty(0, np.uint64)
    runs = np.zeros(1 << SKEW_BITS, np.int64)
    entry_counts: list[npt.NDArray[np.uint32]] = []
    for values, counts in table.pieces():
        _kernel.histogram(np.concatenate([last, values]), histogram)
        last = values[-1:]
        runs += np.bincount((values >> np.uint64(64 - SKEW_BITS)).astype(np.int64), minlength=1 << SKEW_BITS)
        entry_counts.append(counts)
    entries = np.concatenate(entry_counts) if entry_counts else np.empty(0, np.uint32)
    n = int(runs.sum())
    largest = np.argsort(runs)[::-1][:5]
    code_bits = np.frombuffer(table.kernel.code_bits, np.uint8)
    pairs = int(histogram.sum())
    used = int((histogram * code_bits).sum()) + int((histogram * (63 - np.arange(64, dtype=np.uint64))).sum())
    payload = len(entries) * (table.kernel.block_bytes - 20) * 8
    return {
        "h": {int(h): int(histogram[h]) for h in np.flatnonzero(histogram)},
        "code_bits": {int(h): int(code_bits[h]) for h in np.flatnonzero(histogram)},
        "mean_code_bits": float((histogram * code_bits).sum() / pairs) if pairs else 0.0,
        "blocks": len(entries),
        "entries_per_block": {
            "least": int(entries.min()) if len(entries) else 0,
            "mean": float(entries.mean()) if len(entries) else 0.0,
            "most": int(entries.max()) if len(entries) else 0,
        },
        # The bits of the first entry of each block are counted with the header, those of h at block bounds are not used.
        "fill": min(used / payload, 1.0) if payload else 0.0,
        "skew": {
            "prefix_bits": SKEW_BITS,
            "distinct_prefixes": int(np.count_nonzero(runs)),
            "largest": [{"prefix": f"{int(p):04x}", "fingerprints": int(runs[p])} for p in largest if runs[p]],
            "largest_share": float(runs.max() / n) if n else 0.0,
        },
    }
