"""Texts of a batch in UTF-8, which the kernel takes as they are, against lists of strings."""

import random
import threading
from itertools import compress

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fpstore
from fpstore import MinHash, SimHash, _kernel
from fpstore.base.strings import StringColumn, TextColumn
from fpstore.hashing.plain_pages import PlainPages, PlainTexts
from fpstore.io.parquet import ParquetRows

PAGE = "<!DOCTYPE html><html><body><p>Salt &amp; pepper</p></body></html>"
TEXTS = [
    "",
    "plain words in a row",
    "a\0b \x85 c",
    "\u4e2d\u6587\u6587\u672c \U0001f600",
    "e\u0301t\u00e9 \u03a3\u03a3",
    "x < y and y > z",
    "word-\nbroken",
]


def column_of(texts):
    return TextColumn(StringColumn.from_strings(texts))


def test_a_column_is_a_sequence_of_its_texts():
    column = column_of(TEXTS)
    assert (list(column), len(column), column[3], column[2:4]) == (
        TEXTS,
        len(TEXTS),
        TEXTS[3],
        TEXTS[2:4],
    )
    assert column.chars.tolist() == list(map(len, TEXTS))
    assert [column.head(place, 3) for place in range(len(TEXTS))] == [text[:3] for text in TEXTS]
    assert column[-2:] == TEXTS[-2:]
    assert column[-1] == TEXTS[-1]
    with pytest.raises(IndexError):
        column[len(TEXTS)]
    assert column_of([]).chars.tolist() == []


def test_the_characters_of_texts_of_every_length_are_counted():
    texts = [character * count for character in "a\x80\u4e2d\U0001f600" for count in range(600)]
    assert column_of(texts).chars.tolist() == list(map(len, texts))
    for offsets in ([], [1, 0], [0, 3]):
        with pytest.raises(ValueError, match="offsets"):
            _kernel.count_characters(b"ab", np.array(offsets, np.uint64))


def test_bytes_of_a_buffer_are_copied():
    buffer = pa.py_buffer(b"abcdef")
    assert _kernel.copy_bytes(buffer, 2, 5) == b"cde"
    assert _kernel.copy_bytes(buffer, 6, 6) == _kernel.copy_bytes(b"", 0, 0) == b""
    for start, end in [(0, 7), (4, 3)]:
        with pytest.raises(ValueError, match="bytes run past the buffer"):
            _kernel.copy_bytes(buffer, start, end)
    with pytest.raises(TypeError):
        _kernel.copy_bytes("text", 0, 1)


def test_texts_of_a_column_are_replaced_and_filtered():
    for texts in ({}, {0: "x"}, {3: "", 4: "\u4e2d"}, dict.fromkeys(range(len(TEXTS)), "y")):
        expected = [texts.get(place, text) for place, text in enumerate(TEXTS)]
        replaced = column_of(TEXTS).replace({n: text.encode() for n, text in texts.items()})
        assert [*replaced] == expected
        assert replaced.encoded.data == "".join(expected).encode()
        flags = np.array([place % 2 == 0 for place in range(len(TEXTS))])
        assert [*replaced.filter(flags)] == expected[::2]


@pytest.mark.parametrize(
    "hasher",
    [
        MinHash(),
        MinHash(hyphens="join"),
        MinHash(shingle="chars", size=4, normalize=False),
        MinHash(tokenizer=str.split),
        SimHash(width=128),
        PlainPages(MinHash()),
        PlainPages(SimHash()),
    ],
)
def test_a_column_is_hashed_as_a_list(hasher):
    for texts in (TEXTS, [*TEXTS, PAGE, "\u4e2d" * 1023 + PAGE, "\u4e2d" * 1024 + PAGE]):
        of_list, of_column = hasher.hashed(texts), hasher.hashed(column_of(texts))
        assert of_column.rows.tolist() == of_list.rows.tolist()
        assert of_column.known.tolist() == of_list.known.tolist()
        of_list, of_column = (
            hasher.hashed_sets(items, fingerprints=False) for items in (texts, column_of(texts))
        )
        for a, b in zip(of_list.sets, of_column.sets, strict=True):
            assert a.tolist() == b.tolist()
        if isinstance(hasher, PlainPages):
            assert of_column.pages.tolist() == of_list.pages.tolist()
            assert isinstance(PlainTexts.of(column_of(texts)).texts, TextColumn)
            chars = [
                None if h.text_chars is None else [*h.text_chars] for h in (of_list, of_column)
            ]
            assert chars[0] == chars[1]
            assert of_column.pages.sum() == (len(texts) > len(TEXTS))


