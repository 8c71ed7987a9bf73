"""Operation on fingerprints of texts.

Bytes hashed per second, beside the package simhash (hash).
"""

from __future__ import annotations

from collections.abc import Sequence

import fpstore
from bench import corpora
from bench.harness import Bench, Result, ratio
from bench.local_texts import texts_here
from bench.rivals import MissingError

MAX_BYTES, SMOKE_BYTES = 64 << 20, 1 << 18
# of a text that the rival takes: with a feature more than 255 times it fails under NumPy 2
MAX_CHARS = 20_000
RIVAL_TEXTS = 200
CHINESE_REPEATS = 8
SMOKE_CHINESE = [
    "\u72d0\u72f8\u770b\u89c1\u4e4c\u9e26\u53fc\u7740\u5976\u916a\uff0c\u98de\u8d70\u4e86\u3002" * 9
] * 99

MAKERS: dict[str, dict[str, fpstore.SimHash | fpstore.MinHash]] = {
    "english": {
        "the default": fpstore.SimHash(),
        "characters 4": fpstore.SimHash(shingle="chars", size=4, weighting="count"),
        "characters 4, log": fpstore.SimHash(shingle="chars", size=4),
        "words 3": fpstore.SimHash(shingle="words", size=3, weighting="count"),
        "the default, 128 bits": fpstore.SimHash(width=128),
        "the default, 256 bits": fpstore.SimHash(width=256),
        "MinHash": fpstore.MinHash(),
    },
    "english with accents": {"MinHash": fpstore.MinHash()},
    "english of 100 characters": {
        "the default": fpstore.SimHash(),
        "characters 4": fpstore.SimHash(shingle="chars", size=4, weighting="count"),
        "words 3": fpstore.SimHash(shingle="words", size=3, weighting="count"),
        "MinHash": fpstore.MinHash(),
    },
    "chinese": {
        "the default": fpstore.SimHash(),
        "characters 2": fpstore.SimHash(shingle="chars", size=2, weighting="count"),
        "MinHash": fpstore.MinHash(),
    },
    "chinese, full-width": {
        "the default": fpstore.SimHash(),
        "characters 2": fpstore.SimHash(shingle="chars", size=2, weighting="count"),
        "MinHash": fpstore.MinHash(),
    },
}
SHORT_CHARS = 100
# of a text without other ASCII characters
FULL_WIDTH = dict.fromkeys(range(128)) | str.maketrans(
    ",.;:!?()", "\uff0c\u3002\uff1b\uff1a\uff01\uff1f\uff08\uff09"
)
ACCENTS = str.maketrans("aeiou", "\u00e0\u00e9\u00ee\u00f6\u00fc")


def hash_(bench: Bench) -> Result:
    """Hash real texts with one thread and with two: sources and documentation of this machine.

    Chinese ones from Debian.
    """
    english = texts_here(SMOKE_BYTES if bench.smoke else MAX_BYTES)
    chinese = SMOKE_CHINESE if bench.smoke else _chinese(bench) * CHINESE_REPEATS
    out: Result = {}
    accents = [text.translate(ACCENTS) for text in english]
    for language, texts in (
        ("english", english),
        ("english with accents", accents),
        ("english of 100 characters", _short(english)),
        ("chinese", chinese),
        ("chinese, full-width", [text.translate(FULL_WIDTH) for text in chinese]),
    ):
        size = _bytes(texts)
        for name, fingerprinter in MAKERS[language].items():
            one, two = (_seconds(bench, fingerprinter, texts, threads) for threads in (1, 2))
            out[f"{language}, {name}"] = {
                "bytes": size,
                "megabytes_per_second": round(size / one / 1e6, 1),
                "two_threads_faster": ratio(one, two),
            }
    try:
        out["package simhash"] = _package(
            bench, [text[:MAX_CHARS] for text in english[:: max(len(english) // RIVAL_TEXTS, 1)]]
        )
    except MissingError as error:
        out["package simhash"] = str(error)
    return out


def _seconds(
    bench: Bench, fingerprinter: fpstore.SimHash | fpstore.MinHash, texts: list[str], threads: int
) -> float:
    return bench.seconds(lambda: fingerprinter.fingerprints(texts, empty="mask", threads=threads))


def _short(texts: list[str]) -> list[str]:
    return [
        text[start : start + SHORT_CHARS]
        for text in texts
        for start in range(0, len(text), SHORT_CHARS)
    ]


def _chinese(bench: Bench) -> list[str]:
    return [
        text for name in ("chinese", "classical") for text in corpora.texts_of(name, bench.folder)
    ]


def _package(bench: Bench, texts: list[str]) -> Result:
    """Compare with the package on the same texts.

    Its default features are four successive word characters, counted.
    """
    try:
        import simhash
    except ImportError as error:
        raise MissingError("simhash is missing: pip install simhash") from error
    same = fpstore.SimHash.of_simhash_package()
    own = fpstore.SimHash(shingle="chars", size=4, weighting="count")
    taken = [text for text in texts if max(same.features(text).values(), default=0) < 256]
    if same.fingerprints(taken).tolist() != [simhash.Simhash(text).value for text in taken]:
        raise AssertionError("the package simhash makes other fingerprints")
    theirs = bench.seconds(lambda: [simhash.Simhash(text).value for text in taken])
    ours = bench.seconds(lambda: own.fingerprints(taken, empty="mask", threads=1))
    return {
        "texts": len(taken),
        "megabytes_per_second": round(_bytes(taken) / theirs / 1e6, 3),
        "characters_4_faster": ratio(theirs, ours, 1),
    }


def _bytes(texts: Sequence[str]) -> int:
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
