"""Generations come and go: a first journal, and the removal of what is no longer current."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from fpstore.disk.folders import remove_tree, sync_folder
from fpstore.format import layout
from fpstore.query.journal import create_journal, lock_path, make_lock_file
from fpstore.query.snapshot import View
from fpstore.query.tracker import make_state

TEMPORARY = ".tmp"


def start_journal(view: View, delta_bytes: int) -> None:
    """Give a store that was never changed a journal."""
    generation = view.generation
    temporary = generation.folder / (layout.JOURNAL_FILE + TEMPORARY)
    temporary.unlink(missing_ok=True)
    try:
        state = make_state(
            generation.store, generation.record, view.totals, generation.next_name(), generation.reader.sealed_with()
        )
        create_journal(temporary, state, (), delta_bytes)
        make_lock_file(generation.folder / layout.JOURNAL_FILE)
        temporary.rename(generation.folder / layout.JOURNAL_FILE)
    except BaseException:
        with suppress(OSError):  # the next writer removes what stays
            temporary.unlink(missing_ok=True)
            lock_path(generation.folder / layout.JOURNAL_FILE).unlink(missing_ok=True)
        raise
    sync_folder(generation.folder)


def sweep(path: Path, current: int) -> None:
    """Remove generations that are not current, and temporary files that a dead writer left."""
    for entry in list(path.iterdir()):
        if entry.name.startswith("gen-") and entry.name != layout.generation_name(current):
            remove_generation(entry)
    (path / layout.generation_name(current) / (layout.JOURNAL_FILE + TEMPORARY)).unlink(missing_ok=True)


def remove_generation(folder: Path) -> None:
    """Remove a generation's files, the journal last: it tells who looks for the current generation to look further.

    Processes that have the files open go on reading them; the disk has the space back when the last has closed them.
    """
    journal = folder / layout.JOURNAL_FILE
    with suppress(OSError):
        for entry in list(folder.iterdir()):
            if entry.is_dir():
                remove_tree(entry)
            elif entry != journal:
                entry.unlink(missing_ok=True)
        journal.unlink(missing_ok=True)
        lock_path(journal).unlink(missing_ok=True)  # who came just now may have made it again
        folder.rmdir()
