"""Writers of a log: beside readers, after other writers, and where the system refuses."""

import errno
import os

import pytest
import reference_log
from logs import (
    CHANGES,
    HEADER,
    change,
    check_writer,
    open_reader,
    open_writer,
    parts,
    read,
    same,
    with_words,
)
from systemcalls import failing_calls

from fpstore.errors import StorageError
from fpstore.format import log_writer
from fpstore.format.log import HEADER_BYTES, LogFile, boot_word, end_word
from fpstore.format.log_writer import LogWriter, set_end
from fpstore.format.record import pack_change

# --- Readers and the writer -----------------------------------------------------------------------


def test_readers_see_what_is_durable_and_no_more(path):
    writer, reader = open_writer(path), open_reader(path)
    seen, place = [], HEADER_BYTES
    for i, each in enumerate(CHANGES):
        writer.append(pack_change(each), durable=i % 2 == 0)
        if i % 2:
            assert not list(reader.read(place, len(seen) + 1))
            writer.sync_records()
        assert reader.word == end_word(place)
        writer.publish()
        for records in reader.read(place, len(seen) + 1):
            assert (records.first, records.last) == (i + 1, i + 1)
            seen.append(records.change)
            place = records.end
        assert reader.word == end_word(place)
    assert [parts(each) for each in seen] == [parts(each) for each in CHANGES]
    writer.supersede()
    assert reader.word == end_word(place) | 1 << 63
    writer.close()
    reader.close()
    again = open_writer(path)  # whoever opens the log of the current generation knows that it is
    assert read(path)[0] == len(CHANGES)
    again.close()
    assert reference_log.parse_log_header(path.read_bytes()).superseded is False


def test_reader_after_reboot_sees_only_durable_records(full):
    """The reader opens before the first writer since the reboot.

    Until there is a writer, all whole records count, published or not.
    """
    path, places = full
    path.write_bytes(with_words(path.read_bytes(), places[2], boot_word() ^ 1))
    reader = open_reader(path)
    assert [records.last for records in reader.read(HEADER_BYTES, 1)] == [len(CHANGES)]
    writer = open_writer(path)
    place, number = writer.place, writer.number
    writer.append(pack_change(CHANGES[2]))
    assert not list(reader.read(place, number + 1))
    writer.take_back(place, number)
    writer.append(pack_change(CHANGES[3]), durable=True)
    writer.publish()
    (records,) = reader.read(place, number + 1)
    assert parts(records.change) == parts(CHANGES[3])
    writer.close()
    reader.close()


def writer_during_a_scan(path, monkeypatch):
    """Let a writer open and append when the next scan of the log begins.

    Return the list that it will be in.
    """
    writers, scan = [], LogFile.whole_records

    def with_a_writer(log, *arguments):
        if not writers and not isinstance(log, LogWriter):
            writers.append(open_writer(path))
            writers[0].append(pack_change(CHANGES[0]))
        yield from scan(log, *arguments)

    monkeypatch.setattr(LogFile, "whole_records", with_a_writer)
    return writers


def test_a_writer_that_opens_while_a_reader_scans(full, monkeypatch):
    """The scan began when every whole record counted; then only what is durable does."""
    path, places = full
    path.write_bytes(with_words(path.read_bytes(), places[2], boot_word() ^ 1))
    reader = open_reader(path)
    writers = writer_during_a_scan(path, monkeypatch)
    assert [records.last for records in reader.read(HEADER_BYTES, 1)] == [len(CHANGES)]
    assert writers[0].number == len(CHANGES) + 1
    writers[0].close()
    reader.close()


def test_a_writer_that_opens_while_a_backup_looks_for_the_end(full, monkeypatch):
    path, places = full
    # with space made ahead
    path.write_bytes(with_words(path.read_bytes(), places[2], boot_word() ^ 1) + bytes(1 << 16))
    writers = writer_during_a_scan(path, monkeypatch)
    with path.open("rb") as file:
        end = LogFile(file.fileno(), path, HEADER).durable_end()
    assert HEADER_BYTES < end == writers[0].durable < writers[0].place
    writers[0].close()


def test_the_end_is_told_before_it_is_called_exact(full, monkeypatch):
    """A reader that asks in between must not take the old end for the exact one."""
    path, places = full
    path.write_bytes(with_words(path.read_bytes(), places[2], boot_word() ^ 1))
    reader, messages = open_reader(path), []

    def asked():
        messages.append(reader.published_end)
        return boot_word()

    monkeypatch.setattr(log_writer, "boot_word", asked)
    open_writer(path).close()
    assert messages == [places[-1]]
    reader.close()


@pytest.mark.parametrize("moment", range(6))
def test_a_writer_that_opens_between_the_looks_of_a_reader(full, moment):
    """Whichever words of the header a reader has seen, it sees all that the writer keeps."""
    path, places = full
    path.write_bytes(with_words(path.read_bytes(), places[2], boot_word() ^ 1))
    descriptor, looks = os.open(path, os.O_RDONLY), []

    def look(at):
        if len(looks) == moment:
            open_writer(path).close()
        looks.append(at)
        return LogFile.word_at(log, at)

    log = LogFile(descriptor, path, HEADER)
    log.word_at = look
    result = list(log.read(HEADER_BYTES, 1))
    assert result[-1].end == places[-1]
    assert sum(records.last - records.first + 1 for records in result) == len(CHANGES)
    os.close(descriptor)


def test_a_dead_writer_told_only_part(path):
    """What it had written behind the end is for the next writer to find."""
    writer = open_writer(path)
    writer.append(pack_change(CHANGES[0]), durable=True)
    writer.publish()
    writer.append(pack_change(CHANGES[1]))
    del writer
    assert same(read(path), CHANGES[:1])
    check_writer(path, CHANGES[:2])


