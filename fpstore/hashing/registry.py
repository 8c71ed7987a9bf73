"""Hashers by name, of fpstore and of other packages, and their descriptions.

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
from fpstore.base.keywords import keyword
from fpstore.base.width import WORD_BITS
from fpstore.errors import FormatVersionError, InputError, MissingExtraError, shorten, show
from fpstore.hashing.base import Fingerprinter, Hasher
from fpstore.hashing.codes import BitSample, Unary
from fpstore.hashing.exact import ExactText
from fpstore.hashing.features import IN_KERNEL
from fpstore.hashing.fields import Fields
from fpstore.hashing.html import MainText
from fpstore.hashing.image import ImageHash
from fpstore.hashing.minhash import MinHash
from fpstore.hashing.plain_pages import PlainPages
from fpstore.hashing.precomputed import PrecomputedMinHash
from fpstore.hashing.pstable import PStable
from fpstore.hashing.sentences import LongestSentences
from fpstore.hashing.simhash import SimHash
from fpstore.hashing.simminhash import SimMinHash
from fpstore.hashing.sketcher import Sketcher
from fpstore.hashing.text import TextHash
from fpstore.hashing.vectors import HyperplaneHash
from fpstore.io.files import translate_storage_errors

GROUP = "fpstore.hashers"
_KINDS: tuple[type[Hasher[Any]], ...] = (
    SimHash,
    MinHash,
    SimMinHash,
    Fields,
    LongestSentences,
    MainText,
    ExactText,
    PlainPages,
    ImageHash,
    HyperplaneHash,
    BitSample,
    Unary,
    PStable,
    PrecomputedMinHash,
)
#: Fingerprinters of texts with features, by their names for users.
TEXT_METHODS: dict[str, type[MinHash] | type[SimHash]] = {"minhash": MinHash, "simhash": SimHash}
_BUILTIN: dict[str, type[Hasher[Any]]] = {kind.name: kind for kind in _KINDS}


def text_fingerprinter(method: str, weighted: bool, **parameters: Any) -> MinHash | SimHash:
    """Return the fingerprinter of a method, one of TEXT_METHODS.

    If features are weighted, the default weighting of MinHash is "count".
    """
    kind = TEXT_METHODS[check_choice(method, tuple(TEXT_METHODS), "method")]
    defaults = {"weighting": "count"} if weighted and kind is MinHash else {}
    return kind(**defaults | parameters)


def from_description(description: Mapping[str, Any]) -> Hasher[Any]:
    """Rebuild the hasher that a store or an index remembers.

    Parameters
    ----------
    description : mapping
        The result of `Hasher.describe`: ``name``, ``version`` and ``parameters``.

    Returns
    -------
    Hasher
        Its fingerprints, or sketches, are the same.

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
    name, version, parameters = _check_description(description)
    kind = _kind(name, version)
    parameters = dict(parameters)
    if "fingerprinter" in parameters:  # of a wrapper
        inner = parameters["fingerprinter"]
        of_columns = kind is PlainPages and _check_description(inner)[0] == Fields.name
        parameters["fingerprinter"] = (
            fingerprinter_from_description(inner) if of_columns else _inner_fingerprinter(inner)
        )
    try:
        return kind.from_parameters(parameters)
    except (TypeError, KeyError) as error:
        raise InputError(
            f"the description of the hasher {show(name)} has parameters that it does not take: "
            f"{error}",
            got=description,
        ) from None


def fingerprinter_from_description(description: Mapping[str, Any]) -> Fingerprinter[Any]:
    """Rebuild the fingerprinter that a store remembers; InputError for another hasher."""
    hasher = from_description(description)
    if not isinstance(hasher, Fingerprinter):
        raise InputError(f"the hasher {hasher.name} makes no fingerprints", got=description)
    return hasher


def check_sketcher(hasher: object) -> Sketcher[Any]:
    """Return a hasher for an index; InputError if it has no law, or the name of another hasher."""
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
    kind = _BUILTIN.get(hasher.name)
    if kind not in (None, type(hasher)):
        raise InputError(
            f"the hasher {type(hasher).__name__} has the name {show(hasher.name)} of another "
            f"hasher, {kind.__name__}, with which an index would be opened",
            got=hasher,
        )
    if hasher.law is None or not isinstance(hasher, Sketcher):
        advice = ", or SimMinHash" if isinstance(hasher, SimHash) else ""
        raise InputError(
            f"the hasher {hasher.name} has no law, by which an index is planned: take a hasher "
            f"with a law, such as MinHash{advice}",
            got=hasher,
        )
    return hasher


