"""The native kernel: one call per batch, without the GIL; contiguous arrays of the stated dtype. See _native/python/."""

from typing import Any, Final, overload

import numpy as np
from numpy.typing import NDArray

FORMAT_VERSION: int

HEADER_BYTES: int

MAX_CODE_BITS: int

MAX_ENTRIES: int

OVERREAD_BYTES: int

ROWS_IN_BLOCK: int

PAGE_BYTES: int
TAG_BITS: int
LEAST_BUCKET_BITS: int
MOST_BUCKET_BITS: int
LOOKUP_ENTRIES: int
ORDERED_QUERIES: int
SPARE_THRESHOLDS: int
MOST_RING: int

def isa() -> str: ...
def available_isas() -> list[str]: ...
def select_isa(name: str) -> None: ...
def xxh64(data: bytes, seed: int = 0) -> int: ...
def permute(keys: NDArray[np.uint64], permutation: NDArray[np.uint8], inverse: bool = False) -> NDArray[np.uint64]: ...
def permute_select(
    keys: NDArray[np.uint64],
    permutation: NDArray[np.uint8],
    low: NDArray[np.uint64],
    high: NDArray[np.uint64],
    out: NDArray[np.uint64],
) -> int: ...
def permute_sort(
    keys: NDArray[np.uint64],
    permutation: NDArray[np.uint8],
    out: NDArray[np.uint64],
    scratch: NDArray[np.uint64],
    bits: int,
    stop: Stop | None = None,
) -> None: ...
def sort_keys(
    keys: NDArray[np.uint64], scratch: NDArray[np.uint64], bits: int | None = None, stop: Stop | None = None
) -> None: ...
def sort_pairs(pairs: NDArray[np.uint64], scratch: NDArray[np.uint64], words: int = 1, stop: Stop | None = None) -> None: ...
def count_parts(keys: NDArray[np.uint64], depth: int, counts: NDArray[np.uint64], stop: Stop | None = None) -> None: ...
def scatter_parts(
    keys: NDArray[np.uint64],
    numbers: NDArray[np.uint32] | NDArray[np.uint64] | None,
    first: int,
    depth: int,
    at: NDArray[np.uint64],
    out: tuple[NDArray[np.uint64], NDArray[np.uint32] | NDArray[np.uint64]],
    stop: Stop | None = None,
) -> None: ...
def sort_parts(
    keys: NDArray[np.uint64],
    numbers: NDArray[np.uint32] | NDArray[np.uint64],
    ends: NDArray[np.uint64],
    bits: int,
    stop: Stop | None = None,
) -> None: ...
def are_distinct_keys(keys: NDArray[np.uint64], stop: Stop | None = None) -> bool: ...
def group_numbered(
    keys: NDArray[np.uint64],
    numbers: NDArray[np.uint32] | NDArray[np.uint64],
    counts: NDArray[np.uint64],
    stop: Stop | None = None,
) -> tuple[int, int]: ...
def histogram(keys: NDArray[np.uint64], counts: NDArray[np.uint64]) -> int: ...
def digest(keys: NDArray[np.uint64], permutation: NDArray[np.uint8] | None = None) -> int: ...
def page_checksums(data: NDArray[np.uint8], seed: int, first: int) -> NDArray[np.uint64]: ...
def reference_keys(
    rows: NDArray[np.uint64], first: int, count: int, permutation: NDArray[np.uint8], bucket_bits: int
) -> NDArray[np.uint64]: ...
def make_header(
    permutation: NDArray[np.uint8],
    code_bits: NDArray[np.uint8],
    set_digest: int,
    fingerprint_count: int,
    block_count: int,
    block_bytes: int,
    table: int,
    table_count: int,
    prefix_bits: int,
    flips: int,
) -> bytes: ...
def block_seed(permutation: NDArray[np.uint8], code_bits: NDArray[np.uint8], set_digest: int) -> int: ...
def map_cached_pages(descriptor: int, mapping: NDArray[np.uint8], start: int, size: int) -> bool: ...
def make_directory(keys: NDArray[np.uint64]) -> NDArray[np.uint64]: ...
def trim() -> None: ...
def pack_ids(
    ids: NDArray[np.uint64], lims: NDArray[np.uint64], block_counts: NDArray[np.uint32], keys: NDArray[np.uint64], seed: int
) -> tuple[bytes, NDArray[np.uint64]]: ...
def unpack_rank(record: bytes, seed: int, rank: int, path: str) -> list[int]: ...
def gather_ids(
    records: list[bytes],
    keys: NDArray[np.uint64],
    record: NDArray[np.uint64],
    ranks: NDArray[np.uint32],
    seed: int,
    path: str,
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]: ...
def unpack_records(
    records: list[bytes], first_block: int, keys: NDArray[np.uint64], seed: int, path: str
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]: ...
def find_ids(
    records: list[bytes],
    first_block: int,
    keys: NDArray[np.uint64],
    seed: int,
    wanted: NDArray[np.uint64],
    path: str,
) -> tuple[NDArray[np.uint64], NDArray[np.uint32], NDArray[np.uint64]]: ...
def merge_keys(keys: NDArray[np.uint64], drop: NDArray[np.uint64], add: NDArray[np.uint64], out: NDArray[np.uint64]) -> int: ...
def read_log(
    data: NDArray[np.uint8], place: int, seed: int, number: int, words: int, most: int
) -> tuple[
    int, int, int, int, tuple[int, int, int, int],
    NDArray[np.uint8], NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint8],
]: ...  # fmt: skip
def checked_frame(value: bytes, seed: int) -> bytes | None: ...
def checked_frames(values: list[Any], seeds: NDArray[np.uint64], most_bytes: int) -> tuple[bytes, bytes, bytes] | None: ...
def string_at(content: bytes, count: int, rank: int) -> str | None: ...
def pick_strings(
    contents: Any, counts: NDArray[np.uint64], lims: NDArray[np.uint64], ranks: NDArray[np.uint64]
) -> list[bytes] | None: ...
def place_strings(
    contents: Any,
    counts: NDArray[np.uint64],
    lims: NDArray[np.uint64],
    ranks: NDArray[np.uint64],
    places: NDArray[np.uint64],
    out: list[str],
) -> int | None: ...
def hash_strings(data: bytes, ends: NDArray[np.uint64]) -> NDArray[np.uint64]: ...
def equal_strings(
    data: NDArray[np.uint8], ends: NDArray[np.uint64], rows: NDArray[np.uint64], lims: NDArray[np.uint64]
) -> NDArray[np.uint8]: ...
def cut_strings(data: bytes, starts: NDArray[np.uint64], ends: NDArray[np.uint64]) -> tuple[bytes, NDArray[np.uint64]]: ...
def add_checksums(frames: Any, first: int) -> list[bytes]: ...
def join_contents(contents: Any, counts: NDArray[np.uint64]) -> tuple[bytes, NDArray[np.uint64]] | None: ...
def merge_groups(
    keys: NDArray[np.uint64],
    counts: NDArray[np.uint64],
    ids: NDArray[np.uint64],
    drop: NDArray[np.uint64],
    add: NDArray[np.uint64],
    add_counts: NDArray[np.uint64],
    add_ids: NDArray[np.uint64],
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]: ...
def union_groups(
    keys_a: NDArray[np.uint64],
    counts_a: NDArray[np.uint64],
    ids_a: NDArray[np.uint64],
    keys_b: NDArray[np.uint64],
    counts_b: NDArray[np.uint64],
    ids_b: NDArray[np.uint64],
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]: ...
def simhash(
    text: bytes,
    offsets: NDArray[np.uint64],
    table: bytes,
    pages: NDArray[np.int32],
    entries: NDArray[np.uint32],
    pool: bytes,
    words: bool,
    length: int,
    counting: str,
    hashing: str,
    seed: int,
    row_words: int,
    weighted: NDArray[np.uint64],
    weights: NDArray[np.uint32],
    other_weight: int,
    stops: NDArray[np.uint64],
    fields: NDArray[np.uint32],
) -> tuple[NDArray[np.uint64], NDArray[np.uint8], NDArray[np.uint32], NDArray[np.uint64]]: ...
def feature_rows(features: bytes, offsets: NDArray[np.uint64], hashing: str, seed: int, row_words: int) -> NDArray[np.uint64]: ...
def simhash_weighted(
    rows: NDArray[np.uint64], weights: NDArray[np.float64], batched: NDArray[np.uint8], row_words: int
) -> NDArray[np.uint64]: ...

