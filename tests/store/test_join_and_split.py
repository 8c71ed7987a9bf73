"""Stores that are merged into one, and one that is split.

What they hold then, the ids, and what is refused.
"""

import itertools
import shutil

import numpy as np
import pytest
from speeds import crossed
from store_model import Model, check_merged, content_of, words

import fpstore
from fpstore.format.strings import RecordReader

OPTIONS = {"radius": 2, "design": "flip-2", "block_bytes": 128, "threads": 1}
TOP = 2**64 - 1
RNG = np.random.default_rng(23)
FINGERPRINTS = RNG.integers(0, 2**64, 90, np.uint64).tolist()


def ids_of(kind, start, count):
    if kind == "row":
        return None
    return [f"document {i}" if kind == "string" else i for i in range(start, start + count)]


def make(path, kind, fingerprints, start, **options):
    """Build a store, and insert and delete what stays in its log; return what it holds."""
    ids = ids_of(kind, start, len(fingerprints))
    built = len(fingerprints) * 2 // 3
    fpstore.build(
        path, words(fingerprints[:built]), ids and ids[:built], **OPTIONS, **options
    ).close()
    with fpstore.open(path, "r+") as store:
        if built < len(fingerprints):
            store.insert(words(fingerprints[built:]), ids and ids[built:])
            store.delete(fingerprints=fingerprints[1])
            if kind == "string":  # a string in use again, and one that no id has
                store.insert([fingerprints[2]], [ids[1]])
                store.delete(ids=ids[3])
        return content_of(store)


def united(*contents):
    together = {}
    for content in contents:
        for fingerprint, ids in content.items():
            together.setdefault(fingerprint, set()).update(ids)
    return together


def model_of(kind, content):
    return Model(
        kind, [(fingerprint, item) for fingerprint, ids in content.items() for item in ids]
    )


# --- Joining --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "design"), crossed(["row", "integer", "string"], ["flip-2", "blocks-3-1"])
)
def test_a_joined_store_holds_what_all_held(tmp_path, kind, design):
    """Fingerprints and ids that several have are there once.

    The others are streamed or sorted, and do not change.
    """
    contents = [make(tmp_path / "s", kind, FINGERPRINTS[:40], 0)]
    for name, fingerprints, start in (
        ("a", FINGERPRINTS[30:60], 30),
        ("b", FINGERPRINTS[38:90], 20),
        ("c", [], 0),
    ):
        contents.append(make(tmp_path / name, kind, fingerprints, start))
    if design != "flip-2":
        with fpstore.open(tmp_path / "a", "r+") as store:
            store.redesign(design, threads=1)
    before = {
        path: path.read_bytes()
        for name in "abc"
        for path in (tmp_path / name).rglob("*")
        if path.is_file()
    }
    expected = united(*contents)
    with fpstore.open(tmp_path / "s", "r+") as store:
        store.absorb(*(tmp_path / name for name in "abc"), threads=1)
        assert content_of(store) == expected
        assert len(store) == len(expected)
        assert store.stats()["ids"] == sum(map(len, expected.values()))
        assert store.verify().ok
        for fingerprint, ids in expected.items():
            assert sorted(store[fingerprint]) == sorted(ids)
        if kind == "row":  # the next row number is above all of them
            store.insert([7])
            assert store[7] == [max(max(ids) for ids in expected.values()) + 1]
            store.delete(fingerprints=7)
            store.merge(threads=1)
        check_merged(tmp_path / "s", model_of(kind, expected), store, tmp_path)
    assert all(path.read_bytes() == data for path, data in before.items())


def test_a_string_of_several_stores_is_one_id(tmp_path):
    for name, fingerprint in (("s", 1), ("a", 2), ("b", 3)):
        fpstore.build(
            tmp_path / name, [fingerprint, 10 * fingerprint], ["shared", name], **OPTIONS
        ).close()
    with fpstore.open(tmp_path / "a", "r+") as store:
        store.insert([200, 201], ["late", "b"])
    with fpstore.open(tmp_path / "s", "r+") as store:
        store.absorb(tmp_path / "a", tmp_path / "b", threads=1)
        lims, fingerprints = store.fingerprints_of(["shared", "late", "b", "s", "none"])
        assert [fingerprints[a:b].tolist() for a, b in itertools.pairwise(lims)] == [
            [1, 2, 3],
            [200],
            [30, 201],
            [10],
            [],
        ]
        assert store.verify().ok


@pytest.mark.parametrize("kind", ["row", "integer", "string"])
def test_empty_store_takes_the_id_kind_of_the_first_store_joined(tmp_path, kind):
    fpstore.build(tmp_path / "s", [], **OPTIONS).close()
    fpstore.build(tmp_path / "empty", [], **OPTIONS).close()
    content = make(tmp_path / "a", kind, FINGERPRINTS[:9], 5)
    with fpstore.open(tmp_path / "s", "r+") as store:
        store.absorb(tmp_path / "empty", tmp_path / "a", threads=1)
        assert content_of(store) == content
        assert store.stats()["id_kind"] == kind


