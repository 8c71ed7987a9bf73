"""Plans, threads and resumed jobs write the bytes of one process where texts decide."""

import json
import random
from itertools import product

import pytest
from commandline import fine
from contained_texts import changed, planted, templated
from inputs import json_lines
from small_plans import plan_dedup
from speeds import full, slow
from text_corpora import files_in, finished

import fpstore
from fpstore.jobs.evidence import RULES

KEEP = {
    "longest": {},
    "first": {"keep": "first"},
    "smallest": {"keep": "smallest"},
    "highest": {"keep": "highest", "score": "score"},
}
BOUNDS = {"usual": {}, "lossless": {"lossless": True}, "threshold": {"threshold": 0.5}}
LISTS = ["tsv", "csv", "jsonl", "parquet"]
SIZES = {
    "one part": {},
    "small parts": {"part_bytes": 4000, "slice_rows": 50},
    "stars": {"part_bytes": 20_000, "slice_rows": 60, "star_rows": 0},
}
QUICK = [
    ("highest", "threshold", "tsv", "stars"),
]
CASES = [
    *QUICK,
    *(
        (slow if place % 5 else full)(*case)
        for place, case in enumerate(product(KEEP, BOUNDS, LISTS, SIZES))
        if case not in QUICK
    ),
]


def write_corpus(folder, seed, files):
    """Write texts with ids, of which some are twice, and scores; some are of a template."""
    rng = random.Random(seed)
    pages = templated(50, 0.33, words=120)
    others = [f"other{n}" for n in range(1000)]
    copies = [" ".join(changed(rng, page.split(), others, 0.04)) for page in pages[20:40]]
    texts = [*planted(seed, 100), *pages, *copies]
    rows = [
        {"id": f"i{rng.randrange(400)}", "text": text, "score": rng.randrange(4)} for text in texts
    ]
    for place in rng.sample(range(len(rows)), 6):
        rows[place]["text"] = rng.choice((None, "", " \u200b"))
    folder.mkdir()
    for number in range(files):
        (folder / f"{number}.jsonl").write_text(json_lines(rows[number::files]))
    return folder


def words_of(options):
    words = []
    for name, value in options.items():
        name = "--score-field" if name == "score" else f"--{name}"
        words += [name] if value is True else [name, value]
    return words


def by_command(folder, source, name, suffix, options):
    """Deduplicate in one process; return the summary, the files, and the list."""
    removed = folder / f"{name}.{suffix}"
    where = (source, folder / name, "--text-field", "text", "--id-field", "id")
    out = fine("dedup", *where, *words_of(options), "--removed", removed, "--quiet", "--json")
    return json.loads(out), files_in(folder / name), removed.read_bytes()


def by_tasks(folder, source, name, suffix, options, **sizes):
    removed = folder / f"{name}.{suffix}"
    plan = plan_dedup(
        folder / f"{name}.plan",
        source,
        folder / name,
        text="text",
        id="id",
        removed=removed,
        **options,
        **sizes,
    )
    return finished(plan), files_in(folder / name), removed.read_bytes()


@pytest.mark.parametrize(("keep", "bounds", "suffix", "sizes"), CASES)
def test_a_plan_and_threads_write_the_bytes_of_one_process(tmp_path, keep, bounds, suffix, sizes):
    seed = len(keep) + 10 * len(bounds) + 100 * LISTS.index(suffix) + 1000 * len(sizes)
    source = write_corpus(tmp_path / "in", seed, 1 + seed % 4)
    options = KEEP[keep] | BOUNDS[bounds]
    result, *outputs = by_command(tmp_path, source, "one", suffix, options)
    assert result["removed"] > 10
    planned, *of_plan = by_tasks(tmp_path, source, "two", suffix, options, **SIZES[sizes])
    assert of_plan == outputs
    assert planned == {name: result[name] for name in planned}
    assert set(result) - set(planned) == {"in_clusters", "sizes", "largest"}
    by_threads, *of_threads = by_command(
        tmp_path, source, "three", suffix, options | {"threads": 2, "memory": "64MiB"}
    )
    assert (by_threads, of_threads) == (result, outputs)


