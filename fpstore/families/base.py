"""The interface of families of locality-sensitive hash functions."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, ClassVar, Generic, NamedTuple, NoReturn, Self

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Array, Bytes, Counts, Flags, Item, Words
from fpstore.base.arguments import check_number, check_whole, is_iterable
from fpstore.base.resources import parse_threads
from fpstore.base.threads import cached_property, in_order
from fpstore.errors import InputError, show
from fpstore.hashing.base import batched
from fpstore.hashing.vector_base import STEP, mix, packed

Reals = npt.NDArray[np.float64]
MOST_WIDTH = 224  # bits of a signature
MOST_VALUES = 1 << 16  # of a sketch
_BATCH_ITEMS = 1 << 12
_ROUNDING = 1e-9  # of the range of a measure, by which a computed value may be outside
_HALVINGS = 60  # of an interval, until it is as narrow as numbers are


class Sketched(NamedTuple):
    """What a family makes of some items.

    Attributes
    ----------
    sketches : ndarray of uint32, shape (n, count)
        Hash values: two items have the same value in a column the more often, the more similar they
        are.
    signatures : ndarray of uint8, shape (n, width / 8)
        Bits, the most significant first: two items differ in the fewer bits, the more similar they
        are.
    known : ndarray of bool, shape (n,)
        Whether an item has content. The rows of an item without content have no meaning.
    whole_pages : ndarray of bool, shape (n,), or None
        Of pages of HTML, which are compared by their whole texts: see `fpstore.hashing.MainText`.
    """

    sketches: Counts
    signatures: Bytes
    known: Flags
    whole_pages: Flags | None = None


class Values(NamedTuple):
    """Hash values of some items, uint32 of shape (n, functions), and which items have content."""

    values: Counts
    known: Flags


class Signed(NamedTuple):
    """Signatures of some items, uint8 of shape (n, width / 8), and which items have content."""

    signatures: Bytes
    known: Flags


class Family(ABC, Generic[Item]):
    """A family of hash functions that agree on two items the more often, the more similar they are.

    An author writes `name`, `version`, `items`, `measure`, `values`, `collision` and
    `similarities`. The rest has defaults. A family has no state but its parameters, which are the
    fields of a dataclass: the same name, version and parameters always give the same values. A
    change that would alter the value of any item needs a new version. `fpstore.lsh.check_family`
    finds what a family does otherwise than it says. A package offers a family to all users of
    fpstore by an entry point of the group ``fpstore.families``, whose name is the name of the
    family.

    Attributes
    ----------
    name : str
        The name of the family, which an index remembers.
    version : int
        From 1.
    items : str
        What it takes, in the plural: "texts", "vectors".
    measure : str
        What `collision` is a function of: "Jaccard similarity", "cosine similarity", "L2 distance".
    is_distance : bool
        Whether less of the measure means nearer.
    has_probes : bool
        Whether the family has `probes`.
    bits_differ_at_most : bool
        Whether `differing` is the most that bits differ at a similarity, and not the mean.

    Notes
    -----
    P. Indyk and R. Motwani, *Approximate nearest neighbors: towards removing the curse of dimensionality*, STOC 1998.

    Examples
    --------
    >>> from fpstore.families import MinHashFamily
    >>> family = MinHashFamily()
    >>> family.sketches(["it was the best of times", "it was the worst of times"], count=40).shape
    (2, 40)
    """

    name: ClassVar[str]
    version: ClassVar[int]
    items: ClassVar[str] = "items"
    measure: ClassVar[str]
    is_distance: ClassVar[bool] = False
    has_probes: ClassVar[bool] = False
    bits_differ_at_most: ClassVar[bool] = False

    @property
    def width(self) -> int:
        """Bits of a signature: a multiple of 8, at most 224."""
        return MOST_WIDTH

    @property
    def limits(self) -> tuple[float, float]:
        """The least and the greatest value of the measure."""
        return 0.0, 1.0

    @property
    def background(self) -> float:
        """The measure of items that have nothing to do with each other, by which false candidates are expected."""
        return self.limits[self.is_distance]

    @property
    def most_values(self) -> int:
        """The most values that a sketch can have."""
        return MOST_VALUES

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments that make an equal family, as JSON values."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]  # of a dataclass

    @classmethod
    def from_parameters(cls, parameters: dict[str, Any]) -> Self:
        """Return the family that has these `parameters`."""
        return cls(**parameters)

    @abstractmethod
    def values(self, items: Sequence[Any], functions: range) -> Values:
        """Return the values of some hash functions on a batch of `batches`.

        Value i depends on the item and on i only.

        Keys are made of the functions from 0 on. The default of `signed` uses those from 65,536 on.
        """

    @abstractmethod
    def collision(self, similarity: float) -> float:
        """Return the probability that two items of a similarity, or distance, have the same hash value."""

    @abstractmethod
    def similarities(self, item: Item, others: Sequence[Item]) -> Reals:
        """Return the exact similarities, or distances, of an item and others, shape (n,)."""

    def batches(self, items: Iterable[Item]) -> Iterator[Sequence[Any]]:
        """Cut items into batches that fit into memory.

        InputError has the position of an item that is none.
        """
        check_many(items, self.items)
        return batched(items, lambda _: 1, _BATCH_ITEMS)

    def signed(self, items: Sequence[Any]) -> Signed:
        """Return the signatures of a batch.

        By default a bit of each of `width` further hash values, independent of keys.
        """
        found = self.values(items, range(MOST_VALUES, MOST_VALUES + self.width))
        return Signed(packed(bits_of(found.values)), found.known)

    def both(self, items: Sequence[Any], count: int) -> Sketched:
        """Return the sketches and the signatures of a batch."""
        values, signed = self.values(items, range(count)), self.signed(items)
        return Sketched(values.values, signed.signatures, values.known)

    def lack(self, item: Item) -> str:
        """Return the message that an item has no content."""
        return f"the item {show(item)} has no content, and so no hash values: leave it out"

    def sketched(
        self, items: Iterable[Item], count: int, threads: int | None = 1
    ) -> Iterator[Sketched]:
        """Yield sketches and signatures of items, which are read once, batch by batch, in order.

        Parameters
        ----------
        items : iterable
            What the family takes.
        count : int
            Values of a sketch, 0 to `most_values`.
        threads : int, optional
            None is one per processor. The result does not depend on it.

        Yields
        ------
        Sketched
            Of one batch. An item without content is not ``known``.

        Raises
        ------
        InputError
            An item is none of the family; the message has its position.
        """
        work = partial(self.both, count=self._checked(count))
        return (found for _, found in in_order(work, self.batches(items), parse_threads(threads)))

    def sketches(self, items: Iterable[Item], count: int, threads: int | None = 1) -> Counts:
        """Return the sketches of items.

        Parameters
        ----------
        items : iterable
            What the family takes.
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
            An item is none of the family, or has no content; the message has its position.
        """
        count = self._checked(count)
        parts = self._all(items, lambda batch: self.values(batch, range(count)), threads)
        return np.concatenate([np.empty((0, count), np.uint32), *parts])

    def signatures(self, items: Iterable[Item], threads: int | None = 1) -> Bytes:
        """Return the signatures of items.

        Parameters
        ----------
        items : iterable
            What the family takes.
        threads : int, optional
            None is one per processor. The result does not depend on it.

        Returns
        -------
        ndarray of uint8, shape (n, width / 8)
            The most significant bit first.

        Raises
        ------
        InputError
            An item is none of the family, or has no content; the message has its position.
        """
        return np.concatenate(
            [np.empty((0, self.width // 8), np.uint8), *self._all(items, self.signed, threads)]
        )

    def differing(self, similarity: float) -> float:
        """Return the probability that a bit of the signatures of two items of a similarity, or distance, differs."""
        return (1 - self.collision(similarity)) / 2

    def estimate(self, distances: npt.ArrayLike) -> Reals:
        """Return the similarities, or distances, that Hamming distances of signatures stand for.

        The inverse of `differing`.
        """
        return self._estimates[self._distances(distances)]

    def band_collision(self, similarity: float, rows: int, probes: int = 1) -> float:
        """Return the probability that a band of two items agrees.

        All its values, or those of one of several probes.
        """
        if probes != 1:
            self._refuse_probes()
        return self.collision(similarity) ** check_whole(rows, 1, self.most_values, "rows")

    def probes(self, item: Item, bands: int, rows: int, count: int) -> Counts:
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
            The first of each band are the item's own values. The others follow in the order in
            which they are likely to be those of a near item; where a band has fewer possible ones,
            the item's own come again.

        Raises
        ------
        InputError
            The family has no probes, or the item is none.
        """
        self._refuse_probes()

    def describe(self) -> dict[str, Any]:
        """Return a description as JSON values, from which `from_description` rebuilds the family.

        Returns
        -------
        dict
            ``name`` (str), ``version`` (int) and ``parameters`` (dict).
        """
        return {"name": self.name, "version": self.version, "parameters": self.parameters}

    def check_measure(self, value: object, what: str) -> float:
        """Return a value of the measure as a float; InputError if it is none."""
        least, most = self.limits
        try:
            number = float("nan") if isinstance(value, (bool, str, bytes)) else float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            number = float("nan")
        if not least <= number <= most:
            reason = (
                f"{what} must be {with_article(self.measure)}, from {least:g} to {most:g}, got "
                f"{show(value)}"
            )
            raise InputError(reason, got=value)
        return number

    def _measured(self, value: object) -> float:
        """Return a value of the measure, within the limits but for rounding.

        InputError if it is none.
        """
        least, most = self.limits
        slack = _ROUNDING * (most - least)
        return min(max(check_number(value, least - slack, most + slack, self.measure), least), most)

    def _distances(self, distances: npt.ArrayLike) -> npt.NDArray[np.intp]:
        """Return Hamming distances of signatures as an array; InputError if they are none."""
        found = np.asarray(distances)
        whole = found.dtype.kind in "iu" or not found.size
        if not whole or (
            found.size and not 0 <= int(found.min()) <= int(found.max()) <= self.width
        ):
            raise InputError(
                f"distances must be whole numbers from 0 to {self.width}, got {show(distances)}",
                got=distances,
            )
        return found.astype(np.intp)

    def _check_bands(self, bands: int, rows: int, count: int) -> None:
        """Refuse what are no numbers of bands, of their values and of look-ups."""
        for value, name in ((bands, "bands"), (rows, "rows"), (count, "count")):
            check_whole(value, 1, self.most_values, name)
        check_whole(bands * rows, 1, self.most_values, "bands * rows")

    @cached_property
    def _estimates(self) -> Reals:
        least, most = self.limits
        near, far = (least, most) if self.is_distance else (most, least)
        shares = np.arange(self.width + 1) / self.width
        return np.array([_inverse(self.differing, share, near, far) for share in shares.tolist()])

    def _checked(self, count: int) -> int:
        return check_whole(count, 0, self.most_values, "count")

    def _refuse_probes(self) -> NoReturn:
        raise InputError(
            f"the family {self.name} has no further probes: leave probes out", got=self.name
        )

    def _all(
        self,
        items: Iterable[Item],
        work: Callable[[Sequence[Any]], tuple[Array, Flags]],
        threads: int | None,
    ) -> Iterator[Array]:
        """Yield what some work makes of batches; InputError if an item has no content."""
        done = 0
        for batch, (rows, known) in in_order(work, self.batches(items), parse_threads(threads)):
            if not known.all():
                place = int(np.argmin(known))
                raise InputError(
                    f"item {done + place}: {self.lack(batch[place])}", got=done + place
                )
            done += len(batch)
            yield rows


