"""Changes that make copies: a kind, mostly with an amount, as ``typos=0.01`` or ``grey``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, NamedTuple, Self

from fpstore.errors import InputError, show

_AMOUNT = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(%?)")


class Kind(NamedTuple):
    """A kind of change: its function, and the words, an example and the bounds of its amount."""

    make: Callable[..., Any]
    takes: str = ""
    example: str = ""
    least: float = 0.0
    most: float = 0.0
    share: bool = False  # shown in percent
    counts: bool = False  # from 1 on a whole number, below 1 a share
    step: float = 0.0  # the amount is a multiple of it

    def accepts(self, amount: float | None) -> bool:
        if amount is None or not self.least <= amount <= self.most:
            return False
        step = 1 if self.counts and amount > 1 else self.step
        return not step or amount % step == 0


@dataclass(frozen=True)
class Change:
    """A way to make a near-duplicate; the amount is 0 for kinds without one."""

    kind: str
    amount: float = 0.0
    kinds: ClassVar[Mapping[str, Kind]]
    usage: ClassVar[tuple[str, str]]  # what messages call it, and examples

    @property
    def name(self) -> str:
        """The kind and the amount, for people."""
        kind = self.kinds[self.kind]
        if not kind.takes:
            return self.kind
        if kind.share or (kind.counts and self.amount < 1):
            return f"{self.kind} {100 * self.amount:.3g}%"
        return f"{self.kind} {int(self.amount) if kind.counts else format(self.amount, '.3g')}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a change such as ``typos=0.01`` or ``grey``, or its name, ``typos 1%``."""
        name, *amounts = re.split("[= ]", text, maxsplit=1)
        kind = cls.kinds.get(name)
        if kind is None:
            label, examples = cls.usage
            raise InputError(
                f"{label} is one of {', '.join(cls.kinds)}{examples}: got {show(text)}", got=text
            )
        if not kind.takes:
            if amounts:
                raise InputError(f"{name} takes no amount: got {show(text)}", got=text)
            return cls(name)
        number = _AMOUNT.fullmatch(amounts[0]) if amounts else None
        amount = None if number is None else float(Decimal(number[1]) / (100 if number[2] else 1))
        if not kind.accepts(amount):
            raise InputError(
                f"{name} takes {kind.takes}, as {name}={kind.example}: got {show(text)}", got=text
            )
        assert amount is not None
        return cls(name, amount)
