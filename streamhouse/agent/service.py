"""The agent: leads partitions, and is what every door talks to.

Owns the tasks of this process's leadership (roll, upkeep) and joins them at stop. Decisions are in
`machine`, `retention` and `merge_run`; the I/O of each job is in a file of its own. Must not know:
Kafka requests, HTTP, SQL.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from streamhouse.agent.appends import Appended, Appender
from streamhouse.agent.catalog import Catalog
from streamhouse.agent.durability import Durability, Released
from streamhouse.agent.janitor import Janitor
from streamhouse.agent.lookup import FoundOffset, TimestampLookup
from streamhouse.agent.manifests import ManifestWriter
from streamhouse.agent.merge import Merger
from streamhouse.agent.options import AgentOptions
from streamhouse.agent.partition import Partition
from streamhouse.agent.reader import ColdReader
from streamhouse.agent.records import (
    RecordAccess,
    consumed,
    records_from,
    wait_for_records,
)
from streamhouse.agent.recover import Recovery
from streamhouse.agent.retention import droppable, log_start_after
from streamhouse.agent.roll import Roller
from streamhouse.agent.swap import SegmentSwap
from streamhouse.agent.tail import Buffer, TailBudget
from streamhouse.kafka_proto.record_batch import BatchRejected
from streamhouse.model.errors import (
    AlreadyExists,
    Corrupt,
    Fenced,
    NotFound,
    OffsetOutOfRange,
    OutcomeUnknown,
    StreamhouseError,
    Unavailable,
)
from streamhouse.model.ids import TopicId, TopicPartition
from streamhouse.model.limits import (
    PRODUCER_IDLE_MS_MAX,
    PRODUCER_IDS_PER_BLOCK,
    WAL_QUEUE_BYTES_MAX,
)
from streamhouse.model.partition import SegmentReplacement
from streamhouse.model.records import Consumed, NewRecord, Produced, Record
from streamhouse.model.topic import Topic, TopicSpec, check_spec
from streamhouse.ports.clock import Clock, Ids
from streamhouse.ports.metadata import MetadataStore
from streamhouse.ports.objects import ObjectStore
from streamhouse.ports.wal import Wal, WalEvents
from streamhouse.ports.workers import Workers

__all__ = ["AgentOptions", "AgentPorts", "AgentService", "Appended", "BatchRejected", "Partition"]

log = logging.getLogger(__name__)

ROLL_POLL_SECONDS = 0.2
ORPHAN_SWEEP_SECONDS = 900.0
STOP_SECONDS_MAX = 30.0
SETTLE_TRIES_MAX = 5
CONSUME_BYTES_PER_READ = 1_048_576
CONSUME_BYTES_MAX = 16 * CONSUME_BYTES_PER_READ  # of batches, for one answer

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AgentPorts:
    """Everything outside that an agent uses."""

    metadata: MetadataStore
    objects: ObjectStore
    wal: Wal
    workers: Workers
    clock: Clock
    ids: Ids


class AgentService:
    def __init__(
        self,
        ports: AgentPorts,
        options: AgentOptions,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self._ports = ports
        self._options = options
        self._on_fatal = on_fatal
        self._clock = ports.clock
        self._durability = Durability()
        self._budget = TailBudget(options.tail_bytes_max)
        self._tasks: list[asyncio.Task[None]] = []
        self._complaints: dict[str, str] = {}
        self._catalog_doubtful = False
        self._held: dict[TopicPartition, int] = {}
        self._producer_ids = range(0)
        # A process that died between registering and trimming, or a deleted topic, leaves WAL
        # files that no roll will ever free.
        self._trim_due = True
        self.catalog = Catalog()
        self.reader = ColdReader(
            objects=ports.objects,
            wal=ports.wal,
            workers=ports.workers,
            cache_bytes_max=options.block_cache_bytes_max,
        )
        self.lookup = TimestampLookup(self.reader)
        self.appender = Appender(wal=ports.wal, clock=ports.clock, durability=self._durability)
        self._records = RecordAccess(
            catalog=self.catalog, clock=ports.clock, append=self.appender.append
        )
        self.roller = Roller(
            objects=ports.objects,
            registry=ports.metadata,
            reader=self.reader,
            workers=ports.workers,
            clock=ports.clock,
            ids=ports.ids,
            options=options,
        )
        self.swap = SegmentSwap(registry=ports.metadata, clock=ports.clock)
        self.merger = Merger(
            objects=ports.objects,
            swap=self.swap,
            reader=self.reader,
            workers=ports.workers,
            clock=ports.clock,
            ids=ports.ids,
            options=options,
        )
        self.manifests = ManifestWriter(
            objects=ports.objects, registry=ports.metadata, clock=ports.clock
        )
        self.janitor = Janitor(
            objects=ports.objects,
            metadata=ports.metadata,
            catalog=self.catalog,
            clock=ports.clock,
            options=options,
        )
        self.recovery = Recovery(
            metadata=ports.metadata,
            wal=ports.wal,
            reader=self.reader,
            clock=ports.clock,
            budget=self._budget,
            options=options,
        )

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Recover, then lead. Raises StartRefused when the data says not to."""
        sequence_last = await self.recovery.run(self.catalog)
        self._durability.sequence_durable = sequence_last
        self.appender.start(sequence_last)
        for partition in self.catalog.partitions.values():
            if partition.tail.bytes_unrolled:
                self.appender.dirty[partition] = None
        await self._ports.wal.start(WalEvents(self._durability.on_durable, self._on_wal_failed))
        for partition in self.recovery.gaps:
            await self.roller.close_gap(partition)
        for run in (self._roll_loop, self._upkeep_loop):
            task = asyncio.create_task(run(), name=run.__name__)
            task.add_done_callback(self._on_task_done)
            self._tasks.append(task)

    async def stop(self) -> None:
        """Flush everything into segments and manifests, then let go of the WAL."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.reader.close()
        try:
            async with asyncio.timeout(STOP_SECONDS_MAX):
                await self._flush()
        except (TimeoutError, StreamhouseError) as error:
            # Nothing is lost: the WAL has it, and the next start replays it.
            log.warning("stopping with an unrolled tail: %s", error)
        await self._ports.wal.close()

    async def _flush(self) -> None:
        await self._durability.wait(self.appender.sequence_last)
        for partition in list(self.appender.dirty):
            while not partition.closed and await self.roller.roll(partition):
                pass
        for partition in list(self.catalog.partitions.values()):
            await self.manifests.write(partition)

    def _on_wal_failed(self, error: BaseException) -> None:
        self._durability.on_failed(error)
        self._on_fatal(error)

    def _on_task_done(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and task.exception() is not None:
            self._on_fatal(task.exception() or RuntimeError(task.get_name()))

    def problems(self) -> list[str]:
        """What a person should know about, one sentence each; empty when all is well."""
        found = [f"{job} fails: {why}" for job, why in self._complaints.items()]
        if self._ports.wal.is_low:
            found.append("the write-ahead log is nearly full; segments are not stored fast enough")
        return found

    # -- topics ----------------------------------------------------------------------------------

    async def create_topic(self, spec: TopicSpec) -> Topic:
        check_spec(spec)
        topic_id = TopicId(UUID(bytes=self._ports.ids.uuid()))
        metadata = self._ports.metadata
        try:
            topic = await _settled(
                lambda: metadata.create_topic(topic_id, spec, self._clock.now_ms())
            )
            partitions = await _settled(lambda: self.recovery.take_topic(topic))
        except (Unavailable, OutcomeUnknown, AlreadyExists):
            self._catalog_doubtful = True  # the store may know a topic that we do not lead
            raise
        if self.catalog.find(topic.name) is None:  # not adopted meanwhile
            self.catalog.add(topic, partitions)
        return self.catalog.find_id(topic.topic_id) or topic

    async def delete_topic(self, topic_id: TopicId) -> None:
        metadata, now_ms = self._ports.metadata, self._clock.now_ms()
        if self.catalog.find_id(topic_id) is None:
            raise NotFound(f"there is no topic with id {topic_id}")
        self._catalog_doubtful = True
        try:
            await metadata.delete_topic(topic_id, now_ms)
        except OutcomeUnknown:
            with suppress(NotFound):  # then the first try went through
                await metadata.delete_topic(topic_id, now_ms)
        self._forget(topic_id)

    def _forget(self, topic_id: TopicId) -> None:
        if self.catalog.find_id(topic_id) is None:
            return  # another request deleted it meanwhile
        for partition in self.catalog.remove(topic_id):
            self.appender.dirty.pop(partition, None)
            partition.close()
        self._trim_due = True

    async def reconcile_catalog(self) -> bool:
        """Make the catalog what the store says, after an answer of the store may have been lost."""
        if not self._catalog_doubtful:
            return False
        self._catalog_doubtful = False
        led = self.catalog.topics()  # before the store is asked: later ones are not in its answer
        try:
            stored = {topic.topic_id: topic for topic in await self._ports.metadata.list_topics()}
            for topic in led:
                if topic.topic_id not in stored:
                    self._forget(topic.topic_id)
            for topic in led:
                self._refresh_config(topic, stored.get(topic.topic_id))
            for topic in stored.values():
                await self._adopt(topic)
        except StreamhouseError:
            self._catalog_doubtful = True
            raise
        return True

    async def _adopt(self, topic: Topic) -> None:
        known = self.catalog.find_id(topic.topic_id)
        if known is None:
            partitions = await self.recovery.take_topic(topic)
            if self.catalog.find(topic.name) is None:
                self.catalog.add(topic, partitions)
        elif known.partition_count < topic.partition_count:
            with suppress(NotFound):  # deleted meanwhile
                await self._lead_added(topic)

    def _refresh_config(self, before: Topic, stored: Topic | None) -> None:
        """Take the stored settings, unless ours were changed since the store was asked."""
        if stored is not None and self.catalog.find_id(before.topic_id) is before:
            self.catalog.replace(stored)

    async def set_topic_config(self, topic: Topic, config: Mapping[str, str]) -> Topic:
        metadata, topic_id = self._ports.metadata, topic.topic_id
        return await self._reconfigure(
            lambda: metadata.set_topic_config(topic_id, config, self._clock.now_ms())
        )

    async def change_topic_config(self, topic: Topic, changes: Mapping[str, str | None]) -> Topic:
        """Change the named settings only; they are in force on return."""
        metadata, topic_id = self._ports.metadata, topic.topic_id
        return await self._reconfigure(
            lambda: metadata.change_topic_config(topic_id, changes, self._clock.now_ms())
        )

    async def _reconfigure(self, command: Callable[[], Awaitable[Topic]]) -> Topic:
        try:
            changed = await _settled(command)
        except (Unavailable, OutcomeUnknown):
            self._catalog_doubtful = True  # the store may have settings that we do not apply
            raise
        return self.catalog.replace(changed) or changed

    def set_topic_defaults(self, defaults: Mapping[str, str]) -> None:
        """Settings for topics that have none of their own; in force on return."""
        self.catalog.set_defaults(defaults)

    async def grow_topic(self, topic: Topic, partition_count: int) -> Topic:
        """Add partitions; they are led on return. Raises NotFound, InvalidPartitionCount."""
        metadata, topic_id = self._ports.metadata, topic.topic_id
        try:
            grown = await _settled(
                lambda: metadata.grow_topic(topic_id, partition_count, self._clock.now_ms())
            )
            return await self._lead_added(grown)
        except (Unavailable, OutcomeUnknown):
            self._catalog_doubtful = True  # the store may have partitions that we do not lead
            raise

    async def _lead_added(self, topic: Topic) -> Topic:
        known = self.catalog.find_id(topic.topic_id)
        if known is None:
            raise NotFound(f"topic {topic.name!r} was deleted meanwhile")
        added = await _settled(lambda: self.recovery.take_added(topic, known.partition_count))
        grown = self.catalog.grow(topic, added)
        if grown is None:
            raise NotFound(f"topic {topic.name!r} was deleted meanwhile")
        return grown

    # -- writing ---------------------------------------------------------------------------------

    def append(self, partition: Partition, body: memoryview, acks: int) -> Appended:
        """See Appender.append; then wait for `when_durable(appended.sequence)`."""
        return self.appender.append(partition, body, acks)

    def call_when_durable(self, sequence: int, released: Released) -> bool:
        """Call `released` when the WAL has `sequence`; False if it has, and no call follows."""
        return self._durability.call_when(sequence, released)

    async def when_durable(self, sequence: int) -> None:
        await self._durability.wait(sequence)

    def must_slow_down(self) -> bool:
        """Producers should not be read from while this holds."""
        return self._ports.wal.queued_bytes > WAL_QUEUE_BYTES_MAX

    async def new_producer_id(self) -> int:
        """A number no producer has had or will have; blocks of them are taken from the store."""
        if not self._producer_ids:
            first = await self._ports.metadata.reserve_ids("producer_id", PRODUCER_IDS_PER_BLOCK)
            self._producer_ids = range(first, first + PRODUCER_IDS_PER_BLOCK)
        producer_id, self._producer_ids = self._producer_ids[0], self._producer_ids[1:]
        return producer_id

    # -- reading ---------------------------------------------------------------------------------

    async def read(
        self,
        partition: Partition,
        offset: int,
        *,
        bytes_max: int,
        committed_only: bool = True,
        at_least_one: bool = True,
    ) -> list[Buffer]:
        """Whole committed batches from the one that holds `offset`. Raises OffsetOutOfRange."""
        partition.check_range(offset)
        stop_offset = partition.stop_offset(committed_only)
        return await self.reader.read(partition, offset, stop_offset, bytes_max, at_least_one)

    async def offset_at(
        self, partition: Partition, timestamp_ms: int, committed_only: bool
    ) -> FoundOffset | None:
        stop_offset = partition.stop_offset(committed_only)
        return await self.lookup.first_at_or_after(partition, timestamp_ms, stop_offset)

    async def offset_latest_timestamp(
        self, partition: Partition, committed_only: bool
    ) -> FoundOffset | None:
        return await self.lookup.latest(partition, partition.stop_offset(committed_only))

    async def delete_records(self, partition: Partition, offset: int) -> int:
        """Move the log start up to `offset` (-1: the high watermark); return the new log start."""
        machine = partition.machine
        target = machine.high_watermark if offset == -1 else offset
        if target < -1 or target > machine.high_watermark:
            raise OffsetOutOfRange(target, machine.log_start, machine.high_watermark)
        if target > machine.log_start:
            metadata, fence = self._ports.metadata, machine.fence
            await _settled(lambda: metadata.raise_log_start(fence, target, target))
            machine.on_log_start(target)
        return machine.log_start

    # -- records one by one ----------------------------------------------------------------------

    async def produce_records(
        self, topic_name: str, records: Sequence[tuple[int | None, NewRecord]], acks: int = -1
    ) -> list[Produced]:
        """Write (partition or None, record) pairs; return their places in the same order.

        Raises NotFound, BatchRejected, Unavailable. With acks 0 it does not wait for the disk.
        """
        topic = self.catalog.topic(topic_name)
        produced, sequence = self._records.produce(topic, records, acks)
        if acks != 0:
            await self.when_durable(sequence)
        return produced

    async def consume_records(
        self, topic_name: str, number: int, offset: int, *, records_max: int, wait_ms: int
    ) -> Consumed:
        """Committed records from `offset` on, waiting up to `wait_ms` for the first."""
        partition = self.catalog.partition(topic_name, number)
        partition.check_range(offset)
        await wait_for_records(partition, offset, wait_ms)
        found: list[Record] = []
        next_offset, left = offset, CONSUME_BYTES_MAX
        while len(found) < records_max and left > 0 and not partition.closed:
            stop_offset = partition.stop_offset(committed_only=True)
            buffers = await self.read(partition, next_offset, bytes_max=CONSUME_BYTES_PER_READ)
            if not buffers:
                break
            left -= sum(map(len, buffers))
            room = records_max - len(found)
            part, next_offset = records_from(buffers, next_offset, stop_offset, room)
            found += part
        return consumed(partition, found, next_offset)

    # -- background ------------------------------------------------------------------------------

    async def _roll_loop(self) -> None:
        while True:
            await asyncio.sleep(ROLL_POLL_SECONDS)
            rolled = False
            for partition in self._due():
                rolled |= await self._attempt("roll", self.roller.roll, partition)
                if not partition.tail.bytes_unrolled:
                    self.appender.dirty.pop(partition, None)
            if rolled or self._trim_due or self._ports.wal.is_low:
                self._trim_due = False
                await self.trim()

    def _due(self) -> list[Partition]:
        wal = self._ports.wal
        due = [p for p in self.appender.dirty if not p.closed and self.roller.is_due(p)]
        if wal.is_low:
            old = wal.oldest()
            due += [p for p in self.appender.dirty if p.tp in old and p not in due]
        return due

    async def trim(self) -> None:
        ends = {tp: p.machine.segments_end for tp, p in self.catalog.partitions.items()}
        await self._ports.wal.trim(ends)

    async def _upkeep_loop(self) -> None:
        retained = manifested = swept = self._clock.monotonic()
        while True:
            await asyncio.sleep(self._options.maintenance_interval_ms / 1000)
            now = self._clock.monotonic()
            await self._attempt("reconcile the catalog", self.reconcile_catalog)
            await self._attempt("delete topics", self._remove_deleted)
            if (now - retained) * 1000 >= self._options.retention_check_interval_ms:
                retained = now
                if await self._attempt("read holds", self.read_holds):
                    await self._for_each("retention", self.retain)
                await self._for_each("merge", self.merger.merge)
                await self._attempt("remove retired objects", self._remove_retired)
            if (now - manifested) * 1000 >= self._options.manifest_interval_ms:
                manifested = now
                await self._for_each("manifest", self.manifests.write)
            if now - swept >= ORPHAN_SWEEP_SECONDS:
                swept = now
                await self._attempt("sweep orphans", self._sweep)

    async def retain(self, partition: Partition) -> bool:
        """Apply retention and drop segments below the log start. True if anything changed."""
        await self.swap.settle(partition)
        machine, now_ms = partition.machine, self._clock.now_ms()
        metadata, fence = self._ports.metadata, machine.fence
        settings = partition.topic.settings
        log_start = log_start_after(partition.segments, settings, machine.log_start, now_ms)
        log_start = min(log_start, self._held.get(partition.tp, log_start))
        if log_start > machine.log_start:
            await _settled(lambda: metadata.raise_log_start(fence, log_start, log_start))
            machine.on_log_start(log_start)
        machine.producers.expire(now_ms - PRODUCER_IDLE_MS_MAX)
        old = droppable(partition.segments, machine.log_start, partition.snapshot_key)
        if not old or partition.closed:
            return False
        change = SegmentReplacement(fence, tuple(s.key for s in old), ())
        await self.swap.replace(partition, change)
        return True

    async def read_holds(self) -> bool:
        """Where readers with a named hold stand; retention stays behind the slowest."""
        held: dict[TopicPartition, int] = {}
        for hold in await self._ports.metadata.holds(self._clock.now_ms()):
            held[hold.tp] = min(hold.offset, held.get(hold.tp, hold.offset))
        self._held = held
        return True

    async def _remove_deleted(self) -> bool:
        await self.janitor.remove_deleted_topics()
        return False

    async def _remove_retired(self) -> bool:
        await self.janitor.remove_retired()
        return False

    async def _sweep(self) -> bool:
        await self.janitor.sweep_orphans()
        return False

    async def _for_each(self, job: str, run: Callable[[Partition], Awaitable[bool]]) -> None:
        for partition in list(self.catalog.partitions.values()):
            if not partition.closed:
                await self._attempt(job, run, partition)

    async def _attempt(
        self, job: str, run: Callable[..., Awaitable[bool]], *args: Partition
    ) -> bool:
        """Run one background step; a store that is away is said once, not every time."""
        try:
            done = await run(*args)
        except Fenced as error:
            log.info("%s: %s", job, error)
            return False
        except StreamhouseError as error:
            known = self._complaints.get(job)
            self._complaints[job] = str(error)
            if known is None:  # messages differ by key and time, so the job is what counts
                level = logging.ERROR if isinstance(error, Corrupt) else logging.WARNING
                log.log(level, "%s will be tried again: %s", job, error)
            return False
        if self._complaints.pop(job, None) is not None:
            log.info("%s works again", job)
        return done


async def _settled(command: Callable[[], Awaitable[T]]) -> T:
    """Run an idempotent command; when its answer is lost, the same command again finds out."""
    for _ in range(SETTLE_TRIES_MAX):
        try:
            return await command()
        except OutcomeUnknown:
            continue
    raise OutcomeUnknown(f"the metadata store did not answer {SETTLE_TRIES_MAX} times")
