"""Damaged LMDB files: a flipped bit, a file cut short, a record that belongs elsewhere."""

import numpy as np
import pytest
import reference_records
from damage import (
    LMDB_FILES,
    LOG,
    NOTICED,
    NUMBERS,
    PAGE,
    STRINGS,
    STRINGS_FILE,
    check,
    flips,
    rewrite,
    rewrite_records,
    used_bytes,
)
from speeds import slow

import fpstore
from fpstore.base.strings import string_hash
from fpstore.format.log import LogHeader
from fpstore.format.log_writer import create_log
from fpstore.format.manifest import read_manifest
from fpstore.format.mapping import record_seed

# --- LMDB files -----------------------------------------------------------------------------------

# What verify notices need not be part of an answer: A look-up reads only the pages on its way.
VERIFIED = NOTICED | {"noticed, right"}


def lmdb_places(path, step):
    """Page headers and the pointers behind them, and each ``step``-th byte that is not zero."""
    data = path.read_bytes()[: used_bytes(path)]
    heads = [
        p + i
        for p in range(0, len(data), PAGE)
        for i in range(p // PAGE % min(step, 3), 48, min(step, 3))
    ]
    return sorted({*heads, *[i for i in range(len(data)) if data[i]][::step]})


@pytest.mark.sampled(1)
@pytest.mark.parametrize("step", [97, slow(1)])
@pytest.mark.parametrize("name", LMDB_FILES)
def test_flips_in_an_lmdb_file(copy, right, name, step):
    check(copy, name, right, flips(lmdb_places(copy / name, step), 1, seed=3), {"refused"})


@pytest.mark.full
@pytest.mark.parametrize("step", [97, slow(1)])
@pytest.mark.parametrize("name", LMDB_FILES)
def test_flips_in_an_lmdb_file_too_large_to_be_checked_at_open(copy, right, set_limits, name, step):
    """Verify notices each, whatever becomes of the answers."""
    set_limits(bytes_checked_at_open=0)
    results = check(copy, name, right, flips(lmdb_places(copy / name, step), 1, seed=3), VERIFIED)
    assert results["refused"] > 10
    assert results["noticed, error"] > 10


def test_verify_compares_id_records_with_the_blocks(copy):
    """An intact record of another length would give ids to the wrong fingerprints."""
    with fpstore.open(copy) as store:
        _, counts, _ = (
            store.snapshot()
            .generation.tables[0]
            .kernel.decode(0, store.snapshot().generation.tables[0].kernel.block_count, 1)
        )
        counts = counts.tolist()
        assert store.snapshot().generation.ids.verify_numbers([np.array(counts)]) == len(STRINGS)
        moved = [counts[0] - 1, counts[1] + 1, *counts[2:]]
        for wrong, message in (
            (moved, f"block 0 holds {counts[0]} fingerprints, the table {counts[0] - 1}"),
            (counts[:-1], "more id records than blocks"),
            ([*counts, 1], f"record of block {len(counts)} is missing"),
        ):
            with pytest.raises(fpstore.CorruptStoreError, match=message):
                store.snapshot().generation.ids.verify_numbers([np.array(wrong)])


@pytest.mark.parametrize("damage", ["no number", "another number", "no such number"])
def test_verify_follows_each_string_to_its_number_and_back(copy, damage):
    """Under checksums that are right: what a faulty writer would leave."""
    wanted = string_hash(STRINGS[7].encode())
    with fpstore.open(copy) as store:
        mapping = store.snapshot().generation.dictionary.mapping
        block, rank = mapping.table.kernel.locate_one(int(wanted))
        key, digest = mapping.table.kernel.key_of(block), mapping.table.kernel.set_digest

    def change(records):
        seed = record_seed(digest, key)
        lists = reference_records.decode_record(records[key.to_bytes(8, "big")], seed)
        assert lists[rank] == [7]
        if damage == "no number":
            other = next(i for i in range(len(lists)) if i != rank)
            lists[rank] = lists[other]
        else:
            lists[rank] = [8 if damage == "another number" else len(STRINGS)]
        records[key.to_bytes(8, "big")] = reference_records.encode_record(lists, seed)

    rewrite_records(copy, NUMBERS, change)
    with fpstore.open(copy) as store:
        (fault,) = store.verify().faults
        # it may be stored
        for ask in (lambda: STRINGS[7] in store.ids, lambda: store.fingerprints_of(STRINGS[6:9])):
            with pytest.raises(
                fpstore.CorruptStoreError, match=r"listed for another string|has no string"
            ):
                ask()
    expected = (
        f"no string for id number {len(STRINGS)}"
        if damage == "no such number"
        else "numbers are listed for other strings"
    )
    assert expected in fault["message"]
    assert fault["path"] == str(copy / (NUMBERS if damage == "no such number" else STRINGS_FILE))


# --- The manifest ---------------------------------------------------------------------------------


def test_counts_in_the_metadata_are_checked(copy):
    rewrite(copy, lambda record: record["generation"].update(ids=record["generation"]["ids"] + 1))
    with pytest.raises(fpstore.CorruptStoreError, match="totals of the header"):
        fpstore.open(copy)
    (copy / LOG).unlink()
    create_log(copy / LOG, LogHeader.from_manifest(read_manifest(copy)))
    with fpstore.open(copy) as store:
        report = store.verify()
    assert not report.ok
    assert (
        f"{len(STRINGS)} ids, the manifest says {len(STRINGS) + 1}" in report.faults[0]["message"]
    )
