"""One damaged sharded store: it is asked as a store is, and repaired shard by shard."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import fpstore
from damage.case import Case


class ShardedCase(Case):
    """One damaged sharded store, which has no changes and no backup."""

    _combined = True

    def back_up(self, store: Any) -> None:
        pass

    def change(self) -> None:
        pass

    def length(self, store: Any) -> None:
        """Ask what opens the shards first.

        The length is that of the moment when they were combined.
        """
        store.stats()
        super().length(store)

    def _repaired(self, output: Path, lost: Path) -> fpstore.RepairReport:
        """Repair each shard, and combine them again."""
        whole, sound = fpstore.RepairReport(), True
        output.mkdir()
        for name in self._store.parts:
            own = lost.with_name(name + ".tsv")
            report = fpstore.repair(
                self._path / name, output / name, lost=own, memory="64MiB", threads=1
            )
            if report.sound:
                shutil.copytree(self._path / name, output / name)
            sound = sound and report.sound
            whole.faults += report.faults
            whole.losses += report.losses
            if own.exists():
                # another shard may have a fingerprint that this one has lost
                with lost.open("ab") as file:
                    file.write(own.read_bytes().replace(b"fingerprint\t", b"ids\t"))
        whole.sound = sound and self._sound
        try:
            with fpstore.ShardedStore.combine(output) as store:
                stats = store.stats()
                whole.fingerprints, whole.ids = stats["fingerprints"], stats["ids"]
        except fpstore.InputError:
            if whole.complete:
                raise
            self._combined = False  # what a lost manifest said cannot be agreed on
        return whole

    def _check_repaired(self, report: fpstore.RepairReport, output: Path, lost: Path) -> None:
        # shards that another store has lent are sound
        if self._combined and not self._damage.startswith("part"):
            super()._check_repaired(report, output, lost)
