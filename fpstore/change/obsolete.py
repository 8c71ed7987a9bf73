"""Removal of obsolete generations."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from fpstore.base.diagnostics import logger
from fpstore.disk.folders import remove_tree
from fpstore.format.log import LOG_FILE
from fpstore.format.log_writer import supersede_log
from fpstore.format.manifest import MANIFEST_FILE, TEMPORARY, generation_folder, is_generation_name


def remove_obsolete(path: Path, current: int) -> None:
    """Remove the generations that are not current, and temporary files of a writer that died."""
    for entry in list(path.iterdir()):
        if is_generation_name(entry.name) and entry.name != generation_folder(current):
            logger().info("%s: obsolete, removed", entry)
            remove_generation(entry)
    remove_tree(path / (MANIFEST_FILE + TEMPORARY))


def remove_generation(folder: Path) -> None:
    """Remove a generation, after marking its log so that its readers look for the current generation.

    Processes that have its files open can go on reading them. The disk space is free when the last of them has closed the files.
    """
    supersede_log(folder / LOG_FILE)
    with suppress(OSError):
        remove_tree(folder)
