"""A plain model of a store that changes, and comparisons of a store with it."""

import shutil

import lmdb
import numpy as np
from small_stores import numbers_of

import fpstore
from fpstore.format.manifest import read_manifest

MAX = 2**64 - 1


CHANGES = {
    "insert": lambda s: s.insert(1),
    "probe_insert": lambda s: s.probe_insert(1, 1),
    "probe_insert_many": lambda s: s.probe_insert_many([1], [1]),
    "probe_upsert_many": lambda s: s.probe_upsert_many([1], [1]),
    "delete": lambda s: s.delete(ids=1),
    "flush": lambda s: s.flush(),
    "merge": lambda s: s.merge(),
}


def words(values):
    return np.array(list(values), np.uint64)


class Model:
    """What a store holds, as a dict of fingerprints to sets of ids."""

    def __init__(self, kind, rows=(), next_row=0):
        self.kind = kind  # "row", "integer" or "string"
        self.content = {}
        self.next_row = next_row
        for fingerprint, item in rows:
            self.content.setdefault(fingerprint, set()).add(item)

    def copy(self):
        other = Model(self.kind, next_row=self.next_row)
        other.content = {fingerprint: set(ids) for fingerprint, ids in self.content.items()}
        return other

    @property
    def pairs(self):
        return sum(map(len, self.content.values()))

    def insert(self, fingerprints, ids=None):
        ids = range(self.next_row, self.next_row + len(fingerprints)) if ids is None else ids
        return sum(
            [
                self.add(fingerprint, item)
                for fingerprint, item in zip(fingerprints, ids, strict=True)
            ]
        )

    def add(self, fingerprint, item):
        known = self.content.setdefault(fingerprint, set())
        new = item not in known
        known.add(item)
        if self.kind == "row":
            self.next_row = max(self.next_row, item + 1)
        return new

    def near(self, query, radius):
        distances = (
            ((fingerprint ^ query).bit_count(), fingerprint) for fingerprint in self.content
        )
        return sorted(near for near in distances if near[0] <= radius)

    def probe_insert(self, fingerprint, item, radius, always=False):
        """Return what was near, as (distance, fingerprint), and whether the pair was inserted."""
        matches = self.near(fingerprint, radius)
        return matches, bool((always or not matches) and self.add(fingerprint, item))

    def probe_upsert(self, fingerprint, item, radius):
        """Return what other documents are near, as (distance, fingerprint).

        The pair itself is among them if it is stored.
        """
        for other in [
            other for other, ids in self.content.items() if item in ids and other != fingerprint
        ]:
            self._keep(
                {
                    known: ids - {item} if known == other else ids
                    for known, ids in self.content.items()
                }
            )
        return self.probe_insert(fingerprint, item, radius)[0]

    def delete_ids(self, ids):
        gone = set(ids)
        return self._keep(
            {fingerprint: known - gone for fingerprint, known in self.content.items()}
        )

    def delete_fingerprints(self, fingerprints):
        gone = set(fingerprints)
        return self._keep(
            {
                fingerprint: ids
                for fingerprint, ids in self.content.items()
                if fingerprint not in gone
            }
        )

    def _keep(self, content):
        before = self.pairs
        self.content = {fingerprint: ids for fingerprint, ids in content.items() if ids}
        return before - self.pairs

    def rows(self):
        return [
            (fingerprint, item)
            for fingerprint in sorted(self.content)
            for item in sorted(self.content[fingerprint])
        ]

    def matches(self, query, radius):
        return [
            (fingerprint, distance, sorted(self.content[fingerprint]))
            for distance, fingerprint in self.near(query, radius)
        ]


# --- What a store answers -------------------------------------------------------------------------


def content_of(store):
    """Return all that a store yields, and check that it does so in order."""
    content = {}
    last = -1
    for fingerprints, lims, ids in store.items():
        plain = ids if isinstance(ids, list) else ids.tolist()
        assert lims[0] == 0
        assert lims[-1] == len(plain)
        for m, fingerprint in enumerate(numbers_of(store, fingerprints)):
            assert fingerprint > last
            last = fingerprint
            part = plain[lims[m] : lims[m + 1]]
            assert len(set(part)) == len(part) > 0
            assert isinstance(part[0], str) or part == sorted(part)
            content[fingerprint] = set(part)
    return content


def plain(matches):
    """Put matches in a form that is compared.

    Strings come in order of their numbers, which the model does not have.
    """
    return [(m.fingerprint, m.distance, sorted(m.ids)) for m in matches]


def parted(lims, values):
    listed = values if isinstance(values, list) else values.tolist()
    return [listed[a:b] for a, b in zip(lims[:-1].tolist(), lims[1:].tolist(), strict=True)]


