"""The settings of fingerprinters that are compared: rows of data."""

from __future__ import annotations

import inspect
import json
import re
from typing import Any, NamedTuple

from fpstore.errors import InputError, show
from fpstore.hashing import Fingerprinter, SimHash
from fpstore.hashing.weights_file import read_weights
from fpstore.width import WORD_BITS, check_width

#: The settings of a calibration that names none.
SETTINGS = (
    "shingle=auto,size=1",
    "shingle=auto,size=1,weighting=set",
    "shingle=auto,size=1,weighting=count",
    "shingle=auto,size=2",
    "shingle=auto,size=3",
    "shingle=chars,size=3",
    "shingle=chars,size=4",
    "shingle=chars,size=5",
    "shingle=chars,size=4,punctuation=remove,spaces=remove",
    "shingle=auto,size=1,width=128",
    "shingle=auto,size=2,width=128",
    "shingle=chars,size=4,width=128",
)


_BETWEEN = re.compile(r",(?=\s*[a-z_]+=)")  # parameters: a value may hold commas, too


class Setting(NamedTuple):
    """A fingerprinter of texts, and its name.

    Attributes
    ----------
    name : str
    fingerprinter : Fingerprinter of str
    """

    name: str
    fingerprinter: Fingerprinter[str]


def parse_setting(text: str) -> Setting:
    """Return the setting of `SimHash` that is given as ``shingle=words,size=2``.

    Parameters
    ----------
    text : str
        Parameters of `SimHash` with values, separated by commas; all others have their defaults. A value is a JSON value where it
        can be read as one, and a string where it cannot. ``weights=FILE`` names a file of ``fpstore weights``, which has all
        others but ``width``.

    Raises
    ------
    InputError
        A parameter is not known, is given twice, or has a value that `SimHash` refuses; or a file has no weights.
    StorageError
        A file of weights cannot be read.
    """
    known = list(inspect.signature(SimHash).parameters)
    given: dict[str, Any] = {}
    for part in _BETWEEN.split(text):
        name, equals, value = part.strip().partition("=")
        if not equals or name not in known:
            raise InputError(
                f"a setting is a list such as shingle=words,size=2, of the parameters {', '.join(known)}: got {show(text)}",
                got=text,
            )
        if name in given:
            raise InputError(f"the setting {show(text)} has {name} twice", got=text)
        given[name] = _value(value)
    if isinstance(given.get("weights"), str):
        others = set(given) - {"weights", "width"}
        if others:
            raise InputError(
                f"the setting {show(text)} has a file of weights, which says what {', '.join(sorted(others))} is: leave that out",
                got=text,
            )
        return Setting(text, read_weights(given["weights"], check_width(given.get("width", WORD_BITS)).bits))
    return Setting(text, SimHash(**given))


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
