"""Hashers by name: those of fpstore, and those that other packages offer.

A store, an index and a file of learnt weights remember a hasher by its description.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

from fpstore.base.arguments import check_choice, check_path, printable
from fpstore.base.width import WORD_BITS
from fpstore.errors import FormatVersionError, InputError, MissingExtraError, cut, show
from fpstore.hashing.base import Fingerprinter, Hasher
from fpstore.hashing.codes import BitSample, Unary
from fpstore.hashing.features import IN_KERNEL
from fpstore.hashing.fields import Fields
from fpstore.hashing.html import MainText
from fpstore.hashing.image import ImageHash
from fpstore.hashing.minhash import MinHash
from fpstore.hashing.precomputed import PrecomputedMinHash
from fpstore.hashing.pstable import PStable
from fpstore.hashing.sentences import LongestSentences
from fpstore.hashing.simhash import SimHash
from fpstore.hashing.simminhash import SimMinHash
from fpstore.hashing.sketcher import Sketcher
from fpstore.hashing.text import TextHash
from fpstore.hashing.vectors import HyperplaneHash
from fpstore.io.files import storage_errors

GROUP = "fpstore.hashers"
_KINDS: tuple[type[Hasher[Any]], ...] = (
    SimHash,
    MinHash,
    SimMinHash,
    Fields,
    LongestSentences,
    MainText,
    ImageHash,
    HyperplaneHash,
    BitSample,
    Unary,
    PStable,
    PrecomputedMinHash,
)
#: Fingerprinters of texts with features, by the names that users choose one by.
TEXT_METHODS: dict[str, type[MinHash] | type[SimHash]] = {"minhash": MinHash, "simhash": SimHash}
_KNOWN: dict[str, type[Hasher[Any]]] = {kind.name: kind for kind in _KINDS}


def text_fingerprinter(method: str, weighted: bool, **parameters: Any) -> MinHash | SimHash:
    """Return the fingerprinter of texts of a method, one of TEXT_METHODS.

    If features are weighted, MinHash counts by default.
    """
    kind = TEXT_METHODS[check_choice(method, tuple(TEXT_METHODS), "method")]
    counting = {"weighting": "count"} if weighted and kind is MinHash else {}
    return kind(**counting | parameters)


def from_description(description: Mapping[str, Any]) -> Hasher[Any]:
    """Rebuild the hasher that a store or an index remembers.

    Parameters
    ----------
    description : mapping
        The result of `Hasher.describe`: ``name``, ``version`` and ``parameters``.

    Returns
    -------
    Hasher
        One that makes the same fingerprints, or sketches.

    Raises
    ------
    MissingExtraError
        No installed package has a hasher of this name.
    FormatVersionError
        The installed package has another version of it, or does not know a parameter.
    InputError
        The description is malformed, lacks a parameter, or has a value out of range.

    Examples
    --------
    >>> from fpstore.hashing import SimHash, from_description
    >>> from_description(SimHash(size=2).describe()) == SimHash(size=2)
    True
    """
    name, version, parameters = _checked(description)
    kind = _kind(name, version)
    parameters = dict(parameters)
    if "fingerprinter" in parameters:  # of main texts, or of the texts of fields
        parameters["fingerprinter"] = _inner(parameters["fingerprinter"])
    try:
        return kind.from_parameters(parameters)
    except (TypeError, KeyError) as error:
        raise InputError(
            f"the description of the hasher {show(name)} has parameters that it does not take: "
            f"{error}",
            got=description,
        ) from None


def described_fingerprinter(description: Mapping[str, Any]) -> Fingerprinter[Any]:
    """Rebuild the fingerprinter that a store remembers; InputError for another hasher."""
    hasher = from_description(description)
    if not isinstance(hasher, Fingerprinter):
        raise InputError(f"the hasher {hasher.name} makes no fingerprints", got=description)
    return hasher


def sketcher(hasher: object) -> Sketcher[Any]:
    """Return a hasher that has a law, as an index needs it.

    InputError for one without, or with the name of another hasher of fpstore.
    """
    if isinstance(hasher, type):
        raise InputError(
            f"expected a hasher, got the class {hasher.__name__}: make one, {hasher.__name__}(...)",
            got=hasher,
        )
    if not isinstance(hasher, Hasher):
        raise InputError(
            f"expected a hasher, such as MinHash() or HyperplaneHash(...), got {show(hasher)}",
            got=hasher,
        )
    kind = _KNOWN.get(hasher.name)
    if kind not in (None, type(hasher)):
        raise InputError(
            f"the hasher {type(hasher).__name__} has the name {show(hasher.name)}, which is of "
            f"another: {kind.__name__}; an index would be opened with that one",
            got=hasher,
        )
    if hasher.law is None or not isinstance(hasher, Sketcher):
        advice = ", or SimMinHash" if isinstance(hasher, SimHash) else ""
        raise InputError(
            f"the hasher {hasher.name} has no law, by which an index is planned: take one that "
            f"has, such as MinHash{advice}",
            got=hasher,
        )
    return hasher


def _inner(description: Any) -> Fingerprinter[Any]:
    name, version, parameters = _checked(description)
    # fingerprinters must not be nested further
    if _kind(name, version) and "fingerprinter" in parameters:
        raise InputError(
            f"a fingerprinter in another one is one of texts, got {show(description)}",
            got=description,
        )
    return described_fingerprinter(description)


def in_words(description: Mapping[str, Any]) -> str:
    """Return a description for people, also of a fingerprinter that this fpstore does not know.

    Long values are cut.
    """
    parameters, shown = description.get("parameters", {}), []
    if not isinstance(parameters, Mapping):
        return f"{description['name']} {description.get('version', '')} ({cut(str(parameters))})"
    for name, value in parameters.items():
        nested = isinstance(value, Mapping) and "name" in value
        shown.append(f"{name}={in_words(value) if nested else cut(str(value))}")
    return f"{description['name']} {description.get('version', '')} ({', '.join(shown)})"


def usual_group(description: Mapping[str, Any]) -> str:
    """Return how to group near-duplicates of a fingerprinter, which this fpstore may not know."""
    inner = description.get("parameters", {}).get("fingerprinter")
    if inner is not None:
        return usual_group(inner)
    kind = _KNOWN.get(description["name"], Fingerprinter)
    return kind.usual_group if issubclass(kind, Fingerprinter) else Fingerprinter.usual_group


def _checked(description: object) -> tuple[str, int, Mapping[str, Any]]:
    if isinstance(description, Mapping) and set(description) == {"name", "version", "parameters"}:
        name, version, parameters = (description[key] for key in ("name", "version", "parameters"))
        if isinstance(name, str) and type(version) is int and isinstance(parameters, Mapping):
            return name, version, parameters
    raise InputError(
        "a hasher is described by a name (str), a version (int) and parameters (dict): got "
        f"{show(description)}",
        got=description,
    )


def _kind(name: str, version: int) -> type[Hasher[Any]]:
    kind = _KNOWN.get(name) or _installed(name)
    package = kind.__module__.partition(".")[0]
    check_version(f"the hasher {show(name)}", version, kind.version, package)
    return kind


def _installed(name: str) -> type[Hasher[Any]]:
    """Return the hasher that another package offers."""
    points = metadata.entry_points(group=GROUP, name=name)
    if not points:
        raise MissingExtraError(
            f"the hasher {show(name)} is not installed: install the package that has the entry "
            f"point {show(name)} in the group {GROUP}, or upgrade fpstore",
            expected=sorted({*_KNOWN, *metadata.entry_points(group=GROUP).names}),
            got=name,
        )
    (point, *_) = points
    package = point.value if point.dist is None else point.dist.name
    try:
        loaded = point.load()
    except Exception as error:  # of any package
        raise MissingExtraError(
            f"the hasher {show(name)} of the package {package} cannot be imported: "
            f"{type(error).__name__}: {error}",
            got=name,
        ) from error
    if not (isinstance(loaded, type) and issubclass(loaded, Hasher) and loaded.name == name):
        raise MissingExtraError(
            f"the entry point {show(name)} of the package {package} is no hasher of this name",
            got=name,
        )
    return loaded


def check_version(what: str, version: int, own: int, package: str) -> None:
    """Raise FormatVersionError for another version than the own of what a package makes.

    It says which of both is older.
    """
    if version < own:
        message = (
            f"version {version} of {what} is of an older {package}, and this one makes {own}: "
            "build it again from its texts"
        )
        raise FormatVersionError(message, expected=own, got=version)
    if version > own:
        message = f"unknown version {version} of {what}: this one makes {own}; upgrade {package}"
        raise FormatVersionError(message, expected=own, got=version)


MOST_WEIGHTS_BYTES = 1 << 22  # the most features have about a megabyte


def packed_weights(maker: TextHash) -> bytes:
    """Return the contents of a file: the description of a fingerprinter, on one line."""
    return json.dumps(maker.describe()).encode() + b"\n"


def read_weights(path: str | os.PathLike[str], width: int | None = None) -> TextHash:
    """Return the fingerprinter in a file of learnt weights, for fingerprints of some width, by default its own.

    ``fpstore weights`` has written the file, or it is the JSON of
    ``SimHash(...).learn_weights(...).describe()``. Hashes that the kernel does not make are others
    for each width above 64.
    """
    name, read = printable(path), check_path(path)
    with storage_errors(name), Path(read).open("rb") as file:
        data = file.read(MOST_WEIGHTS_BYTES + 1)
    try:
        found = from_description(json.loads(data) if len(data) <= MOST_WEIGHTS_BYTES else {})
    except FormatVersionError as error:
        raise FormatVersionError(f"{name}: {error}", path=read) from None
    except (ValueError, RecursionError, MissingExtraError):
        found = None
    if not isinstance(found, TextHash) or found.weights is None:
        raise InputError(
            f"{name}: is no file of learnt weights: make one with fpstore weights", path=read
        )
    if width is None:
        return found
    if (
        isinstance(found, SimHash)
        and found.hash not in IN_KERNEL
        and max(found.width, WORD_BITS) != max(width, WORD_BITS)
    ):
        raise InputError(
            f"{name}: its weights are for {found.width} bits, and {found.hash} has other features "
            f"for {width}: "
            "learn them with this --width",
            path=read,
            expected=found.width,
            got=width,
        )
    return replace(found, width=width)
