"""Repair of stores of every width: sets whose leading words tie often, and each kind of damage."""

import shutil

import pytest
from repairing import GENERATION, damage_block, ids_of, repaired
from small_stores import content
from speeds import slow
from wide import alike_numbers

import fpstore
from fpstore.format.layout import table_name
from fpstore.format.log import LOG_FILE
from fpstore.format.manifest import MANIFEST_FILE
from fpstore.format.mapping import IDS_FILE

COUNT = 600
KINDS = {32: "integer", 64: "row", 128: "string", 256: "integer"}


@pytest.fixture(scope="module", params=[*map(slow, (32, 64, 128)), 256])
def good(request, tmp_path_factory):
    """Return a store with changes, its width, and what it holds."""
    bits, path = request.param, tmp_path_factory.mktemp("good") / "s"
    numbers, kind = alike_numbers(bits), KINDS[request.param]
    first, more = numbers[:-60], numbers[-60:]
    options = {"radius": 2, "design": "blocks-3-1", "block_bytes": 128, "width": bits}
    fpstore.build(path, first, ids_of(kind, 0, len(first)), **options).close()
    with fpstore.open(path, "r+") as store:
        for start in range(0, 60, 6):
            store.insert(more[start : start + 6], ids_of(kind, COUNT + start, 6))
        store.delete(fingerprints=first[:5])
        store.insert(first[3:8], ids_of(kind, 10, 5))
    return path, bits, content(path)


@pytest.fixture
def store(good, tmp_path):
    path, bits, right = good
    return shutil.copytree(path, tmp_path / "s"), bits, right


@pytest.mark.parametrize("every", [slow(1), slow(2), 7])
def test_blocks_of_the_first_table_come_from_the_others(store, every):
    path, _, right = store
    with fpstore.open(path) as opened:
        blocks = range(0, opened.snapshot().generation.tables[0].kernel.block_count, every)
    assert len(blocks) >= 3
    for block in blocks:
        damage_block(path / GENERATION / table_name(0), block)
    report, held = repaired(path, right)
    assert (report.complete, held) == (True, right)
    assert "with the help of other tables" in " ".join(report.actions)


def test_a_lost_manifest(store):
    """The width stands in the header of the log, too."""
    path, bits, right = store
    (path / MANIFEST_FILE).unlink()
    report, held = repaired(path, right)
    assert held == right
    with fpstore.open(report.output) as new:
        assert (new.width, len(new)) == (bits, report.fingerprints)
        fingerprint = min(held)[0]
        assert new.probe(fingerprint ^ 1, 1)[0].distance == (0 if (fingerprint ^ 1) in new else 1)
        assert (len(new.design.tables[0].permutation), new.radius) == (bits, 3)


def test_the_log_of_a_store_of_another_width_is_not_taken(store, tmp_path):
    """It has as many fingerprints, and no manifest says where it comes from."""
    path, bits, _ = store
    other = 128 if bits != 128 else 32
    fpstore.build(
        tmp_path / "other", range(len(alike_numbers(bits)) - 60), width=other, radius=2
    ).close()
    with fpstore.open(tmp_path / "other", "r+") as changed:
        changed.insert([1 << 30])
    (path / MANIFEST_FILE).unlink()
    shutil.copyfile(tmp_path / "other" / GENERATION / LOG_FILE, path / GENERATION / LOG_FILE)
    with pytest.raises(fpstore.CorruptStoreError, match="nothing can be recovered"):
        fpstore.repair(path)


@pytest.mark.parametrize(("design", "bits"), [("auto", 256), slow("auto", 128), slow("scan", 256)])
def test_a_radius_above_64(tmp_path, bits, design):
    """The radius of a build was at most 64 at every width; here it is kept by a repair as well."""
    numbers, radius = alike_numbers(bits)[-100:], bits * 2 // 3
    fpstore.build(tmp_path / "s", numbers, width=bits, radius=radius, design=design).close()
    (tmp_path / "s" / GENERATION / IDS_FILE).unlink()
    with fpstore.open(fpstore.repair(tmp_path / "s").output) as store:
        assert (store.radius, store.width) == (radius, bits)
