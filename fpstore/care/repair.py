"""Builds a sound store from the intact parts of a damaged one, and reports the losses."""

from __future__ import annotations

import fcntl
import itertools
import os
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from fpstore.base.keywords import keyword
from fpstore.base.resources import Resources
from fpstore.building.target import Target, refuse_inside_store, sorting_folder
from fpstore.care.damaged_store import DAMAGE, DamagedStore
from fpstore.care.recovered import LossList, RecoveredRows
from fpstore.care.reports import RepairReport
from fpstore.care.verify import verify_store
from fpstore.design.families import Design, check_radius
from fpstore.disk.files import open_file
from fpstore.disk.folders import exchange, put_back, remove_tree, shorten_name, sync_folder
from fpstore.disk.locks import LOCK_FILE, WriterLock, process_name
from fpstore.disk.refusals import NOTHING_CHANGED, translate_refusals
from fpstore.errors import (
    CorruptStoreError,
    InputError,
    StorageError,
    StoreExistsError,
    StoreLockedError,
    StoreNotFoundError,
    plural,
)
from fpstore.format.manifest import Manifest, looks_like_store, not_a_store_error
from fpstore.format.record import Totals
from fpstore.query.store_snapshot import StoreSnapshot
from fpstore.query.tracker import Tracker

NUMBER_ROOM = 8  # bytes of a name for a number behind it


def repair_store(
    path: Path,
    output: Path | None,
    in_place: bool,
    lost: Path | None,
    resources: Resources,
    radius: int | None = None,
    design: Design | None = None,
) -> RepairReport:
    """Make a sound store of a damaged one; see :func:`fpstore.repair`.

    Without a manifest, the new store has this design, or that of a build with this radius.

    In place, the new store is written under the name that the damaged one will have, and then the
    two are exchanged, in one step where the file system has one. So a repair that is killed leaves
    either the damaged store or the new one in place.
    """
    if output is not None and in_place:
        raise InputError(
            "a repair writes either to another path or in place: give output or in_place, not both"
        )
    if in_place:
        path = path.resolve()  # through a link, the store that it names
        name = shorten_name(path.name, len(".damaged") + NUMBER_ROOM)
        put_back(path, f"{name}.damaged", looks_like_store)
    if not looks_like_store(path):
        raise (
            not_a_store_error(path)
            if path.exists()
            else StoreNotFoundError(f"{path}: no such store", path=path)
        )
    lost = lost or _free_name(output or path, ".lost", ".tsv")
    if in_place:
        target = _free_name(path, ".damaged")
    else:
        target = output or path.with_name(f"{shorten_name(path.name, len('.repaired'))}.repaired")
        refuse_inside_store(target)
    refuse_inside_store(lost)
    with ExitStack() as stack:
        if in_place:
            with translate_refusals(path, NOTHING_CHANGED):
                stack.callback(WriterLock(path).release)
        else:
            _keep_writers_away(path, stack)
        report = _repair(path, target, in_place, lost, resources, radius, design)
        if in_place and not report.sound:
            with translate_refusals(path):
                try:
                    exchange(target, path)
                except OSError:
                    remove_tree(target)  # it has the name of the damaged store
                    raise
                sync_folder(path.parent)
            report.output, report.damaged = str(path), str(target)
            report.actions.append(f"{path} is the repaired store now; the damaged one is {target}")
    return report


def _free_name(path: Path, ending: str, suffix: str = "") -> Path:
    """Return the first free name beside a path: without a number, or numbered from 2 on."""
    name = shorten_name(path.name, len(ending) + len(suffix) + NUMBER_ROOM)
    names = (
        path.with_name(f"{name}{ending}{number}{suffix}")
        for number in itertools.chain([""], map("-{}".format, itertools.count(2)))
    )
    return next(name for name in names if not (name.exists() or name.is_symlink()))


