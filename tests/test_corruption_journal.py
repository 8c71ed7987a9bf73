"""Damaged journals: a flipped bit on any page, a file cut short, records that do not fit each other."""

import re
import shutil

import lmdb
import numpy as np
import pytest
from building import run_python
from damage import FINGERPRINTS, PAGE, answers, check, cut, flips, make
from fpstore.care.log_check import check_journal
from fpstore.query.journal import LOG, META, Journal

import fpstore
from fpstore.disk import lmdb_pages as pages
from fpstore.format.log import LOG_FILE
from fpstore.query import delta as log

JOURNAL = f"gen-00000001/{LOG_FILE}"


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """Make a store with small log records, a large one, and enough of them for a branch page."""
    path = make(tmp_path_factory.mktemp("good") / "s")
    rng = np.random.default_rng(3)
    with fpstore.open(path, "r+") as store:
        for step in range(60):
            store.insert(rng.integers(0, 2**64, 2, np.uint64), [f"new {step} {i}" for i in range(2)])
        store.insert(rng.integers(0, 2**64, 300, np.uint64), [f"many {i}" for i in range(300)])
        store.delete(ids=["document 5", "new 3 1", "many 7"])
        store.delete(fingerprints=FINGERPRINTS[20:24])
        store.insert(FINGERPRINTS[22:25], ["again", "document 5", "document 6"])
    with fpstore.open(path) as store:
        assert store.verify().ok
    return path


@pytest.fixture(scope="module")
def right(good):
    with fpstore.open(good) as store:
        return answers(store)


# Free space and stale pages have no meaning: LMDB keeps both.
FINE = {"refused", "noticed, error", "noticed, right", "unnoticed, right"}


def places(path, step):
    """Return the heads of all pages with some pointers, and each ``step``-th byte that is not zero."""
    data = path.read_bytes()
    heads = [at + i for at in range(0, len(data), PAGE) for i in range(152 if at < 2 * PAGE else 20)]
    return sorted({*heads[::3], *[i for i in range(len(data)) if data[i]][::step]})


@pytest.fixture
def copy(good, tmp_path, monkeypatch):
    monkeypatch.setattr("fpstore.query.tracker.ATTEMPTS", 2)  # nobody merges beside these tests
    return shutil.copytree(good, tmp_path / "copy")


def test_flips_on_the_pages_of_a_journal(copy, right):
    results = check(copy, JOURNAL, right, flips(places(copy / JOURNAL, 67)), FINE)
    assert results["refused"] > 100


@pytest.mark.slow
def test_many_flips_on_the_pages_of_a_journal(copy, right):
    results = check(copy, JOURNAL, right, flips(places(copy / JOURNAL, 7), 3), FINE)
    print(results)
    assert results["refused"] > 100


def current_places(copy):
    """Return where the log records lie that the last transaction leads to."""
    with pages.opened(copy / JOURNAL) as descriptor:
        meta = max(pages.read_metas(copy / JOURNAL, descriptor), key=lambda meta: meta.transaction)
        tree = pages.Tree(copy / JOURNAL, descriptor, meta)
        return list(tree.items(tree.databases()[LOG]))


def test_each_log_record_is_checked(copy, right):
    items = current_places(copy)
    assert len(items) == 64
    check(copy, JOURNAL, right, flips([item.start + at for item in items for at in (3, 9, 17, item.size - 1)]), {"refused"})


@pytest.mark.parametrize("what", ["page numbers", "counts", "heads"])
def test_what_lmdb_follows_is_checked(copy, right, what):
    """All bits of what would lead LMDB astray or end the process."""
    with pages.opened(copy / JOURNAL) as descriptor:
        metas = pages.read_metas(copy / JOURNAL, descriptor)
        now = max(metas, key=lambda meta: meta.transaction)
        tree = pages.Tree(copy / JOURNAL, descriptor, now)
        roots = [database.root for database in tree.databases().values()] + [now.main.root, now.free.root]
    meta = PAGE * metas.index(now)
    where = {
        "page numbers": [meta + at for at in (80, 128, 136, 144)],
        "counts": [meta + at for at in (16, 20, 40, 44, 46, 72, 94, 120)]
        + [PAGE * root + at for root in roots for at in (12, 14)],
        "heads": [PAGE * root + at for root in roots for at in (0, 10, 11, 16)],
    }[what]
    damages = flips(where, 8)
    if now.transaction & 2:  # LMDB has no checksums: with 2 less, the last transaction looks like the one before the last
        damages.pop((meta + 144, 1), None)
    check(copy, JOURNAL, right, damages, {"refused"})


