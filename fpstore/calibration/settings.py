"""What a calibration compares: settings of fingerprinters, changes, and the sample."""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import dataclass
from typing import Any

from fpstore.base.arguments import check_choice, check_number, check_share, check_whole
from fpstore.base.width import check_width
from fpstore.calibration.image_changes import IMAGE_CHANGES, ImageChange
from fpstore.calibration.text_changes import CHANGES, TextChange
from fpstore.design.families import check_radius
from fpstore.errors import InputError, show
from fpstore.hashing import Fingerprinter, ImageHash, MinHash, SimHash
from fpstore.hashing.registry import TEXT_METHODS, read_weights
from fpstore.hashing.text import TextHash
from fpstore.io.packages import is_installed

SETTINGS = (
    "method=minhash",
    "method=minhash,size=2",
    "method=minhash,shingle=chars,size=5",
    "shingle=auto,size=1",
    "shingle=auto,size=2,width=128",
    "shingle=auto,size=3,width=256",
)
IMAGE_SETTINGS = (
    "method=perceptual",
    "method=difference",
    "method=average",
    "method=wavelet",
    "method=perceptual,width=256",
    "method=difference,width=256",
)
PDQ = "method=pdq"  # one of them if its package is installed
SAMPLE, COPIES = 1500, 300
MAX_WRONG = 0.05
MIN_SAMPLE, MAX_SAMPLE = 2, 10_000
# the least resemblance of two documents, or pictures, of one family
BOUND, IMAGE_BOUND = 0.5, 0.9
_EXAMPLES = {
    "MinHash": "method=minhash,size=2",
    "SimHash": "shingle=words,size=2",
    "ImageHash": "method=difference,width=256",
}
_BETWEEN = re.compile(r",(?=\s*[a-z_]+=)")  # parameters: a value may hold commas, too


@dataclass(frozen=True)
class Setting:
    """A named fingerprinter of texts or pictures, and its radius, if it is measured at one."""

    name: str
    fingerprinter: Fingerprinter[Any]
    radius: int | None = None
    threshold: float | None = None


def usual_settings(images: bool) -> tuple[str, ...]:
    """Return the default settings of a calibration."""
    if not images:
        return SETTINGS
    return (*IMAGE_SETTINGS, *([PDQ] if is_installed("pdqhash") else []))


def parse_setting(value: object, kind: type[TextHash] | type[ImageHash] = SimHash) -> Setting:
    """Parse a setting such as ``shingle=words,size=2``, or name a fingerprinter.

    A value is a JSON value where it can be read as one, and a string where it cannot. For texts,
    ``method=minhash`` makes it one of `MinHash`, and ``weights=FILE`` names a file of ``fpstore
    weights``, which has all other parameters but ``width``. ``radius=50``, or ``threshold=0.7`` of
    MinHash, says at which radius it is measured.

    Raises
    ------
    InputError
        A parameter is unknown, is named twice, or has a value that the fingerprinter refuses; or a
        file has no weights.
    """
    if isinstance(value, Fingerprinter) and value.items == kind.items:
        listed = ", ".join(f"{key}={each}" for key, each in value.parameters.items())
        return Setting(f"{value.name} {listed}".strip(), value)
    if not isinstance(value, str):
        raise InputError(
            f"a setting is a str such as '{_EXAMPLES[kind.__name__]}', or a fingerprinter of "
            f"{kind.items}: got {show(value)}",
            got=value,
        )
    parameters, subject = dict[str, Any](), f"the setting {show(value)}"
    for part in _BETWEEN.split(value):
        name, equals, text = part.strip().partition("=")
        if name in parameters:
            raise InputError(f"{subject} has {name} twice", got=value)
        parameters[name] = _json_value(text) if equals else None
    of_texts = kind is not ImageHash
    if of_texts and parameters.get("method") is not None:
        kind = TEXT_METHODS[check_choice(parameters.pop("method"), (*TEXT_METHODS,), "method")]
    names = [*inspect.signature(kind).parameters, "radius", *["threshold"] * of_texts]
    if not parameters.keys() <= set(names) or None in parameters.values():
        raise InputError(
            f"{subject} is not a list such as {_EXAMPLES[kind.__name__]}; parameters are "
            f"{', '.join(names)}",
            got=value,
        )
    radius, threshold = parameters.pop("radius", None), parameters.pop("threshold", None)
    if isinstance(weights := parameters.get("weights"), str):
        if fixed := sorted(parameters.keys() - {"weights", "width"}):
            raise InputError(
                f"{subject} has a file of weights, which sets {', '.join(fixed)}: leave it out",
                got=value,
            )
        width = check_width(parameters["width"]).bits if "width" in parameters else None
        fingerprinter: Any = read_weights(weights, width)
    else:
        fingerprinter = kind(**parameters)
    if threshold is not None:
        if radius is not None or not isinstance(fingerprinter, MinHash):
            raise InputError(
                f"{subject} has a threshold, which is for method=minhash without a radius",
                got=value,
            )
        radius = fingerprinter.radius(check_number(threshold, 0, 1, "threshold"))
    if radius is not None:
        radius = check_radius(radius, fingerprinter.width)
    return Setting(value, fingerprinter, radius, threshold)


def _json_value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


@dataclass
class CalibrationOptions:
    """The arguments of :func:`fpstore.calibration.calibrate`, which are checked and parsed here."""

    images: bool
    settings: Any = None  # sequence of Setting
    changes: Any = None  # sequence of TextChange or ImageChange
    most_wrong: float = MAX_WRONG
    sample: int = SAMPLE
    copies: int = COPIES
    resemblance: Any = None  # float
    seed: int = 0

    @property
    def items(self) -> str:
        return "pictures" if self.images else "documents"

    def __post_init__(self) -> None:
        for name in ("settings", "changes"):
            if isinstance(argument := getattr(self, name), str):
                raise InputError(
                    f"{name} must be a list, got one str: wrap {show(argument)} in a list",
                    got=argument,
                )
        if (check_share(self.resemblance, "resemblance") or 0) > 1:
            raise InputError(
                f"resemblance must be a share up to 1, such as 0.5, got {show(self.resemblance)}"
            )
        values = usual_settings(self.images) if self.settings is None else self.settings
        hasher = ImageHash if self.images else SimHash
        self.settings = [parse_setting(value, hasher) for value in values]
        if not self.settings:
            raise InputError("settings is empty: leave it out to compare the usual ones")
        kind, usual_changes = (ImageChange, IMAGE_CHANGES) if self.images else (TextChange, CHANGES)
        names = usual_changes if self.changes is None else self.changes
        self.changes = [kind.parse(name) for name in names]
        if self.resemblance is None:
            self.resemblance = IMAGE_BOUND if self.images else BOUND
        self.most_wrong = check_number(self.most_wrong, 0, 1, "most_wrong")
        self.sample = check_whole(self.sample, MIN_SAMPLE, MAX_SAMPLE, "sample")
        self.copies = check_whole(self.copies, 1, MAX_SAMPLE, "copies")
        self.seed = check_whole(self.seed, 0, 2**64 - 1, "seed")
