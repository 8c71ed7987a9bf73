"""Verification and statistics of a sharded store."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from fpstore.base.aliases import Progress
from fpstore.care.reports import Report
from fpstore.care.stats import describe
from fpstore.care.verify import verify_store
from fpstore.design.estimates import MIN_FINGERPRINTS_FOR_BYTES, limit_bits
from fpstore.errors import CorruptStoreError, FpstoreError
from fpstore.format.manifest import SHARDS_FILE
from fpstore.format.shards import LOST, read_shards
from fpstore.query.sharded import ShardedSnapshot, fingerprint_bounds


def verify_shards(whole: ShardedSnapshot, progress: Progress | None) -> Report:
    """Verify each shard, and compare their total with the manifest; continue after a fault."""
    report = Report()
    for place in range(len(whole.manifest.shards)):
        _verify_shard(whole, place, report, progress)
    if report.ok:
        try:
            _check_whole(whole)
            report.fingerprints, report.ids = whole.totals.fingerprints, whole.totals.ids
        except FpstoreError as error:
            report.note(error)
    return report


def _verify_shard(
    whole: ShardedSnapshot, place: int, report: Report, progress: Progress | None
) -> None:
    shard = whole.manifest.shards[place]
    path, bounds = whole.path / shard.name, shard.bounds
    try:
        tracker, snapshot = whole.open_shard(place)
        with closing(tracker):
            shard_report = verify_store(snapshot, tracker.log, progress)
            got = fingerprint_bounds(snapshot) if shard_report.ok else bounds
    except FpstoreError as error:
        report.note(error)
        return
    report.faults += shard_report.faults
    for name in ("tables", "blocks", "fingerprints", "ids"):
        setattr(report, name, getattr(report, name) + getattr(shard_report, name))
    if got != bounds:
        message = f"{path}: this shard has other fingerprints than {SHARDS_FILE} says: {LOST}"
        report.note(CorruptStoreError(message, path=path, expected=bounds, got=got))


def _check_whole(whole: ShardedSnapshot) -> None:
    file, manifest = whole.path / SHARDS_FILE, whole.manifest
    if read_shards(whole.path) != manifest:
        raise CorruptStoreError(f"{file}: it has changed since it was read", path=file)
    repeated = manifest.id_kind == "string" and any(whole.repeated_strings())
    fingerprints, ids = whole.count_distinct()
    facts = {"fingerprints": fingerprints, "ids": ids, "repeated_strings": repeated}
    for name, got in facts.items():
        expected = getattr(manifest, name)
        if got != expected:
            message = f"{file}: {name} is {expected}, and the shards have {got}: {LOST}"
            raise CorruptStoreError(message, path=file, expected=expected, got=got)


def describe_shards(whole: ShardedSnapshot) -> dict[str, Any]:
    """Return the figures of ``ShardedStore.stats``."""
    parts = [_describe_shard(whole, place) for place in range(len(whole.manifest.shards))]
    manifest = whole.manifest
    entries = sum(part["fingerprints"] for part in parts)
    sizes = _sums([part["bytes"] for part in parts])
    bits = sum(part["bits_per_fingerprint"] * part["delta"]["tables"] for part in parts)
    limit, per = limit_bits(entries, manifest.width), max(entries, 1)
    many = entries >= MIN_FINGERPRINTS_FOR_BYTES
    return {
        **parts[0],
        "shards": len(parts),
        "fingerprints": manifest.fingerprints,
        "ids": manifest.ids,
        "id_kind": manifest.id_kind,
        "bytes": sizes,
        "bytes_per_fingerprint": {
            kind: sizes[kind] / per for kind in parts[0]["bytes_per_fingerprint"]
        },
        "delta": _sums([part["delta"] for part in parts]),
        "bits_per_fingerprint": bits / per,
        "limit_bits_per_fingerprint": limit,
        "ratio_to_limit": bits / per / limit if many else None,
        "ratio_to_raw": bits / per / manifest.width if many else None,
        "generation": max(part["generation"] for part in parts),
        "log": _sums([part["log"] for part in parts]),
        "generation_since": max(
            (part["generation_since"] for part in parts if part["generation_since"]), default=None
        ),
        "merge_error": next((part["merge_error"] for part in parts if part["merge_error"]), None),
        "writer": None,
    }


def _describe_shard(whole: ShardedSnapshot, place: int) -> dict[str, Any]:
    tracker, snapshot = whole.open_shard(place)
    with closing(tracker):
        return {**describe(snapshot, tracker.log.file_bytes), **tracker.log_stats(snapshot)}


def _sums(parts: list[dict[str, int]]) -> dict[str, int]:
    return {name: sum(part[name] for part in parts) for name in parts[0]}
