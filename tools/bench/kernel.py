"""Operations on single tables: sizes and decode."""

from __future__ import annotations

import shutil

import numpy as np

import fpstore
from bench.far import uniform
from bench.harness import Bench, Result, kernel_tables
from fpstore import _kernel
from fpstore.base.width import WORD_BITS
from fpstore.design.blocks import DEFAULT_BLOCK_BYTES, ELIAS_FANO, HUFFMAN, BlockPacking
from fpstore.design.estimates import limit_bits, table_bits

DECODE_ROOM = 1 << 17


def sizes(bench: Bench) -> Result:
    """Bytes of a table per fingerprint against the limit, built and computed, by block size."""
    out: Result = {}
    for log2 in (bench.log2(),) if bench.smoke or bench.options.log2 else (22, 24, 26):
        for codec, block_bytes in (
            (HUFFMAN, 1024),
            (HUFFMAN, 512),
            (ELIAS_FANO, 512),
            (ELIAS_FANO, 256),
        ):
            store = bench.store(
                "flip-1", "uniform", log2, block_bytes=block_bytes, codec=codec, radius=0
            )
            stats = store.stats()
            out[f"2^{log2}, {codec}, {block_bytes}"] = {
                "bits_per_fingerprint": round(stats["bits_per_fingerprint"], 3),
                "limit_bits": round(limit_bits(len(store)), 3),
                "ratio_to_limit": round(stats["ratio_to_limit"], 4),
                "ids_bytes_per_fingerprint": round(stats["bytes_per_fingerprint"]["ids"], 3),
            }
            bench.forget()
    return {
        **out,
        **_sizes_of_widths(bench),
        "computed": {codec: _computed(codec) for codec in (HUFFMAN, ELIAS_FANO)},
    }


def _computed(codec: str) -> Result:
    """Return estimated sizes of sets of 64 bits, of which most are too large to build."""
    blocks = BlockPacking(DEFAULT_BLOCK_BYTES, codec)
    out: Result = {}
    for name, n in {
        "2^26": 1 << 26,
        "10^9": 10**9,
        "2^30": 1 << 30,
        "2^33": 1 << 33,
        "2^36": 1 << 36,
    }.items():
        bits = table_bits(n, blocks)
        out[name] = {
            "bits_per_fingerprint": round(bits, 2),
            "share_of_raw": round(bits / WORD_BITS, 3),
        }
    log2 = 26.0
    while table_bits(round(2**log2), blocks) > WORD_BITS / 2:
        log2 += 0.01
    return {**out, "billions_where_half_of_raw": round(2**log2 / 1e9, 1)}


def _sizes_of_widths(bench: Bench) -> Result:
    out: Result = {}
    log2 = 12 if bench.smoke else 22
    for width in (32, 128, 256):
        rows = uniform(np.random.default_rng([bench.seed, width]), 1 << log2, width)
        for block_bytes in (1024, 2048, None):
            path = bench.folder / "width.fps"
            made = fpstore.build(
                path,
                rows,
                width=width,
                radius=0,
                design="flip-1",
                block_bytes=block_bytes,
                overwrite=True,
            )
            with made as store:
                stats = store.stats()
            out[
                f"{width} bits, 2^{log2}, "
                f"{stats['block_bytes']}{'' if block_bytes else ' (default)'}"
            ] = {
                "bits_per_fingerprint": round(stats["bits_per_fingerprint"], 3),
                "limit_bits": round(stats["limit_bits_per_fingerprint"], 3),
                "ratio_to_limit": round(stats["ratio_to_limit"], 4),
            }
            shutil.rmtree(path)
    return out


def decode(bench: Bench) -> Result:
    """Fingerprints decoded and scanned per second by one thread, every codec and ISA, verified."""
    out: Result = {}
    decoded: list[list[int]] = []
    for codec in bench.options.codecs:
        store = bench.store("flip-2", "uniform", bench.log2(), codec=codec)
        out[codec] = _decode_table(bench, kernel_tables(store)[0], decoded)
        bench.forget()
    assert all(sums == decoded[0] for sums in decoded), "instruction sets or codecs disagree"
    return out


def _decode_table(bench: Bench, table: _kernel.Table, decoded: list[list[int]]) -> Result:
    chosen = _kernel.isa()
    query = np.array([1], np.uint64)

    def whole() -> None:
        block = 0
        while block < table.block_count:
            _, _, block = table.decode(block, table.block_count, DECODE_ROOM)

    out: Result = {}
    try:
        for isa in _kernel.available_isas():
            _kernel.select_isa(isa)
            took = bench.seconds(whole)
            scan = bench.seconds(lambda: table.scan(query, 3, 0, table.block_count))
            far = bench.seconds(lambda: table.scan(query, 20, 0, table.block_count))
            out[isa] = {
                "millions_per_second": round(table.fingerprint_count / took / 1e6, 1),
                "scan_millions_per_second": round(table.fingerprint_count / scan / 1e6, 1),
                "scan_radius_20_millions_per_second": round(table.fingerprint_count / far / 1e6, 1),
            }
            if bench.smoke:
                decoded.append(_entries(table))
    finally:
        _kernel.select_isa(chosen)
    return out


def _entries(table: _kernel.Table) -> list[int]:
    block, entries = 0, []
    while block < table.block_count:
        values, _, block = table.decode(block, table.block_count, DECODE_ROOM)
        entries += values.tolist()
    return entries
