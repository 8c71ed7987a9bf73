"""Strings by number: records of all sizes, as docs/format.md has them, and damage in them.

Some have a trained dictionary.
"""

import random
import shutil
import struct
from itertools import pairwise

import numpy as np
import pytest
import reference
import reference_store
import zstandard
from damage import STRINGS_FILE, records_of, rewrite_records
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_store import LAYOUT_KEYS, encode_layout, encode_strings, sealed_value
from speeds import crossed, slow

import fpstore
from fpstore.base.arguments import MAX_ID_BYTES
from fpstore.base.strings import StringColumn
from fpstore.building.strings import StringSample
from fpstore.format.dictionary import DICTIONARY_FILES
from fpstore.format.strings import (
    MAX_STRINGS,
    RecordReader,
    StringLayout,
    Strings,
    StringWriter,
    strings_per_record,
)

COUNT = 1000
NAMES = [f"https://example.org/pages/{i * 7919 % 10_007}?language=en#{i}" for i in range(COUNT)]


def rows(*span):
    return np.arange(*span, dtype=np.uint64)


def layout_of(path):
    with fpstore.open(path) as store:
        return store.snapshot().generation.dictionary.strings.layout


def build(path, names=NAMES):
    fpstore.build(path, rows(len(names)), names).close()
    return path


def trained_on(strings):
    return zstandard.train_dictionary(1 << 10, strings).as_bytes()


DICTIONARIES = {"trained": trained_on([name.encode() for name in NAMES]), "untrained": b""}


# --- Records --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dictionary", DICTIONARIES)
@pytest.mark.parametrize("per_record", [1, 2, 3, 7, 255, 256])
def test_records_are_what_the_format_says(tmp_path, per_record, dictionary):
    """For counts around whole records, also none; numbers that are not in use have no string."""
    layout = StringLayout(per_record, 5, DICTIONARIES[dictionary])
    for count in {0, 1, per_record - 1, per_record, per_record + 1, 3 * per_record}:
        strings = [b"" if i % 11 == 5 else f"{i}/{NAMES[i]}".encode() for i in range(count)]
        writer = StringWriter(tmp_path / f"{count}", layout)
        for start in range(0, count, 100):
            writer.add(StringColumn.from_strings(strings[start : start + 100]))
        shape = writer.finish()
        in_use = {number: string for number, string in enumerate(strings) if string}
        assert (
            reference_store.read_strings(
                reference_store.read_records(tmp_path / f"{count}", shape), count
            )
            == in_use
        )
        reader = Strings(tmp_path / f"{count}", shape, count)
        results = [string for _, column in reader.columns() for string in column.tolist()]
        assert (reader.layout, results) == (layout, strings)
        assert reader.get_many(np.array(list(in_use), np.uint64)) == list(in_use.values())
        for number in {0, 5, count - 1, count, count + 1, 2**63} - {-1}:
            if number in in_use:
                assert reader.string(number).encode() == in_use[number]
                continue
            with pytest.raises(
                fpstore.CorruptStoreError, match=f"id number {number} has no string"
            ):
                reader.string(number)
            with pytest.raises(
                fpstore.CorruptStoreError, match=f"id number {number} has no string"
            ):
                reader.get_many(np.array([number], np.uint64))
        reader.close()


@settings(max_examples=40)
@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=40), min_size=1, max_size=256
    ),
    st.booleans(),
)
def test_a_record_of_the_readable_encoder_is_read(strings, trained):
    encoded = [string.encode() for string in strings]
    dictionary = DICTIONARIES["trained" if trained else "untrained"]
    frame = encode_strings(encoded, dictionary)
    assert reference_store.decode_strings(frame, dictionary) == encoded
    assert (
        RecordReader(StringLayout(256, 0, dictionary)).strings(7, sealed_value(7, frame)) == encoded
    )


