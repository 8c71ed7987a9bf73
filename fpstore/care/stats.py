"""Statistics of a store: sizes and distributions."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.width import WORD_BITS, Width, leading_words
from fpstore.design.estimates import MIN_FINGERPRINTS_FOR_BYTES, limit_bits
from fpstore.format import huffman
from fpstore.format.column_table import ColumnTable
from fpstore.format.manifest import FORMAT_VERSION, manifest_bytes
from fpstore.format.packed_table import PackedTable
from fpstore.format.table import Table
from fpstore.query.generation import Generation
from fpstore.query.store_snapshot import StoreSnapshot

SKEW_BITS = 16


def describe(snapshot: StoreSnapshot, log_bytes: int) -> dict[str, Any]:
    """Return the figures of ``Store.stats``."""
    generation, totals = snapshot.generation, snapshot.totals
    manifest, design = generation.manifest, generation.design
    filter_bits = generation.filter_bits
    lookups = {
        lookup.table: lookup.variant_count
        for lookup in design.lookups(generation.count, filter_bits=filter_bits)
    }
    sizes, delta = _sizes(generation, log_bytes), snapshot.delta.kernel
    changed = snapshot.version > 0
    tables = [
        {
            "kind": table.kind,
            "prefix_bits": table.prefix_bits,
            "tag_bits": table.tag_bits,
            "flips": table.flips,
            "lookups": lookups.get(number, 0),
            "filter_bits": filter_bits.get(number, 0),
        }
        for number, table in enumerate(design.tables)
    ]
    return {
        "fingerprints": totals.fingerprints,
        "ids": totals.ids,
        "radius": design.radius,
        "width": design.width.bits,
        "design": {"name": design.name, "tables": tables},
        "bytes": sizes,
        "bytes_per_fingerprint": {
            kind: sizes[kind] / totals.fingerprints if totals.fingerprints else 0.0
            for kind in ("tables", "keys", "ids", "total")
        },
        "delta": {
            "fingerprints": delta.entries if changed else 0,
            "changes": delta.operations if changed else 0,
            "memory": delta.memory_bytes if changed else 0,
            "tables": generation.count,
        },
        **_compression(generation),
        "block_bytes": manifest.block_bytes,
        "codec": manifest.codec,
        "filter": manifest.filter,
        "id_kind": totals.id_kind,
        "generation": generation.record.number,
        "format_version": FORMAT_VERSION,
        "fingerprinter": manifest.fingerprinter,
    }


def _sizes(generation: Generation, log_bytes: int) -> dict[str, int]:
    files = {
        "tables": sum(table.kernel.file_bytes for table in generation.tables),
        "filters": sum(reader.kernel.file_bytes for reader in generation.sound_filters.values()),
        "keys": sum(table.index_bytes for table in generation.tables),  # in the files of the tables
        "ids": generation.ids.file_bytes,
        "strings": 0 if generation.dictionary is None else generation.dictionary.file_bytes,
        "id_index": 0 if generation.places is None else generation.places.all_bytes,
        "delta": log_bytes,
        "metadata": manifest_bytes(generation.path),
    }
    return {**files, "total": sum(files.values()) - files["keys"]}


def _compression(generation: Generation) -> dict[str, float | None]:
    """Compare the tables that have fingerprints, not references, with the least size of the set."""
    fingerprints, width = generation.count, generation.design.width.bits
    full_tables = [
        table.kernel
        for table in generation.tables
        if not (isinstance(table, ColumnTable) and table.is_reference)
    ]
    bits = (
        sum(kernel.file_bytes for kernel in full_tables) * 8 / fingerprints / len(full_tables)
        if fingerprints
        else 0.0
    )
    limit = limit_bits(fingerprints, width)
    return {
        "bits_per_fingerprint": bits,
        "limit_bits_per_fingerprint": limit,
        "ratio_to_limit": bits / limit if fingerprints >= MIN_FINGERPRINTS_FOR_BYTES else None,
        "ratio_to_raw": bits / width if fingerprints >= MIN_FINGERPRINTS_FOR_BYTES else None,
    }


def distribution(table: Table) -> dict[str, Any]:
    """Read a whole table, and return its distribution.

    Blocks have the histogram of h, and with the Huffman codec the code lengths and the fill.
    Columns have the entries of buckets. Both have the largest runs of equal leading bits.
    """
    width = Width(table.kernel.width)
    histogram, runs = np.zeros(huffman.SYMBOLS, np.uint64), np.zeros(1 << SKEW_BITS, np.int64)
    last = width.empty(0)
    entry_counts = [np.empty(0, np.uint32)]
    for values, counts in table.pieces():
        if isinstance(table, PackedTable):
            _kernel.histogram(np.concatenate([last, values]), histogram)
        last = values[-1:]
        prefixes = leading_words(values) >> np.uint64(WORD_BITS - SKEW_BITS)
        runs += np.bincount(prefixes.astype(np.int64), minlength=1 << SKEW_BITS)
        entry_counts.append(counts)
    largest = np.argsort(runs)[::-1][:5]
    skew = {
        "prefix_bits": SKEW_BITS,
        "distinct_prefixes": int(np.count_nonzero(runs)),
        "largest": [
            {"prefix": f"{int(p):04x}", "fingerprints": int(runs[p])} for p in largest if runs[p]
        ],
        "largest_share": float(runs.max() / runs.sum()) if runs.any() else 0.0,
    }
    if isinstance(table, PackedTable):
        return {
            **_describe_blocks(table, width, histogram, np.concatenate(entry_counts)),
            "skew": skew,
        }
    entries = np.diff(table.directory.astype(np.int64))
    empty = int(np.count_nonzero(entries == 0))
    return {
        "buckets": len(entries),
        "empty_buckets": empty,
        "entries_per_bucket": _summarize_counts(entries),
        "skew": skew,
    }


def _describe_blocks(
    table: PackedTable, width: Width, histogram: Words, entries: npt.NDArray[np.uint32]
) -> dict[str, Any]:
    n = int(entries.sum())
    code_bits = np.frombuffer(table.kernel.code_bits, np.uint8)
    coded = bool(code_bits.any())  # otherwise Elias-Fano
    pairs = int(histogram.sum())
    used = (
        int((histogram * (code_bits + huffman.tail_bits(width))).sum())
        + n * (width.words - 1) * WORD_BITS
    )
    payload = len(entries) * (table.kernel.block_bytes - 20) * 8
    return {
        "h": {int(h): int(histogram[h]) for h in np.flatnonzero(histogram)},
        "code_bits": {int(h): int(code_bits[h]) for h in np.flatnonzero(histogram)}
        if coded
        else None,
        "mean_code_bits": (float((histogram * code_bits).sum() / pairs) if pairs else 0.0)
        if coded
        else None,
        "blocks": len(entries),
        "entries_per_block": _summarize_counts(entries),
        # The bits of a block's first entry count as header; the codes of h at block bounds are not
        # stored.
        "fill": (min(used / payload, 1.0) if payload else 0.0) if coded else None,
    }


def _summarize_counts(counts: npt.NDArray[Any]) -> dict[str, Any]:
    if not len(counts):
        return {"least": 0, "mean": 0.0, "most": 0}
    return {"least": int(counts.min()), "mean": float(counts.mean()), "most": int(counts.max())}
