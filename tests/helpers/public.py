"""What is public: modules, their names, and the members of their classes."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from fpstore.io.tables import Tabular

MODULES = (
    "fpstore",
    "fpstore.lsh",
    "fpstore.io",
    "fpstore.hashing",
    "fpstore.plans",
    "fpstore.calibration",
    "fpstore.adapters.datasketch",
    "fpstore.adapters.faiss",
    "fpstore.adapters.simhash",
)


def public_names() -> Iterator[tuple[str, str, Any]]:
    """Yield the module, the name and the value of each public name.

    A name that two modules have comes twice.
    """
    for module in MODULES:
        imported = importlib.import_module(module)
        for name in imported.__all__:
            yield module, name, getattr(imported, name)


# Members without an underscore that are public in the package, but not for users. They are hidden
# in the classes derived from these, too.
INTERNAL = {
    "BuildSpec": ("inputs_and_columns", "options"),
    "Clusters": ("batches", "by_size", "in_memory"),
    "CodeHash": ("bits", "code_bits"),
    "DedupSpec": ("can_verify", "grouping", "jaccard", "job"),
    "Design": ("from_json", "to_json"),
    "Fingerprinter": ("batches", "hashed", "empty_message"),
    "HashingReader": ("columns", "numbered_chunks"),
    "Hits": ("batches", "hits_of_inputs", "in_memory", "without_rare_ngrams"),
    "HyperplaneHash": ("sides",),
    "ImageHash": ("frame_fingerprints",),
    "LshSpec": ("bands", "columns"),
    "Matches": ("before", "verified"),
    "LshStore": ("hash_known", "snapshot"),
    "MinHash": ("is_unweighted",),
    "MinHashSketcher": ("minhash", "with_bands", "with_width"),
    "Pairs": ("bounded",),
    "ProbeSpec": ("inputs_and_columns",),
    "Reader": ("columns", "columns_of_width"),
    "Removed": ("batches", "in_memory"),
    "RemovedPassages": ("batches",),
    "RemovedPieces": ("batches",),
    "RepairReport": ("note",),
    "Report": ("note",),
    # as in a store, or refused
    "ShardedStore": ("backup", "design", "fingerprinter", "split", "stats", "verify"),
    "SimHash": ("hashed_fields", "learn_from_rows"),
    "Store": ("snapshot", "writer"),
    "TableSpec": ("from_json", "to_json"),
    "Unary": ("exceed",),
}


def public_members(cls: type) -> dict[str, Any]:
    """Return the methods and properties of a class for users, without inherited ones."""
    hidden = {key for base in cls.__mro__ for key in INTERNAL.get(base.__name__, ())}
    own = {**vars(cls), **(vars(Tabular) if issubclass(cls, Tabular) else {})}
    return {
        key: value
        for key, value in own.items()
        if key[0] != "_" and key not in hidden and hasattr(value, "__get__")
    }
