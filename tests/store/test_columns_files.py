"""Files of column tables.

The writer against the reference, headers with every field wrong, damage to every part.
"""

import struct
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import reference_columns as reference
from column_sets import (
    Built,
    brute,
    deal,
    even_thresholds,
    kernel_rows,
    keys_of,
    make_queries,
    make_set,
    matches,
    resealed,
    rows_layout,
    verify,
    write,
)
from speeds import SOME_WIDTHS, full

from fpstore import _kernel
from fpstore.errors import (
    CorruptStoreError,
    FormatVersionError,
    FpstoreError,
    InputError,
    StoreNotFoundError,
)
from fpstore.format.column_table import ColumnTable, ColumnWriter
from fpstore.format.layout import KIND_COPIES, KIND_REFERENCES, KIND_ROWS, ColumnLayout


def numbers(words, width):
    """Return fingerprints as integers."""
    return [
        sum(word << 64 * i for i, word in enumerate(reversed(row))) >> (64 - min(width, 64))
        for row in words.tolist()
    ]


def referred(layout):
    fields = (
        layout.kind,
        layout.width,
        tuple(layout.permutation),
        layout.bucket_bits,
        layout.tag_bits,
    )
    return reference.Layout(*fields, layout.threshold, layout.table, layout.table_count)


@pytest.mark.parametrize("count", [0, 1, 2, 257, 2000])
@pytest.mark.parametrize(
    ("width", "tables", "bucket_bits"),
    [(32, 2, 16), (32, 1, 19), (64, 4, 16), (64, 7, 9), (64, 1, 8), (128, 8, 16), (256, 16, 8)],
)
def test_the_writer_writes_what_the_format_page_says(tmp_path, width, tables, bucket_bits, count):
    rng = np.random.default_rng(count)
    words = make_set("clustered", width, count, rng)
    digest = _kernel.digest(kernel_rows(words))
    layouts = [
        ColumnLayout(
            KIND_REFERENCES if width > 64 else KIND_COPIES,
            width,
            len(words),
            digest,
            permutation,
            bucket_bits,
            tag_bits,
            i - 1,
            i,
            tables,
        )
        for i, (permutation, tag_bits) in enumerate(deal(width, tables, bucket_bits, rng)[:2])
    ]
    if width > 64:
        layouts.append(rows_layout(width, len(words), digest, bucket_bits))
    for layout in layouts:
        entries = (
            kernel_rows(words)
            if layout.kind == KIND_ROWS
            else keys_of(words, layout.permutation, bucket_bits, width)
        )
        path = write(tmp_path / "t", layout, entries, pieces=1 + count % 3)
        assert path.read_bytes() == reference.build(referred(layout), numbers(words, width))


def test_large_sections_are_written_page_by_page(tmp_path, set_limits):
    rng = np.random.default_rng(0)
    words = make_set("uniform", 64, 30_000, rng)
    layout = ColumnLayout(
        KIND_COPIES, 64, len(words), _kernel.digest(kernel_rows(words)), bytes(range(64))
    )
    for size in (1, 4096, 10_000, 1 << 30):
        set_limits(column_bytes=size)
        path = write(tmp_path / str(size), layout, kernel_rows(words), pieces=37)
        assert path.read_bytes() == (tmp_path / "1").read_bytes()
    ColumnTable(path).verify()


def test_counters_are_those_of_the_conditions(tmp_path):
    rng = np.random.default_rng(4)
    words = make_set("clustered", 64, 400, rng)
    built = Built(tmp_path, words, 64, 5, 8, rng)
    layouts = [
        reference.Layout(
            KIND_COPIES, 64, tuple(r.kernel.permutation), 8, r.kernel.tag_bits, 0, i, 5
        )
        for i, r in enumerate(built.readers)
    ]
    for query in kernel_rows(make_queries(words, 64, 20, 8, rng)).tolist():
        result = built.probe(np.array([query], np.uint64), 8, [2, 1, -1, 2, 0])
        met = reference.probe(layouts, [2, 1, -1, 2, 0], numbers(words, 64), query)
        assert result[3][2] == sum(map(len, met))
        results = {f for part in met for f in part if (f ^ query).bit_count() <= 8}
        assert set(result[1].tolist()) == results


def test_a_writer_refuses_what_its_layout_does_not_say(tmp_path):
    keys = np.arange(10, dtype=np.uint64) << np.uint64(50)
    layout = ColumnLayout(KIND_COPIES, 64, 10, 0, bytes(range(64)))
    for name, wrong in (("equal", [0, 0]), ("less", [5, 4])):
        writer = ColumnWriter(tmp_path / name, layout)
        with pytest.raises(InputError, match="out of order"):
            writer.feed(np.array(wrong, np.uint64))
        writer.abort()
    writer = ColumnWriter(tmp_path / "t", layout)
    writer.feed(keys[:5])
    with pytest.raises(CorruptStoreError, match="5 entries instead of 10"):
        writer.finish()
    with pytest.raises(InputError):
        writer.feed(keys[4:6])  # the last one again
    with pytest.raises(CorruptStoreError, match="entries instead of 10"):
        writer.feed(np.arange(20, dtype=np.uint64))
    writer.abort()
    writer = ColumnWriter(
        tmp_path / "wide", layout._replace(width=32, permutation=bytes(range(32)))
    )
    with pytest.raises(InputError, match="below"):
        writer.feed(np.array([1], np.uint64))
    writer.abort()
    for change in (
        {"kind": 3},
        {"kind": KIND_REFERENCES},
        {"width": 16, "permutation": bytes(range(16))},
        {"bucket_bits": 7},
        {"table": 1},
        {"bucket_bits": 20},
        {"tag_bits": 17},
        {"threshold": 17},
        {"fingerprint_count": 2**32},
        {"permutation": bytes(64)},
        {"table_count": 2**16},
    ):
        with pytest.raises((ValueError, TypeError), match=r"column table|arguments"):
            ColumnWriter(tmp_path / "t", layout._replace(**change))


