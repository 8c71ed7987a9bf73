"""The fingerprinters that a store, or a file of learnt weights, can remember by name."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from fpstore.base.arguments import check_choice, check_path, printable
from fpstore.base.width import WORD_BITS
from fpstore.errors import FormatVersionError, InputError, cut, show
from fpstore.hashing.base import Fingerprinter
from fpstore.hashing.codes import BitSample, Unary
from fpstore.hashing.features import IN_KERNEL
from fpstore.hashing.fields import Fields
from fpstore.hashing.html import MainText
from fpstore.hashing.image import ImageHash
from fpstore.hashing.minhash import MinHash
from fpstore.hashing.sentences import LongestSentences
from fpstore.hashing.simhash import SimHash
from fpstore.hashing.text import TextHash
from fpstore.hashing.vectors import HyperplaneHash
from fpstore.io.files import storage_errors

_KINDS: tuple[type[Fingerprinter[Any]], ...] = (
    SimHash,
    MinHash,
    Fields,
    LongestSentences,
    MainText,
    ImageHash,
    HyperplaneHash,
    BitSample,
    Unary,
)
#: Fingerprinters of texts with features, by the names that users choose one by.
TEXT_METHODS: dict[str, type[MinHash] | type[SimHash]] = {"minhash": MinHash, "simhash": SimHash}
_KNOWN: dict[str, type[Fingerprinter[Any]]] = {kind.name: kind for kind in _KINDS}


def text_fingerprinter(method: str, weighted: bool, **parameters: Any) -> MinHash | SimHash:
    """Return the fingerprinter of texts of a method, one of TEXT_METHODS.

    If features are weighted, MinHash counts by default.
    """
    kind = TEXT_METHODS[check_choice(method, tuple(TEXT_METHODS), "method")]
    counting = {"weighting": "count"} if weighted and kind is MinHash else {}
    return kind(**counting | parameters)


def from_description(description: Mapping[str, Any]) -> Fingerprinter[Any]:
    """Rebuild the fingerprinter that a store remembers.

    Parameters
    ----------
    description : mapping
        The result of `Fingerprinter.describe`: ``name``, ``version`` and ``parameters``.

    Returns
    -------
    Fingerprinter
        One that makes the same fingerprints.

    Raises
    ------
    FormatVersionError
        This fpstore does not know the name, the version or a parameter.
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
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]  # all are dataclasses
    unknown = [key for key in parameters if key not in known]
    if unknown:
        raise FormatVersionError(
            f"unknown parameter {unknown[0]!r} of fingerprinter {show(name)}: upgrade fpstore",
            expected=known,
            got=unknown,
        )
    missing = [key for key in known if key not in parameters]
    if missing:
        raise InputError(
            f"the description of fingerprinter {show(name)} lacks {', '.join(missing)}",
            expected=known,
            got=parameters,
        )
    if "fingerprinter" in parameters:  # of main texts, or of the texts of fields
        parameters = {**parameters, "fingerprinter": _inner(parameters["fingerprinter"])}
    return kind(**parameters)


def _inner(description: Any) -> Fingerprinter[Any]:
    name, version, parameters = _checked(description)
    # fingerprinters must not be nested further
    if _kind(name, version) and "fingerprinter" in parameters:
        raise InputError(
            f"a fingerprinter in another one is one of texts, got {show(description)}",
            got=description,
        )
    return from_description(description)


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
    return (
        usual_group(inner)
        if inner is not None
        else _KNOWN.get(description["name"], Fingerprinter).usual_group
    )


def _checked(description: Mapping[str, Any]) -> tuple[str, int, Mapping[str, Any]]:
    if not isinstance(description, Mapping) or set(description) != {
        "name",
        "version",
        "parameters",
    }:
        raise InputError(
            "a fingerprinter is described by name, version and parameters: got "
            f"{show(description)}",
            got=description,
        )
    name, version, parameters = (description[key] for key in ("name", "version", "parameters"))
    if not isinstance(name, str) or type(version) is not int or not isinstance(parameters, Mapping):
        raise InputError(
            "a fingerprinter has a name (str), a version (int) and parameters (dict): got "
            f"{show(description)}",
            got=description,
        )
    return name, version, parameters


def _kind(name: str, version: int) -> type[Fingerprinter[Any]]:
    kind = _KNOWN.get(name)
    if kind is None:
        raise FormatVersionError(
            f"unknown fingerprinter {show(name)}: this fpstore knows {', '.join(sorted(_KNOWN))}; "
            "upgrade fpstore, or make the fingerprints yourself and pass them",
            expected=sorted(_KNOWN),
            got=name,
        )
    check_version(f"fingerprinter {show(name)}", version, kind.version, "fpstore")
    return kind


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
    except (ValueError, RecursionError, InputError):
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
