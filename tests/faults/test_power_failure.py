"""The power fails: each acknowledged change is there and nothing is torn.

That holds for whatever the disk has made of the last writes.
"""

import json
import random
import shutil
import struct

import numpy as np
import pytest
import reference_log
from powerfailure import Disk, put_down, record
from small_stores import rows_of
from speeds import slow

import fpstore
from fpstore.format.log import BOOT, boot_word

SCRIPT = """
import ctypes, json, os, sys
import fpstore

library = ctypes.CDLL(None)
path, sync, steps = sys.argv[1] + "/s", sys.argv[2], json.loads(sys.argv[3])

def note(*words):
    library.fprecord_note(" ".join(map(str, words)).encode())

def inserting(*rows):
    rows = [rows] if rows else []
    return lambda *_: store.insert(*rows.pop()) if rows else None

def do(name, *arguments):
    global store
    if name == "die":
        os._exit(0)
    if name == "reopen":
        store.close()
        store = fpstore.open(path, "r+", sync=sync)
    elif name == "delete":
        store.delete(ids=arguments[0])
    elif name == "probe_insert_many":
        store.probe_insert_many(*arguments, always=True, threads=1)
    elif name == "merge":
        store.merge(threads=1, progress=inserting(*arguments))
    else:
        getattr(store, name)(*arguments)

store = fpstore.open(path, "r+", sync=sync)
for number, step in enumerate(steps, 1):
    note("begun", number)
    try:
        do(*step)
    except fpstore.StorageError:
        note("refused", number)
        continue
    if sync == "commit" or step[0] in ("flush", "merge", "reopen"):
        note("durable", number)
try:
    store.close()
except fpstore.StorageError:
    sys.exit()
note("durable", len(steps))
"""
RNG = np.random.default_rng(11)
FINGERPRINTS = RNG.integers(0, 2**64, 400, np.uint64).tolist()
BASE = list(zip(FINGERPRINTS[:8], range(8), strict=True))
IDS = {"integer": lambda number: number, "string": lambda number: f"document {number}"}


def rows(kind, start, end):
    return FINGERPRINTS[start:end], [IDS[kind](number) for number in range(start, end)]


def steps_of(kind):
    """Return changes of all kinds, small and of many sectors, with a merge among them."""
    inserted = rows(kind, 300, 310)
    return [
        ("insert", *rows(kind, 8, 9)),
        ("probe_insert", FINGERPRINTS[9], IDS[kind](9)),
        ("insert", *rows(kind, 10, 70)),
        ("delete", [IDS[kind](number) for number in (0, 8, 20, 21)]),
        ("flush",),
        ("probe_insert_many", *rows(kind, 150, 180)),
        ("probe_upsert_many", *rows(kind, 180, 190)),
        ("reopen",),
        ("insert", *rows(kind, 200, 201)),
        ("delete", [IDS[kind](number) for number in range(60, 160)]),
        ("merge",),
        ("insert", *rows(kind, 201, 203)),
        *[
            ("insert", [fingerprint], [number])
            for fingerprint, number in zip(*inserted, strict=True)
        ],
        ("delete", [IDS[kind](number) for number in (1, 305)]),
        ("flush",),
        ("merge", *rows(kind, 340, 380)),  # these are inserted meanwhile
        ("insert", *rows(kind, 320, 330)),
    ]


def states_of(steps, before, refused=()):
    """Return the rows before the steps and after each; those that were refused change nothing."""
    states = [set(before)]
    for number, (name, *arguments) in enumerate(steps, 1):
        now = set(states[-1])
        if number in refused:
            pass
        elif name in ("insert", "probe_insert_many", "probe_upsert_many") or (
            name == "merge" and arguments
        ):
            now |= set(zip(*arguments, strict=True))
        elif name == "probe_insert":
            now.add(tuple(arguments))
        elif name == "delete":
            now = {row for row in now if row[1] not in arguments[0]}
        states.append(now)
    return states


def after_a_reboot(image):
    """Let the boot words of an image be those of another boot."""
    now = struct.pack("<Q", boot_word())
    for path, (content, key) in image.items():
        if path.endswith("/log") and content[8 * BOOT : 8 * BOOT + 8] == now:
            image[path] = (
                content[: 8 * BOOT] + bytes(b ^ 0x55 for b in now) + content[8 * BOOT + 8 :],
                key,
            )
    return image


