"""Sharded stores in several processes and threads, and with few open files.

Their manifest is as docs/format.md has it.
"""

import json
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import xxhash
from building import run_python
from disks import fill
from shards import ids_of, queries_of, rows_of, shards

import fpstore
from fpstore.query.sharded import NUMBER_BITS

VALUES = rows_of(64, 160, 3)


@pytest.fixture
def folder(tmp_path):
    shards(tmp_path / "S", VALUES, ids_of("string", len(VALUES)), [40, 80, 120], radius=3).close()
    return tmp_path / "S"


def test_the_manifest_is_as_the_page_says(folder):
    content = json.loads((folder / "shards.json").read_bytes())
    checksum = content.pop("checksum")
    compact = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    assert checksum == f"{xxhash.xxh64_intdigest(compact.encode()):016x}"
    described = content.pop("shards")
    with fpstore.open(folder) as store:
        assert content == {
            "format_version": 1,
            "width": 64,
            "radius": 3,
            "fingerprinter": None,
            "id_kind": "string",
            "fingerprints": len(set(VALUES)),
            "ids": len(store.ids),
            "repeated_strings": True,
            "plan": None,
        }
    for number, shard in enumerate(described):
        name = f"shard-{number:05d}.fps"
        known = json.loads((folder / name / "manifest.json").read_bytes())
        with fpstore.open(folder / name) as single:
            own = sorted({*VALUES[40 * number : 40 * number + 40]})
            assert shard == {
                "name": name,
                "identity": known["identity"],
                "generation": known["generation"]["number"],
                "records": 0,
                "fingerprints": len(own),
                "ids": len(single.ids),
                "first_row": 0,
                "rows": 0,
                "bounds": [f"{own[0]:016x}", f"{own[-1]:016x}"],
            }


def test_row_numbers_go_on_from_shard_to_shard(tmp_path):
    with shards(tmp_path / "S", [5, 6, 7, 5, 8], None, [2, 3]) as store:
        described = json.loads((tmp_path / "S" / "shards.json").read_bytes())["shards"]
        assert [(shard["first_row"], shard["rows"]) for shard in described] == [
            (0, 2),
            (2, 1),
            (3, 2),
        ]
        assert [store[value] for value in (5, 6, 7, 8)] == [[0, 3], [1], [2], [4]]
        assert [store.ids[row] for row in range(5)] == [[5], [6], [7], [5], [8]]
        assert 5 not in store.ids


def test_strings_of_one_shard_each_are_not_compared_again(tmp_path):
    with shards(tmp_path / "S", VALUES, [f"own {n}" for n in range(len(VALUES))], [80]) as store:
        assert not store.snapshot().manifest.repeated_strings
        assert not any(store.snapshot().repeated_strings())
        assert len(store.ids) == len(VALUES)


def test_threads_ask_a_store_whose_shards_are_not_open_yet(folder):
    queries = queries_of(VALUES, 64)
    with fpstore.open(folder) as store:
        wanted = list(store.probe_many(queries))
    with fpstore.open(folder) as store, ThreadPoolExecutor(4) as pool:
        matches = list(pool.map(lambda _: [store.probe(query) for query in queries], range(4)))
        assert matches == [wanted] * 4
        assert len(store.snapshot().open_shards) == 4


def test_a_store_survives_a_fork(folder):
    with fpstore.open(folder) as store:
        wanted = store.probe(VALUES[0])
        child = os.fork()
        if child == 0:
            os._exit(
                0 if store.probe(VALUES[0]) == wanted and list(store) == sorted({*VALUES}) else 1
            )
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


COMBINE = """
    import sys
    import fpstore

    for _ in range(6):
        fpstore.ShardedStore.combine(sys.argv[1]).close()
"""


@pytest.mark.full
def test_several_processes_combine_the_same_shards(folder):
    data = (folder / "shards.json").read_bytes()
    (folder / ".shards.json.00000000.tmp").mkdir()  # of a process that was killed
    with ThreadPoolExecutor(3) as pool:
        for code, out, err in pool.map(lambda _: run_python(COMBINE, folder), range(3)):
            assert (code, out, err) == (0, "", "")
    assert (folder / "shards.json").read_bytes() == data
    assert sorted(path.name for path in folder.iterdir()) == [
        *(f"shard-{n:05d}.fps" for n in range(4)),
        "shards.json",
    ]