def test_rows_and_integers_are_integers_together(tmp_path):
    rows = make(tmp_path / "s", "row", FINGERPRINTS[:9], 0)
    integers = make(tmp_path / "a", "integer", FINGERPRINTS[9:18], 100)
    with fpstore.open(tmp_path / "s", "r+") as store:
        store.absorb(tmp_path / "a", threads=1)
        assert store.stats()["id_kind"] == "integer"
        assert content_of(store) == united(rows, integers)


@pytest.mark.parametrize("kind", ["row", "integer"])
def test_renumbered_ids_follow_the_largest_so_far(tmp_path, kind):
    content = make(tmp_path / "s", kind, FINGERPRINTS[:10], 0)
    a = make(tmp_path / "a", "row", FINGERPRINTS[10:16], 0)
    b = make(tmp_path / "b", "integer", FINGERPRINTS[16:22], 50)
    with fpstore.open(tmp_path / "s", "r+") as store:
        store.absorb(tmp_path / "a", tmp_path / "b", renumber=True, threads=1)
        moved = {f: {i + 10 for i in ids} for f, ids in a.items()} | {
            f: {i + 16 for i in ids} for f, ids in b.items()
        }
        assert content_of(store) == united(content, moved)
        assert store.verify().ok


@pytest.mark.parametrize("largest", [TOP - 8, TOP - 7, TOP])
def test_ids_are_not_renumbered_beyond_the_largest(tmp_path, largest):
    fpstore.build(tmp_path / "s", [1], [largest], **OPTIONS).close()
    content = make(tmp_path / "a", "row", FINGERPRINTS[:6], 0)
    fpstore.build(tmp_path / "b", [2], [1], **OPTIONS).close()
    with fpstore.open(tmp_path / "s", "r+") as store:
        if largest + 8 <= TOP:  # 6 numbers for one store and 2 for the other
            store.absorb(tmp_path / "a", tmp_path / "b", renumber=True, threads=1)
            moved = {
                fingerprint: {i + largest + 1 for i in ids} for fingerprint, ids in content.items()
            }
            assert content_of(store) == {1: {largest}, 2: {TOP}, **moved}
        else:
            with pytest.raises(
                fpstore.InputError,
                match=r"its ids would go over 2\^64-1: absorb it without renumber",
            ):
                store.absorb(tmp_path / "a", tmp_path / "b", renumber=True, threads=1)
            assert content_of(store) == {1: {largest}}
            assert store.stats()["generation"] == 1
        assert store.verify().ok


def test_row_numbers_are_not_renumbered_beyond_the_largest(tmp_path):
    """A store whose ids are row numbers may have got the largest id there is."""
    fpstore.build(tmp_path / "one", [1], **OPTIONS).close()
    fpstore.build(tmp_path / "x", [100], **OPTIONS).close()
    with fpstore.open(tmp_path / "x", "r+") as store:
        store.insert([200], [TOP])
    shutil.copytree(tmp_path / "one", tmp_path / "again")
    for into, other in (("one", "x"), ("x", "again")):
        with fpstore.open(tmp_path / into, "r+") as store:
            content = content_of(store)
            with pytest.raises(fpstore.InputError, match=r"its ids would go over 2\^64-1"):
                store.absorb(tmp_path / other, renumber=True, threads=1)
            assert content_of(store) == content
            store.absorb(tmp_path / other, threads=1)
            store.insert([60], [5])  # it can be changed
            assert store.delete(ids=[0]).removed == 2
            wanted = {60: {5}, 200: {TOP}}
            assert content_of(store) == wanted
    with fpstore.open(tmp_path / "x", "r+") as store:
        assert content_of(store) == wanted
        store.merge(threads=1)
        assert (content_of(store), store.verify().ok) == (wanted, True)