class Images:
    """Opens images and checks what is in them."""

    def __init__(self, folder, states, under_way=None):
        self.at, self.pool, self.states = folder / "image", folder / "pool", states
        self.under_way = under_way or {}  # what there may be until a step is refused
        self.pool.mkdir()
        self.seen = set()

    def check(self, image, least, most, thorough):
        """Check that an image has one of the states from least to most.

        Readers and the next writer agree.
        """
        key = frozenset(
            (path, entry[1]) for path, entry in image.items() if thorough or ".tmp" not in path
        )
        if key in self.seen:
            return
        self.seen.add(key)
        put_down(after_a_reboot(image), self.at, self.pool)
        with fpstore.open(self.at / "s") as reader:
            result = rows_of(reader)
            maybe = [self.under_way[most]] if least < most and most in self.under_way else []
            assert result in self.states[least : most + 1] + maybe, self.described(
                result, least, most
            )
            if len(self.seen) % 3 and not thorough:
                return
            with fpstore.open(self.at / "s", "r+") as writer:
                assert rows_of(writer) == result
                assert rows_of(reader) == result
                if thorough:
                    report = writer.verify()
                    assert report.ok, report.faults
                    more = (
                        2**64 - 1 - len(self.seen),
                        77 if isinstance(next(iter(result))[1], int) else "document 77 again",
                    )
                    writer.insert([more[0]], [more[1]])
                    result.add(more)
                    assert rows_of(reader) == result
        if thorough:
            with fpstore.open(self.at / "s") as reader:
                assert rows_of(reader) == result
                assert reader.verify().ok
            assert sorted(path.name for path in (self.at / "s").iterdir())[1:] == [
                "manifest.json",
                "writer.lock",
            ]

    def described(self, found, least, most):
        nearest = min(self.states, key=lambda state: len(state ^ found))
        return (
            f"{len(found)} rows, nearest to the state {self.states.index(nearest)} of {least} to "
            f"{most}: "
            f"{len(found - nearest)} too many, {len(nearest - found)} too few"
        )


def built(folder, kind):
    """Make a store in a folder; return the rows in it."""
    folder.mkdir()
    before = [(fingerprint, IDS[kind](number)) for fingerprint, number in BASE]
    fpstore.build(
        folder / "s", *map(list, zip(*before, strict=True)), design="flip-2", threads=1
    ).close()
    return before


def fail_everywhere(disk, events, images, chance, most_images):
    """Let the power fail after each event, and check each image of the disk.

    It fails in up to so many ways, or in one after every second event.
    """
    least = begun = 0
    for number, event in enumerate(events):
        if event.kind == "N":
            what, number = event.path.split()
            least, begun = (least, int(number)) if what == "begun" else (int(number), begun)
        disk.take(event)
        if (event.kind == "N" and event.path.startswith("begun")) or (
            most_images == 1 and event.kind != "N" and number % 2
        ):
            continue
        few = min(disk.open_changes, 10)
        for share in [
            0,
            1,
            *(chance.choice((0.2, 0.5, 0.8, 0.95)) for _ in range(min(2**few, most_images))),
        ]:
            images.check(disk.image(chance, share), least, begun, chance.random() < 0.05)


def same_as_on_disk(disk, folder):
    """Check that what was recorded is all that the process did."""
    for path, (content, _) in disk.now().items():
        assert (
            (folder / path).is_dir() if content is None else (folder / path).read_bytes() == content
        ), path
    assert {str(path.relative_to(folder)) for path in folder.rglob("*")} == {
        path.rstrip("/") for path in disk.now()
    }


@pytest.fixture(scope="session")
def recorder(compiled):
    return compiled("record.c")