FEW = """
    import os, resource, sys
    import fpstore

    fpstore.open(sys.argv[1]).probe(1)  # all modules are imported now
    open_now = len(os.listdir("/proc/self/fd"))
    limits = [int(sys.argv[n]) + open_now for n in (2, 3)]
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    with fpstore.open(sys.argv[1]) as store:
        try:
            opened = "all" if store.snapshot()._most_open == 4 else "some"
            print(opened, len(store.probe_many(range(9))), len(list(store)))
        except fpstore.StorageError as error:
            assert "ulimit -n" in str(error), error
            print("refused")
    assert list(resource.getrlimit(resource.RLIMIT_NOFILE)) == limits
"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("more", "most", "wanted"),
    [
        (10, 10, "refused"),
        (60, 60, "refused"),
        (60, 150, "some 9 {}"),
        (150, 150, "some 9 {}"),
        (4000, 4000, "all 9 {}"),
    ],
)
def test_open_files_are_few_or_the_message_says_how_to_get_more(folder, more, most, wanted):
    """An iteration needs all shards that overlap at once.

    Meanwhile the limit is the one of the system.
    """
    code, out, err = run_python(FEW, folder, more, most)
    assert (code, err) == (0, ""), err
    assert out.strip() == wanted.format(len(set(VALUES)))


TOGETHER = """
    import os, resource, sys
    import fpstore

    with fpstore.ShardedStore.combine(sys.argv[1]) as store:  # all modules are imported now
        wanted = len(store)
    open_now = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (60 + open_now, int(sys.argv[2]) + open_now))
    with fpstore.ShardedStore.combine(sys.argv[1]) as store:
        assert len(store) == wanted
"""


@pytest.mark.full
@pytest.mark.parametrize(("most", "code"), [(60, 1), (400, 0)])
def test_many_shards_with_strings_are_combined_with_few_handles(tmp_path, most, code):
    shards(
        tmp_path / "S", VALUES, [f"id {n}" for n in range(len(VALUES))], range(20, len(VALUES), 20)
    ).close()
    got, _, err = run_python(TOGETHER, tmp_path / "S", most)
    assert (got, "ulimit -n" in err) == (code, code == 1), err


OPENED_MEANWHILE = """
    import os, resource, sys
    import fpstore

    with fpstore.open(sys.argv[1]) as store:
        list(store)  # all modules are imported now
        open_now = len(os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (60 + open_now, 4000))
        groups = store.snapshot().groups()
        next(groups)  # the limit is that of the system
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 4000
        with fpstore.open(sys.argv[2]) as other:
            groups.close()
            print(len(other.probe_many(range(9))), other._shards._most_open < 8)
"""


@pytest.mark.full
def test_a_store_that_is_opened_while_the_limit_is_raised(folder, tmp_path):
    """The store had too many files open after the limit fell again.

    It kept as many shards as the raised limit had room for.
    """
    shards(tmp_path / "B", VALUES, None, range(20, len(VALUES), 20)).close()
    code, out, err = run_python(OPENED_MEANWHILE, folder, tmp_path / "B")
    assert (code, out.split(), err) == (0, ["9", "True"], "")


def test_pages_are_passed_to_each_shard(folder):
    with fpstore.open(folder, pages="populated") as store:
        assert {snapshot.generation.has_mapped for _, snapshot in store.snapshot().shards()} == {
            True
        }
    with pytest.raises(fpstore.InputError, match="pages"):
        fpstore.open(folder, pages="none")


def test_wide_batches_are_answered_by_all_threads(tmp_path):
    values = np.random.default_rng(1).integers(0, 2**64, 4000, np.uint64)
    with shards(tmp_path / "S", values, None, [2000]) as store:
        single, two = (
            store.probe_many(values ^ np.uint64(3), threads=threads) for threads in (1, 3)
        )
        assert np.array_equal(single.rows, two.rows)
        assert np.array_equal(single.lims, two.lims)
        assert len(single.rows) >= 4000


def test_a_full_disk_leaves_the_manifest_as_it_was(mounted_disk):
    disk = mounted_disk(4 << 20)
    shards(disk / "S", VALUES[:40], None, [20]).close()
    data = (disk / "S" / "shards.json").read_bytes()
    fpstore.build(disk / "S" / "shard-00002.fps", VALUES[40:60]).close()
    fill(disk, 0)
    with pytest.raises(fpstore.StorageError, match="free some space"):
        fpstore.ShardedStore.combine(disk / "S")
    assert sorted(path.name for path in (disk / "S").glob("*shards.json*")) == ["shards.json"]
    assert (disk / "S" / "shards.json").read_bytes() == data
    (disk / "filler").unlink()
    assert len(fpstore.ShardedStore.combine(disk / "S").shards) == 3


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("rows", "slice_rows"), [(1, 1 << 16), (7, 1 << 16), (1 << 16, 5), (1 << 16, 1 << 16)]
)
def test_strings_that_several_shards_have(tmp_path, set_limits, rows, slice_rows):
    """Each has the number that it has first, however many are looked at together."""
    set_limits(id_slice_rows=slice_rows, repeat_rows=rows)
    ids = [f"id {n * n % 83}" for n in range(len(VALUES))]
    with shards(tmp_path / "S", VALUES, ids, range(30, len(VALUES), 30)) as store:
        snapshot = store.snapshot()
        numbers = {}
        for place, shard in snapshot.shards():
            for name in set(ids[30 * place : 30 * place + 30]):
                numbers.setdefault(name, []).append(place << NUMBER_BITS | shard.number_of(name))
        wanted = sorted((number, first) for first, *others in numbers.values() for number in others)
        assert sorted(pair for pairs in snapshot.repeated_strings() for pair in pairs) == wanted
        assert len(wanted) > 20
