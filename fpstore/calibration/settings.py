"""The settings of fingerprinters that are compared: rows of data."""

from __future__ import annotations

import inspect
import json
import re
from typing import Any, NamedTuple

from fpstore.base.arguments import check_choice, check_number
from fpstore.base.width import check_width
from fpstore.design.families import check_radius
from fpstore.errors import InputError, show
from fpstore.hashing import Fingerprinter, ImageHash, MinHash, SimHash
from fpstore.hashing.registry import TEXT_METHODS, read_weights
from fpstore.hashing.text import TextHash
from fpstore.io.packages import is_installed

#: The settings of a calibration that names none.
SETTINGS = (
    "method=minhash",
    "method=minhash,threshold=0.6",
    "method=minhash,threshold=0.7",
    "method=minhash,threshold=0.8",
    "method=minhash,size=2",
    "method=minhash,size=5",
    "method=minhash,width=128",
    "shingle=auto,size=1",
    "shingle=auto,size=2",
    "shingle=chars,size=4",
    "shingle=chars,size=5",
    "shingle=auto,size=1,width=128",
    "shingle=auto,size=2,width=128",
    "shingle=auto,size=3,width=256",
)

#: The settings of a calibration for pictures; `PDQ_SETTINGS` come with them if the package for PDQ is installed.
IMAGE_SETTINGS = (
    "method=perceptual",
    "method=difference",
    "method=average",
    "method=wavelet",
    "method=perceptual,width=256",
    "method=difference,width=256",
    "method=average,width=256",
)
PDQ_SETTINGS = ("method=pdq",)
_EXAMPLES = {
    "MinHash": "method=minhash,size=2",
    "SimHash": "shingle=words,size=2",
    "ImageHash": "method=difference,width=256",
}

_BETWEEN = re.compile(r",(?=\s*[a-z_]+=)")  # parameters: a value may hold commas, too


class Setting(NamedTuple):
    """A fingerprinter of texts or of pictures, and its name.

    And its radius, if one is given, perhaps by a threshold.
    """

    name: str
    fingerprinter: Fingerprinter[Any]
    radius: int | None = None
    threshold: float | None = None


def parse_setting(text: str, kind: type[TextHash] | type[ImageHash] = SimHash) -> Setting:
    """Return the setting of a fingerprinter that is given as ``shingle=words,size=2``.

    A value is a JSON value where it can be read as one, and a string where it cannot. For texts,
    ``method=minhash`` makes it one of `MinHash`, and ``weights=FILE`` names a file of ``fpstore
    weights``, which has all other parameters but ``width``. ``radius=50``, or ``threshold=0.7`` of
    MinHash, says at which radius it is measured.

    Raises
    ------
    InputError
        A parameter is not known, is given twice, or has a value that the fingerprinter refuses; or
        a file has no weights.
    """
    given: dict[str, Any] = {}
    problem = f"the setting {show(text)} is not a list such as {_EXAMPLES[kind.__name__]}"
    for part in _BETWEEN.split(text):
        name, equals, value = part.strip().partition("=")
        if name in given:
            raise InputError(f"the setting {show(text)} has {name} twice", got=text)
        given[name] = _value(value) if equals else None
    if kind is not ImageHash and given.get("method") is not None:
        kind = TEXT_METHODS[check_choice(given.pop("method"), tuple(TEXT_METHODS), "method")]
    known = [
        *inspect.signature(kind).parameters,
        "radius",
        *(["threshold"] if kind is not ImageHash else []),
    ]
    if not given.keys() <= set(known) or None in given.values():
        raise InputError(f"{problem}; parameters are {', '.join(known)}", got=text)
    radius, threshold = given.pop("radius", None), given.pop("threshold", None)
    made = _with_weights(text, given) if isinstance(given.get("weights"), str) else kind(**given)
    if radius is not None and threshold is not None:
        raise InputError(
            f"the setting {show(text)} has a radius and a threshold: one follows from the other",
            got=text,
        )
    if threshold is not None:
        if not isinstance(made, MinHash):
            raise InputError(
                f"the setting {show(text)} has a threshold, which is for method=minhash: give a "
                "radius",
                got=text,
            )
        radius = made.radius(check_number(threshold, 0, 1, "threshold"))
    return Setting(
        text, made, None if radius is None else check_radius(radius, made.width), threshold
    )


def _with_weights(text: str, given: dict[str, Any]) -> TextHash:
    """Return the fingerprinter in a file of weights."""
    others = set(given) - {"weights", "width"}
    if others:
        raise InputError(
            f"the setting {show(text)} has a file of weights, which says what "
            f"{', '.join(sorted(others))} is: leave that out",
            got=text,
        )
    return read_weights(
        given["weights"], None if "width" not in given else check_width(given["width"]).bits
    )


def usual_settings(images: bool) -> tuple[str, ...]:
    """Return the settings of a calibration that names none, for pictures or for texts."""
    if not images:
        return SETTINGS
    return IMAGE_SETTINGS + (PDQ_SETTINGS if is_installed("pdqhash") else ())


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