# What several classes have alike; the kernel has no such classes.
class _File:
    path: Final[str]
    width: Final[int]

class _Blocks(_File):
    block_count: Final[int]

class _Header(_File):
    version: Final[int]
    table: Final[int]
    table_count: Final[int]
    fingerprint_count: Final[int]
    file_bytes: Final[int]
    set_digest: Final[int]
    permutation: Final[bytes]

class _TableHeader(_Blocks, _Header):
    prefix_bits: Final[int]
    flips: Final[int]
    block_bytes: Final[int]
    keys_offset: Final[int]
    directory_offset: Final[int]
    code_bits: Final[bytes]

class AnyTable(_Blocks):
    def decode(self, first_block: int, end_block: int, room: int) -> tuple[NDArray[np.uint64], NDArray[np.uint32], int]: ...
    @overload
    def scan(
        self,
        queries: NDArray[np.uint64],
        radius: int,
        first_block: int,
        end_block: int,
        most: None = None,
        stop: Stop | None = None,
    ) -> Matches: ...
    @overload
    def scan(
        self,
        queries: NDArray[np.uint64],
        radius: int,
        first_block: int,
        end_block: int,
        most: int | None,
        stop: Stop | None = None,
    ) -> Matches | None: ...
    def nearest(
        self,
        queries: NDArray[np.uint64],
        radius: int,
        limit: int,
        first_block: int,
        end_block: int,
        absent: NDArray[np.uint64],
        stop: Stop | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[Any], NDArray[np.uint8]]: ...
    def locate(self, fingerprints: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]: ...
    def locate_one(self, fingerprint: int) -> tuple[int, int] | None: ...
    def entries_at(self, blocks: NDArray[np.uint64], ranks: NDArray[np.uint32], source: str) -> NDArray[np.uint64]: ...
    def entry_at(self, block: int, rank: int, source: str) -> int: ...
    def key_of(self, block: int) -> int: ...
    def keys_of(self, blocks: NDArray[np.uint64]) -> NDArray[np.uint64]: ...

