"""The zstandard dictionary of a store's strings: trained on some of them."""

from __future__ import annotations

from fpstore.base.strings import StringColumn
from fpstore.format.string_records import StringLayout, strings_per_record

LEVEL = 3
MOST_DICTIONARY_BYTES = 1 << 16
DICTIONARY_SHARE = 100  # the strings are so many times as large as the dictionary
SAMPLE_RECORDS, SAMPLE_BYTES = 1 << 12, 1 << 22  # a dictionary is trained on about so many records and bytes


class Sample:
    """Some records of a set of strings, about evenly spread.

    Attributes
    ----------
    records : list of bytes
        Uncompressed; SAMPLE_BYTES at most.
    """

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self._step = 1  # one of so many records is taken
        self._strings = self._bytes = self._held = 0

    def add(self, strings: StringColumn) -> None:
        """Take some of the next strings, in groups that are as large as a record; empty strings do not count."""
        strings = strings.filter(strings.sizes > 0)
        self._strings += len(strings)
        self._bytes += len(strings.data)
        per_record, start = strings_per_record(self._strings, self._bytes), 0
        while start < len(strings):
            self.records.append(strings.slice(start, min(start + per_record, len(strings))).separated())
            self._held += len(self.records[-1])
            while self._held > SAMPLE_BYTES and len(self.records) > 1:
                del self.records[1::2]
                self._step *= 2
                self._held = sum(map(len, self.records))
            start += self._step * per_record

    def layout(self, count: int) -> StringLayout:
        """Return a layout for so many strings like these, with a dictionary that is trained on the sample."""
        per_record = strings_per_record(self._strings, self._bytes)
        return StringLayout(per_record, count, self._train(self._bytes * count // max(self._strings, 1)))

    def _train(self, total_bytes: int) -> bytes:
        """Train a dictionary for strings of so many bytes; b"" if they are too few for one."""
        import zstandard

        size = min(MOST_DICTIONARY_BYTES, total_bytes // DICTIONARY_SHARE)
        if size < 1 << 8:
            return b""
        try:
            return zstandard.train_dictionary(size, list(self.records), level=LEVEL).as_bytes()
        except zstandard.ZstdError:  # there is nothing to learn
            return b""
