"""Jobs that are killed and resumed: the same result, byte for byte, without doing again what was done."""

import itertools
import json
import os
import re
import signal
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from commandline import failure, fine, run
from resuming import JOBS, command, in_another, killed, near, outputs
from speeds import slow

import fpstore
from fpstore import SimHash
from fpstore.cli import main
from fpstore.errors import CorruptStoreError, InputError, StoreLockedError
from fpstore.jobs import given
from fpstore.jobs.checkpoint import Checkpoint


def resumed(err):
    """Return how much was found done by a job, and how much there was."""
    return [tuple(int(n.replace(",", "")) for n in found) for found in re.findall(r"([\d,]+) of ([\d,]+) \w", err)]


@pytest.mark.parametrize("calls", ["some", pytest.param("more", marks=pytest.mark.slow)])
@pytest.mark.parametrize("job", [slow(job) if job in ("dedup csv", "join", "cluster") else job for job in JOBS])
def test_a_job_that_is_killed_goes_on(job_folder, job, calls):
    """The folder of the job is renamed into first, then each part, then the outputs."""
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
    done = [sum(found for found, _ in one) for one in before]
    # A second thread may have been about to rename its part.
    assert all(later >= earlier - 1 for earlier, later in itertools.pairwise(done))
    assert done[0] == 0
    assert done[-2] > 0
    assert done[1] < done[-1]
    assert all(found == total for found, total in before[-1])  # only the output was left to be written


@pytest.mark.parametrize("job", ["dedup texts", slow("pairs"), "join by probes", slow("cluster")])
def test_a_job_that_is_killed_again_and_again_gets_on(job_folder, job):
    """Each run adds at least a part before it is killed at its fifth rename: a run that only has outputs to write makes four."""
    assert run(*command(job, "whole")).exit_code == 0
    arguments = [*command(job, "killed"), "--resume"]
    runs = 0
    while killed(arguments, 5):
        runs += 1
        assert runs < 50
    assert runs > 1
    assert outputs("killed") == outputs("whole")
    assert not list(Path().glob(".*"))


