"""Files of learnt weights: a SimHash with weights, as JSON."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

from fpstore.base.arguments import check_path, printable
from fpstore.base.width import WORD_BITS
from fpstore.errors import FormatVersionError, InputError
from fpstore.hashing.features import IN_KERNEL
from fpstore.hashing.registry import from_description
from fpstore.hashing.text import SimHash
from fpstore.io.files import storage_errors

MOST_BYTES = 1 << 22  # the most features have about a megabyte


def packed_weights(simhash: SimHash) -> bytes:
    """Return the contents of a file: the description of a fingerprinter, on one line."""
    return json.dumps(simhash.describe()).encode() + b"\n"


def read_weights(path: str | os.PathLike[str], width: int) -> SimHash:
    """Return the fingerprinter in a file of learnt weights, for fingerprints of some width.

    Parameters
    ----------
    path : path-like
        What ``fpstore weights`` has written, or the JSON of ``SimHash(...).learn_weights(...).describe()``.
    width : int
        Bits of a fingerprint: 32, 64, 128 or 256. Hashes that the kernel does not make are others for each width above 64.

    Raises
    ------
    InputError
        The file is none of learnt weights, or was made for another width.
    FormatVersionError
        It is of a newer release.
    StorageError
        It cannot be read.
    """
    name, read = printable(path), check_path(path)
    with storage_errors(name), Path(read).open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    try:
        found = from_description(json.loads(data) if len(data) <= MOST_BYTES else {})
    except FormatVersionError as error:
        raise FormatVersionError(f"{name}: {error}", path=read) from None
    except (ValueError, RecursionError, InputError):
        found = None
    if not isinstance(found, SimHash) or found.weights is None:
        raise InputError(f"{name}: is no file of learnt weights: make one with fpstore weights", path=read)
    if found.hash not in IN_KERNEL and max(found.width, WORD_BITS) != max(width, WORD_BITS):
        raise InputError(
            f"{name}: its weights are for {found.width} bits, and {found.hash} has other features for {width}: "
            "learn them with this --width",
            path=read, expected=found.width, got=width,
        )  # fmt: skip
    return replace(found, width=width)