class JaccardFamily(Family[Item]):
    """The common part of MinHashes.

    Two sets agree in a value with their Jaccard similarity as the probability.
    """

    measure: ClassVar[str] = "Jaccard similarity"

    def collision(self, similarity: float) -> float:
        """Return the similarity."""
        return self._measured(similarity)

    def estimate(self, distances: Any) -> Reals:
        """Return the similarities that distances of signatures stand for."""
        return np.maximum(1 - 2 * self._distances(distances) / self.width, 0.0)


def with_article(measure: str) -> str:
    """Return a measure with the article that it is spoken with: "an L2 distance"."""
    return f"{'an' if re.match('[AEIOaeio]|L[0-9]', measure) else 'a'} {measure}"


def check_many(items: object, kind: str) -> None:
    """Raise InputError for what is no iterable of items, such as a single text."""
    if not is_iterable(items, str, dict):
        reason = (
            f"expected an iterable of {kind}, got {type(items).__name__}: wrap a single one in a "
            "list"
        )
        raise InputError(reason, got=type(items))


def bits_of(values: Counts | Words) -> Flags:
    """Return a mixed bit of each hash value.

    Of two values that are not the same, it differs in half of the columns.
    """
    columns = np.arange(1, values.shape[1] + 1, dtype=np.uint64) * STEP
    found: Flags = mix(values + columns) >> np.uint64(63) != 0
    return found


def _inverse(share_of: Callable[[float], float], share: float, near: float, far: float) -> float:
    """Return the measure at which a share of bits differs; the share grows from near to far."""
    if share_of(far) <= share:
        return far
    for _ in range(_HALVINGS):
        middle = (near + far) / 2
        if share_of(middle) <= share:
            near = middle
        else:
            far = middle
    return near
