"""Operations on string ids and on ids that lead back: strings, by-id."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

import fpstore
from bench import data
from bench.harness import Bench, Result, folder_bytes, microseconds, ratio

HOSTS = 5_000
FOLDERS = ("data", "images", "src", "archive", "2023", "2024", "raw", "clean", "train", "test")
URLS, PATHS, SMOKE_STRINGS = 4_000_000, 10_000_000, 30_000
GROWTH = 10  # times as many strings
SINGLE = 5_000
PIECE = 1 << 16
INTEGERS = 10_000_000


def urls(count: int) -> Iterator[str]:
    """Yield numbered pages of HOSTS hosts, in the order of a crawl that goes from host to host."""
    drawn = random.Random(5)
    pages = [0] * HOSTS
    for _ in range(count):
        host = int(drawn.random() * HOSTS)
        pages[host] += drawn.randint(1, 9)
        site = f"site-{host * 7919 % 100_003:05d}"
        yield f"https://www.{site}.example/articles/{pages[host]:06d}.html"


def paths(count: int) -> Iterator[str]:
    """Yield paths of files in folders of 1,000, as a walk of a tree yields them."""
    for number in range(count):
        folder, file = divmod(number, 1000)
        levels = "/".join(FOLDERS[folder // 10**level % 10] for level in range(4))
        name = f"document-{number * 48271 % 2**31:010d}-{file:03d}.txt"
        yield f"/srv/corpus/{levels}/part-{folder:05d}/{name}"


def strings(bench: Bench) -> Result:
    """Bytes of string ids beside `zstd -3`, builds beside integer ids, and ids of matches.

    URLs are measured at two sizes, of which the second is ten times the first; with `--log2`, at
    that size only.
    """
    out: Result = {}
    for name, make, count in (("urls", urls, URLS), ("paths", paths, PATHS)):
        count = SMOKE_STRINGS if bench.smoke else 1 << bench.log2() if bench.options.log2 else count
        out[name] = row = _strings(bench, make, count)
        if name == "urls" and not bench.options.log2:
            larger = _strings(bench, make, count * GROWTH, beside_integers=False)
            row["grown"] = larger
            row["growth_of_bytes"] = ratio(
                larger["strings_bytes_per_id"], row["strings_bytes_per_id"]
            )
            row["growth_of_a_probe"] = ratio(
                larger["single_microseconds"], row["single_microseconds"]
            )
    return out


def _strings(
    bench: Bench, make: Callable[[int], Iterator[str]], count: int, beside_integers: bool = True
) -> Result:
    keys = data.random_words(np.random.default_rng([bench.seed, 1]), count)
    tsv, plain = bench.folder / "strings.tsv", bench.folder / "integers.tsv"
    raw, packed = _write(tsv, keys, make(count))
    seconds = {"strings": _built(bench, tsv)}
    if beside_integers:
        _write(plain, keys, map(str, range(count)))
        seconds["integers"] = _built(bench, plain)
        plain.unlink()
    tsv.unlink()
    path = bench.folder / "strings.tsv.fps"
    with fpstore.open(path) as store:
        sizes = {kind: _taken(store.path, *files) for kind, files in FILES.items()}
        row = {
            "n": count,
            "raw_bytes_per_id": round(raw / count, 2),
            "zstd_bytes_per_id": round(packed / count, 2),
            "strings_bytes_per_id": round(sizes["strings"] / count, 2),
            "way_back_bytes_per_id": round(sizes["way back"] / count, 2),
            "index_bytes_per_id": round(sizes["index by id"] / count, 2),
            "strings_beside_zstd": ratio(sizes["strings"], packed),
            "with_the_way_back_of_raw": ratio(sizes["strings"] + sizes["way back"], raw, 3),
            "with_way_back_and_index_of_raw": ratio(sum(sizes.values()), raw, 3),
            "build_seconds": {kind: round(took, 2) for kind, took in seconds.items()},
            **_asked(bench, store, keys),
        }
    if beside_integers:
        row["build_beside_integers"] = ratio(seconds["strings"], seconds["integers"])
        with fpstore.open(bench.folder / "integers.tsv.fps") as store:
            integers = _asked(bench, store, keys)
            row["beside_integers"] = integers
            row["single_more_microseconds"] = round(
                row["single_microseconds"] - integers["single_microseconds"], 2
            )
        shutil.rmtree(bench.folder / "integers.tsv.fps")
    shutil.rmtree(path)
    return row


FILES = {
    "strings": ("strings.mdb",),
    "way back": ("hashes.fpt", "numbers.mdb"),
    "index by id": ("places.fpt", "places.mdb"),
}


def _taken(store: Path, *names: str) -> int:
    return sum(path.stat().st_blocks * 512 for name in names for path in store.rglob(name))


def _write(path: Path, keys: data.Words, names: Iterator[str]) -> tuple[int, int]:
    """Write fingerprints and ids.

    Return the bytes of the ids, and of all of them in one frame of `zstd -3`.
    """
    raw = packed = 0
    compressor = zstandard.ZstdCompressor(level=3).compressobj()
    with path.open("w", encoding="utf-8") as file:
        for start in range(0, len(keys), PIECE):
            part = keys[start : start + PIECE].tolist()
            rows = [next(names) for _ in part]
            file.writelines(f"{key:016x}\t{name}\n" for key, name in zip(part, rows, strict=True))
            text = "\n".join([*rows, ""]).encode()
            raw += len(text) - len(rows)
            packed += len(compressor.compress(text))
    return raw, packed + len(compressor.flush())


def _built(bench: Bench, tsv: Path) -> float:
    began = time.perf_counter()
    source = fpstore.io.open_reader([tsv])
    fpstore.build(bench.folder / f"{tsv.name}.fps", source, design="flip-1").close()
    return time.perf_counter() - began


def _asked(bench: Bench, store: fpstore.Store, keys: data.Words) -> Result:
    """Time the ids of a large batch of matches, and single probes with their ids."""
    rng = np.random.default_rng([bench.seed, 2])
    queries = keys[rng.integers(0, len(keys), max(len(keys) // 4, SINGLE))]
    matches = store.probe_many(queries, 0)
    one_by_one = queries[:SINGLE].tolist()
    batch = bench.seconds(matches.read_ids)
    single = bench.seconds(lambda: [store.probe(key, 0) for key in one_by_one])
    return {
        "batch_ids_microseconds": microseconds(batch, len(matches.fingerprints)),
        "single_microseconds": microseconds(single, len(one_by_one), 2),
    }


def by_id(bench: Bench) -> Result:
    """Look-ups, deletes and upserts of one integer or path through the index, before the sync."""
    out: Result = {}
    count = SMOKE_STRINGS if bench.smoke else INTEGERS
    keys = data.random_words(np.random.default_rng([bench.seed, 3]), count)
    chosen = np.random.default_rng([bench.seed, 4]).permutation(count)[:SINGLE]
    numbers = set(chosen.tolist())
    texts = {number: text for number, text in enumerate(paths(count)) if number in numbers}
    for kind in ("integers", "paths"):
        path = bench.folder / f"{kind}.fps"
        ids = np.arange(count, dtype=np.uint64) if kind == "integers" else list(paths(count))
        fpstore.build(path, keys, ids, design="flip-1", index_ids=True).close()
        del ids
        names: list[Any] = (
            chosen.tolist() if kind == "integers" else [texts[number] for number in chosen.tolist()]
        )
        out[kind] = {
            "n": count,
            "bytes": folder_bytes(path),
            **_by_id(bench, path, names, keys[chosen]),
        }
        shutil.rmtree(path)
    return out


def _by_id(bench: Bench, path: Path, names: list[Any], keys: data.Words) -> Result:
    with fpstore.open(path) as store:
        assert [store.ids[name] for name in names[:100]] == [[key] for key in keys[:100].tolist()]
        look = bench.seconds(lambda: [store.ids[name] for name in names])
        many = bench.seconds(lambda: store.fingerprints_of(names))
    half = len(names) // 2
    with fpstore.open(path, "r+", sync="none") as store:
        times = []
        for name in names[:half]:
            began = time.perf_counter()
            store.delete(ids=name)
            times.append(time.perf_counter() - began)
        moves = []
        for name, key in zip(names[half:], keys[half:].tolist(), strict=True):
            began = time.perf_counter()
            store.upsert(key ^ 1, name)
            moves.append(time.perf_counter() - began)
        assert not any(name in store.ids for name in names[:half])
    return {
        "look_up_microseconds": microseconds(look, len(names), 2),
        "look_up_in_a_batch_microseconds": microseconds(many, len(names), 2),
        "delete_microseconds": round(float(np.median(times)) * 1e6, 1),
        "upsert_microseconds": round(float(np.median(moves)) * 1e6, 1),
    }