@pytest.mark.parametrize("dictionary", [False, True])
def test_texts_of_arrow_that_are_not_utf8_are_refused_by_their_row(tmp_path, dictionary):
    good = pa.array([b"a b c", b"d e f", b"a b c \xff", b"a b c \xff"], pa.binary())
    text = pa.Array.from_buffers(pa.string(), 4, good.buffers())
    table = pa.table({"text": text.dictionary_encode() if dictionary else text})
    pq.write_table(table, tmp_path / "t.parquet")
    for source in (table, tmp_path / "t.parquet"):
        with pytest.raises(fpstore.InputError, match=r"row 3: text: the text is not valid UTF-8"):
            fpstore.dedup(source, text="text")


def test_a_broken_value_beside_a_null_in_a_dictionary_is_refused_by_its_row():
    offsets = np.array([0, 2, 2], np.int32).tobytes()
    values = pa.Array.from_buffers(
        pa.string(), 2, list(map(pa.py_buffer, (b"\x01", offsets, b"x\xff")))
    )
    text = pa.DictionaryArray.from_arrays(pa.array([1, 0], pa.int8()), values)
    with pytest.raises(fpstore.InputError, match=r"row 2: text: the text is not valid UTF-8"):
        fpstore.dedup(pa.table({"text": text, "key": ["a", "b"]}), text="text", key="key")


def test_threads_copy_the_same_bytes_in_many_row_groups(tmp_path, set_limits, monkeypatch):
    rng = random.Random(1)
    texts = [" ".join(str(rng.random()) for _ in range(rng.randint(1, 90))) for _ in range(3000)]
    table = pa.table({"text": texts + texts[:900]})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=100)
    set_limits(parquet_group_bytes=1 << 16, parquet_part_bytes=1 << 16)
    encoders = set()
    write_table = pq.ParquetWriter.write_table

    def noted(*arguments):
        encoders.add(threading.current_thread())
        write_table(*arguments)

    monkeypatch.setattr(pq.ParquetWriter, "write_table", noted)
    for threads in (1, 2, 3):
        encoders.clear()
        fpstore.dedup(
            tmp_path / "t.parquet", tmp_path / f"{threads}.parquet", text="text", threads=threads
        )
        caller = threading.current_thread()
        assert encoders == {caller} if threads == 1 else encoders and caller not in encoders
    one, *others = ((tmp_path / f"{threads}.parquet").read_bytes() for threads in (1, 2, 3))
    assert all(other == one for other in others)
    written = pq.ParquetFile(tmp_path / "1.parquet")
    assert written.metadata.num_row_groups > 10
    assert np.unique(written.read()["text"]).size == written.metadata.num_rows == 3000


def test_a_long_value_of_a_dictionary_makes_few_batches(tmp_path):
    """Eight rows were read at once, and each batch costs all that follows a fixed time."""
    texts = ["long " * 250_000, *(f"text {n} " * 40 for n in range(30_000))]
    pq.write_table(pa.table({"text": texts}), tmp_path / "t.parquet")
    source = ParquetRows([str(tmp_path / "t.parquet")])
    batches = [batch for _, _, batch in source.record_batches(["text"])]
    assert [text for batch in batches for text in batch["text"].to_pylist()] == texts
    assert sum(batch.nbytes for batch in batches) / len(batches) > 1 << 19
    starts = [done for _, done, _ in source.record_batches(["text"])]
    assert starts == np.cumsum([0, *map(len, batches)])[:-1].tolist()


def test_sets_that_are_selected_have_their_features():
    texts = ["", "a b c", " ", "d e f g h i", "a b c", ""]
    sets = MinHash().feature_sets(texts)
    masks = [np.array([bool(text.strip()) for text in texts])]
    masks += [np.array([bits >> n & 1 for n in range(len(texts))], bool) for bits in range(64)]
    for mask in masks:
        expected = MinHash().feature_sets(list(compress(texts, mask)))
        for selected in (sets.select(mask), sets.select(np.flatnonzero(mask))):
            for got, wanted in zip(selected, expected, strict=True):
                assert got.tolist() == wanted.tolist()
    assert sets.select(masks[0]).features is sets.features
