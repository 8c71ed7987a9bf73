"""The ids of fingerprints: row numbers, integers and strings, by every way to get at them."""

import random
import string

import numpy as np
import pytest
import reference_store
from sets import MAX, make_set

import fpstore
from fpstore import Match
from fpstore.format.dictionary import DICTIONARY_FILES
from fpstore.format.strings import STRINGS_FILE
from fpstore.store import snapshot_of


def test_ids_are_row_numbers_by_default(tmp_path):
    fingerprints = np.array([5, 3, 5, 9, 3, 5], np.uint64)
    with fpstore.build(tmp_path / "s", fingerprints) as store:
        assert (store[5], store[3], store[9]) == ([0, 2, 5], [1, 4], [3])
        assert store.stats()["ids"] == 6
        assert len(store) == 3


def test_duplicates_keep_all_ids_once(tmp_path):
    with fpstore.build(tmp_path / "s", [7, 7, 7, 8, 7, 8], [5, MAX, 5, 5, 0, 5]) as store:
        assert store[7] == [0, 5, MAX]
        assert store[8] == [5]
        assert store.probe(7, 0) == [Match(7, 0, [0, 5, MAX])]
        assert store.stats()["ids"] == 4


@pytest.mark.parametrize("spread", [1, 2**20, 2**40, MAX])
def test_integer_ids(tmp_path, spread):
    rng = random.Random(spread)
    rows = [(rng.randrange(300) << 32, rng.randrange(spread)) for _ in range(3000)]
    wanted = {}
    for fingerprint, number in rows:
        wanted.setdefault(fingerprint, set()).add(number)
    fingerprints, ids = zip(*rows, strict=True)
    with fpstore.build(tmp_path / "s", fingerprints, ids, block_bytes=128) as store:
        check_ids(store, wanted)
    assert reference_store.read_store(tmp_path / "s") == {f: sorted(numbers) for f, numbers in wanted.items()}


def check_ids(store, wanted):
    """Compare every way to get at ids; ``wanted`` maps fingerprints to sets."""
    stored = np.array(sorted(wanted), np.uint64)
    assert len(store) == len(stored)
    for fingerprint, ids in list(wanted.items())[::7]:
        assert sorted(store[fingerprint]) == sorted(ids)
    asked = np.concatenate([stored[::-1], stored[:10]])  # any order, some of them twice
    lims, ids = store.ids_of(asked)
    got = [sorted(ids[a:b]) for a, b in zip(lims[:-1].tolist(), lims[1:].tolist(), strict=True)]
    assert got == [sorted(wanted[f]) for f in asked.tolist()]
    matches = store.probe_many(stored, 0)
    assert [[(m.fingerprint, sorted(m.ids)) for m in part] for part in matches] == [
        [(f, sorted(wanted[f]))] for f in stored.tolist()
    ]
    seen = {}
    for fingerprints, lims, ids in store.items():
        assert len(lims) == len(fingerprints) + 1
        for i, fingerprint in enumerate(fingerprints.tolist()):
            seen[fingerprint] = set(ids[lims[i] : lims[i + 1]])
    assert seen == wanted
    assert list(seen) == stored.tolist()
    assert store.stats()["ids"] == sum(map(len, wanted.values()))
    assert store.verify().ids == store.stats()["ids"]


LONG = "x" * 5000
STRINGS = ["a", " ", "\n", "0", "tab\there", "Grüße", "文档", "🙂" * 200, LONG, LONG + "y", "x" * 511, "x" * 512, "\x00"]


def test_string_ids(tmp_path):
    rng = random.Random(2)
    names = [*STRINGS, *("".join(rng.choices(string.printable, k=rng.randint(1, 40))) for _ in range(1000))]
    rows = [(rng.randrange(400), rng.choice(names)) for _ in range(3000)]
    rows += [(1000 + i, name) for i, name in enumerate(names)]
    wanted = {}
    for fingerprint, name in rows:
        wanted.setdefault(fingerprint, set()).add(name)
    fingerprints, ids = zip(*rows, strict=True)
    with fpstore.build(tmp_path / "s", fingerprints, ids, block_bytes=128) as store:
        check_ids(store, wanted)
        assert store[1000 + STRINGS.index(LONG)] == [LONG]
        assert isinstance(store.probe(1000)[0].ids[0], str)