def test_about_a_kilobyte_of_strings_shares_a_record(tmp_path):
    for size, per_record in (
        (1, 256),
        (4, 256),
        (5, 204),
        (24, 42),
        (100, 10),
        (512, 2),
        (1024, 1),
        (5000, 1),
    ):
        names = [chr(0x21 + i) if size == 1 else f"{i:0{size}}" for i in range(90)]
        path = build(tmp_path / f"{size}", names)
        assert layout_of(path).per_record == per_record == strings_per_record(90, 90 * size)
        assert reference_store.read_store(path) == {i: [name] for i, name in enumerate(names)}


def test_an_empty_store_of_strings_has_room_for_any(tmp_path):
    """How many share a record is chosen with the first strings."""
    path = build(tmp_path / "s", NAMES[:1])
    assert strings_per_record(0, 0) == 256
    with fpstore.open(path, "r+") as store:
        store.delete(ids=NAMES[:1])
        store.merge()
        store.insert(rows(100), NAMES[:100])
        store.merge()
    assert layout_of(path)[:2] == (strings_per_record(100, sum(map(len, NAMES[:100]))), 100)
    assert reference_store.read_store(path) == {i: [name] for i, name in enumerate(NAMES[:100])}


@pytest.mark.parametrize("count", [10, COUNT])
def test_a_dictionary_is_trained_where_there_is_enough_to_learn(tmp_path, count):
    path = build(tmp_path / "s", NAMES[:count])
    layout = layout_of(path)
    assert (layout.trained, bool(layout.dictionary)) == (count, count == COUNT)
    size = sum(len(value) for value in records_of(path / STRINGS_FILE).values())
    assert count < COUNT or size < sum(map(len, NAMES)) // 3


def test_strings_without_anything_in_common_have_no_dictionary(tmp_path):
    rng = random.Random(1)
    names = [
        "".join(map(chr, rng.choices(range(0x4E00, 0x9FFF), k=9000)))[: 9000 + i] for i in range(3)
    ]
    assert layout_of(build(tmp_path / "s", names)).dictionary == b""
    assert reference_store.read_store(tmp_path / "s") == {i: [name] for i, name in enumerate(names)}


def test_a_sample_is_spread_evenly_and_has_a_limit(set_limits):
    set_limits(string_sample_bytes=4000)
    sample = StringSample()
    names = [f"{number:0100}" for number in range(4000)]
    for start in range(0, 4000, 1000):
        sample.add(StringColumn.from_strings(names[start : start + 1000]))
    taken = [int(record[:100]) for record in sample.records]
    assert len(taken) * 1010 <= 4000 < len(taken) * 4 * 1010
    assert taken[0] == 0
    assert taken[-1] >= 3000
    assert all(len(record) == 10 * 101 for record in sample.records)
    sample = StringSample()
    sample.add(StringColumn.from_strings([b"x" * 5000]))
    assert sample.records == [b"x" * 5000 + b"\xff"]  # one is not halved


def test_a_dictionary_is_trained_for_the_distinct_strings(tmp_path):
    """However often each comes, in a build and in a merge that trains again.

    In the merge, some are not in use any more.
    """
    names = [f"https://example.org/{i * 7919 % 10_007:05}/index.html" for i in range(2000)]
    once = layout_of(build(tmp_path / "once", names))
    often = layout_of(build(tmp_path / "often", names * 5))
    assert len(often.dictionary) == len(once.dictionary) > 0
    assert (often.per_record, often.trained) == (once.per_record, 2000)
    with fpstore.open(
        build(tmp_path / "merged", [*(f"{i:0300}" for i in range(100)), "a"]), "r+"
    ) as store:
        store.delete(fingerprints=rows(100))
        store.insert(rows(5000, 7000), names)
        store.merge()
    merged = layout_of(tmp_path / "merged")
    assert merged.trained == 2001
    assert abs(merged.per_record - once.per_record) <= 1
    assert abs(len(merged.dictionary) - len(once.dictionary)) < 50


def test_more_strings_than_32_bits_count(tmp_path):
    writer = StringWriter(tmp_path / "s", StringLayout(5, 2**40, b""))
    writer.add(StringColumn.from_strings(["a"]))
    reader = Strings(tmp_path / "s", writer.finish(), 1)
    assert reader.layout.trained == 2**40
    reader.close()


