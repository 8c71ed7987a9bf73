"""What operators see: the logger, the error of a merge that failed, stats and metrics."""

import json
import logging
import os
import re
import threading
from contextlib import nullcontext

import numpy as np
import pytest
from background import wait_for_threads
from commandline import failure, fine
from limits import limited
from systemcalls import failing_calls

import fpstore

ROWS = np.arange(0, 1 << 40, 1 << 30, dtype=np.uint64)


@pytest.fixture
def path(tmp_path):
    fpstore.build(tmp_path / "s", ROWS).close()
    return tmp_path / "s"


def failed_in_the_background(path):
    """Insert until a merge in the background has begun, and wait until it has failed."""
    with (
        failing_calls("fsync", "manifest.json.tmp"),
        limited(merge_changes=1),
        fpstore.open(path, "r+", merge_at=0.0001) as store,
    ):
        store.insert([5])
        wait_for_threads("merge")
        return store.stats()


def test_failed_background_merge_is_seen_by_every_process(path, caplog, capfd):
    with caplog.at_level(logging.INFO, "fpstore"):
        result = failed_in_the_background(path)
    assert capfd.readouterr() == ("", "")  # where logging is not configured nothing is printed
    assert "No space left on device" in result["merge_error"]
    assert str(path) in result["merge_error"]
    assert [record.levelname for record in caplog.records if "merge failed" in record.message] == [
        "ERROR"
    ]
    with fpstore.open(path) as reader:
        assert reader.stats()["merge_error"] == result["merge_error"]
        assert len(reader) == len(ROWS) + 1
    assert json.loads(fine("stats", path, "--json"))["merge_error"] == result["merge_error"]
    assert "last merge failed" in fine("stats", path)
    with fpstore.open(path, "r+") as store:
        store.merge()
        assert store.stats()["merge_error"] is None
    with fpstore.open(path) as reader:
        assert reader.stats()["merge_error"] is None


def test_a_merge_that_failed_puts_off_the_next_and_no_other(path, set_limits):
    """The next waits until there are twice as many changes; when it has ended, all is as before."""
    set_limits(merge_changes=50)
    with fpstore.open(path, "r+", merge_at=0.0001) as store:
        for number, (inserted, fails, generation) in enumerate(
            [(50, True, 1), (49, False, 1), (1, False, 2), (50, False, 3)]
        ):
            with failing_calls("fsync", "manifest.json.tmp") if fails else nullcontext():
                store.insert(np.arange(inserted, dtype=np.uint64) + np.uint64(1000 * (number + 1)))
                wait_for_threads("merge")
            assert store.stats()["generation"] == generation


def test_a_merge_without_a_thread_is_logged_at_each_doubling(path, monkeypatch, set_limits, caplog):
    set_limits(merge_changes=2)
    messages = []
    with fpstore.open(path, "r+", merge_at=0.0001) as store:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse_a_thread)
            for number in range(1, 9):
                store.insert([1000 + number])
                messages.append(sum("merge failed" in record.message for record in caplog.records))
        assert messages == [0, 1, 1, 2, 2, 2, 2, 3]
        assert "can't start new thread" in store.stats()["merge_error"]
        assert len(store) == len(ROWS) + 8


def refuse_a_thread(thread):
    raise RuntimeError("can't start new thread")


def test_a_failed_merge_whose_reason_found_no_room_is_seen(path):
    (path / "merge.error").touch()
    with fpstore.open(path) as reader:
        assert "the disk had no room for the reason" in reader.stats()["merge_error"]
    assert "last merge failed" in fine("stats", path)
    with fpstore.open(path, "r+") as store:
        store.insert([5])
        store.merge()
        assert store.stats()["merge_error"] is None


def test_delta_that_outgrows_the_tables_is_logged_once_per_store(path, set_limits, caplog):
    set_limits(merge_changes=10)
    changes = len(ROWS) + 2
    with caplog.at_level(logging.WARNING, "fpstore"):
        with fpstore.open(path, "r+") as store:
            store.insert(list(range(500, 500 + len(ROWS) - 1)))
            assert not caplog.records
            store.insert([1, 2, 3])
            (output,) = caplog.records
            assert output.getMessage().startswith(
                f"{path}: {changes:,} changes since the last merge, for {len(ROWS):,} fi"
            )
            store.insert([4, 5])
        with fpstore.open(path, "r+") as store:
            store.insert([6])
    assert caplog.records == [output]


def test_merges_and_what_a_dead_writer_left_are_logged(path, caplog):
    child = os.fork()
    if child == 0:
        store = fpstore.open(path, "r+", sync="none")
        store.insert([7])
        os._exit(0)
    os.waitpid(child, 0)
    with caplog.at_level(logging.INFO, "fpstore"), fpstore.open(path, "r+") as store:
        assert 7 in store
        store.merge()
    levels = [
        (record.levelname, record.message.removeprefix(f"{path}: ")) for record in caplog.records
    ]
    assert levels[0][0] == "WARNING"
    assert levels[0][1].startswith("a writer died: log recovered up to byte ")
    assert levels[1:] == [
        ("INFO", "merge begins, generation 1"),
        ("INFO", f"merged, generation 2: {len(ROWS) + 1} fingerprints"),
    ]


def test_stats_of_a_writer_and_of_a_reader(path):
    with fpstore.open(path, "r+", sync="none") as store, fpstore.open(path) as reader:
        store.insert([7, 8])
        stats = store.stats()
        assert stats["writer"] == {
            "process": os.getpid(),
            "sync": "none",
            "waiting_rows": 2,
            "merging": False,
        }
        assert stats["log"]["records"] == 1
        assert stats["log"]["bytes"] > 4096
        assert reader.stats()["writer"] is None
        assert reader.stats()["log"]["records"] == 0
        store.flush()
        assert store.stats()["writer"]["waiting_rows"] == 0
        assert reader.stats()["log"]["records"] == 1
        store.insert(9)
        store.merge()  # makes all durable too
        assert store.stats()["writer"]["waiting_rows"] == 0


def test_metrics_for_prometheus(path):
    with fpstore.open(path, "r+") as store:
        store.insert([7])
        store.merge()
        store.insert([8])
    out = fine("stats", path, "--prometheus")
    with fpstore.open(path) as store:
        stats = store.stats()
    values = {}
    for line in out.splitlines():
        if not line.startswith("#"):
            name, labels, value = re.fullmatch(
                r'(\w+)\{store="[^"]*"(?:,part="(\w+)")?\} (\S+)', line
            ).groups()
            values[name, labels] = float(value)
    assert values["fpstore_fingerprints", None] == stats["fingerprints"] == len(ROWS) + 2
    assert values["fpstore_generation", None] == 2
    assert values["fpstore_delta_changes", None] == values["fpstore_log_records", None] == 1
    assert values["fpstore_merge_failed", None] == 0
    assert values["fpstore_generation_timestamp_seconds", None] == pytest.approx(
        (path / "manifest.json").stat().st_mtime
    )
    assert (
        sum(value for (name, _), value in values.items() if name == "fpstore_bytes")
        == stats["bytes"]["total"]
    )
    helps = re.findall(r"^# HELP (\w+) ", out, flags=re.M)
    assert helps == re.findall(r"^# TYPE (\w+) gauge$", out, flags=re.M)
    assert set(helps) == {name for name, _ in values}


def test_metrics_take_no_other_output(path):
    assert "--prometheus cannot be combined" in failure(
        "stats", path, "--prometheus", "--json", code=2
    )
