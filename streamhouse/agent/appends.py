"""The write path of the leader: validated batch in, offset and WAL sequence number out.

Everything here runs on the event loop without awaiting, so that batches of one connection keep
their order and a partition's offsets are given out by one writer.
"""

from typing import NamedTuple

from streamhouse.agent.durability import Durability
from streamhouse.agent.partition import Partition
from streamhouse.agent.producers import Refusal
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.record_batch import (
    BatchHeader,
    BatchRejected,
    assign,
    check_batch,
    null_key_indexes,
    read_header,
    stamp_log_append_time,
)
from streamhouse.model.errors import DecodeError, Unavailable
from streamhouse.model.producers import BatchStamp
from streamhouse.ports.clock import Clock
from streamhouse.ports.wal import Wal, WalEntry

_REFUSAL_CODES = {
    Refusal.OUT_OF_ORDER_SEQUENCE: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    Refusal.STALE_PRODUCER_EPOCH: ErrorCode.INVALID_PRODUCER_EPOCH,
}


class Appended(NamedTuple):
    base_offset: int
    log_append_time_ms: int  # -1: the records keep their own timestamps
    log_start: int
    sequence: int  # of the WAL; the batch is committed when this is durable


class Appender:
    def __init__(self, *, wal: Wal, clock: Clock, durability: Durability) -> None:
        self._wal = wal
        self._clock = clock
        self._durability = durability
        self.sequence_last = 0
        self.dirty: dict[Partition, None] = {}  # partitions with unrolled batches, in order
        self.batches = 0
        self.records = 0
        self.bytes = 0
        self.duplicates = 0

    def start(self, sequence_last: int) -> None:
        self.sequence_last = sequence_last

    def append(self, partition: Partition, body: memoryview, acks: int) -> Appended:
        """Give the batch its offsets and queue it for the WAL. `body` is patched in place.

        Raises BatchRejected (the client's fault, with Kafka's code) or Unavailable (no room in
        the WAL: nothing was taken).
        """
        if partition.closed:
            raise Unavailable(f"{partition.tp} is not led here any more")
        settings = partition.topic.settings
        header = check_batch(body, settings.max_message_bytes)
        machine = partition.machine
        now_ms = self._clock.now_ms()
        if header.is_transactional:
            raise BatchRejected(
                ErrorCode.INVALID_TXN_STATE, "transactions are not served by this version"
            )
        known = machine.check(header)
        if known is not None:
            return self._known(partition, known)
        if settings.compact:
            _check_keys(body)
        log_append_time_ms = -1
        if settings.log_append_time:
            stamp_log_append_time(body, now_ms)
            header = read_header(body)
            log_append_time_ms = now_ms
        else:
            _check_timestamps(partition, header, now_ms)
        base = machine.offset_next
        end = base + header.last_offset_delta + 1
        assign(body, base, machine.epoch)
        sequence = self._wal.append(WalEntry(machine.tp, machine.epoch, base, end, acks, body))
        machine.apply(header, base, machine.epoch, now_ms)
        partition.tail.append(header, base, machine.epoch, body, sequence, now_ms)
        self._durability.note(sequence, partition, end)
        self.sequence_last = sequence
        self.dirty[partition] = None
        self.batches += 1
        self.records += header.record_count
        self.bytes += len(body)
        return Appended(base, log_append_time_ms, machine.log_start, sequence)

    def _known(self, partition: Partition, known: BatchStamp | Refusal) -> Appended:
        """A retry gets the answer of the first time, once that one is committed."""
        if isinstance(known, Refusal):
            raise BatchRejected(_REFUSAL_CODES[known], known.value)
        self.duplicates += 1
        stamped = partition.topic.settings.log_append_time
        timestamp_ms = known.timestamp_ms if stamped else -1
        log_start = partition.machine.log_start
        return Appended(known.offset_base, timestamp_ms, log_start, self.sequence_last)


def _check_keys(body: memoryview) -> None:
    """Compaction keeps the newest record of each key, so each record needs one."""
    try:
        missing = null_key_indexes(body)
    except DecodeError as error:
        raise BatchRejected(ErrorCode.INVALID_RECORD, str(error)) from error
    if missing:
        raise BatchRejected(
            ErrorCode.INVALID_RECORD, "a compacted topic takes only records with a key", missing
        )


def _check_timestamps(partition: Partition, header: BatchHeader, now_ms: int) -> None:
    settings = partition.topic.settings
    newest, oldest = header.max_timestamp_ms, header.base_timestamp_ms
    if newest - now_ms > settings.timestamp_after_max_ms:
        raise BatchRejected(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {newest} is more than {settings.timestamp_after_max_ms} ms ahead",
        )
    if 0 <= oldest < now_ms - settings.timestamp_before_max_ms:
        raise BatchRejected(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {oldest} is more than {settings.timestamp_before_max_ms} ms ago",
        )
