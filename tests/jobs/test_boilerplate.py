"""Paragraphs and lines that many documents have are removed, and all else stays.

Every format is compared with a plain model.
"""

import csv
import gzip
import io
import json
import random
import re
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import regex
from commandline import TEXT_FIELD, failure, fine
from inputs import json_lines
from resuming import in_another
from speeds import crossed

import fpstore
from fpstore.base.characters import LINE_END, PARAGRAPH_END
from fpstore.errors import InputError, StoreExistsError
from fpstore.jobs import boilerplate

SOME = [
    "All rights reserved.",
    "Read  more",
    "Ünïcode ẞtrasse",
    "Share\nthis",
    "a\u00a0b",
    "x\xady",
]
GAPS = {
    "paragraph": ["\n\n", "\n \t\n", "\r\n\r\n", "\n\n\n\n", "\n\u00a0\u200b\n", "\r\r", "\u2029"],
    "line": ["\n", "\n\n", "\r\n", "\r", "\x85\u2028"],
}


def variant(rng, piece):
    """Return a piece with other case and white space."""
    words = [
        rng.choice([word, word.upper(), word.lower()]) if "ß" not in word.lower() else word
        for word in piece.split(" ")
    ]
    return rng.choice(["", " ", "\t"]) + rng.choice([" ", "  "]).join(words) + rng.choice(["", " "])


def drawn(rng, unit, number):
    """Return a text, or none; some are only boilerplate, or blank."""
    if rng.random() < 0.1:
        return rng.choice([None, "", " \n\n \n", "\n"])
    own = (
        []
        if rng.random() < 0.15
        else [f"Story {number} about {rng.random()}", f'More \\ "{number}", é']
    )
    pieces = own[: rng.randint(0, 2)]
    pieces += [
        variant(rng, piece)
        for piece in rng.choices(SOME, weights=[9, 5, 3, 2, 1, 1], k=rng.randint(0, 4))
    ]
    rng.shuffle(pieces)
    if unit == "line":
        pieces = [piece.replace("\n", " ") for piece in pieces]
    text = rng.choice(["", rng.choice(GAPS[unit])])
    for piece in pieces:
        text += piece + rng.choice(GAPS[unit])
    return text if rng.random() < 0.5 else text.rstrip("\n")


def cut(text, unit):
    """Return pieces and what separates them, one after the other."""
    return regex.split(r"(\R[\s\u200b]*\R|\u2029)" if unit == "paragraph" else r"(\R)", text)


def normal(piece):
    return regex.sub(r"[\s\u200b\xad]", "", piece.casefold())


def model(texts, unit, most):
    """Return the texts that are wanted, with an ellipsis for a row that goes, and the counts."""
    documents = {}
    for number, text in enumerate(texts):
        for piece in cut(text, unit)[::2] if text else ():
            documents.setdefault(normal(piece), set()).add(number)
    gone = {piece for piece, where in documents.items() if piece and len(where) > most}
    wanted, removed, changed, lost = [], 0, 0, 0
    for text in texts:
        parts = cut(text, unit) if text else [""]
        kept = [place for place in range(0, len(parts), 2) if normal(parts[place]) not in gone]
        if 2 * len(kept) == len(parts) + 1:
            wanted.append(text)
            continue
        new = "".join(
            parts[place] + (parts[place + 1] if place < kept[-1] else "") for place in kept
        )
        removed, changed = removed + (len(parts) + 1) // 2 - len(kept), changed + 1
        wanted.append(new if normal(new) else ...)
        lost += len(text.encode()) - (len(new.encode()) if normal(new) else 0)
    return wanted, (
        len(texts),
        changed,
        sum(new is ... for new in wanted),
        len(gone),
        removed,
        lost,
    )


