"""The benchmark of removals: the judge counts rightly, and each change does what its name says."""

import importlib
import json
import re
import subprocess
import sys
import unicodedata
from pathlib import Path
from random import Random

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture(scope="module", autouse=True)
def tools_on_the_path():
    sys.path.insert(0, str(TOOLS))
    yield
    sys.path.remove(str(TOOLS))


@pytest.fixture
def removal():
    return importlib.import_module("bench.removal")


@pytest.fixture
def sets():
    return importlib.import_module("bench.removal_sets")


TEXT = """The harbour of Port Ellery was built in 1874 by Thomas Varnay, and it has 3 basins.

Fishermen bring "herring" to the café each morning - at 6:45, before the market opens.

In winter the ferry to Saint-Briac sails twice a day; tickets cost 12 crowns.

# The lighthouse keeper writes the weather into a book.

Visitors may climb the tower, if the wind allows it, and see forty villages.
"""
LONG = " ".join(f"word{number}" for number in range(600))
PROGRAM = '''"""Add numbers."""
import math

# a comment
def add_all(numbers):
    """Return the sum."""
    // another comment
    return math.fsum(numbers)  # not a line of its own
'''


def words(text):
    return re.findall(r"\w+", text)


WORDS = len(words(TEXT))


def changed(kind, text=TEXT, seed=1):
    changes = importlib.import_module("bench.changes")
    return changes.CHANGES[kind](text, Random(seed))


def test_pieces_are_runs_of_three_words(removal):
    assert removal.pieces_of("One two, THREE four!") == {
        ("one", "two", "three"),
        ("two", "three", "four"),
    }
    assert removal.pieces_of("One two") == {("one", "two")}
    assert removal.pieces_of("...") == {()}
    assert removal.pieces_of("床前明月") == {("床", "前", "明"), ("前", "明", "月")}
    assert removal.pieces_of("\uff46i\u00adne new days") == removal.pieces_of("fine NEW days")


def test_removed_rows_are_counted(removal, sets):
    texts = [
        "a b c d e f g h i j",  # kept; 8 pieces
        "a b c d e f",  # contained: all of 4 pieces
        "a b c d x y z v w u",  # wrong: 2 of 8 pieces
        "a b c d e f g h i q",  # 7 of 8 pieces: neither
        "k l m v w u",  # kept, and has a piece of a removed row that another row stands for
    ]
    labels = ["one", "one", "two", "one", "three"]
    judge = removal.Judge(sets.Rows(texts, labels))
    counts = judge.judge([(1, 0), (2, 0), (3, 0)])
    assert counts == {
        "removed": 3,
        "wrong": 1,
        "wrong_copies": 0,
        "contained": 0.333,
        "pieces_lost": round((5 + 1) / (4 + 8 + 8), 5),
        "other_label": 1,
    }


def test_containment_alone_makes_a_removal_right(removal, sets):
    """J is 4/12, far below a half, but the kept row has all of the removed one."""
    texts = ["a b c d e f g h i j k l m n", "a b c d e f", "a b c d e x"]
    judge = removal.Judge(sets.Rows(texts))
    assert judge.judge([(1, 0)])["wrong"] == 0
    assert judge.judge([(2, 0)])["wrong"] == 1  # C is 3/4
    assert judge.judge([(2, 1)])["wrong"] == 0  # J is 3/5


def test_copies_are_found_in_one_cluster_and_gone_anywhere(removal, sets):
    texts = ["a b c d", "a b c e", "f g h i", "f g h j", "k l m n", "k l m o"]
    plants = [sets.Plant(0, 1, "order"), sets.Plant(2, 3, "order"), sets.Plant(4, 5, "ads")]
    judge = removal.Judge(sets.Rows(texts, plants=plants))
    counts = judge.judge([(0, 1), (3, 4)])  # together; gone, but for another row; both stay
    assert counts["found"] == {"order": 0.5, "ads": 0.0}
    assert counts["gone"] == {"order": 1.0, "ads": 0.0}
    assert (counts["found_mean"], counts["gone_mean"]) == (0.25, 0.5)
    assert (counts["wrong"], counts["wrong_copies"]) == (2, 1)
    # two copies of a row that was removed itself
    assert judge.judge([(0, 2), (1, 2)])["found"]["order"] == 0.5


