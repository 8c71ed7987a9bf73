"""Ctrl-C at many moments of the jobs over whole stores and corpora: it is raised, nothing is left behind, and a rerun works."""

import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from building import run_python
from commandline import process, run
from resuming import near
from speeds import crossed

import fpstore

MOMENTS = """
    import itertools, os, random, shutil, signal, sys, threading, time
    from pathlib import Path
    import fpstore
    from fpstore.care.stats import describe
    from fpstore.cli.jobs import PAIR_COLUMNS, _write_pairs
    from fpstore.io import open_writer
    from fpstore.io.sink import Sink
    from fpstore.jobs import grouping, joining, report
    from fpstore.jobs.report_files import Files
    from fpstore.jobs.clusters import CLUSTER_COLUMNS, write_clusters
    from fpstore.base.resources import Resources
    from fpstore.store import snapshot_of

    name, moments = sys.argv[1], int(sys.argv[2])
    joining.LEAST_ROWS, grouping.PIECE = 500, 700
    store, few = fpstore.open("s.fps"), fpstore.open("few.fps")

    def written(batches, out):
        with open_writer(out, columns=PAIR_COLUMNS) as writer:
            _write_pairs(batches, writer)

    def clustered(out):
        found = store.clusters(group="greedy", keep="smallest", threads=2)
        with open_writer(out, columns=CLUSTER_COLUMNS) as writer:
            write_clusters(found, writer, Resources(1 << 30, 2))

    def reported(out):
        page = report.page_of(
            snapshot_of(store), describe(snapshot_of(store), 0), 3, Files(None, None), Resources(1 << 30, 2)
        )
        with Sink(out) as sink:
            sink.write(page.encode())

    def deduplicated(out, **how):
        fpstore.dedup("c.jsonl", out, text="text", id="id", keep="smallest", group="greedy", threads=2, **how)

    def resumed(out):
        deduplicated(out, resume="kept")

    jobs = {
        "pairs": lambda out: written(store.pairs(threads=2), out),
        "join": lambda out: written(store.join(few, 8, threads=2), out),
        "cluster": clustered,
        "report": reported,
        "dedup": deduplicated,
        "dedup hashes": lambda out: fpstore.dedup("h.tsv", out, fingerprint="hash", id="id", keep="central", threads=1),
        "dedup folder": lambda out: fpstore.dedup("notes", Path(out).with_suffix(""), text=True, threads=2),
        "dedup resumed": resumed,
    }
    job, suffix = jobs[name], {"dedup": ".jsonl", "dedup resumed": ".jsonl", "report": ".html"}.get(name, ".tsv")

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
    for _ in range(moments):
        try:
            signal.setitimer(signal.ITIMER_REAL, random.random() * took * 1.1 + 1e-4)
            job(out)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            interrupted += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        remove(out)  # it may have been written just before
        assert listing() == before, listing()
        assert threading.active_count() == 1
        assert not list(Path("kept").glob("*.tmp"))
    job(out)
    assert content(out) == content(wanted)
    assert not Path("kept").exists()
    store.close()
    few.close()
    print("interrupted", interrupted > 0)
"""

JOBS = ["pairs", "join", "cluster", "report", "dedup", "dedup hashes", "dedup folder", "dedup resumed"]


@pytest.mark.parametrize("moments", [4, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("job", JOBS)
def test_interrupts_at_many_moments(job_folder, job, moments):
    code, out, err = run_python(MOMENTS, job, moments)
    assert (code, out) == (0, "interrupted True\n"), err


COMMANDS = {
    "pairs": "pairs big.fps -o out.tsv --threads 2 --radius 8",
    "join": "join big.fps other.fps -o out.tsv --threads 2 --radius 8",
    "dedup": "dedup big.tsv out.tsv --fingerprint-field hash --threads 2 --resume",
    "cluster": "cluster big.fps -o out.tsv --threads 1",
    "report": "report big.fps -o out.html --threads 2",
}


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Return a folder with stores and a file that the commands read for a while."""
    place = tmp_path_factory.mktemp("large")
    fpstore.build(place / "big.fps", near(1, 200_000)).close()
    fpstore.build(place / "other.fps", near(2, 200_000)).close()
    (place / "big.tsv").write_text("hash\n" + "".join(f"{f:016x}\n" for f in near(3, 200_000).tolist()))
    return place


@pytest.mark.parametrize(("job", "seconds"), crossed(list(COMMANDS), [0.4, 0.9], share=3))
def test_a_signal_to_a_command(large, tmp_path, monkeypatch, job, seconds):
    """It ends with one line, and with nothing at the output; what is kept to go on stays."""
    monkeypatch.chdir(tmp_path)
    for entry in large.iterdir():
        Path(entry.name).symlink_to(entry)
    before = sorted(path.name for path in Path().iterdir())
    command = process(*COMMANDS[job].split())
    with suppress(subprocess.TimeoutExpired):
        command.wait(seconds)
    command.send_signal(signal.SIGINT)
    _, err = command.communicate(timeout=60)
    left = sorted(path.name for path in Path().iterdir())
    if command.returncode == 0:  # it was done before
        return
    if command.returncode == -signal.SIGINT:  # Python did not handle signals yet, or not any more
        output = "out.html" if job == "report" else "out.tsv"
        assert left in (before, sorted([*before, output]))
        return
    kept = ["out.tsv.resume"] if job == "dedup" and Path("out.tsv.resume").exists() else []
    then = b"; what was done is in out.tsv.resume: the same command goes on with it" if kept else b""
    assert (command.returncode, err.splitlines()[-1]) == (130, b"fpstore: interrupted" + then)
    assert left == sorted([*before, *kept])
    assert run(*COMMANDS[job].split()).exit_code == 0
    assert Path(COMMANDS[job].split()[3 if job != "dedup" else 2]).exists() or Path("out.tsv").exists()
    assert not Path("out.tsv.resume").exists()


def test_a_sink_that_nobody_has_got_leaves_no_file(tmp_path):
    """An interrupt may come when it has been made, and before the block that would abort it."""
    from fpstore.io import open_writer

    writer = open_writer(tmp_path / "x.tsv", columns=["id"])
    writer.write({"id": np.arange(5)})
    assert len(list(tmp_path.iterdir())) == 1
    del writer
    assert list(tmp_path.iterdir()) == []
