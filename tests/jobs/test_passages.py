"""Passages that occur before are cut, and all else stays.

A suffix automaton reads the texts in order, and says which words lie in a run that occurs before.
"""

import csv
import io
import itertools
import json
import random
import re
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from commandline import TEXT_FIELD, failure, fine, run
from inputs import json_lines
from speeds import crossed

import fpstore
from fpstore import _kernel
from fpstore.building import external_sort
from fpstore.errors import InputError, StoreExistsError
from fpstore.jobs.passage_windows import join_windows

BLANKS = [" ", "  ", "\n", "\n\n", "\t", "\u00a0", "\u2003", "\u3000", "\u2028", "\x1c"]


class SuffixAutomaton:
    """The states of all substrings of the units that were read (A. Blumer et al., 1985)."""

    def __init__(self):
        self.length, self.link, self.next = [0], [-1], [{}]
        self.last = 0

    def read(self, unit):
        """Read a unit, and return the length of the longest run behind it that occurs before."""
        self.last = self._extend(self.last, unit)
        return self.length[self.link[self.last]]

    def _state(self, length, link, following):
        self.length.append(length)
        self.link.append(link)
        self.next.append(following)
        return len(self.length) - 1

    def _extend(self, last, unit):
        new, state = self._state(self.length[last] + 1, 0, {}), last
        while state >= 0 and unit not in self.next[state]:
            self.next[state][unit] = new
            state = self.link[state]
        if state >= 0:
            before = self.next[state][unit]
            if self.length[before] == self.length[state] + 1:
                self.link[new] = before
            else:
                copy = self._state(
                    self.length[state] + 1, self.link[before], dict(self.next[before])
                )
                while state >= 0 and self.next[state].get(unit) == before:
                    self.next[state][unit] = copy
                    state = self.link[state]
                self.link[new] = self.link[before] = copy
        return new


def windows(texts, size):
    """Return the places of each window: the text, and the first unit."""
    places = {}
    for number, text in enumerate(texts):
        for start in range(len(text) - size + 1):
            places.setdefault(tuple(text[start : start + size]), []).append((number, start))
    return places


def cut_units(texts, size, order=None):
    """Return which units go; ``order`` ranks texts."""
    automaton, goes = SuffixAutomaton(), [[False] * len(text) for text in texts]
    for number in sorted(range(len(texts)), key=order.__getitem__ if order else None):
        for place, unit in enumerate(texts[number]):
            length = automaton.read(unit)
            if length >= size:
                goes[number][place + 1 - length : place + 1] = [True] * length
        automaton.read(("end", number))
    return goes


def drawn(rng, most=40):
    """Return words of a small alphabet, with copies of earlier texts among them."""
    texts = []
    for _ in range(rng.randint(1, 9)):
        letters = ["a", "b", "c", "ä", "日本", "I\u0301"][: rng.randint(1, 6)]
        text = [rng.choice(letters) for _ in range(rng.randint(0, most))]
        if texts and rng.random() < 0.6:
            other = rng.choice(texts)
            start = rng.randint(0, len(other))
            at = rng.randint(0, len(text))
            text[at:at] = other[start : start + rng.randint(0, most)]
        texts.append(text)
    return texts


def joined(rng, words):
    """Return words as a text, with white space of many kinds between them."""
    return "".join(
        [
            rng.choice(["", *BLANKS]),
            *(part for word in words for part in (word, rng.choice(BLANKS))),
        ]
    )


def removed_rows(result, *columns):
    return list(zip(*map(result.removed.to_arrow().to_pydict().get, columns), strict=True))


def runs(flags):
    """Return the spans of flags that are set."""
    edges = [0, *flags, 0]
    return [
        (start, next(end for end in range(start, len(edges)) if not edges[end + 1]))
        for start in range(len(flags))
        if edges[start + 1] and not edges[start]
    ]


