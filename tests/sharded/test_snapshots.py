"""What a snapshot promises: each member works for one store and for shards, and both agree."""

import numpy as np
import pytest
from shards import KINDS, both, ids_of, queries_of, rows_of

from fpstore.query.id_lookup import ids_at
from fpstore.query.snapshot import Snapshot

VALUES = rows_of(64, 150, 1)
QUERIES = np.array(queries_of(VALUES, 64), np.uint64)


def names(snapshot, numbers):
    """Return ids, sorted: two snapshots may number the same strings otherwise."""
    return sorted(np.asarray(ids_at(snapshot, numbers)).tolist())


def groups(snapshot):
    found = []
    for keys, counts, numbers in snapshot.groups():
        ends = np.cumsum(counts.astype(np.int64))
        found += zip(
            keys[:, 0].tolist() if keys.ndim > 1 else keys.tolist(),
            [names(snapshot, part) for part in np.split(numbers, ends[:-1])],
            strict=True,
        )
    return found


def items(snapshot):
    found = {}
    for keys, lims, ids in snapshot.items():
        for key, start, end in zip(keys.ravel().tolist(), lims[:-1], lims[1:], strict=True):
            found.setdefault(key, []).extend(sorted(ids[start:end]))
    return found


def first_id(snapshot):
    name = ids_at(snapshot, snapshot.id_numbers(QUERIES[:1])[1][:1])[0]
    return snapshot.number_of(name) if isinstance(name, str) else int(name)


def columns(found):
    return [column.tolist() for column in found]


def lists(pair, snapshot):
    lims, numbers = pair
    return [names(snapshot, part) for part in np.split(numbers, lims[1:-1])]


def strings_known(snapshot):
    numbers = snapshot.numbers_of_strings([b"document 3", b"nothing"])
    return [number == snapshot.number_of("document 3") for number in numbers.tolist()]


MEMBERS = {
    "width": lambda it: it.width,
    "totals": lambda it: it.totals._replace(next_row=0),
    "folder": lambda it: it.folder.is_dir(),
    "design": lambda it: it.design.radius,
    "radius": lambda it: it.radius,
    "state": lambda it: isinstance(it.state, dict),
    "has_long_strings": lambda it: it.has_long_strings,
    "has_single_ids": lambda it: it.has_single_ids,
    "scans": lambda it: it.scans(40),
    "probe_nanoseconds": lambda it: it.probe_nanoseconds(2, 10) > 0,
    "bounded_queries": lambda it: it.bounded_queries,
    "probe": lambda it: it.probe(VALUES[0], 3),
    "probe_columns": lambda it: columns(it.probe_columns(QUERIES, 3, 1)),
    "probe_in_parts": lambda it: [
        (part.tolist(), columns(found)) for part, found in it.probe_in_parts(QUERIES, 3, 1, 1 << 20)
    ],
    "probe_nearest": lambda it: columns(it.probe_nearest(QUERIES, 3, 1, 2)[0]),
    "scan_columns": lambda it: columns(it.scan_columns(QUERIES, 9, 1)),
    "scan_nearest": lambda it: columns(it.scan_nearest(QUERIES, 9, 1, 2)[0]),
    "has": lambda it: [it.has(value) for value in QUERIES.tolist()],
    "get_ids": lambda it: sorted(it.get_ids(VALUES[3])),
    "ids_of": lambda it: [sorted(it.ids_of(QUERIES[:1])[1])],
    "stored_id_numbers": lambda it: lists(it.stored_id_numbers(QUERIES[:4]), it),
    "id_numbers": lambda it: lists(it.id_numbers(QUERIES), it),
    "list_ids": lambda it: sorted(it.list_ids(it.id_numbers(QUERIES)[1].tolist())),
    "ids_within": lambda it: names(it, it.id_numbers(QUERIES)[1]),
    "number_of": lambda it: it.number_of("document 3") is None,
    "numbers_of_strings": strings_known,
    "with_ids": lambda it: it.with_ids(it.id_numbers(QUERIES[:3])[1])[0].tolist(),
    "get_fingerprints": lambda it: it.get_fingerprints(first_id(it)),
    "groups": groups,
    "fingerprints": lambda it: np.concatenate([*it.fingerprints()]).tolist(),
    "items": items,
}


def test_every_member_of_the_interface_is_asked():
    public = {*vars(Snapshot), *Snapshot.__annotations__}
    assert {name for name in public if not name.startswith("_")} == set(MEMBERS)


@pytest.fixture(scope="module", params=KINDS)
def snapshots(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    mine, single = both(folder, VALUES, ids_of(request.param, len(VALUES)), [50, 100])
    with mine, single:
        yield mine.snapshot(), single.snapshot()


@pytest.mark.parametrize("member", MEMBERS)
def test_member_works_on_one_store_and_on_shards(snapshots, member):
    mine, single = snapshots
    assert MEMBERS[member](mine) == MEMBERS[member](single)


@pytest.mark.parametrize("member", ["generation", "delta", "version", "record", "probe_prefixes"])
def test_what_only_one_store_has_is_not_in_shards(snapshots, member):
    mine, single = snapshots
    assert hasattr(single, member)
    assert not hasattr(mine, member)
