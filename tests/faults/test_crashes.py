"""A process that builds, inserts, deletes, merges and backs up is killed again and again, and its store goes on."""

import faulthandler
import os
import random
import select
import signal
import struct
import threading
import time
import traceback

import numpy as np
import pytest
from small_stores import content, rows_of
from speeds import slow

import fpstore

BASE = np.random.default_rng(1).integers(0, 2**64, 2000, np.uint64)
MOST = 10**9  # ids of the rows of one thread
LIVES = 5  # a batch is removed so many changes after it came
SIZES = (1, 8, 300)
SYNCS = ("commit", "batch", "none")
CHANGERS = 2
BACKUP, BUILT, FAILED = 100, 101, 102
REPORT = struct.Struct("<IQQ")


class Rows:
    """What each thread does, change by change: even ones add a batch, odd ones remove one. All follows from the numbers."""

    def __init__(self, strings):
        self.strings = strings

    def name(self, number):
        return f"document {number}" if self.strings else number

    def batch(self, thread, change):
        """Return the (fingerprint, id) that an even change adds."""
        keys = np.random.default_rng([thread, change]).integers(0, 2**64, SIZES[change // 2 % len(SIZES)], np.uint64)
        return [(key, self.name(thread * MOST + change * 1000 + i)) for i, key in enumerate(keys.tolist())]

    def after(self, thread, changes):
        """Return what there is of a thread after so many changes."""
        live = range(max(changes - LIVES + (changes - LIVES) % 2, 0), changes, 2)
        return {row for change in live for row in self.batch(thread, change)}

    def make(self, store, thread, change):
        """Make one change; done again, it changes nothing. What is acknowledged outlives the process, durable or not."""
        sync = SYNCS[change % 3]
        if change % 2 == 0:
            keys, ids = zip(*self.batch(thread, change), strict=True)
            if len(keys) == 1:
                store.probe_insert(keys[0], ids[0], always=True, sync=sync)
            elif change % 4 == 0:
                store.insert(list(keys), list(ids), sync=sync)
            else:
                store.probe_insert_many(list(keys), list(ids), always=True, threads=1, sync=sync)
        elif change >= LIVES:
            keys, ids = zip(*self.batch(thread, change - LIVES), strict=True)
            if change % 4 == 1:
                store.delete(ids=list(ids), sync=sync)
            else:
                store.delete(fingerprints=list(keys), sync=sync)


class Child:
    """A process that changes a store in several threads and reports each change that was acknowledged."""

    def __init__(self, folder, rows, reached, version):
        self.pipe, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self.pipe)
                faulthandler.dump_traceback_later(120, exit=True)  # says where each thread is
                self.work(folder, rows, list(reached), version, writing)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os.write(writing, REPORT.pack(FAILED, 0, 0))
            finally:
                os._exit(1)
        os.close(writing)

    def work(self, folder, rows, reached, version, writing):
        stop = threading.Event()
        # A handler might never run: Python calls it in the main thread, which may be about to wait for a lock when it comes.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

        def report(kind, *numbers):
            os.write(writing, REPORT.pack(kind, *numbers))

        def guarded(work, *arguments):
            try:
                while not stop.is_set():
                    work(*arguments)
            except BaseException:
                traceback.print_exc()
                report(FAILED, 0, 0)

        with fpstore.open(folder / "s", "r+") as store:

            def change(thread):
                rows.make(store, thread, reached[thread])
                reached[thread] += 1
                report(thread, reached[thread], 0)

            def back_up():
                before = list(reached)
                store.backup(folder / "copy", overwrite=True)
                report(BACKUP, *before)

            def build():
                nonlocal version
                fpstore.build(folder / "built", BASE[version % 100 :], threads=1, overwrite=True).close()
                version += 1
                report(BUILT, version, 0)

            work = [(change, thread) for thread in range(CHANGERS)] + [(lambda: store.merge(threads=1),), (back_up,), (build,)]
            threads = [threading.Thread(target=guarded, args=arguments) for arguments in work]
            for thread in threads:
                thread.start()
            signal.sigwait({signal.SIGTERM})
            stop.set()
            for thread in threads:
                thread.join()

    def end(self, after, how, threads=()):
        """Let it work until these threads have made a change, and then for some time; end it, and return what it reported."""
        waiting, until, data = set(threads), None, b""
        while True:
            if until is None and not waiting:
                until = time.monotonic() + after
            left = until and until - time.monotonic()
            if left is not None and left <= 0:
                break
            if select.select([self.pipe], [], [], left)[0]:
                more = os.read(self.pipe, 1 << 16)
                data += more
                if not more:
                    break
                waiting -= {kind for kind, *_ in REPORT.iter_unpack(data[: len(data) // REPORT.size * REPORT.size])}
        os.kill(self.pid, how)
        while more := os.read(self.pipe, 1 << 16):
            data += more
        os.close(self.pipe)
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        assert status == (-how if how == signal.SIGKILL else 0)
        return list(REPORT.iter_unpack(data))


@pytest.mark.parametrize(
    ("kills", "strings"),
    [
        (6, True),
        slow(300, False),
        slow(300, True),
    ],
)
def test_a_process_killed_at_random_moments(tmp_path, strings, kills):
    rows, random_moments = Rows(strings), random.Random(kills)
    path = tmp_path / "s"
    numbers = [rows.name(CHANGERS * MOST + i) for i in range(len(BASE))]
    base = set(zip(BASE.tolist(), numbers, strict=True))
    fpstore.build(path, BASE, numbers, threads=1).close()
    fpstore.build(tmp_path / "built", BASE, threads=1).close()
    reached, version = [0] * CHANGERS, 0
    saved = None  # how far each thread was when the last backup began that was acknowledged
    reader = fpstore.open(path)
    for kill in range(kills + 1):
        child = Child(tmp_path, rows, reached, version)
        last = kill == kills
        moment = 0.3 if last else random_moments.uniform(0.0, 0.2) ** 1.5 * 2
        worked = range(CHANGERS) if kill % 2 else ()  # else it may die while it opens the store
        reports = child.end(moment, signal.SIGTERM if last else signal.SIGKILL, worked)
        acknowledged, built = list(reached), version
        for kind, *values in reports:
            assert kind != FAILED, "see what was printed"
            if kind == BACKUP:
                saved = values
            elif kind == BUILT:
                built = values[0]
            else:
                acknowledged[kind] = values[0]

        told = content(path)
        found = content(path, "r+")  # which finds what was written and not told
        assert base <= told
        for thread in range(CHANGERS):
            least = acknowledged[thread]
            of_thread = {row for row in found if thread * MOST <= number_of(row) < (thread + 1) * MOST}
            fits = [n for n in (least + 1, least) if rows.after(thread, n) == of_thread]
            assert fits, f"kill {kill}: thread {thread} has neither the rows of {least} changes nor of one more"
            reached[thread] = fits[0] if len(fits) == 1 else least
        assert base <= found
        assert len(found) == len(base) + sum(len(rows.after(thread, reached[thread])) for thread in range(CHANGERS))
        assert rows_of(reader) == found, "a reader that had it open all the time"

        number_built = len(content(tmp_path / "built"))
        version = next((v for v in (built, built + 1) if number_built == len(BASE) - max(v - 1, 0) % 100), None)
        assert version is not None, f"kill {kill}: {number_built} rows after {built} builds"
        if (tmp_path / "copy").exists():
            copy = content(tmp_path / "copy")
            assert base <= copy
            for thread in range(CHANGERS):
                of_thread = {row for row in copy if thread * MOST <= number_of(row) < (thread + 1) * MOST}
                assert any(of_thread == rows.after(thread, n) for n in range((saved or [0, 0])[thread], reached[thread] + 2))
        else:
            assert saved is None

    reader.close()
    assert content(path, "r+") == found
    fpstore.build(tmp_path / "built", BASE, threads=1, overwrite=True).close()  # which removes what was abandoned
    with fpstore.open(path) as store:
        store.backup(tmp_path / "copy", overwrite=True)
    generations = [p.name for p in path.iterdir() if p.is_dir()]
    assert len(generations) == 1
    assert sorted(p.name for p in path.iterdir()) == [*generations, "manifest.json", "writer.lock"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["built", "copy", "s"]
    assert min(reached) >= kills // 2


def number_of(row):
    return int(str(row[1]).removeprefix("document "))
