"""An index of vPDQ hashes of videos for `threatexchange`, in place of its FAISS index."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, Self, TypeVar

from threatexchange.extensions.vpdq.vpdq_index import VPDQSimilarityInfo
from threatexchange.extensions.vpdq.vpdq_util import (
    VPDQ_DISTANCE_THRESHOLD,
    VPDQ_INDEX_MATCH_THRESHOLD_PERCENT,
    VPDQ_QUALITY_THRESHOLD,
    VPDQ_QUERY_MATCH_THRESHOLD_PERCENT,
    prepare_vpdq_feature,
)
from threatexchange.signal_type.index import IndexMatch, SignalTypeIndex

import fpstore
from fpstore.adapters.folder import FolderIndex
from fpstore.adapters.threatexchange import PDQ_BITS, hash_rows
from fpstore.errors import InputError

__all__ = ["VPDQIndex"]

Entry = TypeVar("Entry")


class VPDQIndex(FolderIndex[fpstore.Store[int]], SignalTypeIndex[Entry], Generic[Entry]):
    """A ``SignalTypeIndex`` of videos: a frame is a fingerprint, and its ids are its videos.

    Frames below the quality threshold, and repeated frames of a video, are left out. A video
    matches if enough of its frames, and of the query's, have a frame of the other within 31 bits.

    Parameters
    ----------
    quality_threshold : int
    query_match_threshold_pct, index_match_threshold_pct : float
        The least share of frames, in percent, by default as in ``threatexchange``: 80 of the
        query's, and any of the indexed video's.
    """

    def __init__(
        self,
        quality_threshold: int = VPDQ_QUALITY_THRESHOLD,
        query_match_threshold_pct: float = VPDQ_QUERY_MATCH_THRESHOLD_PERCENT,
        index_match_threshold_pct: float = VPDQ_INDEX_MATCH_THRESHOLD_PERCENT,
    ) -> None:
        self.quality_threshold = quality_threshold
        self.query_match_threshold_pct = query_match_threshold_pct
        self.index_match_threshold_pct = index_match_threshold_pct
        self._videos: list[tuple[int, Entry]] = []  # number of frames, entry
        self._open(
            lambda path: fpstore.build(path, [], radius=VPDQ_DISTANCE_THRESHOLD, width=PDQ_BITS),
            path=None,
        )

    @classmethod
    def build(cls, entries: Iterable[tuple[str, Entry]], *thresholds: Any, **named: Any) -> Self:
        """Return an index of entries, with the thresholds of the class."""
        index = cls(*thresholds, **named)
        index.add_all(entries)
        return index

    def add(self, signal_str: str, entry: Entry) -> None:
        """Add a video; InputError if no frame has the quality."""
        self.add_all([(signal_str, entry)])

    def add_all(self, entries: Iterable[tuple[str, Entry]]) -> None:
        """Add videos in one change, or none of them."""
        videos: list[tuple[int, Entry]] = []
        hashes: list[str] = []
        numbers: list[int] = []
        for number, (signal_str, entry) in enumerate(entries, len(self._videos)):
            frames = [frame.pdq_hex for frame in self._frames(signal_str)]
            if not frames:
                raise InputError("the video has no frames of this quality: leave it out", got=entry)
            videos.append((len(frames), entry))
            hashes += frames
            numbers += [number] * len(frames)
        self.store.insert(hash_rows(hashes), numbers)
        self._videos += videos

    def _frames(self, signal_str: str) -> list[Any]:
        return prepare_vpdq_feature(signal_str, self.quality_threshold)  # type: ignore[no-any-return]

    def query(self, query: str) -> list[Any]:
        """Return an ``IndexMatch`` for each video that is similar enough."""
        frames = [frame.pdq_hex for frame in self._frames(query)]
        pairs: dict[int, tuple[set[int], set[int]]] = {}  # frames of the query, and of a video
        for place, matches in enumerate(self.store.probe_many(hash_rows(frames))):
            for match in matches:
                for number in match.ids:
                    of_query, of_video = pairs.setdefault(number, (set(), set()))
                    of_query.add(place)
                    of_video.add(match.fingerprint)
        results = []
        for number, (of_query, of_video) in sorted(pairs.items()):
            frame_count, entry = self._videos[number]
            info = VPDQSimilarityInfo(
                len(of_query) * 100 / len(frames), len(of_video) * 100 / frame_count
            )
            if (
                info.query_match_percent >= self.query_match_threshold_pct
                and info.compared_match_percent >= self.index_match_threshold_pct
            ):
                results.append(IndexMatch(info, entry))
        return results

    def dispose(self) -> None:
        """Close the store, and remove its folder."""
        self.close()
