"""Who may do what: tokens of reading and of writing."""

from __future__ import annotations

import hmac
from enum import IntEnum

from fpstore.errors import InputError

MIN_TOKEN = 16  # characters


class Right(IntEnum):
    """What a client may do; who may write may read."""

    READ = 1
    WRITE = 2


class Access:
    """The tokens of a server. Without tokens, everyone who reaches it may do everything."""

    def __init__(self, read_token: str | None = None, write_token: str | None = None) -> None:
        for token in (read_token, write_token):
            if token is not None and (len(token) < MIN_TOKEN or not token.isascii()):
                raise InputError(f"a token has at least {MIN_TOKEN} characters of ASCII")
        self._tokens = [
            (token.encode(), right)
            for token, right in ((write_token, Right.WRITE), (read_token, Right.READ))
            if token is not None
        ]

    @property
    def is_guarded(self) -> bool:
        """Whether clients must send a token."""
        return bool(self._tokens)

    def right(self, token: str | bytes) -> Right | None:
        """Return what a token allows, in a time that does not depend on its characters."""
        sent = token.encode("utf-8", "replace") if isinstance(token, str) else token
        rights = [right for known, right in self._tokens if hmac.compare_digest(known, sent)]
        return max(rights, default=None)
