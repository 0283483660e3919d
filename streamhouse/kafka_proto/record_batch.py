"""Record batches, format 2: checked, numbered and stamped without looking at a record.

Owns: the 61-byte header, what a client may send, the in-place changes a leader makes, and, off the
hot path, the records inside.
Must not know: topics, logs, where batches are stored.
Invariants: baseOffset, batchLength, partitionLeaderEpoch, magic and crc lie outside the checksum,
so numbering a batch never touches it; LogAppendTime changes what it covers, so it is recomputed.
Hostile bytes give BatchRejected (a client's batch) or DecodeError (a batch we read), nothing else.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, NoReturn

from crc32c import crc32c

from streamhouse.kafka_proto.compression import Compression, compress, decompress
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.primitives import HOSTILE, Buffer
from streamhouse.model.errors import DecodeError, Invalid
from streamhouse.model.ids import NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP
from streamhouse.model.records import NewRecord, Record, RecordHeader

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = HEADER.size
LENGTH_AT: Final = 8
LENGTH_FROM: Final = 12  # batchLength counts what follows it
LEADER_EPOCH_AT: Final = 12
CRC_AT: Final = 17
CRC_FROM: Final = 21  # the checksum covers attributes to end
ATTRIBUTES_LOW_AT: Final = 22
LAST_OFFSET_DELTA_AT: Final = 23
MAX_TIMESTAMP_AT: Final = 35
MAGIC: Final = 2

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20

NO_PRODUCER_EPOCH: Final = -1
NO_LEADER_EPOCH: Final = -1
RECORD_BYTES_MIN: Final = 7  # length, attributes, two deltas, two lengths, header count
VARINT_BYTES_MAX: Final = 10

_INT64: Final = struct.Struct(">q")
_INT32: Final = struct.Struct(">i")
_new: Final = tuple.__new__  # a NamedTuple from a row, without its Python constructor
_UINT32: Final = struct.Struct(">I")


class BatchHeader(NamedTuple):
    """The header as it stands on the wire."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        return self.batch_length + LENGTH_FROM

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def end_offset(self) -> int:
        """The offset behind the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; sequences wrap from 2147483647 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return self.base_sequence + self.last_offset_delta & 0x7FFFFFFF


class BatchRejected(Invalid):
    """A client's batch that must not be appended, with the code that tells it so."""

    def __init__(self, code: ErrorCode, message: str, indexes: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.indexes = indexes  # of the records at fault, where single ones are


# The hot path


def check_batch(buf: memoryview, max_message_bytes: int) -> BatchHeader:
    """Return the header of a client's `buf` if it is exactly one batch that may be appended.

    Raises BatchRejected. Records are not looked at: a compressed batch stays compressed.
    """
    size = len(buf)
    if size < HEADER_BYTES:
        _reject_short(size)
    header = _new(BatchHeader, HEADER.unpack_from(buf))
    (
        _,
        length,
        _,
        magic,
        crc,
        attributes,
        last_delta,
        _,
        _,
        producer_id,
        epoch,
        sequence,
        count,
    ) = header
    if magic != MAGIC or length + LENGTH_FROM != size:
        _reject_frame(header, size)
    if size > max_message_bytes:
        raise BatchRejected(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {size} bytes; max.message.bytes is {max_message_bytes}",
        )
    if crc32c(buf[CRC_FROM:]) != crc:
        raise BatchRejected(ErrorCode.CORRUPT_MESSAGE, "the checksum of the batch does not match")
    if count <= 0 or count != last_delta + 1 or attributes & _REFUSED_BITS:
        _reject_header(header)
    if attributes & CODEC_MASK > Compression.ZSTD:
        _reject_header(header)
    if producer_id != NO_PRODUCER_ID:
        if producer_id < 0 or epoch < 0 or sequence < 0:
            _reject_header(header)
    elif attributes & TRANSACTIONAL_BIT:
        _reject_header(header)
    return header


def assign(buf: memoryview | bytearray, base_offset: int, leader_epoch: int) -> None:
    """Number the batch in place; the checksum does not cover these fields."""
    _INT64.pack_into(buf, 0, base_offset)
    _INT32.pack_into(buf, LEADER_EPOCH_AT, leader_epoch)


def stamp_log_append_time(buf: memoryview | bytearray, now_ms: int) -> None:
    """Make `now_ms` the time of every record, in place."""
    buf[ATTRIBUTES_LOW_AT] |= LOG_APPEND_TIME_BIT
    _INT64.pack_into(buf, MAX_TIMESTAMP_AT, now_ms)
    _UINT32.pack_into(buf, CRC_AT, crc32c(memoryview(buf)[CRC_FROM:]))


def read_header(buf: Buffer, at: int = 0) -> BatchHeader:
    """The header at `at` of a batch that lies in `buf` as a whole. Raises DecodeError."""
    if len(buf) - at < HEADER_BYTES:
        raise DecodeError(f"a batch header cut short at byte {at}")
    header = _new(BatchHeader, HEADER.unpack_from(buf, at))
    if header.magic != MAGIC:
        raise DecodeError(f"magic {header.magic} at byte {at}; only 2 is a record batch")
    if not HEADER_BYTES <= header.batch_length + LENGTH_FROM <= len(buf) - at:
        raise DecodeError(f"batch length {header.batch_length} at byte {at} does not fit")
    return header


def last_offset_delta(buf: Buffer, at: int) -> int:
    """The one field of the header at `at` that says how far the batch reaches."""
    delta: int = _INT32.unpack_from(buf, at + LAST_OFFSET_DELTA_AT)[0]
    return delta


def iter_batches(buf: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of the batches that lie one after the other in `buf`."""
    at = 0
    while at < len(buf):
        header = read_header(buf, at)
        yield at, header
        at += header.batch_length + LENGTH_FROM


def is_intact(buf: Buffer, at: int = 0) -> bool:
    """Whether the checksum of the batch at `at` matches. Raises DecodeError as `read_header`."""
    header = read_header(buf, at)
    return bool(crc32c(memoryview(buf)[at + CRC_FROM : at + header.size_bytes]) == header.crc)


# Records, for those who need to see them


def decode_records(batch: Buffer) -> list[Record]:
    """The records of one batch, decompressed, in order. Raises DecodeError.

    The checksum is not verified here: what is read from our own store was checked on the way in
    (see `is_intact`). Control batches give their markers; the caller asks `is_control`.
    """
    header = read_header(batch)
    if header.size_bytes != len(batch):
        raise DecodeError(f"{len(batch) - header.size_bytes} bytes follow the batch")
    body = decompress(header.codec, memoryview(batch)[HEADER_BYTES:])
    count = header.record_count
    if not 0 <= count <= len(body) // RECORD_BYTES_MIN:
        raise DecodeError(f"{count} records announced in {len(body)} bytes")
    records: list[Record] = []
    at = 0
    try:
        for _ in range(count):
            record, at = _read_record(body, at, header)
            records.append(record)
    except HOSTILE as error:
        raise DecodeError(f"record {len(records)} of the batch is cut short") from error
    if at != len(body):
        raise DecodeError(f"{len(body) - at} bytes follow the last record")
    return records


def encode_batch(
    records: Sequence[NewRecord],
    now_ms: int,
    *,
    compression: Compression = Compression.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
) -> bytearray:
    """One batch as a client would send it: base offset 0; records without a time get `now_ms`."""
    assert records, "a batch is never empty"
    times = [now_ms if r.timestamp_ms is None else r.timestamp_ms for r in records]
    body = bytearray()
    for index, record in enumerate(records):
        _write_record(body, record, times[index] - times[0], index)
    packed = compress(compression, bytes(body))
    batch = bytearray(HEADER_BYTES + len(packed))
    batch[HEADER_BYTES:] = packed
    HEADER.pack_into(
        batch,
        0,
        0,
        len(batch) - LENGTH_FROM,
        NO_LEADER_EPOCH,
        MAGIC,
        0,
        compression | (TRANSACTIONAL_BIT if transactional else 0),
        len(records) - 1,
        times[0],
        max(times),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    _UINT32.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[CRC_FROM:]))
    return batch


def find_timestamp(batch: Buffer, target_ms: int) -> tuple[int, int] | None:
    """(offset, time) of the first record at or after `target_ms`, exact to the record."""
    header = read_header(batch)
    if header.max_timestamp_ms < target_ms:
        return None
    for record in decode_records(batch):
        if record.timestamp_ms >= target_ms:
            return record.offset, record.timestamp_ms
    return None


def max_timestamp_record(batch: Buffer) -> tuple[int, int]:
    """(offset, time) of the first record with the greatest time in the batch."""
    records = decode_records(batch)
    if not records:
        return read_header(batch).base_offset, NO_TIMESTAMP
    newest = max(records, key=lambda record: record.timestamp_ms)
    return newest.offset, newest.timestamp_ms


def null_key_indexes(batch: Buffer) -> list[int]:
    """Positions in the batch of records without a key: a compacted topic refuses them."""
    return [index for index, r in enumerate(decode_records(batch)) if r.key is None]


# What check_batch says, kept off its straight path

_REFUSED_BITS: Final = CONTROL_BIT | LOG_APPEND_TIME_BIT


def _reject_short(size: int) -> NoReturn:
    if size == 0:
        raise BatchRejected(ErrorCode.INVALID_RECORD, "a partition without a record batch")
    raise BatchRejected(ErrorCode.CORRUPT_MESSAGE, f"{size} bytes are too few for a record batch")


def _reject_frame(header: BatchHeader, size: int) -> NoReturn:
    if header.magic != MAGIC:
        raise BatchRejected(
            ErrorCode.INVALID_RECORD, f"magic {header.magic}; only format 2 is accepted"
        )
    if HEADER_BYTES <= header.size_bytes < size:
        raise BatchRejected(
            ErrorCode.INVALID_RECORD, "a partition must contain exactly one record batch"
        )
    raise BatchRejected(
        ErrorCode.CORRUPT_MESSAGE,
        f"the batch announces {header.size_bytes} bytes, {size} were sent",
    )


def _reject_header(header: BatchHeader) -> NoReturn:
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        raise BatchRejected(
            ErrorCode.INVALID_RECORD,
            f"{header.record_count} records do not fill offsets 0 to {header.last_offset_delta}",
        )
    if header.is_control:
        raise BatchRejected(ErrorCode.INVALID_RECORD, "clients may not write control records")
    if header.is_log_append_time:
        raise BatchRejected(
            ErrorCode.INVALID_TIMESTAMP, "producers may not set the time type to LogAppendTime"
        )
    if header.codec > Compression.ZSTD:
        raise BatchRejected(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression codec {header.codec} is unknown"
        )
    raise BatchRejected(
        ErrorCode.INVALID_RECORD,
        f"producer id {header.producer_id}, epoch {header.producer_epoch} and sequence "
        f"{header.base_sequence} do not go together",
    )


# One record


def _read_record(body: bytes, at: int, header: BatchHeader) -> tuple[Record, int]:
    length, at = _read_varint(body, at)
    end = at + length
    if length < 0 or end > len(body):
        raise DecodeError(f"a record of {length} bytes at byte {at} does not fit")
    time_delta, at = _read_varint(body, at + 1)  # one byte of attributes that mean nothing
    offset_delta, at = _read_varint(body, at)
    key, at = _read_bytes(body, at)
    value, at = _read_bytes(body, at)
    header_count, at = _read_varint(body, at)
    if not 0 <= header_count <= len(body) - at:
        raise DecodeError(f"{header_count} record headers at byte {at}")
    headers: list[RecordHeader] = []
    for _ in range(header_count):
        name, at = _read_bytes(body, at)
        if name is None:
            raise DecodeError("a record header without a name")
        content, at = _read_bytes(body, at)
        # Brokers never look at names, so a log may hold any bytes: one odd name must not hide
        # the rest of the batch.
        headers.append(RecordHeader(name.decode("utf-8", "replace"), content))
    if at != end:
        raise DecodeError(f"a record ends at byte {at}, it announced {end}")
    time_ms = header.base_timestamp_ms + time_delta
    if header.attributes & LOG_APPEND_TIME_BIT:
        time_ms = header.max_timestamp_ms
    return Record(header.base_offset + offset_delta, time_ms, key, value, tuple(headers)), end


def _read_varint(body: bytes, at: int) -> tuple[int, int]:
    """Zigzag, seven bits a byte, low bits first, at most 64 bits."""
    byte = body[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    value = byte & 0x7F
    for i in range(1, VARINT_BYTES_MAX):
        byte = body[at + i]
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            if value >> 64:
                break
            return (value >> 1) ^ -(value & 1), at + i + 1
    raise DecodeError(f"a varint above 64 bits at byte {at}")


def _read_bytes(body: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = _read_varint(body, at)
    if length == -1:
        return None, at
    end = at + length
    if length < 0 or end > len(body):
        raise DecodeError(f"{length} bytes announced at byte {at}, {len(body) - at} are left")
    return body[at:end], end


def _write_record(out: bytearray, record: NewRecord, time_delta: int, offset_delta: int) -> None:
    content = bytearray(1)
    _write_varint(content, time_delta)
    _write_varint(content, offset_delta)
    _write_bytes(content, record.key)
    _write_bytes(content, record.value)
    _write_varint(content, len(record.headers))
    for header in record.headers:
        _write_bytes(content, header.name.encode())
        _write_bytes(content, header.value)
    _write_varint(out, len(content))
    out += content


def _write_varint(out: bytearray, value: int) -> None:
    value = (value << 1) ^ (value >> 63)
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _write_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(0x01)  # -1
        return
    _write_varint(out, len(value))
    out += value
