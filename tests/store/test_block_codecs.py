"""Stores whose tables are packed by either codec, which stays."""

from pathlib import Path

import numpy as np
import pytest
from commandline import failure, fine

import fpstore
from fpstore import CorruptStoreError, _kernel
from fpstore.design.blocks import CODECS, ELIAS_FANO
from fpstore.format.packed_table import PackedTable

RNG = np.random.default_rng(15)
FINGERPRINTS = np.unique(RNG.integers(0, 2**64, 6000, np.uint64))
QUERIES = FINGERPRINTS[::7] ^ np.uint64(1 << 40 | 2)
OPTIONS = {"design": "flip-2", "block_bytes": 128}


def answers(store):
    matches = store.probe_many(QUERIES, 3)
    return matches.lims.tolist(), matches.fingerprints.tolist(), matches.distances.tolist()


def test_elias_fano_takes_less_and_a_plan_knows_it(tmp_path):
    sizes, plans = [], []
    for codec in CODECS:
        with fpstore.build(tmp_path / codec, FINGERPRINTS, codec=codec, **OPTIONS) as store:
            sizes.append(store.stats()["bytes"]["tables"])
        offers = fpstore.plan(1 << 24, codec=codec, memory_budget="1TiB")
        plans += [offer for offer in offers if offer.name == "manku-10"]
    assert sizes[1] < 0.98 * sizes[0]
    huffman, elias_fano = plans
    assert elias_fano.bytes_per_fingerprint < huffman.bytes_per_fingerprint
    assert elias_fano.microseconds < huffman.microseconds


@pytest.mark.parametrize("codec", CODECS)
def test_a_codec_outlives_changes_merges_repairs_and_splits(tmp_path, codec):
    fpstore.build(tmp_path / "s", FINGERPRINTS[:4000], codec=codec, **OPTIONS).close()
    with fpstore.open(tmp_path / "s", "r+") as store:
        store.insert(FINGERPRINTS[4000:], np.arange(4000, len(FINGERPRINTS), dtype=np.uint64))
        store.merge()
        right = answers(store)
    (table,) = (tmp_path / "s").rglob("table-001.fpt")
    data = bytearray(table.read_bytes())
    data[4104] ^= 4
    table.write_bytes(data)
    with fpstore.open(tmp_path / "s") as store:
        assert not store.verify().ok
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


def test_the_command_line_builds_and_names_a_codec(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", FINGERPRINTS)
    fine("build", "s", "a.npy", "--codec", ELIAS_FANO, "--design", "manku-4", "--quiet")
    assert "512 bytes, elias-fano" in fine("stats", "s")
    full = fine("stats", "s", "--full")
    assert "fingerprints per block" in full
    assert "code" not in full
    fine("report", "s", "--output", "r.html")
    assert "Elias-Fano" in Path("r.html").read_text()
    assert "elias-fano" in failure("build", "t", "a.npy", "--codec", "zip", code=2)