def wanted_pieces(texts, unit, most):
    """Return (first text, documents, occurrences, bytes) of each piece that goes."""
    collected = {}
    for number, text in enumerate(texts):
        for piece in cut(text, unit)[::2] if text else ():
            collected.setdefault(normal(piece), []).append((number, piece))
    return [
        (
            part[0][1].strip(),
            len({row for row, _ in part}),
            len(part),
            sum(len(piece.encode()) for _, piece in part),
        )
        for key, part in collected.items()
        if key and len({row for row, _ in part}) > most
    ]


def pieces_of(found):
    return found.pieces.to_arrow().to_pydict().values()


FORMS = ["jsonl", "csv", "parquet", "dictionary", "table", "polars", "folder", "counted"]


@pytest.mark.parametrize(("form", "unit"), crossed(FORMS, ["paragraph", "line"]))
def test_against_a_plain_model(tmp_path, set_limits, form, unit):
    set_limits(boilerplate_hashes=40, line_bytes=1 << 10, parquet_batch_bytes=1 << 10)
    for seed in range(4):
        rng = random.Random(f"{form}{unit}{seed}")
        texts = [drawn(rng, unit, number) for number in range(120)]
        if form in ("csv", "folder"):
            texts = [text or "" for text in texts]
        most = rng.choice([1, 3, 8])
        wanted, counts = model(texts, unit, most)
        left = [(number, text) for number, text in enumerate(wanted) if text is not ...]
        assert counts[1] > 10
        folder = tmp_path / str(seed)
        folder.mkdir()
        how = {"unit": unit, "more_than": most, "text": form == "folder" or "text"}
        result, rows = CHECKS[form](folder, texts, how)
        assert result[:-2] == counts
        assert sorted(zip(*pieces_of(result), strict=True)) == sorted(
            wanted_pieces(texts, unit, most)
        )
        assert result.pieces.documents.tolist() == sorted(
            result.pieces.documents.tolist(), reverse=True
        )
        if rows is not None:
            assert rows == left


def lines_of(folder, texts, how):
    """Other values, the order of fields and white space stay, byte for byte.

    An escape stays one.
    """
    raw = []
    for number, text in enumerate(texts):
        written = json.dumps(text, ensure_ascii=bool(number % 2))
        fields = [f'"n":{number}', '"f": 1.50e+01', f'"text" :  {written}', '"t": {"text": "x"}']
        random.Random(number).shuffle(fields)
        raw.append(" {" + " , ".join(fields) + " } ")
    (folder / "a.jsonl").write_bytes("".join(line + "\n" for line in raw).encode())
    result = fpstore.remove_boilerplate(folder / "a.jsonl", folder / "b.jsonl", **how)
    rows = []
    for line in (folder / "b.jsonl").read_bytes().decode().split("\n")[:-1]:
        fields = json.loads(line)
        number, old = (
            fields["n"],
            json.dumps(texts[fields["n"]], ensure_ascii=bool(fields["n"] % 2)),
        )
        assert line == raw[number].replace(
            old, json.dumps(fields["text"], ensure_ascii=old.isascii())
        )
        rows.append((number, fields["text"]))
    return result, rows


def csv_of(folder, texts, how):
    with (folder / "a.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\r\n").writerows(
            [["n", "text", "z"], *([n, text, '",\n'] for n, text in enumerate(texts))]
        )
    result = fpstore.remove_boilerplate(folder / "a.csv", folder / "b.csv", **how)
    data = (folder / "b.csv").read_bytes().decode()
    rows = list(csv.reader(io.StringIO(data, newline="")))
    assert rows[0] == ["n", "text", "z"]
    assert {row[2] for row in rows[1:]} <= {'",\n'}
    assert data.count('""",\n"\r\n') == len(rows) - 1
    return result, [(int(row[0]), row[1]) for row in rows[1:]]


def parquet_of(folder, texts, how, dictionary=False):
    column = pa.array(texts, pa.string())
    table = pa.table(
        {
            "n": range(len(texts)),
            "text": column.dictionary_encode() if dictionary else column,
            "l": [[1, None]] * len(texts),
        }
    )
    pq.write_table(table, folder / "a.parquet", row_group_size=50, compression="zstd")
    result = fpstore.remove_boilerplate(folder / "a.parquet", folder / "b.parquet", **how)
    made = pq.read_table(folder / "b.parquet")
    assert made.schema.equals(table.schema.set(1, pa.field("text", pa.string())))
    assert made["l"].to_pylist() == [[1, None]] * made.num_rows
    return result, list(zip(made["n"].to_pylist(), made["text"].to_pylist(), strict=True))


