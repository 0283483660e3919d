"""Small partitions and batches for tests of the agent's pure parts."""

from uuid import UUID

from streamhouse.kafka_proto.record_batch import assign, encode_batch
from streamhouse.model.ids import TopicId, TopicPartition
from streamhouse.model.partition import PartitionRow, SegmentRef
from streamhouse.model.records import NewRecord

TP = TopicPartition(TopicId(UUID(int=7)), 0)


def row(**changes: object) -> PartitionRow:
    values: dict[str, object] = {
        "tp": TP,
        "holder": "agent-1",
        "incarnation": "i1",
        "epoch": 3,
        "high_watermark": 0,
        "log_start": 0,
        "segments_end": 0,
        "manifest_version": 0,
        "manifest_written": 0,
        "snapshot_key": None,
        "wal_id": "w1",
    }
    return PartitionRow(**{**values, **changes})  # type: ignore[arg-type]


def batch(
    base: int,
    count: int = 1,
    *,
    value: bytes = b"v",
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    timestamp_ms: int = 1_000,
) -> bytearray:
    """A batch of `count` records at offset `base`."""
    records = [NewRecord(None, value, (), timestamp_ms) for _ in range(count)]
    body = encode_batch(
        records,
        timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    assign(body, base, 3)
    return body


def segment(base: int, end: int, **changes: object) -> SegmentRef:
    values: dict[str, object] = {
        "key": f"k{base}-{end}",
        "base": base,
        "end": end,
        "epoch": 1,
        "record_count": end - base,
        "timestamp_min_ms": base,
        "timestamp_max_ms": end,
        "bytes_raw": (end - base) * 10,
        "bytes_stored": (end - base) * 10,
        "footer_crc": 0,
        "created_ms": end,
    }
    return SegmentRef(**{**values, **changes})  # type: ignore[arg-type]
