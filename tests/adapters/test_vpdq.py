"""The index of videos beside the index of threatexchange."""

import io
import sys
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("threatexchange")


class VpdqFeature:
    """Named in annotations of threatexchange."""


try:
    import vpdq  # noqa: F401
except ImportError:  # hashes videos, needs FFmpeg to compile; comparing needs none of it
    module = ModuleType("vpdq")
    module.VpdqFeature = VpdqFeature
    sys.modules["vpdq"] = module

from threatexchange.extensions.vpdq.vpdq_index import VPDQIndex as FaissIndex  # noqa: E402
from threatexchange.extensions.vpdq.vpdq_util import (  # noqa: E402
    VpdqCompactFeature,
    vpdq_to_json,
)

from fpstore import InputError  # noqa: E402
from fpstore.adapters.vpdq import VPDQIndex  # noqa: E402


def videos(seed, count):
    """Return videos that share scenes, with near, equal and poor frames."""
    generator = np.random.default_rng(seed)
    scenes = generator.integers(0, 2, (6, 256), np.uint8)
    for _ in range(count):
        frames = []
        for time in range(generator.integers(1, 12)):
            frame = scenes[generator.integers(len(scenes))].copy()
            frame[generator.choice(256, generator.integers(0, 22), replace=False)] ^= 1
            quality = int(generator.choice([20, 50, 100], p=[0.1, 0.2, 0.7]))
            frames.append(
                VpdqCompactFeature(np.packbits(frame).tobytes().hex(), quality, float(time))
            )
        frames[0].quality = 100
        yield vpdq_to_json([*frames, frames[0]])


def found(index, query):
    return sorted(
        (
            m.metadata,
            m.similarity_info.query_match_percent,
            m.similarity_info.compared_match_percent,
        )
        for m in index.query(query)
    )


@pytest.mark.parametrize("thresholds", [(), (50, 0, 0), (0, 40.0, 60.0), (100, 100.0, 100.0)])
def test_answers_are_those_of_the_index_by_faiss(thresholds):
    entries = [(video, number) for number, video in enumerate(videos(1, 30))]
    index, other = VPDQIndex.build(entries, *thresholds), FaissIndex.build(entries, *thresholds)
    queries = [*(video for video, _ in entries), *videos(2, 20), "[]"]
    answers = [found(index, query) for query in queries]
    assert answers == [found(other, query) for query in queries]
    assert sum(map(len, answers)) > 20
    index.add(queries[-2], 1000)
    other.add(queries[-2], 1000)
    assert found(index, queries[-2]) == found(other, queries[-2]) != []


def test_a_video_without_frames_is_refused():
    (video,) = videos(3, 1)
    index = VPDQIndex()
    assert index.query(video) == []
    with pytest.raises(InputError, match="no frames of this quality"):
        index.add_all([(video, 1), ("[]", 2)])
    assert index.query(video) == []
    index.add(video, 1)
    assert found(index, video) == [(1, 100.0, 100.0)]


def test_the_index_is_serialized():
    entries = [(video, {"number": number}) for number, video in enumerate(videos(4, 5))]
    index = VPDQIndex.build(entries, query_match_threshold_pct=0)
    buffer = io.BytesIO()
    index.serialize(buffer)
    buffer.seek(0)
    copy = VPDQIndex.deserialize(buffer)
    index.dispose()
    other = FaissIndex.build(entries, query_match_threshold_pct=0)
    for query, _ in entries:
        assert sorted(m.metadata["number"] for m in copy.query(query)) == sorted(
            m.metadata["number"] for m in other.query(query)
        )
