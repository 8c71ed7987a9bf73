"""Changes that make copies: a kind, mostly with an amount, as ``typos=0.01`` or ``grey``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

from fpstore.errors import InputError, show

_AMOUNT = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


class ChangeKind(NamedTuple):
    """A kind of change: its function, and the words, an example and the bounds of its amount."""

    make: Callable[..., Any]
    takes: str = ""
    example: str = ""
    least: float = 0.0
    most: float = 0.0
    step: float = 0.0  # an amount from 1 on is a multiple of it

    def accepts(self, amount: float) -> bool:
        is_multiple = not self.step or amount < 1 or amount % self.step == 0
        return self.least <= amount <= self.most and is_multiple


@dataclass(frozen=True)
class Change:
    """A way to make a near-duplicate; the amount is 0 for kinds without one."""

    kind: str
    amount: float = 0.0
    kinds: ClassVar[Mapping[str, ChangeKind]]
    usage: ClassVar[tuple[str, str]]  # what messages call it, and examples

    @property
    def name(self) -> str:
        return f"{self.kind}={self.amount:.9g}" if self.kinds[self.kind].takes else self.kind

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a change such as ``typos=0.01`` or ``grey``."""
        name, equals, amount = str(text).partition("=")
        kind = cls.kinds.get(name)
        if kind is None:
            label, examples = cls.usage
            raise InputError(
                f"{label} is one of {', '.join(cls.kinds)}{examples}: got {show(text)}", got=text
            )
        if not kind.takes:
            if equals:
                raise InputError(f"{name} takes no amount: got {show(text)}", got=text)
            return cls(name)
        if not _AMOUNT.fullmatch(amount) or not kind.accepts(float(amount)):
            raise InputError(
                f"{name} takes {kind.takes}, as {name}={kind.example}: got {show(text)}", got=text
            )
        return cls(name, float(amount))