def table_of(folder, texts, how, given=pa.table):
    result = fpstore.remove_boilerplate(
        given({"n": range(len(texts)), "text": texts}), folder / "b.parquet", **how
    )
    assert result.table.equals(pq.read_table(folder / "b.parquet"))
    return result._replace(table=None), list(
        zip(result.table["n"].to_pylist(), result.table["text"].to_pylist(), strict=True)
    )


def folder_of(folder, texts, how):
    """Files that stay are copied; a compressed one that changes is not compressed."""
    for number, text in enumerate(texts):
        data = text.encode()
        (folder / "in").mkdir(exist_ok=True)
        (folder / "in" / f"{number:03}.txt{'.gz' if number % 9 == 0 else ''}").write_bytes(
            gzip.compress(data) if number % 9 == 0 else data
        )
    result = fpstore.remove_boilerplate(folder / "in", folder / "out", **how)
    rows = []
    for path in sorted((folder / "out").iterdir()):
        packed = path.suffix == ".gz"
        assert not packed or path.read_bytes() == (folder / "in" / path.name).read_bytes()
        rows.append(
            (
                int(path.name[:3]),
                (gzip.decompress(path.read_bytes()) if packed else path.read_bytes()).decode(),
            )
        )
    return result, rows


def counted(folder, texts, how):
    pq.write_table(pa.table({"text": texts}), folder / "a.parquet")
    return fpstore.remove_boilerplate(folder / "a.parquet", **how), None


CHECKS = {
    "jsonl": lines_of,
    "csv": csv_of,
    "parquet": parquet_of,
    "folder": folder_of,
    "counted": counted,
    "table": table_of,
    "dictionary": lambda *given: parquet_of(*given, dictionary=True),
    "polars": lambda *given: table_of(*given, given=pl.DataFrame),
}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_folder_of_files(tmp_path, suffix, threads):
    texts = [
        f"Story {n}\n\nAll rights reserved." if n % 3 else "all RIGHTS reserved." for n in range(30)
    ]
    (tmp_path / "in").mkdir()
    for start in range(0, 30, 10):
        path = tmp_path / "in" / f"{start}.{suffix}"
        if suffix == "jsonl":
            path.write_text(json_lines({"text": text} for text in texts[start : start + 10]))
        else:
            pq.write_table(pa.table({"text": texts[start : start + 10]}), path)
    result = fpstore.remove_boilerplate(
        tmp_path / "in", tmp_path / "out", text="text", threads=threads
    )
    assert result[:5] == (30, 30, 10, 1, 30)
    for start in range(0, 30, 10):
        path = tmp_path / "out" / f"{start}.{suffix}"
        made = (
            pq.read_table(path).to_pylist()
            if suffix == "parquet"
            else list(map(json.loads, path.read_text().splitlines()))
        )
        assert made == [{"text": f"Story {n}"} for n in range(start, start + 10) if n % 3]


