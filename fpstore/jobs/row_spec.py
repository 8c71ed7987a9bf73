"""The rows of a corpus: their columns, and the fingerprinter of their texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fpstore.base.arguments import check_flag
from fpstore.base.keywords import accepts, keyword
from fpstore.base.width import Width, check_width
from fpstore.errors import InputError, show
from fpstore.hashing.base import Fingerprinter
from fpstore.hashing.fields import column_fingerprinter, is_weighted
from fpstore.hashing.html import page_fingerprinter
from fpstore.hashing.page_text import check_extractor
from fpstore.hashing.registry import text_fingerprinter
from fpstore.io.digits import check_signed
from fpstore.io.messages import check_roles
from fpstore.io.source import Projection

PATHS_TEXT, PATHS_ID = "text", "id"  # where each file is a document
# metadata of a field of a spec: a plan writes the value that it was resolved to
RESOLVED: Mapping[str, Any] = {"resolved": True}


@dataclass(frozen=True)
class Spec:
    """The arguments of a user; numbers and flags of NumPy become those of Python."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, np.generic):  # JSON lacks it, and its arithmetic overflows
                object.__setattr__(self, name, value.item())


@dataclass(frozen=True, kw_only=True)
class RowsSpec(Spec):
    """The columns of rows in files.

    Parameters
    ----------
    text, fingerprint, id, decimal, signed, encoding, html, format, roles : optional
        As for :func:`fpstore.dedup`.
    """

    text: Any = field(default=None, metadata=RESOLVED)
    fingerprint: str | None = None
    id: str | None = None
    decimal: bool = False
    signed: bool = False
    encoding: str | None = None
    html: bool | str = False
    format: str | None = None
    roles: Any = None

    def columns(
        self, projection: Projection, fingerprinter: Fingerprinter[Any] | None
    ) -> tuple[Projection, Fingerprinter[Any] | None]:
        """Return the columns to read, and the fingerprinter of their texts, if they are texts.

        Raises
        ------
        InputError
            Columns of both kinds or of none are named, or the fingerprinter does not fit them.
        """
        columns = self.text
        if fingerprinter is not None and not any(
            self.text is absent for absent in (None, False, True)
        ):
            fingerprinter, columns = column_fingerprinter(fingerprinter, self.text)
        projection = with_roles(with_columns(projection, columns, self.fingerprint), self.roles)
        if fingerprinter is not None:
            _check_items(fingerprinter, projection)
            fingerprinter = page_fingerprinter(fingerprinter, self.html)
            projection = replace(projection, width=Width(fingerprinter.width))
        elif check_extractor(self.html) is not None:
            raise InputError(
                f"{keyword('html', True)} is for texts, and the corpus has fingerprints"
            )
        return projection, fingerprinter


@dataclass(frozen=True, kw_only=True)
class HashedRowsSpec(RowsSpec):
    """The columns of rows in files, and the fingerprinter of their texts.

    Parameters
    ----------
    method, width, fingerprinter : optional
        As for :func:`fpstore.dedup`.
    """

    method: str | None = None
    width: int | None = None
    fingerprinter: Any = field(default=None, metadata=RESOLVED)

    def hashed_columns(
        self, projection: Projection, usual_method: str
    ) -> tuple[Projection, Fingerprinter[Any] | None]:
        """Return :meth:`columns` with the fingerprinter, by default of a usual method."""
        fingerprinter = self.fingerprinter
        if self.width is not None:
            projection = replace(projection, width=check_width(self.width))
        if fingerprinter is not None and self.method is not None:
            raise InputError("a fingerprinter is a method: leave method out", got=self.method)
        if fingerprinter is None and self.text is not None and self.text is not False:
            method = usual_method if self.method is None else self.method
            width = {} if self.width is None else {"width": self.width}
            fingerprinter = text_fingerprinter(method, is_weighted(self.text), **width)
        projection, fingerprinter = self.columns(projection, fingerprinter)
        if fingerprinter is None and self.method is not None:
            raise InputError(f"{keyword('method')} is for texts, and the corpus has fingerprints")
        if fingerprinter is not None and self.width not in (None, fingerprinter.width):
            raise InputError(
                f"fingerprinter: it makes {fingerprinter.width} bits, not width={self.width}: "
                "leave width out",
                expected=fingerprinter.width,
                got=self.width,
            )
        return projection, fingerprinter


def _check_items(fingerprinter: Any, projection: Projection) -> None:
    """Raise InputError for a fingerprinter that does not fit the columns."""
    if not isinstance(fingerprinter, Fingerprinter) or fingerprinter.items not in ("texts", "rows"):
        raise InputError(
            "fingerprinter must be one of texts, such as MinHash(), got "
            f"{type(fingerprinter).__name__}"
        )
    if projection.text is None:
        raise InputError("a fingerprinter is for texts, and the corpus has fingerprints")
    if isinstance(projection.text, tuple) != (fingerprinter.items == "rows"):
        raise InputError(
            "Fields is for columns of texts: name them, as in text={'title': 4, 'text': 1}",
            got=projection.text,
        )


def with_roles(projection: Projection, roles: Any) -> Projection:
    """Return the projection with the roles of the messages that are texts."""
    checked = check_roles(roles)
    if checked is not None and not projection.texts:
        raise InputError(f"{keyword('roles')} is for a column of texts", got=roles)
    return replace(projection, roles=checked)


def with_columns(
    projection: Projection, text: str | tuple[str, ...] | bool | None, fingerprint: str | None
) -> Projection:
    """Return the projection with columns of texts, or one of fingerprints.

    ``text`` is True where files are texts.
    """
    if (text in (None, False)) == (fingerprint is None):
        files = keyword("text", True)
        each = f"; {files} makes a document of each file" if accepts("text", True) else ""
        raise InputError(
            f"name either the column of texts ({keyword('text')}) or the column of fingerprints "
            f"({keyword('fingerprint')}){each}"
        )
    if check_signed(projection.signed, projection.width) and fingerprint is None:
        raise InputError(f"{keyword('signed', True)} is for a column of fingerprints")
    if check_flag(projection.decimal, "decimal") and fingerprint is None:
        raise InputError(f"{keyword('decimal', True)} is for a column of fingerprints")
    columns = None if text is True or isinstance(text, tuple) else text or None
    for argument, name in {
        "text": columns,
        "fingerprint": fingerprint,
        "id": projection.id,
        "score": projection.score,
        "key": projection.key,
    }.items():
        if name is not None and not (isinstance(name, str) and name):
            raise InputError(f"{argument} must be the name of a column, got {show(name)}", got=name)
    if text is True:
        named = (projection.id, projection.score, projection.key)
        if named != (None, None, None) or projection.labels:
            raise InputError("files that are texts have no columns: their ids are their paths")
        return replace(projection, text=PATHS_TEXT, id=PATHS_ID)
    return replace(projection, text=text or None, fingerprint=fingerprint)
