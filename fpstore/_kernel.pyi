"""The native kernel, which releases the GIL; arrays are contiguous, of the stated dtype.

See _native/python/.
"""

from collections.abc import Sequence
from typing import Any, Final, overload

import numpy as np
from numpy.typing import NDArray

from fpstore.base.aliases import Bytes, Counts, Lims, Words

Numbers = Counts | Words
Tags = NDArray[np.uint16]

FORMAT_VERSION: int
HEADER_BYTES: int
MAX_CODE_BITS: int
MAX_ENTRIES: int
OVERREAD_BYTES: int
ROWS_IN_BLOCK: int
PAGE_BYTES: int
TAG_BITS: int
MIN_BUCKET_BITS: int
MAX_BUCKET_BITS: int
LOOKUP_ENTRIES: int
ORDERED_QUERIES: int
SPARE_THRESHOLDS: int
MAX_RING: int
TAG_ROOM: int
LMDB_LEAF: int
LMDB_FLAGS_AT: int
LMDB_LOWER_AT: int
LMDB_PAGE_HEAD: int
LMDB_POINTER: int
LMDB_NODE_HEAD: int
LMDB_BIG_DATA: int
LMDB_PAGE_BYTES_AT: int
PADDING_BYTES: int
JSON_MISSING: int
JSON_STRING: int
JSON_OTHER: int

def isa() -> str: ...
def available_isas() -> list[str]: ...
def select_isa(name: str) -> None: ...
def xxh64(data: bytes, seed: int = 0) -> int: ...
def permute(keys: Words, permutation: Bytes, inverse: bool = False) -> Words: ...
def count_permuted(
    keys: Words, permutation: Bytes, bits: int, stop: Stop | None = None
) -> Words: ...
def scatter_permuted(
    keys: Words,
    permutation: Bytes,
    bits: int,
    first: int,
    starts: Words,
    out: Words,
    stop: Stop | None = None,
) -> None: ...
def permute_sort(
    keys: Words, permutation: Bytes, out: Words, scratch: Words, bits: int, stop: Stop | None = None
) -> None: ...
def sort_keys(
    keys: Words, scratch: Words, bits: int | None = None, stop: Stop | None = None
) -> None: ...
def sort_pairs(pairs: Words, scratch: Words, words: int = 1, stop: Stop | None = None) -> None: ...
def count_parts(keys: Words, depth: int, counts: Words, stop: Stop | None = None) -> None: ...
def scatter_parts(
    keys: Words,
    numbers: Numbers | None,
    first: int,
    depth: int,
    at: Words,
    out: tuple[Words, Numbers],
    stop: Stop | None = None,
) -> None: ...
def sort_parts(
    keys: Words, numbers: Numbers, ends: Words, bits: int, stop: Stop | None = None
) -> None: ...
def are_distinct_keys(keys: Words, stop: Stop | None = None) -> bool: ...
def group_numbered(
    keys: Words, numbers: Numbers, counts: Words, stop: Stop | None = None
) -> tuple[int, int]: ...
def histogram(keys: Words, counts: Words) -> int: ...
def digest(keys: Words, permutation: Bytes | None = None) -> int: ...
def page_checksums(data: Bytes, seed: int, first: int) -> Words: ...
def reference_keys(
    rows: Words, first: int, count: int, permutation: Bytes, bucket_bits: int
) -> Words: ...
def make_header(
    permutation: Bytes,
    code_bits: Bytes,
    set_digest: int,
    fingerprint_count: int,
    block_count: int,
    block_bytes: int,
    table: int,
    table_count: int,
    prefix_bits: int,
    flips: int,
) -> bytes: ...
def block_seed(permutation: Bytes, code_bits: Bytes, set_digest: int) -> int: ...
def map_cached_pages(descriptor: int, mapping: Bytes, start: int, size: int) -> bool: ...
def trim() -> None: ...
def unpack_rank(record: bytes, seed: int, rank: int, path: str) -> list[int]: ...
def gather_ids(
    records: list[bytes], keys: Words, record: Words, ranks: Counts, seed: int, path: str
) -> tuple[Lims, Words]: ...
def unpack_records(
    records: list[bytes], first_block: int, keys: Words, seed: int, path: str
) -> tuple[Words, Words]: ...
def find_ids(
    records: list[bytes], first_block: int, keys: Words, seed: int, wanted: Words, path: str
) -> tuple[Words, Counts, Words]: ...
def merge_keys(keys: Words, drop: Words, add: Words, out: Words) -> int: ...
def read_log(
    data: Bytes, place: int, seed: int, number: int, words: int, most: int
) -> tuple[int, int, int, int, tuple[int, int, int, int], Bytes, Words, Words, Words, Bytes]: ...
def checked_frame(value: bytes, seed: int) -> bytes | None: ...
def checked_frames(
    values: list[Any], seeds: Words, most_bytes: int
) -> tuple[bytes, bytes, bytes] | None: ...
def string_at(content: bytes, count: int, rank: int) -> str | None: ...
def join_contents(contents: Any, counts: Words) -> tuple[bytes, Words] | None: ...
def place_strings(
    contents: Any, counts: Words, lims: Words, ranks: Words, places: Words, out: list[str]
) -> int | None: ...
def hash_strings(data: bytes, ends: Words) -> Words: ...
def equal_strings(data: Bytes, ends: Words, rows: Words, lims: Words) -> Bytes: ...
def copy_bytes(buffer: Any, start: int, end: int) -> bytes: ...
def count_characters(data: bytes, offsets: Words) -> Counts: ...
def cut_lines(text: bytes, separators: bytes) -> tuple[Words, Words, Words] | None: ...
def read_hexadecimal(text: bytes, starts: Words, ends: Words, digits: int) -> Words | None: ...
def read_decimal(
    text: bytes, starts: Words, ends: Words, bits: int, plain: bool
) -> Words | None: ...
def join_strings(data: bytes, ends: Words) -> bytes: ...
def checked_values(keys: Words, frames: Any) -> tuple[Bytes, Words]: ...
def copy_spans(data: Any, starts: Words, ends: Words) -> tuple[bytes, Words]: ...
def read_json_lines(
    lines: bytes, names: list[bytes]
) -> list[tuple[Bytes, bytes, Words]] | None: ...
def count_lines(lines: bytes) -> int: ...
def nonblank_lines(lines: bytes) -> tuple[Words, Words]: ...
def merge_groups(
    keys: Words,
    counts: Words,
    ids: Words,
    drop: Words,
    add: Words,
    add_counts: Words,
    add_ids: Words,
) -> tuple[Words, Words, Words]: ...
def union_groups(
    keys_a: Words, counts_a: Words, ids_a: Words, keys_b: Words, counts_b: Words, ids_b: Words
) -> tuple[Words, Words, Words]: ...