@pytest.mark.full
@pytest.mark.parametrize(
    ("sync", "kind", "most_images"),
    [
        ("commit", "string", 1),
        *(slow(sync, kind, 200) for sync in ("commit", "batch") for kind in IDS),
    ],
)
def test_power_fails_at_any_moment(recorder, tmp_path, sync, kind, most_images):
    work, steps = tmp_path / "work", steps_of(kind)
    before = built(work, kind)
    disk = Disk(work)
    events = record(recorder, work, SCRIPT, sync, json.dumps(steps))
    states = states_of(steps, before)
    images = Images(tmp_path, states)
    fail_everywhere(disk, events, images, random.Random(f"{sync} {kind}"), most_images)
    same_as_on_disk(disk, work)
    image = disk.image(random.Random(0), 0)
    content, _ = image[max(path for path in image if path.endswith("/log"))]
    # where a closed log ends is durable
    assert reference_log.parse_log_header(content).end == len(content)
    with fpstore.open(work / "s") as store:
        assert rows_of(store) == states[-1]
    assert len(images.seen) > 80
    shutil.rmtree(images.pool)


SINGLE = [
    ("insert", [fingerprint], [number])
    for fingerprint, number in zip(*rows("integer", 20, 40), strict=True)
]


@pytest.mark.parametrize("failures", [1, slow(60)])
def test_power_fails_again_after_a_recovery(recorder, tmp_path, failures):
    """Records that were cut off do not come back when the new ones end where they begin."""
    work, chance = tmp_path / "work", random.Random(4)
    before = built(work, "integer")
    disk = Disk(work)
    for event in record(
        recorder,
        work,
        SCRIPT,
        "none",
        json.dumps([*SINGLE[:2], ("flush",), *SINGLE[2:12], ("die",)]),
    ):
        disk.take(event)
    lost = 0
    for failure in range(failures):
        image = after_a_reboot(disk.image(chance, (0.3, 0.6, 0.9)[failure % 3]))
        folder = tmp_path / f"pool-{failure}"
        folder.mkdir()
        put_down(image, work, folder)
        with fpstore.open(work / "s") as store:
            result = rows_of(store)
        number = len(result) - len(before)
        assert result == states_of(SINGLE[:number], before)[-1]
        lost += number < 12
        steps = SINGLE[12:15]
        again = Disk(work)
        (tmp_path / str(failure)).mkdir()
        images = Images(tmp_path / str(failure), states_of(steps, result))
        fail_everywhere(
            again, record(recorder, work, SCRIPT, "commit", json.dumps(steps)), images, chance, 4
        )
    assert lost > failures // 3 or failures == 1


@pytest.mark.full
@pytest.mark.parametrize(
    ("sync", "failed"),
    [  # the numbers of the syncs that fail; the first two are those of opening
        ("commit", (3,)),
        ("none", (3,)),
        slow("commit", range(3, 10)),
        slow("none", range(3, 5)),
    ],
)
def test_power_fails_after_a_sync_has_failed(recorder, tmp_path, sync, failed):
    """A change that was refused does not come back.

    What the system has forgotten to write is written again.
    """
    steps = [
        ("insert", *rows("integer", 20, 60)),
        *SINGLE[-3:],
        ("delete", [0, 20]),
        ("flush",),
        ("insert", *rows("integer", 5, 9)),
    ]
    work, chance = tmp_path / "work", random.Random(5)
    before = built(work, "integer")
    shutil.copytree(work, tmp_path / "kept")
    some_refused = False
    for fail in failed:
        shutil.rmtree(work)
        shutil.copytree(tmp_path / "kept", work)
        disk = Disk(work)
        events = record(recorder, work, SCRIPT, sync, json.dumps(steps), fail=fail)
        notes = [event.path.split() for event in events if event.kind == "N"]
        refused = {
            int(number)
            for what, number in notes
            if what == "refused" and steps[int(number) - 1][0] != "flush"
        }
        (tmp_path / str(fail)).mkdir()
        if sync == "none":
            events = [
                event
                for event in events
                if not (event.kind == "N" and event.path.startswith("refused"))
            ]
        states = states_of(steps, before, refused)
        under_way = {
            number: states_of(steps[number - 1 : number], states[number - 1])[-1]
            for number in refused
        }
        images = Images(tmp_path / str(fail), states, under_way)
        fail_everywhere(disk, events, images, chance, 4)
        some_refused = some_refused or bool(refused)
    assert some_refused is (sync == "commit")


