"""The longest sentences of a text: a signature for exact matches."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fpstore.base.arguments import check_whole
from fpstore.base.characters import ENDS, visible
from fpstore.base.width import Width, check_width
from fpstore.hashing.base import Fingerprinter, Hashed
from fpstore.hashing.features import feature_rows
from fpstore.hashing.normal import NormalForm

_MAX_SENTENCES = 255
# The end of a sentence: also an ideographic full stop, and a full stop before white space.
_ENDS = re.compile(rf"[!?;{ENDS}\u2026\u3002\uff01\uff1b\uff1f]+|\.(?=\s|$)")
_FORM = NormalForm(
    units="chars",
    normalize=True,
    case="fold",
    punctuation="remove",
    marks="keep",
    digits="keep",
    spaces="remove",
)


@dataclass(frozen=True, kw_only=True)
class LongestSentences(Fingerprinter[str]):
    """The hash of the longest sentences of a text.

    Equal for copies whose longest sentences are the same, and for no others.

    Chinese search engines have used it for pages that others copied and framed with navigation and
    advertisements: the longest sentences are seldom part of a frame. Equal texts are found with
    radius 0; other distances mean nothing.

    Version 2 is, exactly: ignored characters go (`fpstore.base.characters`), and the text is cut at
    ``! ? ;``, line ends, an ellipsis, their ideographic forms, and full stops before white space.
    Each sentence becomes its normal form: NFKC, case folded, without punctuation and white space.
    The different sentences are sorted by descending length in code points, and sentences of the
    same length in the order of code points. The first `n`, joined by line feeds, are hashed by
    XXH64, as a feature of `SimHash` is. A text without word characters is one sentence, whose
    punctuation is kept, and a text without visible characters has no fingerprint.

    Parameters
    ----------
    n : int
        The number of sentences, 1 to 255.
    width : int
        Bits of a fingerprint: 32, 64, 128 or 256.
    seed : int
        Seed of XXH64, 0 to 2^64 - 1.

    Raises
    ------
    InputError
        A parameter has the wrong type or is out of range.

    Examples
    --------
    >>> from fpstore.hashing import LongestSentences
    >>> longest = LongestSentences(n=1)
    >>> a = longest.fingerprint("Menu. The quick brown fox jumps. News")
    >>> a == longest.fingerprint("the QUICK, brown fox jumps!")
    True
    """

    name: ClassVar[str] = "longest-sentences"
    version: ClassVar[int] = 2

    n: int = 3
    width: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        self._keep(
            n=check_whole(self.n, 1, _MAX_SENTENCES, "n"),
            width=check_width(self.width).bits,
            seed=check_whole(self.seed, 0, 2**64 - 1, "seed"),
        )

    def sentences(self, text: str) -> list[str]:
        """Return the sentences that are hashed, in their normal form, the longest first."""
        forms = set(map(_FORM.words_form, _ENDS.split(visible(text)))) - {""}
        forms = forms or {_FORM.apply(text)} - {""}
        return sorted(forms, key=lambda form: (-len(form), form))[: self.n]

    def features(self, text: str) -> dict[str, int]:
        """Return the hashed sentences, each with the weight 1."""
        return dict.fromkeys(self.sentences(text), 1)

    def hashed(self, items: Sequence[str]) -> Hashed:
        """Return the fingerprints of a batch of texts."""
        signatures = ["\n".join(self.sentences(text)) for text in items]
        known = np.array([bool(signature) for signature in signatures], bool)
        rows = feature_rows(signatures, "xxh64", self.seed, Width(self.width))
        rows[~known] = 0
        return Hashed(rows, known)
