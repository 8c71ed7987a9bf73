"""What every fingerprinter offers, whatever it makes fingerprints of."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Item = TypeVar("Item")


class Fingerprinter(ABC, Generic[Item]):
    """Makes 64-bit fingerprints of items of one kind: texts, images, vectors.

    Similar items get fingerprints that differ in few bits. A fingerprinter has no state but its parameters:
    equal name, version and parameters give equal fingerprints for ever. What would change a fingerprint of
    any item makes a new version.

    Attributes
    ----------
    name : str
        The name of the algorithm, as a store remembers it.
    version : int
        The version of the algorithm, from 1.
    """

    name: ClassVar[str]
    version: ClassVar[int]

    @property
    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """The arguments that make an equal fingerprinter, as values that JSON can hold."""

    @abstractmethod
    def fingerprint(self, item: Item, /) -> int:
        """Return the fingerprint of one item, 0 to 2^64 - 1; InputError when there is nothing in it to make one of."""

    @abstractmethod
    def fingerprints(self, items: Iterable[Item], /, *, empty: str = "refuse") -> NDArray[np.uint64]:
        """Return the fingerprints of many items, uint64 of shape (n,), in their order; reads them once.

        With ``empty="zero"`` an item that has none gets 0 instead of an InputError.
        """

    def is_empty(self, item: Item, /) -> bool:
        """Return whether there is nothing in the item to make a fingerprint of."""
        return False

    def describe(self) -> dict[str, Any]:
        """Return what `from_description` rebuilds the fingerprinter from, as JSON can hold it.

        Returns
        -------
        dict
            ``name`` (str), ``version`` (int) and ``parameters`` (dict).
        """
        return {"name": self.name, "version": self.version, "parameters": self.parameters}
