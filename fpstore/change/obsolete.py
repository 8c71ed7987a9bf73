"""Obsolete generations: removed when another one is current."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from fpstore.diagnostics import logger
from fpstore.disk.folders import remove_tree
from fpstore.format.log import LOG_FILE
from fpstore.format.log_writer import supersede_log
from fpstore.format.manifest import MANIFEST_FILE, TEMPORARY, generation_folder


def remove_obsolete(path: Path, current: int) -> None:
    """Remove the generations that are not current, and temporary files that a dead writer left."""
    for entry in list(path.iterdir()):
        if entry.name.startswith("gen-") and entry.name != generation_folder(current):
            logger().info("%s: obsolete, removed", entry)
            remove_generation(entry)
    (path / (MANIFEST_FILE + TEMPORARY)).unlink(missing_ok=True)


def remove_generation(folder: Path) -> None:
    """Remove a generation; whoever has its log open is told to look for the current one.

    Processes that have its files open go on reading them; the disk has the space back when the last has closed them.
    """
    supersede_log(folder / LOG_FILE)
    with suppress(OSError):
        remove_tree(folder)
