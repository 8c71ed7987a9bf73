"""Families by name: those of fpstore, and those that other packages offer."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from typing import Any

from fpstore.errors import InputError, MissingExtraError, show
from fpstore.families.base import Family
from fpstore.families.given import GivenSketches
from fpstore.families.minhash import MinHashFamily
from fpstore.families.pstable import PStable
from fpstore.families.sampling import BitSampling, UnarySampling, family_of
from fpstore.families.simminhash import SimMinHash
from fpstore.families.vectors import RandomHyperplanes
from fpstore.hashing.bands import minhash_in
from fpstore.hashing.base import Fingerprinter
from fpstore.hashing.codes import BitSample, Unary
from fpstore.hashing.registry import check_version
from fpstore.hashing.simhash import SimHash
from fpstore.hashing.vectors import HyperplaneHash

GROUP = "fpstore.families"
_KNOWN: dict[str, type[Family[Any]]] = {
    kind.name: kind
    for kind in (
        MinHashFamily,
        SimMinHash,
        RandomHyperplanes,
        PStable,
        BitSampling,
        UnarySampling,
        GivenSketches,
    )
}


def as_family(value: object) -> Family[Any]:
    """Return the family that a value is or stands for.

    Parameters
    ----------
    value : Family or Fingerprinter
        Of fingerprinters, a `MinHash` or one that passes texts to it, a `HyperplaneHash`, a
        `BitSample` or a `Unary`.

    Returns
    -------
    Family

    Raises
    ------
    InputError
        The value is neither, or a family with the name of another one of fpstore.

    Examples
    --------
    >>> from fpstore import MinHash
    >>> from fpstore.families import as_family
    >>> as_family(MinHash()).measure
    'Jaccard similarity'
    """
    if isinstance(value, Family):
        kind = _KNOWN.get(value.name)
        if kind not in (None, type(value)):
            reason = (
                f"the family {type(value).__name__} has the name {show(value.name)}, which is of "
                f"another: {kind.__name__}"
            )
            raise InputError(f"{reason}; an index would be opened with that one", got=value)
        return value
    if isinstance(value, Fingerprinter) and minhash_in(value) is not None:
        return MinHashFamily(fingerprinter=value)
    if isinstance(value, HyperplaneHash):
        return RandomHyperplanes(dimension=value.dimension, seed=value.seed)
    if isinstance(value, (BitSample, Unary)):
        return family_of(value)
    if isinstance(value, type):
        raise InputError(
            f"expected a family of hash functions, got the class {value.__name__}: make one, "
            f"{value.__name__}(...)",
            got=value,
        )
    advice = (
        "; the bits of a simhash are no hash values: take SimMinHash"
        if isinstance(value, SimHash)
        else ""
    )
    reason = (
        "expected a family of hash functions, or a MinHash or a HyperplaneHash, got "
        f"{show(value)}{advice}"
    )
    raise InputError(reason, got=value)


def from_description(description: Mapping[str, Any]) -> Family[Any]:
    """Rebuild the family that an index remembers.

    Parameters
    ----------
    description : mapping
        The result of `Family.describe`: ``name``, ``version`` and ``parameters``.

    Returns
    -------
    Family
        One that makes the same hash values.

    Raises
    ------
    MissingExtraError
        No installed package has the family.
    FormatVersionError
        The installed package has another version of it.
    InputError
        The description is malformed, or a parameter is wrong.

    Examples
    --------
    >>> from fpstore.families import MinHashFamily, from_description
    >>> from_description(MinHashFamily().describe()) == MinHashFamily()
    True
    """
    name, version, parameters = _checked(description)
    kind = _kind(name)
    check_version(f"the family {show(name)}", version, kind.version, _origin(kind))
    try:
        return kind.from_parameters(dict(parameters))
    except (TypeError, KeyError) as error:
        reason = (
            f"the description of the family {show(name)} has parameters that it does not take, or "
            f"lacks one: {error}"
        )
        raise InputError(reason, got=description) from None


def _checked(description: object) -> tuple[str, int, Mapping[str, Any]]:
    if isinstance(description, Mapping) and set(description) == {"name", "version", "parameters"}:
        name, version, parameters = (description[key] for key in ("name", "version", "parameters"))
        if isinstance(name, str) and type(version) is int and isinstance(parameters, Mapping):
            return name, version, parameters
    reason = (
        "a family is described by a name (str), a version (int) and parameters (dict): got "
        f"{show(description)}"
    )
    raise InputError(reason, got=description)


def _kind(name: str) -> type[Family[Any]]:
    if name in _KNOWN:
        return _KNOWN[name]
    points = metadata.entry_points(group=GROUP, name=name)
    if not points:
        raise MissingExtraError(
            f"the family {show(name)} is not installed: install the package that has the entry "
            f"point {show(name)} in the group "
            f"{GROUP}, or upgrade fpstore",
            expected=sorted({*_KNOWN, *metadata.entry_points(group=GROUP).names}),
            got=name,
        )
    (point, *_) = points
    package = point.value if point.dist is None else point.dist.name
    try:
        loaded = point.load()
    except Exception as error:  # of any package
        reason = (
            f"the family {show(name)} of the package {package} cannot be imported: "
            f"{type(error).__name__}: {error}"
        )
        raise MissingExtraError(reason, got=name) from error
    if not (isinstance(loaded, type) and issubclass(loaded, Family) and loaded.name == name):
        raise MissingExtraError(
            f"the entry point {show(name)} of the package {package} is no family of this name",
            got=name,
        )
    return loaded


def _origin(kind: type[Family[Any]]) -> str:
    return kind.__module__.partition(".")[0]