def _keep_writers_away(path: Path, stack: ExitStack) -> None:
    """Take the lock of a store, if there is one, without changing a byte."""
    try:
        descriptor = open_file(path / LOCK_FILE, of_user=True)
    except (StoreNotFoundError, CorruptStoreError):  # without a lock there is no writer
        return
    stack.callback(os.close, descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        holder = process_name(os.pread(descriptor, 32, 0).decode("ascii", "replace").strip())
        raise StoreLockedError(
            f"{path}: {holder} has it open for writing: close it there first", path=path, got=holder
        ) from None


def _repair(
    path: Path,
    target: Path,
    in_place: bool,
    lost: Path,
    resources: Resources,
    radius: int | None,
    design: Design | None,
) -> RepairReport:
    report = RepairReport()
    store = DamagedStore(path, report)
    if radius is not None:
        check_radius(radius, store.start.width)
    if not report.faults:
        try:
            report.faults += _verify(path, resources)[1]
        except DAMAGE as error:
            report.note(error)
    if not report.faults:
        report.sound = True
        return report
    settings = _settings(store.manifest, radius, design)
    if target.exists() or target.is_symlink():
        raise StoreExistsError(
            f"{target} exists: move it away, choose another path ({keyword('output')}), or repair "
            f"in place ({keyword('in_place', True)})",
            path=target,
        )
    if not target.parent.is_dir():
        raise StorageError(f"{target.parent}: no such folder", path=target.parent)
    losses = LossList(lost)
    try:
        with Target(target, overwrite=False) as new:
            with sorting_folder(target) as folder:
                rows = RecoveredRows(store, folder, resources.memory, report, losses)
                try:
                    _write(store, rows, new, resources, settings, report)
                    snapshot, faults = _verify(new, resources)
                    if faults:
                        raise CorruptStoreError(
                            f"{target}: the new store is damaged: {faults[0]['message']}",
                            path=target,
                        )
                    _summarize(
                        report,
                        snapshot,
                        losses,
                        rows.expected,
                        "a new store" if in_place else str(target),
                    )
                    rows.list_missing_ids()
                finally:
                    rows.close()
            report.output = str(target)
            if losses.finish():  # before the store is in place: its list is there first
                report.lost_file = str(losses.path)
                report.actions.append(
                    f"wrote {losses.path}: what is known of what was lost (kind, fingerprint, id); "
                    "an id there may have been deleted before"
                )
    finally:
        losses.abort()
    return report


def _verify(path: Path, resources: Resources) -> tuple[StoreSnapshot, list[dict[str, Any]]]:
    """Return a store's snapshot, whose files are closed, and its faults."""
    with closing(Tracker(path)) as tracker:
        snapshot = tracker.snapshot()
        return snapshot, verify_store(snapshot, tracker.log, resources.progress).faults


def _settings(
    manifest: Manifest | None, radius: int | None, design: Design | None
) -> dict[str, Any]:
    """Return the options of the build that the manifest, or else the caller, names."""
    if manifest is None:
        settings: dict[str, Any] = {} if radius is None else {"radius": radius}
        return settings if design is None else {"radius": design.radius, "design": design}
    if radius is not None:
        raise InputError(
            "radius: the manifest of this store is intact, and says radius "
            f"{manifest.design.radius}: leave it out"
        )
    return {
        "radius": manifest.design.radius,
        "design": manifest.design,
        "block_bytes": manifest.block_bytes,
        "codec": manifest.codec,
        "filter": manifest.filter,
        "fingerprinter": manifest.fingerprinter,
        "auto": manifest.auto,
        "index_ids": manifest.index_ids,
    }


def _write(
    store: DamagedStore,
    rows: RecoveredRows,
    new: Path,
    resources: Resources,
    settings: dict[str, Any],
    report: RepairReport,
) -> None:
    from fpstore.building.builder import BuildOptions, build_into

    options = BuildOptions(
        width=store.start.width,
        memory=resources.memory,
        threads=resources.threads,
        progress=resources.progress,
        id_kind=rows.id_kind,
        rows=rows.next_row,
        reserved=rows.reserved,
        **settings,
    ).check()
    if store.manifest is None:
        index = "" if rows.id_kind == "string" else " has no index by id,"
        report.losses.append(
            f"the settings: the new store answers radius {options.radius} ({keyword('radius')}),"
            f"{index} and does not know what made its fingerprints"
        )
    build_into(new, rows.rows(resources.progress), None, options)


def _summarize(
    report: RepairReport, snapshot: StoreSnapshot, losses: LossList, expected: Totals, target: str
) -> None:
    totals, filters = snapshot.totals, snapshot.generation.record.filters
    report.fingerprints, report.ids = totals.fingerprints, totals.ids
    whole = f"{plural(totals.fingerprints, 'fingerprint')} with {plural(totals.ids, 'id')}"
    whole += f", {plural(len(filters), 'filter')} made anew" if filters else ""
    report.actions.append(f"wrote {target}: {whole}, and verified it")
    for kind, noun, text in (
        ("fingerprint", "fingerprint", "with no id left, and so not in the new store"),
        ("ids", "fingerprint", "that lost some ids"),
        ("name", "id", "with a lost string"),
    ):
        if losses.counts[kind]:
            report.losses.append(f"{plural(losses.counts[kind], noun)} {text}")
    for name, got in (("fingerprints", totals.fingerprints), ("ids", totals.ids)):
        if (before := getattr(expected, name)) != got:
            report.losses.append(f"the store held {before:,} {name}, the new one has {got:,}")
