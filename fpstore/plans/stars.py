"""Components of more links than one task can hold: rounds of large-star and small-star.

R. Kiveris, S. Lattanzi, V. Mirrokni, V. Rastogi, S. Vassilvitskii, *Connected Components in
MapReduce and Beyond*, SoCC 2014, section 3. In each step a task has all edges of the nodes of its
slice. The steps leave the components as they are; when a round changes nothing, each node has one
edge, to the least node of its component.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fpstore.base.aliases import Words
from fpstore.base.arrays import is_run_start
from fpstore.errors import InputError
from fpstore.plans.shuffle import mix, slice_places
from fpstore.work.folder import PlanFolder, Stage
from fpstore.work.pieces import Pieces, PieceWriter, concatenate_arrays

ROUNDS = 24  # of both steps: a chain of thousands of links takes about ten
LARGE, SMALL = "large-star", "small-star"
Edges = tuple[Words, Words]  # the nodes that a task groups by, and their neighbours


def star_stages(slice_bits: int) -> list[Stage]:
    """Return the stages of all rounds, each with a task for each of 2^``slice_bits`` slices."""
    return [
        Stage(f"{step}-{number}", 1 << slice_bits)
        for number in range(1, ROUNDS + 1)
        for step in (LARGE, SMALL)
    ]


def write_edges(writer: PieceWriter, a: Words, b: Words, bits: int, both: bool) -> None:
    """Write edges for the next step, to the slice of the greater node or of both nodes."""
    low, high = np.minimum(a, b), np.maximum(a, b)
    nodes, neighbours = (
        (np.concatenate([high, low]), np.concatenate([low, high])) if both else (high, low)
    )
    slices = slice_places(mix(nodes), bits)
    writer.add_slices("nodes", nodes, slices)
    writer.add_slices("others", neighbours, slices)


def star_step(
    plan: PlanFolder,
    stage: str,
    number: int,
    writer: PieceWriter,
    bits: int,
    linking: Sequence[str],
) -> None:
    """Do a step for the nodes of a slice; the stages ``linking`` have the edges at first.

    If nothing has changed in the two steps before, name the stage that has the final edges.
    """
    step, _, text = stage.rpartition("-")
    turn = int(text)
    sources = (
        [f"{LARGE}-{turn}"] if step == SMALL else [f"{SMALL}-{turn - 1}"] if turn > 1 else linking
    )
    if turn > 1 and (final_stage := _converged(plan, turn - 1)) is not None:
        writer.facts["same_as"] = final_stage
        return
    nodes, neighbours = read_edges(
        [pieces for name in sources for pieces in plan.results(name)], number
    )
    a, b, changed = (large_star if step == LARGE else small_star)(nodes, neighbours)
    writer.facts["changed"] = changed
    write_edges(writer, a, b, bits, step == SMALL)


def _converged(plan: PlanFolder, turn: int) -> str | None:
    """Return the stage that has the final edges, if a round has changed nothing."""
    final_stage = plan.result(f"{SMALL}-{turn}", 0).facts.get("same_as")
    if final_stage is not None:
        return str(final_stage)
    steps = [*plan.results(f"{SMALL}-{turn}"), *plan.results(f"{LARGE}-{turn}")]
    changed = sum(pieces.facts["changed"] for pieces in steps)
    return None if changed else f"{SMALL}-{turn}"


def read_edges(parts: Sequence[Pieces], number: int) -> Edges:
    """Return the edges of the nodes of a slice, each once, by node and neighbour."""
    nodes, neighbours = (
        concatenate_arrays(parts, "nodes", number),
        concatenate_arrays(parts, "others", number),
    )
    order = np.lexsort((neighbours, nodes))
    nodes, neighbours = nodes[order], neighbours[order]
    is_new = is_run_start(nodes) | is_run_start(neighbours)
    return nodes[is_new], neighbours[is_new]


def large_star(nodes: Words, neighbours: Words) -> tuple[Words, Words, int]:
    """Connect the greater neighbours of each node with the least of the node and all neighbours.

    Return the edges, and the number of new ones.
    """
    starts = np.flatnonzero(is_run_start(nodes))
    leasts = np.repeat(
        np.minimum(nodes[starts], neighbours[starts]), np.diff(starts, append=len(nodes))
    )
    greater = neighbours > nodes
    return (
        neighbours[greater],
        leasts[greater],
        int(np.count_nonzero(leasts[greater] != nodes[greater])),
    )


def small_star(nodes: Words, neighbours: Words) -> tuple[Words, Words, int]:
    """Connect each node and its neighbours, which are lesser, with the least of them.

    Return the edges, and the number of new ones.
    """
    starts = np.flatnonzero(is_run_start(nodes))
    leasts = np.repeat(neighbours[starts], np.diff(starts, append=len(nodes)))
    changed = neighbours != leasts
    a = np.concatenate([nodes[starts], neighbours[changed]])
    return a, np.concatenate([neighbours[starts], leasts[changed]]), int(np.count_nonzero(changed))


def star_labels(plan: PlanFolder, number: int) -> Edges:
    """Return the nodes of a slice, and the least node of the component of each.

    The least nodes are among the nodes, too.
    """
    final_stage = plan.result(f"{SMALL}-{ROUNDS}", 0).facts.get("same_as")
    if final_stage is None:
        raise InputError(
            f"{plan.place.uri}: components are not found in {ROUNDS} rounds: a plan needs larger "
            "star_rows"
        )
    nodes, labels = read_edges(plan.results(final_stage), number)
    is_node = nodes > labels  # an edge is at both of its nodes
    nodes, labels = nodes[is_node], labels[is_node]
    roots = np.unique(labels)
    all_nodes = np.concatenate([nodes, roots])
    order = np.argsort(all_nodes, kind="stable")
    return all_nodes[order], np.concatenate([labels, roots])[order]
