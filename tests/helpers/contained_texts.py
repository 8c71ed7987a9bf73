"""Corpora with copies of texts of every kind, and which rows go, by sets of Python."""

import random
from collections import Counter, defaultdict

SHINGLE = 3  # words of a piece
CONTAINED, SIMILAR = 0.8, 0.7


def pieces(text):
    """Return the runs of three words of a text; a shorter text is one."""
    words = text.split()
    runs = {tuple(words[n : n + SHINGLE]) for n in range(len(words) - SHINGLE + 1)}
    return runs or ({tuple(words)} if words else set())


def shares(text, other):
    """Return how much of a text another one contains, and their Jaccard similarity."""
    a, b = pieces(text), pieces(other)
    return len(a & b) / len(a), len(a & b) / len(a | b)


def goes(text, other, contained=CONTAINED, similar=SIMILAR):
    share, similarity = shares(text, other)
    return share >= contained or similarity >= similar


def by_length(texts):
    """Return the rows of texts, those with most pieces first, then with most characters."""
    return sorted(range(len(texts)), key=lambda n: (-len(pieces(texts[n])), -len(texts[n]), n))


def oracle(texts, order=None, contained=CONTAINED, similar=SIMILAR, stay=()):
    """Return the row that stays for each row that goes, by comparing each with all that stay.

    Rows of ``stay`` stay, and are before all others.
    """
    sets = list(map(pieces, texts))
    having, kept_for = defaultdict(list), {}
    first = set(stay)
    order = by_length(texts) if order is None else order
    for row in [*stay, *(row for row in order if row not in first)]:
        own, best, most = sets[row], None, 0
        shared = Counter(other for piece in own for other in having[piece])
        for other, both in shared.items() if row not in first else ():
            if both > most and (
                both / len(own) >= contained
                or both / (len(own) + len(sets[other]) - both) >= similar
            ):
                best, most = other, both
        if best is None:
            for piece in own:
                having[piece].append(row)
        else:
            kept_for[row] = best
    return kept_for


def changed(rng, words, vocabulary, share):
    """Return words of which a share are others."""
    words = list(words)
    for place in rng.sample(range(len(words)), round(share * len(words))):
        words[place] = rng.choice(vocabulary)
    return words


def copy_of(rng, words, vocabulary, pages):
    """Return a copy of words: cut, with navigation, an excerpt, edited, equal, or of a template."""
    kind = rng.choice(("half", "navigation", "excerpt", "edited", "equal", "template", "spaces"))
    length = len(words)
    if kind == "half":
        return words[: max(length // 2, 1)]
    if kind == "navigation":
        return [*rng.choice(pages)[:30], *words, *rng.choice(pages)[:20]]
    if kind == "excerpt":
        start = rng.randrange(length)
        return words[start : start + max(length // 10, 1)]
    if kind == "edited":
        return changed(rng, words, vocabulary, 0.05)
    if kind == "template":
        page = rng.choice(pages)
        facts = [*rng.choices(vocabulary, k=len(page) * 2 // 3)]
        return [*page[: len(page) // 2], *facts, *page[len(page) // 2 :]]
    return list(words)


def planted(seed, count=120):
    """Return texts of 1 to 400 words, half of them copies of another one."""
    rng = random.Random(seed)
    vocabulary = [f"w{n}" for n in range(rng.choice((60, 500, 5000)))]
    pages = [rng.choices(vocabulary, k=rng.randrange(60, 200)) for _ in range(3)]
    texts = []
    for _ in range(count):
        if texts and rng.random() < 0.5:
            words = copy_of(rng, rng.choice(texts).split(), vocabulary, pages)
        else:
            words = rng.choices(vocabulary, k=rng.choice((1, 2, 3, 8, 30, 100, 400)))
        texts.append(" ".join(words))
    return texts


def weather_reports(count, seed=1):
    """Return texts of 100 words, a fifth of which are facts, in runs of two."""
    rng = random.Random(seed)
    frame = [f"phrase{n}" for n in range(80)]
    reports = []
    for _ in range(count):
        words = []
        for start in range(0, 80, 8):
            facts = [f"{rng.randrange(40)}", f"place{rng.randrange(500)}"]
            words += [*frame[start : start + 8], *facts]
        reports.append(" ".join(words))
    return reports


def templated(count, similarity, words=300, seed=1):
    """Return texts that share a template, with a mean Jaccard similarity."""
    rng = random.Random(seed)
    shared = round(words * 2 * similarity / (1 + similarity))
    page = [f"phrase{n}" for n in range(shared)]
    middle = shared // 2
    return [
        " ".join(
            [
                *page[:middle],
                *(f"own{rng.randrange(10**6)}" for _ in range(words - shared)),
                *page[middle:],
            ]
        )
        for _ in range(count)
    ]
