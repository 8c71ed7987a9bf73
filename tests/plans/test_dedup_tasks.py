"""Deduplication by tasks.

The files and the list of removed rows have the bytes that one process writes.
"""

import json
import random
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import failure, fine
from small_plans import plan_dedup
from text_corpora import corpus_in, files_in, finished, listed, rows_of, write

import fpstore
from fpstore import MinHash, _kernel
from fpstore.base.resources import make_resources
from fpstore.base.width import Width
from fpstore.disk.folders import UNFINISHED
from fpstore.errors import InputError, StoreExistsError
from fpstore.hashing import TextReader
from fpstore.hashing.corpora import open_source
from fpstore.io.source import Projection
from fpstore.jobs.bands import MIXER, row_hashes
from fpstore.jobs.dedup_job import estimate_rows
from fpstore.plans.links import find_repeats, link_keys
from fpstore.plans.shuffle import SliceRows
from fpstore.plans.stars import star_labels, star_stages, star_step, write_edges
from fpstore.work.folder import PLAN_FILE, PlanFolder, Stage
from fpstore.work.pieces import PieceWriter
from fpstore.work.places import DiskPlace

CASES = {
    "default": {},
    "estimate": {"estimate": True},
    "bands": {"search": "bands"},
    "bands of small slices": {"search": "bands", "slice_rows": 40, "part_bytes": 4000},
    "small slices": {"slice_rows": 20, "part_bytes": 4000},
    "lossless": {"lossless": True, "slice_rows": 50, "part_bytes": 4000},
    "scores": {"keep": "highest", "score": "score", "slice_rows": 30, "part_bytes": 9000},
    "first": {"contained": 0.6, "keep": "first", "id": "key", "unknown": "drop"},
    "stars of texts": {"slice_rows": 40, "part_bytes": 4000, "star_rows": 0},
    "ids": {
        "threshold": 0.4,
        "keep": "smallest",
        "id": "number",
        "slice_rows": 40,
        "part_bytes": 9000,
    },
    "simhash": {
        "method": "simhash",
        "keep": "highest",
        "score": "score",
        "id": "key",
        "slice_rows": 40,
        "part_bytes": 9000,
    },
    "central": {
        "method": "simhash",
        "width": 128,
        "radius": 12,
        "keep": "central",
        "unknown": "drop",
        "slice_rows": 40,
    },
    "string ids": {"id": "key", "keep": "smallest", "radius": 40, "group": "connected"},
    "stars": {"search": "bands", "slice_rows": 40, "star_rows": 0},
    "chains of stars": {
        "method": "simhash",
        "radius": 9,
        "slice_rows": 30,
        "star_rows": 100,
        "group": "connected",
    },
    "slices of a large radius": {
        "method": "simhash",
        "radius": 7,
        "slice_rows": 12,
        "group": "connected",
    },
    "radius 0": {"method": "simhash", "radius": 0, "slice_rows": 40},
    "one table": {
        "method": "simhash",
        "width": 32,
        "radius": 1,
        "slice_rows": 40,
        "group": "connected",
    },
}
# of the rule: the least containment and similarity, one of which follows from the other
BOUNDS = {
    "lossless": (0.95, None),
    "first": (0.6, pytest.approx(3 / 7)),
    "ids": (pytest.approx(4 / 7), 0.4),
}
SIZES = ("slice_rows", "part_bytes", "star_rows")


def both_ways(folder, source, suffix=".csv", **asked):
    """Deduplicate in one process and by tasks, and compare the files and the lists of removed rows.

    Return the result of the process, the plan, and the summary of the plan.
    """
    plain = {name: value for name, value in asked.items() if name not in SIZES}
    result = fpstore.dedup(source, folder / "one", **plain)
    removed = folder / f"many{suffix}"
    plan = plan_dedup(folder / "plan", source, folder / "many", removed=removed, **asked)
    summary = finished(plan)
    assert files_in(folder / "many") == files_in(folder / "one")
    assert removed.read_bytes() == listed(result.removed, folder / f"one{suffix}")
    return result, plan, summary


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("case", "suffix"),
    [*((case, "parquet") for case in CASES), ("string ids", "jsonl"), ("ids", "csv")],
)
def test_equals_one_process(tmp_path, case, suffix):
    source = corpus_in(tmp_path / "corpus", suffix)
    result, plan, summary = both_ways(tmp_path, source, text="text", **CASES[case])
    assert len(result.removed) > 20
    kept = len(result.kept)
    output = {
        "documents": 240,
        "not_compared": result.not_compared,
        "clusters": len(result.clusters),
    }
    evidence = result.removed.evidence
    if "rule" in evidence:
        output["lossless"] = int((evidence["contained"] >= 0.95).sum())
        output["near"] = result.near
        contained, threshold = BOUNDS.get(case, (0.8, 0.7))
        output |= {"contained": contained, "threshold": threshold}
    assert summary == {**output, "removed": 240 - kept, "kept": kept}
    assert plan.finish() == summary
    assert json.loads((tmp_path / "many" / "_fpstore.json").read_text()) == {
        "plan": plan.digest,
        "complete": True,
        **summary,
    }


