"""Builds in small memory and in many threads are byte for byte those of large memory and one."""

import numpy as np
import pytest
import tableimage
from building import MIB, ROWS, build, make_rows, pieces, run_python, tables_of

import fpstore
from fpstore import _kernel
from fpstore.building.columns import Column
from fpstore.building.external_sort import Runs, size_of
from fpstore.building.table_keys import TableKeys


@pytest.mark.parametrize(
    ("name", "kind"), [*(("manku-4", kind) for kind in ROWS), ("manku-20", "skewed"), ("flip-2", "one prefix")]
)
def test_spilled_builds_are_byte_identical(tmp_path, request, name, kind):
    fingerprints, ids = make_rows(kind, 500)
    options = {"design": name, "block_bytes": 128, "memory": "64MiB"}
    wanted = build(tmp_path / "memory", fingerprints, ids, **options)
    request.getfixturevalue("tiny")
    assert build(tmp_path / "spilled", pieces(fingerprints), pieces(ids), **options) == wanted
    for threads in (1, 3):
        assert build(tmp_path / f"threads-{threads}", fingerprints, ids, threads=threads, **options) == wanted
    assert sorted(p.name for p in (tmp_path / "spilled").iterdir()) == ["gen-00000001", "manifest.json", "writer.lock"]


def test_the_tiny_budget_does_spill(tmp_path, tiny, monkeypatch):
    cuts = []
    parts = []
    cut, merged = Runs.parts, TableKeys._merged
    monkeypatch.setattr(Runs, "parts", lambda runs, most: cuts.append(list(map(size_of, cut(runs, most)))) or cut(runs, most))
    monkeypatch.setattr(TableKeys, "_merged", lambda keys: _noting_sizes(merged(keys), parts))
    build(tmp_path / "s", *make_rows("one prefix", 900), design="manku-4", memory=64 * MIB)
    assert len(cuts[0]) > 20  # all rows begin alike: parts are cut by bounds among their keys
    assert max(cuts[0]) <= 64
    assert len(parts) == 6  # two passes for each table but the first
    assert min(map(len, parts)) > 5
    assert max(map(max, parts)) <= 64


def _noting_sizes(pieces, sizes):
    own = []
    sizes.append(own)
    for piece in pieces:
        own.append(len(piece))
        yield piece


def test_string_ids_in_small_memory(tmp_path, tiny):
    fingerprints, ids = make_rows("clustered", 1000)
    names = [f"name {i % 400}" for i in ids.tolist()]
    _, got = build(tmp_path / "s", fingerprints, names, memory="64MiB")
    assert sorted(got) == sorted(set(zip(fingerprints.tolist(), names, strict=True)))


def test_sorts_leave_room_in_the_budget(tmp_path, monkeypatch):
    from fpstore.building import builder

    budgets = []
    sorter = builder.Sorter
    monkeypatch.setattr(builder, "Sorter", lambda memory, *others: budgets.append(memory) or sorter(memory, *others))
    for memory in (64 * MIB, 1024 * MIB):
        build(tmp_path / str(memory), *make_rows("random", 50), memory=memory)
    assert budgets == [32 * MIB, 944 * MIB]


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


def test_splitting_again_and_again_does_not_run_out_of_open_files(tmp_path):
    code, out, err = run_python(MANY_PARTS, tmp_path / "s")
    assert (code, out, err) == (0, "2041 True\n", "")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["manku-10", "flip-2"])
def test_a_build_larger_than_its_memory(tmp_path, name):
    rng = np.random.default_rng(1)
    fingerprints = rng.integers(0, 2**64, 6_000_000, np.uint64)
    fingerprints[::7] = fingerprints[3]
    a, b = tmp_path / "a", tmp_path / "b"
    fpstore.build(a, fingerprints, design=name, memory="64MiB").close()
    fpstore.build(b, fingerprints, design=name, memory="8GiB", threads=1).close()
    assert tables_of(a) == tables_of(b)
    with fpstore.open(a) as one, fpstore.open(b) as other:
        assert one.verify().ok
        assert one[int(fingerprints[3])] == other[int(fingerprints[3])]


def test_threads_do_not_change_a_byte(tmp_path):
    fingerprints, ids = make_rows("skewed", 5000)
    one = build(tmp_path / "one", fingerprints, ids, design="manku-20", threads=1)
    for threads in (2, 5, None):
        assert build(tmp_path / f"t{threads}", fingerprints, ids, design="manku-20", threads=threads) == one


@pytest.mark.parametrize("block_bytes", [128, 256, 512, 1024, 2048, 4096])
def test_block_sizes(tmp_path, block_bytes):
    fingerprints, ids = make_rows("random", 3000)
    tables, rows = build(tmp_path / "s", fingerprints, ids, block_bytes=block_bytes, radius=2, design="flip-2")
    assert rows == sorted(set(zip(fingerprints.tolist(), ids.tolist(), strict=True)))
    for data in (data for name, data in tables.items() if name.startswith("table-")):
        assert tableimage.open_table(data).block_bytes == block_bytes


def test_a_build_does_not_change_its_input(tmp_path):
    fingerprints, ids = make_rows("random", 1000)
    copies = fingerprints.copy(), ids.copy()
    fingerprints.flags.writeable = ids.flags.writeable = False
    build(tmp_path / "s", fingerprints, ids)
    assert np.array_equal(fingerprints, copies[0])
    assert np.array_equal(ids, copies[1])


@pytest.mark.parametrize("most", [1, 100, 1000])
def test_many_ids_a_fingerprint_are_packed_in_small_memory(tmp_path, tiny, monkeypatch, most):
    """The ids of a few fingerprints are held together, not those of all the fingerprints of a piece or of many blocks."""
    fingerprints = np.repeat(make_rows("random", 2000)[0], 5)
    ids = np.random.default_rng(1).permutation(np.arange(10_000, dtype=np.uint64))
    expected = build(tmp_path / "a", fingerprints, ids, block_bytes=128, design="flip-2")
    monkeypatch.setattr("fpstore.building.columns.COPY_ROWS", most)
    monkeypatch.setattr("fpstore.format.mapping.PENDING_IDS", most)
    taken, packed = [], []
    take, pack = Column.part, _kernel.pack_ids

    def counted_take(self, start, rows):
        if self._type == np.uint32:  # of the ids
            taken.append(rows)
        return take(self, start, rows)

    def counted_pack(numbers, *args):
        packed.append(len(numbers))
        return pack(numbers, *args)

    monkeypatch.setattr(Column, "part", counted_take)
    monkeypatch.setattr(_kernel, "pack_ids", counted_pack)
    assert build(tmp_path / "b", fingerprints, ids, block_bytes=128, design="flip-2") == expected
    ids_of_one = 5 * int(np.unique(fingerprints, return_counts=True)[1].max() // 5)
    assert sum(taken) == sum(packed) == len(fingerprints)
    assert max(taken) <= max(most, ids_of_one)
    assert max(packed) <= 2 * most + 40 * ids_of_one  # and the block that was open
