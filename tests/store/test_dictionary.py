"""Dictionaries of string ids.

Strings of equal hashes, odd strings, through builds, inserts, merges, joins and exports.
"""

import json
import threading
from itertools import pairwise

import numpy as np
import pytest
from commandline import fine
from hypothesis import given, settings
from hypothesis import strategies as st

import fpstore
from fpstore.base.strings import StringColumn
from fpstore.format.dictionary import Dictionary

MAX_BYTES = 1 << 16


def held(store):
    assert store.verify().ok, store.verify().faults
    return {fingerprint: store[fingerprint] for fingerprint in store}


def asked(store, content):
    """Compare a store with its content, also from each string to its fingerprint."""
    assert held(store) == {fingerprint: [name] for fingerprint, name in content.items()}
    names = list(content.values())
    lims, fingerprints = store.fingerprints_of(names)
    assert [fingerprints[a:b].tolist() for a, b in pairwise(lims)] == [
        [fingerprint] for fingerprint in content
    ]
    for fingerprint, name in list(content.items())[::5]:
        assert store.ids[name] == [fingerprint]


# --- Equal hashes ---------------------------------------------------------------------------------


@pytest.fixture(params=[3, 1])
def equal_hashes(request, monkeypatch):
    """Give all strings with the same first letter, or all strings, the same hash."""

    def hash_of(string):
        return 2**63 | (string or b"\0")[0] % request.param

    def hashes(column):
        return np.array([hash_of(string) for string in column.tolist()], np.uint64)

    monkeypatch.setattr("fpstore.format.dictionary.string_hash", hash_of)
    monkeypatch.setattr(StringColumn, "hashes", hashes)


def test_strings_of_equal_hashes_are_kept_apart(tmp_path, equal_hashes):
    names = [f"{c}{i}" for i in range(20) for c in "abc"]
    rows = np.arange(120, dtype=np.uint64)
    parts = [rows[:60], rows[60:]]  # the second part has the strings of the first
    with fpstore.build(tmp_path / "s", parts, [names, names[::-1]]) as store:
        assert store.stats()["ids"] == 120
        assert [store[i] for i in range(120)] == [[name] for name in names + names[::-1]]
        assert store.verify().ok
        assert store.snapshot().generation.record.first_string == 60
        assert "a99" not in store.ids
        lims, _ = store.fingerprints_of(["a99", "b3", "c"])
        assert lims.tolist() == [0, 0, 2, 2]


def test_strings_of_equal_hashes_survive_changes_and_merges(tmp_path, equal_hashes):
    content = {i: f"{'abc'[i % 3]}{i}" for i in range(40)}
    path = tmp_path / "s"
    fpstore.build(path, list(content), list(content.values())).close()
    with fpstore.open(path, "r+") as store:
        for step in range(3):
            fresh = {100 * step + i + 40: f"{'abc'[i % 3]}x{step}-{i}" for i in range(10)}
            store.insert(list(fresh), list(fresh.values()))
            content |= fresh
            for fingerprint in list(content)[step :: 4 + step]:
                assert store.delete(ids=[content.pop(fingerprint)]).removed == 1
            asked(store, content)
            store.merge()
            asked(store, content)
        assert "ax0-0" in store.ids or "ax0-0" not in content.values()


def test_strings_of_equal_hashes_through_a_join_and_a_split(tmp_path, equal_hashes):
    """Some strings are in both stores, with other numbers."""
    contents = [
        {i: f"{'abc'[i % 3]}{i}" for i in range(40)},
        {100 + i: f"{'abc'[i % 3]}{i}" for i in range(60)[::-1]},
    ]
    for place, content in enumerate(contents):
        with fpstore.build(tmp_path / f"{place}", list(content), list(content.values())) as store:
            asked(store, content)
    with fpstore.open(tmp_path / "0", "r+") as store:
        store.insert([7777], ["b58"])
        store.absorb(tmp_path / "1")
        assert held(store) == {
            f: [name] for f, name in (contents[0] | contents[1] | {7777: "b58"}).items()
        }
        assert store.ids["b58"] == [158, 7777]
        assert store.snapshot().generation.record.first_string == 60
        new = [name for name in contents[1].values() if int(name[1:]) >= 40 and name != "b58"]
        columns = store.snapshot().generation.dictionary.strings.columns()
        in_order = [string for _, column in columns for string in column.texts() if string]
        assert in_order == [*contents[0].values(), "b58", *new]
        paths = store.split(tmp_path / "parts", 1)
    with fpstore.open(paths[0]) as part:
        assert len(held(part)) == 101