def test_later_releases_do_not_count_as_copies_of_a_kind(removal, sets):
    plants = [sets.Plant(0, 1, sets.RELEASE), sets.Plant(2, 3, "order")]
    judge = removal.Judge(sets.Rows(["a b c", "a b d", "e f g", "e f h"], plants=plants))
    counts = judge.judge([(1, 0)])
    assert counts["found"] == {sets.RELEASE: 1.0, "order": 0.0}
    assert counts["found_mean"] == 0.0


def test_rows_of_a_template_are_lost(removal, sets):
    judge = removal.Judge(sets.Rows(["a b c d", "a b c e", "a b c f"], is_template=True))
    assert judge.judge([(1, 0)])["template_lost"] == 1
    # 1 of 3 pieces in each pair
    assert judge.describe()["mean_jaccard"] == 0.333


def test_kept_row_without_a_name_is_the_likest(removal, sets):
    texts = ["a b c d x", "a b c d e", "a b c d e f", "q r s"]
    judge = removal.Judge(sets.Rows(texts))
    assert judge.judge([(1, None)]) == judge.judge([(1, 2)]) != judge.judge([(1, 0)])
    assert judge.judge([(3, None)])["wrong"] == 1


@pytest.mark.parametrize("pairs", [[(1, 0), (0, 2)], [(1, 0), (1, 2)], [(1, 1)]])
def test_impossible_answers_are_refused(removal, sets, pairs):
    judge = removal.Judge(sets.Rows(["a b c", "a b d", "a b e"]))
    with pytest.raises(ValueError, match="removed twice, or"):
        judge.judge(pairs)


def kinds():
    sys.path.insert(0, str(TOOLS))
    try:
        return tuple(importlib.import_module("bench.changes").CHANGES)
    finally:
        sys.path.remove(str(TOOLS))


@pytest.mark.parametrize("kind", kinds())
def test_changes_are_pure_and_change(kind):
    text = {"excerpt of a tenth": LONG, "comments removed": PROGRAM}.get(kind, TEXT)
    assert changed(kind, text, 1) == changed(kind, text, 1)
    assert (changed(kind, text) == text) == (kind == "unchanged")
    assert isinstance(changed(kind, ""), str)
    assert isinstance(changed(kind, "x"), str)


SHOWN = {
    "upper case": lambda copy: copy == TEXT.upper(),
    "spaces": lambda copy: words(copy) == words(TEXT) and re.search(r"^ ", copy, re.MULTILINE),
    "punctuation removed": lambda copy: words(copy) == words(TEXT) and "," not in copy,
    "Unicode forms": lambda copy: "e\u0301" in copy and "\u2019" not in TEXT and "\u00a0" in copy,
    "full width": lambda copy: unicodedata.normalize("NFKC", copy) == TEXT and "\uff22" not in TEXT,
    "soft hyphens": lambda copy: copy.replace("\u00ad", "") == TEXT,
    "accents dropped": lambda copy: copy == TEXT.replace("é", "e"),
    "wrong encoding": lambda copy: copy == TEXT.replace("é", "Ã©"),
    "truncated to half": lambda copy: TEXT.startswith(copy) and len(words(copy)) == WORDS // 2,
    "first fifth lost": lambda copy: copy in TEXT and len(words(copy)) == WORDS - WORDS // 5,
    "parts dropped": lambda copy: copy.count("\n\n") == 3,
    "order": lambda copy: sorted(words(copy)) == sorted(words(TEXT)) != words(copy),
    "part repeated": lambda copy: (
        copy.count("\n\n") == 5 and set(copy.split("\n\n")) == set(TEXT.split("\n\n"))
    ),
    "navigation": lambda copy: TEXT in copy and len(words(copy)) > len(words(TEXT)) + 22,
    "ads": lambda copy: set(words(TEXT)) < set(words(copy)) and "%" in copy,
    "notice": lambda copy: copy.startswith("Copyright") and copy.endswith(TEXT),
    "HTML": lambda copy: copy.count("<p") == 5 == copy.count("</p>"),
    "quoted": lambda copy: (
        words(copy) == words(TEXT) and all(line[:2] == "> " for line in copy.splitlines())
    ),
    "line numbers": lambda copy: len(words(copy)) == len(words(TEXT)) + len(TEXT.splitlines()),
    "hyphenation": lambda copy: copy.replace("-\n", "") == TEXT and copy.count("-\n") >= 4,
    "character noise": lambda copy: (
        abs(len(copy) - len(TEXT)) + sum(a != b for a, b in zip(copy, TEXT, strict=False)) > 0
    ),
    "numbers": lambda copy: (
        re.sub(r"\d", "0", copy) == re.sub(r"\d", "0", TEXT)
        and not set(re.findall(r"\d+", copy)) & set(re.findall(r"\d+", TEXT))
    ),
    "names": lambda copy: sum(a != b for a, b in zip(words(copy), words(TEXT), strict=True)) == 1,
} | {
    f"{share}% of words": lambda copy, count=count: (
        sum(a != b for a, b in zip(words(copy), words(TEXT), strict=True)) == count
        and set(words(copy)) <= set(words(TEXT))
    )
    for share, count in ((1, 1), (5, 4), (10, 7))
}


