"""Offsets by timestamp, exact to the record.

Timestamps are not monotone, so the search prunes by the maximum of each segment, block and batch
and never bisects. Nothing above the high watermark is considered.
"""

from collections.abc import AsyncIterator
from typing import NamedTuple

from streamhouse.agent.batch_run import BatchRun
from streamhouse.agent.partition import Partition
from streamhouse.agent.reader import ColdReader
from streamhouse.kafka_proto.record_batch import decode_records, read_header
from streamhouse.model.errors import DecodeError, NotFound
from streamhouse.model.records import Record


class FoundOffset(NamedTuple):
    offset: int
    timestamp_ms: int


class TimestampLookup:
    def __init__(self, reader: ColdReader) -> None:
        self._reader = reader

    async def first_at_or_after(
        self, partition: Partition, timestamp_ms: int, stop_offset: int
    ) -> FoundOffset | None:
        """The first record, by offset, whose timestamp is `timestamp_ms` or later."""
        log_start = partition.machine.log_start
        async for run in self._runs(partition, timestamp_ms, stop_offset):
            for index in range(len(run.bases)):
                if run.bases[index] >= stop_offset:
                    break
                batch = run.batch(index)
                if read_header(batch).max_timestamp_ms < timestamp_ms:
                    continue
                for record in _records(batch):
                    if record.offset >= log_start and record.timestamp_ms >= timestamp_ms:
                        return FoundOffset(record.offset, record.timestamp_ms)
        return None

    async def latest(self, partition: Partition, stop_offset: int) -> FoundOffset | None:
        """The record with the highest timestamp; of equals, the first."""
        best: FoundOffset | None = None
        for timestamp_max_ms, base, end in _stretches(partition):
            if best is not None and (timestamp_max_ms, -base) <= (best.timestamp_ms, -best.offset):
                break
            best = await self._latest_within(partition, base, min(end, stop_offset), best)
        return best

    async def _latest_within(
        self, partition: Partition, base: int, end: int, best: FoundOffset | None
    ) -> FoundOffset | None:
        offset = base
        while offset < end:
            run = await self._reader.run_at(partition, offset)
            if run is None:
                break
            best = _newest_of(run, end, partition.machine.log_start, best)
            offset = max(run.end, offset + 1)
        return best

    async def _runs(
        self, partition: Partition, timestamp_ms: int, stop_offset: int
    ) -> AsyncIterator[BatchRun]:
        """Runs that can hold a record at or after the time, in offset order."""
        offset = partition.machine.log_start
        while offset < stop_offset:
            following = await self._skip(partition, offset, timestamp_ms)
            if following > offset:
                offset = following
                continue
            run = await self._reader.run_at(partition, offset)
            if run is None:
                return
            yield run
            offset = max(run.end, offset + 1)

    async def _skip(self, partition: Partition, offset: int, timestamp_ms: int) -> int:
        """Past what is all older than the time; `offset` itself if it must be read."""
        chunk = partition.tail.chunk_at(offset)
        if chunk is not None:
            return chunk.end if chunk.timestamp_max_ms < timestamp_ms else offset
        try:
            segment = partition.segment_for(offset)
        except NotFound:
            # Retention was here meanwhile: go on where the log begins now. Or a gap left by
            # accepted loss: the reader knows what follows it.
            return max(offset, partition.machine.log_start)
        if segment.timestamp_max_ms < timestamp_ms:
            return segment.end
        tail = await self._reader.tail_of(segment.key, segment.bytes_stored)
        index = tail.find_block(offset)
        if index is None:
            return segment.end
        entry = tail.blocks[index]
        return entry.last + 1 if entry.timestamp_max_ms < timestamp_ms else offset


def _records(batch: memoryview) -> list[Record]:
    """The records of a batch. If a client sent rubbish in an intact batch, its header must do."""
    try:
        return decode_records(batch)
    except DecodeError:
        header = read_header(batch)
        return [Record(header.base_offset, header.max_timestamp_ms, None, None)]


def _stretches(partition: Partition) -> list[tuple[int, int, int]]:
    """(highest timestamp, base, end) of segments and chunks, the most promising first."""
    log_start, hot = partition.machine.log_start, partition.tail.base
    found = [
        (segment.timestamp_max_ms, max(segment.base, log_start), min(segment.end, hot))
        for segment in partition.segments
        if segment.end > log_start and segment.base < hot
    ]
    for chunk in partition.tail.chunks_from(log_start):
        found.append((chunk.timestamp_max_ms, max(chunk.base, log_start), chunk.end))
    return sorted(found, key=lambda stretch: (-stretch[0], stretch[1]))


def _newest_of(
    run: BatchRun, stop_offset: int, log_start: int, best: FoundOffset | None
) -> FoundOffset | None:
    for index in range(len(run.bases)):
        if run.bases[index] >= stop_offset:
            break
        batch = run.batch(index)
        if best is not None and read_header(batch).max_timestamp_ms < best.timestamp_ms:
            continue
        for record in _records(batch):
            newer = best is None or (
                (record.timestamp_ms, -record.offset) > (best.timestamp_ms, -best.offset)
            )
            if record.offset >= log_start and newer:
                best = FoundOffset(record.offset, record.timestamp_ms)
    return best
