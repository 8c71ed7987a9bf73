"""`SimhashIndex` of the package `simhash`, on disk and exact."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import fpstore
from fpstore.adapters.folder import FolderIndex
from fpstore.api import PathLike
from fpstore.base.arguments import check_whole
from fpstore.base.width import WIDTHS
from fpstore.errors import InputError, show

__all__ = ["SimhashIndex"]


class SimhashIndex(FolderIndex[fpstore.Store[str]]):
    """The methods of ``simhash.SimhashIndex``, in a store.

    Parameters
    ----------
    objs : iterable of (str, Simhash)
        Ids, each with its ``Simhash``. An id that is no string is taken as ``str(id)``.
    f : int
        Bits of a ``Simhash``, up to 256.
    k : int
        The largest distance of a near duplicate, 0 to `f`.
    path : path-like, optional
        The folder of the store. If it exists, the index has its fingerprints too. Without it, the
        store is temporary.

    Raises
    ------
    InputError
        A ``Simhash`` has other than `f` bits, or the store at the path has other widths.

    Examples
    --------
    >>> from simhash import Simhash
    >>> from fpstore.adapters.simhash import SimhashIndex
    >>> texts = {"a": "How are you? I am fine. Thanks.", "b": "How are you? I am fine, thanks!"}
    >>> index = SimhashIndex([(name, Simhash(text)) for name, text in texts.items()], k=3)
    >>> sorted(index.get_near_dups(Simhash("how are you i am fine thanks")))
    ['a', 'b']
    """

    def __init__(
        self,
        objs: Iterable[tuple[object, Any]] = (),
        f: int = 64,
        k: int = 2,
        *,
        path: PathLike | None = None,
    ) -> None:
        self.f = check_whole(f, 1, WIDTHS[-1], "f")
        self.k = check_whole(k, 0, self.f, "k")
        width = next(bits for bits in WIDTHS if bits >= f)
        pairs = list(objs)
        values, names = [self._value(simhash) for _, simhash in pairs], [str(i) for i, _ in pairs]
        self._open(lambda folder: fpstore.build(folder, [], radius=k, width=width), path)
        if self.store.width != width:
            stored = self.store.width
            self.close()
            raise InputError(f"the store has {stored} bits, f needs {width}", got=f)
        self.store.insert(values, names)

    def _value(self, simhash: Any) -> int:
        if simhash.f != self.f or not 0 <= simhash.value < 1 << self.f:
            message = f"a Simhash must have {self.f} bits, got {show(simhash.value)}"
            raise InputError(f"{message}, f={simhash.f}", expected=self.f, got=simhash.f)
        return int(simhash.value)

    def get_near_dups(self, simhash: Any) -> list[str]:
        """Return the ids within `k` bits of a ``Simhash``, each once, the nearest first."""
        matches = self.store.probe(self._value(simhash), self.k)
        return list(dict.fromkeys(name for match in matches for name in match.ids))

    def add(self, obj_id: object, simhash: Any) -> None:
        """Add a pair of id and ``Simhash``, unless it is there."""
        self.store.insert([self._value(simhash)], [str(obj_id)])

    def delete(self, obj_id: object, simhash: Any) -> None:
        """Remove a pair of id and ``Simhash``, if it is there."""
        self.store.delete(fingerprints=[self._value(simhash)], ids=[str(obj_id)])