@pytest.mark.parametrize("kind", SHOWN)
def test_changes_do_what_they_say(kind):
    assert SHOWN[kind](changed(kind))


def test_every_kind_is_shown():
    others = {"unchanged", "excerpt of a tenth", "comments removed"}
    assert set(SHOWN) | others == set(kinds())


def test_excerpts_are_a_tenth_of_long_texts():
    copy = changed("excerpt of a tenth", LONG)
    assert copy in LONG
    assert 59 <= len(words(copy)) <= 61
    assert changed("excerpt of a tenth", TEXT) == TEXT


def test_comments_and_docstrings_go():
    assert changed("comments removed", PROGRAM) == (
        "import math\n\ndef add_all(numbers):\n"
        "    return math.fsum(numbers)  # not a line of its own\n"
    )


def test_words_of_scripts_without_spaces_are_characters():
    text = "床前明月光疑是地上霜舉頭望明月低頭思故鄉"
    copy = changed("10% of words", text)
    assert sum(a != b for a, b in zip(copy, text, strict=True)) == 2
    assert changed("truncated to half", text) == text[:10]


@pytest.mark.parametrize("is_held_out", [False, True])
@pytest.mark.parametrize(("name", "share"), [("weather", (0.4, 0.55)), ("pages", (0.4, 0.52))])
def test_templates_have_facts_of_their_own(removal, sets, tmp_path, name, share, is_held_out):
    rows = sets.make(name, tmp_path, 1, held_out=is_held_out, smoke=True)
    assert len(set(rows.texts)) == len(rows.texts) >= 200
    assert share[0] < removal.Judge(rows).describe()["mean_jaccard"] < share[1]
    assert rows.texts == sets.make(name, tmp_path, 1, held_out=is_held_out, smoke=True).texts
    assert rows.texts != sets.make(name, tmp_path, 1, held_out=not is_held_out, smoke=True).texts


def test_answers_of_a_tool_in_a_process_of_its_own(removal, tmp_path):
    """Of `dedup`, of a rival, of a setting that is unknown, and of a package that is missing."""
    path = tmp_path / "rows.jsonl"
    texts = [TEXT, LONG, TEXT.upper(), TEXT]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    for name in ("fpstore", "rensa"):
        answer = removal.run(name, path, [sys.executable])
        assert removal.pairs_of(answer) == [(2, 0), (3, 0)]
        assert answer["processor_seconds"] > 0 < answer["peak_bytes"]
    command = [sys.executable, "-m", "bench.cleaners", "fpstore", path, '{"colour": 1}']
    done = subprocess.run(command, cwd=TOOLS, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"missing": "dedup has no colour"}
    bare = (
        "import sys; sys.path.insert(0, {!r}); sys.modules['rensa'] = None; sys.argv[1:] = {!r}\n"
    )
    program = bare.format(str(TOOLS), ["rensa", str(path)]) + (
        "from bench.cleaners import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert json.loads(done.stdout) == {"missing": "rensa is missing: pip install rensa"}


@pytest.mark.full
def test_operation_reports_and_prints(tmp_path):
    report = tmp_path / "report.json"
    command = [sys.executable, TOOLS / "bench", "removal", "--smoke", "--json-out", report]
    subprocess.run(command, check=True, capture_output=True)
    sets = json.loads(report.read_text())["removal"]["sets"]
    assert sets["weather"]["rows"] == 200
    assert sets["pages"]["tools"]["fpstore"]["removed"] >= 0
    command = [sys.executable, "-m", "bench.removal", report]
    done = subprocess.run(command, cwd=TOOLS, capture_output=True, text=True, check=True)
    assert "| tool | sets | wrong | weather lost | pages lost |" in done.stdout
    wrong = [sys.executable, TOOLS / "bench", "removal", "--smoke", "--only", "nothing"]
    done = subprocess.run(wrong, capture_output=True, text=True)
    assert done.returncode == 1
    assert "unknown nothing: --only and --tool take" in done.stderr
