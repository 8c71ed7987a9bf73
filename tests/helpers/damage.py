"""Damages to the files of a small store, and the outcome of each.

An outcome is an error, the right answer, or a fault.
"""

import faulthandler
import json
import os
import random
import shutil
import signal
from collections import Counter

import lmdb
import numpy as np
import pytest
import xxhash
from sealing import seal

import fpstore

TABLES = ("gen-00000001/table-000.fpt", "gen-00000001/table-001.fpt", "gen-00000001/table-002.fpt")
IDS = "gen-00000001/ids.mdb"
MANIFEST = "manifest.json"
STRINGS_FILE = "gen-00000001/strings.mdb"
HASHES = "gen-00000001/hashes.fpt"
NUMBERS = "gen-00000001/numbers.mdb"
LMDB_FILES = (IDS, STRINGS_FILE, NUMBERS)
LOG = "gen-00000001/log"
RADIUS = 2
HANG_SECONDS = 30


def fingerprints_of(seed):
    rng = np.random.default_rng(seed)
    centres = rng.integers(0, 2**64, 150, np.uint64)
    return np.concatenate(
        [centres, centres[:100] ^ (np.uint64(1) << rng.integers(0, 64, 100, np.uint64))]
    )


FINGERPRINTS = fingerprints_of(5)
STRINGS = [f"document {i}" for i in range(len(FINGERPRINTS))]


def make(path, fingerprints=FINGERPRINTS, ids=STRINGS, design="blocks-3-1"):
    fpstore.build(
        path, fingerprints, ids, radius=RADIUS, design=design, block_bytes=128, filter=True
    ).close()
    return path


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return make(tmp_path_factory.mktemp("good") / "s")


@pytest.fixture
def copy(good, tmp_path):
    return shutil.copytree(good, tmp_path / "copy")


def answers(store):
    """Everything that can be asked.

    Probes of all that is stored and of neighbours, their ids, which have an id, and the rows.
    """
    queries = np.concatenate([FINGERPRINTS, FINGERPRINTS[::7] ^ np.uint64(1 << 40 | 1)])
    matches = store.probe_many(queries, RADIUS, threads=1)
    lims, ids = matches.read_ids()
    fingerprint = int(FINGERPRINTS[3])
    return (
        (matches.lims.tolist(), matches.fingerprints.tolist(), matches.distances.tolist()),
        (lims.tolist(), list(ids)),
        (store[fingerprint], store.probe(fingerprint), fingerprint in store, len(store)),
        tuple(column.tolist() for column in store.fingerprints_of(STRINGS[::5])),
        [(f.tolist(), lims.tolist(), list(ids)) for f, lims, ids in store.items()],
    )


@pytest.fixture(scope="module")
def right(good):
    with fpstore.open(good) as store:
        assert store.verify().ok
        assert store.verify().blocks > 3 * 10
        return answers(store)


def outcome(path, right, ask=answers):
    """Return what a damaged store does: first in verify, then in everything else."""
    try:
        store = fpstore.open(path)
    except fpstore.FpstoreError:
        return "refused"
    with store:
        noticed = "unnoticed" if store.verify().ok else "noticed"
        try:
            return f"{noticed}, {'right' if ask(store) == right else 'WRONG'}"
        except fpstore.FpstoreError:
            return f"{noticed}, error"


def outcomes(path, name, right, damages, ask=answers):
    """Apply each damage to a file, ask the store, and return an outcome for each.

    A damage is a function of the file descriptor that returns its repair. It is applied in a child
    process; a child that dies is replaced, and its signal is the outcome.
    """
    results = []
    while len(results) < len(damages):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(read)
                faulthandler.disable()
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
                _child(path / name, path, right, damages[len(results) :], write, ask)
            finally:
                os._exit(1)
        os.close(write)
        with os.fdopen(read, encoding="utf-8") as lines:
            results += [line.rstrip("\n") for line in lines]
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            results.append(
                "HANG" if number == signal.SIGALRM else f"DIED by {signal.Signals(number).name}"
            )
            shutil.copyfile(path.parent / "pristine", path / name)
        else:
            assert os.WEXITSTATUS(status) == 0
    return results


