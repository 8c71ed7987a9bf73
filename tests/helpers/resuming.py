"""Jobs that are killed when they rename a file, and resumed: their inputs, and the commands."""

import itertools
import json
import os
import signal
from contextlib import chdir
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import copied

import fpstore
from fpstore.cli import main

ROWS = 4000
WORDS = [f"word{i}" for i in range(300)]


def near(seed, count=ROWS):
    """Return fingerprints of which many are near another one."""
    rng = np.random.default_rng(seed)
    centres = rng.integers(0, 2**64, count // 2, dtype=np.uint64)
    return np.unique(
        np.concatenate(
            [
                centres,
                centres ^ (np.uint64(1) << rng.integers(0, 64, len(centres)).astype(np.uint64)),
            ]
        )
    )


@pytest.fixture
def small_parts(set_limits):
    """Let a few hundred rows be a part."""
    set_limits(join_rows=500, join_part_rows=100, join_pairs=200, probed_rows=100)
    set_limits(compared_rows=100, line_bytes=1 << 12)


@pytest.fixture(scope="session")
def inputs_of_jobs(tmp_path_factory):
    """Return a folder with what the jobs work on."""
    place = tmp_path_factory.mktemp("jobs")
    with chdir(place):
        rng = np.random.default_rng(3)
        fpstore.build("s.fps", near(1), [f"doc {i}" for i in range(len(near(1)))], radius=3).close()
        fpstore.build("few.fps", near(1)[::5] ^ np.uint64(4), radius=3).close()
        texts = [" ".join(rng.choice(WORDS, 30)) for _ in range(400)]
        rows = [
            {"id": f"i{n}", "text": texts[n % 380] if n % 50 else None, "score": n % 7}
            for n in range(900)
        ]
        Path("c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        pq.write_table(pa.Table.from_pylist(rows), "c.parquet", row_group_size=150)
        Path("c.csv").write_text(
            "id,text\n" + "".join(f'{n},"{row["text"] or ""}"\n' for n, row in enumerate(rows))
        )
        Path("h.tsv").write_text(
            "hash\tid\n" + "".join(f"{f:016x}\t{n}\n" for n, f in enumerate(near(2, 900).tolist()))
        )
        Path("r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:60]))
        Path("notes").mkdir()
        for n, text in enumerate(texts[:130]):
            Path(f"notes/{n % 120}.txt").write_text(text)
            Path(f"notes/copy-{n % 9}.txt").write_text(text)
    return place


@pytest.fixture
def job_folder(inputs_of_jobs, tmp_path, monkeypatch, small_parts):
    copied(inputs_of_jobs, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


JOBS = {
    "dedup texts": "dedup c.jsonl {} --text-field text --id-field id --clusters {}.tsv "
    "--threads 2 --force",
    "dedup bands": "dedup c.jsonl {} --text-field text --id-field id --removed {}.tsv "
    "--search bands --threads 2 --force",
    "dedup estimates": "dedup c.jsonl {} --text-field text --id-field id --removed {}.tsv "
    "--estimate --threads 1 --force",
    "dedup parquet": "dedup c.parquet {} --text-field text --keep central --threads 1 --force",
    "dedup csv": "dedup c.csv {} --text-field text --id-field id --keep smallest --group greedy "
    "--threads 1 --force",
    "dedup against": "dedup c.jsonl {} --text-field text --against r.jsonl --removed {}.tsv "
    "--threads 1 --force",
    "dedup hashes": "dedup h.tsv {} --fingerprint-field hash --id-field id --keep central "
    "--threads 2 --force",
    "pairs": "pairs s.fps --output {} --threads 2",
    "pairs by one": "pairs s.fps --output {} --threads 1 --radius 2",
    "join": "join s.fps few.fps --output {} --threads 2 --radius 8",
    "join by probes": "join s.fps few.fps --output {} --threads 2 --radius 3",
    "cluster": "cluster s.fps --output {} --threads 2",
    "cluster by one": "cluster s.fps --output {} --group greedy --threads 1",
}
SUFFIXES = {
    "dedup csv": ".csv",
    "dedup hashes": ".tsv",
    "dedup parquet": ".parquet",
} | dict.fromkeys(("dedup texts", "dedup estimates", "dedup bands", "dedup against"), ".jsonl")


def command(job, name):
    return JOBS[job].format(f"{name}{SUFFIXES.get(job, '.tsv')}", name).split()


def outputs(name):
    """Return what a job has written, and the names that a killed one may leave, too."""
    return {
        path.name.removeprefix(name): path.read_bytes()
        for path in Path().glob(f"{name}*")
        if path.is_file()
    }


def calls_in_a_child(work, call, methods, after=False):
    """Do some work in a process that is killed at a call of these (owner, name), or just after it.

    Return how many such calls it has made; None if it was killed.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        calls = itertools.count(1)

        def counted(done, *args, **kwargs):
            last = next(calls) == call
            result = None if last and not after else done(*args, **kwargs)
            return os.kill(os.getpid(), signal.SIGKILL) if last else result

        for owner, name in methods:
            done = getattr(owner, name)
            setattr(owner, name, lambda *args, done=done, **kwargs: counted(done, *args, **kwargs))
        try:
            work()
            os.write(writing, str(next(calls) - 1).encode())
        finally:
            os._exit(0)
    os.close(writing)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL)
    with os.fdopen(reading) as pipe:
        count = pipe.read()
    return int(count) if count else None


RENAMES = [(Path, "replace"), (os, "link")]  # how an output and a finished part appear


def in_another(arguments, call=0, methods=RENAMES, after=False):
    """Run a command in a process that is killed when it names a file, or calls other functions."""
    return calls_in_a_child(lambda: main(arguments, standalone_mode=False), call, methods, after)


def killed(arguments, call):
    """Run a command, likewise; return whether it was killed."""
    return in_another(arguments, call) is None
