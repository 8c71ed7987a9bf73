"""A projection to fewer dimensions that keeps distances: a step before a hasher of vectors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore.base.arguments import check_whole
from fpstore.errors import InputError
from fpstore.hashing.hyperplanes import DEVIATION, hyperplanes
from fpstore.hashing.vectors import HyperplaneHash


@dataclass(frozen=True, kw_only=True)
class RandomProjection:
    """A linear map of vectors to fewer dimensions that nearly keeps distances and angles.

    The map is a matrix of nearly normal numbers with the variance 1 / to. The squared length of a
    vector changes by a factor with the mean 1 and the variance 2 / to. Hashing the projected
    vectors costs to / dimension of the time for the original vectors, and the projection costs as
    much as `to` hash values. It pays for many hash values of vectors with thousands of components.

    Parameters
    ----------
    dimension : int
        Components of a vector, 1 to 65,536.
    to : int
        Components of a projected one, 1 to `dimension`.
    seed : int
        0 to 2^64 - 1.

    Raises
    ------
    InputError
        A parameter has the wrong type or is out of range.

    Notes
    -----
    W. Johnson and J. Lindenstrauss, *Extensions of Lipschitz mappings into a Hilbert space*, 1984;
    S. Dasgupta and A. Gupta, *An elementary proof of a theorem of Johnson and Lindenstrauss*, 2003.

    Examples
    --------
    >>> import numpy as np
    >>> from fpstore.hashing import RandomProjection
    >>> vectors = np.random.default_rng(1).normal(size=(2, 4096))
    >>> a, b = RandomProjection(dimension=4096, to=256)(vectors)
    >>> round(float(np.linalg.norm(a - b) / np.linalg.norm(vectors[0] - vectors[1])), 1)
    1.0
    """

    dimension: int
    to: int
    seed: int = 0

    def __post_init__(self) -> None:
        checked = HyperplaneHash(dimension=self.dimension, seed=self.seed)
        object.__setattr__(self, "dimension", checked.dimension)
        object.__setattr__(self, "to", check_whole(self.to, 1, checked.dimension, "to"))
        object.__setattr__(self, "seed", checked.seed)

    def __call__(self, vectors: Iterable[Any]) -> npt.NDArray[np.float32]:
        """Return projected vectors.

        Parameters
        ----------
        vectors : iterable
            As `fpstore.HyperplaneHash` takes them: an array of shape (n, dimension), a column of
            Arrow, or single ones.

        Returns
        -------
        ndarray of float32, shape (n, to)

        Raises
        ------
        InputError
            A vector has another dimension, or a component that is no finite number; the message has
            its position.
        """
        reader = HyperplaneHash(dimension=self.dimension, seed=self.seed)
        matrix = hyperplanes(self.dimension, self.to, self.seed).normals * np.float32(
            1 / (DEVIATION * self.to**0.5)
        )
        parts = [np.empty((0, self.to), np.float32)]
        for block in reader.batches(vectors):
            with np.errstate(all="ignore"):
                projected = np.asarray(block.values, np.float32) @ matrix.T
            if not np.isfinite(projected).all():
                place = int(np.argwhere(~np.isfinite(projected))[0][0])
                raise InputError(
                    f"vector {block.first + place}: it has a component that is not finite, or too "
                    "large"
                )
            parts.append(projected)
        return np.concatenate(parts)