# --- Damage ---------------------------------------------------------------------------------------


def built_files(folder, width, count=600):
    rng = np.random.default_rng(width)
    words = make_set("clustered", width, count, rng)
    built = Built(folder, words, width, 4, 8, rng)
    queries = make_queries(words, width, 30, 6, rng)
    return built, kernel_rows(queries), brute(words, queries, 6)


def open_again(built):
    built.readers = [ColumnTable(r.path) for r in built.readers]
    built.rows = built.rows and ColumnTable(built.rows.path)


def test_every_byte_of_a_header_is_guarded(tmp_path):
    built, _, _ = built_files(tmp_path, 64, 50)
    path = built.readers[0].path
    good = path.read_bytes()
    for at in range(4096):
        data = bytearray(good)
        data[at] ^= 1 << at % 8
        with pytest.raises((CorruptStoreError, FormatVersionError)):
            _kernel.ColumnTable(np.frombuffer(data, np.uint8), "t")


def test_fields_are_checked_under_a_right_checksum(tmp_path):
    for width in (64, 128):
        folder = tmp_path / str(width)
        folder.mkdir()
        built, _, _ = built_files(folder, width, 50)
        for reader in [built.readers[0], *([built.rows] if built.rows else [])]:
            good = reader.path.read_bytes()
            for at in range(8, 4088):
                if 20 <= at < 24 or 28 <= at < 30 or 80 <= at < 88:
                    continue  # another place in a design, another threshold or digest may be right
                data = bytearray(good)
                data[at] ^= 0x80 if at % 2 else 0x40
                data[4088:4096] = struct.pack("<Q", reference.xxh64(bytes(data[:4088])))
                with pytest.raises((CorruptStoreError, FormatVersionError)):
                    _kernel.ColumnTable(np.frombuffer(data, np.uint8), "t")


@pytest.mark.parametrize("width", SOME_WIDTHS)
def test_damage_is_an_error_or_does_not_matter(tmp_path, width):
    built, queries, right = built_files(tmp_path, width)
    rng = np.random.default_rng(0)
    result = 0
    for reader in [built.readers[0], *([built.rows] if built.rows else [built.readers[2]])]:
        good = reader.path.read_bytes()
        for at in sorted({4096, len(good) - 1, *rng.integers(4096, len(good), 60).tolist()}):
            data = bytearray(good)
            data[at] ^= 1 << int(rng.integers(8))
            reader.path.write_bytes(data)
            open_again(built)
            for work in (
                lambda: matches(built.probe(queries, 6, even_thresholds(6, 4))),
                lambda: matches(built.probe(queries, 6)),
            ):
                try:
                    assert work() == right
                except CorruptStoreError as error:
                    result += 1
                    assert str(reader.path) in str(error)
            with pytest.raises(CorruptStoreError, match="page"):
                ColumnTable(reader.path).verify()
        reader.path.write_bytes(good)
    assert result > 10


@pytest.mark.parametrize("width", SOME_WIDTHS)
def test_forged_pages_are_met_with_errors_or_wrong_answers_only(tmp_path, width):
    """Checksums that fit the damage: what is read stays inside the file."""
    built, queries, _ = built_files(tmp_path, width)
    rng = np.random.default_rng(1)
    for reader in [*built.readers[:2], *([built.rows] if built.rows else [])]:
        good = reader.path.read_bytes()
        table = reader.kernel
        for _ in range(40):
            data = bytearray(good)
            at = int(rng.integers(4096, table.checksums_offset - 8))
            data[at : at + 8] = rng.bytes(8)
            data = resealed(data, table)
            reader.path.write_bytes(data)
            open_again(built)
            file = built.rows or built.readers[0]
            for work in (
                lambda: built.probe(queries, 6, even_thresholds(6, 4)),
                lambda: built.probe(queries, 6),
                lambda kernel=file.kernel: kernel.locate(queries),
                lambda kernel=file.kernel: kernel.scan(queries, 6, 0, kernel.block_count),
                lambda path=reader.path: [*ColumnTable(path).pieces()],
            ):
                with suppress(CorruptStoreError):
                    work()
            if data != good:
                with pytest.raises(CorruptStoreError):
                    verify(ColumnTable(reader.path), built.rows)
        reader.path.write_bytes(good)


