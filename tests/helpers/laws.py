"""Real texts, copies with edits, and whether shares that were measured agree with a law."""

import random
import re
from functools import cache
from pathlib import Path

import numpy as np

_PAGES = Path(__file__).parents[2] / "docs"


@cache
def documents():
    """Return paragraphs of the pages of this repository, of 40 words or more."""
    pages = (path.read_text("utf-8") for path in sorted(_PAGES.glob("*.md")))
    paragraphs = (paragraph for page in pages for paragraph in re.split(r"\n\s*\n", page))
    return [paragraph for paragraph in paragraphs if len(paragraph.split()) >= 40]


def edited_copies(texts, seed=1):
    """Return texts and copies of them in each of which up to a fifth of the words are others."""
    numbers, copies = random.Random(seed), []
    for place, text in enumerate(texts):
        words = text.split()
        for _ in range(1 + len(words) * (place % 10) // 50):
            words[numbers.randrange(len(words))] = f"edit{numbers.randrange(1000)}"
        copies.append(" ".join(words))
    return list(texts), copies


def bits_that_differ(a, b):
    """Return the share of bits in which signatures differ, pair by pair."""
    return np.bitwise_count(a ^ b).sum(1) / (8 * a.shape[1])


def agrees_with(shares, expected, trials):
    """Assert that the mean of shares lies within five standard errors of the law.

    Each share is of some independent trials.
    """
    expected = np.asarray(expected)
    error = np.sqrt((expected * (1 - expected)).sum() / trials) / len(expected)
    assert abs(np.mean(shares) - expected.mean()) < 5 * error, (
        np.mean(shares),
        expected.mean(),
        error,
    )
