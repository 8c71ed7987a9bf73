"""What a disk may hold after the power fails.

A process is recorded (tests/faults/record.c), and its calls are replayed in part.

Durable is what was followed by a sync of its file or, for names, of their folder. Of each later
write any part may be there: all, nothing, or some of its sectors; of the later changes of names any
may have happened; a word of a mapped header has any value that it had since the last sync.
"""

import itertools
import os
import random
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

SECTOR = 512
_EVENT = struct.Struct("<cQQII")
_TIMEOUT_SECONDS = 120
OPEN, FORCED, LOST = "open", "forced", "lost"


class Event(NamedTuple):
    kind: str
    file: int
    place: int
    data: bytes
    other: str

    @property
    def path(self):
        return self.data.decode()


def record(library, folder, script, *arguments, fail=0):
    """Run a text of Python under the recorder; return the events below a folder.

    The sync of the number ``fail`` fails.
    """
    log = folder.with_name(folder.name + ".record")
    environment = {
        "LD_PRELOAD": str(library),
        "FPRECORD_ROOT": str(folder),
        "FPRECORD_LOG": str(log),
        "FPRECORD_FAIL": str(fail),
    }
    process = subprocess.run(
        [sys.executable, "-P", "-c", script, folder, *arguments],
        env=os.environ | environment | {"OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_SECONDS,
    )
    assert (process.returncode, process.stderr) == (0, ""), process.stderr
    return read_events(log)


def read_events(log):
    """Return what the recorder has written down."""
    data, at, events = log.read_bytes(), 0, []
    while at < len(data):
        kind, file, place, first, second = _EVENT.unpack_from(data, at)
        at += _EVENT.size
        events.append(
            Event(
                kind.decode(),
                file,
                place,
                data[at : at + first],
                data[at + first : at + first + second].decode(),
            )
        )
        at += first + second
    return events


class File:
    """A file: what is durable, and the writes since, of which the forced ones are durable too.

    When a sync has failed, the writes before it are lost: the system has forgotten what it could
    not write, and no later sync makes them durable. Perhaps they are there all the same.
    """

    numbers = itertools.count()

    def __init__(self, content=b""):
        self.durable, self.pending = bytes(content), []  # (OPEN, FORCED or LOST, kind, place, data)
        self.number, self.version = next(self.numbers), 0

    def change(self, kind, place, data):
        if kind == "X":
            self.pending = [
                (LOST if state == OPEN else state, *write) for state, *write in self.pending
            ]
        elif kind == "D" and not self.pending:
            self.durable = apply(self.durable, "W", place, data)
            self.version += 1
        else:
            self.pending.append(
                (FORCED if kind == "D" else OPEN, "T" if kind == "T" else "W", place, data)
            )

    def sync(self):
        if any(state == LOST for state, *_ in self.pending):
            self.pending = [
                (state if state == LOST else FORCED, *write) for state, *write in self.pending
            ]
        elif self.pending:
            self.durable = self.image(lambda write: [write])[0]
            self.pending, self.version = [], self.version + 1

    def image(self, choose):
        """Return the content after the chosen parts of each write, and a key that identifies it."""
        content, key = self.durable, [self.number, self.version]
        for state, *write in self.pending:
            for part in [write] if state == FORCED else choose(tuple(write)):
                content = apply(content, *part)
            key.append(hash(content))
        return content, tuple(key)


def apply(content, kind, place, data):
    if kind == "T":
        return content[:place].ljust(place, b"\0")
    return content[:place].ljust(place, b"\0") + data + content[place + len(data) :]


class Folder:
    """A folder: its durable entries, and the changes since."""

    def __init__(self):
        self.now, self.durable, self.pending = {}, {}, []

    def change(self, update):
        self.pending.append(update)
        change_names(self.now, update)

    def sync(self):
        self.durable, self.pending = dict(self.now), []


def change_names(names, update):
    for name, entry in update.items():
        if entry is None:
            names.pop(name, None)
        else:
            names[name] = entry


class Disk:
    """A disk as the calls change it.

    Parameters
    ----------
    folder : Path
        What there is before the first event, all of it durable.
    """

    def __init__(self, folder):
        self.at = os.path.realpath(folder)
        self.files = {}
        self.root = self._load(Path(folder))

    def _load(self, path):
        if path.is_dir():
            folder = Folder()
            folder.now = {entry.name: self._load(entry) for entry in path.iterdir()}
            folder.sync()
            return folder
        file = self.files[path.stat().st_ino] = File(path.read_bytes())
        return file

    def _entry(self, path):
        entry = self.root
        for name in Path(path).relative_to(self.at).parts:
            entry = entry.now[name]
        return entry

    def _place(self, path):
        path = Path(path)
        return self._entry(path.parent), path.name

    def take(self, event):
        """Do what an event says."""
        kind = event.kind
        if kind in "WDHTX":
            # others never had a name, and are gone when the power fails
            if event.file in self.files:
                self.files[event.file].change(kind, event.place, event.data)
        elif kind == "S":
            try:
                entry = self._entry(event.path)
            except KeyError:  # removed while it was open
                return
            (entry if isinstance(entry, Folder) else self.files[event.file]).sync()
        elif kind in "CM":
            parent, name = self._place(event.path)
            if kind == "C":
                entry = self.files[event.file] = File()
            else:
                entry = Folder()
            parent.change({name: entry})
        elif kind in "UV":
            parent, name = self._place(event.path)
            parent.change({name: None})
        elif kind in "RL":
            parent, name = self._place(event.path)
            target, new_name = self._place(event.other)
            moved = parent.now[name]
            if kind == "L":
                target.change({new_name: moved})
            elif target is parent:
                parent.change({name: None, new_name: moved})
            else:
                raise AssertionError("a rename from folder to folder is not simulated")

    def image(self, chance, share):
        """Return a possible content of the disk as {path: (content, key)}.

        Parameters
        ----------
        chance : random.Random
        share : float
            Of the writes that are whole, and of the changes of names; of the others some are torn.
        """

        def choose(change):
            kind, place, data = change
            if share >= 1 or chance.random() < share:
                return [change]
            if kind == "T" or share <= 0 or chance.random() < 0.6:
                return []
            cuts = [
                place,
                *range(place + SECTOR - place % SECTOR, place + len(data), SECTOR),
                place + len(data),
            ]
            parts = [("W", a, data[a - place : b - place]) for a, b in itertools.pairwise(cuts)]
            return [part for part in parts if chance.random() < 0.5]

        def walk(folder, path):
            names = dict(folder.durable)
            for update in folder.pending:
                if share >= 1 or chance.random() < share:
                    change_names(names, update)
            for name, entry in names.items():
                if isinstance(entry, Folder):
                    files[path + name + "/"] = (None, None)
                    walk(entry, path + name + "/")
                else:
                    files[path + name] = entry.image(choose)

        files = {}
        walk(self.root, "")
        return files

    @property
    def open_changes(self):
        """How many changes may or may not be there."""
        return sum(
            1 for file in self.files.values() for write in file.pending if write[0] != FORCED
        ) + _open_names(self.root)

    def now(self):
        """Return all that there is without a power failure."""
        return self.image(random.Random(0), 1)


def _open_names(folder):
    inner = [entry for entry in folder.now.values() if isinstance(entry, Folder)]
    return len(folder.pending) + sum(map(_open_names, inner))


def put_down(image, folder, pool):
    """Make a folder hold an image; files that are not written again are links into the pool."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path, (content, key) in image.items():
        if content is None:
            (folder / path).mkdir()
        elif path.endswith((".fpt", ".mdb")):
            kept = pool / "-".join(map(str, key))
            if not kept.exists():
                kept.write_bytes(content)
            os.link(kept, folder / path)
        else:
            (folder / path).write_bytes(content)