class CharTables:
    def __init__(
        self, ascii: bytes, pages: NDArray[np.int32], entries: Counts, pool: bytes
    ) -> None: ...

class TextFeatures:
    def __init__(
        self,
        words: bool,
        length: int,
        counting: str,
        hashing: str,
        seed: int,
        row_words: int,
        weighted: Words,
        weights: Counts,
        other_weight: int,
        stops: Words,
        fields: Counts,
    ) -> None: ...
    def simhash(
        self,
        text: bytes,
        offsets: Words,
        tables: CharTables,
    ) -> tuple[Words, Bytes, Counts, Words]: ...
    def minhash(
        self,
        text: bytes,
        offsets: Words,
        tables: CharTables,
        bands: int = ...,
        band_size: int = ...,
        band_first: int = ...,
    ) -> tuple[Words, Bytes, Counts, Words]: ...
    def sets(
        self,
        text: bytes,
        offsets: Words,
        tables: CharTables,
        samples: int,
    ) -> tuple[Counts, tuple[Words, Bytes, Counts, Words]]: ...
    def hashes(
        self,
        text: bytes,
        offsets: Words,
        tables: CharTables,
    ) -> tuple[Words, tuple[Words, Bytes, Counts, Words]]: ...
    def ranks(
        self,
        text: bytes,
        offsets: Words,
        tables: CharTables,
        known: KnownHashes,
    ) -> tuple[Counts, tuple[Words, Bytes, Counts, Words]]: ...

def page_candidates(text: bytes, offsets: Words, most: int) -> Words: ...

class PageTexts:
    def __init__(self, names: list[bytes], texts: list[bytes]) -> None: ...
    def plain(self, data: bytes, start: int, end: int) -> tuple[bytes, int] | None: ...

class KnownHashes:
    def __init__(self, hashes: Words) -> None: ...

def minhash_features(
    hashes: Words,
    weights: NDArray[np.float64],
    seed: int,
    row_words: int,
    bands: int = ...,
    band_size: int = ...,
    band_first: int = ...,
) -> Words: ...