LIMITS = {
    "string_bytes": (1, 60, 5000),
    "string_sample_bytes": (1, 60, 5000),
    "string_records": (1, 3, 100),
    "string_value_bytes": (1, 60, 5000),
    "string_content_bytes": (1, 60, 5000),
    "sealed_items": (1, 3, 100),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("limits", "size"), crossed([*LIMITS, "all"], [0, 1, 2], share=9))
def test_strings_are_read_and_written_in_pieces(tmp_path, set_limits, limits, size):
    for limit in LIMITS if limits == "all" else [limits]:
        set_limits(**{limit: LIMITS[limit][size]})
    path = build(tmp_path / "s", [*NAMES[:300], *NAMES[:300:2]])
    with fpstore.open(path, "r+") as store:
        store.insert(rows(2000, 2010), NAMES[295:305])
        store.absorb(build(tmp_path / "other", NAMES[290:600]))
    held = reference_store.read_store(path)
    assert {f: names for f, names in held.items() if 310 <= f < 450} == {
        300 + i: [NAMES[2 * i]] for i in range(10, 150)
    }
    assert {f: set(names) for f, names in held.items() if f < 300} == {
        i: {NAMES[i], NAMES[290 + i]} for i in range(300)
    }
    assert {f: names for f, names in held.items() if f >= 2000} == {
        1705 + i: [NAMES[i]] for i in range(295, 305)
    }
    with fpstore.open(path) as store:
        assert {f: store[f] for f in held} == held
        lims, ids = store.ids_of(list(held))
        assert [ids[a:b] for a, b in pairwise(lims)] == list(held.values())
        assert store.fingerprints_of(NAMES[:600])[1].tolist() == [
            f for name in NAMES[:600] for f in sorted(held) if name in held[f]
        ]
        assert store.verify().ok


# --- Merges ---------------------------------------------------------------------------------------


