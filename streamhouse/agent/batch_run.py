"""A run of record batches of one partition, laid end to end, with an index over them.

The same shape serves the hot tail (a sealed chunk) and cold reads (a decoded STRM block), so that
both are cut for a fetch in the same way: two binary searches, one slice, no walk over batches.

Invariants: `bases` and `positions` ascend and have one entry per batch; `end` is the offset after
the last record.
"""

from array import array
from bisect import bisect_left, bisect_right

from streamhouse.kafka_proto.record_batch import iter_batches, last_offset_delta


class BatchRun:
    __slots__ = ("bases", "body", "end", "positions")

    def __init__(
        self, body: bytes | memoryview, bases: "array[int]", positions: "array[int]", end: int
    ) -> None:
        assert len(bases) == len(positions)
        self.body = memoryview(body)
        self.bases = bases
        self.positions = positions
        self.end = end

    @classmethod
    def of_block(cls, body: bytes) -> "BatchRun":
        """Index the batches of a decoded block."""
        bases, positions = array("q"), array("q")
        end = 0
        for position, header in iter_batches(memoryview(body)):
            bases.append(header.base_offset)
            positions.append(position)
            end = header.end_offset
        return cls(body, bases, positions, end)

    @property
    def base(self) -> int:
        return self.bases[0]

    def batch(self, index: int) -> memoryview:
        """The bytes of the batch with this index."""
        following = index + 1
        stop = self.positions[following] if following < len(self.positions) else len(self.body)
        return self.body[self.positions[index] : stop]

    def index_from(self, offset: int) -> int:
        """Index of the batch that holds `offset` or, in a gap, of the next (or the count)."""
        index = index_for(self.bases, offset)
        end = self.bases[index] + last_offset_delta(self.body, self.positions[index]) + 1
        return index + 1 if offset >= end else index

    def cut(self, offset: int, stop_offset: int, bytes_max: int, at_least_one: bool) -> memoryview:
        """Whole batches from the one that holds `offset`, below `stop_offset`, within `bytes_max`.

        If `at_least_one`, the first batch is given even when it alone is larger than `bytes_max`.
        An offset in a gap between batches begins at the next batch.
        """
        first = self.index_from(offset)
        if first == len(self.bases):
            return self.body[0:0]
        start = self.positions[first]
        following = bisect_left(self.bases, stop_offset)
        limit = self.positions[following] if following < len(self.bases) else len(self.body)
        if limit - start <= bytes_max:
            return self.body[start:limit]
        last = bisect_right(self.positions, start + bytes_max) - 1
        if last <= first:
            return self.batch(first) if at_least_one else self.body[0:0]
        return self.body[start : self.positions[last]]


def index_for(bases: "array[int]", offset: int) -> int:
    """Index of the batch that holds `offset` (the first batch, if `offset` lies before it)."""
    return max(bisect_right(bases, offset) - 1, 0)
