"""Packages that only some users have.

Imported when they are needed, with a message that names the package to install.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from fpstore.errors import MissingExtraError, one_line

# Arguments of pip for packages whose name alone does not install them. An extra of fpstore would
# compile the kernel again.
INSTALLED_AS = {
    "PIL": "pillow ImageHash",
    "trafilatura": "trafilatura lxml_html_clean",
    "resiliparse": "resiliparse lxml",
    "ada_url": "ada-url",
    **dict.fromkeys(
        ("msgspec", "prometheus_client", "starlette", "uvicorn"),
        "starlette uvicorn httptools msgspec prometheus-client",
    ),
}


def import_package(name: str, user: str, path: str | None = None) -> Any:
    """Import a module; MissingExtraError names the user of the package, and its input or output."""
    try:
        return import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        where = "" if path is None else f"{path}: "
        reason = f"{where}{user} needs the package {package}"
        if (
            not isinstance(error, ModuleNotFoundError)
            or (error.name or "").partition(".")[0] != package
        ):
            reason += f", which is installed but cannot be imported ({one_line(str(error))})"
        reason += f": pip install {INSTALLED_AS.get(package, package)}"
        raise MissingExtraError(reason, path=path) from error


def is_installed(package: str) -> bool:
    """Return whether a package is installed, without importing it."""
    return find_spec(package) is not None
