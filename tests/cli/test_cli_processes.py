"""The command as a process: signals, pipes, terminals, full disks."""

import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from commandline import COMMAND, failure_of, process
from speeds import crossed, slow

import fpstore
from fpstore.cli.output import Bars
from fpstore.cli.signals import Interrupted, raise_signals
from fpstore.hashing.corpora import open_corpus
from fpstore.io.source import Projection


def states(folder: Path) -> dict[Path, int]:
    """Return when each file was changed.

    The lock holds a note of its last owner, which nobody reads.
    """
    return {
        path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.name != "writer.lock"
    }


SIGNALS = [
    (signal.SIGINT, 130, b"interrupted"),
    (signal.SIGTERM, 143, b"terminated"),
    (signal.SIGHUP, 129, b"hung up"),
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("how", "existing"), crossed(SIGNALS, [False, True]))
def test_signals_during_a_build_leave_nothing(
    how: tuple[signal.Signals, int, bytes], existing: bool, folder: Path
) -> None:
    number, code, word = how
    np.save("many.npy", np.random.default_rng(1).integers(0, 2**64, 3_000_000, dtype=np.uint64))
    target = "crawl.fps" if existing else "new.fps"
    before = states(folder)
    build = process("build", target, "many.npy", "--design", "manku-20", "--force")
    while not list(folder.glob(f".{target}.tmp-*")):
        assert build.poll() is None, build.stderr and build.stderr.read()
        with suppress(subprocess.TimeoutExpired):
            build.wait(0.01)
    build.send_signal(number)
    with suppress(subprocess.TimeoutExpired):
        build.wait(0.01)
    build.send_signal(number)  # an impatient user: the temporary files are removed all the same
    out, err = build.communicate(timeout=60)
    assert (build.returncode, out, err) == (code, b"", b"fpstore: " + word + b"\n")
    assert states(folder) == before


@pytest.mark.full
@pytest.mark.parametrize("ids", [True, False])
def test_an_insert_that_is_interrupted_says_which_rows_are_in(ids: bool, folder: Path) -> None:
    fpstore.build("s.fps", np.arange(2, dtype=np.uint64), ids=["a", "b"] if ids else None).close()
    # one chunk and a part
    rows = "".join(f"0x{2**63 + i:x}" + (f"\tid {i}\n" if ids else "\n") for i in range(120_000))
    insert = process("insert", "s.fps", "-", "--id-type", "str", stdin=subprocess.PIPE)
    assert insert.stdin is not None
    insert.stdin.write(rows.encode())
    insert.stdin.flush()
    with fpstore.open("s.fps") as reader:
        while len(reader) == 2:
            assert insert.poll() is None, insert.stderr and insert.stderr.read()
            with suppress(subprocess.TimeoutExpired):
                insert.wait(0.01)
        insert.send_signal(signal.SIGINT)
        _, err = insert.communicate(timeout=60)
        again = (
            "repeat the command: a row that is stored is not added again"
            if ids
            else "insert only the rows after these"
        )
        message = (
            "fpstore: interrupted; before that, 65,536 rows of the first 65,536 were inserted; "
            f"{again}\n"
        )
        assert (insert.returncode, err.decode()) == (130, message)
        assert len(reader) == 2 + 65_536


@pytest.fixture
def signals_as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number, _, _ in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals_as_before")
def test_a_second_signal_does_not_stop_the_removal_of_files() -> None:
    with raise_signals():
        with pytest.raises(Interrupted) as caught:
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    assert caught.value.signal == signal.SIGTERM
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN


@pytest.mark.usefixtures("signals_as_before")
def test_a_signal_that_other_code_ignores_is_raised_again() -> None:
    bars, ended = Bars(False), []

    def tick() -> None:
        bars("reading", 1)
        ended.append(True)

    with raise_signals():
        with suppress(BaseException):  # as packages do that look for others
            signal.raise_signal(signal.SIGTERM)
        worker = threading.Thread(target=tick)
        worker.start()
        worker.join()
        assert ended  # only the main thread is meant
        with pytest.raises(Interrupted):
            tick()
    tick()


def test_bars_say_how_many_bytes_are_read_in_a_second(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "c.jsonl").write_text(f'{{"n": 1, "more": "{"x" * 90}"}}\n' * 26_000)
    source = open_corpus(tmp_path / "c.jsonl", texts=False)
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: True, write=len, flush=bool))

    def shown(phase: str, done: int) -> str:
        bars(phase, done)
        return str(bars._progress.tasks[-1].fields["rate"])  # type: ignore[union-attr]

    with Bars(True, source) as bars:
        for _ in range(2):  # the second reading begins at byte 0
            said = [
                shown("reading", done)
                for done, _ in enumerate(source.batches(Projection(id="n")), 1)
            ]
            assert re.fullmatch(r"3 \([\d,]+/s, [\d.]+ [kMG]B/s\)", said[-1])
            assert re.fullmatch(
                r"500 \([\d.,]+( M)?/s\)", shown("grouping", 500) and shown("grouping", 500)
            )


