"""From tail to segment: encode, store, register, then trim the WAL. In that order.

A roll takes only what is committed. If the object store refuses, everything stays where it is, in
tail and WAL, and is tried again later; the key carries a nonce, so a second try never meets the
first one's object, which a later sweep removes as an orphan. Once the object is stored, the next
try registers that same object: its registration may have happened although no answer came.
"""

import logging
from dataclasses import dataclass

from streamhouse.agent.machine import PartitionMachine, RollPolicy
from streamhouse.agent.options import AgentOptions
from streamhouse.agent.partition import Partition
from streamhouse.agent.reader import ColdReader
from streamhouse.agent.stored import put_once
from streamhouse.agent.tail import Buffer, Chunk
from streamhouse.model.errors import OutcomeUnknown, StreamhouseError, Unavailable
from streamhouse.model.ids import TopicPartition
from streamhouse.model.keys import SegmentName, segment_key
from streamhouse.model.limits import MIB
from streamhouse.model.partition import PartitionRow, SegmentCommit, SegmentRef
from streamhouse.ports.clock import Clock, Ids
from streamhouse.ports.metadata import SegmentRegistry
from streamhouse.ports.objects import ObjectStore
from streamhouse.ports.workers import Workers
from streamhouse.segment.encode import BlockStats, SegmentBuilder

log = logging.getLogger(__name__)

ENCODE_BYTES_PER_CALL = 8 * MIB
COMMIT_TRIES_MAX = 5


@dataclass(frozen=True, slots=True)
class _Stored:
    """A segment whose object is stored and whose registration is not known to have happened."""

    partition: Partition
    segment: SegmentRef
    chunks: list[Chunk]


class Roller:
    def __init__(
        self,
        *,
        objects: ObjectStore,
        registry: SegmentRegistry,
        reader: ColdReader,
        workers: Workers,
        clock: Clock,
        ids: Ids,
        options: AgentOptions,
    ) -> None:
        self._objects = objects
        self._registry = registry
        self._reader = reader
        self._workers = workers
        self._clock = clock
        self._ids = ids
        self._options = options
        self._unsettled: dict[TopicPartition, _Stored] = {}
        self.segments_rolled = 0

    def is_due(self, partition: Partition) -> bool:
        settings = partition.topic.settings
        policy = RollPolicy(
            settings.segment_bytes or self._options.segment_max_size,
            settings.segment_ms or self._options.segment_max_age_ms,
        )
        tail = partition.tail
        return PartitionMachine.is_due(
            policy, tail.bytes_unrolled, tail.oldest_unrolled_ms(), self._clock.now_ms()
        )

    async def roll(self, partition: Partition) -> bool:
        """Roll what has accumulated, up to one segment's worth. False if there was nothing.

        Raises Unavailable or OutcomeUnknown when a store does not play along: nothing is lost, try
        again. Raises Fenced when this process no longer leads the partition.
        """
        stored = self._unsettled.get(partition.tp) or await self._store(partition)
        if stored is None:
            return False
        await self._register(stored)
        self.segments_rolled += 1
        return True

    async def close_gap(self, partition: Partition) -> None:
        """Put everything into segments, and the gap that accepted loss left in its own or theirs.

        Once registered, the gap is part of what the store knows, and no later start stumbles on it.
        """
        while await self.roll(partition):
            pass
        machine = partition.machine
        if machine.segments_end < machine.offset_durable:
            await self._register(await self._put(partition, [], machine.offset_durable))

    async def _store(self, partition: Partition) -> _Stored | None:
        chunks = self._take(partition)
        return await self._put(partition, chunks, chunks[-1].end) if chunks else None

    async def _put(self, partition: Partition, chunks: list[Chunk], end: int) -> _Stored:
        machine = partition.machine
        base = machine.segments_end
        builder = SegmentBuilder(machine.tp, base)
        await self._encode_blocks(builder, chunks)
        encoded = builder.finish(end, machine.snapshot_at(end), epoch=machine.epoch)
        name = SegmentName(machine.tp, base, end, machine.epoch, self._ids.nonce())
        segment = encoded.ref(
            segment_key(name), epoch=machine.epoch, created_ms=self._clock.now_ms()
        )
        partition.uploads.add(segment.key)
        try:
            await put_once(self._objects, segment.key, encoded.buffers)
        except BaseException:
            partition.uploads.discard(segment.key)
            raise
        stored = _Stored(partition, segment, chunks)
        self._unsettled[partition.tp] = stored
        return stored

    async def _register(self, stored: _Stored) -> None:
        partition, segment = stored.partition, stored.segment
        try:
            row = await self._commit(partition, segment)
        except (Unavailable, OutcomeUnknown):
            raise  # an earlier try may have gone through: the same command again finds out
        except StreamhouseError:
            self._settled(stored)
            await self._objects.delete([segment.key])
            raise
        self._settled(stored)
        if not partition.closed:
            partition.machine.on_rolled(segment.end)
            partition.add_segment(segment, row)
            partition.tail.on_rolled(stored.chunks)

    def _settled(self, stored: _Stored) -> None:
        self._unsettled.pop(stored.partition.tp, None)
        stored.partition.uploads.discard(stored.segment.key)

    def _take(self, partition: Partition) -> list[Chunk]:
        """Sealed, committed, unrolled chunks, as many as fit one segment."""
        taken: list[Chunk] = []
        tail, total = partition.tail, 0
        if tail.end <= partition.machine.high_watermark:
            tail.seal_open()
        for chunk in tail.unrolled():
            total += chunk.size
            if not chunk.sealed or chunk.end > partition.machine.high_watermark:
                break
            if taken and total > self._options.roll_bytes_max:
                break
            taken.append(chunk)
        return taken

    async def _encode_blocks(self, builder: SegmentBuilder, chunks: list[Chunk]) -> None:
        parts: list[tuple[Buffer, BlockStats, bool]] = []
        total = 0
        for chunk in chunks:
            parts.append((await self._reader.chunk_body(chunk), stats_of(chunk), _compress(chunk)))
            total += chunk.size
            if total >= ENCODE_BYTES_PER_CALL:
                await self._workers.run(add_blocks, builder, parts)
                parts, total = [], 0
        await self._workers.run(add_blocks, builder, parts)

    async def _commit(self, partition: Partition, segment: SegmentRef) -> PartitionRow:
        machine = partition.machine
        terms = machine.terms_between(segment.base, segment.end)
        commit = SegmentCommit(machine.fence, segment, terms)
        for _ in range(COMMIT_TRIES_MAX):
            try:
                return await self._registry.commit_segment(commit)
            except OutcomeUnknown:
                continue  # idempotent by key: the same command again finds out
        raise OutcomeUnknown(f"{machine.tp}: commit of {segment.key} was not answered")


def add_blocks(builder: SegmentBuilder, parts: list[tuple[Buffer, BlockStats, bool]]) -> None:
    for raw, stats, compress in parts:
        builder.add_block(raw, stats, compress)


def stats_of(chunk: Chunk) -> BlockStats:
    return BlockStats(
        base=chunk.base,
        last=chunk.end - 1,
        record_count=chunk.records,
        control_count=0,
        timestamp_min_ms=chunk.timestamp_min_ms,
        timestamp_max_ms=chunk.timestamp_max_ms,
        epoch_first=chunk.epoch_first,
        epoch_last=chunk.epoch_last,
    )


def _compress(chunk: Chunk) -> bool:
    """Compress the block unless every batch in it came compressed."""
    return not chunk.compressed
