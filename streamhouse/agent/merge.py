"""Small segments become large ones, in the background.

Rolls of slow partitions leave many small objects. A run of neighbouring small segments is read,
laid out in full-sized blocks and written as one segment over the same [base, end); one fenced
statement then swaps them. The newest segment is left alone: its tail holds the snapshot that the
partition's row names.
"""

from streamhouse.agent.options import AgentOptions
from streamhouse.agent.partition import Partition
from streamhouse.agent.reader import ColdReader
from streamhouse.agent.roll import add_blocks
from streamhouse.agent.stored import put_once
from streamhouse.agent.swap import SegmentSwap
from streamhouse.agent.tail import Buffer
from streamhouse.kafka_proto.record_batch import iter_batches
from streamhouse.model.errors import Fenced, NotFound
from streamhouse.model.keys import SegmentName, segment_key
from streamhouse.model.limits import CHUNK_BYTES_TARGET
from streamhouse.model.partition import SegmentRef, SegmentReplacement
from streamhouse.ports.clock import Clock, Ids
from streamhouse.ports.objects import ObjectStore
from streamhouse.ports.workers import Workers
from streamhouse.segment.encode import BlockStats, SegmentBuilder


def merge_run(
    segments: list[SegmentRef], *, small_bytes: int, segments_min: int, bytes_max: int
) -> list[SegmentRef]:
    """The first run of neighbours worth merging, or nothing. Pure.

    A run grows while its segments are small and together fit one segment; it is taken when it has
    enough members that merging pays for the copy.
    """
    run: list[SegmentRef] = []
    total = 0
    for segment in segments[:-1]:
        contiguous = not run or run[-1].end == segment.base
        fits = total + segment.bytes_raw <= bytes_max
        if segment.bytes_stored < small_bytes and contiguous and fits:
            run.append(segment)
            total += segment.bytes_raw
            continue
        if len(run) >= segments_min:
            return run
        small = segment.bytes_stored < small_bytes
        run, total = ([segment], segment.bytes_raw) if small else ([], 0)
    return run if len(run) >= segments_min else []


class Merger:
    def __init__(
        self,
        *,
        objects: ObjectStore,
        swap: SegmentSwap,
        reader: ColdReader,
        workers: Workers,
        clock: Clock,
        ids: Ids,
        options: AgentOptions,
    ) -> None:
        self._objects = objects
        self._swap = swap
        self._reader = reader
        self._workers = workers
        self._clock = clock
        self._ids = ids
        self._options = options
        self.merges = 0

    async def merge(self, partition: Partition) -> bool:
        """Merge one run of small segments. False if there is none."""
        run = merge_run(
            [s for s in partition.segments if s.base >= partition.machine.log_start],
            small_bytes=self._options.merge_bytes_small,
            segments_min=self._options.merge_segments_min,
            bytes_max=self._options.segment_bytes_max,
        )
        if not run or partition.closed or partition.change is not None:
            return False
        merged = await self._write(partition, run)
        change = SegmentReplacement(partition.machine.fence, tuple(s.key for s in run), (merged,))
        try:
            await self._swap.replace(partition, change)
        except (Fenced, NotFound):
            await self._objects.delete([merged.key])
            raise
        self.merges += 1
        return True

    async def _write(self, partition: Partition, run: list[SegmentRef]) -> SegmentRef:
        machine = partition.machine
        base, end = run[0].base, run[-1].end
        builder = SegmentBuilder(machine.tp, base)
        pending: list[Buffer] = []
        for segment in run:
            pending.append(await self._raw(segment))
            if sum(map(len, pending)) >= CHUNK_BYTES_TARGET:
                await self._workers.run(_add_regrouped, builder, pending)
                pending = []
        if pending:
            await self._workers.run(_add_regrouped, builder, pending)
        newest = await self._reader.tail_of(run[-1].key, run[-1].bytes_stored)
        encoded = builder.finish(end, newest.snapshot)
        generation = 1 + max(segment.generation for segment in run)
        name = SegmentName(machine.tp, base, end, machine.epoch, self._ids.nonce())
        # Retention goes by the older of record time and commit time, so the newest of the inputs.
        created_ms = max(segment.created_ms for segment in run)
        merged = encoded.ref(
            segment_key(name), epoch=machine.epoch, created_ms=created_ms, generation=generation
        )
        assert merged.record_count == sum(segment.record_count for segment in run)
        partition.uploads.add(merged.key)
        try:
            await put_once(self._objects, merged.key, encoded.buffers)
        except BaseException:
            partition.uploads.discard(merged.key)
            raise
        return merged

    async def _raw(self, segment: SegmentRef) -> Buffer:
        """All batches of a segment end to end, past the cache: nobody else asked for them."""
        tail = await self._reader.tail_of(segment.key, segment.bytes_stored)
        if not tail.blocks:
            return b""
        runs = await self._reader.read_blocks(segment.key, tail.blocks)
        return b"".join(run.body for run in runs)


def _add_regrouped(builder: SegmentBuilder, raws: list[Buffer]) -> None:
    """Cut the batches into blocks of the target size."""
    body = b"".join(raws)
    start = 0
    for position, _ in iter_batches(memoryview(body)):
        if position - start >= CHUNK_BYTES_TARGET:
            _add(builder, body, start, position)
            start = position
    _add(builder, body, start, len(body))


def _add(builder: SegmentBuilder, body: bytes, start: int, stop: int) -> None:
    if start == stop:
        return
    view = memoryview(body)[start:stop]
    stats, compressed = block_stats(view)
    add_blocks(builder, [(view, stats, not compressed)])


def block_stats(view: memoryview) -> tuple[BlockStats, bool]:
    """What the index says about a block, and whether all its batches came compressed."""
    headers = [header for _, header in iter_batches(view)]
    stats = BlockStats(
        base=headers[0].base_offset,
        last=headers[-1].end_offset - 1,
        record_count=sum(h.record_count for h in headers),
        control_count=sum(h.record_count for h in headers if h.is_control),
        timestamp_min_ms=min(h.base_timestamp_ms for h in headers),
        timestamp_max_ms=max(h.max_timestamp_ms for h in headers),
        epoch_first=headers[0].leader_epoch,
        epoch_last=headers[-1].leader_epoch,
    )
    return stats, all(h.attributes & 0x07 for h in headers)
