"""Verify, statistics and files that fail, of stores of column tables."""

import json
import shutil
import struct

import numpy as np
import pytest
import reference_columns as reference
from care_script import CARE_SCRIPT, SCRIPT_START, run_script
from column_sets import resealed
from commandline import fine
from speeds import SOME_WIDTHS, slow

import fpstore
from fpstore.base.width import Width
from fpstore.care.stats import distribution
from fpstore.format import column_table
from fpstore.format.column_table import ColumnTable
from fpstore.format.layout import table_name

COUNT = 5000
DESIGNS = {32: "columns-2-9", 64: "columns-4-12", 128: "columns-8-10", 256: "columns-16-8"}
GENERATION = "gen-00000001"


def numbers_of(bits, count=COUNT):
    digits = np.random.default_rng(bits).integers(0, 256, (count, bits // 8), np.uint8)
    return sorted({int.from_bytes(row.tobytes(), "big") for row in digits})


@pytest.fixture(scope="module", params=SOME_WIDTHS)
def good(request, tmp_path_factory):
    path, bits = tmp_path_factory.mktemp("good") / "s", request.param
    fpstore.build(path, numbers_of(bits), width=bits, design=DESIGNS[bits]).close()
    return path, bits


@pytest.fixture
def store(good, tmp_path):
    path, bits = good
    return shutil.copytree(path, tmp_path / "s"), bits


def faults(path):
    with fpstore.open(path) as opened:
        return [fault["message"] for fault in opened.verify().faults]


# --- Verify ---------------------------------------------------------------------------------------


def forged(file, change):
    """Change bytes of a file, and put the checksums of its pages right."""
    kernel, data = ColumnTable(file, None).header, bytearray(file.read_bytes())
    change(kernel, data)
    file.write_bytes(resealed(data, kernel))


def swapped(kernel, data):
    """Exchange the tags of two entries of a bucket, or two rows."""
    each = 8 * Width(kernel.width).words if kernel.kind == column_table.KIND_ROWS else 2
    ends = np.frombuffer(data, "<u4", (1 << kernel.bucket_bits) + 1, kernel.directory_offset)
    at = kernel.tags_offset + each * int(ends[:-1][np.diff(ends) > 1][0])
    page, other = data[at : at + each], data[at + each : at + 2 * each]
    assert page != other
    data[at : at + 2 * each] = other + page


def one_more(kernel, data):
    data[kernel.directory_offset + 4 * 100] += 1


def not_ascending(kernel, data):
    struct.pack_into("<I", data, kernel.directory_offset + 4 * 100, 4000)


def not_zero(section):
    def change(kernel, data):
        data[
            {
                "tags": kernel.tags_offset,
                "rest": kernel.rest_offset,
                "checksums": kernel.checksums_offset,
            }[section]
            - 3
        ] = 1

    return change


def above_the_rest(kernel, data):
    size = (kernel.rest_bits + 7) // 8
    data[kernel.rest_offset + 33 * size + size - 1] |= 0x80


def another_rest(kernel, data):
    data[kernel.rest_offset] ^= 1


FORGED = [
    (0, swapped, "out of order"),
    (0, one_more, "directory does not match|out of order|another set"),
    (0, not_ascending, "directory does not match the entries"),
    (0, not_zero("tags"), "padding is not zero"),
    (0, not_zero("rest"), "padding is not zero"),
    (1, not_zero("checksums"), "padding is not zero"),
    (1, one_more, "directory does not match|out of order|another|leads"),
]


def test_each_fault_under_right_checksums_is_named(store):
    path, bits = store
    for table, change, message in FORGED:
        file = path / GENERATION / table_name(table)
        before = file.read_bytes()
        forged(file, change)
        result = faults(path)
        assert str(file) in result[0]
        assert any(word in result[0] for word in message.split("|")), result
        assert not any(str(file) not in fault for fault in result if "table-" in fault)
        file.write_bytes(before)
    # Bits behind a rest.
    file = path / GENERATION / table_name(1 if bits > 64 else 0)
    assert ColumnTable(file, None).header.rest_bits % 8
    forged(file, above_the_rest)
    assert "entry 33: padding is not zero" in faults(path)[0]


@pytest.mark.parametrize("good", [slow(128), 256], indirect=True)
def test_references_are_compared_with_rows(store):
    path, _ = store
    file = path / GENERATION / table_name(3)
    before = file.read_bytes()
    forged(file, another_rest)
    assert faults(path) == [f"{file}: a reference leads to a row of another bucket or tag"]
    file.write_bytes(before)

    def to_no_row(kernel, data):
        data[kernel.rest_offset + 2 : kernel.rest_offset + 4] = b"\xff\x1f"

    forged(file, to_no_row)
    assert faults(path) == [f"{file}, entry 1: a reference leads to no row"]


def test_bits_below_the_width(tmp_path):
    """With 19 bits of bucket and 16 of tag, those of 32 have three zeros."""
    fpstore.build(tmp_path / "s", numbers_of(32), width=32, design="columns-1-19", radius=1).close()
    file = tmp_path / "s" / GENERATION / table_name(0)
    forged(
        file,
        lambda kernel, data: data.__setitem__(
            kernel.tags_offset + 8, data[kernel.tags_offset + 8] | 1
        ),
    )
    assert "entry 4: padding is not zero" in faults(tmp_path / "s")[0]


def test_a_changed_byte_is_named_by_its_page(store):
    path, _ = store
    files = [path / GENERATION / table_name(table) for table in (0, 1)]
    before = [file.read_bytes() for file in files]
    for part in (5000, -5, 4096 + 60):
        for file, data in zip(files, map(bytearray, before), strict=True):
            data[part] ^= 4
            file.write_bytes(data)
        result = faults(path)
        assert sum("page checksum differs" in fault for fault in result) >= 2
        assert all(any(f"{file}, page " in fault for fault in result) for file in files)


@pytest.mark.parametrize("sparse", [1, 3, 1000])
def test_a_sample_is_of_what_can_be_read(store, set_limits, sparse):
    path, bits = store
    file = path / GENERATION / table_name(0)
    ends = Width(bits).rows([*numbers_of(bits)[127::128], numbers_of(bits)[-1]])
    set_limits(sparse_blocks=sparse)
    for step in (1, 2, 3, 7, 50):
        assert np.array_equal(ColumnTable(file, None).sample_keys(step), ends[::step])
    data = bytearray(file.read_bytes())
    data[ColumnTable(file, None).header.tags_offset + 5000] ^= 1  # of the second or the third page
    file.write_bytes(data)
    part = {row.tobytes() for row in ColumnTable(file, None).sample_keys(2)}
    assert part < {row.tobytes() for row in ends[::2]}
    assert bool(part) == (sparse < 1000)
    data[4096] ^= 1  # of the directory, which copies need
    file.write_bytes(data)
    assert (len(ColumnTable(file, None).sample_keys(2)) > 0) == (bits > 64 and sparse < 1000)


def test_progress_comes_in_pieces_and_may_end_it(good, set_limits):
    path, bits = good
    set_limits(column_entries=512)
    messages = []
    with fpstore.open(path) as store:
        tables = len(store.design.tables)
        assert store.verify(progress=lambda *args: messages.append(args)).ok
        steps = [done for phase, done, _ in messages if phase == "tables"]
        assert len(set(steps)) > tables * COUNT // 512
        assert steps == sorted(steps)
        assert steps[-1] == tables * len(store)
        assert any(phase == "references" for phase, _, _ in messages) == (bits > 64)

        def end(phase, done, total):
            if phase == messages[-1][0] or done:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            store.verify(progress=end)


# --- Files that fail while a store is open --------------------------------------------------------

CHANGE = f"""{SCRIPT_START}
with fpstore.open(path, "r+") as store:
    store.insert([1, 2, 3])
    os.truncate(name, length)
    answer("split", lambda: str(store.split(path + ".parts", 2)))
    answer("merge", lambda: str(store.merge()))
print(json.dumps(answers))
"""


@pytest.mark.full
@pytest.mark.parametrize(("table", "share"), [(0, 0), (2, 1), (0, 2)])
def test_a_table_truncated_under_an_open_store(store, table, share):
    """It is mapped, and a read through the mapping would end the process."""
    path, bits = store
    file = path / GENERATION / table_name(min(table, 1) if bits == 32 else table)
    size = file.stat().st_size * share // 3 // 4096 * 4096
    answers = run_script(CARE_SCRIPT, path, file, size)
    assert any(str(file) in fault for fault in answers["verify"]), answers["verify"]
    assert answers["backup"][0] == "CorruptStoreError"
    assert str(file) in answers["backup"][1]
    faulty, losses, count = answers["repair"]
    assert any(str(file) in fault["message"] for fault in faulty)
    if table == 0 and bits > 64:  # the rows are only here, and their checksums were at the end
        assert count == 0
        assert "5000 of 5000 fingerprints of the tables, which are not known" in losses
    else:
        assert (count, losses) == (len(numbers_of(bits)), [])


def test_a_merge_and_a_split_of_a_truncated_table(store):
    path, _ = store
    file = path / GENERATION / table_name(0)
    answers = run_script(CHANGE, path, file, file.stat().st_size // 3 // 4096 * 4096)
    for what in ("split", "merge"):
        assert answers[what][0] == "CorruptStoreError", answers
        assert str(file) in answers[what][1]


# --- Statistics -----------------------------------------------------------------------------------


def test_statistics(good):
    path, bits = good
    with fpstore.open(path) as store:
        stats, table = store.stats(), store.snapshot().generation.tables[0]
        result = distribution(table)
        tables = store.design.tables
    assert [t["kind"] for t in stats["design"]["tables"]] == [t.kind for t in tables]
    assert stats["design"]["tables"][0]["kind"] == ("copies" if bits <= 64 else "rows")
    held = [path / GENERATION / table_name(i) for i in range(len(tables))][
        : None if bits <= 64 else 1
    ]
    size = sum(file.stat().st_size for file in held) * 8 / len(held) / stats["fingerprints"]
    assert stats["bits_per_fingerprint"] == pytest.approx(size)
    assert stats["ratio_to_raw"] == pytest.approx(size / bits)
    assert stats["bytes"]["tables"] == sum(
        file.stat().st_size for file in (path / GENERATION).glob("table-*")
    )
    assert result["buckets"] == 1 << table.kernel.bucket_bits
    assert result["entries_per_bucket"]["mean"] == pytest.approx(
        stats["fingerprints"] / result["buckets"]
    )
    values = np.array([number >> bits - 16 for number in numbers_of(bits)])
    assert result["skew"]["distinct_prefixes"] == len(set(values.tolist()))
    counts = np.bincount(
        np.array([n >> bits - table.kernel.bucket_bits for n in numbers_of(bits)]),
        minlength=result["buckets"],
    )
    assert result["empty_buckets"] == int((counts == 0).sum())
    assert result["entries_per_bucket"]["most"] == counts.max()


def test_the_command_tells_the_statistics(good):
    path, bits = good
    for options in ([], ["--full"]):
        output = fine("stats", path, *options)
        assert ("references" in output) == (bits > 64)
        assert "block" not in output
        assert ("fingerprints per bucket" in output) == bool(options)
    assert json.loads(fine("stats", path, "--full", "--json"))["distribution"]["buckets"] > 0
    assert "fpstore_fingerprints" in fine("stats", path, "--prometheus")


def test_statistics_of_an_empty_store(tmp_path):
    fpstore.build(tmp_path / "s", [], design="columns-16-8", width=256).close()
    assert "fingerprints" in fine("stats", tmp_path / "s", "--full")
    assert faults(tmp_path / "s") == []


def test_a_row_file_of_few_rows_is_small(tmp_path):
    for count, buckets in ((3, 8), (COUNT, 9), (1 << 14, 11)):
        path = tmp_path / str(count)
        fpstore.build(path, numbers_of(128, count), width=128, design="columns-8-8").close()
        file = path / GENERATION / table_name(0)
        assert ColumnTable(file, None).header.bucket_bits == buckets
        layout = reference.Layout(reference.ROWS, 128, tuple(range(128)), buckets, 0, -1, 0, 9)
        assert file.read_bytes() == reference.build(layout, numbers_of(128, count))
        assert faults(path) == []


# --- The verbs of whole stores --------------------------------------------------------------------
