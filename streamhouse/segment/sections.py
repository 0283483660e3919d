"""Tagged sections: what a segment says of itself, and the state a new leader needs.

Owns the payload of each tag. A section is (tag, length, payload); tags ascend, so none comes
twice. A reader skips tags it does not know; every tag of version 1 must be there. A payload never
grows: a new fact gets a new tag.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from struct import error as struct_error
from uuid import UUID

from streamhouse.model.errors import Corrupt, DecodeError
from streamhouse.model.ids import TopicId, TopicPartition
from streamhouse.model.producers import (
    AbortedTransaction,
    BatchStamp,
    PartitionSnapshot,
    ProducerSnapshot,
)
from streamhouse.segment.layout import SECTION_HEADER, Buffer


class Tag(IntEnum):
    TOPIC_ID = 1
    PARTITION = 2
    EPOCHS = 3
    OFFSETS = 4
    COUNTS = 5
    BYTES = 6
    TIMESTAMPS = 7
    ABORTED = 8
    OPEN = 9
    SNAPSHOT = 10
    SCHEMA_IDS = 11


_KNOWN = frozenset(int(tag) for tag in Tag)


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that had begun and not ended at the end of the segment."""

    producer_id: int
    producer_epoch: int
    offset_first: int


@dataclass(frozen=True, slots=True)
class Sections:
    """All sections of version 1."""

    tp: TopicPartition
    epoch_first: int
    epoch_last: int
    base: int
    last: int  # the offsets the segment stands for; compaction may have emptied some
    data_count: int
    control_count: int
    bytes_raw: int
    bytes_stored: int  # of the blocks, their headers included
    timestamp_min_ms: int
    timestamp_max_ms: int
    aborted: tuple[AbortedTransaction, ...]  # those whose marker lies in this segment
    open_transactions: tuple[OpenTransaction, ...]
    snapshot: PartitionSnapshot
    schema_ids: tuple[int, ...] = ()


_U32 = Struct(">I")
_I32_PAIR = Struct(">ii")
_I64_PAIR = Struct(">qq")
_U64_PAIR = Struct(">QQ")
_ABORTED = Struct(">qqqq")  # producer id, first offset, last offset, stable offset
_OPEN = Struct(">qhq")  # producer id, producer epoch, first offset
_SNAPSHOT = Struct(">qII")  # offset, producers, aborted transactions
# producer id and epoch, seen, first offset of the open transaction, coordinator epoch, batches
_PRODUCER = Struct(">qhqqiB")
_STAMP = Struct(">iiqqq")  # first and last sequence, base and last offset, timestamp


def encode_sections(sections: Sections) -> bytes:
    out = bytearray()
    for tag, payload in _payloads(sections):
        out += SECTION_HEADER.pack(tag, len(payload))
        out += payload
    return bytes(out)


def decode_sections(data: Buffer) -> Sections:
    """Raises DecodeError naming the section; unknown tags are passed over.

    `data` is exactly the sections, their checksum already verified.
    """
    found = {tag: payload for tag, payload in split_sections(data) if tag in _KNOWN}
    for tag in Tag:
        if tag not in found:
            raise Corrupt(f"section {tag.name} ({int(tag)}) is missing")
    reader = _Reader(found)
    topic_id = found[Tag.TOPIC_ID]
    if len(topic_id) != 16:
        raise DecodeError(f"section TOPIC_ID (1) has {len(topic_id)} bytes instead of 16")
    (partition,) = reader.fixed(Tag.PARTITION, _U32)
    epoch_first, epoch_last = reader.fixed(Tag.EPOCHS, _I32_PAIR)
    base, last = reader.fixed(Tag.OFFSETS, _I64_PAIR)
    data_count, control_count = reader.fixed(Tag.COUNTS, _U64_PAIR)
    bytes_raw, bytes_stored = reader.fixed(Tag.BYTES, _U64_PAIR)
    timestamp_min_ms, timestamp_max_ms = reader.fixed(Tag.TIMESTAMPS, _I64_PAIR)
    return Sections(
        tp=TopicPartition(TopicId(UUID(bytes=bytes(topic_id))), partition),
        epoch_first=epoch_first,
        epoch_last=epoch_last,
        base=base,
        last=last,
        data_count=data_count,
        control_count=control_count,
        bytes_raw=bytes_raw,
        bytes_stored=bytes_stored,
        timestamp_min_ms=timestamp_min_ms,
        timestamp_max_ms=timestamp_max_ms,
        aborted=tuple(AbortedTransaction(*row) for row in reader.rows(Tag.ABORTED, _ABORTED)),
        open_transactions=tuple(OpenTransaction(*row) for row in reader.rows(Tag.OPEN, _OPEN)),
        snapshot=_decode_snapshot(found[Tag.SNAPSHOT]),
        schema_ids=tuple(row[0] for row in reader.rows(Tag.SCHEMA_IDS, _U32)),
    )


