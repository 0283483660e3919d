"""Record batches: what a client may send, what a leader changes, and the records inside."""

import struct
from typing import Any

import cramjam
import lz4.frame
import pytest
import zstandard
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.records.readers import read_batch

from streamhouse.kafka_proto import compression, record_batch
from streamhouse.kafka_proto.compression import Compression, compress, decompress
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.record_batch import (
    HEADER,
    BatchRejected,
    assign,
    check_batch,
    decode_records,
    encode_batch,
    find_timestamp,
    is_intact,
    iter_batches,
    max_timestamp_record,
    null_key_indexes,
    read_header,
    stamp_log_append_time,
)
from streamhouse.model.errors import DecodeError
from streamhouse.model.records import NewRecord, Record, RecordHeader

NOW_MS = 1_700_000_000_000
LARGE = 1 << 20
SOME = settings(max_examples=60, deadline=None)
FIELDS = record_batch.BatchHeader._fields

BYTES = st.none() | st.binary(max_size=300)
HEADERS = st.lists(
    st.builds(RecordHeader, st.text(st.characters(codec="utf-8"), max_size=10), BYTES), max_size=3
).map(tuple)
RECORDS = st.lists(
    st.builds(NewRecord, BYTES, BYTES, HEADERS, st.none() | st.integers(0, 2**41)),
    min_size=1,
    max_size=8,
)


def batch_of(*values: bytes, **options: Any) -> bytearray:
    return encode_batch([NewRecord(None, value) for value in values], NOW_MS, **options)


def with_fields(batch: bytearray, **changes: int) -> bytearray:
    """The batch with other header fields and, unless it is changed too, a fitting checksum."""
    values = read_header(batch)._replace(**changes)
    out = bytearray(batch)
    HEADER.pack_into(out, 0, *values)
    if "crc" not in changes:
        struct.pack_into(">I", out, record_batch.CRC_AT, crc32c(out[record_batch.CRC_FROM :]))
    return out


def rejection(batch: bytes | bytearray, max_message_bytes: int = LARGE) -> ErrorCode:
    with pytest.raises(BatchRejected) as caught:
        check_batch(memoryview(batch), max_message_bytes)
    return caught.value.code


# SH-104, SH-110


@pytest.mark.parametrize("codec", list(Compression))
@SOME
@given(records=RECORDS)
def test_sh104_records_survive_a_round_trip(codec: Compression, records: list[NewRecord]) -> None:
    """Goal: headers, times, null and empty keys and values come back as they went."""
    batch = encode_batch(records, NOW_MS, compression=codec)
    header = check_batch(memoryview(batch), LARGE)
    assert header.codec == codec
    assign(batch, 1000, 7)
    assert decode_records(batch) == [
        Record(
            1000 + index,
            NOW_MS if record.timestamp_ms is None else record.timestamp_ms,
            record.key,
            record.value,
            record.headers,
        )
        for index, record in enumerate(records)
    ]
    assert header.max_timestamp_ms == max(r.timestamp_ms for r in decode_records(batch))


@SOME
@given(records=RECORDS)
def test_sh104_kio_reads_the_same_records(records: list[NewRecord]) -> None:
    batch = encode_batch(records, NOW_MS, producer_id=5, producer_epoch=2, base_sequence=9)
    found, size = read_batch(bytes(batch), 0)
    assert size == len(batch)
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (5, 2, 9)
    assert [(r.key, r.value) for r in found.records] == [(r.key, r.value) for r in records]
    assert [[(h.key, h.value) for h in r.headers] for r in found.records] == [
        [(h.name.encode(), h.value) for h in r.headers] for r in records
    ]


RAW = b"some text, some text, " * 4000


@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        (Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(RAW))),
        (Compression.SNAPPY, compress(Compression.SNAPPY, RAW)),
        (Compression.LZ4, lz4.frame.compress(RAW)),
        (Compression.LZ4, lz4.frame.compress(RAW, store_size=False, content_checksum=True)),
        (Compression.LZ4, lz4.frame.compress(RAW, block_linked=False, block_checksum=True)),
        (Compression.ZSTD, zstandard.ZstdCompressor(write_content_size=False).compress(RAW)),
        (
            Compression.ZSTD,
            zstandard.compress(RAW[:1000]) + zstandard.compress(RAW[1000:]),
        ),
        (Compression.GZIP, bytes(cramjam.gzip.compress(RAW))),
        (
            Compression.GZIP,
            bytes(cramjam.gzip.compress(RAW[:1000])) + bytes(cramjam.gzip.compress(RAW[1000:])),
        ),
    ],
)
def test_sh110_all_framings_of_all_codecs_are_read(codec: Compression, packed: bytes) -> None:
    assert decompress(codec, packed) == RAW


