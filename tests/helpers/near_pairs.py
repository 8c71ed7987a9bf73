"""Pairs and sets of rows within a radius, by brute force over all distances."""

import numpy as np


def brute(rows):
    """Return the distances of all pairs of rows, by their places."""
    words = rows.reshape(len(rows), -1 if len(rows) else 1)
    return (
        np.stack([np.bitwise_count(words ^ word).sum(axis=1) for word in words])
        if len(rows)
        else np.zeros((0, 0), int)
    )


def wanted_pairs(distances, radius):
    """Return (place, place, distance) of all pairs, ascending."""
    a, b = np.nonzero(np.triu(distances <= radius, 1))
    return list(zip(a.tolist(), b.tolist(), distances[a, b].tolist(), strict=True))


def wanted_sets(distances, radius):
    """Return the least member of the component of each row, by flooding."""
    out = np.full(len(distances), -1)
    for start in range(len(distances)):
        if out[start] < 0:
            reached, wave = np.zeros(len(distances), bool), np.array([start])
            while len(wave):
                reached[wave] = True
                wave = np.flatnonzero((distances[wave] <= radius).any(axis=0) & ~reached)
            out[reached] = start
    return out.tolist()


def wanted_groups(distances, radius):
    """Return the components of two or more rows as lists of their places, in order of the first."""
    groups = {}
    for place, name in enumerate(wanted_sets(distances, radius)):
        groups.setdefault(name, []).append(place)
    return [places for places in groups.values() if len(places) > 1]
