"""The fingerprinters that a store can remember by name."""

from collections.abc import Mapping
from typing import Any

from fpstore.errors import FormatVersionError, InputError, cut, show
from fpstore.hashing.base import Fingerprinter
from fpstore.hashing.bit_sample import BitSample
from fpstore.hashing.fields import Fields
from fpstore.hashing.image import ImageHash
from fpstore.hashing.sentences import LongestSentences
from fpstore.hashing.text import SimHash
from fpstore.hashing.unary import Unary
from fpstore.hashing.vectors import HyperplaneHash

_KINDS: tuple[type[Fingerprinter[Any]], ...] = (SimHash, Fields, LongestSentences, ImageHash, HyperplaneHash, BitSample, Unary)
_KNOWN: dict[str, type[Fingerprinter[Any]]] = {kind.name: kind for kind in _KINDS}


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
    import inspect

    known = list(inspect.signature(kind).parameters)
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
    if "fingerprinter" in parameters:  # of the texts of fields
        parameters = {**parameters, "fingerprinter": from_description(parameters["fingerprinter"])}
    return kind(**parameters)


def in_words(description: Mapping[str, Any]) -> str:
    """Return a description for people: long values are shortened."""
    return f"{description['name']} {description.get('version', '')} ({_parameters_in_words(description)})"


def _parameters_in_words(description: Mapping[str, Any]) -> str:
    parameters = description.get("parameters", {})
    texts = (in_words(value) if name == "fingerprinter" else cut(str(value)) for name, value in parameters.items())
    return ", ".join(f"{name}={text}" for name, text in zip(parameters, texts, strict=True))


def _checked(description: Mapping[str, Any]) -> tuple[str, int, Mapping[str, Any]]:
    """Return the name, the version and the parameters."""
    if not isinstance(description, Mapping) or set(description) != {"name", "version", "parameters"}:
        raise InputError(
            f"a fingerprinter is described by name, version and parameters: got {show(description)}",
            got=description,
        )
    name, version, parameters = (description[key] for key in ("name", "version", "parameters"))
    if not isinstance(name, str) or type(version) is not int or not isinstance(parameters, Mapping):
        raise InputError(
            f"a fingerprinter has a name (str), a version (int) and parameters (dict): got {show(description)}",
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
    if version != kind.version:
        raise FormatVersionError(
            f"unknown version {version} of fingerprinter {show(name)}: this one makes {kind.version}; upgrade fpstore",
            expected=kind.version,
            got=version,
        )
    return kind
