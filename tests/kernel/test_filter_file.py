"""Filter files: their bytes, and what they say of a prefix, are those of the readable program."""

import brute_force
import numpy as np
import pytest
import reference
import reference_filter

import fpstore
from fpstore import _kernel
from fpstore.design.families import design
from fpstore.design.filters import FilterShape, filter_shapes
from fpstore.format.filter import FilterReader, FilterWriter, filter_cutter
from fpstore.format.manifest import read_manifest

WIDTHS = reference.WIDTHS
NO_FLIPS = np.zeros(1, np.uint64)
ORDERS = ["asked", "near", "sorted"]


def rows_of(count: int, width: int, seed: int) -> np.ndarray:
    """Return fingerprints, some with a long common prefix: some buckets are full, others empty."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 256, (count, width // 8), dtype=np.uint8)
    shared = rows[: count // 3]
    shared[:, : width // 16] = shared[:1, : width // 16]
    return rows


def opened(path, table):
    """Return a table and its filter, of the readable program and of the kernel."""
    folder = path / "gen-00000001"
    data, filtered = (
        folder / name.format(table) for name in ("table-{:03}.fpt", "filter-{:03}.fpf")
    )
    image, filter_image = data.read_bytes(), filtered.read_bytes()
    kernel_table = _kernel.Table(np.frombuffer(image, np.uint8), str(data))
    kernel_filter = _kernel.Filter(np.frombuffer(filter_image, np.uint8), str(filtered))
    return (
        reference.Table(image),
        reference_filter.Filter(filter_image),
        filter_image,
        kernel_table,
        kernel_filter,
    )


# Without flips and with some; of a fingerprint of 32 bits, a quarter is too short a prefix for a
# filter.
@pytest.mark.parametrize(
    ("width", "design"),
    [
        (32, "blocks-5-2"),
        *((width, "manku-4") for width in WIDTHS[1:]),
        *((width, "flip-2") for width in WIDTHS),
    ],
)
@pytest.mark.parametrize("codec", ["huffman", "elias-fano"])
def test_the_kernel_and_the_readable_program_agree(tmp_path, width, design, codec):
    rng = np.random.default_rng(width)
    for count in (64, 700):
        path = tmp_path / str(count)
        rows = rows_of(count, width, count)
        fpstore.build(
            path, rows, width=width, radius=3, design=design, codec=codec, filter=True
        ).close()
        tables = read_manifest(path).generation.filters
        assert len(tables) >= 2
        for number in tables[:: len(tables) - 1]:
            table, read, image, kernel_table, kernel_filter = opened(path, number)
            entries = list(table.permuted())
            assert image == reference_filter.build(table.header, entries, read.shape)
            assert all(read.passes(entry) for entry in entries)
            check_decisions(table, read, entries, kernel_table, kernel_filter, rng)


def check_decisions(table, read, entries, kernel_table, kernel_filter, rng):
    """Compare which look-ups pass, of prefixes that are stored, near these, and any.

    One that passes opens a block.
    """
    h, bits = table.header, 64 * reference.words_of(table.header.width)
    near = [
        int(entry) ^ 1 << (bits - 1 - int(rng.integers(0, h.prefix_bits)))
        for entry in rng.choice(entries, 40)
    ]
    near += [
        min(entry + (1 << bits - read.header.prefix_bits), 2**bits - 1) for entry in entries[:10]
    ]
    unused = 2 ** (bits - h.width) - 1
    anywhere = [int.from_bytes(rng.bytes(bits // 8)) & ~unused for _ in range(60)]
    targets = [*entries[:: max(len(entries) // 20, 1)], *near, *anywhere, 0, 2**bits - 1 - unused]
    expected = [read.passes(target) for target in targets]
    assert not all(expected[len(targets) - 62 :])
    prober = _kernel.Prober()
    prober.add(kernel_table, read.header.prefix_bits, 0, NO_FLIPS, kernel_filter)
    for target, passes in zip(targets, expected, strict=True):
        query = brute_force.rows_of([reference.unpermute(target, h.permutation)], h.width)
        assert (prober.probe(query, 0)[3] > 0) == passes
    for order in ORDERS:  # so many alike that pages are worth to be verified together
        for target, passes in [*zip(targets, expected, strict=True)][::7]:
            query = brute_force.rows_of([reference.unpermute(target, h.permutation)] * 40, h.width)
            assert (prober.probe(query, 0, order=order)[3] > 0) == passes


@pytest.mark.parametrize(
    "shape", [(1, 0, 1), (1, 1, 64), (12, 12, 6), (40, 8, 6), (32, 0, 33), (20, 3, 64), (13, 9, 7)]
)
def test_filters_of_any_shape(tmp_path, shape):
    """In pieces of any size.

    The store's own filters have few of the shapes that a file may have.
    """
    rows = rows_of(900, 64, 1)
    with fpstore.build(tmp_path / "s", rows, radius=3, design="flip-1", filter=False) as store:
        design = store.design
    image = (tmp_path / "s" / "gen-00000001" / "table-000.fpt").read_bytes()
    table = reference.Table(image)
    entries = list(table.permuted())
    keys = np.array(entries, np.uint64)
    for step in (1, 17, 450, 900):
        cutter = filter_cutter(design, 0, len(keys), table.header.set_digest, shape)
        body = [bytes(cutter.feed(keys[at : at + step])) for at in range(0, len(keys), step)]
        body.append(bytes(cutter.finish()))
        made = cutter.header + b"".join(body)
        assert made == reference_filter.build(table.header, entries, shape)
    read = reference_filter.Filter(made)
    assert all(map(read.passes, entries))
    kernel_table = _kernel.Table(np.frombuffer(image, np.uint8), "table")
    kernel_filter = _kernel.Filter(np.frombuffer(made, np.uint8), "filter")
    assert not kernel_filter.damaged
    prober = _kernel.Prober()
    prober.add(kernel_table, max(shape[0], 8), 0, NO_FLIPS, kernel_filter)
    targets = np.concatenate(
        [keys[::50], np.random.default_rng(2).integers(0, 2**64, 200, np.uint64)]
    )
    for target in targets:
        assert (prober.probe(target[None], 0)[3] > 0) == read.passes(int(target))


def test_a_writer_has_one_buffer_of_a_piece(tmp_path, monkeypatch, set_limits):
    """It had two, of which each grew once: filters took 20 MiB of a build with a budget of 64."""
    set_limits(write_bytes=4 * 4096)
    sizes = []
    monkeypatch.setattr(
        "fpstore.disk.output.page_aligned",
        lambda size: sizes.append(size) or np.empty(size, np.uint8),
    )
    made, keys = (
        design("flip-2", 3),
        np.sort(np.random.default_rng(1).integers(0, 2**64, 60_000, np.uint64)),
    )
    writer = FilterWriter(
        tmp_path / "filter", filter_cutter(made, 0, len(keys), 7, FilterShape(22, 8, 6))
    )
    for start in range(0, len(keys), 5_000):
        writer.feed(keys[start : start + 5_000])
    writer.finish()
    writer.sync()
    assert (tmp_path / "filter").stat().st_size > 10 * 4096
    assert len(sizes) == 1
    assert sizes[0] <= 5 * 4096
    FilterReader(tmp_path / "filter").verify(made, [keys])


@pytest.mark.parametrize(
    "shape",
    [
        (0, 0, 6),
        (41, 20, 6),
        (34, 1, 6),
        (40, 29, 6),
        (30, 29, 6),
        (10, 11, 6),
        (33, 0, 6),
        (10, 4, 0),
        (10, 4, 65),
        (65536, 4, 6),
    ],
)
def test_shapes_that_no_file_has_are_refused(tmp_path, shape):
    with (
        fpstore.build(tmp_path / "s", rows_of(100, 64, 1), design="flip-1") as store,
        pytest.raises((ValueError, TypeError), match=r"filter|arguments"),
    ):
        filter_cutter(store.design, 0, 100, 1, shape)


def test_each_bit_of_a_header_is_checked(tmp_path):
    fpstore.build(tmp_path / "s", rows_of(100, 64, 1), design="flip-2", filter=True).close()
    image = (tmp_path / "s" / "gen-00000001" / "filter-001.fpf").read_bytes()
    _kernel.Filter(np.frombuffer(image, np.uint8), "filter")
    for at in range(4096):
        wrong = bytearray(image)
        wrong[at] ^= 1 << at % 8
        with pytest.raises((fpstore.CorruptStoreError, fpstore.FormatVersionError)):
            _kernel.Filter(np.frombuffer(wrong, np.uint8), "filter")
        with pytest.raises(reference.FormatError):
            reference_filter.parse_header(bytes(wrong))


def sealed(image: bytes, at: int, value: int, size: int) -> bytes:
    """Return a file with another field in its header, under a right checksum."""
    changed = bytearray(image)
    changed[at : at + size] = value.to_bytes(size, "little")
    changed[4088:4096] = reference.xxh64(bytes(changed[:4088])).to_bytes(8, "little")
    return bytes(changed)


FORGED = [
    (8, 2, 4),
    (12, 1, 4),
    (16, 0, 2),
    (16, 48, 2),
    (18, 2, 2),
    (20, 1, 2),
    (22, 0, 2),
    (22, 41, 2),
    (24, 29, 2),
    (24, 65535, 2),
    (26, 0, 2),
    (26, 65, 2),
    (28, 1, 4),
    (40, 2**32, 8),
    (40, 2**61, 8),
    (40, 0, 8),
    (48, 0, 8),
    (56, 4096, 8),
    (64, 4096, 8),
    (80, 1, 1),
    (127, 1, 1),
    (128, 1, 1),
    (128, 255, 1),
    (192, 1, 1),
    (383, 1, 1),
    (384, 1, 1),
    (4087, 1, 1),
]


@pytest.mark.parametrize(("at", "value", "size"), FORGED)
def test_fields_out_of_range_are_refused(tmp_path, at, value, size):
    fpstore.build(tmp_path / "s", rows_of(100, 64, 1), design="flip-2", filter=True).close()
    image = sealed(
        (tmp_path / "s" / "gen-00000001" / "filter-001.fpf").read_bytes(), at, value, size
    )
    with pytest.raises((fpstore.CorruptStoreError, fpstore.FormatVersionError)) as refused:
        _kernel.Filter(np.frombuffer(image, np.uint8), "filter")
    with pytest.raises(reference.FormatError) as read:
        reference_filter.Filter(image)
    assert (refused.type is fpstore.FormatVersionError) == (read.type is reference.VersionError)


def test_sets_that_are_too_large_for_a_filter_have_none():
    """Large sets left the limits of a filter file.

    From 2^36 fingerprints on it had too many words, from 2^37 on too many buckets.
    """
    made = design("flip-1", 1)
    (shape,) = filter_shapes(made, 1 << 35).values()
    assert (1 << 35) * shape.bits_per_prefix // 64 + (1 << shape.bucket_bits) < 2**32
    assert filter_shapes(made, (1 << 35) + 1) == filter_shapes(made, 1 << 40) == {}
