"""Damaged table files: a flipped bit, a file cut short. An error or the right answer, and nothing else."""

import pytest
import tableimage
from damage import FINGERPRINTS, NOTICED, TABLES, check, cut, flips
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


def test_flips_between_the_header_and_its_checksum_are_noticed(copy, right):
    check(copy, TABLES[0], right, flips(range(256, 4088, 97)), {"refused"})


@pytest.mark.parametrize("every", [7, slow(1)])
def test_all_bits_of_some_bytes_of_a_table(copy, right, every):
    path = copy / TABLES[0]
    kernel = tableimage.open_table(path.read_bytes())
    last = path.stat().st_size
    places = [
        *range(8, 36, 3),
        *range(4096, 4096 + 24),
        *range(kernel.keys_offset - 4, kernel.keys_offset + 12),
        *range(kernel.directory_offset - 8, min(kernel.directory_offset + 24, last)),
    ]
    check_flips(copy, TABLES[0], right, places[::every], 8)


@pytest.mark.parametrize(("name", "step"), [(TABLES[1], 499), *(slow(name, 1) for name in TABLES)])
def test_a_table_cut_short_is_refused(copy, right, name, step):
    size = (copy / name).stat().st_size
    lengths = {*range(0, size, step), *range(size - 3, size), 1, 8, 4095, 4096, 4097, 4112}
    check(copy, name, right, {n: cut(n) for n in sorted(lengths)}, {"refused"})


def test_a_table_that_has_grown_is_refused(copy):
    with (copy / TABLES[0]).open("ab") as file:
        file.write(b"\0")
    with pytest.raises(fpstore.CorruptStoreError, match="file size differs from the header"):
        fpstore.open(copy)


def damage_block(path, block):
    data = bytearray(path.read_bytes())
    data[4096 + 128 * block + 50] ^= 1
    path.write_bytes(data)


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
