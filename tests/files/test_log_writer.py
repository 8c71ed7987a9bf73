"""Writers of a log: beside readers, after other writers, and where the system refuses."""

import errno
import os
import random
from pathlib import Path

import pytest
import reference_log
from logs import (
    CHANGES,
    HEADER,
    change,
    check_writer,
    of_reference,
    open_reader,
    open_writer,
    parts,
    read,
    same,
    with_words,
)
from powerfailure import Disk, record

from fpstore.errors import StorageError
from fpstore.format import log_writer
from fpstore.format.log import (
    HEADER_BYTES,
    LogFile,
    boot_word,
    end_word,
)
from fpstore.format.log_writer import LogWriter, create_log, set_end
from fpstore.format.record import pack_change

# --- Readers and the writer -----------------------------------------------------------------------


def test_readers_see_what_is_durable_and_no_more(path):
    writer, reader = open_writer(path), open_reader(path)
    seen, place = [], HEADER_BYTES
    for i, each in enumerate(CHANGES):
        writer.append(pack_change(each), durable=i % 2 == 0)
        if i % 2:
            assert not list(reader.read(place, len(seen) + 1))
            writer.force()
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


def test_a_reader_from_before_the_first_writer_since_a_reboot_sees_what_is_durable_and_no_more(full):
    """Until there is a writer, all whole records count, told or not."""
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
    """Let a writer open and append when the next scan of the log begins; return the list that it will be in."""
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
    path.write_bytes(with_words(path.read_bytes(), places[2], boot_word() ^ 1) + bytes(1 << 16))  # with space made ahead
    writers = writer_during_a_scan(path, monkeypatch)
    with path.open("rb") as file:
        end = LogFile(file.fileno(), path, HEADER).durable_end()
    assert HEADER_BYTES < end == writers[0].durable < writers[0].place
    writers[0].close()


def test_the_end_is_told_before_it_is_called_exact(full, monkeypatch):
    """A reader that asks in between must not take the old end for the exact one."""
    path, places = full
    path.write_bytes(with_words(path.read_bytes(), places[2], boot_word() ^ 1))
    reader, told = open_reader(path), []

    def asked():
        told.append(reader.told)
        return boot_word()

    monkeypatch.setattr(log_writer, "boot_word", asked)
    open_writer(path).close()
    assert told == [places[-1]]
    reader.close()