def test_space_is_made_ahead_and_given_back(path):
    writer = open_writer(path)
    sizes = []
    for each in CHANGES:
        writer.append(pack_change(each), durable=True)
        writer.publish()
        sizes.append(path.stat().st_size)
    assert len(set(sizes)) == 1
    assert sizes[0] >= writer.place + (1 << 15)
    assert not any(path.read_bytes()[writer.place :])
    # no hole: a sync would have to write where it is
    assert path.stat().st_blocks * 512 >= sizes[0]
    large = change([(1, 1, 0)] * 20_000)
    steps = set()
    for _ in range(30):
        writer.append(pack_change(large), durable=True)
        steps.add(path.stat().st_size - writer.place)
    assert max(steps) > 1 << 20
    writer.publish()
    place = writer.place
    writer.close()
    assert path.stat().st_size == place
    assert same(read(path), [*CHANGES, *[large] * 30])


def test_a_copy_gets_its_own_end(full):
    path, places = full
    os.truncate(path, places[3])
    set_end(path, places[3])
    assert same(read(path), CHANGES[:3])
    assert reference_log.parse_log_header(path.read_bytes()).end == places[3]


# --- Writes that fail -----------------------------------------------------------------------------


def test_a_disk_that_refuses_everything_for_a_while(path, monkeypatch):
    """What was half written cannot even be taken back.

    Nothing is appended until it can, and then all goes on.
    """
    write, attempts = os.pwritev, []

    def half(descriptor, buffers, at, *flags):
        attempts.append(at)
        if len(attempts) > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, [buffers[0][: len(buffers[0]) // 2]], at, *flags)

    writer = open_writer(path)
    writer.append(pack_change(CHANGES[0]), durable=True)
    writer.publish()
    with monkeypatch.context() as patch, failing_calls("pwrite"):
        patch.setattr(os, "pwritev", half)
        with pytest.raises(StorageError, match="No space left"):
            writer.append(pack_change(CHANGES[1]), durable=True)
        for _ in range(2):
            with pytest.raises(
                StorageError,
                match="cannot be taken back; nothing was changed: the next change tries again",
            ):
                writer.append(pack_change(CHANGES[1]), durable=True)
    writer.append(pack_change(CHANGES[2]), durable=True)
    writer.publish()
    writer.close()
    check_writer(path, [CHANGES[0], CHANGES[2]])


SWEEP_SETUP = """
import json
from logs import *
from fpstore.errors import StorageError
from fpstore.format.log_writer import create_log
from fpstore.format.record import pack_change

create_log(root / "log", HEADER)
writer = open_writer(root / "log")
writer.append(pack_change(CHANGES[0]), durable=True)
writer.publish()
writer.close()
"""
SWEEP_OPERATION = """
arm()
told = []  # kept outside of the root, which is all that counts
def tell(number):
    with open(str(root) + ".told", "a") as file:
        file.write(f"{number}\\n")
open(str(root) + ".told", "w").close()
writer = open_writer(root / "log")
for number, each in enumerate(CHANGES[1:], 1):
    try:
        writer.append(pack_change(each), durable=number not in (3, 5))
    except StorageError:
        continue
    if number == 3:  # made durable with the next
        continue
    if number == 5:
        try:
            writer.sync_records()
        except StorageError:
            writer.sync_records()
    writer.publish()
    tell(number)
writer.close()
"""
SWEEP_CHECK = """
told = {int(line) for line in open(str(root) + ".told")}
seen = read(root / "log")
open_writer(root / "log").close()
numbers, joined = read(root / "log")
assert outcome.kind != "ok" or seen[0] == numbers
found = parts(joined)
candidates = []
for kept in range(1 << (len(CHANGES) - 1)):
    chosen = [0, *(n for n in range(1, len(CHANGES)) if kept >> n - 1 & 1)]
    if found == parts(merged([CHANGES[n] for n in chosen])) and numbers == len(chosen):
        candidates.append(set(chosen))
assert any(told <= chosen for chosen in candidates), (told, candidates)
if outcome.kind == "ok":
    assert any(chosen - {0, 3} <= told for chosen in candidates), (told, candidates)
check_writer(root / "log", [CHANGES[n] for n in sorted(candidates[0])])
state = outcome.kind
"""


@pytest.mark.full
def test_every_call_of_a_writer_killed_or_refused(sweep):
    """What was told is there; what was refused is not, whichever call it was."""
    calls, outcomes = sweep(SWEEP_SETUP, SWEEP_OPERATION, SWEEP_CHECK)
    assert len(calls) > 10
    assert {o.state for o in outcomes} == {"ok", "error", "killed"}


def test_system_without_write_and_sync_in_one_call_does_both(full, monkeypatch):
    path, _ = full
    calls, fdatasync, refusals = [], os.fdatasync, [errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL]

    def refuse(*_):
        calls.append("refused")
        raise OSError(refusals[-1], os.strerror(refusals[-1]))

    monkeypatch.setattr(os, "pwritev", refuse)
    monkeypatch.setattr(
        os, "fdatasync", lambda descriptor: (calls.append("synced"), fdatasync(descriptor))
    )
    while refusals:
        writer = open_writer(path)
        calls.clear()
        writer.append(pack_change(CHANGES[1]), durable=True)
        assert calls == ["refused", "synced"]
        writer.publish()
        writer.close()
        refusals.pop()
    assert same(read(path), [*CHANGES, *CHANGES[1:2] * 3])
