"""Builds, probes and pairs by tasks: what they find is what one store in one process finds."""

import re
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
from commandline import failure, fine
from small_plans import plan_build, plan_dedup, plan_pairs, plan_probe
from speeds import ALL_WIDTHS, full
from text_corpora import corpus_in, digests_in, finished, rows_of, write

import fpstore
from fpstore.errors import CorruptStoreError, FpstoreError, InputError, StoreExistsError
from fpstore.hashing import TextReader
from fpstore.plans import open_plan
from fpstore.plans.inputs import InputSpec, cut_parts


def near_rows(count, width, seed=1):
    """Return fingerprints of which many are near others, and some equal, as users give them."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 256, (count, width // 8), np.uint8)
    for place in range(1, count, 3):
        rows[place] = rows[rng.integers(place)]
        for bit in rng.integers(0, width, rng.integers(0, 4)):
            rows[place, bit // 8] ^= 1 << (bit % 8)
    if width > 64:
        return rows
    return rows.view(f">u{width // 8}").reshape(-1).astype(f"u{width // 8}")


def saved(folder, rows, files=2):
    """Write fingerprints to some files of numpy."""
    paths = [folder / f"rows-{number}.npy" for number in range(files)]
    for path, part in zip(paths, np.array_split(rows, files), strict=True):
        np.save(path, part)
    return paths


def everything(store):
    """Return what a store answers: its content, matches of itself, and pairs."""
    content = [
        # strings of several fingerprints may have other numbers in shards
        (fingerprint, sorted(ids[start:end]))
        for fingerprints, lims, ids in store.items()
        for fingerprint, start, end in zip(
            fingerprints.tolist(), lims.tolist(), lims[1:].tolist(), strict=False
        )
    ]
    pairs = [
        tuple(row.values()) for matches in store.pairs() for row in matches.to_arrow().to_pylist()
    ]
    matches = [
        tuple(row.values())
        for row in store.probe_many(near_rows(300, store.width, 9)).to_arrow().to_pylist()
    ]
    return content, sorted(matches), sorted(pairs)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("by", ["rows", "prefix"])
@pytest.mark.parametrize("width", ALL_WIDTHS)
def test_a_build_of_numbers_equals_one_store(tmp_path, width, by):
    rows = near_rows(1200, width)
    paths = saved(tmp_path, rows)
    plan = plan_build(
        tmp_path / "plan",
        paths,
        tmp_path / "many",
        width=width,
        radius=2,
        by=by,
        shard_rows=300,
        part_bytes=2000,
    )
    summary = finished(plan)
    assert summary["shards"] > 1
    with (
        fpstore.build(tmp_path / "one.fps", rows, radius=2, width=width) as store,
        fpstore.open(tmp_path / "many") as many,
    ):
        assert many.plan == plan.digest
        assert everything(many) == everything(store)
        assert summary["fingerprints"] == len(store)
        if by == "prefix":  # each fingerprint is in one shard
            assert sum(shard.fingerprints for shard in many.snapshot().manifest.shards) == len(
                store
            )


def test_a_shard_has_the_same_bytes_whoever_makes_it(tmp_path):
    paths = saved(tmp_path, near_rows(3000, 64))
    plan = plan_build(tmp_path / "plan", paths, tmp_path / "many", by="prefix", shard_rows=1500)
    finished(plan)
    first = digests_in(tmp_path / "many")
    plan.remove()
    for shard in (tmp_path / "many").glob("shard-*"):
        shard.rename(tmp_path / f"other-{shard.name}")
    (tmp_path / "many" / "shards.json").unlink()
    again = plan_build(tmp_path / "plan", paths, tmp_path / "many", by="prefix", shard_rows=1500)
    for index in range(len(again)):
        assert again.run(index, threads=2, memory="64MiB")
    again.finish()
    assert digests_in(tmp_path / "many") == first


@pytest.mark.sampled(1)
@pytest.mark.parametrize("suffix", ["parquet", "jsonl", "csv"])
@pytest.mark.parametrize(
    ("by", "key"), [("rows", None), ("prefix", None), ("prefix", "key"), ("rows", "number")]
)
def test_a_build_of_texts_equals_one_store(tmp_path, suffix, by, key):
    source = corpus_in(tmp_path / "corpus", suffix)
    plan = plan_build(
        tmp_path / "plan",
        source,
        tmp_path / "many",
        text="text",
        id=key,
        by=by,
        shard_rows=100,
        part_bytes=9000,
        id_type="int" if key == "number" else "auto",
    )
    finished(plan)
    files = sorted(source.iterdir())
    reader = TextReader(
        files, fpstore.SimHash(), text="text", id=key, id_type="int" if key == "number" else "auto"
    )
    with (
        fpstore.build(tmp_path / "one.fps", reader) as store,
        fpstore.open(tmp_path / "many") as many,
    ):
        assert many.fingerprinter == store.fingerprinter
        assert everything(many) == everything(store)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("limit", [None, 1, 3])
@pytest.mark.parametrize("width", [64, full(256)])
def test_a_batch_of_probes_equals_one_process(tmp_path, width, limit):
    rows, radius = near_rows(1500, width), 3
    finished(
        plan_build(
            tmp_path / "p",
            saved(tmp_path, rows),
            tmp_path / "many",
            width=width,
            by="rows",
            shard_rows=400,
        )
    )
    queries = np.concatenate([near_rows(400, width), near_rows(10, width)])
    np.save(tmp_path / "asked.npy", queries)
    with fpstore.build(tmp_path / "one.fps", rows, width=width) as store:
        matches = store.probe_many(queries, radius, limit=limit)
        wanted = (
            matches.to_arrow()
            .rename_columns(["row", "query", "fingerprint", "distance", "id"])
            .to_pylist()
        )
    for line in wanted if limit is not None else ():
        line["more"] = int(matches.more[line["row"]])
    for name in ("many", "one.fps"):
        plan = plan_probe(
            tmp_path / f"plan-{name}",
            tmp_path / name,
            tmp_path / "asked.npy",
            tmp_path / f"found-{name}",
            radius=radius,
            limit=limit,
            part_bytes=1000,
        )
        summary = finished(plan)
        files = sorted((tmp_path / f"found-{name}").glob("*.parquet"))
        assert [line for file in files for line in pq.read_table(file).to_pylist()] == wanted
        assert summary["matches"] == len(wanted) > 400
        assert summary["queries"] == len(queries)


def test_texts_are_asked_with_their_ids(tmp_path):
    rows = [row for row in rows_of(200, 3) if row["text"]]
    write(tmp_path / "stored.jsonl", rows)
    write(tmp_path / "asked.parquet", rows[:50])
    store = fpstore.build(
        tmp_path / "s.fps",
        TextReader(tmp_path / "stored.jsonl", fpstore.SimHash(), text="text", id="key"),
    )
    plan = plan_probe(
        tmp_path / "p",
        store,
        tmp_path / "asked.parquet",
        tmp_path / "found",
        text="text",
        id="key",
        output_format="jsonl",
    )
    finished(plan)
    matches = (tmp_path / "found" / "matches-00000.jsonl").read_text().splitlines()
    known = [row for row in rows[:50] if row["text"] != " \u200b"]
    wanted = sum(
        len(match.ids)
        for row in known
        for match in store.probe(fpstore.SimHash().fingerprint(row["text"]))
    )
    assert len(matches) == wanted > 50
    assert all('"query_id": "k' in line for line in matches)


def test_what_is_refused(tmp_path):
    paths = saved(tmp_path, near_rows(100, 64))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(StoreExistsError, match="has files"):
        plan_build(tmp_path / "p1", paths, tmp_path / "full")
    with pytest.raises(InputError, match="a store lies on a disk"):
        plan_build(tmp_path / "p2", paths, "s3://bucket/store")
    with pytest.raises(InputError, match="has no ids"):
        plan_build(tmp_path / "p3", paths, tmp_path / "s", id="url")
    with pytest.raises(InputError, match="by must be"):
        plan_build(tmp_path / "p4", paths, tmp_path / "s", by="column")
    np.save(tmp_path / "floats.npy", np.zeros(3))
    with pytest.raises(InputError, match="float64"):
        plan_build(tmp_path / "p4", tmp_path / "floats.npy", tmp_path / "s")
    with pytest.raises(InputError, match="no column named 'txt'"):
        plan_build(tmp_path / "p4", corpus_in(tmp_path / "corpus"), tmp_path / "s", text="txt")
    with pytest.raises(InputError, match="no column named 'txt'"):
        plan_dedup(tmp_path / "p4", tmp_path / "corpus", tmp_path / "s", text="txt")
    assert not (tmp_path / "p4").exists()
    store = fpstore.build(tmp_path / "one.fps", near_rows(100, 64))
    with pytest.raises(InputError, match="does not know how its fingerprints were made"):
        plan_probe(tmp_path / "p5", store, paths, tmp_path / "f", text="text")
    plan = plan_probe(tmp_path / "p6", store, paths, tmp_path / "f")
    plan.run(0)
    with fpstore.open(tmp_path / "one.fps", "r+") as changed:
        changed.insert([1], [2])
    with pytest.raises(InputError, match="changed since the plan was made"):
        [plan.run(index) for index in range(1, len(plan))]


@pytest.mark.parametrize("most", [1, 50, 100, 1000, None])
def test_parts_have_each_row_group_once(most):
    rng = np.random.default_rng(1)
    for _ in range(100):
        specs = []
        for number in range(rng.integers(1, 8)):
            groups = None if rng.random() < 0.3 else rng.integers(1, 9, rng.integers(0, 6)).tolist()
            specs.append(
                InputSpec(f"f{number}", f"f{number}", int(rng.integers(0, 200)), "", groups)
            )
        parts = cut_parts(specs, most)
        collected = []
        for part in parts:
            assert part.files == 1 or (part.first, part.end) == (0, 0)
            for number in part.numbers:
                whole = range(len(specs[number].groups or [0]))
                collected += [
                    (number, group)
                    for group in (range(part.first, part.end) if part.end else whole)
                ]
            held = sum(specs[number].bytes for number in part.numbers)
            assert part.files == 1 or held <= (most or held)
        assert collected == [
            (number, group)
            for number, spec in enumerate(specs)
            for group in range(len(spec.groups or [0]))
        ]


def test_the_folder_of_another_build_is_refused(tmp_path):
    """Its shards stayed, and were called those of the new plan."""
    a = saved(tmp_path, near_rows(100, 64), 1)
    np.save(tmp_path / "b.npy", near_rows(100, 64, 2))
    finished(plan_build(tmp_path / "pa", a, tmp_path / "crawl"))
    with pytest.raises(StoreExistsError, match="is the output of another plan"):
        plan_build(tmp_path / "pb", tmp_path / "b.npy", tmp_path / "crawl")
    with pytest.raises(InputError, match="is in the folder of the plan"):
        plan_build(tmp_path / "pc", tmp_path / "b.npy", tmp_path / "pc" / "store")
    plan = plan_build(tmp_path / "pd", tmp_path / "b.npy", tmp_path / "other")
    shutil.copytree(tmp_path / "crawl" / "shard-00000.fps", tmp_path / "other" / "shard-00000.fps")
    plan.run(0)
    with pytest.raises(CorruptStoreError, match="is not what the plan makes"):
        plan.finish()
    assert not (tmp_path / "other" / "shards.json").exists()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("change", ["inserted", "merged", "gone"])
@pytest.mark.parametrize("finished_before", [False, True])
def test_a_shard_that_has_changed_is_refused(tmp_path, change, finished_before):
    """It was combined again, under the digest of the plan."""
    plan = plan_build(
        tmp_path / "p",
        saved(tmp_path, near_rows(400, 64)),
        tmp_path / "crawl",
        by="prefix",
        shard_rows=200,
    )
    for index in range(len(plan)):
        plan.run(index)
    wanted = plan.finish() if finished_before else None
    shard = tmp_path / "crawl" / "shard-00001.fps"
    if change == "gone":
        shutil.rmtree(shard)
    else:
        with fpstore.open(shard, "r+") as store:
            store.insert([2**63 + 1], [7])
            if change == "merged":
                store.merge()
    message = (
        r"was written, and is gone"
        if change == "gone"
        else "is not what the plan makes, or has changed: remove it"
    )
    advice = r"results/build-00001\.pieces in the plan, and run again"
    with pytest.raises(FpstoreError, match=rf"shard-00001\.fps: {message}.* {advice}"):
        plan.finish()
    assert (tmp_path / "crawl" / "shards.json").exists() == finished_before
    shutil.rmtree(shard, ignore_errors=True)
    (tmp_path / "p" / "results" / "build-00001.pieces").unlink()
    result = finished_again(plan)
    assert result == (wanted or result)
    fpstore.open(tmp_path / "crawl").close()


def finished_again(plan):
    assert [plan.run(index) for index in range(len(plan))].count(True) == 1
    return plan.finish()


@pytest.mark.full
def test_the_command_line_says_what_a_build_holds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved(tmp_path, near_rows(100, 64), 1)
    fine("task", "build", "b.plan", "crawl", "rows-0.npy")
    fine("task", "run", "b.plan", "--processes", "1")
    assert "fingerprints" in fine("task", "finish", "b.plan")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("suffix", ["parquet", "jsonl", "csv"])
def test_the_command_line_reads_the_columns_that_a_build_reads(tmp_path, monkeypatch, suffix):
    """It asked for their names, and for --text, which it does not have."""
    monkeypatch.chdir(tmp_path)
    rows = [
        {"id": f"u{n}", "fingerprint": f"{value:016x}"} for n, value in enumerate((8, 11, 1 << 40))
    ]
    write(tmp_path / f"day.{suffix}", rows)
    write(tmp_path / f"bare.{suffix}", [{"fingerprint": row["fingerprint"]} for row in rows])
    write(
        tmp_path / f"hash.{suffix}", [{"id": row["id"], "hash": row["fingerprint"]} for row in rows]
    )
    for name, more in (("day", ()), ("bare", ()), ("hash", ("--fingerprint-field", "hash"))):
        fine("build", f"{name}.fps", f"{name}.{suffix}", *more)
        fine("task", "build", f"{name}.plan", name, f"{name}.{suffix}", *more)
        finished(open_plan(f"{name}.plan"))
        with fpstore.open(name) as many, fpstore.open(f"{name}.fps") as store:
            assert everything(many) == everything(store)
            probe = ("task", "probe", f"{name}.probe", name, f"day.{suffix}", f"{name}.found")
            fine(*probe, "-r", "2", "--format", "csv")
    finished(open_plan("day.probe"))
    assert (
        "0,u0,0000000000000008,000000000000000b,2,u1"
        in (tmp_path / "day.found/matches-00000.csv").read_text().split()
    )
    columns = ("--text-field", "id", "--fingerprint-field", "hash")
    both = failure("task", "build", "p", "s", f"day.{suffix}", *columns, code=2)
    (tmp_path / "empty").mkdir()
    for message in (both, failure("task", "build", "p", "s", "empty", code=2)):
        assert not re.search(r"--text\b(?!-field)", message), message
    assert "--text-field" in both


def test_files_without_matches_have_the_types_of_others(tmp_path):
    """They had no strings, and no reader took the folder as one table."""
    store = fpstore.build(tmp_path / "s.fps", [8, 11, 1 << 40], ["a", "b", "c"])
    for number, value in enumerate((2**63, 8)):
        write(tmp_path / "q" / f"{number}.parquet", [{"h": f"{value:016x}", "k": "x"}])
    options = {"fingerprint": "h", "id": "k", "radius": 1, "part_bytes": 1}
    finished(plan_probe(tmp_path / "plan", store, tmp_path / "q", tmp_path / "found", **options))
    rows = near_rows(90, 64)
    store = fpstore.build(tmp_path / "many.fps", rows, [f"u{n}" for n in range(len(rows))])
    finished(
        plan_pairs(tmp_path / "pairs", store, tmp_path / "found-pairs", radius=2, slice_rows=8)
    )
    for folder in ("found", "found-pairs"):
        files = sorted((tmp_path / folder).glob("*.parquet"))
        assert len(files) > 1
        assert {pq.read_metadata(file).num_rows > 0 for file in files} == {False, True}
        assert len({str(pq.read_schema(file)) for file in files}) == 1