@pytest.mark.parametrize("width", [64, full(256)])
def test_bytes_changed_after_a_check_are_not_read_out_of_bounds(tmp_path, width):
    built, queries, right = built_files(tmp_path, width)
    data = [
        np.fromfile(r.path, np.uint8)
        for r in [*built.readers, *([built.rows] if built.rows else [])]
    ]
    opened = [_kernel.ColumnTable(part, "t") for part in data]

    def probe(radius, thresholds):
        return _kernel.ColumnProber(
            tuple(opened[:4]), opened[4] if opened[4:] else None, thresholds
        ).probe(queries, radius)

    ended = threading.Event()

    def ask():
        while not ended.is_set():
            for thresholds in (even_thresholds(6, 4), None):
                with suppress(CorruptStoreError):
                    probe(6, thresholds)
            for table in opened:
                with suppress(CorruptStoreError):
                    table.decode(0, table.block_count, table.count)

    thread = threading.Thread(target=ask)
    try:
        assert matches(probe(24, even_thresholds(24, 4)))
        assert matches(probe(6, even_thresholds(6, 4))) == right
        rng = np.random.default_rng(2)
        thread.start()
        for _ in range(300):
            for part, table in zip(data, opened, strict=True):
                at = int(rng.integers(4096, table.checksums_offset - 64))
                part[at : at + 64] = rng.integers(0, 256, 64)
    finally:
        ended.set()
        thread.join()


def test_a_reference_to_another_row_is_damage(tmp_path):
    built, queries, _ = built_files(tmp_path, 128)
    reader = built.readers[0]
    table = reader.kernel
    data = bytearray(reader.path.read_bytes())
    size = (table.rest_bits + 7) // 8
    rests = np.frombuffer(data, np.uint8)[
        table.rest_offset : table.rest_offset + size * table.count
    ].reshape(-1, size)
    data[table.rest_offset : table.rest_offset + size * table.count] = np.roll(
        rests, 1, axis=0
    ).tobytes()
    reader.path.write_bytes(resealed(data, table))
    open_again(built)
    with pytest.raises(
        CorruptStoreError,
        match=r"table-0, entry \d+: a reference leads to a row of another bucket or tag",
    ):
        built.probe(queries, 6, even_thresholds(6, 4))
    with pytest.raises(CorruptStoreError, match=r"another bucket or tag|out of order"):
        verify(built.readers[0], built.rows)


def test_files_cut_short_or_longer_are_refused(tmp_path):
    built, _, _ = built_files(tmp_path, 64, 100)
    path = built.readers[0].path
    good = path.read_bytes()
    for size in (0, 1, 4095, 4096, 5000, len(good) - 1, len(good) + 1):
        path.write_bytes((good + bytes(1))[:size])
        with pytest.raises(FpstoreError):
            ColumnTable(path)
    path.unlink()
    with pytest.raises(StoreNotFoundError):
        ColumnTable(path)
    with pytest.raises(CorruptStoreError, match="not a regular file"):
        ColumnTable(Path(tmp_path))


# --- Probers and arguments ------------------------------------------------------------------------


def test_a_ring_is_checked(tmp_path):
    built, queries, _ = built_files(tmp_path, 64)
    other = tmp_path / "other"
    other.mkdir()
    smaller, _, _ = built_files(other, 64, 100)
    wide = tmp_path / "wide"
    wide.mkdir()
    referring, _, _ = built_files(wide, 128, 100)
    tables = [r.kernel for r in built.readers]
    for wrong in (
        [tables[0], tables[0], *tables[2:]],
        [tables[1], tables[0], *tables[2:]],
        [],
        [tables[0]] * 65,
        [smaller.readers[0].kernel, *tables[1:]],
        [referring.rows.kernel],
    ):
        with pytest.raises(ValueError, match=r"ring|sets|row file"):
            _kernel.ColumnProber(tuple(wrong))
    with pytest.raises(ValueError, match="row file"):
        _kernel.ColumnProber(tuple(r.kernel for r in referring.readers))
    with pytest.raises(ValueError, match="row file"):
        _kernel.ColumnProber(tuple(tables), referring.rows.kernel)
    for thresholds in ([1, 1, 1, -1], [1, 1, 1], [3, 3, -2, 3], [300, 0, 0, 0]):
        with pytest.raises(ValueError, match="threshold"):
            built.probe(queries, 6, thresholds)
    assert len(built.probe(queries, 3)[0]) == len(queries) + 1
    for value in (queries.reshape(-1, 2), np.empty((2, 4), np.uint64)):
        with pytest.raises(ValueError, match="shape"):
            built.probe(value, 3)
    with pytest.raises(ValueError, match="shape"):
        referring.probe(queries, 3)
    with pytest.raises(ValueError, match="ColumnProber"):
        referring.readers[0].kernel.locate(np.empty((1, 2), np.uint64))
    narrow = tmp_path / "narrow"
    narrow.mkdir()
    # fingerprints of 32 bits have no lower half
    with pytest.raises(ValueError, match="below its width"):
        built_files(narrow, 32, 10)[0].probe(np.array([1], np.uint64), 1, even_thresholds(1, 4))