REFUSED = {
    "strings with integers": (
        ("string", None),
        ("integer", None),
        "its ids are integers, the ids of .*/s are strings",
    ),
    "rows with strings": (
        ("row", None),
        ("string", None),
        "its ids are strings, the ids of .*/s are integers",
    ),
    "another fingerprinter": (("row", 1), ("row", 2), "its fingerprints were made in another way"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_stores_that_do_not_fit_are_not_joined(tmp_path, case):
    (mine, my_seed), (theirs, their_seed), message = REFUSED[case]
    made = {
        name: seed and fpstore.SimHash(seed=seed)
        for name, seed in (("s", my_seed), ("a", their_seed))
    }
    content = make(tmp_path / "s", mine, FINGERPRINTS[:9], 0, fingerprinter=made["s"])
    make(tmp_path / "a", theirs, FINGERPRINTS[9:18], 0, fingerprinter=made["a"])
    with fpstore.open(tmp_path / "s", "r+") as store:
        with pytest.raises(fpstore.InputError, match=message):
            store.absorb(tmp_path / "a", threads=1)
        assert content_of(store) == content
        # it is no failure of the store
        assert (store.stats()["generation"], store.stats()["merge_error"]) == (1, None)
        with pytest.raises(fpstore.InputError, match="paths of other stores"):
            store.absorb(renumber=True)
        store.merge(threads=1)  # nothing is in the way
        assert content_of(store) == content


@pytest.mark.parametrize(("mine", "theirs"), [(1, 1), (1, None), (None, 2)])
def test_fingerprinters_that_are_the_same_or_not_known(tmp_path, mine, theirs):
    for name, seed, fingerprint in (("s", mine, 1), ("a", theirs, 2)):
        fpstore.build(
            tmp_path / name,
            [fingerprint],
            [fingerprint],
            fingerprinter=seed and fpstore.SimHash(seed=seed),
        ).close()
    with fpstore.open(tmp_path / "s", "r+") as store:
        kept = store.fingerprinter
        store.absorb(tmp_path / "a", threads=1)
        assert content_of(store) == {1: {1}, 2: {2}}
        assert store.fingerprinter == kept


# --- Splitting ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "bits"), crossed(["row", "integer", "string"], [1, 3]))
def test_parts_are_what_begins_with_their_bits(tmp_path, kind, bits):
    content = make(tmp_path / "s", kind, [*FINGERPRINTS[:60], 0, TOP, 2**63 - 1, 2**63], 0)
    with fpstore.open(tmp_path / "s") as store:
        paths = store.split(tmp_path / "parts", bits, threads=1)
    assert [path.name for path in paths] == [
        f"{prefix:0{bits}b}.fps" for prefix in range(1 << bits)
    ]
    parts = []
    for prefix, path in enumerate(paths):
        expected = {
            fingerprint: ids
            for fingerprint, ids in content.items()
            if fingerprint >> 64 - bits == prefix
        }
        with fpstore.open(path, "r+") as part:
            assert content_of(part) == expected
            assert part.verify().ok
            assert (part.radius, part.design.name, part.stats()["id_kind"]) == (2, "flip-2", kind)
            assert (part.snapshot().generation.places is not None) is (kind == "string")
            if kind == "string":  # and no string of another part
                used = set().union(*expected.values())
                everything = [f"document {i}" for i in range(64)]
                assert [name in part.ids for name in everything] == [
                    name in used for name in everything
                ]
                dictionary = part.snapshot().generation.dictionary
                assert dictionary is not None
                strings = [
                    string
                    for _, column in dictionary.strings.columns()
                    for string in column.tolist()
                    if string
                ]
                assert len(strings) == len(used)
            elif kind == "row":
                part.insert([7 | prefix << 64 - bits])
                assert part[7 | prefix << 64 - bits] == [64]
                part.delete(ids=64)
            parts.append(part.snapshot().generation.manifest.identity)
    assert len({*parts}) == len(parts)  # each is a store of its own
    first, *rest = paths
    with fpstore.open(first, "r+") as store:
        store.absorb(*rest, threads=1)
        assert content_of(store) == content
        assert store.verify().ok


LONG_IDS = [f"https://example.org/{i}/" + f"{i * 7919 % 10_007:05d}-" * 70 for i in range(400)]


def records_read(monkeypatch):
    """Count the records of strings that are decompressed."""
    counts, contents = [], RecordReader.contents

    def counting(self, records, values):
        counts.append(len(records))
        return contents(self, records, values)

    monkeypatch.setattr(RecordReader, "contents", counting)
    return counts


def test_split_parts_hold_and_read_only_their_strings(tmp_path, monkeypatch):
    """Each part had a place for every string of the store, and compressed its records again."""
    fingerprints = RNG.integers(0, 2**64, len(LONG_IDS), np.uint64)
    with fpstore.build(tmp_path / "s", fingerprints, LONG_IDS, **OPTIONS) as store:
        assert store.snapshot().generation.dictionary.strings.per_record <= 2
        counts = records_read(monkeypatch)
        paths = store.split(tmp_path / "parts", 3, threads=1)
    assert sum(counts) <= len(LONG_IDS)
    dictionaries = []
    for path in paths:
        with fpstore.open(path) as part:
            dictionaries.append(part.snapshot().generation.record.dictionary["count"])
            assert dictionaries[-1] == part.stats()["ids"]
    assert sum(dictionaries) == len(LONG_IDS)


def test_merge_reads_changed_records_of_strings_together(tmp_path, monkeypatch):
    """Each record that lost a string was decompressed and compressed by a call of its own."""
    with fpstore.build(tmp_path / "s", range(len(LONG_IDS)), LONG_IDS, **OPTIONS) as store:
        held = content_of(store)
    with fpstore.open(tmp_path / "s", "r+") as store:
        store.delete(ids=LONG_IDS[::3])
        counts = records_read(monkeypatch)
        store.merge(threads=1)
        assert len(counts) < 10
        assert content_of(store) == {i: ids for i, ids in held.items() if i % 3}
        assert store.verify().ok


@pytest.mark.parametrize("there", [True, False])
def test_a_split_that_is_stopped_leaves_no_empty_folder(tmp_path, there):
    out = tmp_path / "out"
    if there:
        out.mkdir()

    def stop(*_):
        raise KeyboardInterrupt

    with fpstore.build(tmp_path / "s", [1, 2, 3]) as store, pytest.raises(KeyboardInterrupt):
        store.split(out, 1, progress=stop)
    assert out.exists() == there
    assert not there or not list(out.iterdir())
