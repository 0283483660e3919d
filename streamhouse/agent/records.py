"""Records one by one, for doors that speak of records and not of batches (REST, command line).

Writes go through the same append as Kafka's, so offsets, limits and durability are the same. A key
goes to the partition every Kafka client would choose; records without a key take turns.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import count

from streamhouse.agent.appends import Appended
from streamhouse.agent.batch_run import BatchRun
from streamhouse.agent.catalog import Catalog
from streamhouse.agent.partition import Partition
from streamhouse.agent.tail import Buffer
from streamhouse.kafka_proto.record_batch import decode_records, encode_batch, read_header
from streamhouse.model.errors import OutcomeUnknown, Unavailable
from streamhouse.model.murmur2 import partition_for_key
from streamhouse.model.records import Consumed, NewRecord, Produced, Record
from streamhouse.model.topic import Topic
from streamhouse.ports.clock import Clock


class RecordAccess:
    def __init__(
        self,
        *,
        catalog: Catalog,
        clock: Clock,
        append: Callable[[Partition, memoryview, int], Appended],
    ) -> None:
        self._catalog = catalog
        self._clock = clock
        self._append = append
        self._turn = count()

    def produce(
        self, topic: Topic, records: Sequence[tuple[int | None, NewRecord]], acks: int
    ) -> tuple[list[Produced], int]:
        """Append the records, one batch per partition; return places and the WAL sequence to await.

        All partitions are checked before anything is written. Raises Unavailable if nothing was,
        OutcomeUnknown if room ran out between two partitions.
        """
        now_ms = self._clock.now_ms()
        groups: dict[int, list[int]] = {}
        for index, (partition, record) in enumerate(records):
            chosen = self._choose(topic, partition, record.key)
            groups.setdefault(chosen, []).append(index)
        batches = []
        for number, indexes in groups.items():
            body = encode_batch([records[i][1] for i in indexes], now_ms)
            batches.append((number, indexes, memoryview(body)))
        produced: list[Produced | None] = [None] * len(records)
        sequence = 0
        for number, indexes, view in batches:
            try:
                appended = self._append(self._catalog.partition(topic.name, number), view, acks)
            except Unavailable as error:
                if not sequence:
                    raise
                raise OutcomeUnknown(f"some of the records were written: {error}") from error
            sequence = max(sequence, appended.sequence)
            for delta, index in enumerate(indexes):
                stamp = records[index][1].timestamp_ms
                timestamp_ms = now_ms if stamp is None else stamp
                if appended.log_append_time_ms >= 0:
                    timestamp_ms = appended.log_append_time_ms
                produced[index] = Produced(number, appended.base_offset + delta, timestamp_ms)
        return [place for place in produced if place is not None], sequence

    def _choose(self, topic: Topic, partition: int | None, key: bytes | None) -> int:
        if partition is not None:
            self._catalog.partition(topic.name, partition)
            return partition
        if key is not None:
            return partition_for_key(key, topic.partition_count)
        return next(self._turn) % topic.partition_count


def records_from(
    buffers: Sequence[Buffer], offset: int, stop_offset: int, records_max: int
) -> tuple[list[Record], int]:
    """Decode batches into records from `offset` on; return them and the next offset to read."""
    found: list[Record] = []
    next_offset = offset
    for buffer in buffers:
        run = BatchRun.of_block(bytes(buffer))
        for index in range(len(run.bases)):
            batch = run.batch(index)
            header = read_header(batch)
            if header.end_offset <= offset:
                continue
            if not header.is_control:
                for record in decode_records(batch):
                    if record.offset < offset or record.offset >= stop_offset:
                        continue
                    if len(found) == records_max:
                        return found, next_offset
                    found.append(record)
                    next_offset = record.offset + 1
            next_offset = header.end_offset
    return found, next_offset


async def wait_for_records(partition: Partition, offset: int, wait_ms: int) -> None:
    """Return when the partition has something at `offset`, is closed, or the time is up."""
    if partition.machine.high_watermark > offset or wait_ms <= 0:
        return
    arrived = asyncio.Event()
    partition.waiters.add(arrived.set)
    try:
        async with asyncio.timeout(wait_ms / 1000):
            while partition.machine.high_watermark <= offset and not partition.closed:
                arrived.clear()
                await arrived.wait()
    except TimeoutError:
        pass
    finally:
        partition.waiters.discard(arrived.set)


def consumed(partition: Partition, records: Sequence[Record], next_offset: int) -> Consumed:
    machine = partition.machine
    return Consumed(tuple(records), next_offset, machine.high_watermark, machine.log_start)
