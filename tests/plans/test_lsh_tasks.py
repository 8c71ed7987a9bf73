"""An LSH index built by tasks has the documents, keys and answers of one built by a process."""

import json
import shutil
import signal
import subprocess
import sys

import pytest
from commandline import TEXT_FIELD, run
from small_plans import plan_lsh
from speeds import crossed
from text_corpora import corpus_in, digests_in, finished, rows_of, write

import fpstore
from fpstore import MinHash, lsh
from fpstore.errors import InputError, StoreExistsError, StoreNotFoundError
from fpstore.hashing import BitSample, SimMinHash, TextReader
from fpstore.lsh import items
from fpstore.plans import lsh as work
from fpstore.plans import open_plan

ASKED = {"text": "text", "threshold": 0.5}


def content(index, texts):
    """Return what an index holds and answers."""
    snapshot = index.snapshot()
    stores = snapshot.documents, snapshot.keys
    held = [
        [(rows.tolist(), lims.tolist(), list(ids)) for rows, lims, ids in store.items()]
        for store in stores
    ]
    results = [[tuple(match) for match in matches] for matches in index.probe_many(texts)]
    pairs = [
        pair for batch in index.pairs() for pair in zip(batch.ids_a(), batch.ids_b(), strict=True)
    ]
    stats = index.stats()
    form = {
        name: stats[name]
        for name in ("ids", "id_kind", "threshold", "recall", "bands", "rows", "radius", "key_bits")
    }
    assert index.verify().ok
    return held, results, pairs, form, index.hasher


def one_index(path, files, id=None, id_type="auto", text="text", **asked):
    """Build an index of files in this process."""
    return lsh.build(
        path,
        TextReader(files, MinHash(), text=text, id=id, id_type=id_type),
        **{"threshold": 0.5, **asked},
    )


TEXTS = [row["text"] for row in rows_of(240, 1) if row["text"] not in (None, "", " \u200b")]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("suffix", "key", "piece_bytes"),
    crossed(
        ["parquet", "jsonl", "csv"], [None, "key", "number"], [3000, items.PIECE_BYTES], share=2
    ),
)
def test_an_index_equals_the_one_of_a_process(tmp_path, set_limits, suffix, key, piece_bytes):
    set_limits(lsh_bytes=piece_bytes)
    source = corpus_in(tmp_path / "corpus", suffix)
    kind = "auto" if key != "number" or suffix != "csv" else "int"
    plan = plan_lsh(
        tmp_path / "plan",
        source,
        tmp_path / "many.lsh",
        id=key,
        id_type=kind,
        part_bytes=4000,
        **ASKED,
    )
    assert len(plan) == (4 if suffix != "parquet" else 10)
    summary = finished(plan)
    with (
        one_index(tmp_path / "one.lsh", sorted(source.iterdir()), key, kind) as index,
        fpstore.open(tmp_path / "many.lsh") as many,
    ):
        assert content(many, TEXTS) == content(index, TEXTS)
        size = index.stats()["bytes"]["total"]
        assert summary == {
            "texts": 240,
            "documents": len(index),
            "bands": index.bands[0],
            "bytes": size,
        }
        assert 200 < len(index) < 240
        assert len(content(index, TEXTS)[2]) > 20
    of_one, of_many = digests_in(tmp_path / "one.lsh"), digests_in(tmp_path / "many.lsh")
    assert of_one.keys() == of_many.keys()
    named = {
        f"{store}/{name}"
        for store in ("documents", "keys")
        for name in ("manifest.json", "gen-00000001/log")
    }
    # which name an identity
    assert {name for name in of_one if of_one[name] != of_many[name]} == {"lsh.json", *named}


def test_files_without_documents_and_ids_that_go_on(tmp_path):
    """Rows without words count in row numbers, also those of files that have no others."""
    lines = [
        "",
        "text\n",
        "text\n\u200b\n",
        "text\nit was the best of times\n",
        "text\n",
        'text\n""\nit was the worst of times\n',
    ]
    for number, data in enumerate(lines[1:]):
        (tmp_path / f"{number}.csv").write_text(data)
    finished(
        plan_lsh(
            tmp_path / "plan", sorted(tmp_path.glob("*.csv")), tmp_path / "i", part_bytes=1, **ASKED
        )
    )
    with fpstore.open(tmp_path / "i", "r+") as index:
        assert [match.id for match in index.probe("it was the best of times")] == [1]
        assert [match.id for match in index.probe("it was the worst of times")] == [3]
        index.insert(["call me ishmael some years ago"])
        assert index.probe("Call me Ishmael, some years ago")[0].id == 4