class TableParts(_TableHeader):
    def __init__(self, header: NDArray[np.uint8], file_bytes: int, path: str) -> None: ...
    def decode(
        self,
        blocks: NDArray[np.uint8],
        keys: NDArray[np.uint64],
        first: int,
        room: int,
        into: NDArray[np.uint64] | None = None,
    ) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]: ...

class Table(_TableHeader, AnyTable):
    def __init__(self, data: NDArray[np.uint8], path: str) -> None: ...

class Filter(_Header):
    shape: Final[tuple[int, int, int]]
    word_count: Final[int]
    starts_offset: Final[int]
    checksums_offset: Final[int]
    passing: Final[float]
    damaged: Final[bool]

    def __init__(self, data: NDArray[np.uint8], path: str) -> None: ...

class FilterCutter:
    header: Final[bytes]

    def __init__(
        self,
        permutation: NDArray[np.uint8],
        fingerprint_count: int,
        set_digest: int,
        place: tuple[int, int],
        shape: tuple[int, ...],
    ) -> None: ...
    def feed(self, keys: NDArray[np.uint64]) -> NDArray[np.uint8]: ...
    def finish(self) -> NDArray[np.uint8]: ...

class Stop:
    def __init__(self) -> None: ...
    def set(self) -> None: ...
    def is_set(self) -> bool: ...

class _ColumnHeader(_Blocks, _Header):
    kind: Final[int]
    bucket_bits: Final[int]
    tag_bits: Final[int]
    threshold: Final[int]
    rest_bits: Final[int]
    count: Final[int]
    directory_offset: Final[int]
    tags_offset: Final[int]
    rest_offset: Final[int]
    checksums_offset: Final[int]
    seed: Final[int]

class ColumnParts(_ColumnHeader):
    def __init__(self, header: NDArray[np.uint8], file_bytes: int, path: str) -> None: ...
    def decode(
        self, first: int, tags: NDArray[np.uint8], rests: NDArray[np.uint8], bucket: int, directory: NDArray[np.uint32]
    ) -> NDArray[np.uint64]: ...