def test_a_merge_copies_records_of_which_all_strings_stay(tmp_path):
    path = build(tmp_path / "s")
    layout, before = layout_of(path), records_of(path / STRINGS_FILE)
    with fpstore.open(path, "r+") as store:
        store.insert([5000], ["new"])
        store.delete(ids=[NAMES[100]])
        store.merge()
    after = records_of(path / STRINGS_FILE.replace("1/", "2/"))
    assert layout_of(path) == layout
    changed = {int.from_bytes(key, "big") for key in after if after[key] != before.get(key)}
    assert changed == {100 // layout.per_record, COUNT // layout.per_record}
    assert reference_store.read_store(path) == {
        i: [name] for i, name in enumerate(NAMES) if i != 100
    } | {5000: ["new"]}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("times", [3, 4])
def test_dictionary_serves_until_strings_are_four_times_as_many(tmp_path, times):
    path = build(tmp_path / "s", NAMES[:200])
    layout = layout_of(path)
    with fpstore.open(path, "r+") as store:
        store.insert(rows(200, 200 * times), NAMES[200 : 200 * times])
        store.merge()
    assert (layout_of(path) == layout) is (times == 3)
    assert layout_of(path).trained == (200 if times == 3 else 800)
    assert reference_store.read_store(path) == {
        i: [name] for i, name in enumerate(NAMES[: 200 * times])
    }


def test_merges_and_joins_are_what_the_format_says(tmp_path):
    content = {i: [name] for i, name in enumerate(NAMES[:300])}
    path = build(tmp_path / "s", NAMES[:300])
    other = build(tmp_path / "other", NAMES[250:600])
    with fpstore.open(path, "r+") as store:
        store.delete(fingerprints=rows(0, 300, 2))
        store.insert([7000, 7001], [NAMES[0], "new"])
        store.absorb(other)
        expected = {f: set(names) for f, names in content.items() if f % 2} | {
            7000: {NAMES[0]},
            7001: {"new"},
        }
        for i, name in enumerate(NAMES[250:600]):
            expected.setdefault(i, set()).add(name)
        store.insert([9000], ["in the log only"])
    assert {f: set(names) for f, names in reference_store.read_store(path).items()} == expected


# --- Damage under right checksums -----------------------------------------------------------------


def frame_of_size(size):
    """Return a frame that says that its content is so large."""
    return struct.pack("<IBQ", 0xFD2FB528, 0xE0, size) + b"\x01\x00\x00"


def damages(strings, dictionary):
    frame = encode_strings(strings, dictionary)
    zstd = zstandard.ZstdCompressor(dict_data=reference_store.zstandard_dictionary(dictionary))
    content = b"".join(string + b"\xff" for string in strings)
    other = zstandard.ZstdCompressor(dict_data=zstandard.ZstdCompressionDict(content))
    unsized = zstd.compressobj()
    return {
        "a string less": encode_strings(strings[:-1], dictionary),
        "a string more": encode_strings([*strings, b"more"], dictionary),
        "no string": zstd.compress(b""),
        "no separator at the end": zstd.compress(content[:-1]),
        "nothing": b"",
        "no frame": b"no frame",
        "half a frame": frame[: len(frame) // 2],
        "a frame and more": frame + b"\0",
        "two frames": frame + frame,
        "a frame of another dictionary": other.compress(content),
        "a frame without a size": unsized.compress(content) + unsized.flush(),
        "a frame that is too large": zstd.compress(
            b"x" * MAX_STRINGS * (MAX_ID_BYTES + 1) + b"\xff"
        ),
        "a frame of 2^40 bytes": frame_of_size(2**40),
        "a frame of 2^60 bytes": frame_of_size(2**60),
    }


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return build(tmp_path_factory.mktemp("good") / "s")


@pytest.fixture
def copy(good, tmp_path):
    return shutil.copytree(good, tmp_path / "s")


def check_damaged(path, first, count):
    """Whoever asks for one of these strings is told of the damage, and nobody else.

    Verify finds it too.
    """
    other = (first + count) % COUNT
    with fpstore.open(path, "r+") as store:
        for ask in (
            lambda: store[first],
            lambda: store.probe(first, 0),
            lambda: store.ids_of(rows(COUNT)),
            lambda: store.ids[NAMES[first]],
            lambda: store.insert([1], [NAMES[first]]),
            lambda: [ids for _, _, ids in store.items()],
        ):
            with pytest.raises(fpstore.CorruptStoreError, match=r"strings\.mdb"):
                ask()
        if count < COUNT:
            assert (store[other], store.ids[NAMES[other]]) == ([NAMES[other]], [other])
        faults = store.verify().faults
        assert [fault["path"] for fault in faults] == [str(path / STRINGS_FILE)]


QUICK = (
    "a string less",
    "no separator at the end",
    "half a frame",
    "a frame without a size",
    "a frame of 2^60 bytes",
)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "damage", [name if name in QUICK else slow(name) for name in damages([b"a", b"b"], b"")]
)
def test_a_record_whose_content_cannot_be_is_damage(copy, damage):
    layout = layout_of(copy)
    first = layout.per_record * 2
    strings = [name.encode() for name in NAMES[first : first + layout.per_record]]
    assert layout.dictionary
    frame = damages(strings, layout.dictionary)[damage]
    if damage not in ("a string less", "a string more", "a frame without a size"):
        with pytest.raises(reference.FormatError):
            reference_store.decode_strings(frame, layout.dictionary)

    def change(records):
        records[(2).to_bytes(8, "big")] = sealed_value(2, frame)

    rewrite_records(copy, STRINGS_FILE, change)
    check_damaged(copy, first, layout.per_record)
    with fpstore.open(copy, "r+") as store:
        store.delete(fingerprints=[first])  # so that the record is not copied
        store.insert([COUNT], ["new"])  # and the file is not taken over
        with pytest.raises(fpstore.CorruptStoreError, match=f"strings of id numbers {first} to"):
            store.merge()
    report = fpstore.repair(copy)
    if damage not in ("a string less", "a string more"):
        lost = range(first, first + layout.per_record)
        with fpstore.open(report.output) as store:
            assert set(range(COUNT)) - set(store) == set(lost)
            assert store.verify().ok


@pytest.mark.parametrize("missing", [0, 3, "last"])
def test_a_record_that_is_missing_is_damage(copy, missing):
    layout = layout_of(copy)
    record = (COUNT - 1) // layout.per_record if missing == "last" else missing
    rewrite_records(copy, STRINGS_FILE, lambda records: records.pop(record.to_bytes(8, "big")))
    check_damaged(copy, record * layout.per_record, layout.per_record)


def test_records_in_each_others_place_are_damage(copy):
    """The key is the seed of the checksum."""

    def change(records):
        a, b = (number.to_bytes(8, "big") for number in (1, 2))
        records[a], records[b] = records[b], records[a]

    rewrite_records(copy, STRINGS_FILE, change)
    check_damaged(copy, layout_of(copy).per_record, layout_of(copy).per_record * 2)


def is_damaged(path):
    try:
        with fpstore.open(path) as store:
            return not store.verify().ok
    except fpstore.FpstoreError:
        return True


@pytest.mark.full
def test_the_readable_decoder_refuses_what_the_product_refuses(copy):
    """A bit of a file of the dictionary, wherever it is."""
    rng = random.Random(4)
    for name in DICTIONARY_FILES:
        file = copy / "gen-00000001" / name
        data = file.read_bytes()
        for at in rng.sample([i for i in range(len(data)) if data[i]], 4):
            file.write_bytes(data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :])
            with pytest.raises((reference.FormatError, struct.error)):
                reference_store.read_store(copy)
            assert is_damaged(copy)
        file.write_bytes(data)
    assert reference_store.read_store(copy) == {i: [name] for i, name in enumerate(NAMES)}