@pytest.mark.full
def test_ignored_signals_stay_ignored(folder: Path) -> None:
    script = (
        "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\nfrom fpstore.cli import "
        "main; main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, "build", "x.fps", "-", "-q"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as build:
        while not list(folder.glob(".x.fps.tmp-*")):
            with suppress(subprocess.TimeoutExpired):
                build.wait(0.01)
        build.send_signal(signal.SIGHUP)
        _, err = build.communicate(b"0x2a\tx\n", timeout=60)
    assert (build.returncode, err) == (0, b"")
    assert fpstore.open("x.fps")[42] == ["x"]


def test_a_closed_pipe_is_quiet(folder: Path) -> None:
    fpstore.build("many.fps", np.arange(15_000, dtype=np.uint64)).close()
    for arguments in (
        ["export", "many.fps"],
        ["scan", "many.fps", "0x0", "-r", "64"],
        ["scan", "many.fps", "0x0", "-r", "64", "--json"],
    ):
        verb = process(*arguments)
        assert verb.stdout is not None
        assert verb.stderr is not None
        assert verb.stdout.read(10)
        verb.stdout.close()
        assert (verb.stderr.read(), verb.wait(60)) == (b"", 141)
        verb.stderr.close()


EACH_IN_A_FORK = """
import os, sys
from fpstore.cli import main
main.verbs()  # imports their modules
for arguments in sys.argv[1:]:
    sys.stderr.write(f"{arguments}: ")
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        try:
            main(arguments.split())
        except SystemExit as ended:
            sys.stderr.flush()
            os._exit(ended.code)
        finally:
            os._exit(99)
    sys.stderr.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\\n")
"""


def test_closed_standard_streams_are_errors(folder: Path) -> None:
    for redirected, message in (
        ("verify crawl.fps 1</dev/null", "output"),
        ("probe crawl.fps --input - <&-", "input"),
    ):
        script = f'"{sys.executable}" -m fpstore {redirected}'
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
        code = failure_of(redirected.split())
        assert (done.returncode, done.stderr) == (
            code,
            f"fpstore: standard {message} is closed\n",
        ), redirected


@pytest.mark.full
def test_every_verb_needs_standard_output(folder: Path) -> None:
    """One process without it, and a fork for each verb."""
    verbs = [
        *(
            "verify crawl.fps --json",
            "stats crawl.fps",
            "plan 9",
            "repair crawl.fps",
            "merge crawl.fps",
            "--version",
        ),
        *(
            "backup crawl.fps copy.fps",
            "build other.fps crawl.tsv",
            "insert crawl.fps crawl.tsv",
            "delete crawl.fps nothing",
        ),
        *(
            "split crawl.fps shards --bits 2",
            "probe --help",
            "demo",
            "probe crawl.fps 000000000000002a",
            "hash --text crawl.tsv",
        ),
        "export crawl.fps",
    ]
    command = [
        "sh",
        "-c",
        'exec "$@" >&-',
        "sh",
        sys.executable,
        "-P",
        "-c",
        EACH_IN_A_FORK,
        *verbs,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    output = [
        (f"{verb}: fpstore: standard output is closed", str(failure_of(verb.split())))
        for verb in verbs
    ]
    assert done.stderr.splitlines() == [line for pair in output for line in pair]


@pytest.mark.full
def test_a_verb_that_prints_nothing_needs_no_standard_output(folder: Path) -> None:
    """And no file of a store gets the number of the stream that was closed."""
    for arguments in ("build new.fps crawl.tsv --quiet", "export crawl.fps -o rows.tsv"):
        done = subprocess.run(
            ["sh", "-c", f'"{sys.executable}" -m fpstore {arguments} <&- >&- 2>&-'], check=False
        )
        assert done.returncode == 0, arguments
    assert fpstore.open("new.fps")[42] == fpstore.open("crawl.fps")[42]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("verb", [["export", "crawl.fps"], ["--help"]])
def test_a_full_output_is_an_error(verb: list[str], folder: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*COMMAND, *verb], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert re.fullmatch(r"fpstore: .*No space left on device(: free some space)?\n", done.stderr)


@pytest.mark.full
@pytest.mark.parametrize("limit", [slow(4096), 100_000, slow(1_000_000), 10_000_000])
def test_a_build_that_cannot_write_leaves_nothing(limit: int, folder: Path) -> None:
    np.save("many.npy", np.random.default_rng(1).integers(0, 2**64, 2_000_000, dtype=np.uint64))
    before = states(folder)
    script = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
    arguments = ["build", "crawl.fps", "many.npy", "--design", "flip-2", "--force"]
    arguments += ["--memory", "64MiB"]
    done = subprocess.run(
        [sys.executable, "-c", f"{script}from fpstore.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert re.fullmatch(r"fpstore: .*(File too large|No space left on device).*\n", done.stderr)
    assert states(folder) == before


def read_to_the_end(leader: int) -> str:
    shown = b""
    with suppress(OSError):  # the end of a terminal
        while data := os.read(leader, 4096):
            shown += data
    os.close(leader)
    return shown.decode()


@pytest.mark.full
def test_a_terminal_gets_no_binary_format(folder: Path) -> None:
    """It got the bytes of the fingerprints."""
    arguments = ("export", "crawl.fps", "--format", "u64")
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [*COMMAND, *arguments], stdout=theirs, stderr=subprocess.PIPE, text=True, timeout=60
    )
    os.close(theirs)
    assert read_to_the_end(ours) == ""
    assert done.returncode == 2
    assert "is binary, which a terminal does not show: name a file, or pipe it" in done.stderr
    piped = subprocess.run([*COMMAND, *arguments], capture_output=True)
    assert (len(piped.stdout) > 0, piped.returncode, piped.stderr) == (True, 0, b"")


@pytest.mark.full
@pytest.mark.parametrize("wanted", [True, False])
def test_bars_are_shown_on_a_terminal_only_if_wanted(wanted: bool, folder: Path) -> None:
    for verb, last in (
        (["build", "x.fps", "crawl.tsv"], "tables"),
        (["verify", "crawl.fps"], "strings"),
    ):
        ours, theirs = pty.openpty()
        command = [*COMMAND, *verb, *([] if wanted else ["--no-progress"])]
        env = {**os.environ, "TERM": "xterm"}
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, check=True, env=env)
        os.close(theirs)
        shown = read_to_the_end(ours)
        assert done.stdout.startswith(verb[1].encode() + b": ")
        assert (last in shown, wanted or shown == "") == (wanted, True)
