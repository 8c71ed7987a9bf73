"""The dictionary of a generation: the strings of its id numbers, and the numbers of strings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Groups, Words
from fpstore.base.strings import StringColumn, string_hash
from fpstore.disk.files import RUN_REPAIR
from fpstore.errors import CorruptStoreError
from fpstore.format.mapping import KeyedMapping, groups_digest, pair_digest
from fpstore.format.strings import STRINGS_FILE, Strings

MAPPING_FILES = HASHES_FILE, NUMBERS_FILE = "hashes.fpt", "numbers.mdb"
DICTIONARY_FILES = (STRINGS_FILE, *MAPPING_FILES)
VERIFY_PASSES = 4  # over the strings, the hashes, the numbers, and both together
NO_NUMBER = np.uint64(2**64 - 1)


class Dictionary:
    """Reads the dictionary of a generation, which the manifest describes."""

    def __init__(self, folder: Path, record: dict[str, Any]) -> None:
        self.strings = Strings(folder / STRINGS_FILE, record["strings"], record["count"])
        try:
            self.mapping = KeyedMapping(
                folder, MAPPING_FILES, record["hashes"], record["hash_digest"], record["numbers"]
            )
        except BaseException:
            self.strings.close()
            raise

    def number(self, string: bytes) -> int | None:
        """Return the number of a string, or None.

        CorruptStoreError if a number listed under the hash has no intact string with that hash: the
        string may be this one.
        """
        key = string_hash(string)
        for number in self.mapping.get(key):
            candidate = self.strings.string(number).encode()
            if candidate == string:
                return number
            self._check_hash(number, candidate, key)
        return None

    def numbers(self, strings: Sequence[bytes]) -> Words:
        """Return the numbers of strings like :meth:`number`, with NO_NUMBER for unknown strings.

        Each record is read once.
        """
        out = np.full(len(strings), NO_NUMBER)
        hashes = StringColumn.from_strings(strings).hashes()
        lims, listed = self.mapping.gather(hashes)
        owners = np.repeat(np.arange(len(strings)), np.diff(lims))
        order = np.argsort(listed, kind="stable")
        numbers, owners = listed[order], owners[order]
        for number, owner, candidate in zip(
            numbers.tolist(), owners.tolist(), self.strings.get_many(numbers), strict=True
        ):
            if candidate == strings[owner]:
                out[owner] = number
            else:
                self._check_hash(number, candidate, int(hashes[owner]))
        return out

    def _check_hash(self, number: int, string: bytes, key: int) -> None:
        if string_hash(string) != key:
            raise self._damage_error(
                f"id number {number} is listed for another string: {RUN_REPAIR}"
            )

    def _damage_error(self, fault: str) -> CorruptStoreError:
        return CorruptStoreError(f"{self.strings.path}: {fault}", path=self.strings.path)

    def verify(self, tick: Callable[[int], None] = lambda rows: None) -> npt.NDArray[np.bool_]:
        """Check every string, and that it leads back to its number.

        Return which numbers have a string. The strings come by number and the numbers by hash, so
        sums over both sets of pairs are compared.
        """
        self.strings.check_pages()
        has_string, digest = np.zeros(self.strings.count, bool), 0
        for first, column in self.strings.columns():
            used = np.flatnonzero(column.sizes)
            digest += pair_digest(column.hashes()[used], used.astype(np.uint64) + np.uint64(first))
            has_string[first + used] = True
            tick(len(used))
        strings = int(np.count_nonzero(has_string))
        numbers = self.mapping.verify(tick)
        if strings != numbers:
            raise self._damage_error(
                f"the id dictionary has {strings} strings and {numbers} numbers"
            )
        if groups_digest(self.groups(), tick) != digest % 2**64:
            raise self._damage_error(
                "the id dictionary is damaged: numbers are listed for other strings"
            )
        return has_string

    def groups(self) -> Iterator[Groups]:
        """Yield (hashes, how many strings have each, their numbers), by hash."""
        for hashes, counts, numbers in self.mapping.groups():
            highest = int(numbers.max(initial=0))
            if highest >= self.strings.count:
                path = self.mapping.path
                raise CorruptStoreError(
                    f"{path}: there is no string for id number {highest}", path=path, got=highest
                )
            yield hashes, counts, numbers

    @property
    def file_bytes(self) -> int:
        return self.strings.file_bytes + self.mapping.all_bytes

    def close(self) -> None:
        self.strings.close()
        self.mapping.close()