@pytest.mark.parametrize("codec", list(Compression)[1:])
def test_a_decompression_bomb_stops_at_the_limit(codec: Compression) -> None:
    packed = compress(codec, bytes(5_000_000))
    assert len(decompress(codec, packed, bytes_max=5_000_000)) == 5_000_000
    with pytest.raises(DecodeError, match="more than"):
        decompress(codec, packed, bytes_max=4_999_999)


@pytest.mark.parametrize("codec", list(Compression)[1:])
@SOME
@given(data=st.data())
def test_hostile_compressed_bytes_give_decode_errors_only(
    codec: Compression, data: st.DataObject
) -> None:
    packed = bytearray(compress(codec, b"some text, some text, " * 20))
    for at in data.draw(st.lists(st.integers(0, len(packed) - 1), max_size=4)):
        packed[at] ^= data.draw(st.integers(1, 255))
    for hostile in (packed, packed[: data.draw(st.integers(0, len(packed)))], bytes(packed[5:])):
        try:
            decompress(codec, hostile)
        except DecodeError:
            continue


def test_unknown_codecs_do_not_decompress() -> None:
    with pytest.raises(DecodeError):
        decompress(5, b"")


def test_the_limit_of_a_batch_is_larger_than_any_message() -> None:
    assert compression.RECORDS_BYTES_MAX >= 64 * LARGE


# What a client may send


def test_a_good_batch_passes_and_shows_its_header() -> None:
    batch = batch_of(b"a", b"b", producer_id=3, producer_epoch=1, base_sequence=2147483647)
    header = check_batch(memoryview(batch), len(batch))
    assert header.record_count == 2
    assert header.size_bytes == len(batch)
    assert (header.last_offset, header.end_offset) == (1, 2)
    assert header.last_sequence == 0  # sequences wrap
    assert header.attributes == 0


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"magic": 1}, ErrorCode.INVALID_RECORD),
        ({"magic": 0}, ErrorCode.INVALID_RECORD),
        ({"magic": 3}, ErrorCode.INVALID_RECORD),
        ({"batch_length": 10_000}, ErrorCode.CORRUPT_MESSAGE),
        ({"batch_length": 48}, ErrorCode.CORRUPT_MESSAGE),
        ({"batch_length": -1}, ErrorCode.CORRUPT_MESSAGE),
        ({"batch_length": 49}, ErrorCode.INVALID_RECORD),
        ({"crc": 1}, ErrorCode.CORRUPT_MESSAGE),
        ({"record_count": 3}, ErrorCode.INVALID_RECORD),
        ({"record_count": 0, "last_offset_delta": -1}, ErrorCode.INVALID_RECORD),
        ({"record_count": -1, "last_offset_delta": -2}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": 0}, ErrorCode.INVALID_RECORD),
        ({"attributes": record_batch.CONTROL_BIT}, ErrorCode.INVALID_RECORD),
        ({"attributes": record_batch.LOG_APPEND_TIME_BIT}, ErrorCode.INVALID_TIMESTAMP),
        ({"attributes": record_batch.TRANSACTIONAL_BIT}, ErrorCode.INVALID_RECORD),
        ({"attributes": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"attributes": 7}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"producer_id": 4}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 4, "producer_epoch": 0}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 4, "base_sequence": 0}, ErrorCode.INVALID_RECORD),
        ({"producer_id": -2}, ErrorCode.INVALID_RECORD),
    ],
)
def test_a_bad_batch_is_refused_with_its_code(changes: dict[str, int], code: ErrorCode) -> None:
    batch = batch_of(b"one", b"two")
    check_batch(memoryview(with_fields(batch)), LARGE)
    assert set(changes) <= set(FIELDS)
    assert rejection(with_fields(batch, **changes)) == code


def test_size_and_number_of_batches_are_checked() -> None:
    batch = batch_of(b"one")
    assert rejection(batch, len(batch) - 1) == ErrorCode.MESSAGE_TOO_LARGE
    assert rejection(batch + batch) == ErrorCode.INVALID_RECORD
    assert rejection(b"") == ErrorCode.INVALID_RECORD
    assert rejection(batch[:60]) == ErrorCode.CORRUPT_MESSAGE
    assert rejection(batch[:-1]) == ErrorCode.CORRUPT_MESSAGE


def test_every_flipped_bit_under_the_checksum_is_noticed() -> None:
    batch = batch_of(b"value")
    for at in range(record_batch.CRC_AT, len(batch)):
        damaged = bytearray(batch)
        damaged[at] ^= 0x10
        assert rejection(damaged) == ErrorCode.CORRUPT_MESSAGE