def test_string_ids_come_in_order_of_first_appearance(tmp_path):
    with fpstore.build(tmp_path / "s", [1, 1, 1, 1], ["b", "a", "b", "c"]) as store:
        assert store[1] == ["b", "a", "c"]


def test_more_names_than_the_first_map_holds(tmp_path, monkeypatch):
    monkeypatch.setattr("fpstore.disk.sealed.FIRST_MAP_BYTES", 1 << 15)
    names = [f"{i:05d}" * 20 for i in range(2000)]
    with fpstore.build(tmp_path / "s", np.arange(2000, dtype=np.uint64), names) as store:
        assert [store[i] for i in (0, 77, 1999)] == [[names[i]] for i in (0, 77, 1999)]
        assert store.verify().ok


def test_a_record_that_is_larger_than_all_later_ones(tmp_path, monkeypatch):
    """Of a length that only a file whose largest record is known may have, and written before others."""
    monkeypatch.setattr("fpstore.format.mapping.PENDING_BLOCKS", 2)
    ids = np.random.default_rng(1).integers(0, 2**63, 30_000, np.uint64)
    fingerprints = np.concatenate([np.zeros(len(ids), np.uint64), np.arange(1, 5000, dtype=np.uint64) << np.uint64(48)])
    ids = np.concatenate([ids, np.arange(4999, dtype=np.uint64)])
    with fpstore.build(tmp_path / "s", fingerprints, ids, block_bytes=128, threads=1) as store:
        assert store[0] == np.unique(ids[:30_000]).tolist()
        assert store.verify().ok


def test_many_ids_of_one_fingerprint(tmp_path):
    ids = np.arange(100_000, dtype=np.uint64)
    with fpstore.build(tmp_path / "s", np.full(100_000, 9, np.uint64), ids) as store:
        assert store[9] == ids.tolist()
        assert store.probe(8, 1)[0].ids == ids.tolist()
        assert len(store) == 1


def test_id_lookups_of_what_is_not_stored(store):
    stored = int(make_set("families")[0])
    with pytest.raises(KeyError):
        store.ids_of([stored, stored ^ 0xF0F0F0F0F0F0F0F0])
    lims, ids = store.ids_of([])
    assert (lims.tolist(), len(ids)) == ([0], 0)


# --- Iterating ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ids", "others"), [(["a", "b"], [0, 1]), ([0, 1], ["a", "0"]), (None, ["a"])])
def test_ids_of_the_other_kind_are_not_found(tmp_path, ids, others):
    """A number of a string is no id."""
    with fpstore.build(tmp_path / "s", [10, 20], ids) as store:
        lims, found = store.fingerprints_of(others)
        assert (lims.tolist(), found.tolist()) == ([0] * (len(others) + 1), [])
        assert not any(item in store.ids for item in others)


def test_iterating_a_store_yields_its_fingerprints(tmp_path):
    """Not the ids of the fingerprints 0, 1, 2, ..."""
    with fpstore.build(tmp_path / "s", [1, 0, 5, MAX, 5], ["a", "b", "c", "d", "e"]) as store:
        assert list(store) == [0, 1, 5, MAX]
        assert len(list(store)) == len(store)
        assert all(fingerprint in store and store[fingerprint] for fingerprint in store)
        assert {type(fingerprint) for fingerprint in store} == {int}


def test_iterating_a_store_that_changes(tmp_path):
    stored = np.random.default_rng(1).integers(0, 2**64, 3000, dtype=np.uint64)
    fpstore.build(tmp_path / "s", stored).close()
    with fpstore.open(tmp_path / "s", "r+") as store:
        store.insert([3, 7], [9000, 9001])
        store.delete(fingerprints=stored[:100])
        expected = sorted({3, 7, *stored[100:].tolist()})
        started = iter(store)
        assert next(started) == expected[0]
        store.delete(fingerprints=[7])
        assert [expected[0], *started] == expected  # as it was when it began
        assert list(store) == [fingerprint for fingerprint in expected if fingerprint != 7]
    with pytest.raises(fpstore.ClosedStoreError):
        iter(store)


def test_what_has_no_order_of_its_own_is_not_iterated(tmp_path):
    with fpstore.build(tmp_path / "s", [1, 2]) as store:
        for wrong in (lambda: iter(store.ids), lambda: reversed(store.ids), lambda: reversed(store)):
            with pytest.raises(TypeError):
                wrong()


