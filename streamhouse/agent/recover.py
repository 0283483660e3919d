"""From stores and WAL back to led partitions, through the same `apply` as live appends.

Recovery writes nothing but the new epochs, so a crash in the middle of it changes nothing: the next
start finds the same records at the same offsets.
"""

import asyncio
import logging
from collections import defaultdict

from streamhouse.agent.catalog import Catalog
from streamhouse.agent.options import AgentOptions
from streamhouse.agent.partition import Partition
from streamhouse.agent.reader import ColdReader
from streamhouse.agent.tail import TailBudget
from streamhouse.kafka_proto.record_batch import read_header
from streamhouse.model.errors import Fenced, StartRefused
from streamhouse.model.ids import TopicId, TopicPartition
from streamhouse.model.partition import PartitionRow
from streamhouse.model.topic import Topic
from streamhouse.ports.clock import Clock
from streamhouse.ports.metadata import MetadataStore
from streamhouse.ports.wal import Wal, WalEntry

log = logging.getLogger(__name__)

SNAPSHOT_READS_MAX = 16


class Recovery:
    def __init__(
        self,
        *,
        metadata: MetadataStore,
        wal: Wal,
        reader: ColdReader,
        clock: Clock,
        budget: TailBudget,
        options: AgentOptions,
    ) -> None:
        self._metadata = metadata
        self._wal = wal
        self._reader = reader
        self._clock = clock
        self._budget = budget
        self._options = options
        self.entries_replayed = 0
        self.gaps: list[Partition] = []  # partitions that lost records

    async def run(self, catalog: Catalog) -> int:
        """Fill the catalog; return the last WAL sequence number replayed (0 if none)."""
        await self._wal.open()
        topics = await self._metadata.list_topics()
        rows = await self._take(None)
        for topic, partitions in await self.partitions_of(topics, rows):
            catalog.add(topic, partitions)
        sequence_last = 0
        async for sequence, entry in self._wal.replay():
            self._replay(catalog, sequence, entry)
            sequence_last = sequence
        for partition in catalog.partitions.values():
            self._check_complete(partition, rows[partition.tp])
        return sequence_last

    async def partitions_of(
        self, topics: list[Topic], rows: dict[TopicPartition, PartitionRow]
    ) -> list[tuple[Topic, list[Partition]]]:
        """Partitions as the stores describe them, before the WAL is replayed."""
        tps = sorted(rows)
        terms = await self._metadata.terms(tps)
        segments = await self._metadata.live_segments(tps)
        by_topic: dict[TopicId, list[Partition]] = defaultdict(list)
        topic_of = {topic.topic_id: topic for topic in topics}
        for tp in tps:
            partition = Partition(
                topic_of[tp.topic_id],
                rows[tp],
                terms.get(tp, []),
                segments.get(tp, []),
                self._budget,
            )
            by_topic[tp.topic_id].append(partition)
        await self._restore_snapshots([p for found in by_topic.values() for p in found])
        return [(topic, by_topic[topic.topic_id]) for topic in topics]

    async def take_topic(self, topic: Topic) -> list[Partition]:
        """Lead the partitions of a topic that was just created."""
        rows = await self._take(topic.topic_id)
        return (await self.partitions_of([topic], rows))[0][1]

    async def take_added(self, topic: Topic, number_first: int) -> list[Partition]:
        """Lead the partitions of a topic from `number_first` on; the others are led already."""
        rows = await self._take(topic.topic_id)
        numbers = range(number_first, topic.partition_count)
        added = {tp: row for tp, row in rows.items() if tp.partition in numbers}
        return (await self.partitions_of([topic], added))[0][1]

    async def _take(self, topic_id: TopicId | None) -> dict[TopicPartition, PartitionRow]:
        try:
            rows = await self._metadata.take_partitions(
                self._options.agent_id,
                self._options.incarnation,
                self._wal.wal_id,
                topic_id,
                accept_wal_loss=self._options.accept_wal_loss,
            )
        except Fenced as error:
            raise StartRefused(str(error)) from error
        return {row.tp: row for row in rows}

    async def _restore_snapshots(self, partitions: list[Partition]) -> None:
        slots = asyncio.Semaphore(SNAPSHOT_READS_MAX)

        async def restore(partition: Partition) -> None:
            newest = partition.segments[-1]
            async with slots:
                tail = await self._reader.tail_of(newest.key, newest.bytes_stored)
            partition.machine.producers.restore(tail.snapshot.producers)

        named = [p for p in partitions if p.segments]
        await asyncio.gather(*(restore(partition) for partition in named))

    def _replay(self, catalog: Catalog, sequence: int, entry: WalEntry) -> None:
        partition = catalog.partitions.get(entry.tp)
        if partition is None or entry.end <= partition.machine.segments_end:
            return  # the topic is gone, or a segment holds it already
        machine = partition.machine
        if entry.base != machine.offset_next and not self._options.accept_wal_loss:
            raise StartRefused(
                f"the WAL continues {partition.topic.name}-{entry.tp.partition} at offset "
                f"{entry.base}, but {machine.offset_next} comes next; records in between are "
                f"missing. Restore the WAL directory, or start with --accept-wal-loss"
            )
        if entry.base != machine.offset_next:
            self._skip(partition, entry.base)
        now_ms = self._clock.now_ms()
        body = bytes(entry.body)
        header = read_header(memoryview(body))
        end = machine.apply(header, entry.base, entry.epoch, now_ms)
        machine.on_durable(end)
        partition.tail.offset_durable = end
        partition.tail.append(header, entry.base, entry.epoch, body, sequence, now_ms)
        self.entries_replayed += 1

    def _check_complete(self, partition: Partition, row: PartitionRow) -> None:
        known = max(row.high_watermark, row.log_start)
        machine = partition.machine
        if machine.offset_durable >= known:
            return
        if not self._options.accept_wal_loss:
            raise StartRefused(
                f"{partition.topic.name}-{partition.tp.partition} was committed up to offset "
                f"{known}, but stores and WAL only reach {machine.offset_durable}. Restore the WAL "
                f"directory, or start with --accept-wal-loss"
            )
        self._skip(partition, known)

    def _skip(self, partition: Partition, offset: int) -> None:
        """Go on at `offset`: what lies before it was lost, and a person accepted that."""
        log.warning(
            "%s-%d: offsets %d to %d are lost",
            partition.topic.name,
            partition.tp.partition,
            partition.machine.offset_next,
            offset - 1,
        )
        partition.machine.skip_to(offset)
        partition.tail.offset_durable = partition.tail.end = offset
        if partition not in self.gaps:
            self.gaps.append(partition)
