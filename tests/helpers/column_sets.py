"""Sets of fingerprints for column tables of every width, table files, and brute force."""

from itertools import pairwise
from pathlib import Path

import numpy as np

from fpstore import _kernel
from fpstore.design.tables import TAG_BITS, row_bucket_bits
from fpstore.format.column_table import ColumnTable, ColumnWriter, check_references
from fpstore.format.layout import KIND_COPIES, KIND_REFERENCES, KIND_ROWS, ColumnLayout

KINDS = ("uniform", "clustered", "constant", "balanced", "one bucket")


def rows_layout(width, count, digest, bucket_bits=None):
    """Return the layout of a row file."""
    buckets = row_bucket_bits(count) if bucket_bits is None else bucket_bits
    return ColumnLayout(KIND_ROWS, width, count, digest, bytes(range(width)), buckets, tag_bits=0)


def word_count(width):
    return max(width // 64, 1)


def bits_to_words(bits):
    """Pack an array of bits, (n, width), into words, most significant first: (n, words)."""
    width = bits.shape[1]
    padded = np.zeros((len(bits), 64 * word_count(width)), np.uint8)
    padded[:, :width] = bits
    return (
        np.packbits(padded, axis=1)
        .reshape(len(bits), word_count(width), 8)
        .copy()
        .view(">u8")[..., 0]
        .astype(np.uint64)
    )


def make_set(kind, width, n, rng):
    """Return up to n distinct fingerprints, ascending: (n, words)."""
    bits = rng.integers(0, 2, (n, width), dtype=np.uint8)
    if kind == "clustered":
        centres = rng.integers(0, 2, (max(n // 50, 1), width), dtype=np.uint8)
        bits = centres[rng.integers(0, len(centres), n)] ^ (rng.random((n, width)) < 3 / width)
    elif kind == "constant":
        bits[:, rng.permutation(width)[: width // 2]] = 0
    elif kind == "balanced":
        # as perceptual hashes are: half of the bits are ones, and neighbours are alike
        field = rng.standard_normal((n, width)) + np.sin(np.arange(width) / 3)
        field[:, 1:] += field[:, :-1]
        bits = (field.argsort(axis=1).argsort(axis=1) >= width // 2).astype(np.uint8)
    elif kind == "one bucket":
        bits[:, : width // 2] = rng.integers(0, 2, (1, width // 2), dtype=np.uint8)
    return np.unique(bits_to_words(bits.astype(np.uint8)), axis=0)


def make_queries(words, width, n, radius, rng):
    """Return queries near fingerprints of the set, and some anywhere."""
    queries = bits_to_words(rng.integers(0, 2, (n, width), dtype=np.uint8))
    if len(words):
        near = words[rng.integers(0, len(words), n)]
        flips = bits_to_words(
            np.array(
                [rng.permutation(width) < rng.integers(0, radius + 2) for _ in range(n)], np.uint8
            )
        )
        chosen = rng.random(n) < 0.8
        queries[chosen] = near[chosen] ^ flips[chosen]
    return queries


def kernel_rows(words):
    """Return fingerprints as the kernel takes them: (n,) where they have one word."""
    return np.ascontiguousarray(words[:, 0] if words.shape[1] == 1 else words)


def deal(width, tables, bucket_bits, rng):
    """Deal random bits to the blocks of a ring; return (permutation, tag bits) of each table."""
    order = rng.permutation(width)
    if tables == 1:
        return [(bytes(order.tolist()), min(TAG_BITS, width - bucket_bits))]
    blocks = np.array_split(order, tables)
    dealt = []
    for i, block in enumerate(blocks):
        following = blocks[(i + 1) % tables]
        tag_bits = min(TAG_BITS, len(following))
        head = [*block[:bucket_bits].tolist(), *following[:tag_bits].tolist()]
        dealt.append((bytes([*head, *sorted(set(range(width)) - set(head))]), tag_bits))
    return dealt


def gather_bits(words, source):
    """Return the bits of fingerprints at places, as a matrix."""
    bits = np.unpackbits(
        words.astype(">u8").view(np.uint8).reshape(len(words), 8 * words.shape[1]), axis=1
    )
    return bits[:, list(source)]


def keys_of(words, permutation, bucket_bits, width):
    """Return the sorted keys of a table."""
    if width <= 64:
        return np.sort(bits_to_words(gather_bits(words, permutation))[:, 0])
    source = np.frombuffer(permutation, np.uint8)
    return np.sort(_kernel.reference_keys(kernel_rows(words), 0, len(words), source, bucket_bits))


def write(path, layout, entries, pieces=1):
    path.unlink(missing_ok=True)
    writer = ColumnWriter(path, layout)
    for part in np.array_split(entries, pieces):
        writer.feed(np.ascontiguousarray(part))
    writer.finish()
    writer.sync()
    return path


def resealed(data, table):
    """Return the changed bytes of a file, with checksums of its pages that are right."""
    body = np.frombuffer(data, np.uint8)[4096 : table.checksums_offset]
    return (
        bytes(data[: table.checksums_offset])
        + _kernel.page_checksums(body, table.seed, 0).tobytes()
    )


class Built:
    """The files of a set, open."""

    def __init__(self, folder, words, width, tables, bucket_bits, rng):
        self.folder, self.words, self.width = Path(folder), words, width
        rows, digest = kernel_rows(words), _kernel.digest(kernel_rows(words))
        self.rows = None
        if width > 64:
            layout = rows_layout(width, len(words), digest, bucket_bits)
            self.rows = ColumnTable(write(self.folder / "rows", layout, rows, 3))
        self.readers = []
        for i, (permutation, tag_bits) in enumerate(deal(width, tables, bucket_bits, rng)):
            kind = KIND_REFERENCES if width > 64 else KIND_COPIES
            layout = ColumnLayout(
                kind, width, len(words), digest, permutation, bucket_bits, tag_bits, 0, i, tables
            )
            path = write(
                self.folder / f"table-{i}",
                layout,
                keys_of(words, permutation, bucket_bits, width),
                3,
            )
            self.readers.append(ColumnTable(path))

    def prober(self, thresholds=None):
        return _kernel.ColumnProber(
            tuple(r.kernel for r in self.readers),
            None if self.rows is None else self.rows.kernel,
            thresholds,
        )

    def probe(self, queries, radius, thresholds=None, **options):
        return self.prober(thresholds).probe(queries, radius, **options)


def brute(words, queries, radius):
    """Return the matches of each query as a list of (distance, *words), ascending."""
    answers = []
    for query in queries:
        distances = np.bitwise_count(words ^ query).sum(axis=1)
        answers.append(
            sorted(
                (int(distances[i]), *words[i].tolist()) for i in np.flatnonzero(distances <= radius)
            )
        )
    return answers


def matches(result):
    """Return the result of a probe or a scan in the form of ``brute``."""
    lims, fingerprints, distances = result[0], result[1], result[2]
    rows = (fingerprints[:, None] if fingerprints.ndim == 1 else fingerprints).tolist()
    pairs = [(d, *row) for d, row in zip(distances.tolist(), rows, strict=True)]
    return [pairs[a:b] for a, b in pairwise(lims)]


def random_thresholds(radius, tables, rng):
    """Share radius + 1 among the tables."""
    cuts = np.sort(rng.integers(0, radius + 2, tables - 1))
    return (np.diff(np.concatenate([[0], cuts, [radius + 1]])) - 1).tolist()


def even_thresholds(radius, tables):
    each, more = divmod(radius + 1, tables)
    return [each - 1 + (i < more) for i in range(tables)]


def verify(file, rows=None):
    """Verify a file, and the references of a file of references into the row file."""
    digest = file.verify()
    if rows is not None and file.header.kind == KIND_REFERENCES:
        for fault in check_references([(file, digest)], rows):
            raise fault
