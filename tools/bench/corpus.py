"""The operations pairs, clusters and join: all near-duplicates of a set, or of two."""

from __future__ import annotations

import shutil
from functools import partial

import numpy as np

import fpstore
from bench import data
from bench.data import Words
from bench.harness import Bench, Result, ratio

RADIUS = 3
SIZES = (20, 22, 24, 26)
CHECKED = 1 << 10  # fingerprints whose neighbours are compared with what probes find
PROBED = 1 << 16
QUERY_LOG2 = 20
FAMILY_SHARE = 5  # one in five documents is in a family
MIN_FAMILY, MAX_FAMILY = 2, 100_000


def planted(seed: int, log2: int) -> Words:
    """Return uniform keys of which a tenth are copies of others with one to three bits flipped."""
    keys = data.uniform(seed, log2)
    count = len(keys) // 10
    keys[:count] = data.near(seed, keys[count:], count)
    return keys


def families(seed: int, log2: int) -> Words:
    """Return keys of which a fifth are in families of 2 to 100,000, within 3 bits of a centre.

    The sizes are drawn so that small families and large ones have about as many members together.
    """
    rng = np.random.default_rng([seed, 1 << 45])
    keys = data.uniform(seed, log2)
    count, start = len(keys) // FAMILY_SHARE, 0
    while start < count:
        size = int(
            np.exp(
                rng.uniform(
                    np.log(MIN_FAMILY), np.log(min(MAX_FAMILY, max(count // 8, MIN_FAMILY)))
                )
            )
        )
        end = min(start + size, count)
        centre = np.full(end - start, keys[-1 - start])
        keys[start:end] = data.flipped(rng, centre, rng.integers(0, RADIUS + 1, end - start))
        start = end
    rng.shuffle(keys)
    return keys


def pairs(bench: Bench) -> Result:
    """Find all pairs within 3 bits, by one thread and two, beside probes of all fingerprints."""
    out: Result = {}
    for log2 in bench.sizes(*SIZES):
        with _store(bench, planted(bench.seed, log2)) as store:
            one, two = (bench.seconds(partial(_count, store, threads)) for threads in (1, 2))
            stored = np.concatenate([rows for rows, _, _ in store.items()])
            sample = stored[:: -(-len(stored) // PROBED)].copy()
            probe_all = partial(store.probe_many, sample, RADIUS, threads=1)
            probing = bench.seconds(probe_all) / len(sample)
            out[f"2^{log2}"] = {
                "fingerprints": len(store),
                "pairs": _check(store, sample[:: -(-len(sample) // CHECKED)]),
                "nanoseconds_per_fingerprint": round(one / len(store) * 1e9, 1),
                "two_threads_faster": ratio(one, two),
                "probing_each_nanoseconds": round(probing * 1e9, 1),
                "probing_each_to_pairs": ratio(probing * len(store), one, 1),
            }
        shutil.rmtree(store.path)
    return out


def clusters(bench: Bench) -> Result:
    """Find the clusters of a set with families, beside all pairs of one without; one thread."""
    out: Result = {}
    for log2 in bench.sizes(24):
        with _store(bench, data.uniform(bench.seed, log2)) as store:
            plain = bench.seconds(lambda: _count(store, 1)) / len(store)
            alone = bench.seconds(lambda: store.clusters(RADIUS, threads=1)) / len(store)
        shutil.rmtree(store.path)
        with _store(bench, families(bench.seed, log2)) as store:
            took = bench.seconds(lambda: store.clusters(RADIUS, threads=1)) / store.stats()["ids"]
            clusters = store.clusters(RADIUS)
            if bench.smoke:
                _check_clusters(store, clusters)
            out[f"2^{log2}"] = {
                "documents": clusters.documents,
                "clusters": len(clusters),
                "largest": int(clusters.sizes.max()),
                "pairs_without_families_nanoseconds": round(plain * 1e9, 1),
                "clusters_without_families_nanoseconds": round(alone * 1e9, 1),
                "clusters_nanoseconds_per_document": round(took * 1e9, 1),
                "clusters_to_pairs": ratio(took, plain),
            }
        shutil.rmtree(store.path)
    return out


def join(bench: Bench) -> Result:
    """Find the pairs of a store and 2^20 other fingerprints, beside probes of each, one thread."""
    out: Result = {}
    for log2 in bench.sizes(24, 26):
        keys = data.uniform(bench.seed, log2)
        others = data.near(bench.seed, keys, min(1 << QUERY_LOG2, len(keys)))
        others[::2] = data.uniform(bench.seed + 1, log2)[: len(others)][::2]
        with fpstore.build(bench.folder / "join.fps", keys, radius=RADIUS) as store:
            probing = bench.seconds(partial(store.probe_many, others, RADIUS, threads=1))
            joining = bench.seconds(partial(_joined, store, others))
            pairs = _joined(store, others)
            matches = len(store.probe_many(np.unique(others), RADIUS).fingerprints)
            if pairs != matches:
                raise AssertionError(f"a join finds {pairs} pairs, and probes {matches}")
            out[f"2^{log2}"] = {
                "design": store.design.name,
                "queries": len(others),
                "pairs": pairs,
                "probes_microseconds_per_query": round(probing / len(others) * 1e6, 3),
                "join_microseconds_per_query": round(joining / len(others) * 1e6, 3),
                "probes_to_join": ratio(probing, joining),
            }
        shutil.rmtree(store.path)
    return out


def _joined(store: fpstore.Store, others: Words) -> int:
    return sum(map(len, store.join(others, RADIUS, threads=1)))


def _store(bench: Bench, keys: Words) -> fpstore.Store:
    return fpstore.build(bench.folder / "corpus.fps", keys, radius=RADIUS)


def _count(store: fpstore.Store, threads: int) -> int:
    return sum(map(len, store.pairs(RADIUS, threads=threads)))


def _check(store: fpstore.Store, sample: Words) -> int:
    """Compare the pairs of some fingerprints with what probes find.

    Return the number of all pairs.
    """
    matches = store.probe_many(sample, RADIUS)
    query = np.repeat(sample, np.diff(matches.lims))
    probed = {
        frozenset(pair)
        for pair in zip(query.tolist(), matches.fingerprints.tolist(), strict=True)
        if pair[0] != pair[1]
    }
    joined, count = set(), 0
    for batch in store.pairs(RADIUS):
        count += len(batch)
        kept = np.isin(batch.a, sample) | np.isin(batch.b, sample)
        joined |= {
            frozenset(pair)
            for pair in zip(batch.a[kept].tolist(), batch.b[kept].tolist(), strict=True)
        }
    if probed != joined:
        raise AssertionError("pairs and probes disagree")
    return count


def _check_clusters(store: fpstore.Store, clusters: fpstore.Clusters) -> None:
    """Compare clusters with what a union of both ends of all pairs gives."""
    sets: dict[int, int] = {}

    def first_of(fingerprint: int) -> int:
        while (parent := sets.setdefault(fingerprint, fingerprint)) != fingerprint:
            sets[fingerprint] = fingerprint = sets[parent]
        return fingerprint

    for batch in store.pairs(RADIUS):
        for a, b, _ in batch:
            a, b = first_of(a), first_of(b)
            sets[max(a, b)] = min(a, b)
    groups: dict[int, set[int]] = {}
    for fingerprints, lims, ids in store.items():
        for place, fingerprint in enumerate(fingerprints.tolist()):
            groups.setdefault(first_of(fingerprint), set()).update(
                map(int, ids[lims[place] : lims[place + 1]])
            )
    if {frozenset(group) for group in groups.values() if len(group) > 1} != set(
        map(frozenset, clusters)
    ):
        raise AssertionError("clusters and pairs disagree")