@pytest.mark.full
@pytest.mark.parametrize("keep", ["first", "longest", "highest"])
@pytest.mark.parametrize("spilled", [False, True])
def test_against_a_suffix_automaton(set_limits, monkeypatch, keep, spilled):
    runs_of_rows = []
    if spilled:  # sorted runs of a few rows
        append = external_sort.Runs.append
        monkeypatch.setattr(
            external_sort.Runs, "append", lambda *of: runs_of_rows.append(append(*of))
        )
        set_limits(pair_bytes=1 << 21, sample_step=2, copy_rows=8, parquet_batch_bytes=1 << 9)
        set_limits(passage_places=5)
    for seed in range(8 if spilled else 40):
        rng = random.Random(f"{seed}{keep}")
        texts, size = drawn(rng, 12 if spilled else 40), rng.randint(1, 9)
        scores = [rng.choice([None, 1, 2.5]) for _ in texts]
        order = {
            "first": None,
            "longest": [-len(text) for text in texts],
            "highest": [-(score or 0) for score in scores],
        }[keep]
        plain = [joined(rng, text) for text in texts]
        result = fpstore.remove_passages(
            pa.table({"text": plain, "score": pa.array(scores, pa.float64())}),
            text="text",
            words=size,
            keep=keep,
            score="score" if keep == "highest" else None,
            memory="64MiB",
            threads=rng.choice([1, 2]),
        )
        cut = cut_units(texts, size, order)
        left = [
            [word for word, goes in zip(text, flags, strict=True) if not goes]
            for text, flags in zip(texts, cut, strict=True)
        ]
        kept = [words for words, text in zip(left, texts, strict=True) if words or not text]
        assert [text.split() for text in result.table["text"].to_pylist()] == kept
        assert result.dropped == len(texts) - len(kept)
        assert result.changed == sum(map(any, cut))
        assert result.short == sum(len(text) < size for text in texts)
        assert result.longest == max(map(len, texts))
        places, rank = windows(texts, size), order or range(len(texts))
        firsts = {min(where, key=lambda at: (rank[at[0]], at)) for where in places.values()}
        expected = []
        for number, (text, flags) in enumerate(zip(texts, cut, strict=True)):
            for start, end in runs(flags):
                counts = [
                    len(places[tuple(text[at : at + size])])
                    for at in range(start, end - size + 1)
                    if (number, at) not in firsts
                ]
                expected.append((number, text[start:end], end - start, max(counts)))
        rows = [
            (row, plain[row][start:end].split(), words, occurrences)
            for row, start, end, words, occurrences in removed_rows(
                result, "row", "start", "end", "words", "occurrences"
            )
        ]
        assert rows == expected
    assert len(runs_of_rows) > 20 or not spilled


def test_a_notice_goes_whole_beside_frequent_words():
    """Also where runs of its words and a frequent neighbour occur only once before."""
    rng = random.Random(5)
    notice = " ".join(f"notice{number}" for number in range(60))

    def neighbours():
        return " ".join(rng.choices(["the", "of", "and", "a"], k=4))

    texts = [f"{n} own {neighbours()} {notice} {neighbours()} words {n}" for n in range(400)]
    result = fpstore.remove_passages(pa.table({"text": texts}), text="text")
    assert result.table["text"][0].as_py() == texts[0]
    left = result.table["text"].to_pylist()[1:]
    assert not any("notice" in text for text in left)
    assert [(text.split()[0], text.split()[-1]) for text in left] == [
        (str(n), str(n)) for n in range(1, 400)
    ]
    assert len(result.removed) == 399
    assert result.removed.occurrences.tolist() == [400] * 399


def test_windows_of_many_parts_are_joined():
    """Also a run that goes on in later parts, and runs that only an end of a row separates."""
    rng = random.Random(2)
    for _ in range(200):
        size, rows = rng.randint(1, 4), [rng.randint(0, 9) for _ in range(rng.randint(1, 5))]
        lims = np.cumsum([0, *rows])
        places = [
            place
            for start, end in itertools.pairwise(lims.tolist())
            for place in range(start, end - size + 1)
            if rng.random() < 0.6
        ]
        frequencies = [rng.randint(2, 9) for _ in places]
        cuts = sorted(rng.randint(0, len(places)) for _ in range(rng.randint(0, 3)))
        parts = [
            (np.array(places[a:b], np.uint64), np.array(frequencies[a:b], np.uint32))
            for a, b in itertools.pairwise([0, *cuts, len(places)])
        ]
        joined_runs = join_windows(iter(parts), lims, size)
        wanted = []
        for row, (first, behind) in enumerate(itertools.pairwise(lims.tolist())):
            flags = [
                any(place <= at < place + size for place in places) for at in range(first, behind)
            ]
            wanted += [
                (
                    row,
                    start + first,
                    end + first,
                    max(
                        count
                        for place, count in zip(places, frequencies, strict=True)
                        if start <= place - first < end
                    ),
                )
                for start, end in runs(flags)
            ]
        row_numbers = np.repeat(range(len(rows)), np.diff(joined_runs.lims))
        assert list(zip(row_numbers, *joined_runs[1:], strict=True)) == wanted


