"""What is public: the modules whose names users import, and a walk over these names."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

MODULES = (
    "fpstore",
    "fpstore.lsh",
    "fpstore.io",
    "fpstore.hashing",
    "fpstore.families",
    "fpstore.tasks",
    "fpstore.calibration",
)


def public_names() -> Iterator[tuple[str, str, Any]]:
    """Yield the module, the name and the value of each public name.

    A name that two modules have comes twice.
    """
    for module in MODULES:
        imported = importlib.import_module(module)
        for name in imported.__all__:
            yield module, name, getattr(imported, name)