def test_another_hasher_of_texts(tmp_path):
    source = corpus_in(tmp_path / "corpus")
    finished(
        plan_lsh(
            tmp_path / "plan", source, tmp_path / "many.lsh", id="key", hasher=SimMinHash(), **ASKED
        )
    )
    with (
        one_index(
            tmp_path / "one.lsh", sorted(source.iterdir()), "key", hasher=SimMinHash()
        ) as index,
        fpstore.open(tmp_path / "many.lsh") as many,
    ):
        assert content(many, TEXTS) == content(index, TEXTS)


def test_several_columns_and_pages(tmp_path):
    page = "<html><body><article><p>{}</p></article></body></html>".format
    pages = [{"title": f"the title {n}", "text": page(text)} for n, text in enumerate(TEXTS[:30])]
    write(tmp_path / "pages.jsonl", pages)
    finished(
        plan_lsh(
            tmp_path / "p1",
            tmp_path / "pages.jsonl",
            tmp_path / "both",
            text=["title", "text"],
            threshold=0.6,
        )
    )
    finished(
        plan_lsh(
            tmp_path / "p2",
            tmp_path / "pages.jsonl",
            tmp_path / "html",
            text="text",
            html=True,
            threshold=0.6,
        )
    )
    with fpstore.open(tmp_path / "both") as both, fpstore.open(tmp_path / "html") as html:
        assert both.probe(pages[3])[0] == (3, 1.0)
        assert html.probe(pages[4]["text"])[0] == (4, 1.0)
        assert html.hasher.name == "main-text"


def test_which_number_of_documents_bands_are_planned_for(tmp_path):
    source, lines = corpus_in(tmp_path / "corpus"), corpus_in(tmp_path / "lines", "jsonl")
    form = lsh.plan(70_000_000, MinHash(), 0.6)
    expected = {
        ("parquet", ()): lsh.plan(240, MinHash(), 0.5),
        ("jsonl", ()): lsh.plan(10_000_000, MinHash(), 0.5),
        ("parquet", (("documents", 70_000_000),)): lsh.plan(70_000_000, MinHash(), 0.5),
        ("parquet", (("candidates", 4), ("recall", 0.8))): lsh.plan(
            240, MinHash(), 0.5, 0.8, candidates=4
        ),
        ("jsonl", (("lsh_plan", form), ("threshold", None))): form,
    }
    assert len({(case.bands, case.rows) for case in expected.values()}) > 2
    for number, ((suffix, item), wanted) in enumerate(expected.items()):
        how = {"text": "text", "threshold": 0.5, **dict(item)}
        finished(
            plan_lsh(
                tmp_path / f"p{number}",
                source if suffix == "parquet" else lines,
                tmp_path / f"i{number}",
                **how,
            )
        )
        with fpstore.open(tmp_path / f"i{number}") as index:
            stats = index.stats()
            assert index.bands == (wanted.bands, wanted.rows)
            assert (stats["radius"], stats["recall"]) == (wanted.radius, wanted.recall)
            # Keys are long enough for the documents that were named, and otherwise for those that
            # are there.
            assert (stats["key_bits"] == wanted.key_bits) == (
                wanted.documents == 70_000_000 or suffix == "parquet"
            )


def test_the_bytes_follow_from_the_plan(tmp_path):
    places = (tmp_path / "plan", corpus_in(tmp_path / "corpus"), tmp_path / "i.lsh")
    fields = {"id": "key", "index_ids": True, "part_bytes": 9000, **ASKED}
    plan = plan_lsh(*places, **fields)
    finished(plan)
    first = digests_in(tmp_path / "i.lsh")
    plan.remove()
    shutil.rmtree(tmp_path / "i.lsh")
    again = plan_lsh(*places, **fields)
    for index in range(len(again)):
        assert again.run(index, threads=2, memory="64MiB")
    assert again.finish() == again.finish()
    assert digests_in(tmp_path / "i.lsh") == first
    assert {path.name for path in tmp_path.iterdir()} == {"corpus", "plan", "i.lsh"}


KILLED = """
import os, signal, sys
from fpstore.plans import lsh as work, open_plan

def killed(*args):
    if sys.argv[2] == "build_index":
        done(*args)
    os.kill(os.getpid(), signal.SIGKILL)

at = work if sys.argv[2] == "build_index" else work.LshWork
done = getattr(at, sys.argv[2])
setattr(at, sys.argv[2], killed)
plan = open_plan(sys.argv[1])
plan.run(len(plan) - 1)
"""