@pytest.mark.parametrize("job", ["dedup texts", "pairs", "join by probes", "cluster"])
def test_a_damaged_part_is_found_and_done_again(job_folder, job):
    assert run(*command(job, "whole")).exit_code == 0
    arguments = [*command(job, "hurt"), "--resume"]
    assert killed(arguments, 6)
    (kept,) = Path().glob("hurt*.resume")
    hurt = sorted(kept.glob("*.part"))[0]
    data = bytearray(hurt.read_bytes())
    data[len(data) // 2] ^= 4
    hurt.write_bytes(data)
    (kept / "rows-77.tmp").write_bytes(b"a part that was not finished")
    (kept / "table-0-x.part").write_bytes(b"a part of another program")
    again = run(*arguments)
    assert again.exit_code == 0, again.stderr
    assert outputs("hurt") == outputs("whole")
    assert not kept.exists()


def test_each_byte_of_a_part_is_checked(tmp_path):
    wanted = [{"a": np.arange(5, dtype=np.uint64), "b": np.zeros((0, 2), np.uint16)}, {"a": np.ones(1, bool)}]
    with suppress(KeyError), Checkpoint(tmp_path / "kept", {"job": "test"}) as kept:
        part = kept.write("one")
        for batch in wanted:
            part.append(batch)
        part.finish()
        path = tmp_path / "kept" / "one.part"
        image = path.read_bytes()
        for place, bit in itertools.product(range(len(image)), range(8)):
            path.write_bytes(image[:place] + bytes([image[place] ^ 1 << bit]) + image[place + 1 :])
            assert not kept.has("one")
        for end in range(len(image)):
            path.write_bytes(image[:end])
            assert not kept.has("one")
        path.write_bytes(image + b"\n")
        assert not kept.has("one")
        path.rename(path.with_name("other.part"))
        assert not kept.has("other"), "a part says which it is"
        path.mkdir()
        assert not kept.has("one")
        path.rmdir()
        path.with_name("other.part").rename(path)
        path.write_bytes(image)
        found = list(kept.read("one"))
        assert [[(n, c.dtype, c.tolist()) for n, c in b.items()] for b in found] == [
            [(n, c.dtype, c.tolist()) for n, c in b.items()] for b in wanted
        ]
        kept.write("half").append(wanted[0])
        raise KeyError
    assert sorted(p.name for p in (tmp_path / "kept").iterdir()) == ["job.json", "job.lock", "one.part"]


# --- What is refused ----------------------------------------------------------------------------------


def test_another_job_is_refused(job_folder):
    arguments = [*command("pairs", "p"), "--resume"]
    assert killed(arguments, 4)
    said = failure(*arguments, "--radius", "2")
    assert "p.tsv.resume: radius was 3 when this job began, and is 2: give the same again, or remove the folder" in said
    assert "job was 'pairs' when" in failure("join", "s.fps", "few.fps", "--output", "p.tsv", "--resume")
    with fpstore.open("s.fps", "r+") as store:
        store.insert([12345], ["new"])
    assert "store log records was 0 when this job began, and is 1" in failure(*arguments)
    with fpstore.open("s.fps", "r+") as store:
        store.merge()
    assert "store generation was 1 when this job began, and is 2" in failure(*arguments)


@pytest.mark.parametrize("change", ["file", "argument", "maker"])
def test_a_corpus_that_has_changed_is_refused(job_folder, change):
    arguments = [*command("dedup texts", "d"), "--resume"]
    assert killed(arguments, 4)
    if change == "file":
        Path("c.jsonl").touch()
        assert "file 1 was ['c.jsonl', " in failure(*arguments)
    elif change == "argument":
        assert "keep was 'first' when this job began, and is 'smallest'" in failure(*arguments, "--keep", "smallest")
    else:
        assert "fingerprinter was {" in failure(*arguments, "--shingle", "chars")
    assert list(Path("d.jsonl.resume").glob("rows-*"))


def test_inputs_in_another_order_are_another_job(job_folder):
    """The rows that were kept were taken for those of the other file."""
    Path("d.jsonl").write_bytes(Path("c.jsonl").read_bytes().replace(b'"id": "i', b'"id": "j'))
    options = ["out.jsonl", "--text-field", "text", "--id-field", "id", "--resume", "--threads", "1"]
    assert killed(["dedup", "c.jsonl", "d.jsonl", *options], 4)
    assert "file 1 was ['c.jsonl', " in failure("dedup", "d.jsonl", "c.jsonl", *options)
    assert "file 2 was ['d.jsonl', " in failure("dedup", "c.jsonl", *options)


def test_parts_that_begin_at_another_row_are_not_taken(job_folder):
    """After a damaged part, one of an earlier run followed, which began elsewhere."""
    options = ["c.jsonl", "out.jsonl", "--text-field", "text", "--id-field", "id", "--resume", "--threads", "1"]
    fine("dedup", *options[:1], "whole.jsonl", *options[2:-3], "--quiet")
    assert killed(["dedup", *options], 6)
    parts = sorted(Path("out.jsonl.resume").glob("rows-*"), key=lambda path: int(path.stem.removeprefix("rows-")))
    assert len(parts) > 2
    with parts[1].open("r+b") as file:
        file.truncate(50)
    given.KEPT_ROWS = 170  # as a test may set it: the fixture restores it
    assert killed(["dedup", *options], 3)
    assert run("dedup", *options).exit_code == 0
    assert Path("out.jsonl").read_bytes() == Path("whole.jsonl").read_bytes()


def test_a_second_process_is_refused(job_folder):
    arguments = [*command("pairs", "p"), "--resume"]
    assert killed(arguments, 4)
    with fpstore.open("s.fps") as store:
        batches = store.pairs(threads=2, resume="p.tsv.resume")
        assert len(next(batches))
        child = os.fork()
        if not child:
            result = run(*arguments)
            os._exit(int(result.exit_code != 1 or f"process {os.getppid()} is running this job" not in result.stderr))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with pytest.raises(StoreLockedError, match="this process is running this job"):
            next(store.pairs(threads=2, resume="p.tsv.resume"))
        batches.close()
    assert run(*arguments).exit_code == 0


def test_folders_of_others_are_left_alone(job_folder):
    Path("p.tsv.resume").mkdir()
    Path("p.tsv.resume/mine.txt").write_text("mine")
    assert "is not the folder of a job" in failure(*command("pairs", "p"), "--resume")
    assert [p.name for p in Path("p.tsv.resume").iterdir()] == ["mine.txt"]
    Path("q.tsv.resume").write_text("a file")
    assert "is not the folder of a job" in failure(*command("pairs", "q"), "--resume")


@pytest.mark.parametrize("name", ["job.json", "job.lock", "job.tmp", "one.part", "one.tmp"])
def test_a_link_in_the_folder_is_never_followed(tmp_path, name):
    """The folder itself may be one, as the user names it."""
    (tmp_path / "there").mkdir()
    (tmp_path / "kept").symlink_to("there")
    with suppress(KeyError), Checkpoint(tmp_path / "kept", {"job": "test"}) as kept:
        kept.write("one").finish()
        raise KeyError
    link, victim = tmp_path / "there" / name, tmp_path / "victim"
    if link.exists():
        link.rename(victim)
    else:
        victim.write_text("mine")
    before = victim.read_bytes(), victim.stat().st_mtime_ns
    link.symlink_to(victim)
    refused = None
    try:
        with Checkpoint(tmp_path / "kept", {"job": "test"}) as kept:
            assert kept.has("one") == (name != "one.part")
            kept.write("one").finish()
    except (InputError, CorruptStoreError) as error:
        refused = str(error)
    assert (refused is not None) == (name in ("job.json", "job.lock")), refused
    assert (victim.read_bytes(), victim.stat().st_mtime_ns) == before


def test_a_refused_output_leaves_no_folder(job_folder):
    """The folder of a job that never began stood in the way of the next one."""
    Path("dir.tsv").mkdir()
    for output in ("x.pdf", "dir.tsv"):
        for verb in (("pairs", "s.fps"), ("cluster", "s.fps"), ("join", "s.fps", "few.fps")):
            assert run(*verb, "--output", output, "--resume").exit_code == 2
    wrong = run("dedup", "c.jsonl", "out.jsonl", "--text-field", "text", "--clusters", "dir.tsv", "--force", "--resume")
    assert wrong.exit_code == 2
    assert not list(Path().glob("*.resume"))
    assert run("pairs", "s.fps", "--output", "x" * 247 + ".tsv").exit_code == 0


def test_usage(job_folder):
    assert "--resume needs an output file" in failure("pairs", "s.fps", "--resume", code=2)
    assert "is in notes, and the next run would read it" in failure("dedup", "notes", "notes/clean", "--text", "--resume")
    assert killed([*command("pairs", "p"), "--resume"], 4)
    note = run(*command("pairs", "p"))
    assert note.exit_code == 0
    assert "p.tsv.resume is of a job that did not end; --resume goes on with it" in note.stderr
    assert Path("p.tsv.resume/job.json").exists()
    fine(*command("pairs", "fresh"), "--quiet")
    assert not Path("fresh.tsv.resume").exists()


@pytest.fixture
def signals_as_before():
    """Restore the signals: a program that was interrupted leaves them ignored, because it is about to end."""
    numbers = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
    handlers = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, handlers, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals_as_before")
def test_an_interrupt_says_how_to_go_on(job_folder, monkeypatch, capsys):
    monkeypatch.setattr("fpstore.jobs.pairs.join_design", lambda *_: signal.raise_signal(signal.SIGINT))
    with pytest.raises(SystemExit) as ended:
        main([*command("pairs", "p"), "--resume"])
    said = "fpstore: interrupted; what was done is in p.tsv.resume: the same command goes on with it\n"
    assert (ended.value.code, capsys.readouterr().err) == (130, said)


# --- In Python ----------------------------------------------------------------------------------------


class Counting(SimHash):
    """Notes the texts that fingerprints were made of."""

    def __init__(self):
        super().__init__()
        object.__setattr__(self, "seen", [])

    def hashed(self, items):
        self.seen.extend(items)
        return super().hashed(items)


def test_no_text_of_a_finished_part_is_hashed_again(job_folder):
    class StopError(Exception):
        pass

    def stop(phase, done, total):
        if phase == "reading" and done > 500:
            raise StopError

    wanted = fpstore.dedup("c.jsonl", text="text", threads=1)
    first, second = Counting(), Counting()
    with pytest.raises(StopError):
        fpstore.dedup("c.jsonl", text="text", threads=1, fingerprinter=first, progress=stop, resume="kept")
    saved = sum(len(batch["fingerprints"]) for path in Path("kept").glob("rows-*") for batch in batches_of(path))
    assert saved > 300
    found = fpstore.dedup("c.jsonl", text="text", threads=1, fingerprinter=second, resume="kept")
    assert found.kept.tolist() == wanted.kept.tolist()
    assert list(found.clusters) == list(wanted.clusters)
    texts = [row["text"] for row in map(json.loads, Path("c.jsonl").read_text().splitlines()) if row["text"] is not None]
    assert second.seen == texts[saved:]
    assert not Path("kept").exists()


def batches_of(path):
    class Alone(Checkpoint):
        def __init__(self):
            self.folder = path.parent
            self._identity = json.loads((path.parent / "job.json").read_text())

    return list(Alone().read(path.stem))


def test_pairs_and_joins_that_are_left_in_the_middle(job_folder):
    with fpstore.open("s.fps") as store, fpstore.open("few.fps") as few:
        given, ids = near(1)[::7], [f"g{i}" for i in range(len(near(1)[::7]))]
        jobs = {
            "pairs": lambda **how: store.pairs(**how),
            "join": lambda **how: store.join(few, 7, **how),
            "given": lambda **how: store.join(given, 7, ids=ids, **how),
        }
        for name, job in jobs.items():
            wanted = [tuple(pair) for batch in job(threads=2) for pair in batch]
            some = job(threads=2, resume=name)
            taken = 0
            while not list(Path(name).glob("*.part")):
                taken += len(next(some))
            some.close()
            found = [tuple(pair) for batch in job(threads=2, resume=name) for pair in batch]
            assert found == wanted
            assert 0 < taken < len(wanted)
            assert not Path(name).exists()
        some = jobs["given"](threads=2, resume="given")
        next(some)
        some.close()
        with pytest.raises(InputError, match="other rows was"):
            next(store.join(given, 7, ids=["other", *ids[1:]], threads=2, resume="given"))


def test_parts_that_were_read_are_closed(job_folder):
    """Each stayed open until the end: a job of hundreds of parts met the limit of open files."""
    assert killed([*command("pairs", "p"), "--resume"], 10)
    assert len(list(Path("p.tsv.resume").glob("table-*.part"))) > 5
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
        assert list(Path("kept").glob("table-*"))
        assert list(store.clusters(threads=1, resume="kept")) == wanted
    assert not Path("kept").exists()


def test_a_table_in_memory_cannot_be_resumed(tmp_path):
    pa = pytest.importorskip("pyarrow")
    with pytest.raises(InputError, match="is for files"):
        fpstore.dedup(pa.table({"h": [1, 2]}), fingerprint="h", resume=tmp_path / "kept")
    assert list(tmp_path.iterdir()) == []
