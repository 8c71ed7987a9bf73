"""Jobs that are killed and resumed.

The same result, byte for byte, without doing again what was done.
"""

import itertools
import os
import re
import signal
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from commandline import failure, fine, run
from forks import forked
from resuming import JOBS, RENAMES, command, in_another, killed, near, outputs
from speeds import slow
from systemcalls import at_calls

import fpstore.plans
from fpstore import MinHash
from fpstore.base.strings import StringColumn
from fpstore.errors import CorruptStoreError, InputError, StoreLockedError
from fpstore.jobs import compared
from fpstore.work.checkpoint import Checkpoint


def resumed(err):
    """Return how much was found done by a job, and how much there was."""
    return [
        tuple(int(n.replace(",", "")) for n in item)
        for item in re.findall(r"([\d,]+) of ([\d,]+) \w", err)
    ]


THIN = ("dedup hashes", "dedup against", "pairs", "join by probes", "cluster by one")


@pytest.mark.full
@pytest.mark.parametrize("calls", ["some", pytest.param("more", marks=pytest.mark.slow)])
@pytest.mark.parametrize("job", [job if job in THIN else slow(job) for job in JOBS])
def test_a_job_that_is_killed_goes_on(job_folder, job, calls):
    """The plan of the folder appears first, then each part, then the outputs."""
    assert run(*command(job, "whole")).exit_code == 0
    expected = outputs("whole")
    count = in_another([*command(job, "counted"), "--resume"])
    assert count > 4
    written = 2 if "clusters" in JOBS[job] else 1
    before = []
    at = {2, max(4, count // 2), count - written + 1}
    if calls == "more":
        at |= {1, 3, count // 2, count - written, count}
    for call in sorted(at):
        name = f"killed-{call}"
        arguments = [*command(job, name), "--resume"]
        assert killed(arguments, call)
        assert list(Path().glob(f"{name}*.resume"))
        again = run(*arguments)
        assert again.exit_code == 0, again.stderr
        assert outputs(name) == expected
        assert not [*Path().glob("*.resume"), *Path().glob(".*")]
        if call > 1:
            assert "is not done again" in again.stderr
            before.append(resumed(again.stderr.partition("resumed: ")[2]))
    done = [sum(item for item, _ in case) for case in before]
    # A second thread may have been about to rename its part.
    assert all(later >= earlier - 1 for earlier, later in itertools.pairwise(done))
    assert done[0] == 0
    assert done[-2] > 0
    assert done[1] < done[-1]
    # only the output was left to be written
    assert all(item == total for item, total in before[-1])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("job", ["dedup texts", slow("pairs"), slow("join by probes"), "cluster"])
def test_a_damaged_part_is_found_and_done_again(job_folder, job):
    assert run(*command(job, "whole")).exit_code == 0
    arguments = [*command(job, "hurt"), "--resume"]
    assert killed(arguments, 6)
    (kept,) = Path().glob("hurt*.resume")
    hurt = sorted(kept.glob("results/*.pieces"))[0]
    data = bytearray(hurt.read_bytes())
    data[len(data) // 2] ^= 4
    hurt.write_bytes(data)
    (kept / "results" / ".unfinished-77").mkdir()
    (kept / "results" / "table-0-00077.pieces").write_bytes(b"a part of another program")
    again = run(*arguments)
    assert again.exit_code == 0, again.stderr
    assert outputs("hurt") == outputs("whole")
    assert not kept.exists()


def test_a_part_is_taken_if_it_is_intact(tmp_path):
    with suppress(KeyError), Checkpoint(tmp_path / "kept", {"job": "test"}) as kept:
        with kept.create_result("rows", 5) as writer:
            writer.add("a", np.arange(5, dtype=np.uint64))
            writer.add_ids("b", StringColumn.from_strings(["some", "text"]))
        path = tmp_path / "kept" / "results" / "rows-00005.pieces"
        image = path.read_bytes()
        flipped = [
            bytes(byte ^ 4 * (place == wrong) for place, byte in enumerate(image))
            for wrong in (0, 45, len(image) // 2, len(image) - 1)
        ]
        for changed in (*flipped, image[:-1], image[:20], b"", image + b"\n"):
            path.write_bytes(changed)
            assert kept.result("rows", 5) is None
        path.rename(path.with_name("rows-00006.pieces")).write_bytes(image)
        assert kept.result("rows", 6) is None, "a part says which it is"
        path.write_bytes(image)
        pieces = kept.result("rows", 5)
        assert pieces.read("a").tolist() == [*range(5)]
        assert pieces.read_ids("b").texts() == ["some", "text"]
        with kept.create_result("rows", 7) as writer:
            writer.add("a", np.arange(5, dtype=np.uint64))
            raise KeyError
    names = ["rows-00005.pieces", "rows-00006.pieces"]
    assert sorted(path.name for path in (tmp_path / "kept" / "results").iterdir()) == names
    with Checkpoint(tmp_path / "kept", {"job": "test"}) as kept:
        assert kept.numbers("rows") == [5, 6]
    assert not (tmp_path / "kept").exists()


# --- What is refused ------------------------------------------------------------------------------


@pytest.mark.full
def test_another_job_is_refused(job_folder):
    arguments = [*command("pairs", "p"), "--resume"]
    assert killed(arguments, 4)
    said = failure(*arguments, "--radius", "2")
    assert (
        "p.tsv.resume: radius was 3 when this job began, and is 2: give the same again, or remove "
        "the folder" in said
    )
    assert "job was 'pairs' when" in failure(
        "join", "s.fps", "few.fps", "--output", "p.tsv", "--resume"
    )
    note = run(*command("pairs", "p"))  # without --resume
    assert note.exit_code == 0
    assert "p.tsv.resume is of a job that did not end; --resume goes on with it" in note.stderr
    assert Path("p.tsv.resume/plan.json").exists()
    with pytest.raises(InputError, match="is the folder of a job that can be resumed, not a plan"):
        fpstore.plans.open_plan("p.tsv.resume")
    Path("p.tsv").unlink()
    with fpstore.open("s.fps", "r+") as store:
        store.insert([12345], ["new"])
        assert "store log records was 0 when this job began, and is 1" in failure(*arguments)
        store.merge()
    assert "store generation was 1 when this job began, and is 2" in failure(*arguments)
    assert "--resume needs an output file" in failure("pairs", "s.fps", "--resume", code=2)
    with pytest.raises(InputError, match="is for files"):
        fpstore.dedup(pa.table({"h": [1, 2]}), fingerprint="h", resume="kept")
    assert not Path("kept").exists()


def test_a_corpus_that_has_changed_is_refused(job_folder):
    """Of two files in another order, the kept rows of one were taken for those of the other."""
    Path("d.jsonl").write_bytes(Path("c.jsonl").read_bytes().replace(b'"id": "i', b'"id": "j'))
    options = [
        "out.jsonl",
        "--text-field",
        "text",
        "--id-field",
        "id",
        "--resume",
        "--threads",
        "1",
    ]
    arguments = ["dedup", "c.jsonl", "d.jsonl", *options]
    assert killed(arguments, 4)
    assert "keep was 'longest' when this job began, and is 'smallest'" in failure(
        *arguments, "--keep", "smallest"
    )
    assert "fingerprinter was {" in failure(*arguments, "--shingle", "chars")
    assert "file 1 was ['c.jsonl', " in failure("dedup", "d.jsonl", "c.jsonl", *options)
    assert "file 2 was ['d.jsonl', " in failure("dedup", "c.jsonl", *options)
    Path("c.jsonl").touch()
    assert "file 1 was ['c.jsonl', " in failure(*arguments)
    assert list(Path("out.jsonl.resume").glob("results/rows-*"))


@pytest.mark.full
def test_parts_that_begin_at_another_row_are_not_taken(job_folder, set_limits):
    """After a damaged part, one of an earlier run followed, which began elsewhere."""
    options = [
        "c.jsonl",
        "out.jsonl",
        "--text-field",
        "text",
        "--id-field",
        "id",
        "--resume",
        "--threads",
        "1",
    ]
    fine("dedup", *options[:1], "whole.jsonl", *options[2:-3], "--quiet")
    assert killed(["dedup", *options], 6)
    parts = sorted(Path("out.jsonl.resume").glob("results/rows-*"))
    assert len(parts) > 2
    with parts[1].open("r+b") as file:
        file.truncate(50)
    compared.PART_ROWS = 1 << 20  # as a test may set it: the fixture restores it
    set_limits(compared_chars=30_000)  # of about 170 rows
    assert killed(["dedup", *options], 4)
    assert (
        len(
            {path.stem for path in Path("out.jsonl.resume").glob("results/rows-*")}
            - {path.stem for path in parts}
        )
        > 1
    )
    assert run("dedup", *options).exit_code == 0
    assert Path("out.jsonl").read_bytes() == Path("whole.jsonl").read_bytes()


@pytest.mark.full
def test_a_second_process_is_refused(job_folder):
    arguments = [*command("pairs", "p"), "--resume"]
    assert killed(arguments, 4)
    with fpstore.open("s.fps") as store:
        batches = store.pairs(threads=2, resume="p.tsv.resume")
        assert len(next(batches))
        child = os.fork()
        if not child:
            result = run(*arguments)
            os._exit(
                int(
                    result.exit_code != 3
                    or f"process {os.getppid()} is running this job" not in result.stderr
                )
            )
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with pytest.raises(StoreLockedError, match="this process is running this job"):
            next(store.pairs(threads=2, resume="p.tsv.resume"))
        batches.close()
    assert run(*arguments).exit_code == 0


def test_folders_of_others_are_left_alone(job_folder):
    Path("p.tsv.resume").mkdir()
    Path("p.tsv.resume/mine.txt").write_text("mine")
    Path("q.tsv.resume").write_text("a file")
    for name in "pq":
        assert "is not the folder of a job" in failure(*command("pairs", name), "--resume")
    assert [p.name for p in Path("p.tsv.resume").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("name", ["plan.json", "plan.lock", "results/rows-00001.pieces"])
def test_a_link_in_the_folder_is_never_written_through(tmp_path, name):
    """The folder itself may be one, as the user names it."""
    (tmp_path / "there").mkdir()
    (tmp_path / "kept").symlink_to("there")
    with suppress(KeyError), Checkpoint(tmp_path / "kept", {"job": "test"}) as kept:
        with kept.create_result("rows", 1):
            pass
        raise KeyError
    link, victim = tmp_path / "there" / name, tmp_path / "victim"
    link.rename(victim)
    before = victim.read_bytes(), victim.stat().st_mtime_ns
    link.symlink_to(victim)
    refused = False
    try:
        with Checkpoint(tmp_path / "kept", {"job": "test"}) as kept, kept.create_result("rows", 1):
            pass
    except CorruptStoreError:
        refused = True
    assert refused == (name == "plan.lock")
    assert (victim.read_bytes(), victim.stat().st_mtime_ns) == before


# --- In Python ------------------------------------------------------------------------------------


def test_a_refused_output_leaves_no_folder(job_folder):
    """The folder of a job that never began stood in the way of the next one."""
    Path("dir.tsv").mkdir()
    for output in ("x.pdf", "dir.tsv"):
        for verb in (("pairs", "s.fps"), ("cluster", "s.fps"), ("join", "s.fps", "few.fps")):
            assert run(*verb, "--output", output, "--resume").exit_code == 2
    wrong = ("--text-field", "text", "--clusters", "dir.tsv", "--force", "--resume")
    assert run("dedup", "c.jsonl", "out.jsonl", *wrong).exit_code == 2
    assert not list(Path().glob("*.resume"))
    assert run("pairs", "s.fps", "--output", "x" * 247 + ".tsv").exit_code == 0


def test_an_interrupt_says_how_to_go_on(job_folder, monkeypatch):
    monkeypatch.setattr(
        "fpstore.jobs.pairs.join_design", lambda *_: signal.raise_signal(signal.SIGINT)
    )

    def interrupted():
        result = run(*command("pairs", "p"), "--resume")
        return f"{result.exit_code} {result.stderr}"

    kept = "what was finished is in p.tsv.resume: the same command goes on with it"
    assert forked(interrupted) == f"130 fpstore: interrupted; {kept}\n"


def test_no_text_of_a_finished_part_is_hashed_again(job_folder):
    seen = []

    class Noting(MinHash):
        def hashed(self, items):
            seen.extend(items)
            return super().hashed(items)

    def stop(phase, done, total):
        if phase == "reading" and done > 500:
            raise KeyboardInterrupt

    options = {"text": "text", "threads": 1, "fingerprinter": Noting(), "radius": 45}
    wanted = fpstore.dedup("c.jsonl", **options)
    texts = list(seen)
    with pytest.raises(KeyboardInterrupt):
        fpstore.dedup("c.jsonl", progress=stop, resume="kept", **options)
    seen.clear()
    result = fpstore.dedup("c.jsonl", resume="kept", **options)
    assert (result.kept.tolist(), list(result.clusters)) == (
        wanted.kept.tolist(),
        list(wanted.clusters),
    )
    assert len(seen) < len(texts) - 300
    assert seen == texts[-len(seen) :]
    assert not Path("kept").exists()


def test_pairs_and_joins_that_are_left_in_the_middle(job_folder):
    with fpstore.open("s.fps") as store, fpstore.open("few.fps") as few:
        inputs, ids = near(1)[::7], [f"g{i}" for i in range(len(near(1)[::7]))]
        jobs = {
            "pairs": lambda **how: store.pairs(**how),
            "join": lambda **how: store.join(few, 7, **how),
            "given": lambda **how: store.join(inputs, 7, ids=ids, **how),
        }
        for name, job in jobs.items():
            wanted = [tuple(pair) for batch in job(threads=2) for pair in batch]
            result = job(threads=2, resume=name)
            taken = 0
            while not list(Path(name).glob("results/*.pieces")):
                taken += len(next(result))
            result.close()
            results = [tuple(pair) for batch in job(threads=2, resume=name) for pair in batch]
            assert results == wanted
            assert 0 < taken < len(wanted)
            assert not Path(name).exists()
        result = jobs["given"](threads=2, resume="given")
        next(result)
        result.close()
        with pytest.raises(InputError, match="other rows was"):
            next(store.join(inputs, 7, ids=["other", *ids[1:]], threads=2, resume="given"))


@pytest.mark.full
def test_parts_that_were_read_are_closed(job_folder):
    """Each stayed open until the end: a job of hundreds of parts met the limit of open files."""
    assert killed([*command("pairs", "p"), "--resume"], 10)
    assert len(list(Path("p.tsv.resume").glob("results/table-*"))) > 5
    files = Path("/proc/self/fd")
    with fpstore.open("s.fps") as store:
        before = len(list(files.iterdir()))
        opened = [len(list(files.iterdir())) for _ in store.pairs(threads=2, resume="p.tsv.resume")]
    assert max(opened) <= before + 6


def test_clusters_with_fewer_threads_than_before(job_folder):
    """Spans are others then: what fits is taken, the rest is searched again."""

    class StopError(Exception):
        pass

    def stop(phase, done, total):
        if phase == "clustering" and done > total // 2:
            raise StopError

    with fpstore.open("s.fps") as store:
        wanted = list(store.clusters())
        with pytest.raises(StopError):
            store.clusters(threads=2, progress=stop, resume="kept")
        assert list(Path("kept").glob("results/table-*"))
        assert list(store.clusters(threads=1, resume="kept")) == wanted
    assert not Path("kept").exists()


@pytest.mark.full
@pytest.mark.usefixtures("job_folder")
@pytest.mark.parametrize(
    "asked",
    [
        "dedup c.csv {}/out.csv --text-field text --id-field id --clusters {}/list.tsv --threads 1",
        slow("dedup c.jsonl {}/out.jsonl --text-field text --threads 1"),
        "dedup notes {}/out --text --clusters {}/list.tsv --threads 1",
        slow("pairs s.fps --output {}/out.tsv --threads 1"),
        slow("join s.fps few.fps --output {}/out.tsv --threads 1"),
        "cluster s.fps --output {}/out.tsv --threads 1",
    ],
)
def test_a_job_that_is_killed_as_its_outputs_appear_is_finished(asked):
    """The same command was refused then, because the output was there.

    And the list of clusters was missing.
    """

    def in_folder(name):
        Path(name).mkdir()
        return [*asked.format(name, name).split(), "--resume"]

    def content(name):
        paths = [path for path in Path(name).rglob("*") if path.is_file()]
        return {
            "/".join(path.parts[1:]): path.read_bytes()
            for path in paths
            if not re.match(r"\.|.*\.resume", path.parts[1])
        }

    appearing, removing = [*RENAMES, (Path, "rmdir")], [(Path, "unlink")]
    count = in_another(in_folder("whole"), methods=appearing)
    removed = in_another(in_folder("removed"), methods=removing)
    expected = content("whole")
    assert ("list.tsv" in expected) == ("--clusters" in asked)
    states = []
    for call in (*range(count, count - 2, -1), removed // 2, *range(count - 2, 0, -1)):
        name = f"killed-{len(states)}"
        arguments = in_folder(name)
        assert (
            in_another(arguments, call, removing if len(states) == 2 else appearing, after=True)
            is None
        )
        states.append(content(name))
        if not list(Path(name).glob("*.resume/plan.json")):  # it has ended
            assert states[-1] == expected
            continue
        again = run(*arguments)
        assert again.exit_code == 0, again.stderr
        assert content(name) == expected
        assert not list(Path(name).glob(".*"))
        if not states[-1]:
            break
    listed = {"list.tsv": expected["list.tsv"]} if "--clusters" in asked else {}
    assert [state for state, _ in itertools.groupby(states)] == [
        expected,
        *([listed] if listed else []),
        {},
    ]


def refuses_another(arguments, name):
    """Put a file in the place of an output: the job leaves it alone."""
    Path(name).write_text("mine")
    assert re.search(rf"{name}(, the output,)? exists: --force replaces it", failure(*arguments))
    assert Path(name).read_text() == "mine"
    Path(name).unlink()


@pytest.mark.full
def test_the_rest_of_the_folder_of_an_ended_job_goes(job_folder):
    """A kill as the folder is removed leaves results without a plan, beside the whole output."""
    arguments = command("pairs", "p")
    assert killed([*arguments, "--resume"], 4)
    Path("p.tsv.resume/plan.json").unlink()
    assert list(Path("p.tsv.resume/results").iterdir())
    again = run(*arguments)
    assert (again.exit_code, "did not end" in again.stderr) == (0, False)
    assert not Path("p.tsv.resume").exists()


def test_an_interrupt_as_the_folder_goes_leaves_nothing_of_it(tmp_path):
    """The message said that the same command went on, and that found the output in its way."""
    calls = itertools.count()

    def interrupted(remove):
        remove()
        if next(calls) == 1:
            raise KeyboardInterrupt

    folder = tmp_path / "kept"
    checkpoint = Checkpoint(folder, {})
    for number in range(3):
        with checkpoint.create_result("rows", number):
            pass
    with at_calls("unlink", interrupted), pytest.raises(KeyboardInterrupt), checkpoint:
        pass
    assert not folder.exists()


@pytest.mark.full
@pytest.mark.usefixtures("job_folder")
def test_a_file_that_the_job_has_not_made_is_not_replaced():
    """The job noted only the name of the list of clusters, and took whatever had it for its own."""
    queries = (
        "dedup c.csv {}.csv --text-field text --id-field id --clusters {}.tsv --threads 1 --resume"
    )
    arguments = queries.format("out", "list").split()
    count = in_another(queries.format("whole", "whole").split())
    # before the list gets its name, and then the output
    assert in_another(arguments, count - 1) is None
    assert [name for name in ("list.tsv", "out.csv") if Path(name).exists()] == []
    refuses_another(arguments, "list.tsv")
    refuses_another(arguments, "out.csv")
    assert any(
        in_another(arguments, call, after=True) is None and Path("list.tsv").exists()
        for call in range(1, 5)
    )
    refuses_another(arguments, "list.tsv")
    assert run(*arguments).exit_code == 0
    assert Path("out.csv").read_bytes() == Path("whole.csv").read_bytes()
    assert Path("list.tsv").read_bytes() == Path("whole.tsv").read_bytes()


@pytest.mark.sampled(1)
@pytest.mark.usefixtures("job_folder")
@pytest.mark.parametrize(("source", "text"), [("c.jsonl", "text"), ("notes", True)])
def test_call_that_ended_before_its_folder_went_is_repeated(monkeypatch, source, text):
    def dedup():
        return fpstore.dedup(source, f"new-{source}", text=text, threads=1, resume="kept")

    def stop(kept):
        kept.__exit__(KeyboardInterrupt, None, None)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "remove", stop)
        with pytest.raises(KeyboardInterrupt):
            dedup()
    made = Path(f"new-{source}").stat()
    assert dedup().kept.tolist() == fpstore.dedup(source, text=text).kept.tolist()
    assert Path(f"new-{source}").stat().st_ino == made.st_ino
    assert not Path("kept").exists()
    with pytest.raises(fpstore.StoreExistsError):
        dedup()


@pytest.mark.usefixtures("job_folder")
def test_a_damaged_plan_says_what_to_do():
    arguments = [*command("pairs", "p"), "--resume"]
    assert killed(arguments, 4)
    path = Path("p.tsv.resume/plan.json")
    path.write_text(path.read_text().replace('"radius": 3', '"radius": 4'))
    assert "plan.json: damaged: remove the folder to start anew" in failure(*arguments)
