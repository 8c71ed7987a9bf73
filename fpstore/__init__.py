"""fpstore: exact, compressed, on-disk Hamming-radius search over fingerprints of 32 to 256 bits.

Some parameters mean the same everywhere. ``memory`` is a budget, an int or a string such as
``"2GiB"``. ``threads`` is by default one per processor. ``radius`` is 0 to the width; methods of a
store take the store's radius by default. ``progress`` is called as ``progress(phase, done,
total)``, from any thread. ``overwrite`` replaces what is at the path, in one step, when the new
one is complete. ``resume`` is a folder that keeps finished work. ``sync`` decides when a change is
durable.

Ids are non-negative integers below 2^64, or non-empty strings (paths are taken as strings) of at
most 65,536 bytes of UTF-8. A fingerprint keeps the ids of all its rows, each once.

``Store``, ``LshStore`` and their results have the type of ids as a parameter: with ``store:
Store[str] = fpstore.open(path)``, ``store.probe(7)[0].ids`` is a ``list[str]``; with
``Store[int]``, columns of ids are arrays of uint64. Without the parameter, ids are ``Any``.

Columns of pyarrow, Polars and pandas are taken where arrays are. Results with many rows become
tables by ``to_arrow()``, ``to_pandas()`` and ``to_polars()``, and are Arrow C streams, so that
``pyarrow.table(matches)`` takes them. Ids are read when the table is made: keep the store open.

The API follows semantic versioning; the file format has a version of its own.
"""

from typing import TYPE_CHECKING

from fpstore import start as start  # first: it explains why the kernel cannot be loaded
from fpstore.api import build, open, repair
from fpstore.cleaning import (
    decontaminate,
    dedup,
    dedup_pictures,
    remove_boilerplate,
    remove_passages,
)
from fpstore.design.families import Design
from fpstore.design.tables import TableSpec
from fpstore.errors import (
    ClosedStoreError,
    CorruptStoreError,
    FormatVersionError,
    FpstoreError,
    InputError,
    MemoryLimitError,
    MissingExtraError,
    NotStoredError,
    ReadOnlyError,
    ScanWarning,
    SourceLossError,
    StorageError,
    StoreExistsError,
    StoreLockedError,
    StoreNotFoundError,
    UnfinishedError,
)
from fpstore.query.ids import Ids
from fpstore.query.matches import Match, Matches, MatchList
from fpstore.store import Store

if TYPE_CHECKING:
    from fpstore import calibration as calibration
    from fpstore import hashing as hashing
    from fpstore import io as io
    from fpstore import lsh as lsh
    from fpstore import plans as plans
    from fpstore import ray as ray
    from fpstore import spark as spark
    from fpstore.care.reports import RepairReport, Report
    from fpstore.change.decisions import Deleted
    from fpstore.design.estimates import Plan
    from fpstore.design.planner import plan
    from fpstore.hashing import (
        BitSample,
        HyperplaneHash,
        ImageHash,
        LongestSentences,
        MinHash,
        PrecomputedMinHash,
        PStable,
        RandomProjection,
        SimHash,
        SimMinHash,
        Unary,
    )
    from fpstore.jobs.boilerplate import Boilerplate, RemovedPieces
    from fpstore.jobs.clusters import Clusters
    from fpstore.jobs.decontamination import Decontamination
    from fpstore.jobs.dedup import Deduplication
    from fpstore.jobs.hits import Hits
    from fpstore.jobs.pairs import Pair, Pairs
    from fpstore.jobs.removed import Removed
    from fpstore.jobs.removed_passages import Passages, RemovedPassages
    from fpstore.jobs.sources import Sources
    from fpstore.sharded import ShardedStore

__version__ = "0.2.0"

__all__ = [
    "BitSample",
    "Boilerplate",
    "ClosedStoreError",
    "Clusters",
    "CorruptStoreError",
    "Decontamination",
    "Deduplication",
    "Deleted",
    "Design",
    "FormatVersionError",
    "FpstoreError",
    "Hits",
    "HyperplaneHash",
    "Ids",
    "ImageHash",
    "InputError",
    "LongestSentences",
    "Match",
    "MatchList",
    "Matches",
    "MemoryLimitError",
    "MinHash",
    "MissingExtraError",
    "NotStoredError",
    "PStable",
    "Pair",
    "Pairs",
    "Passages",
    "Plan",
    "PrecomputedMinHash",
    "RandomProjection",
    "ReadOnlyError",
    "Removed",
    "RemovedPassages",
    "RemovedPieces",
    "RepairReport",
    "Report",
    "ScanWarning",
    "ShardedStore",
    "SimHash",
    "SimMinHash",
    "SourceLossError",
    "Sources",
    "StorageError",
    "Store",
    "StoreExistsError",
    "StoreLockedError",
    "StoreNotFoundError",
    "TableSpec",
    "Unary",
    "UnfinishedError",
    "build",
    "decontaminate",
    "dedup",
    "dedup_pictures",
    "open",
    "plan",
    "remove_boilerplate",
    "remove_passages",
    "repair",
]

_DEFERRED = {
    "care.reports": ("RepairReport", "Report"),
    "change.decisions": ("Deleted",),
    "design.estimates": ("Plan",),
    "design.planner": ("plan",),
    "hashing": (
        "BitSample",
        "HyperplaneHash",
        "ImageHash",
        "LongestSentences",
        "MinHash",
        "PStable",
        "PrecomputedMinHash",
        "RandomProjection",
        "SimHash",
        "SimMinHash",
        "Unary",
    ),
    "jobs.boilerplate": ("Boilerplate", "RemovedPieces"),
    "jobs.clusters": ("Clusters",),
    "jobs.decontamination": ("Decontamination",),
    "jobs.dedup": ("Deduplication",),
    "jobs.hits": ("Hits",),
    "jobs.pairs": ("Pair", "Pairs"),
    "jobs.removed_passages": ("Passages", "RemovedPassages"),
    "jobs.removed": ("Removed",),
    "jobs.sources": ("Sources",),
    "sharded": ("ShardedStore",),
}

if not TYPE_CHECKING:  # a type checker knows all names

    def __getattr__(name):
        """Import a name that opening and probing a store do not need, when it is first used."""
        from importlib import import_module

        # packages, whose names users import
        if name in ("calibration", "hashing", "io", "lsh", "plans", "ray", "spark"):
            return import_module(f"fpstore.{name}")
        for module, names in _DEFERRED.items():
            if name in names:
                value = globals()[name] = getattr(import_module(f"fpstore.{module}"), name)
                return value
        raise AttributeError(f"module 'fpstore' has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *__all__})
