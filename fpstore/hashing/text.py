"""Simhash: fingerprints of texts and of weighted features."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from fpstore import _kernel
from fpstore.aliases import Words
from fpstore.arguments import check_choice, check_flag, check_whole
from fpstore.errors import InputError, show
from fpstore.hashing.base import Fingerprinter, Hashed
from fpstore.hashing.normal import ascii_table, char_map

_MAX_SIZE = 255
_BATCH_CHARS = 1 << 20


@dataclass(frozen=True, kw_only=True)
class SimHash(Fingerprinter[str]):
    r"""Simhash of texts: the similarity-preserving fingerprint of near-duplicate detection.

    A text is cut into overlapping *shingles*. Each is hashed to 64 bits, and bit i of the fingerprint is 1 if bit i is
    1 in more than half of the hashes (a tie gives 0). A small edit changes few shingles and so flips few bits;
    unrelated texts differ in about 32 bits.

    Version 1 is, exactly: the text is converted to the Unicode form NFKC (if `normalize`), then ``str.casefold`` is
    applied (if `casefold`). With words, characters that are not word characters (``\w`` of `re`) are separators: the
    text becomes its maximal runs of word characters, joined by single spaces. With chars, each run of white space
    (``str.isspace``) becomes one space, and spaces at the ends are removed. The result is encoded as UTF-8, a lone
    surrogate as three bytes (``surrogatepass``), so that every `str` can be encoded. A shingle is the bytes of `size`
    successive words with the spaces between them, or of `size` successive code points; its hash is XXH64 with the
    seed. A text of fewer units than `size` is one shingle. A text without units has no fingerprint and is refused;
    `is_empty` recognizes it. Bit 63 of the fingerprint comes from bit 63 of the hashes, and so on.

    Use ``shingle="chars"`` for scripts without spaces between words (Chinese, Japanese, Thai), and for those whose vowel
    signs are not word characters (Hindi). The Unicode tables are those of the running Python: two versions of Python
    may give different fingerprints to a text with characters that one of them does not know.

    Parameters
    ----------
    shingle : {"words", "chars"}
        The unit.
    size : int
        Units in a shingle, 1 to 255.
    weighting : {"count", "set"}
        Count each occurrence of a shingle, or each distinct shingle once.
    normalize : bool
        Whether to apply NFKC.
    casefold : bool
        Whether to fold case.
    seed : int
        Seed of XXH64, 0 to 2^64 - 1.

    Raises
    ------
    InputError
        A parameter has the wrong type or is out of range.

    Notes
    -----
    M. Charikar, *Similarity estimation techniques from rounding algorithms*, STOC 2002; as used by G. Manku,
    A. Jain, A. Das Sarma, *Detecting near-duplicates for web crawling*, WWW 2007, section 2.

    Examples
    --------
    >>> from fpstore.hashing import SimHash
    >>> simhash = SimHash(size=2)
    >>> a = simhash.fingerprint("the quick brown fox jumps over the lazy dog")
    >>> a == simhash.fingerprint("The quick brown fox -- jumps over the lazy dog!")
    True
    >>> (a ^ simhash.fingerprint("the quick brown fox jumps over the lazy cat")).bit_count()
    9
    """

    name: ClassVar[str] = "simhash"
    version: ClassVar[int] = 1

    shingle: str = "words"
    size: int = 3
    weighting: str = "count"
    normalize: bool = True
    casefold: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice(self.shingle, ("words", "chars"), "shingle")
        check_choice(self.weighting, ("count", "set"), "weighting")
        for name in ("normalize", "casefold"):
            object.__setattr__(self, name, check_flag(getattr(self, name), name))
        object.__setattr__(self, "size", check_whole(self.size, 1, _MAX_SIZE, "size"))
        object.__setattr__(self, "seed", check_whole(self.seed, 0, 2**64 - 1, "seed"))

    @property
    def width(self) -> int:
        """64."""
        return 64

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments that make an equal fingerprinter."""
        return asdict(self)

    def fingerprint(self, text: str | Mapping[str, float] | Iterable[tuple[str, float]]) -> int:
        """Return the fingerprint of a text or of weighted features.

        Parameters
        ----------
        text : str, mapping of str to float, or iterable of (str, float)
            A text; or features with weights. Of the parameters, only `seed` applies to features: each feature is hashed
            unchanged (UTF-8, ``surrogatepass``), and bit i is 1 if the weights of the hashes that have it sum to more
            than those of the others. Weights may be negative. Features may repeat; their order does not matter.

        Returns
        -------
        int
            0 to 2^64 - 1.

        Raises
        ------
        InputError
            The argument is none of these; it is a text without words (with chars: of white space only) or a collection
            without features, which have no fingerprint; or a weight, or the sum of their magnitudes, is not finite.

        Examples
        --------
        >>> from fpstore.hashing import SimHash
        >>> SimHash().fingerprint({"fox": 2.0, "dog": 1.0}) == SimHash().fingerprint({"fox": 1.0})
        True
        """
        if isinstance(text, str):
            return super().fingerprint(text)
        if isinstance(text, Mapping):
            return self._weighted(text.items())
        if isinstance(text, (bytes, bytearray, memoryview)) or not isinstance(text, Iterable):
            raise _not_text(text, "a text (str) or weighted features")
        return self._weighted(text)

    def lack(self, item: str) -> str:
        """Say that a text has no units."""
        unit = "words" if self.shingle == "words" else "characters but white space"
        return f"the text {show(item)} has no {unit}, and so no fingerprint: leave it out (is_empty() finds such texts)"

    def hashed(self, items: Sequence[str]) -> Hashed:
        """Return the fingerprints of some texts."""
        prepared = char_map(self.shingle == "words", self.normalize, self.casefold).prepare(items)
        text = prepared.data.translate(self._table)
        words, distinct = self.shingle == "words", self.weighting == "set"
        rows: Words = _kernel.simhash(text, prepared.offsets, words, self.size, distinct, self.seed)
        known = rows != 0
        # Only an empty text, or a rare other one, has the fingerprint 0.
        for i in np.flatnonzero(~known).tolist():
            known[i] = bool(text[int(prepared.offsets[i]) : int(prepared.offsets[i + 1])].strip(b" "))
        return Hashed(rows, known)

    def batches(self, items: Iterable[str]) -> Iterator[list[str]]:
        """Cut texts into batches of about a million characters."""
        if isinstance(items, (str, bytes, bytearray, memoryview, Mapping)) or not isinstance(items, Iterable):
            raise InputError(
                f"fingerprints() takes an iterable of texts, got {type(items).__name__}: "
                "wrap a single text in a list or pass it to fingerprint()",
                got=type(items),
            )
        batch: list[str] = []
        held = 0
        for i, text in enumerate(items):
            if not isinstance(text, str):
                raise _not_text(text, f"item {i}: a text (str)")
            batch.append(text)
            held += len(text) + 8
            if held >= _BATCH_CHARS:
                yield batch
                batch, held = [], 0
        if batch:
            yield batch

    @property
    def _table(self) -> bytes:
        return ascii_table(self.shingle == "words", self.casefold)

    def _weighted(self, features: Iterable[tuple[str, float]]) -> int:
        pairs = []
        for i, pair in enumerate(features):
            if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not isinstance(pair[0], str):
                raise InputError(
                    f"feature {i}: must be a pair of a str and a weight, got {show(pair)}; "
                    "to fingerprint several texts call fingerprints()",
                    got=pair,
                )
            weight = _finite(pair[1])
            if weight is None:
                raise InputError(f"feature {show(pair[0])}: a weight must be a finite number, got {show(pair[1])}", got=pair[1])
            pairs.append((_kernel.xxh64(pair[0].encode("utf-8", "surrogatepass"), self.seed), weight))
        if not pairs:
            raise InputError("a collection without features has no fingerprint: leave it out")
        # Sums of floats depend on the order of their terms.
        pairs.sort()
        hashes = np.array([value for value, _ in pairs], dtype=np.uint64)
        weights = np.array([weight for _, weight in pairs], dtype=np.float64)
        if not math.isfinite(sum(abs(weight) for _, weight in pairs)):
            raise InputError("the sum of the magnitudes of the weights is not finite: scale them down")
        return int(_kernel.simhash_weighted(hashes, weights))


def _not_text(got: object, wanted: str) -> InputError:
    advice = ": decode them first, as in data.decode('utf-8')" if isinstance(got, (bytes, bytearray, memoryview)) else ""
    return InputError(f"expected {wanted}, got {type(got).__name__}{advice}", got=type(got))


def _finite(value: object) -> float | None:
    if isinstance(value, (bool, str, bytes)):
        return None
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
