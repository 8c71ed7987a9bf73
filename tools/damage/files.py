"""Ways to damage a file, and the choice of one."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from damage.stores import Spec
from fpstore.format.shards import is_shard_name
from fpstore.lsh.manifest import DOCUMENTS, KEYS

PAGE = 4096


class Damaged(Protocol):
    """A store or index to be damaged.

    It has a folder, older states, other stores to mix in, and the names of the stores inside it.
    """

    spec: Spec
    path: Path
    stranger: Path
    twin: Path
    older: list[Path]
    parts: list[str]


class Damage(NamedTuple):
    """The damage to one file, or to one part: a shard, the documents or the keys of an index."""

    file: str  # relative to the store
    kind: str
    apply: Callable[[Path], None]


def kind_of(file: str) -> str:
    name = Path(file).name
    if is_shard_name(name) or name in (DOCUMENTS, KEYS):
        return "part"
    return {
        "manifest.json": "manifest",
        "lsh.json": "manifest",
        "shards.json": "manifest",
        "writer.lock": "writer lock",
        "ids.mdb": "ids",
        "log": "log",
        "strings.mdb": "strings",
        "hashes.fpt": "numbers",
        "numbers.mdb": "numbers",
        "places.fpt": "places",
        "places.mdb": "places",
    }.get(name, "filter" if name.endswith(".fpf") else "table")


WEIGHTS = {
    "table": 4,
    "filter": 2,
    "ids": 4,
    "strings": 4,
    "numbers": 4,
    "places": 4,
    "manifest": 4,
    "log": 4,
    "writer lock": 1,
    "part": 2,
}


def choose(store: Damaged, chance: random.Random) -> Damage:
    files: dict[str, list[str]] = {}
    for path in sorted(store.path.rglob("*")):
        if path.is_file():
            files.setdefault(kind_of(path.name), []).append(str(path.relative_to(store.path)))
    if store.parts:
        files["part"] = store.parts
    which = chance.choices(sorted(files), [WEIGHTS[kind] for kind in sorted(files)])[0]
    file = chance.choice(files[which])
    if which == "part":
        return _choose_part(store, file, chance)
    kind = chance.choice([*DAMAGES, "flips", "flips", "foreign", "foreign", "older", "older"])
    if kind not in ("foreign", "older"):
        return Damage(file, kind, partial(DAMAGES[kind], random.Random(chance.random())))
    others: list[Path] = []
    if kind == "foreign":
        others = [store.stranger / file, store.twin / file]
    for older in store.older if kind == "older" else []:
        others += [
            p
            for p in sorted(older.rglob(Path(file).name))
            if p.read_bytes() != (store.path / file).read_bytes()
        ]
    if which == "log":  # an earlier log of this very generation is what the store was then
        others = [
            other
            for other in others
            if kind == "foreign" or other.parent.name != Path(file).parent.name
        ]
    others = [other for other in others if other.exists()]
    if not others:
        return Damage(file, "nothing", partial(DAMAGES["nothing"], chance))
    return Damage(file, kind, partial(replace, chance.choice(others)))


def _choose_part(store: Damaged, part: str, chance: random.Random) -> Damage:
    """Return the loss of a part, or its exchange for another part of this or another store."""
    # an index with older documents is one that had no later ones
    older = store.older if store.spec.shards else []
    others = [
        folder / name
        for folder in (store.path, store.stranger, store.twin, *older)
        for name in store.parts
    ]
    others.remove(store.path / part)
    if chance.random() < 0.25:
        return Damage(part, "part removed", shutil.rmtree)
    return Damage(part, "part swapped", partial(replace, chance.choice(others)))


def replace(other: Path, path: Path) -> None:
    if other.is_dir():
        shutil.rmtree(path)
        shutil.copytree(other, path)
    else:
        shutil.copyfile(other, path)


def place(chance: random.Random, data: bytearray) -> int:
    """Choose a byte, often one where structure is; the padding of LMDB files is chosen seldom."""
    used = max(len(data[:-8].rstrip(b"\0")), 1) if chance.random() < 0.95 else len(data)
    how = chance.random()
    if how < 0.5:
        return chance.randrange(used)
    if how < 0.8:
        return min(chance.randrange(-(-used // PAGE)) * PAGE + chance.randrange(64), len(data) - 1)
    return (
        min(chance.randrange(2 * PAGE), len(data) - 1)
        if how < 0.9
        else len(data) - 1 - chance.randrange(min(64, len(data)))
    )


def edit(
    change: Callable[[random.Random, bytearray], None], chance: random.Random, path: Path
) -> None:
    data = bytearray(path.read_bytes())
    if data:
        change(chance, data)
        path.write_bytes(data)


def flips(chance: random.Random, data: bytearray) -> None:
    for _ in range(chance.randint(1, 8)):
        data[place(chance, data)] ^= 1 << chance.randrange(8)


def zeroed(chance: random.Random, data: bytearray) -> None:
    at = place(chance, data)
    size = min(chance.choice([1, 2, 8, 64, 512, PAGE]), len(data) - at)
    data[at : at + size] = bytes(size)


def overwritten(chance: random.Random, data: bytearray) -> None:
    at = place(chance, data)
    size = min(chance.choice([1, 2, 8, 64, 512, PAGE]), len(data) - at)
    data[at : at + size] = chance.randbytes(size)


def page(chance: random.Random, data: bytearray) -> int:
    return place(chance, data) // PAGE * PAGE


def page_zeroed(chance: random.Random, data: bytearray) -> None:
    at = page(chance, data)
    data[at : at + PAGE] = bytes(len(data[at : at + PAGE]))


def pages_swapped(chance: random.Random, data: bytearray) -> None:
    a, b = sorted((page(chance, data), page(chance, data)))
    if b + PAGE <= len(data):
        data[a : a + PAGE], data[b : b + PAGE] = data[b : b + PAGE], data[a : a + PAGE]


def page_duplicated(chance: random.Random, data: bytearray) -> None:
    a, b = page(chance, data), page(chance, data)
    size = min(len(data) - a, len(data) - b, PAGE)
    data[b : b + size] = data[a : a + size]


def truncated(chance: random.Random, data: bytearray) -> None:
    del data[chance.choice([page, place])(chance, data) :]


def extended(chance: random.Random, data: bytearray) -> None:
    size = chance.choice([1, 8, PAGE, chance.randrange(1, 3 * PAGE)])
    data += chance.randbytes(size) if chance.random() < 0.5 else bytes(size)


DAMAGES: dict[str, Callable[[random.Random, Path], None]] = {
    **{
        change.__name__.replace("_", " "): partial(edit, change)
        for change in (
            flips,
            zeroed,
            overwritten,
            page_zeroed,
            pages_swapped,
            page_duplicated,
            truncated,
            extended,
        )
    },
    "emptied": lambda chance, path: os.truncate(path, 0),
    "removed": lambda chance, path: path.unlink(),
    "nothing": lambda chance, path: None,  # then nothing may be refused
}


def copied(store: Damaged, file: str, target: Path) -> None:
    """Copy a store; files that nothing ever writes to are linked."""
    target.mkdir()
    for path in sorted(store.path.rglob("*")):
        name = str(path.relative_to(store.path))
        if path.is_dir():
            (target / name).mkdir()
        elif name == file or kind_of(name) in ("log", "writer lock"):
            shutil.copyfile(path, target / name)
        else:
            (target / name).hardlink_to(path)