@settings(max_examples=200, deadline=None)
@given(raw=st.binary(max_size=120), magic=st.booleans())
def test_hostile_batches_are_rejected_and_nothing_else(raw: bytes, magic: bool) -> None:
    hostile = bytearray(raw)
    if magic and len(hostile) > 16:
        hostile[16] = record_batch.MAGIC
        struct.pack_into(">i", hostile, 8, len(hostile) - 12)
    with pytest.raises(BatchRejected):
        check_batch(memoryview(hostile), LARGE)
    with pytest.raises(DecodeError):
        decode_records(hostile + b"\xff")


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
@SOME
@given(data=st.data())
def test_hostile_records_give_decode_errors_only(codec: Compression, data: st.DataObject) -> None:
    """Goal: a client's records are never looked at on the way in, so reading must stand them."""
    batch = encode_batch(data.draw(RECORDS), NOW_MS, compression=codec)
    for at in data.draw(st.lists(st.integers(17, len(batch) - 1), min_size=1, max_size=5)):
        batch[at] ^= data.draw(st.integers(1, 255))
    try:
        decode_records(batch)
    except DecodeError:
        return


def test_a_cut_batch_never_decodes() -> None:
    batch = encode_batch([NewRecord(b"k", b"v", (RecordHeader("h", b"x"),))], NOW_MS)
    for cut in range(len(batch)):
        with pytest.raises(DecodeError):
            decode_records(batch[:cut])
        shorter = batch[:cut]
        if cut >= record_batch.HEADER_BYTES:
            struct.pack_into(">i", shorter, record_batch.LENGTH_AT, cut - 12)
            with pytest.raises(DecodeError):
                decode_records(shorter)


def test_an_odd_header_name_does_not_hide_the_batch() -> None:
    batch = encode_batch([NewRecord(b"k", b"v", (RecordHeader("hhh", b"x"),))], NOW_MS)
    at = batch.index(b"hhh")
    batch[at : at + 3] = b"\xff\xfe\xfd"
    assert decode_records(batch)[0].value == b"v"


# What a leader changes


def test_numbering_keeps_the_checksum() -> None:
    batch = batch_of(b"a", b"b")
    assign(memoryview(batch), 2**40, 12)
    header = check_batch(memoryview(batch), LARGE)
    assert (header.base_offset, header.leader_epoch, header.end_offset) == (2**40, 12, 2**40 + 2)
    assert is_intact(batch)


def test_log_append_time_is_stamped_and_the_checksum_follows() -> None:
    batch = encode_batch([NewRecord(None, b"a", (), 5), NewRecord(None, b"b", (), 9)], NOW_MS)
    stamp_log_append_time(memoryview(batch), NOW_MS)
    assert is_intact(batch)
    assert read_header(batch).is_log_append_time
    assert [r.timestamp_ms for r in decode_records(batch)] == [NOW_MS, NOW_MS]
    assert find_timestamp(batch, NOW_MS) == (0, NOW_MS)
    assert find_timestamp(batch, NOW_MS + 1) is None
    assert max_timestamp_record(batch) == (0, NOW_MS)


def test_batches_are_walked_in_order_and_a_cut_one_is_noticed() -> None:
    one, two = batch_of(b"a"), batch_of(b"bb", b"cc")
    assign(two, 1, 0)
    found = list(iter_batches(one + two))
    assert [at for at, _ in found] == [0, len(one)]
    assert [header.base_offset for _, header in found] == [0, 1]
    assert list(iter_batches(b"")) == []
    with pytest.raises(DecodeError):
        list(iter_batches((one + two)[:-1]))


# Looking inside


@pytest.mark.parametrize("codec", list(Compression))
def test_sh109_a_time_is_found_exact_to_the_record(codec: Compression) -> None:
    times = [10, 30, 20, 40, 40]
    batch = encode_batch([NewRecord(None, b"x", (), t) for t in times], 0, compression=codec)
    assign(batch, 100, 0)
    assert find_timestamp(batch, 0) == (100, 10)
    assert find_timestamp(batch, 11) == (101, 30)
    assert find_timestamp(batch, 31) == (103, 40)
    assert find_timestamp(batch, 41) is None
    assert max_timestamp_record(batch) == (103, 40)


def test_records_without_a_key_are_named() -> None:
    batch = encode_batch(
        [NewRecord(b"k", b"v"), NewRecord(None, b"v"), NewRecord(b"", b"v")], NOW_MS
    )
    assert null_key_indexes(batch) == [1]
