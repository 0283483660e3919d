"""What a leader remembers of producers, so that a retry is recognised after restart or takeover."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchStamp:
    """One accepted batch of a producer."""

    sequence_first: int
    sequence_last: int
    offset_base: int
    offset_last: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ProducerSnapshot:
    """A producer on one partition: its epoch and its newest batches, at most five, oldest first."""

    producer_id: int
    producer_epoch: int
    batches: tuple[BatchStamp, ...]
    seen_ms: int
    transaction_first_offset: int = -1  # first offset of the open transaction, -1 if none
    coordinator_epoch: int = -1


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """A transaction whose abort marker lies at `offset_last`."""

    producer_id: int
    offset_first: int
    offset_last: int
    stable_offset: int


@dataclass(frozen=True, slots=True)
class PartitionSnapshot:
    """State of a partition at offset `offset`: carried by the tail of every segment."""

    offset: int
    producers: tuple[ProducerSnapshot, ...] = ()
    aborted: tuple[AbortedTransaction, ...] = ()


EMPTY_SNAPSHOT = PartitionSnapshot(offset=0)