class ColumnTable(_ColumnHeader, AnyTable):
    def __init__(self, data: NDArray[np.uint8], path: str) -> None: ...

class AnyProber: ...

class ColumnProber(AnyProber):
    def __init__(
        self, tables: list[ColumnTable], rows: ColumnTable | None = None, thresholds: list[int] | None = None
    ) -> None: ...
    def probe(
        self, queries: NDArray[np.uint64], radius: int, most: int | None = None, stop: Stop | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[Any], tuple[int, int, int]] | None: ...

class ColumnCutter:
    def __init__(
        self,
        kind: int,
        width: int,
        count: int,
        set_digest: int,
        permutation: NDArray[np.uint8],
        bucket_bits: int,
        tag_bits: int,
        allowance: int,
        table: int,
        table_count: int,
    ) -> None: ...
    header: Final[bytes]
    tags_offset: Final[int]
    rest_offset: Final[int]
    checksums_offset: Final[int]
    file_bytes: Final[int]
    seed: Final[int]
    def cut(self, keys: NDArray[np.uint64]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]: ...
    def count(self, rows: NDArray[np.uint64]) -> None: ...
    def directory(self) -> NDArray[np.uint32]: ...

class Prober(AnyProber):
    def __init__(self) -> None: ...
    def add(
        self,
        table: Table,
        prefix_bits: int,
        flips: int,
        variants: NDArray[np.uint64],
        filter: Filter | None = None,  # noqa: A002
    ) -> None: ...
    @overload
    def probe(
        self,
        queries: NDArray[np.uint64],
        radius: int,
        most: None = None,
        order: str = "best",  # or "asked", "near", "sorted"
        fetch: bool = False,
        threads: int = 1,
        stop: Stop | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.uint8], int, int]: ...
    @overload
    def probe(
        self,
        queries: NDArray[np.uint64],
        radius: int,
        most: int | None,
        order: str = "best",  # or "asked", "near", "sorted"
        fetch: bool = False,
        threads: int = 1,
        stop: Stop | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.uint8], int, int] | None: ...
    fetches: Final[int]
    blocks: Final[int]

class SealedFile:
    file_bytes: Final[int]
    used: Final[int]
    room: Final[int]
    entries: Final[int]
    digest: Final[int]

    def __init__(self, descriptor: int, path: str, key_words: int, longest: int) -> None: ...
    def get(self, key: int, number: int | None = None) -> bytes | None: ...
    def get_many(
        self, keys: NDArray[np.uint64], numbers: NDArray[np.uint64], enough: int | None = None
    ) -> list[bytes | None]: ...
    def range(self, first: int, last: int, most: int | None = None) -> tuple[NDArray[np.uint64], list[bytes]]: ...
    def check_all(self) -> None: ...

class SingleProber:
    def __init__(
        self, prober: AnyProber, identity: AnyTable, ids: SealedFile, radius: int, match_type: type, list_type: type
    ) -> None: ...
    def probe(self, query: int) -> Any: ...  # a list of matches, of these types, or None

Matches = tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[Any]]  # distances are uint8, of 256 bits uint16

