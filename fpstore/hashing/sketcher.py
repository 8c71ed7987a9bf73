"""The interface of hashers that make sketches and signatures, as an index keeps them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Array, Bytes, Counts, Flags, Item_contra, Words
from fpstore.base.arguments import check_whole
from fpstore.base.pools import map_in_order
from fpstore.base.resources import parse_threads
from fpstore.errors import InputError, show
from fpstore.hashing.base import Hasher, check_items
from fpstore.hashing.law import MAX_VALUES, Law, Reals
from fpstore.hashing.words import STEP, mix, packed

MAX_SIGNATURE_BITS = 224


class Sketched(NamedTuple):
    """The sketches and the signatures of a batch of items.

    Attributes
    ----------
    sketches : ndarray of uint32, shape (n, count)
        Hash values: two items have the same value in a column the more often, the more similar they
        are.
    signatures : ndarray of uint8, shape (n, signature_bits / 8)
        Bits, the most significant first: two items differ in the fewer bits, the more similar they
        are.
    known : ndarray of bool, shape (n,)
        Whether an item has content. The rows of an item without content have no meaning.
    whole_pages : ndarray of bool, shape (n,), or None
        Which pages of HTML are compared by their whole texts: see `fpstore.hashing.MainText`.
    """

    sketches: Counts
    signatures: Bytes
    known: Flags
    whole_pages: Flags | None = None


class Values(NamedTuple):
    """Hash values of a batch, uint32 of shape (n, functions), and which items have content."""

    values: Counts
    known: Flags


class Signed(NamedTuple):
    """Signatures of a batch, uint8 of shape (n, bits / 8), and which items have content."""

    signatures: Bytes
    known: Flags


class Sketcher(Hasher[Item_contra]):
    """Makes sketches of items: hash values that agree the more often, the more similar items are.

    Each item also has a signature, which checks the candidates with equal values. Both follow the
    law of the hasher. An author writes `name`, `version`, `items`, `law`, `values` and
    `similarities`. The other members have defaults.

    Attributes
    ----------
    has_probes : bool
        Whether the hasher has `probes`.

    Notes
    -----
    P. Indyk and R. Motwani, *Approximate nearest neighbors: towards removing the curse of
    dimensionality*, STOC 1998.

    Examples
    --------
    >>> from fpstore import MinHash
    >>> texts = ["it was the best of times", "it was the worst of times"]
    >>> MinHash().sketches(texts, count=40).shape
    (2, 40)
    """

    has_probes: ClassVar[bool] = False

    @property
    @abstractmethod
    def law(self) -> Law:
        """How often values of two items agree, by their similarity."""

    @property
    def signature_bits(self) -> int:
        """Bits of a signature: a multiple of 8, at most 224."""
        return MAX_SIGNATURE_BITS

    @property
    def most_values(self) -> int:
        """The most values that a sketch can have."""
        return MAX_VALUES

    @abstractmethod
    def values(self, items: Sequence[Any], functions: range) -> Values:
        """Return the values of hash functions on a batch of `batches`.

        Value i depends on the item and on i only. Keys use the functions from 0 on. The default of
        `signed` uses functions from 65,536 on.
        """

    @abstractmethod
    def similarities(self, item: Item_contra, others: Sequence[Item_contra]) -> Reals:
        """Return the exact similarities, or distances, of an item and others, shape (n,)."""

    def signed(self, items: Sequence[Any]) -> Signed:
        """Return the signatures of a batch.

        By default a signature has a bit of each of `signature_bits` values, independent of keys.
        """
        functions = range(MAX_VALUES, MAX_VALUES + self.signature_bits)
        values, known = self.values(items, functions)
        return Signed(packed(mixed_bits(values)), known)

    def sketch_batch(self, items: Sequence[Any], count: int) -> Sketched:
        """Return the sketches and the signatures of a batch."""
        values, known = self.values(items, range(count))
        return Sketched(values, self.signed(items).signatures, known)

    def sketched(
        self, items: Iterable[Item_contra], count: int, threads: int | None = 1
    ) -> Iterator[Sketched]:
        """Yield sketches and signatures of items, which are read once, batch by batch, in order.

        Parameters
        ----------
        items : iterable
            What the hasher takes.
        count : int
            Values of a sketch, 0 to `most_values`.
        threads : int, optional
            None is one per processor. The result does not depend on it.

        Yields
        ------
        Sketched
            The sketches of a batch. An item without content is not ``known``.

        Raises
        ------
        InputError
            An item has a wrong type; the message has its position.
        """
        work = partial(self.sketch_batch, count=self._check_count(count))
        batches = map_in_order(work, self._batches(items), parse_threads(threads))
        return (sketched for _, sketched in batches)

    def sketches(self, items: Iterable[Item_contra], count: int, threads: int | None = 1) -> Counts:
        """Return the sketches of items.

        Parameters
        ----------
        items : iterable
            What the hasher takes.
        count : int
            Values of a sketch, 0 to `most_values`. Value i is the same whatever the count is.
        threads : int, optional
            None is one per processor. The result does not depend on it.

        Returns
        -------
        ndarray of uint32, shape (n, count)

        Raises
        ------
        InputError
            An item has a wrong type, or no content; the message has its position.
        """
        count = self._check_count(count)
        parts = self._full_rows(items, lambda batch: self.values(batch, range(count)), threads)
        return np.concatenate([np.empty((0, count), np.uint32), *parts])

    def signatures(self, items: Iterable[Item_contra], threads: int | None = 1) -> Bytes:
        """Return the signatures of items.

        Parameters
        ----------
        items : iterable
            What the hasher takes.
        threads : int, optional
            None is one per processor. The result does not depend on it.

        Returns
        -------
        ndarray of uint8, shape (n, signature_bits / 8)
            The most significant bit first.

        Raises
        ------
        InputError
            An item has a wrong type, or no content; the message has its position.
        """
        parts = self._full_rows(items, self.signed, threads)
        return np.concatenate([np.empty((0, self.signature_bits // 8), np.uint8), *parts])

    def estimate(self, distances: npt.ArrayLike) -> Reals:
        """Return the similarities, or distances, for Hamming distances of signatures."""
        array = np.asarray(distances)
        if (array.size and array.dtype.kind not in "iu") or (
            array.size and not 0 <= int(array.min()) <= int(array.max()) <= self.signature_bits
        ):
            raise InputError(
                f"distances must be whole numbers from 0 to {self.signature_bits}, got "
                f"{show(distances)}",
                got=distances,
                argument="distances",
            )
        return self.law.estimate(array.astype(np.intp), self.signature_bits)

    def probes(self, item: Item_contra, bands: int, rows: int, count: int) -> Counts:
        """Return the values to look up for an item in each band.

        Parameters
        ----------
        item : object
            An item with content.
        bands, rows : int
            Band b has the values ``b * rows`` to ``(b + 1) * rows`` of a sketch.
        count : int
            Look-ups in a band.

        Returns
        -------
        ndarray of uint32, shape (bands, count, rows)
            The first of each band are the item's own values. The others follow by the likelihood
            that a near item has them. A band with fewer possible values ends with repetitions of
            the item's own.

        Raises
        ------
        InputError
            The hasher has no probes, or the item has a wrong type.
        """
        raise InputError(
            f"the hasher {self.name} has no further probes: leave probes out", got=self.name
        )

    def _check_bands(self, bands: int, rows: int, count: int) -> None:
        for value, name in ((bands, "bands"), (rows, "rows"), (count, "count")):
            check_whole(value, 1, self.most_values, name)
        check_whole(bands * rows, 1, self.most_values, "bands * rows")

    def _batches(self, items: Iterable[Item_contra]) -> Iterator[Sequence[Any]]:
        check_items(items, self.items)
        return self.batches(items)

    def _check_count(self, count: int) -> int:
        return check_whole(count, 0, self.most_values, "count")

    def _full_rows(
        self,
        items: Iterable[Item_contra],
        work: Callable[[Sequence[Any]], tuple[Array, Flags]],
        threads: int | None,
    ) -> Iterator[Array]:
        """Yield the results of ``work`` on batches; InputError if an item has no content."""
        done = 0
        for batch, (rows, known) in map_in_order(
            work, self._batches(items), parse_threads(threads)
        ):
            if not known.all():
                place = int(np.argmin(known))
                raise InputError(
                    f"item {done + place}: {self.empty_message(batch[place])}", got=done + place
                )
            done += len(batch)
            yield rows


def mixed_bits(values: Counts | Words) -> Flags:
    """Return a mixed bit of each hash value, which differs for half of the unequal values."""
    columns = np.arange(1, values.shape[1] + 1, dtype=np.uint64) * STEP
    bits: Flags = mix(values + columns) >> np.uint64(63) != 0
    return bits