def _inner_fingerprinter(description: Any) -> Fingerprinter[Any]:
    name, version, parameters = _check_description(description)
    # fingerprinters must not be nested further
    if _kind(name, version) and "fingerprinter" in parameters:
        raise InputError(
            f"a fingerprinter in another one is one of texts, got {show(description)}",
            got=description,
        )
    return fingerprinter_from_description(description)


def readable_description(description: Mapping[str, Any]) -> str:
    """Return a description as a sentence, also of an unknown fingerprinter; long values are cut."""
    parameters, shown = description.get("parameters", {}), []
    if not isinstance(parameters, Mapping):
        return (
            f"{description['name']} {description.get('version', '')} ({shorten(str(parameters))})"
        )
    for name, value in parameters.items():
        nested = isinstance(value, Mapping) and "name" in value
        shown.append(f"{name}={readable_description(value) if nested else shorten(str(value))}")
    return f"{description['name']} {description.get('version', '')} ({', '.join(shown)})"


def usual_group(description: Mapping[str, Any]) -> str:
    """Return how to group near-duplicates of a fingerprinter, which may be unknown."""
    inner = description.get("parameters", {}).get("fingerprinter")
    if inner is not None:
        return usual_group(inner)
    kind = _BUILTIN.get(description["name"], Fingerprinter)
    return kind.usual_group if issubclass(kind, Fingerprinter) else Fingerprinter.usual_group


def _check_description(description: object) -> tuple[str, int, Mapping[str, Any]]:
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
    kind = _BUILTIN.get(name) or _load_entry_point(name)
    package = kind.__module__.partition(".")[0]
    check_version(f"the hasher {show(name)}", version, kind.version, package)
    return kind


def _load_entry_point(name: str) -> type[Hasher[Any]]:
    points = metadata.entry_points(group=GROUP, name=name)
    if not points:
        raise MissingExtraError(
            f"the hasher {show(name)} is not installed: install the package that has the entry "
            f"point {show(name)} in the group {GROUP}, or upgrade fpstore",
            expected=sorted({*_BUILTIN, *metadata.entry_points(group=GROUP).names}),
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


def check_version(name: str, version: int, supported: int, package: str) -> None:
    """Raise FormatVersionError if a package supports another version."""
    if version < supported:
        message = (
            f"version {version} of {name} is of an older {package}, and this one makes "
            f"{supported}: build it again from its texts"
        )
        raise FormatVersionError(message, expected=supported, got=version)
    if version > supported:
        message = (
            f"unknown version {version} of {name}: this one makes {supported}; upgrade {package}"
        )
        raise FormatVersionError(message, expected=supported, got=version)


MAX_WEIGHTS_BYTES = 1 << 22  # the most weights have about a megabyte


def dump_weights(fingerprinter: TextHash) -> bytes:
    """Return the content of a file of weights: a description in JSON, on one line."""
    return json.dumps(fingerprinter.describe()).encode() + b"\n"


def read_weights(path: str | os.PathLike[str], width: int | None = None) -> TextHash:
    """Return the fingerprinter in a file of learnt weights, by default of the width in the file.

    ``fpstore weights`` has written the file, or it is the JSON of
    ``SimHash(...).learn_weights(...).describe()``. Hashes that the kernel does not compute differ
    between widths above 64 bits, so weights for them have one width.
    """
    name, checked_path = printable(path), check_path(path)
    with translate_storage_errors(name), Path(checked_path).open("rb") as file:
        data = file.read(MAX_WEIGHTS_BYTES + 1)
    try:
        hasher = from_description(json.loads(data) if len(data) <= MAX_WEIGHTS_BYTES else {})
    except FormatVersionError as error:
        raise FormatVersionError(f"{name}: {error}", path=checked_path) from None
    except (ValueError, RecursionError, MissingExtraError):
        hasher = None
    if not isinstance(hasher, TextHash) or hasher.weights is None:
        raise InputError(
            f"{name}: is no file of learnt weights: make one with fpstore weights",
            path=checked_path,
        )
    if width is None:
        return hasher
    if (
        isinstance(hasher, SimHash)
        and hasher.hash not in IN_KERNEL
        and max(hasher.width, WORD_BITS) != max(width, WORD_BITS)
    ):
        raise InputError(
            f"{name}: its weights are for {hasher.width} bits, and {hasher.hash} has other "
            f"features for {width}: learn them with {keyword('width', width)}",
            path=checked_path,
            expected=hasher.width,
            got=width,
        )
    return replace(hasher, width=width)
