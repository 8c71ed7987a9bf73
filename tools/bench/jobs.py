"""The operation jobs: what cleans a corpus of real texts, in megabytes a second of one thread.

MinHashes by others.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import fpstore
from bench.cleaners import words
from bench.harness import Bench, Result, ratio
from bench.local_texts import SMOKE_BYTES, texts_here

MAX_BYTES, RIVAL_TEXTS = 128 << 20, 1000
NGRAM, MAX_NGRAMS = 13, 1 << 20
FUNCTIONS = 128


def jobs(bench: Bench) -> Result:
    """Deduplicate, verify, decontaminate, and remove boilerplate from texts of this machine.

    Make MinHashes as others do.
    """
    roots = (bench.options.texts,) if bench.options.texts else None
    texts = texts_here(SMOKE_BYTES if bench.smoke else MAX_BYTES, roots=roots)
    size = _bytes(texts)
    lines, parquet, questions = (
        bench.folder / name for name in ("corpus.jsonl", "corpus.parquet", "questions.jsonl")
    )
    lines.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")
    pq.write_table(pa.table({"text": texts}), parquet)
    benchmark, ngrams = _questions(texts)
    questions.write_text("".join(json.dumps({"text": text}) + "\n" for text in benchmark), "utf-8")

    def dedup(**how: Any) -> Callable[[], object]:
        return lambda: fpstore.dedup(
            lines, bench.folder / "out.jsonl", text="text", threads=1, overwrite=True, **how
        )

    def boilerplate(unit: str) -> Callable[[], object]:
        return lambda: fpstore.remove_boilerplate(
            lines, bench.folder / "out.jsonl", text="text", unit=unit, threads=1, overwrite=True
        )

    work: dict[str, Callable[[], object]] = {
        "dedup": dedup(),
        "dedup, bands": dedup(search="bands"),
        "dedup, estimate": dedup(estimate=True),
        "dedup of Parquet": lambda: fpstore.dedup(
            parquet, bench.folder / "out.parquet", text="text", threads=1, overwrite=True
        ),
        "decontaminate": lambda: fpstore.decontaminate(lines, questions, text="text", threads=1),
        "boilerplate, paragraphs": boilerplate("paragraph"),
        "boilerplate, lines": boilerplate("line"),
    }
    out: Result = {"documents": len(texts), "bytes": size, "ngrams_of_benchmark": ngrams}
    for name, one in work.items():
        out[name] = {"megabytes_per_second": round(size / bench.seconds(one) / 1e6, 1)}
    estimate, plain = (out[name]["megabytes_per_second"] for name in ("dedup, estimate", "dedup"))
    out["dedup"]["seconds_to_estimate"] = ratio(estimate, plain)
    return out | {
        "minhash": _minhashes(bench, texts[:: max(len(texts) // RIVAL_TEXTS, 1)][:RIVAL_TEXTS])
    }


def _questions(texts: list[str]) -> tuple[list[str], int]:
    """Return texts from the end with the n-grams of a large benchmark, and their number."""
    questions, ngrams = [], 0
    for text in reversed(texts):
        if ngrams >= MAX_NGRAMS:
            break
        questions.append(text)
        ngrams += len(set(fpstore.SimHash(size=NGRAM).features(text)))
    return questions, ngrams


def _minhashes(bench: Bench, texts: list[str]) -> Result:
    """Make MinHashes of the same texts, cut into runs of three words.

    256 functions here, 128 there.
    """
    size, minhash = _bytes(texts), fpstore.MinHash()
    own = bench.seconds(lambda: minhash.fingerprints(texts, empty="mask", threads=1))
    out: Result = {"fpstore": {"megabytes_per_second": round(size / own / 1e6, 1)}}
    for name, sign in {"rensa": _rensa, "datasketch": _datasketch}.items():
        try:
            took = bench.seconds(partial(_signed, sign, texts))
        except ImportError as error:
            out[name] = f"{error.name} is missing: pip install {error.name}"
            continue
        out[name] = {
            "megabytes_per_second": round(size / took / 1e6, 1),
            "to_fpstore": ratio(took, own),
        }
    return out


def _signed(sign: Callable[[list[str]], object], texts: list[str]) -> list[object]:
    return [sign(words(text)) for text in texts]


def _rensa(pieces: list[str]) -> object:
    from rensa import RMinHash

    minhash = RMinHash(FUNCTIONS, 42)
    minhash.update(pieces)
    return minhash


def _datasketch(pieces: list[str]) -> object:
    from datasketch import MinHash

    minhash = MinHash(num_perm=FUNCTIONS)
    minhash.update_batch([piece.encode("utf-8", "surrogatepass") for piece in set(pieces)])
    return minhash


def _bytes(texts: list[str]) -> int:
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