# --- What all records share -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "copies"),
    crossed(
        ["flip", "missing", "empty", "no string in a record", "too many strings in a record"],
        [LAYOUT_KEYS[:1], LAYOUT_KEYS[1:], LAYOUT_KEYS],
    ),
)
def test_one_copy_of_the_layout_is_enough(copy, damage, copies):
    layout = layout_of(copy)

    def change(records):
        for number in copies:
            key = number.to_bytes(8, "big")
            value = bytearray(records.pop(key))
            value[20] ^= 1
            per_record = 0 if damage == "no string in a record" else 257
            forged = (
                b""
                if damage == "empty"
                else encode_layout(per_record, layout.trained, layout.dictionary)
            )
            if damage != "missing":
                records[key] = bytes(value) if damage == "flip" else sealed_value(number, forged)

    rewrite_records(copy, STRINGS_FILE, change)
    if len(copies) == 2:
        check_damaged(copy, 0, COUNT)
    else:
        assert layout_of(copy) == layout
        with fpstore.open(copy) as store:
            assert store.ids_of(rows(COUNT))[1] == NAMES


@pytest.mark.parametrize(
    "dictionary", [slow(b""), slow(b"no dictionary"), struct.pack("<I", 0xEC30A437) + bytes(300)]
)
def test_another_dictionary_than_that_of_the_records_is_damage(copy, dictionary):
    """Under checksums that are right.

    The second begins like a dictionary of zstandard and is none.
    """
    layout = layout_of(copy)

    def change(records):
        for number in LAYOUT_KEYS:
            records[number.to_bytes(8, "big")] = sealed_value(
                number, encode_layout(layout.per_record, layout.trained, dictionary)
            )

    rewrite_records(copy, STRINGS_FILE, change)
    check_damaged(copy, 0, COUNT)


def test_both_copies_of_the_layout_damaged_by_a_flipped_bit(copy, set_limits):
    """In a file that is not checked as a whole when it is opened."""
    set_limits(bytes_checked_at_open=0)
    file = copy / STRINGS_FILE
    data = bytearray(file.read_bytes())
    for key in LAYOUT_KEYS:
        at = data.find(records_of(file)[key.to_bytes(8, "big")])
        assert at > 0
        data[at + 30] ^= 1
    file.write_bytes(data)
    with (
        fpstore.open(copy) as store,
        pytest.raises(fpstore.CorruptStoreError, match=r"strings\.mdb"),
    ):
        store.ids_of([1])