# before the index has its name, and behind
@pytest.mark.sampled(1)
@pytest.mark.parametrize("when", ["build_index", "_check"])
def test_a_build_that_is_killed(tmp_path, monkeypatch, when):
    source = corpus_in(tmp_path / "corpus")
    plan = plan_lsh(tmp_path / "plan", source, tmp_path / "i.lsh", part_bytes=9000, **ASKED)
    for index in range(len(plan) - 1):
        plan.run(index)
    ended = subprocess.run([sys.executable, "-P", "-c", KILLED, plan.path, when], check=False)
    assert ended.returncode == -signal.SIGKILL
    left = {path.name for path in tmp_path.iterdir()} - {"corpus", "plan"}
    if when == "_check":
        assert left == {"i.lsh"}
        monkeypatch.setattr(work, "build_index", None)  # what is there is not made again
    else:
        assert len(left) == 1
        assert left.pop().startswith(".unfinished-")
    again = open_plan(tmp_path / "plan")
    assert again.run(len(plan) - 1)
    assert again.finish()["documents"] > 200
    assert {path.name for path in tmp_path.iterdir()} == {"corpus", "plan", "i.lsh"}
    with (
        one_index(tmp_path / "one.lsh", sorted(source.iterdir())) as plain_index,
        fpstore.open(tmp_path / "i.lsh") as many,
    ):
        assert content(many, TEXTS) == content(plain_index, TEXTS)


def test_an_index_that_is_there(tmp_path):
    source = corpus_in(tmp_path / "corpus")
    other = one_index(tmp_path / "i.lsh", sorted(source.iterdir())[:1])
    with pytest.raises(StoreExistsError, match=r"i\.lsh exists"):
        plan_lsh(tmp_path / "plan", source, tmp_path / "i.lsh", **ASKED)
    assert not (tmp_path / "plan").exists()
    plan = plan_lsh(tmp_path / "plan", source, tmp_path / "j.lsh", **ASKED)
    plan.run(0)
    shutil.copytree(tmp_path / "i.lsh", tmp_path / "j.lsh")
    with pytest.raises(
        StoreExistsError, match=r"j\.lsh: exists, and is not what the plan makes: remove it"
    ):
        plan.run(1)
    with fpstore.open(tmp_path / "j.lsh") as index:
        assert len(index) == len(other)
    shutil.rmtree(tmp_path / "j.lsh")
    assert plan.run(1)
    first = plan.finish()
    shutil.move(tmp_path / "j.lsh", tmp_path / "moved")
    with pytest.raises(
        StoreNotFoundError,
        match=r"j\.lsh: was written, and is gone: remove results/build-00000\.pieces",
    ):
        plan.finish()
    (tmp_path / "plan" / "results" / "build-00000.pieces").unlink()
    assert plan.run(1)
    assert plan.finish() == first
    (tmp_path / "j.lsh" / "lsh.json").write_bytes((tmp_path / "i.lsh" / "lsh.json").read_bytes())
    with pytest.raises(StoreExistsError, match="not what the plan makes"):
        plan.finish()


RUN = (
    "import sys; from fpstore.plans import open_plan; p = open_plan(sys.argv[1]); [p.run(i) for i "
    "in range(len(p))]; p.finish()"
)