class Delta:
    def __init__(self, radius: int, bits: NDArray[np.uint8]) -> None: ...
    width: Final[int]
    def load(self, changes: int) -> None: ...
    def index(self) -> None: ...
    def apply_one(self, kind: int, fingerprint: int, number: int, in_base: bool, version: int) -> None: ...
    def apply(
        self,
        kinds: NDArray[np.uint8],
        fingerprints: NDArray[np.uint64],
        ids: NDArray[np.uint64],
        in_base: NDArray[np.uint8],
        version: int,
    ) -> None: ...
    def probe(self, queries: NDArray[np.uint64], radius: int, version: int, stop: Stop | None = None) -> Matches: ...
    def probe_one(self, query: int, radius: int, version: int) -> list[tuple[int, int]]: ...
    def scan(self, queries: NDArray[np.uint64], radius: int, version: int) -> Matches: ...
    def nearest(
        self, queries: NDArray[np.uint64], radius: int, limit: int, version: int
    ) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.uint8], NDArray[np.uint8]]: ...
    def states(self, fingerprints: NDArray[np.uint64], version: int) -> NDArray[np.uint8]: ...
    def state(self, fingerprint: int, version: int) -> int: ...
    def combine(self, base: Matches, found: Matches, version: int) -> Matches: ...
    def ids(
        self, fingerprints: NDArray[np.uint64], lims: NDArray[np.int64], base_ids: NDArray[np.uint64], version: int
    ) -> tuple[NDArray[np.int64], NDArray[np.uint64]]: ...
    def ids_one(self, fingerprint: int, base_ids: list[int], version: int) -> list[int]: ...
    def pairs(self, fingerprints: NDArray[np.uint64], ids: NDArray[np.uint64], version: int) -> NDArray[np.uint8]: ...
    def find(self, ids: NDArray[np.uint64], version: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]: ...
    def fingerprints_one(self, number: int, in_tables: list[int], version: int) -> list[int]: ...
    def probe_insert(
        self,
        queries: NDArray[np.uint64],
        ids: NDArray[np.uint64],
        matched: NDArray[np.uint8],
        in_base: NDArray[np.uint8],
        radius: int,
        always: bool,
        version: int,
    ) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.uint8], NDArray[np.uint8]]: ...
    def export(self, version: int) -> tuple[NDArray[np.uint64], NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint64]]: ...
    entries: Final[int]
    operations: Final[int]
    memory_bytes: Final[int]
    removals: Final[int]

class BlockEncoder:
    def __init__(self, code_bits: NDArray[np.uint8], block_bytes: int, seed: int, width: int = 64) -> None: ...
    def most_blocks(self, key_count: int) -> int: ...
    def feed(
        self,
        keys: NDArray[np.uint64],
        blocks: NDArray[np.uint8],
        block_keys: NDArray[np.uint64],
        counts: NDArray[np.uint32],
    ) -> int: ...
    def finish(self) -> tuple[NDArray[np.uint8], NDArray[np.uint64], NDArray[np.uint32]]: ...

TAG_ROOM: int

def index_rows(
    rows: NDArray[np.uint64], bucket_bits: int, starts: NDArray[np.uint64], tags: NDArray[np.uint16], stop: Stop | None = None
) -> None: ...
def group_greedily(
    rows: NDArray[np.uint64], lims: NDArray[np.uint64], radius: int, stop: Stop | None = None
) -> NDArray[np.uint64]: ...

class PairJoin:
    def __init__(
        self,
        rows: NDArray[np.uint64],
        starts: NDArray[np.uint64],
        tags: NDArray[np.uint16],
        permutation: NDArray[np.uint8],
        bucket_masks: NDArray[np.uint64],
        tag_masks: NDArray[np.uint64],
        flips: list[int],
        both: list[int],
        tag_bits: int,
        radius: int,
        first: int,
        end: int,
        opposite: tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint16]] | None = None,
    ) -> None: ...
    done: Final[bool]
    def more(self, room: int, stop: Stop | None = None) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint16]]: ...

class Linking:
    def __init__(
        self,
        rows: NDArray[np.uint64],
        starts: NDArray[np.uint64],
        tags: NDArray[np.uint16],
        permutation: NDArray[np.uint8],
        bucket_masks: NDArray[np.uint64],
        tag_masks: NDArray[np.uint64],
        flips: list[int],
        both: list[int],
        tag_bits: int,
        radius: int,
    ) -> None: ...
    done: Final[bool]
    def more(self, room: int, stop: Stop | None = None) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint16]]: ...

class RowIndex:
    def __init__(self, rows: NDArray[np.uint64]) -> None: ...
    def places(self, rows: NDArray[np.uint64]) -> NDArray[np.uint64]: ...

class Sets:
    def __init__(self, count: int) -> None: ...
    def unite(self, a: NDArray[np.uint64], b: NDArray[np.uint64]) -> None: ...
    def names(self, stop: Stop | None = None) -> NDArray[np.uint32] | NDArray[np.uint64]: ...

def are_distinct(numbers: NDArray[np.uint32] | NDArray[np.uint64], stop: Stop | None = None) -> bool: ...
def documents_in_sets(
    sets: NDArray[np.uint32] | NDArray[np.uint64], documents: NDArray[np.uint32] | NDArray[np.uint64], stop: Stop | None = None
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]: ...
