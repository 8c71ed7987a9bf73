"""Sealed files as tests write them, damage them and seal them again."""

import numpy as np
import pytest
from reference_store import PAGE, seal_of

from fpstore.base.width import Width
from fpstore.disk import files, sealed
from fpstore.disk.sealed import PADDING_BYTES

BRANCH, LEAF = 1, 2  # flags of a page
GROUP_CHUNKS, HASH_BYTES, DIGEST_BYTES = 512, 8, 8
COUNT = 20_000  # keys: as many as make a tree of three levels


def seal(path, data, padding=0):
    """Write a sealed file of these pages, and return its size and digest."""
    end = seal_of(data)
    path.write_bytes(data + bytes(padding + PADDING_BYTES) + end)
    return path.stat().st_size, int.from_bytes(end[-DIGEST_BYTES:], "little")


def tail_bytes(used):
    """Return the size of the checksums at the end of a file, from the size of its pages."""
    chunks = -(-used // 4096)
    return 8 * (chunks + -(-chunks // 512) + 1)


def key_of(number, words=1):
    """Return the key of a number: keys differ in their last word, and leave gaps."""
    return (
        number * (2**64 + 2**128 if words > 1 else 0) % 2 ** (64 * words) + number * 3_000_017 + 5
    )


def value_of(number):
    return b"value %d " % number * (1 + number % 7)


def rows(keys, words=1):
    return np.array(list(keys), np.uint64) if words == 1 else Width(64 * words).rows(keys)


def written(path, items, words=1):
    """Write a sealed file of ascending (key, value), and return its shape."""
    writer = sealed.SealedWriter(path, words)
    writer.append_list(rows([key for key, _ in items], words), [value for _, value in items])
    return writer.finish()


def opened(path, words=1, longest=PADDING_BYTES):
    with files.open_descriptor(path) as descriptor:
        return sealed.open_seal(path, descriptor, words, longest)


def used_of(path, words=1):
    return opened(path, words).used


def padding_of(shape):
    """Return the bytes between the pages and the checksums of a file, beside PADDING_BYTES."""
    return -(-shape["largest"] // PAGE) * PAGE


def resealed(path, data):
    """Write pages anew, under checksums that are right; return the shape of the file."""
    size, digest = seal(path, data)
    return {"bytes": size, "digest": digest, "largest": 0}


def overwrite(path, at, new):
    with path.open("r+b") as file:
        file.seek(at)
        file.write(new)


def pages_of(data, kind):
    return [page for page in range(2, len(data) // PAGE) if data[page * PAGE + 10] == kind]


WAYS = {
    "get": lambda reader, numbers: [reader.file.get(key_of(number), number) for number in numbers],
    "get without a number": lambda reader, numbers: [
        reader.file.get(key_of(number)) for number in numbers
    ],
    "get_many": lambda reader, numbers: reader.file.get_many(
        rows(map(key_of, numbers)), rows(numbers)
    ),
    "range": lambda reader, numbers: reader.file.range(key_of(min(numbers)), key_of(max(numbers)))[
        1
    ],
    "items": lambda reader, numbers: [
        value for key, value in reader.items() if key in set(map(key_of, numbers))
    ],
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """Return a tree, its shape, and which of its leaves has each key."""
    path = tmp_path_factory.mktemp("tree") / "t"
    shape = written(path, [(key_of(number), value_of(number)) for number in range(COUNT)])
    assert len(pages_of(path.read_bytes()[: used_of(path)], BRANCH)) > 2
    with files.open_descriptor(path) as descriptor:
        of_key = {
            int.from_bytes(item.key, "big"): item.start // PAGE
            for item in sealed.salvaged_items(path, descriptor, 8, None)
        }
    return path, shape, [of_key[key_of(number)] for number in range(COUNT)]