class FeatureSets:
    def __init__(self, features: Counts, lims: Words) -> None: ...
    def shared(self, a: Words, b: Words) -> Words: ...
    def contain(self, a: Words, b: Words, share: float) -> Bytes: ...
    def samples(
        self, numbers: Words, counts: Counts, ranks: Counts, salts: Counts
    ) -> tuple[Words, Counts]: ...
    def decide(
        self,
        numbers: Words,
        lims: Words,
        digests: Words,
        stays: Bytes,
        contained: float,
        similar: float,
        stop: Stop | None = None,
    ) -> Words: ...

class SharedCounter:
    def __init__(self, heads: Counts, text_count: int) -> None: ...
    def count(
        self, texts: Words, counts: Words, head_spans: Words, least: Counts
    ) -> tuple[Words, Words, Lims, Lims, Counts]: ...

def list_texts(
    sizes: Words, ranks: Counts, order: Counts, most: int, most_crowded: int, first_place: int
) -> tuple[Counts, Words, Words]: ...
def feature_rows(
    features: bytes, offsets: Words, hashing: str, seed: int, row_words: int
) -> Words: ...
def simhash_weighted(
    rows: Words, weights: NDArray[np.float64], batched: Bytes, row_words: int
) -> Words: ...
def choose_grams(
    text: bytes, offsets: Words, words: bool, size: int, gram: int, stop: Stop | None = None
) -> tuple[Words, Words, Words]: ...
def window_keys(
    text: bytes,
    offsets: Words,
    words: bool,
    size: int,
    gram: int,
    chosen: Words,
    stop: Stop | None = None,
) -> tuple[Words, Words, Words]: ...
def word_bounds(text: bytes, words: Words) -> tuple[Words, Words, int]: ...

# Members that several classes share; the kernel has no such base classes.
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
    def decode(self, first_block: int, end_block: int, room: int) -> tuple[Words, Counts, int]: ...
    @overload
    def scan(
        self,
        queries: Words,
        radius: int,
        first_block: int,
        end_block: int,
        most: None = None,
        stop: Stop | None = None,
    ) -> Matches: ...
    @overload
    def scan(
        self,
        queries: Words,
        radius: int,
        first_block: int,
        end_block: int,
        most: int | None,
        stop: Stop | None = None,
    ) -> Matches | None: ...
    def nearest(
        self,
        queries: Words,
        radius: int,
        limit: int,
        first_block: int,
        end_block: int,
        absent: Words,
        stop: Stop | None = None,
    ) -> tuple[Lims, Words, NDArray[Any], Bytes]: ...
    def locate(self, fingerprints: Words) -> tuple[Words, Counts]: ...
    def locate_one(self, fingerprint: int) -> tuple[int, int] | None: ...
    def entries_at(self, blocks: Words, ranks: Counts, source: str) -> Words: ...
    def entry_at(self, block: int, rank: int, source: str) -> int: ...
    def key_of(self, block: int) -> int: ...
    def keys_of(self, blocks: Words) -> Words: ...

class TableParts(_TableHeader):
    def __init__(self, header: Bytes, file_bytes: int, path: str) -> None: ...
    def decode(
        self, blocks: Bytes, keys: Words, first: int, room: int, into: Words | None = None
    ) -> tuple[Words, Counts]: ...

class Table(_TableHeader, AnyTable):
    def __init__(self, data: Bytes, path: str) -> None: ...

class Filter(_Header):
    shape: Final[tuple[int, int, int]]
    passing: Final[float]
    damaged: Final[bool]

    def __init__(self, data: Bytes, path: str) -> None: ...

class IdPacker:
    buffered_rows: Final[int]

    def __init__(self, file: SealedEncoder, seed: int) -> None: ...
    def feed(self, keys: Words, counts: Words, ids: Words, block_counts: Counts) -> None: ...

class SealedEncoder:
    pending_bytes: Final[int]
    largest: Final[int]
    used_bytes: Final[int]
    digest: Final[int]

    def __init__(self, key_words: int) -> None: ...
    def append(self, keys: Words, values: Bytes, offsets: Words) -> None: ...
    def move_pages(self, out: Bytes) -> int: ...
    def finish(self) -> tuple[bytes, bytes]: ...

