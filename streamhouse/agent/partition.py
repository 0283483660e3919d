"""One led partition: the machine, its tail, its segments, and who waits for new records."""

from bisect import bisect_right
from collections.abc import Callable

from streamhouse.agent.batch_run import index_for
from streamhouse.agent.machine import PartitionMachine
from streamhouse.agent.tail import Buffer, Tail, TailBudget
from streamhouse.model.errors import NotFound, OffsetOutOfRange
from streamhouse.model.ids import ObjectKey, TopicPartition
from streamhouse.model.partition import PartitionRow, SegmentRef, SegmentReplacement, Term
from streamhouse.model.topic import Topic


class Partition:
    """Owned by the agent service; mutated only on the event loop."""

    __slots__ = (
        "_segment_bases",
        "change",
        "closed",
        "machine",
        "manifest_version",
        "manifest_written",
        "segments",
        "snapshot_key",
        "tail",
        "topic",
        "uploads",
        "waiters",
    )

    def __init__(
        self,
        topic: Topic,
        row: PartitionRow,
        terms: list[Term],
        segments: list[SegmentRef],
        budget: TailBudget,
    ) -> None:
        self.topic = topic
        self.machine = PartitionMachine(row, terms)
        self.tail = Tail(budget, row.segments_end)
        self.segments = segments
        self._segment_bases = [segment.base for segment in segments]
        self.snapshot_key: ObjectKey | None = row.snapshot_key
        self.manifest_version = row.manifest_version
        self.manifest_written = row.manifest_written
        self.waiters: set[Callable[[], None]] = set()
        self.closed = False  # the topic was deleted, or leadership is gone
        # Objects that are being written or whose registration is not settled: nobody may take
        # them for orphans, however long the stores take to answer.
        self.uploads: set[ObjectKey] = set()
        self.change: SegmentReplacement | None = None  # asked for, and not known to be done

    @property
    def tp(self) -> TopicPartition:
        return self.machine.tp

    # -- reading ---------------------------------------------------------------------------------

    def stop_offset(self, committed_only: bool) -> int:
        """Readers see nothing at or above this offset."""
        machine = self.machine
        return machine.offset_stable if committed_only else machine.high_watermark

    def check_range(self, offset: int) -> None:
        machine = self.machine
        if not machine.log_start <= offset <= machine.offset_durable:
            raise OffsetOutOfRange(offset, machine.log_start, machine.offset_durable)

    def read_hot(
        self, offset: int, stop_offset: int, bytes_max: int, at_least_one: bool
    ) -> list[Buffer] | None:
        """Batches from memory, or None if they have to be fetched from the WAL or a segment."""
        if offset >= stop_offset:
            return []
        tail = self.tail
        if offset < tail.base:
            return None
        found: list[Buffer] = []
        for chunk in tail.chunks_from(offset):
            if chunk.base >= stop_offset or bytes_max <= 0:
                break
            if not chunk.resident:
                return found or None
            part = chunk.cut(offset, stop_offset, bytes_max, at_least_one and not found)
            if not part:
                break
            found += part
            size = sum(map(len, part))
            bytes_max -= size
            if size < chunk.size - chunk.positions[index_for(chunk.bases, offset)]:
                break  # cut short: a batch of the next chunk, if it fitted, would leave a gap
        return found

    def segment_for(self, offset: int) -> SegmentRef:
        """The segment that holds `offset`. Raises NotFound above `segments_end`."""
        index = bisect_right(self._segment_bases, offset) - 1
        if index < 0 or offset >= self.segments[index].end:
            raise NotFound(f"{self.tp}: no segment holds offset {offset}")
        return self.segments[index]

    # -- the segment set -------------------------------------------------------------------------

    def add_segment(self, segment: SegmentRef, row: PartitionRow) -> None:
        assert not self.segments or self.segments[-1].end <= segment.base
        self.segments.append(segment)
        self._segment_bases.append(segment.base)
        self._take_row(row)

    def replace_segments(
        self, old: frozenset[ObjectKey], new: tuple[SegmentRef, ...], row: PartitionRow
    ) -> None:
        kept = [segment for segment in self.segments if segment.key not in old]
        self.segments = sorted([*kept, *new], key=lambda segment: segment.base)
        self._segment_bases = [segment.base for segment in self.segments]
        self._take_row(row)

    def _take_row(self, row: PartitionRow) -> None:
        """Rolls and upkeep run side by side, so an older row may be answered after a newer one."""
        if row.manifest_version >= self.manifest_version:
            self.snapshot_key = row.snapshot_key
            self.manifest_version = row.manifest_version
        self.manifest_written = max(self.manifest_written, row.manifest_written)

    # -- waiting ---------------------------------------------------------------------------------

    def wake(self) -> None:
        for waiter in list(self.waiters):
            waiter()

    def close(self) -> None:
        """Nothing more is appended or read here; whoever waits finds out now."""
        self.closed = True
        self.tail.drop_all()
        self.wake()
