"""Stores whose tables are packed by either codec: the same answers, and the codec stays."""

from pathlib import Path

import numpy as np
import pytest
from commandline import failure, fine
from speeds import full

import fpstore
from fpstore import CorruptStoreError, InputError, _kernel
from fpstore.design.blocks import CODECS, ELIAS_FANO
from fpstore.format.packed_table import PackedTable

RNG = np.random.default_rng(15)
FINGERPRINTS = np.unique(RNG.integers(0, 2**64, 6000, np.uint64))
QUERIES = FINGERPRINTS[::7] ^ np.uint64(1 << 40 | 2)
OPTIONS = {"design": "flip-2", "block_bytes": 128}


def answers(store):
    found = store.probe_many(QUERIES, 3)
    return found.lims.tolist(), found.fingerprints.tolist(), found.distances.tolist()


@pytest.mark.parametrize("width", [full(32), 64, full(128)])
def test_both_codecs_hold_the_same_and_elias_fano_takes_less(tmp_path, width):
    rows = {32: (FINGERPRINTS >> np.uint64(32)).astype(np.uint32), 64: FINGERPRINTS}.get(width)
    if rows is None:
        rows = np.stack([FINGERPRINTS, FINGERPRINTS[::-1]], 1)
    sizes = []
    for codec in CODECS:
        with fpstore.build(tmp_path / codec, rows, codec=codec, width=width, **OPTIONS) as store:
            assert store.verify().ok
            assert np.array_equal(
                np.concatenate([found for found, _, _ in store.items()]).reshape(-1),
                in_order(rows, width),
            )
            told = store.stats()
        assert told["codec"] == codec
        sizes.append(told["bytes"]["tables"])
    assert sizes[1] < 0.98 * sizes[0]


def in_order(rows, width):
    """Return what ``items`` gives of these rows, without the shape."""
    if width <= 64:
        return np.unique(rows)
    return rows.astype(">u8").view(np.uint8).reshape(-1)  # which ascend by their first words


@pytest.mark.parametrize("codec", CODECS)
def test_a_codec_outlives_changes_merges_splits_and_repairs(tmp_path, codec):
    fpstore.build(tmp_path / "s", FINGERPRINTS[:4000], codec=codec, **OPTIONS).close()
    with fpstore.open(tmp_path / "s", "r+") as store:
        store.insert(FINGERPRINTS[4000:], np.arange(4000, len(FINGERPRINTS), dtype=np.uint64))
        store.merge()
        right = answers(store)
    next((tmp_path / "s").rglob("table-001.fpt")).unlink()
    fpstore.repair(tmp_path / "s", tmp_path / "again")
    with fpstore.open(tmp_path / "again") as store:
        assert store.stats()["codec"] == codec
        assert answers(store) == right
        assert store.verify().ok
        parts = store.split(tmp_path / "parts", 1)
    assert len(parts) == 2
    for part in parts:
        with fpstore.open(part) as store:
            assert store.stats()["codec"] == codec
            assert store.verify().ok


@pytest.mark.parametrize("codec", ["zip", "", None, 1])
def test_a_codec_that_there_is_not_is_refused(tmp_path, codec):
    with pytest.raises(InputError, match="codec must be"):
        fpstore.build(tmp_path / "s", FINGERPRINTS, codec=codec)
    with pytest.raises(InputError, match="codec must be"):
        fpstore.plan(1000, codec=codec)
    assert not (tmp_path / "s").exists()


def test_a_table_of_another_codec_is_refused(tmp_path):
    for codec in CODECS:
        fpstore.build(tmp_path / codec, FINGERPRINTS, codec=codec, **OPTIONS).close()
    other, own = (tmp_path / codec / "gen-00000001" / "table-001.fpt" for codec in CODECS)
    own.write_bytes(other.read_bytes())
    with pytest.raises(CorruptStoreError, match="codec is huffman, the store expects elias-fano"):
        fpstore.open(tmp_path / ELIAS_FANO)
    prober = _kernel.Prober()
    tables = [
        PackedTable(tmp_path / codec / "gen-00000001" / "table-000.fpt").kernel for codec in CODECS
    ]
    prober.add(tables[0], 10, 0, np.zeros(1, np.uint64))
    with pytest.raises(ValueError, match="tables of several codecs"):
        prober.add(tables[1], 10, 0, np.zeros(1, np.uint64))


@pytest.mark.parametrize("place", [4096, 4099, 4100, 4102, 4104, 4096 + 700])
def test_a_damaged_elias_fano_table_is_found_and_repaired(tmp_path, place):
    with fpstore.build(tmp_path / "s", FINGERPRINTS, codec=ELIAS_FANO, **OPTIONS) as store:
        right = answers(store)
    table = tmp_path / "s" / "gen-00000001" / "table-001.fpt"
    data = bytearray(table.read_bytes())
    data[place] ^= 4
    table.write_bytes(data)
    with fpstore.open(tmp_path / "s") as store:
        assert not store.verify().ok
    fpstore.repair(tmp_path / "s", tmp_path / "again")
    with fpstore.open(tmp_path / "again") as store:
        assert store.stats()["codec"] == ELIAS_FANO
        assert answers(store) == right


def test_the_command_line_builds_plans_and_tells(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", FINGERPRINTS)
    fine("build", "s", "a.npy", "--codec", ELIAS_FANO, "--design", "manku-4", "--quiet")
    assert "512 bytes, elias-fano" in fine("stats", "s")
    told = fine("stats", "s", "--full")
    assert "fingerprints per block" in told
    assert "code" not in told
    fine("report", "s", "--output", "r.html")
    assert "Elias-Fano" in Path("r.html").read_text()
    assert "elias-fano" in failure("build", "t", "a.npy", "--codec", "zip", code=2)


def test_plans_know_both_codecs():
    plans = [
        {p.name: p for p in fpstore.plan(1 << 24, codec=codec, memory_budget="1TiB")}
        for codec in CODECS
    ]
    huffman, elias_fano = (found["manku-10"] for found in plans)
    assert elias_fano.bytes_per_fingerprint < huffman.bytes_per_fingerprint
    assert elias_fano.microseconds < huffman.microseconds