def _child(file, path, right, damages, write, ask):
    descriptor = os.open(file, os.O_RDWR)
    for damage in damages:
        signal.alarm(HANG_SECONDS)
        repair = damage(descriptor)
        try:
            result = outcome(path, right, ask)
        except BaseException as error:
            result = f"RAISED {type(error).__name__}: {error}".replace("\n", " ")[:200]
        repair()
        os.write(write, f"{result}\n".encode())
    os._exit(0)


def flip(at, bit):
    def damage(descriptor):
        old = os.pread(descriptor, 1, at)
        os.pwrite(descriptor, bytes([old[0] ^ 1 << bit]), at)
        return lambda: os.pwrite(descriptor, old, at)

    return damage


def cut(length):
    def damage(descriptor):
        rest = os.pread(descriptor, 1 << 24, length)
        os.ftruncate(descriptor, length)
        return lambda: os.pwrite(descriptor, rest, length)

    return damage


def check(copy, name, right, damages, allowed, ask=answers):
    """Apply labelled damages, and check that each outcome is allowed."""
    shutil.copyfile(copy / name, copy.parent / "pristine")
    labels = list(damages)
    results = outcomes(copy, name, right, [damages[label] for label in labels], ask)
    bad = {label: r for label, r in zip(labels, results, strict=True) if r not in allowed}
    assert not bad, (
        f"{name}: {Counter(bad.values())} of {len(labels)}, such as {dict(list(bad.items())[:8])}"
    )
    assert (copy / name).read_bytes() == (copy.parent / "pristine").read_bytes()
    return Counter(results)


def flips(places, bits=1, seed=1):
    rng = random.Random(seed)
    return {(at, bit): flip(at, bit) for at in places for bit in rng.sample(range(8), bits)}


NOTICED = {"refused", "noticed, error"}
PAGE = 4096


def rewrite(path, change):
    """Change the manifest, with a right checksum; ``change`` gets what it says, as JSON has it."""
    content = json.loads((path / MANIFEST).read_bytes())
    del content["checksum"]
    change(content)
    body = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    content["checksum"] = f"{xxhash.xxh64_intdigest(body):016x}"
    (path / MANIFEST).write_text(json.dumps(content), encoding="utf-8")


def used_bytes(path):
    """Return the size of an LMDB file up to its last page, which its digest covers.

    Behind that is padding.
    """
    with lmdb.open(str(path), subdir=False, readonly=True, lock=False) as file:
        return (file.info()["last_pgno"] + 1) * PAGE


def records_of(file):
    """Return the values of an LMDB file by their keys."""
    with (
        lmdb.open(str(file), subdir=False, readonly=True, lock=False) as environment,
        environment.begin() as transaction,
    ):
        return dict(transaction.cursor())


def rewrite_records(path, name, change):
    """Change records of an LMDB file, under right checksums of its pages and the manifest."""
    file = path / name
    records = records_of(file)
    change(records)
    file.unlink()
    environment = lmdb.open(str(file), subdir=False, lock=False, map_size=1 << 26)
    with environment, environment.begin(write=True) as transaction:
        transaction.cursor().putmulti(sorted(records.items()), append=True)
    largest = max(map(len, records.values()))
    data = file.read_bytes()[: used_bytes(file)]
    size, digest = seal(file, data, -(-largest // PAGE) * PAGE)
    shape = {"bytes": size, "digest": digest, "largest": largest}

    def note(record):
        generation = record["generation"]
        if name == IDS:
            generation["ids_file"] = shape
        else:
            generation["dictionary"]["strings" if name == STRINGS_FILE else "numbers"] = shape

    rewrite(path, note)