def answers(store, queries, ids, wide):
    """Ask everything about a few fingerprints and ids.

    ``wide`` is a radius beyond that of the store.

    None if a fingerprint was deleted between two of the questions.
    """
    try:
        return _answers(store, queries, ids, wide)
    except fpstore.NotStoredError:
        return None


def _answers(store, queries, ids, wide):
    few = queries[:3]
    content = content_of(store)
    stored = [query for query in queries if query in store]
    lims, of_stored = store.ids_of(stored)
    by_id, holding = (
        store.fingerprints_of(ids) if ids else (np.zeros(1, np.int64), np.empty(0, np.uint64))
    )
    stats = store.stats()
    return {
        "content": content,
        "len": len(store),
        "counts": (stats["fingerprints"], stats["ids"], len(store.ids)),
        "stored": stored,
        "getitem": [sorted(store[query]) for query in stored],
        "ids_of": [sorted(part) for part in parted(lims, of_stored)],
        "probe": [plain(store.probe(query)) for query in few],
        "exact": [plain(store.probe(query, 0)) for query in few],
        "wide": [plain(store.probe(query, wide)) for query in few[:1]],
        "probe_many": [plain(part) for part in store.probe_many(queries, threads=1)],
        "scan": [plain(part) for part in store.scan(few, wide, threads=1)],
        "limited": [(plain(part), part.more) for part in store.scan(few, wide, limit=3, threads=1)],
        "nearest": [plain(part) for part in store.nearest_many(few, 4, threads=1)],
        "has id": [item in store.ids for item in ids],
        "id": [store.ids[item] for item in ids if item in store.ids],
        "find": parted(by_id, numbers_of(store, holding)) if ids else [],
    }


def expected(model, radius, queries, ids, wide):
    few = queries[:3]
    content = model.content
    stored = [query for query in queries if query in content]
    by_id = [
        sorted(fingerprint for fingerprint, known in content.items() if item in known)
        for item in ids
    ]
    return {
        "content": content,
        "len": len(content),
        "counts": (len(content), model.pairs, model.pairs),
        "stored": stored,
        "getitem": [sorted(content[query]) for query in stored],
        "ids_of": [sorted(content[query]) for query in stored],
        "probe": [model.matches(query, radius) for query in few],
        "exact": [model.matches(query, 0) for query in few],
        "wide": [model.matches(query, wide) for query in few[:1]],
        "probe_many": [model.matches(query, radius) for query in queries],
        "scan": [model.matches(query, wide) for query in few],
        "limited": [
            (model.matches(query, wide)[:3], len(model.matches(query, wide)) > 3) for query in few
        ],
        "nearest": [model.matches(query, 2**10)[:4] for query in few],
        "has id": [bool(fingerprints) for fingerprints in by_id],
        "id": [fingerprints for fingerprints in by_id if fingerprints],
        "find": by_id,
    }


def check_merged(path, model, store, folder):
    """Compare the files of a generation with those of a build of the same rows."""
    fingerprints, ids = zip(*model.rows(), strict=True) if model.content else ((), ())
    manifest = read_manifest(path)
    options = {
        "radius": store.radius,
        "design": store.design.name,
        "block_bytes": manifest.block_bytes,
        "filter": manifest.filter,
    }
    with fpstore.build(
        folder / "fresh", words(fingerprints), list(ids) if ids else None, **options
    ) as fresh:
        assert fresh.verify().ok
    generations = [entry for entry in path.iterdir() if entry.name.startswith("gen-")]
    assert len(generations) == 1, generations
    built = folder / "fresh" / "gen-00000001"
    names = _compared(built, model)
    assert names
    assert _compared(generations[0], model) == names
    for name in names:
        if name == "places.fpt" and model.kind == "string":  # the strings have other numbers
            continue
        assert (generations[0] / name).read_bytes() == (built / name).read_bytes(), name
    if model.kind != "string":
        assert records_of(generations[0] / "ids.mdb", folder) == records_of(
            built / "ids.mdb", folder
        )
    shutil.rmtree(folder / "fresh")


def _compared(folder, model):
    """Return the names of its tables, filters and mappings.

    A build of no rows does not know that ids would be strings.
    """
    kinds = "*.fpt" if model.content else "table-*.fpt", "*.fpf"
    return sorted(entry.name for kind in kinds for entry in folder.glob(kind))


def records_of(path, folder):
    """Read an LMDB file through a copy: this process may have it open."""
    copy = folder / "copy.mdb"
    shutil.copy(path, copy)
    with (
        lmdb.open(str(copy), subdir=False, readonly=True, lock=False) as file,
        file.begin() as transaction,
    ):
        return list(transaction.cursor())
