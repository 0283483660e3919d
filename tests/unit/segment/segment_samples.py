"""Segments with known content for the tests of the STRM format.

The batches are real Kafka v2 record batches, laid out here by hand, so that the golden files can be
read by any tool that knows Kafka's format. The segment room itself never looks inside them.
"""

from hashlib import sha256
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from crc32c import crc32c

from streamhouse.model.ids import TopicId, TopicPartition
from streamhouse.model.producers import (
    AbortedTransaction,
    BatchStamp,
    PartitionSnapshot,
    ProducerSnapshot,
)
from streamhouse.segment.block import BlockStats
from streamhouse.segment.decode import SegmentTail, decode_block, decode_tail
from streamhouse.segment.encode import EncodedSegment, SegmentBuilder

TP = TopicPartition(TopicId(UUID("6f1d2c3b-4a59-4e68-8778-96a5b4c3d2e1")), 3)
TIME_MS = 1_700_000_000_000

_BEFORE_CRC = Struct(">qiibI")
_AFTER_CRC = Struct(">hiqqqhii")


class Batch(NamedTuple):
    body: bytes
    stats: BlockStats


def batch(base: int, values: list[bytes], *, time_ms: int = TIME_MS, epoch: int = 5) -> Batch:
    """An uncompressed batch of records without keys, one millisecond apart."""
    records = b"".join(_record(delta, value) for delta, value in enumerate(values))
    last_delta = len(values) - 1
    covered = (
        _AFTER_CRC.pack(0, last_delta, time_ms, time_ms + last_delta, -1, -1, -1, len(values))
        + records
    )
    head = _BEFORE_CRC.pack(base, 9 + len(covered), epoch, 2, crc32c(covered))
    stats = BlockStats(
        base=base,
        last=base + last_delta,
        record_count=len(values),
        control_count=0,
        timestamp_min_ms=time_ms,
        timestamp_max_ms=time_ms + last_delta,
        epoch_first=epoch,
        epoch_last=epoch,
    )
    return Batch(head + covered, stats)


def raw_golden() -> EncodedSegment:
    """`golden/raw.strm`: two batches in two blocks, nothing compressed, a snapshot, an abort."""
    builder = SegmentBuilder(TP, 100)
    for body, stats in (
        batch(100, [b"alpha", b"beta"]),
        batch(102, [b"gamma"], time_ms=TIME_MS - 1000, epoch=6),
    ):
        builder.add_block(body, stats, compress=False)
    return builder.finish(103, raw_golden_snapshot(), schema_ids=[7])


def raw_golden_snapshot() -> PartitionSnapshot:
    stamp = BatchStamp(
        sequence_first=0, sequence_last=1, offset_base=100, offset_last=101, timestamp_ms=TIME_MS
    )
    return PartitionSnapshot(
        offset=103,
        producers=(
            ProducerSnapshot(
                producer_id=4000,
                producer_epoch=1,
                batches=(stamp,),
                seen_ms=TIME_MS + 5,
                transaction_first_offset=100,
                coordinator_epoch=2,
            ),
        ),
        aborted=(
            AbortedTransaction(
                producer_id=4001, offset_first=101, offset_last=102, stable_offset=100
            ),
        ),
    )


def lz4_golden_batches() -> list[Batch]:
    """The batches of `golden/lz4.strm`: text that shrinks, then bytes that do not."""
    text = [b"the same words again and again, number %d" % number for number in range(40)]
    return [batch(0, text), batch(40, [noise(1024)], time_ms=TIME_MS + 60_000)]


def lz4_golden() -> EncodedSegment:
    builder = SegmentBuilder(TP, 0)
    for body, stats in lz4_golden_batches():
        builder.add_block(body, stats, compress=True)
    return builder.finish(41, PartitionSnapshot(offset=41))


def noise(length: int) -> bytes:
    """Bytes that do not compress, the same on every machine."""
    return b"".join(sha256(bytes([n])).digest() for n in range(length // 32))


def joined(segment: EncodedSegment) -> bytes:
    return b"".join(segment.buffers)


def read_tail(data: bytes) -> SegmentTail:
    tail = decode_tail(data, len(data))
    assert isinstance(tail, SegmentTail)
    return tail


def read_blocks(data: bytes) -> list[bytes]:
    """As a broker reads: the tail, then each block by its own range."""
    return [decode_block(b, data[b.position : b.stop]) for b in read_tail(data).blocks]


def _record(offset_delta: int, value: bytes) -> bytes:
    body = b"\0" + _varint(offset_delta) + _varint(offset_delta)  # attributes, time, offset
    body += _varint(-1) + _varint(len(value)) + value + _varint(0)  # no key, value, no headers
    return _varint(len(body)) + body


def _varint(value: int) -> bytes:
    """Kafka's zigzag varint."""
    rest = value * 2 if value >= 0 else -value * 2 - 1
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])
