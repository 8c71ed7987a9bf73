"""Builds of every input, in small memory and in many threads, are the same byte for byte."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from building import MIB, ROWS, build, listing, make_rows, pieces, run_python
from speeds import slow

import fpstore
from fpstore.building.external_sort import Runs, count_rows
from fpstore.building.table_keys import TableKeys
from fpstore.format.mapping import MappingWriter
from fpstore.io import open_reader


@pytest.fixture(scope="module")
def rows():
    return make_rows("clustered", 3000)


@pytest.fixture(scope="module")
def expected(rows, tmp_path_factory):
    return build(tmp_path_factory.mktemp("expected") / "s", *rows)


class Series:
    """Converts itself to an array as a pandas Series does, and is a sequence of NumPy integers."""

    def __init__(self, values):
        self._values = values

    def __array__(self, dtype=None, copy=None):
        return np.array(self._values, dtype=dtype, copy=copy)

    def __len__(self):
        return len(self._values)

    def __iter__(self):
        return iter(self._values)


def test_every_form_of_input_builds_the_same(tmp_path, rows, expected):
    fingerprints, ids = rows
    cut = [pieces(column) for column in rows]
    forms = {
        "lists": (fingerprints.tolist(), ids.tolist()),
        "tuples": (tuple(fingerprints.tolist()), tuple(ids.tolist())),
        "parts": cut,
        "generators": (iter(cut[0]), (part for part in cut[1])),
        "parts that are lists": (
            iter([part.tolist() for part in cut[0]]),
            [part.tolist() for part in cut[1]],
        ),
        "other dtypes": (np.repeat(fingerprints, 2)[::2].astype(">u8"), ids.astype(np.int32)),
        "columns": (Series(fingerprints), Series(ids)),
        "parts that are columns": [[Series(part) for part in parts] for parts in cut],
        "Arrow": [pa.array(column) for column in rows],
        "Arrow in chunks": [pa.chunked_array(parts) for parts in cut],
    }
    for form, (source, source_ids) in forms.items():
        assert build(tmp_path / form, source, source_ids) == expected, form


def test_what_turns_itself_into_another_array_is_refused(tmp_path):
    for values in (np.arange(3), np.ones(3), np.ones((2, 3), np.uint64), np.array(3, np.uint64)):
        with pytest.raises(fpstore.InputError, match=f"dtype {values.dtype}, shape"):
            fpstore.build(tmp_path / "s", Series(values))
        assert listing(tmp_path) == []


def test_row_numbers_run_on_over_parts_and_readers(tmp_path, rows, expected):
    fingerprints, ids = rows
    wanted = build(tmp_path / "a", fingerprints, np.arange(len(fingerprints), dtype=np.uint64))
    np.save(tmp_path / "a.npy", fingerprints)
    (tmp_path / "a.u64").write_bytes(fingerprints.astype("<u8").tobytes())
    readers = [open_reader([tmp_path / "a.npy"]), open_reader(tmp_path / "a.u64", chunk_rows=700)]
    for number, source in enumerate((fingerprints, pieces(fingerprints), *readers)):
        assert build(tmp_path / str(number), source) == wanted
    lines = zip(fingerprints.tolist(), ids.tolist(), strict=True)
    (tmp_path / "a.tsv").write_text("".join(f"{f:016x}\t{i}\n" for f, i in lines))
    assert build(tmp_path / "s", open_reader(tmp_path / "a.tsv", chunk_rows=700)) == expected


def test_an_empty_part_does_not_change_the_kind_of_ids(tmp_path):
    for at, ids in itertools.product(range(3), (["a", "b"], [7, 8], None)):
        parts = [np.array([1], np.uint64), np.array([2], np.uint64)]
        parts.insert(at, np.empty(0, np.uint64))
        id_parts = ids and [[ids[0]], [ids[1]]]
        if id_parts:
            id_parts.insert(at, [])
        with fpstore.build(tmp_path / "s", parts, id_parts, overwrite=True) as store:
            assert [*store[1], *store[2]] == (ids or [0, 1])


THIN = [("manku-4", "duplicates"), ("manku-20", "skewed"), ("flip-2", "one prefix")]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("name", "kind"), [*THIN, *(slow("manku-4", kind) for kind in ROWS if kind != "duplicates")]
)
def test_spilled_builds_are_byte_identical(tmp_path, request, name, kind):
    fingerprints, ids = make_rows(kind, 300)
    options = {"design": name, "block_bytes": 128, "memory": "64MiB"}
    wanted = build(tmp_path / "memory", fingerprints, ids, **options)
    request.getfixturevalue("tiny")
    assert (
        build(
            tmp_path / "spilled",
            pieces(fingerprints, (0, 1, 1, 99)),
            pieces(ids, (0, 1, 1, 99)),
            **options,
        )
        == wanted
    )
    for threads in (1, 3):
        assert (
            build(tmp_path / f"threads-{threads}", fingerprints, ids, threads=threads, **options)
            == wanted
        )
    assert sorted(p.name for p in (tmp_path / "spilled").iterdir()) == [
        "gen-00000001",
        "manifest.json",
        "writer.lock",
    ]


def test_the_tiny_budget_does_spill(tmp_path, tiny, monkeypatch):
    cuts, parts = [], []
    cut, merged = Runs.parts, TableKeys._merge_runs

    def noted(keys):
        sizes = parts.append([]) or parts[-1]
        for piece in merged(keys):
            sizes.append(len(piece))
            yield piece

    monkeypatch.setattr(
        Runs,
        "parts",
        lambda runs, most: cuts.append(list(map(count_rows, cut(runs, most)))) or cut(runs, most),
    )
    monkeypatch.setattr(TableKeys, "_merge_runs", noted)
    build(tmp_path / "s", *make_rows("one prefix", 450), design="manku-4", memory=64 * MIB)
    # all rows begin alike: parts are cut by bounds among their keys
    assert (len(cuts[0]) > 10, max(cuts[0]) <= 64) == (True, True)
    assert len(parts) == 6  # two passes for each table but the first
    assert (min(map(len, parts)) > 5, max(map(max, parts)) <= 64) == (True, True)


def test_string_ids_in_small_memory(tmp_path, tiny):
    fingerprints, ids = make_rows("clustered", 300)
    names = [f"name {i % 120}" for i in ids.tolist()]
    _, got = build(tmp_path / "s", fingerprints, names, memory="64MiB", design="flip-2")
    assert sorted(got) == sorted(set(zip(fingerprints.tolist(), names, strict=True)))


MANY_PARTS = """
    import resource, sys, numpy as np, fpstore
    from fpstore.building import external_sort as sorting
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    sorting.PAIR_BYTES, sorting.COPY_ROWS = 1 << 20, 1 << 12
    digits = np.arange(256, dtype=np.uint64)
    keys = np.concatenate([digits << np.uint64(56 - 8 * depth) for depth in range(8)])
    with fpstore.build(sys.argv[1], keys, memory="64MiB", design="flip-2") as store:
        print(len(store), store.verify().ok)