def test_a_journal_cut_short_is_refused(copy, right):
    """But for the end of the file, which may have pages that are free."""
    used = 1 + max(item.start // PAGE for item in current_places(copy))
    size = (copy / JOURNAL).stat().st_size
    lengths = {*range(0, used * PAGE, 1999), *(p * PAGE for p in range(used)), 1, 4095, 8191}
    check(copy, JOURNAL, right, {n: cut(n) for n in sorted(lengths) if n < size}, {"refused"})


# --- Under right checksums ------------------------------------------------------------------------


def rewrite(copy, change):
    with lmdb.open(str(copy / JOURNAL), subdir=False, lock=False, max_dbs=4, map_size=0) as environment:
        meta, records = environment.open_db(META), environment.open_db(LOG)
        with environment.begin(write=True) as transaction:
            change(transaction, meta, records)


def key(number):
    return number.to_bytes(8, "big")


def test_a_log_with_a_gap(copy):
    rewrite(copy, lambda t, meta, records: t.delete(key(7), db=records))
    with pytest.raises(fpstore.CorruptStoreError, match="log record 7 is missing") as caught:
        fpstore.open(copy)
    assert caught.value.path == copy / JOURNAL


@pytest.mark.parametrize("what", ["fingerprints", "ids"])
def test_totals_that_are_wrong(copy, what):
    def change(t, meta, records):
        last = log.unpack(t.get(key(64), db=records), copy)
        totals = last.totals._replace(**{what: getattr(last.totals, what) + 1})
        t.put(key(64), log.pack(last._replace(totals=totals)), db=records)

    rewrite(copy, change)
    with fpstore.open(copy) as store:
        (fault,) = store.verify().faults
    assert re.search(rf"tables and delta hold \d+ {what}, the journal says \d+", fault["message"])


def test_verify_sees_damage_that_came_after_opening(copy):
    item = current_places(copy)[20]
    with fpstore.open(copy) as store:
        assert store.verify().ok
        with (copy / JOURNAL).open("r+b") as file:
            file.seek(item.start + 60)
            file.write(b"\xff\x00\xff\x00")
        faults = store.verify().faults
        assert ["log record 21 is damaged" in fault["message"] for fault in faults] == [True]
        assert faults[0]["path"] == str(copy / JOURNAL)


@pytest.mark.parametrize("record", ["state", "moved", "unknown"])
def test_other_records_of_the_journal(copy, record):
    with fpstore.open(copy) as store:
        generation = store.snapshot().generation.record

    def change(t, meta, records):
        state = layout.unpack_record(t.get(b"state", db=meta), copy, "state")
        state["generation"] = {**generation, "number": 5}
        t.put(record.encode(), layout.pack_record(state) if record == "state" else b"damaged", db=meta)

    with fpstore.open(copy) as store:
        rewritten = copy.with_name("rewritten.mdb")
        shutil.copyfile(copy / JOURNAL, rewritten)
        faults = []
        with lmdb.open(str(rewritten), subdir=False, lock=False, max_dbs=4, map_size=0) as environment:
            meta, records = environment.open_db(META), environment.open_db(LOG)
            with environment.begin(write=True) as transaction:
                change(transaction, meta, records)
        journal = Journal(rewritten)
        check_journal(journal, generation["number"], faults.append, lambda rows: None)
        journal.close()
    (fault,) = faults
    assert {"state": "journal of generation 5", "moved": "moved record is", "unknown": "unknown record"}[record] in str(fault)


def test_leftover_generations_are_no_fault(copy):
    shutil.copytree(copy / "gen-00000001", copy / "gen-00000002.tmp")
    (copy / "gen-00000003").mkdir()
    with fpstore.open(copy) as store:
        assert store.verify().ok


def test_verify_beside_a_writer(copy):
    code = """
        import sys, fpstore
        with fpstore.open(sys.argv[1], "r+") as store:
            for i in range(300):
                store.insert([i], [f"beside {i}"])
                if i % 60 == 59:
                    store.merge()
    """
    process = run_python(code, copy, wait=False)
    passes = 0
    with fpstore.open(copy) as store:
        while process.poll() is None:
            report = store.verify()
            assert report.ok, report.faults
            passes += 1
    assert process.communicate() == ("", "")
    assert passes > 3