# --- Many strings ---------------------------------------------------------------------------------


def test_each_string_is_read_once(tmp_path, monkeypatch):
    """Each record of strings, however many matches have one of it; in order of the numbers, many with one call."""
    from fpstore.disk.sealed import SealedReader

    rng = np.random.default_rng(2)
    stored = rng.integers(0, 2**64, 2000, dtype=np.uint64)
    names = [f"https://example.org/{i}" for i in range(1000)]
    fpstore.build(tmp_path / "s", stored, [names[i] for i in rng.integers(0, 1000, 2000)]).close()
    with fpstore.open(tmp_path / "s", "r+") as store:
        fresh = [1, 2, 3]
        store.insert(fresh, ["new", names[5], "new"])
        asked = np.concatenate([rng.choice(stored, 5000), np.array(fresh * 3, np.uint64)])
        expected = [store[int(fingerprint)] for fingerprint in asked]
        read = []

        class Noting:  # and no look-up of one key
            def __init__(self, reader):
                self.reader = reader

            def get_many(self, keys, *more):
                read.extend(keys if self.reader.path.name == STRINGS_FILE else ())
                return self.reader._file.get_many(keys, *more)

        monkeypatch.setattr(SealedReader, "file", property(Noting))
        lims, ids = store.ids_of(asked)
    assert [ids[a:b] for a, b in zip(lims[:-1].tolist(), lims[1:].tolist(), strict=True)] == expected
    assert read == sorted(set(read))
    assert len(read) > 10
    assert {id(name) for name in ids if name == "new"} == {id(ids[-1])}


def test_ids_of_more_fingerprints_than_are_looked_up_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr("fpstore.format.mapping.LOOK_UPS", 7)
    stored = np.arange(100, dtype=np.uint64) * 2
    with fpstore.build(tmp_path / "s", np.repeat(stored, 2), np.arange(200)) as store:
        lims, ids = store.ids_of(stored[::-1])
        assert (lims.dtype, lims.tolist()) == (np.int64, list(range(0, 201, 2)))
        assert ids.tolist() == np.arange(200).reshape(100, 2)[::-1].ravel().tolist()


def test_ids_of_no_length_are_refused(tmp_path):
    with fpstore.build(tmp_path / "s", [1]) as store, pytest.raises(fpstore.InputError, match="ids must be a list or an array"):
        store.fingerprints_of(np.array(0, np.uint64))


def test_a_number_that_has_no_string_is_damage(tmp_path):
    fpstore.build(tmp_path / "s", [1, 2], ["a", "b"]).close()
    with fpstore.open(tmp_path / "s", "r+") as store:
        store.insert([3, 4], ["c", "d"])
        snapshot = snapshot_of(store)
        assert snapshot.named([0, 1, 2, 3]) == ["a", "b", "c", "d"]
        assert snapshot.named([3, 0, 2, 1, 2, 0]) == ["d", "a", "c", "b", "c", "a"]
        for number in (4, 5, 2**63):
            for numbers in ([number], [0, 1, 2, 3, number]):
                with pytest.raises(fpstore.CorruptStoreError, match=f"id number {number} has no string"):
                    snapshot.named(numbers)


def test_what_belongs_to_a_generation_alone(tmp_path):
    """Its look-ups are made once; a dictionary is counted where there is one."""
    fpstore.build(tmp_path / "s", [1, 2], ["a", "b"]).close()
    with fpstore.open(tmp_path / "s", "r+") as store:
        first = snapshot_of(store).generation
        assert first.prober(3) is first.prober(3)
        assert first.prober(3) is not first.prober(2)
        assert first.record.first_string == 2
        files = [(tmp_path / "s" / "gen-00000001" / name).stat() for name in DICTIONARY_FILES]
        assert first.strings_bytes == sum(min(file.st_size, file.st_blocks * 512) for file in files) > 0  # without holes
        store.insert(3, "c")
        store.merge()
        second = snapshot_of(store).generation
        assert second.record.first_string == 3
        assert second.strings_bytes == second.dictionary.file_bytes > 0
    with fpstore.build(tmp_path / "rows", [1, 2]) as rows:
        assert snapshot_of(rows).generation.strings_bytes == 0
