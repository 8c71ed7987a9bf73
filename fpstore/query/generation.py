"""The immutable part of a store as one process has it open: the tables, the id map and the dictionary of one generation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.design.families import Design
from fpstore.disk.sealed import Reader
from fpstore.errors import ClosedStoreError
from fpstore.format import layout
from fpstore.format.id_map import IdMap
from fpstore.format.strings import NAMES, NUMBERS, Names
from fpstore.format.table import TableReader

Words = npt.NDArray[np.uint64]
SAMPLE_SIZE = 1 << 12


class Generation:
    """Open files of one generation; nothing in it ever changes, and its files may be removed while it is open.

    Parameters
    ----------
    path : Path
        The store.
    store : dict
        The store record.
    record : dict
        The generation record.
    reader : Reader
        The store file, which has the first generation's dictionary.
    """

    def __init__(self, path: Path, store: dict[str, Any], record: dict[str, Any], reader: Reader) -> None:
        self.path = path
        self.store, self.record = store, record
        self.reader = reader
        self.design = Design.from_json(store["design"])
        self.folder = path / layout.generation_name(record["number"])
        count, digest = record["fingerprints"], record["set_digest"]
        self._tables = [TableReader(self.folder / layout.table_name(i)) for i in range(len(self.design.tables))]
        for i, table in enumerate(self.tables):
            table.check_place(self.design, i, count, digest)
        self.ids = IdMap(self.folder / layout.IDS_FILE, digest, record["ids_file"])
        self.names: Names | None = None
        try:
            if record.get("names_file"):
                shape = record["names_file"]
                self.names = Names(
                    Reader(
                        self.folder / layout.NAMES_FILE, (NAMES, NUMBERS),
                        file_bytes=shape["bytes"], digest=shape["digest"], largest=shape["largest"],
                    )
                )  # fmt: skip
            elif store["id_kind"] == "string":
                self.names = Names(reader)
        except BaseException:
            self.ids.close()
            raise
        self._probers: dict[int, _kernel.Prober] = {}
        self._identity: _kernel.Table | None = self._tables[0].kernel

    @property
    def tables(self) -> list[TableReader]:
        """The tables in design order; ClosedStoreError when they were given back."""
        tables = self._tables
        if not tables:
            raise ClosedStoreError(f"{self.path}: the store is closed", path=self.path)
        return tables

    @property
    def count(self) -> int:
        """How many fingerprints the tables hold."""
        return int(self.record["fingerprints"])

    @property
    def identity(self) -> _kernel.Table:
        """The table in order of the fingerprints themselves; ClosedStoreError when it was given back."""
        identity = self._identity
        return self.tables[0].kernel if identity is None else identity

    def prober(self, radius: int) -> _kernel.Prober:
        """Return the tables with the look-ups of a radius."""
        prober = self._probers.get(radius)
        if prober is None:
            prober = _kernel.Prober()
            for lookup in self.design.lookups(self.count, radius):
                prober.add(self.tables[lookup.table].kernel, lookup.prefix_bits, lookup.flips, lookup.masks)
            self._probers[radius] = prober
        return prober

    @property
    def names_bytes(self) -> int:
        """What a dictionary of its own takes on disk."""
        return self.names.file_bytes if self.names is not None and self.record.get("names_file") else 0

    def sample(self) -> Words:
        """Return some fingerprints, evenly spread over the sorted set."""
        table = self.tables[0]
        return table.sample_keys(max(table.kernel.block_count // SAMPLE_SIZE, 1))

    def next_name(self) -> int:
        """Return the number after that of the last string in the dictionary."""
        return 0 if self.names is None else self.names.next_number()

    def close(self) -> None:
        """Give every handle back."""
        self._probers = {}
        self._tables = []
        self._identity = None
        self.ids.close()
        if self.names is not None and self.record.get("names_file"):
            self.names.close()
