"""The power fails: whatever the disk has made of the last writes, each acknowledged change is there and nothing is torn."""

import json
import random
import shutil
import struct

import numpy as np
import pytest
from powerfailure import Disk, put_down, record

import fpstore
from fpstore.format.log import BOOT, boot_word

SCRIPT = """
import ctypes, json, sys
import fpstore

library = ctypes.CDLL(None)
path, sync, steps = sys.argv[1] + "/s", sys.argv[2], json.loads(sys.argv[3])

def note(*words):
    library.fprecord_note(" ".join(map(str, words)).encode())

store = fpstore.open(path, "r+", sync=sync)
for number, (name, *arguments) in enumerate(steps, 1):
    note("begun", number)
    if name == "reopen":
        store.close()
        store = fpstore.open(path, "r+", sync=sync)
    elif name == "delete":
        store.delete(ids=arguments[0])
    elif name == "probe_insert_many":
        store.probe_insert_many(*arguments, always=True, threads=1)
    elif name == "merge":
        store.merge(threads=1)
    else:
        getattr(store, name)(*arguments)
    if sync == "commit" or name in ("flush", "merge", "reopen"):
        note("durable", number)
store.close()
note("durable", len(steps))
"""
RNG = np.random.default_rng(11)
FINGERPRINTS = RNG.integers(0, 2**64, 400, np.uint64).tolist()
BASE = list(zip(FINGERPRINTS[:8], range(8), strict=True))
IDS = {"integer": lambda number: number, "string": lambda number: f"document {number}"}


def rows(kind, start, end):
    return FINGERPRINTS[start:end], [IDS[kind](number) for number in range(start, end)]


def steps_of(kind):
    """Changes of all kinds, small and of many sectors, with a merge among them."""
    one = rows(kind, 300, 310)
    return [
        ("insert", *rows(kind, 8, 9)),
        ("probe_insert", FINGERPRINTS[9], IDS[kind](9)),
        ("insert", *rows(kind, 10, 70)),
        ("delete", [IDS[kind](number) for number in (0, 8, 20, 21)]),
        ("flush",),
        ("probe_insert_many", *rows(kind, 150, 180)),
        ("reopen",),
        ("insert", *rows(kind, 200, 201)),
        ("delete", [IDS[kind](number) for number in range(60, 160)]),
        ("merge",),
        ("insert", *rows(kind, 201, 203)),
        *[("insert", [fingerprint], [number]) for fingerprint, number in zip(*one, strict=True)],
        ("delete", [IDS[kind](number) for number in (1, 305)]),
        ("flush",),
        ("merge",),
        ("insert", *rows(kind, 320, 330)),
    ]


def states_of(steps, before):
    """Return the rows before the steps and after each."""
    states = [set(before)]
    for name, *arguments in steps:
        now = set(states[-1])
        if name in ("insert", "probe_insert_many"):
            now |= set(zip(*arguments, strict=True))
        elif name == "probe_insert":
            now.add(tuple(arguments))
        elif name == "delete":
            now = {row for row in now if row[1] not in arguments[0]}
        states.append(now)
    return states


def rows_of(store):
    found = []
    for keys, lims, ids in store.items():
        ids = ids if isinstance(ids, list) else ids.tolist()
        found += [(key, number) for key, a, b in zip(keys.tolist(), lims, lims[1:], strict=False) for number in ids[a:b]]
    assert len(found) == len(set(found))
    return set(found)


def after_a_reboot(image):
    """Let the boot words of an image be those of another boot."""
    now = struct.pack("<Q", boot_word())
    for path, (content, key) in image.items():
        if path.endswith("/log") and content[8 * BOOT : 8 * BOOT + 8] == now:
            image[path] = (content[: 8 * BOOT] + bytes(b ^ 0x55 for b in now) + content[8 * BOOT + 8 :], key)
    return image


class Images:
    """Opens images and checks what is in them."""

    def __init__(self, folder, states):
        self.at, self.pool, self.states = folder / "image", folder / "pool", states
        self.pool.mkdir()
        self.seen = set()

    def check(self, image, least, most, thorough):
        """An image has one of the states from least to most; readers and the next writer agree which."""
        key = frozenset((path, entry[1]) for path, entry in image.items() if thorough or ".tmp" not in path)
        if key in self.seen:
            return
        self.seen.add(key)
        put_down(after_a_reboot(image), self.at, self.pool)
        with fpstore.open(self.at / "s") as reader:
            found = rows_of(reader)
            assert found in self.states[least : most + 1], self.described(found, least, most)
            if len(self.seen) % 3 and not thorough:
                return
            with fpstore.open(self.at / "s", "r+") as writer:
                assert rows_of(writer) == found
                assert rows_of(reader) == found
                if thorough:
                    report = writer.verify()
                    assert report.ok, report.faults
                    more = (2**64 - 1 - len(self.seen), 77 if isinstance(next(iter(found))[1], int) else "document 77 again")
                    writer.insert([more[0]], [more[1]])
                    found.add(more)
                    assert rows_of(reader) == found
        if thorough:
            with fpstore.open(self.at / "s") as reader:
                assert rows_of(reader) == found
                assert reader.verify().ok
            assert sorted(path.name for path in (self.at / "s").iterdir())[1:] == ["manifest.json", "writer.lock"]

    def described(self, found, least, most):
        nearest = min(self.states, key=lambda state: len(state ^ found))
        return (
            f"{len(found)} rows, nearest to the state {self.states.index(nearest)} of {least} to {most}: "
            f"{len(found - nearest)} too many, {len(nearest - found)} too few"
        )


def fail_everywhere(disk, events, images, chance, most_images):
    """Let the power fail after each event, in up to so many ways; check each image."""
    least = begun = 0
    for event in events:
        if event.kind == "N":
            what, number = event.path.split()
            least, begun = (int(number), begun) if what == "durable" else (least, int(number))
        disk.take(event)
        if event.kind == "N" and event.path.startswith("begun"):
            continue
        few = min(disk.open_changes, 10)
        for share in [0, 1, *(chance.choice((0.2, 0.5, 0.8, 0.95)) for _ in range(min(2**few, most_images)))]:
            images.check(disk.image(chance, share), least, begun, chance.random() < 0.05)


def same_as_on_disk(disk, folder):
    """What was recorded is all that the process did."""
    for path, (content, _) in disk.now().items():
        assert (folder / path).is_dir() if content is None else (folder / path).read_bytes() == content, path
    assert {str(path.relative_to(folder)) for path in folder.rglob("*")} == {path.rstrip("/") for path in disk.now()}


@pytest.fixture(scope="session")
def recorder(compiled):
    return compiled("record.c")


@pytest.mark.parametrize("most_images", [4, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["integer", "string"])
@pytest.mark.parametrize("sync", ["commit", "batch"])
def test_power_fails_at_any_moment(recorder, tmp_path, sync, kind, most_images):
    work, steps = tmp_path / "work", steps_of(kind)
    work.mkdir()
    before = [(fingerprint, IDS[kind](number)) for fingerprint, number in BASE]
    fpstore.build(work / "s", *map(list, zip(*before, strict=True)), design="flip-2", threads=1).close()
    disk = Disk(work)
    events = record(recorder, work, SCRIPT, sync, json.dumps(steps))
    states = states_of(steps, before)
    images = Images(tmp_path, states)
    fail_everywhere(disk, events, images, random.Random(f"{sync} {kind}"), most_images)
    same_as_on_disk(disk, work)
    with fpstore.open(work / "s") as store:
        assert rows_of(store) == states[-1]
    assert len(images.seen) > 300
    shutil.rmtree(images.pool)