def test_scores_beside_null_texts():
    """A row without a text has no part; the others keep their scores and ids."""
    texts, scores = [None, COPIED, None, COPIED, COPIED, None], [9, 1, None, 3, 3, 7]
    table = pa.table({"text": texts, "score": scores, "url": list("abcdef")})
    result = fpstore.remove_passages(
        table, text="text", words=5, keep="highest", score="score", id="url"
    )
    assert result.table["url"].to_pylist() == ["a", "c", "d", "f"]
    assert removed_rows(result, "row", "id") == [(1, "b"), (4, "e")]


def test_words_that_are_not_repeated_take_little_disk():
    """One row of 12 bytes for some 13 words, and no row for a window."""
    table = pa.table({"text": [" ".join(f"w{number}" for number in range(20_000))]})
    result = fpstore.remove_passages(table, text="text")
    assert 12 * 20_000 / 14 < result.temporary_bytes < 12 * 20_000 / 12
    assert (result.changed, result.longest) == (0, 20_000)


def test_notices_come_once(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.bin").write_bytes(b"\0")
    for name in "bc":
        (tmp_path / "in" / f"{name}.txt").write_text(COPIED)
    done = run("passages", tmp_path / "in", tmp_path / "out", "--text", "--words", 5)
    assert done.stderr.count("left out") == 1
    assert "1 file left out, binary, not text" in done.stderr
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["b.txt"]


def test_every_window_has_a_gram_and_equal_windows_have_equal_ones():
    for seed, in_words in itertools.product(range(20), (True, False)):
        rng = random.Random(seed)
        texts = [
            [rng.choice("abc"[: rng.randint(1, 3)]) for _ in range(rng.randint(0, 60))]
            for _ in range(rng.randint(1, 6))
        ]
        size = rng.randint(1, 12)
        gram = rng.randint(1, size)
        encoded = [("  ".join if in_words else "".join)(text).encode() for text in texts]
        lims = np.cumsum([0, *map(len, encoded)]).astype(np.uint64)
        hashes, places, units = _kernel.choose_grams(b"".join(encoded), lims, in_words, size, gram)
        assert units.tolist() == list(map(len, texts))
        starts = np.cumsum([0, *map(len, texts)])
        chosen = dict(zip(places.tolist(), hashes.tolist(), strict=True))
        contents = {}
        for window, where in windows(texts, size).items():
            offsets = []
            for number, start in where:
                first = int(starts[number]) + start
                offsets.append({at - first for at in chosen if first <= at <= first + size - gram})
            assert set.intersection(*offsets), window
        for place, value in chosen.items():
            number = int(np.searchsorted(starts, place, side="right")) - 1
            at = place - int(starts[number])
            content = tuple(texts[number][at : at + gram])
            assert len(content) == gram
            assert contents.setdefault(content, value) == value
        assert len(set(contents.values())) == len(contents)
        keys, around, _ = _kernel.window_keys(b"".join(encoded), lims, in_words, size, gram, places)
        assert around.tolist() == [
            int(starts[number]) + start
            for number, text in enumerate(texts)
            for start in range(len(text) - size + 1)
        ]
        groups = {}
        for place, key in zip(around.tolist(), map(tuple, keys.tolist()), strict=True):
            groups.setdefault(key, set()).add(place)
        assert sorted(map(sorted, groups.values())) == sorted(
            sorted(int(starts[number]) + start for number, start in where)
            for where in windows(texts, size).values()
        )


def test_words_are_those_of_python():
    """White space is that of str.split, whatever bytes it has."""
    points = [point for point in range(sys.maxunicode + 1) if not 0xD800 <= point < 0xE000]
    text = "x".join(map(chr, points))
    rng = random.Random(1)
    texts = [
        text,
        "".join(chr(rng.choice(points[: rng.choice([300, 13000])])) for _ in range(9999)),
    ]
    for case in [*texts, "", " ", "\u3000", "a", "\xa0a", "a\u2028", "\udc80 \ud800"]:
        data = case.encode("utf-8", "surrogatepass")
        words = [word.encode("utf-8", "surrogatepass") for word in case.split()]
        numbers = np.arange(len(words) + 2, dtype=np.uint64)
        starts, ends, count = _kernel.word_bounds(data, numbers)
        assert count == len(words)
        assert [data[a:b] for a, b in zip(starts[:-2], ends[:-2], strict=True)] == words
        assert starts[-2:].tolist() == [len(data)] * 2


def test_windows_of_a_long_text_are_made_in_many_calls(set_limits):
    """Windows that two calls have in common are sorted once."""
    rng, results = random.Random(6), []
    table = pa.table(
        {"text": [" ".join(rng.choices("ab", k=300)), " ".join(rng.choices("ab", k=9))]}
    )
    for places in (1 << 20, 7, 1):
        set_limits(passage_places=places)
        result = fpstore.remove_passages(table, text="text", words=8)
        results.append((result.table["text"].to_pylist(), result.temporary_bytes))
    assert results[1:] == results[:1] * 2
    assert results[0][0] != table["text"].to_pylist()


def test_bytes_cut_whole_characters():
    for seed in range(60):
        rng = random.Random(seed)
        texts = [
            "".join(rng.choice("aä日𝄞 \n"[: rng.randint(2, 6)]) for _ in range(rng.randint(0, 30)))
            for _ in range(rng.randint(1, 6))
        ]
        size = rng.randint(1, 15)
        data = [text.encode() for text in texts]
        result = fpstore.remove_passages(
            pa.table({"text": texts}), text="text", bytes=size, threads=1
        )
        wanted = []
        for text, flags in zip(texts, cut_units(data, size), strict=True):
            at, left = 0, ""
            for character in text:
                end = at + len(character.encode())
                left += "" if all(flags[at:end]) else character
                at = end
            if left.strip() or left == text:
                wanted.append(left)
        assert result.table["text"].to_pylist() == wanted


def rows_of(path):
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    if path.suffix == ".csv":
        return list(csv.DictReader(io.StringIO(path.read_bytes().decode(), newline="")))
    return pq.read_table(path).to_pylist()


COPIED = "one two three four five"
PLAIN = [
    f"alpha {COPIED} omega",
    f"Beta.\n\n{COPIED}\n\nGamma.",
    COPIED,
    "other",
    f"{COPIED} end\n",
]
CUT = [PLAIN[0], "Beta.\n\nGamma.", None, "other", "end\n"]
LEFT = [(number, text) for number, text in enumerate(CUT) if text is not None]


@pytest.mark.parametrize(
    ("form", "threads"), crossed(["jsonl", "csv", "parquet", "shards", "texts", "polars"], [1, 3])
)
def test_forms(tmp_path, form, threads):
    how = {"text": "text", "words": 5, "threads": threads}
    rows = [{"n": str(number), "text": text} for number, text in enumerate(PLAIN)]
    if form == "polars":
        table = fpstore.remove_passages(pl.DataFrame(rows), **how).table
        assert (
            list(zip(map(int, table["n"].to_pylist()), table["text"].to_pylist(), strict=True))
            == LEFT
        )
        return
    source, output = tmp_path / "in", tmp_path / "out"
    if form == "texts":
        source.mkdir()
        for number, text in enumerate(PLAIN):
            (source / f"{number}.txt").write_text(text)
        result = fpstore.remove_passages(source, output, **{**how, "text": True})
        assert [(int(p.stem), p.read_text()) for p in sorted(output.iterdir())] == LEFT
        assert removed_rows(result, "id")[0] == (f"{source}/1.txt",)
        return
    if form == "shards":
        source.mkdir()
        paths = [source / f"{number}.jsonl" for number in range(len(rows))]
        for path, row in zip(paths, rows, strict=True):
            path.write_text(json_lines([row]))
        fpstore.remove_passages(source, output, **how)
        made = [row for path in paths for row in rows_of(output / path.name)]
    else:
        source, output = source.with_suffix(f".{form}"), output.with_suffix(f".{form}")
        if form == "jsonl":
            source.write_text(json_lines(rows))
        elif form == "csv":
            with source.open("w", newline="") as file:
                csv.writer(file).writerows([["n", "text"], *(row.values() for row in rows)])
        else:
            pq.write_table(pa.Table.from_pylist(rows), source)
        result = fpstore.remove_passages(source, output, id="n", **how)
        assert (result.changed, result.dropped, result.kept, result.removed_passages) == (
            3,
            1,
            4,
            3,
        )
        lost = sum(len(text) for text in PLAIN) - sum(len(text) for _, text in LEFT)
        assert result.removed_bytes == lost
        assert removed_rows(result, "id", "words", "occurrences", "text") == [
            (number, 5, 4, COPIED) for number in "124"
        ]
        made = rows_of(output)
    assert [(int(row["n"]), row["text"]) for row in made] == LEFT


def test_the_white_space_with_more_lines_stays():
    def cut(text):
        table = pa.table({"text": [COPIED, text]})
        return fpstore.remove_passages(table, text="text", words=5).table["text"].to_pylist()[1:]

    for left, right, between in (
        (" ", "\n", "\n"),
        ("\n\n", "\n", "\n\n"),
        ("  ", " ", "  "),
        ("\r\n", "\n\n", "\n\n"),
        ("\r\n\t", "\n", "\r\n\t"),
        ("\u2029", " ", "\u2029"),
    ):
        assert cut(f"a{left}{COPIED}{right}b") == [f"a{between}b"]
        assert cut(f"{left}{COPIED}{right}b") == [f"{left}b"]
        assert cut(f"a{left}{COPIED}{right}") == [f"a{right}"]
        assert cut(f"{left}{COPIED}{right}") == []


@pytest.mark.full
def test_whole_lines():
    """A line goes if all of its words go; blank lines within go, too."""
    rng = random.Random(4)
    changed = 0
    for _ in range(150):
        texts = [
            "".join(
                rng.choice("ab") + rng.choice([" ", " ", "\n", "\r\n", "\n  \n", "\n    "])
                for _ in range(rng.randint(1, 25))
            )
            for _ in range(rng.randint(1, 5))
        ]
        size = rng.randint(1, 6)
        result = fpstore.remove_passages(
            pa.table({"text": texts}), text="text", words=size, whole_lines=True, threads=1
        )
        wanted, removed = [], 0
        for text, flags in zip(texts, cut_units(list(map(str.split, texts)), size), strict=True):
            rest, lines = iter(flags), text.splitlines(keepends=True)
            states = [[next(rest) for _ in line.split()] for line in lines]
            kinds = ["blank" if not s else "goes" if all(s) else "stays" for s in states]
            spans = runs(flags)
            numbers, at = [], 0  # of the words of each line
            for state in states:
                numbers.append(range(at, at + len(state)))
                at += len(state)
            left = ""
            for place, (line, kind) in enumerate(zip(lines, kinds, strict=True)):
                before = next((k for k in kinds[place::-1] if k != "blank"), "stays")
                behind = next((k for k in kinds[place:] if k != "blank"), "stays")
                within = before == behind == "goes"
                left += "" if kind == "goes" or (kind == "blank" and within) else line
            removed += sum(
                any(
                    set(numbers[p]) <= set(range(*span)) and k == "goes"
                    for p, k in enumerate(kinds)
                )
                for span in spans
            )
            changed += left != text
            if left.strip():
                wanted.append(left)
        assert result.table["text"].to_pylist() == wanted
        assert len(result.removed) == removed == result.removed_passages
    assert changed > 50


def test_a_line_of_which_nothing_goes_stays_byte_for_byte(tmp_path):
    copy = "a b\nc d e f g"
    rows = [rf'{{"text": "x {copy!r}"}}'.replace("'", ""), r'{"text":"\u0061 b\nc d e f g h" }']
    (tmp_path / "a.jsonl").write_text("\n".join(rows) + "\n")
    result = fpstore.remove_passages(
        tmp_path / "a.jsonl", tmp_path / "b.jsonl", text="text", words=7, whole_lines=True
    )
    assert (result.changed, len(result.removed)) == (1, 1)
    assert (tmp_path / "b.jsonl").read_text().splitlines()[0] == rows[0]


def test_documents_above_a_share_go_whole():
    texts = ["a b c d", "a b c d e", "a b c d e f g h i", "x", None, "a b c d"]
    for above, left in (
        (0.79, [0, 2, 3, 4]),
        (0.8, [0, 1, 2, 3, 4]),
        (1.0, range(6)),
        (0, [0, 3, 4]),
    ):
        result = fpstore.remove_passages(
            pa.table({"n": range(6), "text": texts}), text="text", words=4, drop_above=above
        )
        assert result.table["n"].to_pylist() == list(left)
        assert result.table["text"].to_pylist() == [texts[number] for number in left]
        assert result.dropped == result.changed == 6 - len(left)
        assert removed_rows(result, "row") == [(n,) for n in range(6) if n not in left]


@pytest.mark.full
def test_threads_and_memory_give_the_same_bytes(tmp_path, set_limits):
    rng = random.Random(3)
    texts = [" ".join(text) for _ in range(8) for text in drawn(rng)]
    (tmp_path / "a.jsonl").write_text(json_lines({"text": text} for text in texts))
    set_limits(line_bytes=1 << 10)
    made = set()
    for threads, pair_bytes in ((1, 32), (3, 32), (2, 1 << 18)):
        set_limits(pair_bytes=pair_bytes, sample_step=4)
        out, listed = tmp_path / f"{threads}.jsonl", tmp_path / f"{threads}.csv"
        fine(
            *("passages", tmp_path / "a.jsonl", out, *TEXT_FIELD, "--words", 4, "--quiet"),
            *("--threads", threads, "--passages", listed, "--memory", "64MiB"),
        )
        made.add((out.read_bytes(), listed.read_bytes()))
    assert len(made) == 1
    assert len(next(iter(made))[1].splitlines()) > 20


def test_windows_longer_than_any_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.jsonl").write_text(json_lines({"text": text} for text in [COPIED, COPIED, ""]))
    for option, wanted in (
        (["--words", 6], "no text has 6 words, the longest has 5: lower --words"),
        (["--bytes", 99], "no text has 99 bytes, the longest has 23: lower --bytes"),
        ([], "no text has 50 words, the longest has 5: lower --words"),
    ):
        done = run("passages", "a.jsonl", "b.jsonl", *TEXT_FIELD, *option, "--force")
        assert (done.exit_code, done.stderr) == (0, f"fpstore: {wanted}\n")
        assert Path("b.jsonl").read_bytes() == Path("a.jsonl").read_bytes()
    assert fine("passages", "a.jsonl", "b.jsonl", *TEXT_FIELD, "--words", 5, "--force")
    assert rows_of(Path("b.jsonl")) == [{"text": COPIED}, {"text": ""}]


def test_a_list_without_an_output(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    rows = [{"text": text, "url": f"u{number}"} for number, text in enumerate(PLAIN)]
    Path("in/a.jsonl").write_text(json_lines(rows[:2]))
    Path("in/b.jsonl").write_text(json_lines(rows[2:]))
    listing = ("--words", 5, "--action", "list", "--passages", "list.csv")
    out = fine("passages", "in/a.jsonl", "in/b.jsonl", *TEXT_FIELD, "--id-field", "url", *listing)
    assert re.search(r"removed +3  ", out)
    assert re.search(r"kept +4  listed in list.csv; nothing is cut\n", out)
    assert sorted(path.name for path in Path().iterdir()) == ["in", "list.csv"]
    assert list(csv.reader(Path("list.csv").read_text().splitlines())) == [
        ["row", "id", "start", "end", "words", "occurrences", "text"],
        ["1", "u1", "7", "30", "5", "4", COPIED],
        ["2", "u2", "0", "23", "5", "4", COPIED],
        ["4", "u4", "0", "23", "5", "4", COPIED],
    ]
    counts = json.loads(fine("passages", "in", *TEXT_FIELD, *listing, "--force", "--json"))
    assert {**counts, "temporary_bytes": 0} == {
        "documents": 5,
        "short": 1,
        "longest": 7,
        "changed": 3,
        "dropped": 1,
        "removed_passages": 3,
        "removed_bytes": 72,
        "temporary_bytes": 0,
        "kept": 4,
        "words": 5,
        "keep": "first",
    }
    for arguments, message in (
        (["in", *TEXT_FIELD, "--action", "list"], "name one with --passages"),
        (["in", *TEXT_FIELD], "Missing argument 'OUTPUT'"),
        (["in", "out"], "name the column of texts with --text-field"),
        (["in", "out", *TEXT_FIELD, "--passages", "x.tsv"], "texts may have line breaks"),
        (["in", "out", *TEXT_FIELD, "--words", 5, "--bytes", 5], "--words or --bytes"),
        (["in", "out", *TEXT_FIELD, "--keep", "highest"], "--score-field"),
        (["in", "out", *TEXT_FIELD, "--drop-above", 0.5, "--whole-lines"], "--whole-lines"),
        (["in", "out", *TEXT_FIELD, "--words", 0], "--words"),
    ):
        assert message in failure("passages", *arguments, code=2)
    assert not Path("out").exists()


def test_what_is_refused(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json_lines({"text": text} for text in PLAIN))
    for how, message in (
        ({"text": "none"}, "no row has the field 'none'"),
        ({"text": ["a", "b"]}, "text must be the name of one column of texts"),
        ({"text": "text", "words": 0}, "words must be"),
        ({"text": "text", "bytes": 2**31}, "bytes must be"),
        ({"text": "text", "words": 5, "bytes": 5}, "words= or bytes="),
        ({"text": "text", "keep": "last"}, "keep must be one of"),
        ({"text": "text", "keep": "highest"}, "needs score="),
        ({"text": "text", "score": "n"}, "needs keep='highest'"),
        ({"text": "text", "id": ""}, "id must be the name of a column"),
        ({"text": True, "id": "n"}, "their ids are their paths"),
        ({"text": "text", "drop_above": 1.5}, "drop_above must be a number from 0 to 1"),
        ({"text": "text", "drop_above": 0.5, "whole_lines": True}, "cuts nothing"),
        ({"text": "text", "whole_lines": 1}, "whole_lines must be True or False"),
    ):
        with pytest.raises(InputError, match=re.escape(message)):
            fpstore.remove_passages(path, tmp_path / "b.jsonl", **how)
    (tmp_path / "b.jsonl").write_text("mine")
    with pytest.raises(StoreExistsError, match="exists"):
        fpstore.remove_passages(path, tmp_path / "b.jsonl", text="text")
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    with pytest.raises(InputError, match="no rows"):
        fpstore.remove_passages(empty, tmp_path / "c.jsonl", text="text")
    many = tmp_path / "many.jsonl"
    for phase in ("sorting", "copying"):
        many.write_text(json_lines({"text": COPIED} for _ in range(20)))

        def changes(name, done, total, phase=phase):
            if name == phase:
                many.write_text(json_lines({"text": f"{COPIED} and more"} for _ in range(20)))

        with pytest.raises(InputError, match="changed while it was read"):
            fpstore.remove_passages(
                many, tmp_path / "c.jsonl", text="text", words=5, progress=changes
            )
    assert sorted(item.name for item in tmp_path.iterdir()) == [
        "a.jsonl",
        "b.jsonl",
        "empty.jsonl",
        "many.jsonl",
    ]


def test_words_of_one_hash_are_told_apart():
    """Both hashes of a window were made of the same hashes of words, XXH64 without a seed."""
    dashes, pluses = "-" * 24, "+" * 24
    words = f"abcdefgh{dashes}ijklmnop{pluses}", f"mtuxnruq{dashes}SC0hN|_+{pluses}"
    first, second = (xxhash.xxh64_intdigest(word.encode()) for word in words)
    assert first == second
    texts = [f"x y z {word} end" for word in words]
    result = fpstore.remove_passages(pa.table({"text": texts}), text="text", words=5)
    assert result.table["text"].to_pylist() == texts


def test_the_list_has_the_nul_bytes_and_the_words_that_are_cut():
    texts = pa.table({"text": ["q\0\0", "q\0\0"]})
    result = fpstore.remove_passages(texts, text="text", words=1)
    assert removed_rows(result, "text", "end") == [("q\0\0", 3)]
    texts = pa.table({"text": ["a b\nc d e\nf g", "x b\nc d e\nf y"]})
    result = fpstore.remove_passages(texts, text="text", words=3, whole_lines=True)
    assert removed_rows(result, "text", "start", "words") == [("c d e\n", 4, 3)]


def test_lone_surrogates_and_nul_bytes_stay(tmp_path):
    """A cut beside a lone surrogate leaves it, and the list has a mark in its place."""
    texts = [f"\ud800 x\0y {COPIED}", f"a {COPIED} \udc80", f"{COPIED} \ud800 x\0y {COPIED}"]
    (tmp_path / "a.jsonl").write_text(json_lines({"text": text} for text in texts))
    result = fpstore.remove_passages(
        tmp_path / "a.jsonl", tmp_path / "b.jsonl", text="text", words=7
    )
    assert rows_of(tmp_path / "b.jsonl") == [
        {"text": texts[0]},
        {"text": texts[1]},
        {"text": COPIED},
    ]
    assert removed_rows(result, "text", "words") == [(f"? x\0y {COPIED}", 7)]