def test_the_last_of_equal_fields_is_changed(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(
        "".join(
            f'{{"text": "Notice", "text": "Story {n}\\n\\nNotice", "text2": "Notice"}}\n'
            for n in range(4)
        )
    )
    fpstore.remove_boilerplate(path, tmp_path / "b.jsonl", text="text", more_than=3)
    assert (tmp_path / "b.jsonl").read_text() == path.read_text().replace("\\n\\nNotice", "")


def test_counts_are_merged(set_limits):
    counts, model, rng = boilerplate.PieceCounts(), {}, np.random.default_rng(1)
    set_limits(boilerplate_hashes=100)
    for _ in range(60):
        hashes = np.unique(rng.integers(0, 400, rng.integers(0, 50)).astype(np.uint64))
        counts.add(hashes)
        for hash_value in hashes.tolist():
            model[hash_value] = model.get(hash_value, 0) + 1
    for most in (0, 1, 3, 7):
        assert counts.more_frequent_than(most).tolist() == sorted(
            hash_value for hash_value, count in model.items() if count > most
        )


def test_what_is_refused(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\n{"text": "b"}\n')
    for how, message in (
        ({"text": "none"}, "no row has the field 'none'"),
        ({"text": ["a", "b"]}, "text must be the name of one column of texts"),
        ({"text": "text", "unit": "document"}, "unit must be one of"),
        ({"text": "text", "more_than": 0}, "more_than must be"),
        ({"text": "text", "least_chars": -1}, "least_chars must be"),
        ({"text": "text", "count": "rows"}, "count must be one of"),
        ({"text": "text", "keep_first": "yes"}, "keep_first must be True or False"),
        ({"text": "text", "fold_digits": None}, "fold_digits must be True or False"),
    ):
        with pytest.raises(InputError, match=message):
            fpstore.remove_boilerplate(path, tmp_path / "b.jsonl", **how)
    with pytest.raises(InputError, match="the output has the format of the input"):
        fpstore.remove_boilerplate(path, tmp_path / "b.parquet", text="text")
    (tmp_path / "b.jsonl").write_text("mine")
    with pytest.raises(StoreExistsError, match="exists"):
        fpstore.remove_boilerplate(path, tmp_path / "b.jsonl", text="text")
    many = tmp_path / "many.jsonl"
    many.write_text('{"text": "a\\n\\nb"}\n' * 20)

    def changes(phase, done, total):
        if phase == "copying":
            many.write_text('{"text": "a b"}\n' * 20)

    with pytest.raises(InputError, match="changed while it was read"):
        fpstore.remove_boilerplate(many, tmp_path / "c.jsonl", text="text", progress=changes)
    assert sorted(item.name for item in tmp_path.iterdir()) == [
        "a.jsonl",
        "b.jsonl",
        "many.jsonl",
    ]


def test_short_pieces_stay():
    """Characters are counted, and not bytes; white space is none."""
    table = pa.table({"text": ["éß中  \u00a0 x\n\nabcdefghij\n\nb"] * 3})
    for least, left in (
        (0, None),
        (1, None),
        (2, "b"),
        (4, "b"),
        (5, "éß中  \u00a0 x\n\nb"),
        (11, table["text"][0].as_py()),
    ):
        result = fpstore.remove_boilerplate(table, text="text", more_than=2, least_chars=least)
        assert result.table["text"].to_pylist() == [left] * 3 * (left is not None)
        assert result.kept == len(result.table)


@pytest.mark.parametrize(("unit", "pattern"), [("paragraph", PARAGRAPH_END), ("line", LINE_END)])
def test_plain_texts_are_cut_as_others(unit, pattern):
    rng = random.Random(unit)
    pieces, cut = boilerplate.Pieces(unit), re.compile(f"({pattern})")
    for chars in ("a\n \t", "a\n\n\x00\x1f\x7f ", "a\n\r ", "a\n\v\f", "a\n\u2028 \u00a0"):
        for _ in range(300):
            text = "".join(rng.choices(chars, k=rng.randint(0, 12)))
            assert pieces.parts(text) == cut.split(text)


@pytest.mark.parametrize("unit", ["paragraph", "line"])
def test_first_occurrences_stay_and_occurrences_count(set_limits, unit):
    """Every combination of the three options is compared with a plain model."""
    set_limits(boilerplate_hashes=20)
    alike = ["Page 9", "page 10", "Page ٣ of 12", "p4ge", "\xa92001", "\xa9 2012", "Notice"]
    for seed in range(48):
        rng = random.Random(seed)
        by_occurrence, keep_first, fold_digits = (bool(seed >> bit & 1) for bit in range(3))
        most, least = rng.choice([1, 2, 4]), rng.choice([0, 5])
        gap = "\n\n" if unit == "paragraph" else "\n"
        rows = [
            [rng.choice([*alike, f"own {number}"]) for _ in range(rng.randint(0, 5))]
            for number in range(12)
        ]
        places = {}
        for number, pieces in enumerate(rows):
            for place, piece in enumerate(pieces):
                key = normal(piece)
                if len(key) >= least:
                    key = regex.sub(r"\d+", "0", key) if fold_digits else key
                    places.setdefault(key, []).append((number, place))
        goes, removed = set(), []
        for where in places.values():
            documents = len({number for number, _ in where})
            if (len(where) if by_occurrence else documents) > most:
                where = where[keep_first:]
                goes |= set(where)
                texts = [rows[number][place] for number, place in where]
                size = sum(len(text.encode()) for text in texts)
                removed.append((texts[0], documents, len(where), size))
        wanted = [
            gap.join(piece for place, piece in enumerate(pieces) if (number, place) not in goes)
            for number, pieces in enumerate(rows)
        ]
        result = fpstore.remove_boilerplate(
            pa.table({"text": [gap.join(pieces) for pieces in rows]}),
            text="text",
            unit=unit,
            more_than=most,
            least_chars=least,
            count="occurrences" if by_occurrence else "documents",
            keep_first=keep_first,
            fold_digits=fold_digits,
        )
        left = [text for text, pieces in zip(wanted, rows, strict=True) if text or not pieces]
        assert result.table["text"].to_pylist() == left
        assert sorted(zip(*pieces_of(result), strict=True)) == sorted(removed)
        assert result.removed_pieces == len(goes)
        assert result.changed == len({number for number, _ in goes})


def test_a_list_of_what_is_removed(folder: Path) -> None:
    """The list has commas and line breaks, and appears with the output or not at all."""
    Path("in").mkdir()
    for name in "ab":
        Path(f"in/{name}.jsonl").write_text(
            '{"text": "Share,\\nthis\\n\\nEnd \\ud800 of it\\n\\nstory"}\n' * 7
        )
    Path("texts").mkdir()
    for number in range(14):
        Path(f"texts/{number}.txt").write_text("Share,\nthis\n\nEnd ? of it\n\nstory")
    rows = [
        [text, "14", "14", str(14 * size)]
        for text, size in (("Share,\nthis", 11), ("End ? of it", 13), ("story", 5))
    ]
    listing = ("--removed", "list.csv", "--force")
    for source, given in (("in", ["--text-field", "text"]), ("texts", ["--text"])):
        fine("boilerplate", source, "out", *given, "--unit", "paragraph", *listing)
        header, *listed = csv.reader(io.StringIO(Path("list.csv").read_text()))
        assert header == ["text", "documents", "occurrences", "bytes"]
        wanted = (
            rows if source == "in" else [*rows[:1], ["End ? of it", "14", "14", "154"], *rows[2:]]
        )
        assert sorted(listed) == sorted(wanted)
        assert not any(path.read_bytes() for path in Path("out").iterdir())
        Path("list.csv").unlink()
        shutil.rmtree("out")
    for name, code, message in (
        ("list.tsv", 2, "texts may have line breaks"),
        ("out/x.csv", 1, "is in the output"),
        ("x.npy", 2, "fingerprints"),
        ("x.gz", 2, "known extensions: .tsv, .csv, .txt, .jsonl, .parquet"),
    ):
        assert message in failure(
            "boilerplate", "in", "out", *TEXT_FIELD, "--unit", "line", "--removed", name, code=code
        )
    assert not Path("out").exists()
    message = "the output has the format of the input: name a .jsonl file or a new folder, whose "
    assert message + "name ends" in failure(
        "boilerplate", "in", "x.parquet", "--text-field", "text", "--unit", "line"
    )


@pytest.mark.full
def test_killed_between_the_list_and_the_rows(tmp_path, monkeypatch):
    """The list appears first: when the rows are there, the list is complete."""
    monkeypatch.chdir(tmp_path)
    Path("a.jsonl").write_text("".join(f'{{"text": "Story {n}\\n\\nNotice"}}\n' for n in range(20)))

    def asked(name):
        words = ["boilerplate", "a.jsonl", f"{name}.jsonl", *TEXT_FIELD, "--unit", "line"]
        return [*words, "--removed", f"{name}.csv", "--quiet"]

    assert in_another(asked("whole")) == 2
    for call, there in ((1, (False, False)), (2, (True, False))):
        assert in_another(asked("killed"), call) is None
        assert (Path("killed.csv").exists(), Path("killed.jsonl").exists()) == there
        fine(*asked("killed"), "--force")
        for suffix in ("csv", "jsonl"):
            assert Path(f"killed.{suffix}").read_bytes() == Path(f"whole.{suffix}").read_bytes()
            Path(f"killed.{suffix}").unlink()


def test_command_line(folder: Path) -> None:
    texts = [f"Story {n}.\n\n{'Next story' if n < 12 else 'The end'}" for n in range(14)]
    Path("s.jsonl").write_text(json_lines({"text": text} for text in [*texts, "NEXT story"]))
    out = fine(
        "boilerplate", "s.jsonl", "clean.jsonl", "--text-field", "text", "--unit", "paragraph"
    )
    assert re.search(r"changed +13  1 of them dropped: nothing was left\n", out)
    assert re.search(r"removed +13  1 different paragraph, 154 B\n", out)
    rows = list(map(json.loads, Path("clean.jsonl").read_text().splitlines()))
    assert rows == [{"text": text.removesuffix("\n\nNext story")} for text in texts]
    by_line = (*TEXT_FIELD, "--unit", "line", "--more-than", 1)
    counts = json.loads(fine("boilerplate", "s.jsonl", "c.jsonl", *by_line, "--json"))
    assert counts == {
        "documents": 15,
        "changed": 15,
        "dropped": 1,
        "repeated": 2,
        "removed_pieces": 15,
        "removed_bytes": 158,
        "kept": 14,
        "unit": "line",
        "more_than": 1,
    }
    Path("y.jsonl").write_text(json_lines({"text": f"Of 200{n}\nmore {n}"} for n in range(3)))
    out = fine(
        "boilerplate", "y.jsonl", "z.jsonl", *by_line, *("--count", "occurrences"), "--keep-first"
    )
    assert out.startswith("Lines of more than 1 occurrence\n")
    assert Path("z.jsonl").read_bytes() == Path("y.jsonl").read_bytes()
    fine("boilerplate", "y.jsonl", "z.jsonl", *by_line, "--keep-first", "--fold-digits", "--force")
    rows = list(map(json.loads, Path("z.jsonl").read_text().splitlines()))
    assert rows == [{"text": "Of 2000\nmore 0"}]
    for options, message in (
        (["--radius", 3], "No such option"),
        (["--unit", "document"], "is not one of 'paragraph', 'line'"),
        (["--text-field", "text", "--text"], "give one of them"),
        ([], "name the column of texts with --text-field"),
    ):
        assert message in failure("boilerplate", "s.jsonl", "d.jsonl", *options, code=2)
    assert "No such option" in failure("dedup", "s.jsonl", "d.jsonl", "--unit", "line", code=2)


def test_text_files_with_bytes_of_no_encoding_are_refused(tmp_path):
    (tmp_path / "t").mkdir()
    for n in range(20):
        (tmp_path / "t" / f"{n}.txt").write_bytes(b"Caf\xe9 %d\r\n\r\nAll rights" % n)
    with pytest.raises(InputError, match="has bytes that are not UTF-8, and would be changed"):
        fpstore.remove_boilerplate(tmp_path / "t", tmp_path / "o", text=True)
    assert not (tmp_path / "o").exists()
    fpstore.remove_boilerplate(tmp_path / "t", tmp_path / "o", text=True, encoding="latin-1")
    assert (tmp_path / "o" / "3.txt").read_bytes().decode() == "Caf\u00e9 3"
