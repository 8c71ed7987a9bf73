"""The interface of all hashers and of fingerprinters, and batches of texts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, ClassVar, Generic, Literal, NamedTuple, NoReturn, Self, TypeVar, overload

import numpy as np
import numpy.typing as npt
import xxhash

from fpstore.base.aliases import Counts, Flags, Item_contra, Words
from fpstore.base.arguments import check_choice, is_iterable
from fpstore.base.arrays import HALF_BITS, list_lims, lists_at
from fpstore.base.pools import map_in_order
from fpstore.base.resources import parse_threads
from fpstore.base.width import WORD_BITS, Width
from fpstore.errors import FormatVersionError, InputError, show
from fpstore.hashing.law import Law

Item = TypeVar("Item")
BATCH_CHARS = 1 << 20
SAMPLES = 64  # about so many features of an item are its sample
USUAL_BITS = 3
_BATCH_ITEMS = 1 << 12
_SLICE = 1 << 10  # values of a column that become Python values together


class Hashed(NamedTuple):
    """The fingerprints of a batch.

    Attributes
    ----------
    rows : ndarray
        Words, shape (n, ...): see `Width`. The row of an item without a fingerprint is zero.
    known : ndarray of bool, shape (n,)
        Which items have a fingerprint.
    whole_pages : ndarray of bool, shape (n,), or None
        Which pages of HTML are compared by their whole texts: see `MainText`.
    sets : FeatureSets or None
        The features of the items, if they are asked for.
    text_keys : ndarray of uint64, shape (n, 2), or None
        Hashes of whole texts; zeros for an item that has none.
    text_chars : ndarray of uint32, shape (n,), or None
        The characters of the texts that are compared, if these are not the items.
    pages : ndarray of bool, shape (n,), or None
        Which items look like pages of HTML, and are compared without tags: see `PlainPages`.
    """

    rows: Words
    known: Flags
    whole_pages: Flags | None = None
    sets: FeatureSets | None = None
    text_keys: Words | None = None
    text_chars: Counts | None = None
    pages: Flags | None = None

    def select(self, places: npt.NDArray[Any]) -> Hashed:
        """Return the items at some places, or of a mask."""

        def selected(column: Any) -> Any:
            return None if column is None else column[places]

        return Hashed(
            self.rows[places],
            self.known[places],
            selected(self.whole_pages),
            None if self.sets is None else self.sets.select(places),
            selected(self.text_keys),
            selected(self.text_chars),
            selected(self.pages),
        )


class FeatureSets(NamedTuple):
    """Sets of features, one after the other.

    A feature is the lower half of its hash, ascending within an item.

    Attributes
    ----------
    features : ndarray of uint32
        The features of all items.
    sizes : ndarray of int64, shape (n,)
        The number of features of each item.
    digests : ndarray of uint64, shape (n,)
        A hash of the features of each item.
    samples : ndarray of uint32, shape (n,)
        How many of the first features of an item are its sample: those below ``2^32 SAMPLES / n``,
        for n features. L. Irber and others, *Lightweight compositional analysis of metagenomes with
        FracMinHash and minimum metagenome covers*, bioRxiv 2022; here the share of the features
        depends on their number.
    """

    features: Counts
    sizes: npt.NDArray[np.int64]
    digests: Words
    samples: Counts

    @classmethod
    def from_hashes(cls, hashes: Iterable[Words]) -> FeatureSets:
        """Return the sets of the hashes of the features of items."""
        sets = [np.unique(item_hashes.astype(np.uint32)) for item_hashes in hashes]
        limits = ((SAMPLES << HALF_BITS) // max(len(values), SAMPLES) for values in sets)
        return cls(
            np.concatenate([np.empty(0, np.uint32), *sets]),
            np.array(list(map(len, sets)), np.int64),
            np.array([xxhash.xxh64_intdigest(values.data) for values in sets], np.uint64),
            np.array(
                [
                    int(np.searchsorted(values.astype(np.uint64), np.uint64(limit)))
                    for values, limit in zip(sets, limits, strict=True)
                ],
                np.uint32,
            ),
        )

    def select(self, places: npt.NDArray[Any]) -> FeatureSets:
        """Return the sets at some places, or of a mask."""
        sizes = self.sizes[places]
        if places.dtype == bool and int(sizes.sum()) == len(self.features):
            features = self.features  # only sets without features go: blank texts
        else:
            features = lists_at(self.features, list_lims(self.sizes)[:-1][places], sizes)
        return FeatureSets(features, sizes, self.digests[places], self.samples[places])


class UnitSets(NamedTuple):
    """Sets of features as whole hashes, or as their ranks, ascending within an item.

    `units` has the number of words or characters in the first feature of each item, which is
    smaller in a text that is shorter than a shingle.
    """

    features: npt.NDArray[Any]
    sizes: npt.NDArray[np.int64]
    units: npt.NDArray[np.int64]


class Hasher(ABC, Generic[Item_contra]):
    """Makes hash values of items of one kind: texts, pictures, vectors.

    A hasher has no state but its parameters, which are the fields of a dataclass: the same name,
    version and parameters always give the same values. A change that would alter a value of any
    item needs a new version. `Fingerprinter` describes the values for a store, and
    `fpstore.hashing.Sketcher` the values for an index; some hashers are both. A package offers a
    hasher to all users of fpstore by an entry point of the group ``fpstore.hashers``, whose name is
    the name of the hasher.

    Attributes
    ----------
    name : str
        The name of the algorithm, which a store or an index remembers.
    version : int
        The version of the algorithm, from 1.
    items : str
        What it takes, in the plural: "texts", "pictures", "vectors".
    """

    name: ClassVar[str]
    version: ClassVar[int]
    items: ClassVar[str] = "items"

    @property
    def law(self) -> Law | None:
        """How often values of two items agree, by their similarity; None without such a law."""
        return None

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments that make an equal hasher, as JSON values."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]  # all are dataclasses

    @classmethod
    def from_parameters(cls, parameters: dict[str, Any]) -> Self:
        """Return the hasher that has these `parameters`."""
        names = [field.name for field in fields(cls)]  # type: ignore[arg-type]  # all are dataclasses
        unknown = [key for key in parameters if key not in names]
        if unknown:
            raise FormatVersionError(
                f"unknown parameter {unknown[0]!r} of the hasher {show(cls.name)}: upgrade the "
                "package that has it",
                expected=names,
                got=unknown,
            )
        missing = [key for key in names if key not in parameters]
        if missing:
            raise InputError(
                f"the description of the hasher {show(cls.name)} lacks {', '.join(missing)}",
                expected=names,
                got=parameters,
            )
        return cls(**parameters)

    def batches(self, items: Iterable[Item_contra], /) -> Iterator[Sequence[Any]]:
        """Cut items into batches that fit into memory.

        InputError has the position of an item of a wrong type.
        """
        check_items(items, self.items)
        return batched(items, lambda _: 1, _BATCH_ITEMS)

    def empty_message(self, item: Item_contra, /) -> str:
        """Return the message that an item has no content."""
        return f"the item {show(item)} has no content, and so no hash values: leave it out"

    def describe(self) -> dict[str, Any]:
        """Return a description as JSON values, from which `from_description` rebuilds the hasher.

        Returns
        -------
        dict
            ``name`` (str), ``version`` (int) and ``parameters`` (dict).
        """
        return {"name": self.name, "version": self.version, "parameters": self.parameters}

    def _keep(self, **values: Any) -> None:
        """Set parameters of this frozen dataclass to their checked values."""
        for name, value in values.items():
            object.__setattr__(self, name, value)


class Fingerprinter(Hasher[Item_contra]):
    """Makes fingerprints of items of one kind: texts, images, vectors.

    Similar items get fingerprints that differ in few bits. An item without content, such as an
    empty text, has no fingerprint.

    Attributes
    ----------
    usual_group : str
        How to group near-duplicates: "connected", or "greedy" where chains connect many unlike
        items.
    """

    items: ClassVar[str] = "texts"
    usual_group: ClassVar[str] = "connected"

    @property
    @abstractmethod
    def width(self) -> int:
        """Bits of a fingerprint: 32, 64, 128 or 256."""

    @property
    def usual_radius(self) -> int:
        """A radius to begin with.

        3 of each 64 bits (Manku, Jain, Das Sarma, section 5.1), rounded down, unless measured.
        """
        return USUAL_BITS * self.width // WORD_BITS

    @abstractmethod
    def hashed(self, items: Sequence[Any], /) -> Hashed:
        """Return the fingerprints of a batch of `batches`."""

    def feature_sets(self, items: Sequence[Any], /) -> FeatureSets:
        """Return the features of a batch of `batches` as sets."""
        raise InputError(
            f"the fingerprinter {self.name} has no features that texts have in common",
            got=self.name,
        )

    def hashed_sets(self, items: Sequence[Any], /, *, fingerprints: bool = False) -> Hashed:
        """Return the features of a batch as sets, with or without fingerprints.

        Without, the rows of the result have no words.
        """
        sets = self.feature_sets(items)
        if fingerprints:
            return self.hashed(items)._replace(sets=sets)
        return Hashed(np.empty((len(items), 0), np.uint64), sets.sizes > 0, None, sets)

    def batches(self, items: Iterable[Item_contra], /) -> Iterator[Sequence[Any]]:
        """Cut items into batches that fit into memory.

        InputError names the position of an item of a wrong type.
        """
        return text_batches(items)

    def empty_message(self, item: Item_contra, /) -> str:
        """Return the message that an item has no fingerprint."""
        return (
            f"the text {show(item)} is blank, and so has no fingerprint: leave it out (is_empty() "
            "finds such texts)"
        )

    @overload
    def fingerprint(self, item: Item_contra, /, *, empty: Literal["refuse"] = ...) -> int: ...

    @overload
    def fingerprint(self, item: Item_contra, /, *, empty: Literal["none"]) -> int | None: ...

    def fingerprint(self, item: Item_contra, /, *, empty: str = "refuse") -> int | None:
        """Return the fingerprint of one item.

        Parameters
        ----------
        item : object
            A text, an image or a vector.
        empty : {"refuse", "none"}
            For an item that has no fingerprint: raise an error, or return None.

        Returns
        -------
        int or None
            0 to 2^width - 1.

        Raises
        ------
        InputError
            The item has a wrong type or, with ``empty="refuse"``, no fingerprint.
        """
        check_choice(empty, ("refuse", "none"), "empty")
        batch, hashed = self._hash_single(item)
        if hashed.known[0]:
            return Width(self.width).numbers(hashed.rows)[0]
        if empty == "refuse":
            raise InputError(self.empty_message(batch[0]), got=item)
        return None

    @overload
    def fingerprints(
        self,
        items: Iterable[Item_contra],
        /,
        *,
        empty: Literal["refuse"] = ...,
        threads: int | None = ...,
    ) -> npt.NDArray[Any]: ...

    @overload
    def fingerprints(
        self, items: Iterable[Item_contra], /, *, empty: Literal["mask"], threads: int | None = ...
    ) -> tuple[npt.NDArray[Any], Flags]: ...

    def fingerprints(
        self, items: Iterable[Item_contra], /, *, empty: str = "refuse", threads: int | None = None
    ) -> npt.NDArray[Any] | tuple[npt.NDArray[Any], Flags]:
        """Return the fingerprints of many items, which are read once, in order, a batch at a time.

        Parameters
        ----------
        items : iterable
            Texts, images or vectors. Texts may be a column of pyarrow, Polars or pandas, whose
            nulls are empty texts.
        empty : {"refuse", "mask"}
            For an item that has no fingerprint: raise an error, or return a mask of the items with
            a fingerprint.
        threads : int, optional
            By default one per processor. The result does not depend on it.

        Returns
        -------
        fingerprints : ndarray
            uint32 or uint64 of shape (n,); above 64 bits uint8 of shape (n, width / 8), the most
            significant byte first.
        known : ndarray of bool, shape (n,)
            With ``empty="mask"`` only: whether an item has a fingerprint. Otherwise it stands as 0.

        Raises
        ------
        InputError
            An item has a wrong type or, with ``empty="refuse"``, no fingerprint; the message has
            its position.
        """
        check_choice(empty, ("refuse", "mask"), "empty")
        threads = parse_threads(threads)
        width = Width(self.width)
        parts: list[Hashed] = [Hashed(width.empty(0), np.empty(0, bool))]
        done = 0
        for batch, part in map_in_order(self.hashed, self.batches(items), threads):
            if empty == "refuse" and not part.known.all():
                place = int(np.argmin(part.known))
                raise InputError(
                    f"item {done + place}: {self.empty_message(batch[place])}", got=done + place
                )
            parts.append(part)
            done += len(batch)
        fingerprints = width.to_array(np.concatenate([part.rows for part in parts]))
        if empty == "refuse":
            return fingerprints
        return fingerprints, np.concatenate([part.known for part in parts])

    def is_empty(self, item: Item_contra, /) -> bool:
        """Return whether an item has no fingerprint; InputError for a wrong type."""
        return not self._hash_single(item)[1].known[0]

    def _hash_single(self, item: Item_contra) -> tuple[Sequence[Any], Hashed]:
        (batch,) = self.batches([item])
        return batch, self.hashed(batch)


def not_text_error(got: object, expected: str, where: str = "") -> InputError:
    advice = (
        ": decode them first, as in data.decode('utf-8')"
        if isinstance(got, (bytes, bytearray, memoryview))
        else ""
    )
    return InputError(
        f"{where}expected {expected}, got {type(got).__name__}{advice}", got=type(got)
    )


def refuse_item(item: object, place: int) -> NoReturn:
    raise not_text_error(item, "a text (str)", f"item {place}: ")


def check_items(items: object, kind: str, *single: type) -> None:
    """Raise InputError unless ``items`` is an iterable and not a ``single`` item."""
    if not is_iterable(items, *(single or (str, Mapping))):
        raise InputError(
            f"expected an iterable of {kind}, got {type(items).__name__}: wrap a single one in a "
            "list",
            got=type(items),
        )


def text_batches(
    items: Iterable[Any], convert: Callable[[object, int], Any] = refuse_item
) -> Iterator[list[Any]]:
    """Cut texts, or a column of texts, into batches of about a million characters.

    A null of a column is an empty text. ``convert`` takes any other item that is no text, and its
    position; it returns a replacement, or raises InputError.
    """
    check_items(items, "texts")
    texts = (
        item if isinstance(item, str) else "" if is_null(item) else convert(item, place)
        for place, item in enumerate(_values(items))
    )
    return batched(texts, lambda text: len(text) + 8, BATCH_CHARS)


def _values(items: Any) -> Iterator[Any]:
    """Yield items as Python values, also of a column of pyarrow, which would yield scalars."""
    if not hasattr(items, "to_pylist"):
        yield from items
        return
    for start in range(0, len(items), _SLICE):
        try:
            values = items.slice(start, _SLICE).to_pylist()
        except UnicodeDecodeError as error:
            end = min(start + _SLICE, len(items))
            raise InputError(
                f"items {start} to {end - 1}: a text that is not valid UTF-8 ({error.reason})"
            ) from None
        yield from values


def is_null(item: object) -> bool:
    """Return whether an item is None, as in pyarrow and Polars, or NaN or NA, as in pandas."""
    return (
        item is None
        or (isinstance(item, float) and item != item)
        or type(item).__name__ == "NAType"
    )


def batched(items: Iterable[Item], weigh: Callable[[Item], int], most: int) -> Iterator[list[Item]]:
    """Cut items into batches; each ends with the item that brings its weight to `most`."""
    batch: list[Item] = []
    batch_weight = 0
    for item in items:
        batch.append(item)
        batch_weight += weigh(item)
        if batch_weight >= most:
            yield batch
            batch, batch_weight = [], 0
    if batch:
        yield batch
