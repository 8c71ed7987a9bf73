"""The calls: every public function, constructor and method, with arguments that are right.

Arguments and receivers are Python expressions, so that a call is one line. A required argument
without an expression here is an error: whoever adds a public function says how it is called.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

from public import public_members, public_names  # noqa: E402

OPERATORS = ("__contains__", "__getitem__")
# Parts of hashers for their authors: they take batches that were checked.
INSIDE = {
    "bits",
    "block",
    "both",
    "empty_message",
    "exceed",
    "from_parameters",
    "hashed",
    "is_unweighted",
    "kept_ids",
    "limit_memory",
    "of_column",
    "of_counts",
    "sides",
    "signed",
    "sketch_batch",
    "values",
    "with_bands",
    "with_excerpts",
    "with_width",
}

# What makes an object of a class. Those with parameters are constructors, which are called with odd
# values too.
CONSTRUCTORS = {
    "BitSample": {"dimension": "64"},
    "Comparison": {
        "fingerprinter": "fpstore.SimHash()",
        "text_a": "TEXTS[0]",
        "text_b": "TEXTS[1]",
    },
    "DocumentReader": {"paths": "['a.txt', 'b.txt']", "fingerprinter": "fpstore.SimHash()"},
    "Fields": {"fingerprinter": "fpstore.SimHash()", "weights": "{'title': 2, 'text': 1}"},
    "PrecomputedMinHash": {"count": "8"},
    "HyperplaneHash": {"dimension": "8"},
    "ImageHash": {},
    "ImageReader": {"paths": "'p.png'", "fingerprinter": "fpstore.ImageHash()"},
    "LongestSentences": {},
    "MainText": {"fingerprinter": "fpstore.SimHash()"},
    "MinHash": {},
    "PStable": {"dimension": "8", "radius": "1.0"},
    "RandomProjection": {"dimension": "8", "to": "4"},
    "SimHash": {},
    "SimMinHash": {},
    "TextReader": {"source": "'r.jsonl'", "fingerprinter": "fpstore.SimHash()", "text": "'text'"},
    "Unary": {"dimension": "8", "low": "0", "high": "9"},
    "VectorReader": {"paths": "'v.npy'", "fingerprinter": "fpstore.HyperplaneHash(dimension=8)"},
}
SPECS = {  # of plans, which are made of them
    "BuildSpec": {"source": "'r.jsonl'", "output": "'out'", "text": "'text'"},
    "DedupSpec": {"source": "'r.jsonl'", "output": "'out'", "text": "'text'"},
    "LshSpec": {
        "source": "'r.jsonl'",
        "output": "'out'",
        "text": "'text'",
        "threshold": "0.8",
        "documents": "9",
    },
    "PairsSpec": {"store": "'s.fps'", "output": "'out'", "other": "'t.fps'"},
    "ProbeSpec": {"store": "'s.fps'", "source": "'q.tsv'", "output": "'out'"},
}
# Expressions for objects that functions make.
MADE = {
    "Calibration": "fpstore.calibration.calibrate('r.jsonl', text='text')",
    "Clusters": "fpstore.open('s.fps').clusters(64)",
    "Decontamination": "fpstore.decontaminate('r.jsonl', 'b.jsonl', text='text')",
    "Deduplication": "fpstore.dedup('r.jsonl', text='text')",
    "Design": "fpstore.open('s.fps').design",
    "Hits": "fpstore.decontaminate('r.jsonl', 'b.jsonl', text='text').hits",
    "Ids": "fpstore.open('s.fps').ids",
    "LshStore": "fpstore.open('i.lsh', 'r+')",
    "MatchList": "fpstore.open('s.fps').probe(7)",
    "Matches": "fpstore.open('s.fps').probe_many([7, 9])",
    "Pairs": "next(fpstore.open('s.fps').pairs(64))",
    "Plan": "fpstore.plans.open_plan('p')",
    "Reader": "fpstore.io.open_reader('f.tsv')",
    "Removed": "fpstore.dedup('r.jsonl', text='text').removed",
    "RemovedPassages": "fpstore.remove_passages('r.jsonl', text='text', words=3).removed",
    "RemovedPieces": "fpstore.remove_boilerplate('r.jsonl', text='text').pieces",
    "ShardedStore": "fpstore.open('sharded')",
    "Sources": "fpstore.dedup('r.jsonl', text='text', source_field='text').sources",
    "Store": "fpstore.open('s.fps', 'r+')",
    "TableSpec": "fpstore.open('s.fps').design.tables[0]",
    "Writer": "fpstore.io.open_writer('w.tsv', columns=['fingerprint', 'id'])",
    "lsh.Matches": "fpstore.open('i.lsh').probe_many(TEXTS)",
}
# Classes without methods of their own, or whose objects are made by their authors.
PLAIN = (
    "Boilerplate",
    "Chunk",
    "Deleted",
    "Document",
    "Feature",
    "Fingerprinter",
    "Hasher",
    "JaccardLaw",
    "Law",
    "LshPlan",
    "Match",
    "Pair",
    "Passages",
    "RepairReport",
    "Report",
    "Signed",
    "Sketched",
    "Sketcher",
    "StageStatus",
    "Values",
)
RIGHT = {  # by the name of the parameter; the call that differs is below
    "bands": "2",
    "benchmark": "'b.jsonl'",
    "bits": "1",
    "count": "2",
    "cosine": "0.9",
    "design": "'auto'",
    "distance": "3",
    "distances": "[3, 5]",
    "fingerprint": "7",
    "fingerprint_count": "1000",
    "fingerprints": "[7, 9]",
    "folder": "'parts'",
    "hasher": "fpstore.MinHash()",
    "id": "5",
    "identifier": "7",
    "ids": "[5, 6]",
    "item": "TEXTS[0]",
    "items": "TEXTS",
    "n": "1000",
    "other": "'other.fps'",
    "others": "TEXTS",
    "output": "'out'",
    "path": "'new'",
    "path_or_stream": "'new.tsv'",
    "paths": "'f.tsv'",
    "picture": "'p.png'",
    "place": "0",
    "plan": "'plan'",
    "queries": "'q.fps'",
    "query": "0",
    "radius": "3",
    "rows": "[{'title': 'a b', 'text': 'c d'}]",
    "share": "0.9",
    "similarity": "0.9",
    "source": "'r.jsonl'",
    "spec": "fpstore.plans.BuildSpec('r.jsonl', 'out', text='text')",
    "store": "'s.fps'",
    "text": "'text'",
    "texts": "TEXTS",
    "threshold": "0.8",
    "value": "0.9",
    "index": "0",
    "jaccard": "0.8",
    "recall": "0.9",
}
BASES: dict[str, dict[str, str]] = {
    "Clusters.largest": {"count": "1"},
    "Design.from_json": {"data": "fpstore.open('s.fps').design.to_json()"},
    "Fields.fingerprint": {"item": "{'title': 'a b'}"},
    "Fields.fingerprints": {"items": "[{'title': 'a b'}]"},
    "Fields.is_empty": {"item": "{'title': 'a b'}"},
    "PrecomputedMinHash": {"item": "SKETCHES[0]", "items": "SKETCHES", "others": "SKETCHES"},
    "ImageHash": {"item": "'p.png'", "items": "['p.png']"},
    "MinHash.features": {"text": "TEXTS[0]"},
    "SimHash.features": {"text": "TEXTS[0]"},
    "LongestSentences.features": {"text": "TEXTS[0]"},
    "LongestSentences.sentences": {"text": "TEXTS[0]"},
    "ShardedStore.combine": {"path": "'sharded'"},
    "ShardedStore.insert": {"ids": "[5, 6]"},
    "Store.delete": {"ids": "[7]"},
    "Store.insert": {"ids": "[5, 6]"},
    "Store.join": {"other": "[7, 9]"},
    "ShardedStore.join": {"other": "[7, 9]"},
    "ShardedStore.delete": {"ids": "[7]"},
    "TableSpec.from_json": {"data": "fpstore.open('s.fps').design.tables[0].to_json()"},
    "Writer.write": {"data": "{'fingerprint': [7], 'id': [1]}"},
    "dedup": {"text": "'text'"},
    "hashing.from_description": {"description": "fpstore.SimHash().describe()"},
    "iter_documents": {"paths": "['a.txt']"},
    "lsh.build": {"hasher": "fpstore.MinHash()", "threshold": "0.8"},
    "open": {"path": "'s.fps'"},
    "open_plan": {"path": "'p'"},
    "open_writer": {"columns": "['fingerprint', 'id']"},
    "remove_plan": {"path": "'p'"},
    "calibrate": {"source": "'r.jsonl'", "text": "'text'"},
    "repair": {"path": "'s.fps'"},
}
VECTORS = ("HyperplaneHash", "PStable", "Unary", "RandomProjection")
for _name in VECTORS:
    BASES[_name] = {
        "item": "VECTORS[0]",
        "items": "VECTORS",
        "others": "VECTORS",
        "vectors": "VECTORS",
    }
BASES["BitSample"] = {"item": "CODES[0]", "items": "CODES", "others": "CODES"}


class Target(NamedTuple):
    """A call that is right: an expression of what is called, and expressions of its arguments."""

    name: str
    called: str
    base: dict[str, str]
    parameters: list[str]


def targets() -> list[Target]:
    """Return everything that is called."""
    return sorted(_found())


def _found() -> Iterator[Target]:
    seen = set()
    for module, name, value in public_names():
        if module.startswith("fpstore.adapters"):
            continue  # other packages say what their classes take
        if id(value) in seen or (inspect.isclass(value) and issubclass(value, BaseException)):
            continue
        seen.add(id(value))
        if not inspect.isclass(value):
            yield _target(module, name, name, value, f"{module}.{name}")
        elif (
            short := f"lsh.{name}" if module == "fpstore.lsh" and name == "Matches" else name
        ) not in PLAIN:
            yield from _of_class(module, short, value)


def _of_class(module: str, name: str, kind: type) -> Iterator[Target]:
    if name in SPECS:
        yield Target(name, f"planning(fpstore.plans.{name})", SPECS[name], list(_parameters(kind)))
        return
    made = MADE.get(name)
    if made is None:
        arguments = CONSTRUCTORS[name]
        made = f"{module}.{name}({_shown(arguments)})"
        yield Target(name, f"{module}.{name}", arguments, list(_parameters(kind)))
    public = {value for _, _, value in public_names() if inspect.isclass(value)}
    members = {key for base in kind.__mro__ if base in public for key in public_members(base)}
    for member in sorted(dir(kind)):
        function = inspect.getattr_static(kind, member)
        function = getattr(function, "__func__", function)
        is_public = member in OPERATORS or member in members
        if inspect.isfunction(function) and is_public and member not in INSIDE:
            yield _target(module, name, f"{name}.{member}", function, f"{made}.{member}")


def _target(module: str, owner: str, name: str, function: Any, called: str) -> Target:
    known = {
        **BASES.get(owner, {}),
        **BASES.get(name, {}),
        **BASES.get(f"{module.removeprefix('fpstore.')}.{name}", {}),
    }
    base, parameters = {}, _parameters(function)
    for parameter, needed in parameters.items():
        if needed and (parameter not in known and parameter not in RIGHT):
            raise LookupError(
                f"{name}: say in tools/oddcalls/targets.py what is right for {parameter}"
            )
        if (
            needed
            or parameter in BASES.get(name, {})
            or parameter in BASES.get(f"{module.removeprefix('fpstore.')}.{name}", {})
        ):
            base[parameter] = known.get(parameter) or RIGHT[parameter]
    return Target(name, called, base, list(parameters))


def _parameters(function: Any) -> dict[str, bool]:
    """Return the names of parameters, and whether each is needed."""
    parameters = inspect.signature(function).parameters.values()
    kinds = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    return {
        p.name: p.default is p.empty
        for p in parameters
        if p.name not in {"self", "cls"} and p.kind not in kinds
    }


def _shown(arguments: dict[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in arguments.items())
