"""Damaged table files: a flipped bit, a file that has grown. An error or the right answer, and nothing else."""

import pytest
import tableimage
from damage import FINGERPRINTS, NOTICED, TABLES, check, flips
from repairing import damage_block
from speeds import slow

import fpstore


def sections(path):
    """Return the places of a table file that mean something: of the header, and all behind it."""
    return [*range(256), *range(4088, path.stat().st_size)]


def check_flips(copy, name, right, places, bits=1):
    """Every flip is noticed. The directory has no checksum: a probe checks what it uses of it, so the answers may be right."""
    directory = tableimage.open_table((copy / name).read_bytes()).directory_offset
    check(copy, name, right, flips([at for at in places if at < directory], bits), NOTICED)
    check(copy, name, right, flips([at for at in places if at >= directory], bits), NOTICED | {"noticed, right"})


@pytest.mark.parametrize(
    ("name", "step", "bits"), [(TABLES[1], 23, 1), (TABLES[0], 41, 1), *(slow(name, 1, 8) for name in TABLES)]
)
def test_flips_in_a_table_are_noticed(copy, right, name, step, bits):
    check_flips(copy, name, right, sections(copy / name)[::step], bits)


def test_a_table_that_has_grown_is_refused(copy):
    with (copy / TABLES[0]).open("ab") as file:
        file.write(b"\0")
    with pytest.raises(fpstore.CorruptStoreError, match="file size differs from the header"):
        fpstore.open(copy)


def test_verify_goes_on_after_a_fault(copy):
    for name in TABLES:
        damage_block(copy / name, 1)
    with fpstore.open(copy) as store:
        faults = store.verify().faults
    assert [(fault["path"], fault["block"]) for fault in faults] == [(str(copy / name), 1) for name in TABLES]
    assert all("block 1: block checksum differs" in fault["message"] for fault in faults)


def test_errors_carry_the_facts(copy):
    damage_block(copy / TABLES[0], 2)
    with fpstore.open(copy) as store, pytest.raises(fpstore.CorruptStoreError) as caught:
        store.scan([0], 64)
    assert (str(caught.value.path), caught.value.block) == (str(copy / TABLES[0]), 2)
    assert caught.value.expected != caught.value.got


def test_damage_elsewhere_does_not_matter_to_a_probe(copy, right):
    """A probe reads, and checks, only the blocks it needs."""
    damage_block(copy / TABLES[1], 0)
    fine = failed = 0
    with fpstore.open(copy) as store:
        for fingerprint in FINGERPRINTS.tolist():
            try:
                assert store.probe(fingerprint)[0].fingerprint == fingerprint
                fine += 1
            except fpstore.CorruptStoreError:
                failed += 1
    assert failed > 0
    assert fine > 5 * failed