# --- Odd strings ----------------------------------------------------------------------------------

ODD = [
    "\t",
    "a\tb",
    "\n",
    "a\nb\r\n",
    "\0",
    "a\0",
    "\0a",
    "\u2028",
    "\u2029",
    "\x85",
    "🙂",
    "👩\u200d👩\u200d👧",
    "ÿ",
    "\xff\xff",
    "文档",
    "ÿa",
    "\U0010ffff",
    "e\u0301",
    "é",
    " ",
    "x" * MAX_BYTES,
    "🙂" * (MAX_BYTES // 4),
    "y" * (MAX_BYTES - 1),
    "id",
    "null",
]


def test_odd_strings_through_everything(tmp_path):
    content = dict(enumerate(ODD[::2]))
    path = tmp_path / "s"
    with fpstore.build(path, list(content), list(content.values())) as store:
        asked(store, content)
    late = {1000 + i: name for i, name in enumerate(ODD[1::2])}
    with fpstore.open(path, "r+") as store:
        store.insert(list(late), list(late.values()))
        content |= late
        asked(store, content)
        store.merge()
        asked(store, content)
        queries = np.array(list(content), np.uint64)
        lims, ids = store.probe_many(queries, 0).read_ids()
        assert [list(ids[a:b]) for a, b in pairwise(lims)] == [[name] for name in content.values()]
        for gone in (ODD[0], ODD[1], "x" * MAX_BYTES):
            assert store.delete(ids=[gone]).removed == 1
            content = {fingerprint: name for fingerprint, name in content.items() if name != gone}
        store.merge()
        asked(store, content)
    rows = [json.loads(line) for line in fine("export", path, "--json").split("\n") if line]
    assert sorted(row["id"] for row in rows) == sorted(content.values())


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)


@settings(max_examples=12)
@given(
    st.lists(NAMES, min_size=1, max_size=60),
    st.lists(NAMES, max_size=30),
    st.randoms(use_true_random=False),
)
def test_any_strings(tmp_path_factory, names, more, random):
    path = tmp_path_factory.mktemp("any") / "s"
    fpstore.build(path, list(range(len(names))), names).close()
    with fpstore.open(path, "r+") as store:
        store.insert(list(range(1000, 1000 + len(more))), more)
        rows = [*enumerate(names), *enumerate(more, 1000)]
        gone = {random.choice(names) for _ in range(3)}
        store.delete(ids=list(gone))
        store.merge()
        assert held(store) == {
            fingerprint: [name] for fingerprint, name in rows if name not in gone
        }
        for name in {*names, *more}:
            stored = [
                fingerprint for fingerprint, other in rows if other == name and name not in gone
            ]
            assert store.fingerprints_of([name])[1].tolist() == stored


# --- Threads --------------------------------------------------------------------------------------


def test_several_threads_read_strings_at_once(tmp_path):
    """Each gets its own strings, whichever record another one reads meanwhile."""
    names = [f"https://example.org/{i * 7919 % 5000}/{i}" for i in range(5000)]
    fpstore.build(tmp_path / "s", np.arange(5000, dtype=np.uint64), names).close()
    wrong, start = [], threading.Barrier(4)

    def read(seed):
        rng = np.random.default_rng(seed)
        start.wait()
        for _ in range(30):
            part = rng.integers(0, 5000, 60)
            number = int(part[0])
            _, ids = store.ids_of(part.astype(np.uint64))
            if list(ids) != [names[i] for i in part] or store[number] != [names[number]]:
                wrong.append(part)
            if dictionary.numbers([names[i].encode() for i in part]).tolist() != part.tolist():
                wrong.append(part)

    with fpstore.open(tmp_path / "s") as store:
        dictionary = store.snapshot().generation.dictionary
        assert isinstance(dictionary, Dictionary)
        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []
