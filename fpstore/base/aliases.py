"""Names for types that many modules use."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Id = TypeVar("Id", default=Any)  # of the ids of a store: int or str
    Item_contra = TypeVar("Item_contra", contravariant=True, default=Any)  # what a hasher takes
else:
    from typing import TypeVar

    Id, Item_contra = TypeVar("Id"), TypeVar("Item_contra", contravariant=True)

NamedColumns = dict[str, npt.NDArray[Any] | list[str]]
Array = npt.NDArray[Any]
Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Counts = npt.NDArray[np.uint32]
Flags = npt.NDArray[np.bool_]
# keys, how many numbers each has, the numbers one after the other
Groups = tuple[Words, Words, Words]
Lims = npt.NDArray[np.int64]  # where each list of a column begins, and where the last ends
Progress = Callable[[str, int, int | None], None]  # called as progress(phase, done, total)
