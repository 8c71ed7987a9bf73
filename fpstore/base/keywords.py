"""How messages name arguments: ``radius=3`` in Python, ``--radius 3`` on the command line."""

from __future__ import annotations

from collections.abc import Mapping

#: The options of the verb that runs, by parameter (``radius``) or by parameter and value
#: (``signed=True``); None in Python.
options: Mapping[str, str] | None = None


def keyword(name: str, value: object = None) -> str:
    """Return a keyword argument, with its value unless that is None, as the caller writes it."""
    code = f"{name}={'' if value is None else repr(value)}"
    if options is None:
        return code
    if code in options:
        return options[code]
    option = options.get(name, f"--{name.replace('_', '-')}")
    return option if value is None or value is True else f"{option} {value}"


def in_python() -> bool:
    """Return whether the caller is a program in Python, not a verb of the command line."""
    return options is None


def accepts(name: str, value: object = None) -> bool:
    """Return whether the caller can pass a keyword: a verb may lack the option."""
    return options is None or (f"{name}=True" if value is True else name) in options