DIES = """
import os, sys
import fpstore

rename = os.rename

def die(*arguments, **options):
    rename(*arguments, **options)
    if arguments[1] == "manifest.json":
        os._exit(0)

with fpstore.open(sys.argv[1] + "/s", "r+") as store:
    store.insert(list(range(100)), list(range(100, 200)))
    os.rename = die
    store.merge(threads=1)
"""
OPENS = """
import sys
import fpstore

fpstore.open(sys.argv[1] + "/s", "r+").close()
"""


@pytest.mark.full
def test_power_failure_after_a_writer_that_follows_a_dead_merge(recorder, tmp_path):
    """It removes the old generation, so the name of the new manifest must be durable."""
    work, chance = tmp_path / "work", random.Random(6)
    before = set(built(work, "integer"))
    disk = Disk(work)
    images = Images(tmp_path, [before, before | {(number, number + 100) for number in range(100)}])
    for event in record(recorder, work, DIES):
        disk.take(event)
    for event in record(recorder, work, OPENS):
        disk.take(event)
        for share in (0, 0.3, 0.5, 0.7, 1):
            images.check(disk.image(chance, share), 1, 1, False)


INTERRUPTED = """
import ctypes, os, sys
import fpstore
from fpstore.query.tracker import Tracker

show = Tracker.show

def interrupt(*_):
    Tracker.show = show
    raise KeyboardInterrupt

with fpstore.open(sys.argv[1] + "/s", "r+", sync="none") as store:
    Tracker.show = interrupt
    try:
        store.insert(list(range(1000)), list(range(1000, 2000)))
        sys.exit("not interrupted")
    except KeyboardInterrupt:
        assert len(store) == 1008
        # The recorder looks at the words of the header when something happens.
        ctypes.CDLL(None).fprecord_note(b"told")
        os._exit(0)
"""


def test_power_failure_after_a_logged_change_was_interrupted(recorder, tmp_path):
    """It has happened, and is told to others only when it is durable, whatever the sync."""
    work = tmp_path / "work"
    before = set(built(work, "integer"))
    disk = Disk(work)
    events = record(recorder, work, INTERRUPTED)
    images = Images(
        tmp_path, [before, before | {(number, number + 1000) for number in range(1000)}]
    )
    for event in events:
        disk.take(event)
        for seed, share in enumerate((0, 0.3, 0.6, 0.9, 1)):
            images.check(disk.image(random.Random(seed), share), 0, 1, False)
    images.check(disk.image(random.Random(0), 0), 1, 1, True)


NEW_STORES = """
import errno, os, sys
import fpstore

def refuse(*_):
    raise OSError(errno.ENOSYS, "the recorder sees no bytes that the system copies by itself")

os.copy_file_range = refuse
root = sys.argv[1]
fingerprints = [number << 56 for number in range(200)]
names = [f"document {number}" for number in range(200)]
fpstore.build(root + "/s", fingerprints, names, design="flip-2", threads=1).close()
with fpstore.open(root + "/s", "r+") as store:
    store.insert([5], ["five"])
    # What is inserted meanwhile moves the end of the log that is copied.
    store.backup(root + "/copy", progress=lambda *_: len(store) > 201 or store.insert([6], ["six"]))
    store.split(root + "/parts", 1, threads=1)
os._exit(0)
"""


def test_new_stores_are_durable_when_the_call_returns(recorder, tmp_path):
    """A build, a backup and a split lie on a disk that has nothing but what was forced."""
    work = tmp_path / "work"
    work.mkdir()
    disk = Disk(work)
    for event in record(recorder, work, NEW_STORES):
        disk.take(event)
    (tmp_path / "pool").mkdir()
    put_down(after_a_reboot(disk.image(random.Random(0), 0)), tmp_path / "image", tmp_path / "pool")
    for name, pairs in (("s", 202), ("copy", 201), ("parts/0.fps", 130), ("parts/1.fps", 72)):
        (log,) = (tmp_path / "image" / name).glob("*/log")
        assert reference_log.parse_log_header(log.read_bytes()).end == log.stat().st_size, name
        with fpstore.open(tmp_path / "image" / name) as store:
            assert (name, len(rows_of(store))) == (name, pairs)
            assert store.verify().ok
