"""Small segments as they lie in a store, for tests of what looks at them from outside."""

from typing import NamedTuple

from streamhouse.model.keys import SegmentName, segment_key
from streamhouse.model.partition import SegmentRef
from streamhouse.model.producers import PartitionSnapshot
from streamhouse.segment.encode import SegmentBuilder
from tests.unit.segment.segment_samples import TP, batch, joined

__all__ = ["TP", "StoredSegment", "stored_segment"]


class StoredSegment(NamedTuple):
    ref: SegmentRef
    body: bytes


def stored_segment(base: int, count: int) -> StoredSegment:
    """A segment of `count` records from `base` on, in two blocks."""
    builder = SegmentBuilder(TP, base)
    half = count // 2
    for start, size in ((base, half), (base + half, count - half)):
        body, stats = batch(start, [b"value %d" % n for n in range(start, start + size)])
        builder.add_block(body, stats, compress=False)
    end = base + count
    segment = builder.finish(end, PartitionSnapshot(offset=end))
    key = segment_key(SegmentName(TP, base, end, 5, "ab"))
    return StoredSegment(segment.ref(key, epoch=5, created_ms=0), joined(segment))
