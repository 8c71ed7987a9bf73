"""Ctrl-C at many moments of the jobs over whole stores and corpora.

It is raised, nothing is left behind, and a rerun works.
"""

import os

import numpy as np
import pytest
from building import run_python
from speeds import slow
from systemcalls import at_first_call

MOMENTS = """
    import os, random, shutil, signal, sys, time
    from pathlib import Path
    import pyarrow.json, pyarrow.parquet
    import fpstore
    from fpstore.care.stats import describe
    from fpstore.cli.jobs import PAIR_COLUMNS, _write_pairs
    from fpstore.io import open_writer
    from fpstore.io.sink import Sink
    from fpstore.jobs import grouping, joining, report, sorting
    from fpstore.jobs.report_files import Files
    from fpstore.jobs.clusters import CLUSTER_COLUMNS, write_clusters
    from fpstore.base.resources import Resources

    name, moments = sys.argv[1], int(sys.argv[2])
    joining.MIN_ROWS, sorting.PART_ROWS, grouping.PIECE = 500, 100, 700
    store, few = fpstore.open("s.fps"), fpstore.open("few.fps")

    def written(batches, out):
        with open_writer(out, columns=PAIR_COLUMNS) as writer:
            _write_pairs(batches, writer)

    def clustered(out):
        found = store.clusters(group="greedy", keep="smallest", threads=2)
        with open_writer(out, columns=CLUSTER_COLUMNS) as writer:
            write_clusters(found, writer, None)

    def reported(out):
        snapshot, resources = store.snapshot(), Resources(1 << 30, 2)
        page = report.report_page(
            snapshot, describe(snapshot, 0), 3, Files(None, None), resources
        )
        with Sink(out) as sink:
            sink.write(page.encode())

    def deduplicated(out, source="c.jsonl", **how):
        choice = {"keep": "smallest", "group": "greedy", "threads": 2, **how}
        fpstore.dedup(source, out, text="text", id="id", **choice)

    def hashes(out):
        fpstore.dedup("h.tsv", out, fingerprint="hash", id="id", keep="central", threads=1)

    def folder(out):
        fpstore.dedup("notes", Path(out).with_suffix(""), text=True, threads=2)

    def boilerplate(out):
        fpstore.remove_boilerplate("notes", Path(out).with_suffix(""), text=True, more_than=2)

    def passages(out):
        fpstore.remove_passages("notes", Path(out).with_suffix(""), text=True, words=3)

    def parquet(out):
        deduplicated(Path(out).with_suffix(".parquet"), source="c.parquet")

    def resumed(out):
        deduplicated(out, resume="kept")

    jobs = {
        "pairs": lambda out: written(store.pairs(threads=2), out),
        "join": lambda out: written(store.join(few, 8, threads=2), out),
        "cluster": clustered,
        "report": reported,
        "dedup": deduplicated,
        "dedup hashes": hashes,
        "dedup folder": folder,
        "dedup resumed": resumed,
        "dedup shards": lambda out: deduplicated(Path(out).with_suffix(""), source="crawl"),
        "dedup parquet": parquet,
        "boilerplate": boilerplate,
        "passages": passages,
    }
    pyarrow.parquet.write_table(pyarrow.json.read_json("c.jsonl"), "c.parquet")
    Path("crawl").mkdir()
    for shard in range(4):
        shutil.copy("c.jsonl", f"crawl/{shard}.jsonl")
    suffixes = {"dedup": ".jsonl", "dedup resumed": ".jsonl", "dedup parquet": ".parquet"}
    suffixes["report"] = ".html"
    job, suffix = jobs[name], suffixes.get(name, ".tsv")

    def content(out):
        out = Path(out)
        if out.is_file():
            return out.read_bytes()
        return {path.name: path.read_bytes() for path in out.with_suffix("").iterdir()}

    def remove(out):
        Path(out).unlink(missing_ok=True)
        shutil.rmtree(Path(out).with_suffix(""), ignore_errors=True)

    def listing():
        return sorted(path.name for path in Path().iterdir() if path.name != "kept")

    wanted, out = "whole" + suffix, "out" + suffix
    job(wanted)
    before = listing()
    start = time.perf_counter()
    job(out)
    took = time.perf_counter() - start
    assert content(out) == content(wanted)
    remove(out)
    random.seed(1)
    interrupted = 0
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    for number in range(moments + 20):  # until one has met the job, also after a slow first run
        if number >= moments and interrupted:
            break
        try:
            signal.setitimer(signal.ITIMER_REAL, random.random() * took * 1.1 + 1e-4)
            job(out)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            interrupted += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        took *= 1 if interrupted else 0.5  # it was longer than it is now: the machine was busy
        for _ in range(1 << 22):  # an interrupt may have met a thread at its start
            if len(sys._current_frames()) == 1:
                break
            os.sched_yield()
        assert len(sys._current_frames()) == 1
        remove(out)  # it may have been written just before
        assert listing() == before, listing()
        assert not list(Path("kept").rglob(".unfinished-*"))
    job(out)
    assert content(out) == content(wanted)
    assert not Path("kept").exists()
    store.close()
    few.close()
    print("interrupted", interrupted > 0)
"""

LONG = (
    "join",
    "cluster",
    "dedup",
    "dedup hashes",
    "dedup folder",
    "dedup parquet",
    "boilerplate",
    "passages",
)
JOBS = ["pairs", "report", "dedup resumed", "dedup shards", *map(slow, LONG)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("moments", [4, slow(60)])
@pytest.mark.parametrize("job", JOBS)
def test_interrupts_at_many_moments(job_folder, job, moments):
    code, out, err = run_python(MOMENTS, job, moments)
    assert (code, out) == (0, "interrupted True\n"), err


def test_a_sink_that_nobody_has_got_leaves_no_file(tmp_path):
    """An interrupt may come when it has been made, and before the block that would abort it."""
    from fpstore.io import open_writer

    writer = open_writer(tmp_path / "x.tsv", columns=["id"])
    writer.write({"id": np.arange(5)})
    assert len(list(tmp_path.iterdir())) == 1
    del writer
    assert list(tmp_path.iterdir()) == []


def test_interrupts_in_a_removal_are_raised_as_interrupts(tmp_path, monkeypatch):
    """The removal of a tree closed a descriptor twice, and raised that error in their place."""
    from fpstore.disk.folders import remove_tree

    (tmp_path / "kept" / "results").mkdir(parents=True)
    close = os.close

    def interrupted(descriptor):
        monkeypatch.undo()
        close(descriptor)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        remove_tree(tmp_path / "kept")


def test_an_interrupt_in_its_removal_leaves_no_temporary_folder(tmp_path):
    from fpstore.disk.folders import temporary_folder

    def interrupt():
        raise KeyboardInterrupt

    with (
        pytest.raises(KeyboardInterrupt),
        at_first_call("unlink", "/file", before=interrupt),
        temporary_folder(tmp_path, ".unfinished-") as folder,
    ):
        (folder / "file").write_bytes(b"of a task")
    assert list(tmp_path.iterdir()) == []