@pytest.mark.parametrize("seed", [1, *map(full, range(2, 6))])
@pytest.mark.parametrize("phase", [full("reading"), full("searching"), "comparing", "copying"])
def test_a_resumed_job_writes_the_bytes_of_one_that_was_not_stopped(
    tmp_path, set_limits, phase, seed
):
    source = write_corpus(tmp_path / "in", seed, 2)
    expected = fpstore.dedup(source, tmp_path / "one", text="text", id="id", threads=1)
    set_limits(compared_rows=50, line_bytes=1 << 12)
    seen = []

    def stop(name, done, total):
        seen.append(name)
        if name == phase and seen.count(name) > (phase == "reading"):
            raise KeyboardInterrupt

    how = {"text": "text", "id": "id", "resume": tmp_path / "kept", "threads": 1}
    with pytest.raises(KeyboardInterrupt):
        fpstore.dedup(source, tmp_path / "two", **how, progress=stop)
    assert not (tmp_path / "two").exists()
    read = []
    result = fpstore.dedup(
        source, tmp_path / "two", **how, progress=lambda *call: read.append(call)
    )
    assert files_in(tmp_path / "two") == files_in(tmp_path / "one")
    assert result.kept.tolist() == expected.kept.tolist()
    assert list(result.clusters) == list(expected.clusters)
    assert result.removed.to_arrow().equals(expected.removed.to_arrow())
    assert (result.near, result.not_compared) == (expected.near, expected.not_compared)
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ({}, {"lossless": True}, "rule was"),
        ({"contained": 0.9}, {"contained": 0.8}, "rule was"),
        ({}, {"estimate": True}, "rule was|keep was"),
        ({}, {"keep": "first"}, "keep was 'longest'"),
    ],
)
def test_a_job_with_another_rule_is_not_resumed(tmp_path, before, after, message):
    source = write_corpus(tmp_path / "in", 1, 1)

    def stop(name, done, total):
        if name == "copying":
            raise KeyboardInterrupt

    how = {"text": "text", "resume": tmp_path / "kept"}
    with pytest.raises(KeyboardInterrupt):
        fpstore.dedup(source, tmp_path / "o", **how, **before, progress=stop)
    with pytest.raises(fpstore.InputError, match=message):
        fpstore.dedup(source, tmp_path / "o", **how, **after)


@pytest.mark.full
@pytest.mark.parametrize("suffix", ["jsonl", "tsv", "parquet"])
def test_a_plan_compares_with_a_store(tmp_path, suffix):
    """And rows that are near the store are in no other search."""
    source = write_corpus(tmp_path / "in", 5, 3)
    minhash, texts = fpstore.MinHash(), [text for text in planted(5, 100)[:30] if text.strip()]
    fpstore.build(
        tmp_path / "s.fps",
        minhash.fingerprints(texts),
        [f"s{n}" for n in range(len(texts))],
        fingerprinter=minhash,
    ).close()
    options = {"against": tmp_path / "s.fps"}
    result, *outputs = by_command(tmp_path, source, "one", suffix, options)
    assert result["near_reference"] >= 20
    sizes = SIZES["stars"]
    planned, *of_plan = by_tasks(tmp_path, source, "two", suffix, options, **sizes)
    assert of_plan == outputs
    for name in ("removed", "kept", "near", "near_reference", "lossless"):
        assert planned[name] == result[name], name
    if suffix == "jsonl":
        listed = [json.loads(line) for line in outputs[1].splitlines()]
        assert sum(row["rule"] == "near" for row in listed) == result["near_reference"]
        assert {row["rule"] for row in listed} <= set(RULES)
        for row in listed:
            assert (row["contained"] is None) == (row["rule"] == "near")
