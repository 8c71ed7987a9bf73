"""The interface of all fingerprinters."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Item = TypeVar("Item")


class Fingerprinter(ABC, Generic[Item]):
    """Makes 64-bit fingerprints of items of one kind: texts, images, vectors.

    Similar items get fingerprints that differ in few bits. A fingerprinter has no state but its parameters: the
    same name, version and parameters always give the same fingerprints. A change that would alter the fingerprint
    of any item needs a new version.

    Attributes
    ----------
    name : str
        The name of the algorithm, which a store remembers.
    version : int
        The version of the algorithm, from 1.
    """

    name: ClassVar[str]
    version: ClassVar[int]

    @property
    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """The arguments that make an equal fingerprinter, as JSON values."""

    @abstractmethod
    def fingerprint(self, item: Item, /) -> int:
        """Return the fingerprint of one item, 0 to 2^64 - 1; InputError if the item is empty."""

    @abstractmethod
    def fingerprints(self, items: Iterable[Item], /, *, empty: str = "refuse") -> NDArray[np.uint64]:
        """Return the fingerprints of many items in order, uint64 of shape (n,); reads the items once.

        With ``empty="zero"``, an empty item gets 0 instead of an InputError.
        """

    def is_empty(self, item: Item, /) -> bool:
        """Return whether an item is empty, and so has no fingerprint."""
        return False

    def describe(self) -> dict[str, Any]:
        """Return a description as JSON values, from which `from_description` rebuilds the fingerprinter.

        Returns
        -------
        dict
            ``name`` (str), ``version`` (int) and ``parameters`` (dict).
        """
        return {"name": self.name, "version": self.version, "parameters": self.parameters}