class FilterCutter:
    header: Final[bytes]

    def __init__(
        self,
        permutation: Bytes,
        fingerprint_count: int,
        set_digest: int,
        place: tuple[int, int],
        shape: tuple[int, ...],
    ) -> None: ...
    def feed(self, keys: Words) -> Bytes: ...
    def finish(self) -> Bytes: ...

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
    def __init__(self, header: Bytes, file_bytes: int, path: str) -> None: ...
    def decode(
        self, first: int, tags: Bytes, rests: Bytes, bucket: int, directory: Counts
    ) -> Words: ...

class ColumnTable(_ColumnHeader, AnyTable):
    def __init__(self, data: Bytes, path: str) -> None: ...

class AnyProber: ...

class ColumnProber(AnyProber):
    def __init__(
        self,
        tables: tuple[ColumnTable, ...],
        rows: ColumnTable | None = None,
        thresholds: list[int] | None = None,
    ) -> None: ...
    def probe(
        self, queries: Words, radius: int, most: int | None = None, stop: Stop | None = None
    ) -> tuple[Lims, Words, NDArray[Any], tuple[int, int, int]] | None: ...

class ColumnCutter:
    def __init__(
        self,
        kind: int,
        count: int,
        set_digest: int,
        permutation: Bytes,
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
    def cut(self, keys: Words) -> tuple[Bytes, Bytes]: ...
    def count(self, rows: Words) -> None: ...
    def directory(self) -> Counts: ...

class Prober(AnyProber):
    def __init__(self) -> None: ...
    def add(
        self,
        table: Table,
        prefix_bits: int,
        flips: int,
        variants: Words,
        filter: Filter | None = None,
    ) -> None: ...
    @overload
    def probe(
        self,
        queries: Words,
        radius: int,
        most: None = None,
        order: str = "best",  # or "asked", "near", "sorted"
        fetch: bool = False,
        threads: int = 1,
        stop: Stop | None = None,
    ) -> tuple[Lims, Words, Bytes, int, int]: ...
    @overload
    def probe(
        self,
        queries: Words,
        radius: int,
        most: int | None,
        order: str = "best",  # or "asked", "near", "sorted"
        fetch: bool = False,
        threads: int = 1,
        stop: Stop | None = None,
    ) -> tuple[Lims, Words, Bytes, int, int] | None: ...
    fetches: Final[int]
    blocks: Final[int]

class SealedFile:
    file_bytes: Final[int]
    used: Final[int]
    padding_bytes: Final[int]
    entries: Final[int]
    digest: Final[int]

    def __init__(self, descriptor: int, path: str, key_words: int, longest: int) -> None: ...
    def get(self, key: int, number: int | None = None) -> bytes | None: ...
    def get_many(
        self, keys: Words, numbers: Words, enough: int | None = None
    ) -> list[bytes | None]: ...
    def range(
        self, first: int, last: int, most: int | None = None
    ) -> tuple[Words, list[bytes]]: ...
    def check_all(self) -> None: ...

class SingleProber:
    def __init__(
        self,
        prober: AnyProber,
        identity: AnyTable,
        ids: SealedFile,
        radius: int,
        match_type: type,
        list_type: type,
    ) -> None: ...
    def probe(self, query: int) -> Any: ...  # a list of matches, of these types, or None

class CurrentSnapshot:
    def __init__(self, array_type: type, number_type: type) -> None: ...
    def set(self, words: memoryview, at: int, known: int, snapshot: Any) -> None: ...
    def clear(self) -> None: ...
    @property
    def snapshot(self) -> Any: ...
    def get(self) -> Any: ...
    def probe(self, fingerprint: object) -> Any: ...  # as of a SingleProber

Matches = tuple[Lims, Words, NDArray[Any]]  # distances are uint8, of 256 bits uint16

def band_keys(sketches: Counts, bands: int, rows: int) -> Words: ...

class ItemProber:
    def __init__(
        self,
        keys: AnyProber,
        documents: AnyProber,
        keys_changes: Delta | None,
        keys_version: int,
        documents_changes: Delta | None,
        documents_version: int,
        key_bits: int,
        number_bits: int,
    ) -> None: ...
    def probe(
        self, sketch: Counts, signature: Bytes, bands: int, rows: int, radius: int
    ) -> list[tuple[int, int]]: ...

class Delta:
    def __init__(self, radius: int, bits: Bytes) -> None: ...
    width: Final[int]
    def load(self, changes: int) -> None: ...
    def index(self) -> None: ...
    def apply_one(
        self, kind: int, fingerprint: int, number: int, in_base: bool, version: int
    ) -> None: ...
    def apply(
        self, kinds: Bytes, fingerprints: Words, ids: Words, in_base: Bytes, version: int
    ) -> None: ...
    def probe(
        self, queries: Words, radius: int, version: int, stop: Stop | None = None
    ) -> Matches: ...
    def probe_one(self, query: int, radius: int, version: int) -> list[tuple[int, int]]: ...
    def share(
        self, queries: Words, bits: int, version: int, stop: Stop | None = None
    ) -> Matches: ...
    def scan(self, queries: Words, radius: int, version: int) -> Matches: ...
    def nearest(
        self, queries: Words, radius: int, limit: int, version: int
    ) -> tuple[Lims, Words, Bytes, Bytes]: ...
    def states(self, fingerprints: Words, version: int) -> Bytes: ...
    def state(self, fingerprint: int, version: int) -> int: ...
    def combine(self, base: Matches, found: Matches, version: int) -> Matches: ...
    def ids(
        self, fingerprints: Words, lims: Lims, base_ids: Words, version: int
    ) -> tuple[Lims, Words]: ...
    def ids_one(self, fingerprint: int, base_ids: list[int], version: int) -> list[int]: ...
    def pair_states(self, fingerprints: Words, ids: Words, version: int) -> Bytes: ...
    def find(self, ids: Words, version: int) -> tuple[Words, Words]: ...
    def probe_insert(
        self,
        queries: Words,
        ids: Words,
        matched: Bytes,
        in_base: Bytes,
        radius: int,
        always: bool,
        version: int,
    ) -> tuple[Lims, Words, Bytes, Bytes]: ...
    def export(self, version: int) -> tuple[Words, Bytes, Lims, Words]: ...
    entries: Final[int]
    operations: Final[int]
    memory_bytes: Final[int]
    removals: Final[int]

class BlockEncoder:
    def __init__(self, code_bits: Bytes, block_bytes: int, seed: int, width: int = 64) -> None: ...
    def most_blocks(self, key_count: int) -> int: ...
    def feed(self, keys: Words, blocks: Bytes, block_keys: Words, counts: Counts) -> int: ...
    def finish(self) -> tuple[Bytes, Words, Counts]: ...

def index_rows(
    rows: Words, bucket_bits: int, starts: Words, tags: Tags, stop: Stop | None = None
) -> None: ...
def group_greedily(rows: Words, lims: Words, radius: int, stop: Stop | None = None) -> Words: ...

class PairSearch:
    done: Final[bool]
    def more(self, room: int, stop: Stop | None = None) -> tuple[Words, Words, Tags]: ...

class JoinRules:
    """How pairs meet in a table of a join, which has the permutation, and in those before it."""

    def __init__(
        self,
        permutation: Bytes,
        bucket_masks: Words,
        tag_masks: Words,
        flips: list[int],
        both: list[int],
        tag_bits: int,
        radius: int,
    ) -> None: ...

class PairJoin(PairSearch):
    def __init__(
        self,
        rows: Words,
        starts: Words,
        tags: Tags,
        rules: JoinRules,
        first: int,
        end: int,
        opposite: tuple[Words, Words, Tags] | None = None,
    ) -> None: ...

class Linking(PairSearch):
    def __init__(self, rows: Words, starts: Words, tags: Tags, rules: JoinRules) -> None: ...

class PartSearch(PairSearch):
    def __init__(
        self,
        sides: Sequence[tuple[Words, Words, bool]],
        rules: JoinRules,
        bucket_bits: int,
        part_bits: int,
        linked: bool,
    ) -> None: ...

class RowIndex:
    def __init__(self, rows: Words) -> None: ...
    def places(self, rows: Words) -> Words: ...

class Sets:
    def __init__(self, count: int) -> None: ...
    def unite(self, a: Words, b: Words) -> None: ...
    def least(self, numbers: Words) -> Words: ...
    def link_groups(
        self,
        rows: Words,
        members: Words,
        lims: Words,
        radius: int,
        most: int,
        stop: Stop | None = ...,
    ) -> NDArray[np.uint8]: ...
    def names(self, stop: Stop | None = None) -> Numbers: ...

def documents_in_sets(
    sets: Numbers, documents: Numbers | None = None, stop: Stop | None = None
) -> tuple[Words, Words, Words]: ...
