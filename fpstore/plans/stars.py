"""Connected components of more links than one task can hold.

Rounds of large-star and small-star, in slices of nodes.

R. Kiveris, S. Lattanzi, V. Mirrokni, V. Rastogi, S. Vassilvitskii, *Connected Components in
MapReduce and Beyond*, SoCC 2014, section 3. In each step a task has all edges of the nodes of its
slice. The steps leave the components as they are; when a round changes nothing, each node has one
edge, to the least node of its component.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fpstore.base.aliases import Words
from fpstore.base.arrays import differs
from fpstore.errors import InputError
from fpstore.plans.pieces import Pieces, PieceWriter, joined
from fpstore.plans.plan import PlanFolder, Stage
from fpstore.plans.shuffle import mix, slice_places

ROUNDS = 24  # of both steps: a chain of thousands of links takes about ten
LARGE, SMALL = "large-star", "small-star"
Edges = tuple[Words, Words]  # the nodes that a task groups by, and their neighbours


def star_stages(bits: int) -> list[Stage]:
    """Return the stages of all rounds."""
    return [
        Stage(f"{step}-{number}", 1 << bits)
        for number in range(1, ROUNDS + 1)
        for step in (LARGE, SMALL)
    ]


def write_edges(writer: PieceWriter, a: Words, b: Words, bits: int, both: bool) -> None:
    """Write edges for the next step.

    To the slice of the greater node, or to those of both nodes.
    """
    low, high = np.minimum(a, b), np.maximum(a, b)
    nodes, others = (
        (np.concatenate([high, low]), np.concatenate([low, high])) if both else (high, low)
    )
    slices = slice_places(mix(nodes), bits)
    writer.add_slices("nodes", nodes, slices)
    writer.add_slices("others", others, slices)


def star_step(plan: PlanFolder, stage: str, number: int, writer: PieceWriter, bits: int) -> None:
    """Do a step for the nodes of a slice.

    If nothing has changed in the two steps before, name the stage that has the edges.
    """
    step, _, text = stage.rpartition("-")
    turn = int(text)
    before = (
        [f"{LARGE}-{turn}"]
        if step == SMALL
        else [f"{SMALL}-{turn - 1}"]
        if turn > 1
        else ["hash", "links"]
    )
    if turn > 1 and (done := _converged(plan, turn - 1)) is not None:
        writer.facts["same_as"] = done
        return
    nodes, others = read_edges([one for name in before for one in plan.results(name)], number)
    a, b, changed = (large_star if step == LARGE else small_star)(nodes, others)
    writer.facts["changed"] = changed
    write_edges(writer, a, b, bits, step == SMALL)


def _converged(plan: PlanFolder, turn: int) -> str | None:
    """Return the stage that has the edges in the end, if a round changed nothing."""
    done = plan.result(f"{SMALL}-{turn}", 0).facts.get("same_as")
    if done is not None:
        return str(done)
    steps = [*plan.results(f"{SMALL}-{turn}"), *plan.results(f"{LARGE}-{turn}")]
    changed = sum(one.facts["changed"] for one in steps)
    return None if changed else f"{SMALL}-{turn}"


def read_edges(parts: Sequence[Pieces], number: int) -> Edges:
    """Return the edges of the nodes of a slice, each once, by node and neighbour."""
    nodes, others = joined(parts, "nodes", number), joined(parts, "others", number)
    order = np.lexsort((others, nodes))
    nodes, others = nodes[order], others[order]
    kept = differs(nodes) | differs(others)
    return nodes[kept], others[kept]


def large_star(nodes: Words, others: Words) -> tuple[Words, Words, int]:
    """Connect the greater neighbours of each node with the least of the node and its neighbours.

    Count new edges.
    """
    starts = np.flatnonzero(differs(nodes))
    leasts = np.repeat(
        np.minimum(nodes[starts], others[starts]), np.diff(starts, append=len(nodes))
    )
    greater = others > nodes
    return (
        others[greater],
        leasts[greater],
        int(np.count_nonzero(leasts[greater] != nodes[greater])),
    )


def small_star(nodes: Words, others: Words) -> tuple[Words, Words, int]:
    """Connect each node and its lesser neighbours, which are all that are given, with the least of them; count new edges."""
    starts = np.flatnonzero(differs(nodes))
    leasts = np.repeat(others[starts], np.diff(starts, append=len(nodes)))
    changed = others != leasts
    a = np.concatenate([nodes[starts], others[changed]])
    return a, np.concatenate([others[starts], leasts[changed]]), int(np.count_nonzero(changed))


def star_labels(plan: PlanFolder, number: int) -> Edges:
    """Return the nodes of a slice, and the least nodes that they are connected with, which are among the nodes, too."""
    done = plan.result(f"{SMALL}-{ROUNDS}", 0).facts.get("same_as")
    if done is None:
        raise InputError(
            f"{plan.place.uri}: components are not found in {ROUNDS} rounds: a plan needs larger "
            "star_rows"
        )
    nodes, labels = read_edges(plan.results(done), number)
    is_node = nodes > labels  # an edge is at both of its nodes
    nodes, labels = nodes[is_node], labels[is_node]
    roots = np.unique(labels)
    every = np.concatenate([nodes, roots])
    order = np.argsort(every, kind="stable")
    return every[order], np.concatenate([labels, roots])[order]