def split_sections(data: Buffer) -> Iterator[tuple[int, memoryview]]:
    """Each (tag, payload), known or not. Raises DecodeError when a length leads outside."""
    view = memoryview(data)
    at, tag_before = 0, 0
    while at < len(view):
        if at + SECTION_HEADER.size > len(view):
            raise DecodeError(f"section header cut short at byte {at} of the sections")
        tag, length = SECTION_HEADER.unpack_from(view, at)
        at += SECTION_HEADER.size
        if tag <= tag_before:
            raise DecodeError(f"section tag {tag} comes after tag {tag_before}")
        if length > len(view) - at:
            raise DecodeError(f"section {tag} claims {length} bytes, {len(view) - at} are left")
        yield tag, view[at : at + length]
        at, tag_before = at + length, tag


def _payloads(sections: Sections) -> Iterator[tuple[Tag, bytes]]:
    yield Tag.TOPIC_ID, sections.tp.topic_id.bytes
    yield Tag.PARTITION, _U32.pack(sections.tp.partition)
    yield Tag.EPOCHS, _I32_PAIR.pack(sections.epoch_first, sections.epoch_last)
    yield Tag.OFFSETS, _I64_PAIR.pack(sections.base, sections.last)
    yield Tag.COUNTS, _U64_PAIR.pack(sections.data_count, sections.control_count)
    yield Tag.BYTES, _U64_PAIR.pack(sections.bytes_raw, sections.bytes_stored)
    yield Tag.TIMESTAMPS, _I64_PAIR.pack(sections.timestamp_min_ms, sections.timestamp_max_ms)
    yield Tag.ABORTED, _encode_aborted(sections.aborted)
    yield (
        Tag.OPEN,
        b"".join(
            _OPEN.pack(t.producer_id, t.producer_epoch, t.offset_first)
            for t in sections.open_transactions
        ),
    )
    yield Tag.SNAPSHOT, _encode_snapshot(sections.snapshot)
    yield Tag.SCHEMA_IDS, b"".join(map(_U32.pack, sections.schema_ids))


def _encode_aborted(aborted: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(
        _ABORTED.pack(t.producer_id, t.offset_first, t.offset_last, t.stable_offset)
        for t in aborted
    )


def _encode_snapshot(snapshot: PartitionSnapshot) -> bytes:
    parts = [_SNAPSHOT.pack(snapshot.offset, len(snapshot.producers), len(snapshot.aborted))]
    for producer in snapshot.producers:
        parts.append(
            _PRODUCER.pack(
                producer.producer_id,
                producer.producer_epoch,
                producer.seen_ms,
                producer.transaction_first_offset,
                producer.coordinator_epoch,
                len(producer.batches),
            )
        )
        parts.extend(map(_encode_stamp, producer.batches))
    parts.append(_encode_aborted(snapshot.aborted))
    return b"".join(parts)


def _encode_stamp(stamp: BatchStamp) -> bytes:
    return _STAMP.pack(
        stamp.sequence_first,
        stamp.sequence_last,
        stamp.offset_base,
        stamp.offset_last,
        stamp.timestamp_ms,
    )


def _decode_snapshot(data: memoryview) -> PartitionSnapshot:
    try:
        offset, producer_count, aborted_count = _SNAPSHOT.unpack_from(data)
        at = _SNAPSHOT.size
        producers: list[ProducerSnapshot] = []
        # A hostile count ends with the data: each turn takes at least one producer's bytes.
        for _ in range(producer_count):
            producer, at = _decode_producer(data, at)
            producers.append(producer)
    except struct_error as error:
        raise DecodeError(f"section SNAPSHOT (10) cut short: {error}") from error
    rest = data[at:]
    if len(rest) != aborted_count * _ABORTED.size:
        raise DecodeError(
            f"section SNAPSHOT (10) has {len(rest)} bytes for {aborted_count} aborted transactions"
        )
    aborted = tuple(AbortedTransaction(*row) for row in _ABORTED.iter_unpack(rest))
    return PartitionSnapshot(offset, tuple(producers), aborted)


def _decode_producer(data: memoryview, at: int) -> tuple[ProducerSnapshot, int]:
    producer_id, epoch, seen_ms, first_offset, coordinator, count = _PRODUCER.unpack_from(data, at)
    at += _PRODUCER.size
    stamps: list[BatchStamp] = []
    for _ in range(count):
        stamps.append(BatchStamp(*_STAMP.unpack_from(data, at)))
        at += _STAMP.size
    producer = ProducerSnapshot(
        producer_id=producer_id,
        producer_epoch=epoch,
        batches=tuple(stamps),
        seen_ms=seen_ms,
        transaction_first_offset=first_offset,
        coordinator_epoch=coordinator,
    )
    return producer, at


class _Reader:
    """Payloads of known shape; a wrong length is an error that names the section."""

    def __init__(self, payloads: Mapping[int, memoryview]) -> None:
        self._payloads = payloads

    def fixed(self, tag: Tag, shape: Struct) -> Sequence[int]:
        payload = self._payloads[tag]
        if len(payload) != shape.size:
            raise DecodeError(
                f"section {tag.name} ({int(tag)}) has {len(payload)} bytes instead of {shape.size}"
            )
        return shape.unpack(payload)

    def rows(self, tag: Tag, shape: Struct) -> Iterator[tuple[int, ...]]:
        payload = self._payloads[tag]
        if len(payload) % shape.size:
            raise DecodeError(
                f"section {tag.name} ({int(tag)}) has {len(payload)} bytes, "
                f"not a multiple of {shape.size}"
            )
        return shape.iter_unpack(payload)