@pytest.mark.full
def test_processes_that_build_at_once(tmp_path):
    source = corpus_in(tmp_path / "corpus", "csv")
    plan = plan_lsh(
        tmp_path / "plan", source, tmp_path / "i.lsh", id="key", part_bytes=9000, **ASKED
    )
    running = [
        subprocess.Popen([sys.executable, "-P", "-c", RUN, plan.path], stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    assert [(index.communicate()[1], index.returncode) for index in running] == [(b"", 0)] * 2
    with (
        one_index(tmp_path / "one.lsh", sorted(source.iterdir()), "key") as index,
        fpstore.open(tmp_path / "i.lsh") as many,
    ):
        assert content(many, TEXTS) == content(index, TEXTS)


def test_what_is_refused(tmp_path, set_limits):
    source = corpus_in(tmp_path / "corpus")
    form = lsh.plan(100, MinHash(), 0.5)
    for message, wrong in (
        ("for rows of files", {"text": True}),
        ("name either the column", {"text": None}),
        ("no column named 'txt'", {"text": "txt"}),
        ("no column named 'url'", {"id": "url"}),
        ("give a threshold", {"threshold": None}),
        ("leave them out", {"lsh_plan": form}),
        ("plan must be", {"lsh_plan": 3, "threshold": None}),
        ("threshold must be", {"threshold": 2}),
        ("documents must be", {"documents": 1 << 33}),
        ("index_ids must be", {"index_ids": 3}),
        ("id_type must be", {"id_type": "float"}),
        (
            "a plan is for texts and MinHash, got the hasher bit-sample",
            {"hasher": BitSample(dimension=512)},
        ),
        ("the hasher fields has no law", {"hasher": SimMinHash(), "text": ["text", "key"]}),
        ("the hasher simhash has no law", {"hasher": fpstore.SimHash()}),
    ):
        with pytest.raises(InputError, match=message):
            plan_lsh(tmp_path / "plan", source, tmp_path / "i", **{**ASKED, **wrong})
    with pytest.raises(InputError, match="an index lies on a disk"):
        plan_lsh(tmp_path / "plan", source, "s3://bucket/i", **ASKED)
    with pytest.raises(InputError, match="the next run would read it"):
        plan_lsh(tmp_path / "plan", source, source / "i", **ASKED)
    with pytest.raises(InputError, match="in the folder of the plan"):
        plan_lsh(tmp_path / "plan", source, tmp_path / "plan" / "i", **ASKED)
    with pytest.raises(
        InputError, match=r"i/plan: is in the output: name a place outside for the plan"
    ):
        plan_lsh(tmp_path / "i" / "plan", source, tmp_path / "i", **ASKED)
    set_limits(plan_documents=239)
    with pytest.raises(
        InputError, match="the inputs have 240 rows, and an index has at most 239 documents"
    ):
        plan_lsh(tmp_path / "plan", source, tmp_path / "i", **ASKED)
    assert {path.name for path in tmp_path.iterdir()} == {"corpus"}


def test_ids_of_two_types_and_no_documents(tmp_path):
    files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for file, ids, texts in zip(files, ([1, 2], ["a", "b"]), (TEXTS[:2], TEXTS[2:4]), strict=True):
        write(file, [{"id": name, "text": text} for name, text in zip(ids, texts, strict=True)])
    plan = plan_lsh(tmp_path / "p1", files, tmp_path / "i", id="id", part_bytes=1, **ASKED)
    with pytest.raises(
        InputError,
        match=r"b\.jsonl: the id is of type str, but earlier ids are integers; give the id type",
    ):
        finished(plan)
    finished(
        plan_lsh(
            tmp_path / "p2", files, tmp_path / "i", id="id", id_type="str", part_bytes=1, **ASKED
        )
    )
    with fpstore.open(tmp_path / "i") as index:
        assert [index.probe(text)[0].id for text in TEXTS[:4]] == ["1", "2", "a", "b"]
    # of delimited text, ids are strings unless it is said
    lines = [f"{place},{text}\n" for place, text in enumerate(TEXTS[:2])]
    (tmp_path / "c.csv").write_text("id,text\n" + "".join(lines))
    for kind, wanted in (("auto", ["0", "1"]), ("int", [0, 1])):
        finished(
            plan_lsh(
                tmp_path / f"p{kind}",
                tmp_path / "c.csv",
                tmp_path / kind,
                id="id",
                id_type=kind,
                **ASKED,
            )
        )
        with fpstore.open(tmp_path / kind) as index:
            assert [index.probe(text)[0].id for text in TEXTS[:2]] == wanted
    (tmp_path / "none.jsonl").write_text('{"text": " "}\n{"text": null}\n')
    plan = plan_lsh(tmp_path / "p3", tmp_path / "none.jsonl", tmp_path / "j", **ASKED)
    with pytest.raises(InputError, match=r"none\.jsonl: no text to make a fingerprint of"):
        finished(plan)


@pytest.mark.full
def test_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    corpus_in(tmp_path / "corpus", "jsonl")
    fields = (*TEXT_FIELD, "--id-field", "key")
    form = ("--threshold", "0.5", "--documents", "1M", "--shingle-size", "2")
    made = json.loads(
        run("task", "lsh", "i.plan", "i.lsh", "corpus", *fields, *form, "--json").stdout
    )
    assert [stage["stage"] for stage in made["stages"]] == ["hash", "build"]
    assert run("task", "run", "i.plan", "--processes", "1").exit_code == 0
    assert "documents" in run("task", "finish", "i.plan").stdout
    (tmp_path / "draft.txt").write_text(TEXTS[3])
    run("lsh", "build", "one.lsh", "corpus", *fields, *form)
    for verb in (("probe", "draft.txt"), ("pairs",)):
        outcome = run(verb[0], "i.lsh", *verb[1:]).stdout
        assert outcome == run(verb[0], "one.lsh", *verb[1:]).stdout != ""
