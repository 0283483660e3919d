"""The decisions of one partition's leader: offsets, idempotence, watermark, roll. No I/O.

A machine lives for exactly one (topic id, partition, epoch). Live appends and recovery go through
the same `apply`, so a replayed log gives the same offsets and the same producer state.

Positions, each by what is true there:
    log_start <= ... <= segments_end <= offset_durable <= offset_next
In local commit mode what is durable in the WAL is committed, so the high watermark is
`offset_durable`.
"""

from dataclasses import dataclass

from streamhouse.agent.producers import ProducerTable, Refusal
from streamhouse.kafka_proto.record_batch import BatchHeader
from streamhouse.model.ids import NO_PRODUCER_ID, TopicPartition
from streamhouse.model.partition import Fence, PartitionRow, Term
from streamhouse.model.producers import BatchStamp, PartitionSnapshot


@dataclass(frozen=True, slots=True)
class RollPolicy:
    """When a partition's tail becomes a segment."""

    bytes_due: int
    age_ms_due: int


class PartitionMachine:
    def __init__(self, row: PartitionRow, terms: list[Term]) -> None:
        assert row.segments_end <= row.high_watermark
        self.tp: TopicPartition = row.tp
        self.epoch = row.epoch
        self.fence = Fence(row.tp, row.holder, row.incarnation, row.epoch)
        self.log_start = row.log_start
        self.segments_end = row.segments_end
        self.offset_next = row.segments_end
        self.offset_durable = row.segments_end
        self.producers = ProducerTable()
        self._terms = list(terms)

    # -- appends ---------------------------------------------------------------------------------

    def check(self, header: BatchHeader) -> BatchStamp | Refusal | None:
        """Whether a validated batch may be appended now (None), was already, or is refused."""
        if header.producer_id == NO_PRODUCER_ID:
            return None
        return self.producers.check(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.last_sequence,
        )

    def apply(self, header: BatchHeader, base: int, epoch: int, now_ms: int) -> int:
        """Take the batch in at `base` and return the offset after it. Live path and replay."""
        assert base >= self.offset_next, f"{self.tp}: {base} is below {self.offset_next}"
        if not self._terms or self._terms[-1].epoch != epoch:
            assert not self._terms or self._terms[-1].epoch < epoch
            self._terms.append(Term(epoch, base))
        end = base + header.last_offset_delta + 1
        if header.producer_id != NO_PRODUCER_ID:
            stamp = BatchStamp(
                header.base_sequence, header.last_sequence, base, end - 1, header.max_timestamp_ms
            )
            self.producers.apply(
                header.producer_id, header.producer_epoch, stamp, now_ms, self.offset_durable
            )
        self.offset_next = end
        return end

    def on_durable(self, end: int) -> None:
        """Everything below `end` is in the WAL, synced: in local mode that commits it."""
        assert end <= self.offset_next
        if end > self.offset_durable:
            self.offset_durable = end

    def skip_to(self, offset: int) -> None:
        """Leave a gap: only after a person accepted that the WAL lost records."""
        assert self.offset_next == self.offset_durable
        if offset > self.offset_next:
            self.offset_next = self.offset_durable = offset

    # -- positions -------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        return self.offset_durable

    @property
    def offset_stable(self) -> int:
        """Last stable offset: no transaction is open below it."""
        return self.offset_durable

    def on_rolled(self, end: int) -> None:
        assert self.segments_end <= end <= self.offset_durable
        self.segments_end = end

    def on_log_start(self, offset: int) -> None:
        assert offset <= self.offset_durable
        self.log_start = max(self.log_start, offset)

    def snapshot_at(self, offset: int) -> PartitionSnapshot:
        return PartitionSnapshot(offset, self.producers.snapshot_below(offset))

    # -- epochs ----------------------------------------------------------------------------------

    def terms_between(self, base: int, end: int) -> tuple[Term, ...]:
        return tuple(term for term in self._terms if base <= term.offset_start < end)

    def epoch_at(self, offset: int) -> int:
        """The epoch under which `offset` was (or would next be) written."""
        for term in reversed(self._terms):
            if term.offset_start <= offset:
                return term.epoch
        return self.epoch

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest epoch <= `epoch`, offset where it ends), or (-1, -1) if none is known."""
        if epoch == self.epoch:
            return epoch, self.offset_durable
        if epoch > self.epoch:
            return -1, -1
        found = -1
        for term in self._terms:
            if term.epoch > epoch:
                return (found, term.offset_start) if found >= 0 else (epoch, term.offset_start)
            found = term.epoch
        return (found if found >= 0 else epoch), self.offset_durable

    # -- roll ------------------------------------------------------------------------------------

    @staticmethod
    def is_due(policy: RollPolicy, bytes_unrolled: int, oldest_ms: int | None, now_ms: int) -> bool:
        """A partition is due when it holds more than a size, or something older than an age."""
        if oldest_ms is None:
            return False
        return bytes_unrolled >= policy.bytes_due or now_ms - oldest_ms >= policy.age_ms_due
