"""Reads that memory cannot answer: blocks of segments, and chunks that live only in the WAL.

Decoded blocks are shared: one read and one decode serve every reader that wants the block at that
moment, and a bounded cache serves the next ones. The number of reads under way is bounded, so that
a backfill cannot crowd out the rest; whoever reads in order finds the next blocks read ahead.
Coordinates are hints: an object that is gone makes us look up the offset again, never skip it.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from streamhouse.agent.batch_run import BatchRun
from streamhouse.agent.partition import Partition
from streamhouse.agent.tail import Buffer, Chunk
from streamhouse.model.errors import NotFound, StreamhouseError, Unavailable
from streamhouse.model.ids import ObjectKey
from streamhouse.model.limits import COLD_READS_MAX, MIB
from streamhouse.model.partition import SegmentRef
from streamhouse.ports.objects import ObjectStore
from streamhouse.ports.wal import Wal
from streamhouse.ports.workers import Workers
from streamhouse.segment.block import BlockEntry, decode_block
from streamhouse.segment.decode import NeedMore, SegmentTail, decode_tail, tail_start

log = logging.getLogger(__name__)

READ_AHEAD_BYTES = 1 * MIB  # one read brings this much, if so much follows
READS_AHEAD_MAX = 16
TAILS_CACHED_MAX = 512
RESOLVE_TRIES_MAX = 3

V = TypeVar("V")


class SharedCache(Generic[V]):
    """Least recently used values, bounded by cost; concurrent loads of one key run once."""

    def __init__(self, cost_max: int, cost: Callable[[V], int]) -> None:
        self._cost_max = cost_max
        self._cost = cost
        self._values: OrderedDict[Hashable, V] = OrderedDict()
        self._loading: dict[Hashable, asyncio.Future[None]] = {}
        self.cost_used = 0
        self.hits = 0
        self.misses = 0

    def get(self, key: Hashable) -> V | None:
        found = self._values.get(key)
        if found is not None:
            self._values.move_to_end(key)
        return found

    def put(self, key: Hashable, value: V) -> None:
        if key in self._values:
            return
        self._values[key] = value
        self.cost_used += self._cost(value)
        while self.cost_used > self._cost_max and len(self._values) > 1:
            _, dropped = self._values.popitem(last=False)
            self.cost_used -= self._cost(dropped)

    async def load(self, key: Hashable, fill: Callable[[], Awaitable[V]]) -> V:
        """The cached value, or what `fill` returns; callers that come meanwhile wait for it."""
        while True:
            found = self.get(key)
            if found is not None:
                self.hits += 1
                return found
            under_way = self._loading.get(key)
            if under_way is None:
                break
            await asyncio.shield(under_way)
        self.misses += 1
        done = asyncio.get_running_loop().create_future()
        self._loading[key] = done
        try:
            value = await fill()
            self.put(key, value)
            return value
        finally:
            del self._loading[key]
            done.set_result(None)


class ColdReader:
    def __init__(
        self, *, objects: ObjectStore, wal: Wal, workers: Workers, cache_bytes_max: int
    ) -> None:
        self._objects = objects
        self._wal = wal
        self._workers = workers
        self._reads = asyncio.Semaphore(COLD_READS_MAX)
        self.runs: SharedCache[BatchRun] = SharedCache(cache_bytes_max, lambda run: len(run.body))
        self.tails: SharedCache[SegmentTail] = SharedCache(TAILS_CACHED_MAX, lambda _: 1)
        self._ahead: dict[Partition, asyncio.Task[None]] = {}
        self.bytes_read = 0

    async def read(
        self,
        partition: Partition,
        offset: int,
        stop_offset: int,
        bytes_max: int,
        at_least_one: bool,
    ) -> list[Buffer]:
        """Whole batches from the one that holds `offset`; waits for a store once at most.

        What follows is added only while it is at hand: a client that gets a part sooner asks again
        sooner, and finds the rest read ahead.
        """
        found: list[Buffer] = []
        while offset < stop_offset and bytes_max > 0:
            hot = partition.read_hot(offset, stop_offset, bytes_max, at_least_one and not found)
            if hot is not None:
                return found + hot
            run = self._cached(partition, offset)
            if run is None and not found:
                run = await self.run_at(partition, offset)
            if run is None:
                break
            part = run.cut(offset, stop_offset, bytes_max, at_least_one and not found)
            if not len(part):
                return found
            found.append(part)
            bytes_max -= len(part)
            start = run.positions[run.index_from(offset)]
            if start + len(part) < len(run.body):
                return found
            offset = run.end
        if found:
            self._read_ahead(partition, offset, stop_offset)
        return found

    def _read_ahead(self, partition: Partition, offset: int, stop_offset: int) -> None:
        """Bring the next blocks into the cache while the client is busy with these."""
        if offset >= min(stop_offset, partition.machine.segments_end, partition.tail.base):
            return
        if partition in self._ahead or len(self._ahead) >= READS_AHEAD_MAX:
            return
        self._ahead[partition] = asyncio.create_task(self._fill_ahead(partition, offset))

    async def _fill_ahead(self, partition: Partition, offset: int) -> None:
        try:
            await self.run_at(partition, offset)
        except StreamhouseError as error:
            log.debug("%s: reading ahead at %d: %s", partition.tp, offset, error)
        finally:
            self._ahead.pop(partition, None)

    async def close(self) -> None:
        """Give up what was read ahead."""
        under_way = list(self._ahead.values())
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    def _cached(self, partition: Partition, offset: int) -> BatchRun | None:
        """What `run_at` would return, if that needs no store."""
        chunk = self._chunk_from(partition, offset)
        if chunk is not None:
            return chunk.run or self.runs.get((partition.tp, chunk.base))
        try:
            segment = partition.segment_for(offset)
        except NotFound:
            return None
        tail = self.tails.get(segment.key)
        index = None if tail is None else tail.find_block(offset)
        return None if index is None else self.runs.get((segment.key, index))

    async def run_at(self, partition: Partition, offset: int) -> BatchRun | None:
        """The run of batches that holds `offset` or what follows it in a gap; None at the log end.

        Gaps are left by accepted loss of WAL entries.
        """
        tries = 0
        while offset < partition.machine.offset_durable:
            try:
                chunk = self._chunk_from(partition, offset)
                if chunk is not None:
                    return await self._run_of_chunk(partition, chunk)
                segment = partition.segment_for(offset)
                run = await self._run_of_segment(segment, offset)
                if run is not None:
                    return run
                offset = segment.end
            except NotFound:
                tries += 1  # rolled, merged or retired meanwhile: resolve the offset again
                if tries == RESOLVE_TRIES_MAX:
                    raise Unavailable(f"{partition.tp}: offset {offset} keeps moving") from None
        return None

    def _chunk_from(self, partition: Partition, offset: int) -> Chunk | None:
        """The chunk to read for `offset`, unless a segment has to be asked."""
        tail = partition.tail
        if offset < tail.base and offset < partition.machine.segments_end:
            return None
        return next(tail.chunks_from(offset), None)

    async def chunk_body(self, chunk: Chunk) -> Buffer:
        """The batches of a sealed chunk end to end, from memory or from the WAL."""
        if chunk.run is not None:
            return chunk.run.body
        parts = await self._wal.read_many(chunk.sequences)
        return b"".join(parts)

    async def _run_of_chunk(self, partition: Partition, chunk: Chunk) -> BatchRun:
        if not chunk.sealed:
            return chunk.run_of(b"".join(chunk.bodies))
        if chunk.run is not None:
            return chunk.run

        async def fill() -> BatchRun:
            async with self._reads:
                return chunk.run_of(await self.chunk_body(chunk))

        return await self.runs.load((partition.tp, chunk.base), fill)

    async def _run_of_segment(self, segment: SegmentRef, offset: int) -> BatchRun | None:
        tail = await self.tail_of(segment.key, segment.bytes_stored)
        index = tail.find_block(offset)
        if index is None:
            return None  # the rest of the segment is a gap
        return await self._run_of_block(segment, tail, index)

    async def _run_of_block(self, segment: SegmentRef, tail: SegmentTail, index: int) -> BatchRun:
        async def fill() -> BatchRun:
            runs = await self.read_blocks(segment.key, _blocks_together(tail.blocks, index))
            for at, run in enumerate(runs[1:], index + 1):
                self.runs.put((segment.key, at), run)
            return runs[0]

        return await self.runs.load((segment.key, index), fill)

    async def read_blocks(self, key: ObjectKey, entries: list[BlockEntry]) -> list[BatchRun]:
        """Read neighbouring blocks with one ranged read, and decode them."""
        start = entries[0].position
        stop = entries[-1].stop
        async with self._reads:
            data = await self._objects.get_range(key, start, stop)
            self.bytes_read += len(data)
            return await self._workers.run(_decode_runs, entries, data, start)

    async def tail_of(self, key: ObjectKey, size: int) -> SegmentTail:
        """Footer, index and snapshot of a segment, by one ranged read (two if it is very long)."""

        async def fill() -> SegmentTail:
            wanted = size - tail_start(size)
            while True:
                data = await self._objects.get_range(key, size - wanted, size)
                tail = decode_tail(data, size)
                if not isinstance(tail, NeedMore):
                    return tail
                wanted = tail.bytes_needed

        return await self.tails.load(key, fill)


def _blocks_together(blocks: list[BlockEntry], index: int) -> list[BlockEntry]:
    """The block and as many that follow it as one read should bring."""
    chosen = [blocks[index]]
    total = blocks[index].raw_length
    for entry in blocks[index + 1 :]:
        total += entry.raw_length
        if total > READ_AHEAD_BYTES:
            break
        chosen.append(entry)
    return chosen


def _decode_runs(entries: list[BlockEntry], data: bytes, start: int) -> list[BatchRun]:
    view = memoryview(data)
    runs = []
    for entry in entries:
        at = entry.position - start
        runs.append(BatchRun.of_block(decode_block(entry, view[at : entry.stop - start])))
    return runs