@pytest.mark.parametrize("moment", range(6))
def test_a_writer_that_opens_between_the_looks_of_a_reader(full, moment):
    """Whichever words of the header the reader has looked at before, it sees all that the writer keeps."""
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
    found = list(log.read(HEADER_BYTES, 1))
    assert found[-1].end == places[-1]
    assert sum(records.last - records.first + 1 for records in found) == len(CHANGES)
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
    assert path.stat().st_blocks * 512 >= sizes[0]  # no hole: a sync would have to write where it is
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
    """What was half written cannot even be taken back: nothing is appended until it can, and then all goes on."""

    def half(descriptor, record, at):
        os.pwrite(descriptor, record[: len(record) // 2], at)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def refuse(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    writer = open_writer(path)
    writer.append(pack_change(CHANGES[0]), durable=True)
    writer.publish()
    with monkeypatch.context() as patch:
        patch.setattr(log_writer, "_write_durably", half)
        patch.setattr(log_writer, "write_all", refuse)
        with pytest.raises(StorageError, match="No space left"):
            writer.append(pack_change(CHANGES[1]), durable=True)
        for _ in range(2):
            with pytest.raises(StorageError, match="cannot be taken back; nothing was changed: the next change tries again"):
                writer.append(pack_change(CHANGES[1]), durable=True)
    writer.append(pack_change(CHANGES[2]), durable=True)
    writer.publish()
    writer.close()
    check_writer(path, [CHANGES[0], CHANGES[2]])


def test_a_full_disk_takes_a_record_back(mounted_disk):
    folder = mounted_disk(1 << 20)
    path = folder / "log"
    create_log(path, HEADER)
    writer = open_writer(path)
    filler = folder / "filler"
    kept = []
    for pages in (40, 18, 9, 3, 2, 1, 0):
        free = os.statvfs(folder).f_bavail - pages
        if free > 0:
            with filler.open("ab") as file:
                file.write(bytes(free * os.statvfs(folder).f_frsize))
        for each in (change([(1, 1, 0)] * 3000), CHANGES[2], change([(2, 2, 0)] * 400)):
            place, number = writer.place, writer.number
            try:
                writer.append(pack_change(each), durable=True)
            except StorageError as error:
                assert "No space left on device: free some space; nothing was changed" in str(error)
                assert (writer.place, writer.number) == (place, number)
            else:
                writer.publish()
                kept.append(each)
            assert same(read(path), kept)
    filler.unlink()
    writer.append(pack_change(CHANGES[5]), durable=True)
    writer.close()
    check_writer(path, [*kept, CHANGES[5]])
    assert 3 < len(kept) < 20


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
            writer.force()
        except StorageError:
            writer.force()
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


def test_every_call_of_a_writer_killed_or_refused(sweep):
    """What was told is there; what was refused is not, whichever call it was."""
    calls, outcomes = sweep(SWEEP_SETUP, SWEEP_OPERATION, SWEEP_CHECK)
    assert len(calls) > 10
    assert {o.state for o in outcomes} == {"ok", "error", "killed"}


RECORDED = """
import os, sys
sys.path.insert(0, sys.argv[2])
from logs import *
from fpstore.errors import StorageError
from fpstore.format.log_writer import create_log, set_end
from fpstore.format.record import pack_change
from pathlib import Path

path = Path(sys.argv[1]) / "log"
"""
TWO_SYNCS = """
writer = open_writer(path)
writer.append(pack_change(CHANGES[2]))
writer.append(pack_change(CHANGES[3]))
try:
    writer.force()
    sys.exit("no error")
except StorageError:
    pass
writer.force()
writer.publish()
os._exit(0)
"""
TOGETHER = """
writer = open_writer(path)
writer.append(pack_change(CHANGES[2]))
writer.append(pack_change(CHANGES[3]), durable=True)
writer.publish()
os._exit(0)
"""
REFUSED = """
writer = open_writer(path)
try:
    writer.append(pack_change(CHANGES[2]), durable=True)
    sys.exit("no error")
except StorageError:
    os._exit(0)
"""
CLOSED = """
writer = open_writer(path)
for each in CHANGES[2:4]:
    writer.append(pack_change(each), durable=True)
    writer.publish()
writer.close()
"""
COPIED = """
writer = open_writer(path)
places = []
for each in CHANGES[2:4]:
    writer.append(pack_change(each), durable=True)
    writer.publish()
    places.append(writer.place)
writer.close()
set_end(path, places[0])
"""
CREATED = """
create_log(path, HEADER)
folder = os.open(path.parent, os.O_RDONLY)
os.fsync(folder)
"""


@pytest.fixture
def after_power_failures(compiled, tmp_path):
    """Return run(script, share, images, ...): what a log may hold when the power fails after a script; there is one before it."""

    def run(script, share=0.0, images=1, fail=0, exists=True):
        folder = tmp_path / "root"
        folder.mkdir()
        if exists:
            create_log(folder / "log", HEADER)
        disk = Disk(folder)
        for event in record(compiled("record.c"), folder, RECORDED + script, str(Path(__file__).parents[1]), fail=fail):
            disk.take(event)
        return [dict(disk.image(random.Random(seed), share))["log"][0] for seed in range(images)]

    return run


def test_a_sync_that_fails_once_writes_the_data_again(after_power_failures):
    """The system has forgotten what it could not write, and would call the next sync a success."""
    (content,) = after_power_failures(TWO_SYNCS, fail=2)  # the first is that of opening
    found, _ = reference_log.read_log(content, 0)
    assert [parts(of_reference(each)) for each in found] == [parts(each) for each in CHANGES[2:4]]


def test_a_durable_record_makes_those_before_it_durable(after_power_failures):
    (content,) = after_power_failures(TOGETHER)
    found, _ = reference_log.read_log(content, 0)
    assert [parts(of_reference(each)) for each in found] == [parts(each) for each in CHANGES[2:4]]


def test_a_record_that_was_refused_does_not_come_back_after_a_power_failure(after_power_failures):
    """Its write may have reached the disk, although the system said that it failed."""
    for content in after_power_failures(REFUSED, share=0.5, images=40, fail=2):
        assert reference_log.read_log(content, 0) == ([], HEADER_BYTES)


def test_where_a_closed_log_ends_is_durable(after_power_failures):
    """Else damage of the last record would look like one that was torn."""
    (content,) = after_power_failures(CLOSED)
    _, end = reference_log.read_log(content, 0)
    assert reference_log.parse_log_header(content).end == end == len(content)


def test_the_end_of_a_copy_is_durable(after_power_failures):
    """The words that were copied tell that of the original, which may be further."""
    (content,) = after_power_failures(COPIED)
    _, end = reference_log.decode_change(content, HEADER_BYTES, HEADER.seed)
    assert reference_log.parse_log_header(content).end == end < len(content)


def test_a_log_that_was_made_is_durable(after_power_failures):
    (content,) = after_power_failures(CREATED, exists=False)
    assert reference_log.read_log(content, 0) == ([], HEADER_BYTES)


@pytest.mark.parametrize("refusal", [errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL])
def test_a_system_that_cannot_write_and_sync_in_one_call_does_both(full, monkeypatch, refusal):
    path, _ = full
    calls, fdatasync = [], os.fdatasync

    def refuse(*_):
        calls.append("refused")
        raise OSError(refusal, os.strerror(refusal))

    monkeypatch.setattr(os, "pwritev", refuse)
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: (calls.append("synced"), fdatasync(descriptor)))
    writer = open_writer(path)
    writer.append(pack_change(CHANGES[1]), durable=True)
    assert calls == ["refused", "synced"]
    writer.publish()
    writer.close()
    assert same(read(path), [*CHANGES, CHANGES[1]])