SEARCHES = {
    "one slice": {"estimate": True},  # at this radius, slices cost more than they spare
    "tables": {"method": "simhash", "radius": 3},
    "tables of which one has one slice": {"method": "simhash", "radius": 9, "group": "connected"},
    "bands": {"search": "bands"},
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("star_rows", [0, 10**6])
@pytest.mark.parametrize("slice_rows", [600, None])
@pytest.mark.parametrize("search", SEARCHES)
def test_equal_rows_of_a_part_are_sent_once(tmp_path, search, slice_rows, star_rows):
    """All of them were sent, to one slice of each column.

    Of 8 billion rows, a tenth came to one task.
    """
    rows = rows_of(60, seed=2)
    for number in range(2):
        common = [
            {**rows[0], "text": "a page that is in the corpus many times", "number": item}
            for item in range(500)
        ]
        write(tmp_path / "in" / f"{number}.jsonl", [*common, *rows[number::2], *common])
    options = {"text": "text", "id": "number", "keep": "smallest", **SEARCHES[search]}
    sizes = {"slice_rows": slice_rows, "part_bytes": 1, "star_rows": star_rows}
    both_ways(tmp_path, tmp_path / "in", **options, **sizes)
    folder = PlanFolder.open(DiskPlace(tmp_path / "plan"))
    bits = folder.work["cut"][0]
    assert any(bits) == (slice_rows is not None and search != "one slice")
    for part in folder.results("hash"):
        fingerprints = part.read("fingerprints")
        distinct = len(np.unique(fingerprints, axis=0))
        assert len(fingerprints) > 1000 > 31 >= distinct
        for column, cut in enumerate(bits):
            sent = (
                part.read(f"fingerprints-{column}")
                if cut
                else np.delete(fingerprints, part.read("repeats"), axis=0)
            )
            assert len(sent) == distinct


@pytest.mark.parametrize("wide", [False, True])
def test_rows_with_other_keys_are_sent(wide):
    """Neither is a row with another fingerprint and the same hash a repeat."""
    rows = np.array([[5, 5], [1, 7], [5, 5], [5, 5], [0, 2], [1, 2], [5, 5]], np.uint64)
    if wide:
        rows[5:6, 1] -= MIXER  # the hash of two words is that of (0, 2)
        assert np.array_equal(*row_hashes(rows)[4:6].reshape(2, 1))
    else:
        rows = np.ascontiguousarray(rows[:, 1]) * np.array([1, 1, 1, 1, 1, 3, 1], np.uint64)
    bands = [np.array(keys, np.uint64) for keys in ([1, 2, 1, 1, 3, 3, 1], [1, 2, 1, 9, 3, 3, 1])]
    assert [item.tolist() for item in find_repeats(rows, bands)] == [[2, 6], [0, 0]]
    assert [item.tolist() for item in find_repeats(rows, [])] == [[2, 3, 6], [0, 0, 0]]
    assert [item.tolist() for item in find_repeats(rows[:0], bands)] == [[], []]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("bits", [0, 2])
@pytest.mark.parametrize("kind", ["chain", "star", "random", "none"])
def test_stars_find_components(tmp_path, kind, bits):
    rng = np.random.default_rng(1)
    count = 700
    order = rng.permutation(count)
    pairs = {
        "chain": np.stack([order[:-1], order[1:]], 1),
        "star": np.stack([np.full(count, 5), np.arange(count)], 1),
        "random": rng.integers(0, count, (count * 2 // 5, 2)),
        "none": np.empty((0, 2), np.int64),
    }[kind]
    pairs = pairs[pairs[:, 0] != pairs[:, 1]].astype(np.uint64)
    sets = _kernel.Sets(count)
    sets.unite(*np.ascontiguousarray(pairs.T))
    firsts = sets.names()
    plan = PlanFolder.create(
        DiskPlace(tmp_path), "dedup", {}, [Stage("hash", 1), Stage("links", 1), *star_stages(bits)]
    )
    for part, stage in enumerate(("hash", "links")):
        facts = {"plan": plan.digest, "stage": stage, "task": 0}
        with (
            plan.place.create_file(f"results/{stage}-00000.pieces") as path,
            PieceWriter(path, facts) as writer,
        ):
            write_edges(writer, *np.ascontiguousarray(pairs[part::2].T), bits, both=True)

    def do(stage, number, writer, _):
        star_step(plan, stage, number, writer, bits, ("hash", "links"))

    for index in range(2, plan.tasks):
        plan.run(do, index, make_resources(None, 1, None))
    collected = {}
    for number in range(1 << bits):
        nodes, labels = star_labels(plan, number)
        collected.update(zip(nodes.tolist(), labels.tolist(), strict=True))
    assert collected == {int(node): int(firsts[node]) for node in np.unique(pairs).tolist()}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("key", ["key", "number", None])
@pytest.mark.parametrize("sharded", [False, True])
def test_against_a_store(tmp_path, key, sharded):
    source = corpus_in(tmp_path / "corpus")
    others = corpus_in(tmp_path / "others", seed=1, count=90)
    reader = TextReader(
        sorted(others.iterdir()), MinHash(), text="text", id="key" if key is None else key
    )
    store = tmp_path / "others.fps"
    if sharded:
        store.mkdir()
    fpstore.build(store / "shard-00000.fps" if sharded else store, reader).close()
    if sharded:
        fpstore.ShardedStore.combine(store).close()
    result, _, summary = both_ways(
        tmp_path, source, ".tsv", text="text", id=key, against=store, part_bytes=9000
    )
    near = np.count_nonzero(result.removed.in_reference)
    assert 20 < near == summary["near_reference"] < len(result.removed)


def test_ids_are_of_one_type_in_all_parts(tmp_path):
    """Integers of one file are strings if another file has strings.

    Their digits decide which is the smallest.
    """
    text = "the same text of some words that is in each of the files of this corpus"
    for number, ids in enumerate([[9, 10], ["b", "a"], [7]]):
        rows = [{"id": name, "text": text} for name in ids]
        write(tmp_path / "corpus" / f"part-{number}.jsonl", rows)
    both_ways(tmp_path, tmp_path / "corpus", text="text", id="id", keep="smallest")


@pytest.mark.full
@pytest.mark.parametrize("kind", ["tsv", "csv", "txt", "jsonl", "parquet"])
@pytest.mark.parametrize("ids", ["strings", "some strings", "integers", "none"])
def test_lists_of_parts_are_joined(tmp_path, set_limits, kind, ids):
    """Where rows of Parquet are written together decides about its row groups.

    Not where the parts end.
    """
    set_limits(id_slice_rows=7, result_bytes=100, parquet_group_rows=20)
    rng, made = random.Random(3), [0x00FF00FF00FF00FF]
    for number in range(12):
        # some parts have no rows
        made += [1 << rng.randrange(64) ^ rng.choice(made) for _ in range(20 * (number % 3))]
        rows = [
            {"fp": f"{item:016x}", "id": 7 * n if ids != "strings" else f"k{n}"}
            for n, item in enumerate(made[-25:])
        ]
        if ids == "some strings" and number == 5:
            rows[0]["id"] = "k"
        write(
            tmp_path / "corpus" / f"{number:02}.jsonl",
            [*rows, {"fp": f"{rng.getrandbits(64):016x}", "id": 1}],
        )
    options = {"fingerprint": "fp", "id": None if ids == "none" else "id", "radius": 3}
    sizes = {"part_bytes": 1, "slice_rows": 20}
    result, *_ = both_ways(tmp_path, tmp_path / "corpus", f".{kind}", **options, **sizes)
    assert len(result.removed) > 100
    if kind == "parquet":
        assert pq.ParquetFile(tmp_path / "many.parquet").num_row_groups > 3


@pytest.mark.full
def test_processes_write_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    corpus_in(tmp_path / "corpus")
    fields = ("--text-field", "text", "--id-field", "key")
    fine("dedup", "corpus", "one", *fields, "--removed", "one.tsv")
    two = ("--removed", "two.tsv", "--processes", "2")
    assert "removed" in fine("dedup", "corpus", "two", *fields, *two)
    assert files_in(tmp_path / "two") == files_in(tmp_path / "one")
    assert (tmp_path / "two.tsv").read_bytes() == (tmp_path / "one.tsv").read_bytes()
    assert not (tmp_path / "two.plan").exists()


@pytest.mark.parametrize(
    "option", ["--add", "--clusters c.tsv", "--resume", "--force", "--threads 2"]
)
def test_options_that_plans_do_not_have_are_refused(tmp_path, monkeypatch, option):
    monkeypatch.chdir(tmp_path)
    corpus_in(tmp_path / "corpus", count=20)
    planned = ("--text-field", "text", "--removed", "r.tsv", "--plan", "p")
    assert "Traceback" not in failure("dedup", "corpus", "out", *planned, *option.split(), code=2)
    assert not (tmp_path / "p").exists()


@pytest.mark.full
def test_equal_fingerprints_are_a_cluster_without_a_common_band(tmp_path):
    """One process unites them before it looks at bands.

    Tasks did not, where few hash functions make a fingerprint.
    """
    rng, rows = random.Random(1), []
    for _ in range(2000):
        words = [f"w{rng.randrange(50000)}" for _ in range(40)]
        rows.append({"text": " ".join(words)})
        words[20] = "other"
        rows.append({"text": " ".join(words)})
    write(tmp_path / "corpus" / "a.jsonl", rows)
    options = {"text": "text", "width": 64, "search": "bands", "threshold": 0.95}
    result = fpstore.dedup(tmp_path / "corpus", tmp_path / "one", **options)
    assert len(result.removed) > 100
    for slice_rows in (None, 500):
        output = tmp_path / f"o{slice_rows}"
        finished(
            plan_dedup(
                tmp_path / f"p{slice_rows}",
                tmp_path / "corpus",
                output,
                slice_rows=slice_rows,
                **options,
            )
        )
        assert files_in(output) == files_in(tmp_path / "one")


@pytest.mark.parametrize(
    "scores", [[[1], [0.1234567890123456]], [[0.5, 0.1], []], [[2**60 + 1], [2**60]]]
)
def test_scores_of_parts_have_one_length(tmp_path, scores):
    """Keys of numbers of many digits have more words than others, and a part may have none."""
    for number, score in enumerate(scores):
        write(
            tmp_path / "in" / f"{number}.jsonl",
            [{"fp": "00ff00ff00ff00ff", "s": item} for item in score],
        )
    options = {"fingerprint": "fp", "score": "s", "keep": "highest"}
    both_ways(tmp_path, tmp_path / "in", part_bytes=1, **options)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["equal", "chain"])
def test_one_bucket_with_a_whole_slice(kind):
    """Every two of 300,000 rows are 45 billion pairs: a test that compared them would not end."""
    rng, count = np.random.default_rng(1), 300_000 if kind == "equal" else 60_000
    flips = np.zeros((count, 4), np.uint64)
    if kind == "chain":
        flips[np.arange(count), rng.integers(0, 4, count)] = np.uint64(1) << rng.integers(
            0, 64, count, dtype=np.uint64
        )
    numbers = np.arange(count, dtype=np.uint64)
    rows = SliceRows(np.zeros(count, np.uint64), numbers, np.bitwise_xor.accumulate(flips))
    sets = link_keys(rows, 50, Width(256), make_resources("64MiB", 1, None))
    assert not sets.names().any()


def test_ids_without_fingerprints(tmp_path):
    pq.write_table(
        pa.table({"fp": pa.array([None], pa.string()), "id": ["k"]}), tmp_path / "u.parquet"
    )
    finished(
        plan_dedup(
            tmp_path / "p",
            tmp_path / "u.parquet",
            tmp_path / "o.parquet",
            fingerprint="fp",
            id="id",
        )
    )
    assert pq.read_table(tmp_path / "o.parquet").num_rows == 1


def test_what_is_refused_before_a_plan_is_written(tmp_path):
    fpstore.build(
        tmp_path / "s.fps", [MinHash().fingerprint("a b c d e f g")], fingerprinter=MinHash()
    ).close()
    (tmp_path / "v.jsonl").write_text('{"text":"a b c d e f g"}\n')
    files = tmp_path / "v.jsonl", tmp_path / "o.jsonl"
    for options, message in (
        ({"lossless": True, "threshold": 0.5}, "is the rule contained=0.95"),
        ({"against": tmp_path / "s.fps", "contained": 0.5, "radius": 3}, "compares texts"),
        ({"against": tmp_path / "v2.jsonl"}, "a plan compares with a store"),
    ):
        shutil.copy(tmp_path / "v.jsonl", tmp_path / "v2.jsonl")
        with pytest.raises(InputError, match=message):
            plan_dedup(tmp_path / "p", *files, text="text", **options)
    with pytest.raises(InputError, match=r"the list of removed rows is one of \.tsv"):
        plan_dedup(tmp_path / "p", *files, text="text", removed=tmp_path / "r.xyz")
    assert not (tmp_path / "p").exists()


def test_a_plan_that_is_refused_leaves_the_files_of_others(tmp_path):
    """It removed the folder, if all of it stood under a folder called results."""
    (tmp_path / "job" / "results").mkdir(parents=True)
    (tmp_path / "job" / "results" / "thesis.csv").write_text("mine")
    (tmp_path / "x.jsonl").write_text('{"fp":"00ff00ff00ff00ff"}\n')
    for output in ("out.jsonl", "job/out.jsonl"):
        with pytest.raises((InputError, StoreExistsError)):
            plan_dedup(tmp_path / "job", tmp_path / "x.jsonl", tmp_path / output, fingerprint="fp")
    assert (tmp_path / "job" / "results" / "thesis.csv").read_text() == "mine"


def test_errors_name_the_row_of_the_file(tmp_path):
    rows = [{"text": f"a text with the number {number} in it"} for number in range(100)]
    rows[96]["text"] = None
    write(tmp_path / "in" / "r.parquet", rows)
    plan = plan_dedup(
        tmp_path / "p", tmp_path / "in", tmp_path / "o", text="text", unknown="refuse", part_bytes=1
    )
    with pytest.raises(InputError, match=r"r\.parquet: row 97 has a null or blank text"):
        finished(plan)


def test_a_file_that_was_cut_afterwards_is_not_complete(tmp_path):
    write(tmp_path / "in" / "x.jsonl", [{"fp": "00ff00ff00ff00ff"}])
    plan = plan_dedup(tmp_path / "p", tmp_path / "in", tmp_path / "out", fingerprint="fp")
    for index in range(len(plan)):
        plan.run(index)
    (tmp_path / "out" / "x.jsonl").write_text("")
    with pytest.raises(InputError, match=r"x\.jsonl: was written, and has another length now"):
        plan.finish()


@pytest.mark.parametrize("removed", ["o/list.tsv", "o", "o/_fpstore.json"])
def test_a_list_in_the_output_is_refused(tmp_path, removed):
    write(tmp_path / "in" / "x.jsonl", [{"fp": "00ff00ff00ff00ff"}])
    with pytest.raises(
        InputError, match=r"is the output, or in it|the list of removed rows is one of"
    ):
        plan_dedup(
            tmp_path / "p",
            tmp_path / "in",
            tmp_path / "o",
            fingerprint="fp",
            removed=tmp_path / removed,
        )
    assert not (tmp_path / "p").exists()


def test_process_and_plan_estimate_rows_of_short_texts_alike(tmp_path):
    """One process estimated its rows from the first file, a plan from the largest.

    Only one of the two searched by bands.
    """
    short = [{"text": f"text {n}"} for n in range(300)]
    for name, rows in (("a", short), ("b", rows_of(60, 1))):
        write(tmp_path / "corpus" / f"{name}.jsonl", rows)
    plan_dedup(tmp_path / "plan", tmp_path / "corpus", tmp_path / "many", text="text")
    largest = open_source([tmp_path / "corpus"])
    rows_of_plan = json.loads((tmp_path / "plan" / PLAN_FILE).read_text())["work"]["rows"]
    assert estimate_rows(largest, Projection(text="text")) == rows_of_plan < 200


def test_file_names_may_hold_line_breaks(tmp_path):
    """Folders that killed tasks have left in the corpus are not read."""
    for name in ("p.csv", "a\nb.csv", f"{UNFINISHED}1/q.csv"):
        write(tmp_path / "corpus" / name, rows_of(20, 1))
    result, _, summary = both_ways(tmp_path, tmp_path / "corpus", text="text", part_bytes=1)
    assert summary["documents"] == 40
    assert sorted(files_in(tmp_path / "one")) == ["a\nb.csv", "p.csv"]
    assert len(result.kept) < 40


def test_memory_is_for_all_processes(tmp_path):
    """The number of bytes that was given as 64MiB was told."""
    pq.write_table(pa.table({"text": ["a b c"]}), tmp_path / "a.parquet")
    paths = tmp_path / "a.parquet", tmp_path / "b.parquet", "--text-field", "text"
    message = failure("dedup", *paths, "--processes", 3, "--memory", "128MiB", code=2)
    assert "--memory: must be at least 192MiB for 3 processes, got 128MiB" in message