"""


@pytest.mark.full
def test_repeated_splitting_does_not_run_out_of_open_files(tmp_path):
    code, out, err = run_python(MANY_PARTS, tmp_path / "s")
    assert (code, out, err) == (0, "2041 True\n", "")


def test_threads_change_no_byte_and_builds_no_input(tmp_path):
    fingerprints, ids = make_rows("skewed", 5000)
    copies = fingerprints.copy(), ids.copy()
    fingerprints.flags.writeable = ids.flags.writeable = False
    store = build(tmp_path / "one", fingerprints, ids, design="manku-20", threads=1)
    for threads in (2, 5, None):
        assert (
            build(tmp_path / f"t{threads}", fingerprints, ids, design="manku-20", threads=threads)
            == store
        )
    assert np.array_equal((fingerprints, ids), copies)


@pytest.mark.parametrize("most", [slow(1), 100, slow(1000)])
def test_many_ids_a_fingerprint_are_packed_in_small_memory(
    tmp_path, tiny, monkeypatch, set_limits, most
):
    """Memory holds the ids of a few fingerprints, not those of a piece or of many blocks."""
    fingerprints = np.repeat(make_rows("random", 400)[0], 5)
    ids = np.random.default_rng(1).permutation(np.arange(len(fingerprints), dtype=np.uint64))
    expected = build(tmp_path / "a", fingerprints, ids, block_bytes=128, design="flip-2")
    set_limits(column_rows=most)
    fed, buffered, blocks = [], [], []
    pack = MappingWriter._pack

    def note(self, group, entry_counts):
        pack(self, group, entry_counts)
        fed.append(len(group[2]))
        buffered.append(self._packer.buffered_rows)
        blocks.extend(entry_counts.tolist())

    monkeypatch.setattr(MappingWriter, "_pack", note)
    assert build(tmp_path / "b", fingerprints, ids, block_bytes=128, design="flip-2") == expected
    assert sum(fed) == len(fingerprints)
    assert max(buffered) <= max(blocks) + 1
    assert max(fed) <= max(most, np.unique(fingerprints, return_counts=True)[1].max())
