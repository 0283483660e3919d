"""Produce (key 0), versions 3-13, by hand: this and Fetch are where the requests per second are.

Owns: request bytes -> ProduceRequest, answers -> response frame.
Must not know: what a record batch is; records are a slice of the frame, writable if the frame is.
Behaviour: acks=0 gets no response (the caller's duty); bytes behind the request are ignored, as
Kafka does.
Gaps: tagged fields of the request are skipped (Kafka defines none); a record error carries no
more than its index and message.
Versions: 3 transactional id; 5 log start offset; 8 record errors (KIP-467); 9 flexible;
10 leader hint (KIP-951); 12 implicit add to transaction; 13 topic ids in place of names.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from streamhouse.kafka_proto.primitives import (
    HOSTILE,
    compact_string,
    read_compact_string,
    read_short_string,
    read_uvarint,
    short_string,
    skip_tags,
    tagged,
    uuid_bytes,
    uuid_of,
    uvarint,
)
from streamhouse.model.errors import DecodeError
from streamhouse.model.limits import PARTITIONS_PER_PROCESS_MAX

VERSION_MIN: Final = 3
VERSION_FLEXIBLE: Final = 9
VERSION_MAX: Final = 13

_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_ACKS_TIMEOUT_COUNT: Final = struct.Struct(">hii")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_TWO_INT32: Final = struct.Struct(">ii")
_PARTITION_9: Final = struct.Struct(">iBBB")  # index, the length's first bytes
_RESULT_3: Final = struct.Struct(">ihqq")  # index, error, base offset, append time
_RESULT_5: Final = struct.Struct(">ihqqq")  # + log start offset
_RESULT_8: Final = struct.Struct(">ihqqqih")  # + no record errors, no message
_RESULT_9: Final = struct.Struct(">ihqqqBBB")  # the same, compact, + no tagged fields
_LEADER: Final = struct.Struct(">iiB")


class ProduceTopic(NamedTuple):
    name: str | None  # versions 3-12
    topic_id: UUID | None  # version 13; None also for the all-zero id
    partitions: list[tuple[int, memoryview | None]]  # (partition, records)


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


class ProducePartitionResult(NamedTuple):
    partition: int
    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str | None]] = ()  # (index in the batch, message)
    error_message: str | None = None
    current_leader: tuple[int, int] | None = None  # (node, epoch)


class ProduceTopicResult(NamedTuple):
    name: str | None
    topic_id: UUID | None
    partitions: Sequence[ProducePartitionResult]


class NodeEndpoint(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None = None


def decode_request(frame: memoryview, at: int, version: int) -> ProduceRequest:
    """The request whose body begins at `at`. Raises DecodeError and nothing else."""
    assert VERSION_MIN <= version <= VERSION_MAX
    try:
        if version >= VERSION_FLEXIBLE:
            return _decode_flexible(frame, at, by_id=version >= 13)
        return _decode_plain(frame, at)
    except HOSTILE as error:
        raise DecodeError(f"Produce {version} does not follow its format") from error


def encode_response(
    version: int,
    correlation_id: int,
    topics: Sequence[ProduceTopicResult],
    *,
    throttle_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """The whole response frame, with size prefix and header."""
    if version >= VERSION_FLEXIBLE:
        body = _flexible_body(version, topics, throttle_ms, node_endpoints)
        return b"".join((_TWO_INT32.pack(len(body) + 5, correlation_id), b"\x00", body))
    body = _plain_body(version, topics, throttle_ms)
    return _TWO_INT32.pack(len(body) + 4, correlation_id) + body


def _decode_plain(buf: memoryview, at: int) -> ProduceRequest:
    size = len(buf)
    transactional_id, at = read_short_string(buf, at)
    acks, timeout_ms, topic_count = _ACKS_TIMEOUT_COUNT.unpack_from(buf, at)
    at += 10
    if not 0 <= topic_count <= min((size - at) // 6, PARTITIONS_PER_PROCESS_MAX):
        raise DecodeError(f"{topic_count} topics in {size - at} bytes")
    topics: list[ProduceTopic] = []
    partitions_total = 0
    for _ in range(topic_count):
        name_bytes = _INT16.unpack_from(buf, at)[0]
        at += 2
        end = at + name_bytes
        if name_bytes < 0 or end > size:
            raise DecodeError(f"a topic name of {name_bytes} bytes")
        name = str(buf[at:end], "utf-8")
        count = _INT32.unpack_from(buf, end)[0]
        at = end + 4
        partitions_total += count
        if not 0 <= count <= (size - at) // 8 or partitions_total > PARTITIONS_PER_PROCESS_MAX:
            raise DecodeError(f"{count} partitions in {size - at} bytes")
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(count):
            partition, length = _TWO_INT32.unpack_from(buf, at)
            at += 8
            if length < 0:
                if length != -1:
                    raise DecodeError(f"records of {length} bytes")
                partitions.append((partition, None))
                continue
            end = at + length
            if end > size:
                raise DecodeError(f"records of {length} bytes, {size - at} are left")
            partitions.append((partition, buf[at:end]))
            at = end
        topics.append(ProduceTopic(name, None, partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _decode_flexible(buf: memoryview, at: int, *, by_id: bool) -> ProduceRequest:
    size = len(buf)
    transactional_id = None
    if buf[at] == 0:  # hardly anyone has one
        at += 1
    else:
        transactional_id, at = read_compact_string(buf, at)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(buf, at)
    topic_count, at = read_uvarint(buf, at + 6)
    # Counts are one more than the array has items; 0 is null.
    if not 1 <= topic_count <= min((size - at) // 3, PARTITIONS_PER_PROCESS_MAX) + 1:
        raise DecodeError(f"topic count {topic_count} in {size - at} bytes")
    topics: list[ProduceTopic] = []
    partitions_total = 0
    for _ in range(topic_count - 1):
        name = topic_id = None
        if by_id:
            if size - at < 16:
                raise DecodeError("a topic id cut short")
            topic_id = uuid_of(buf[at : at + 16].tobytes())
            at += 16
        else:
            name, at = read_compact_string(buf, at)
            if name is None:
                raise DecodeError("a topic without a name")
        count, at = read_uvarint(buf, at)
        partitions_total += count - 1
        if not 1 <= count <= (size - at) // 6 + 1 or partitions_total > PARTITIONS_PER_PROCESS_MAX:
            raise DecodeError(f"partition count {count} in {size - at} bytes")
        partitions, at = _flexible_partitions(buf, at, count - 1)
        at = at + 1 if buf[at] == 0 else skip_tags(buf, at)
        topics.append(ProduceTopic(name, topic_id, partitions))
    skip_tags(buf, at)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _flexible_partitions(
    buf: memoryview, at: int, count: int
) -> tuple[list[tuple[int, memoryview | None]], int]:
    size = len(buf)
    partitions: list[tuple[int, memoryview | None]] = []
    for _ in range(count):
        # The length of the records has two or three bytes for most batches: read without a call.
        partition, one, two, three = _PARTITION_9.unpack_from(buf, at)
        if two < 0x80 <= one:
            length = one & 0x7F | two << 7
            at += 6
        elif three < 0x80 <= one:
            length = one & 0x7F | (two & 0x7F) << 7 | three << 14
            at += 7
        else:
            length, at = read_uvarint(buf, at + 4)
        if length == 0:
            partitions.append((partition, None))
        else:
            end = at + length - 1
            if end > size:
                raise DecodeError(f"records of {length - 1} bytes, {size - at} are left")
            partitions.append((partition, buf[at:end]))
            at = end
        at = at + 1 if buf[at] == 0 else skip_tags(buf, at)
    return partitions, at


def _plain_body(version: int, topics: Sequence[ProduceTopicResult], throttle_ms: int) -> bytes:
    parts = [_INT32.pack(len(topics))]
    append = parts.append
    for name, _, partitions in topics:
        append(short_string(name))
        append(_INT32.pack(len(partitions)))
        for partition, error, base, append_ms, log_start, errors, message, _ in partitions:
            if version < 5:
                append(_RESULT_3.pack(partition, error, base, append_ms))
            elif version < 8:
                append(_RESULT_5.pack(partition, error, base, append_ms, log_start))
            elif not errors and message is None:
                append(_RESULT_8.pack(partition, error, base, append_ms, log_start, 0, -1))
            else:
                append(_RESULT_5.pack(partition, error, base, append_ms, log_start))
                append(_INT32.pack(len(errors)))
                for index, text in errors:
                    append(_INT32.pack(index) + short_string(text))
                append(short_string(message))
    append(_INT32.pack(throttle_ms))
    return b"".join(parts)


def _flexible_body(
    version: int,
    topics: Sequence[ProduceTopicResult],
    throttle_ms: int,
    node_endpoints: Sequence[NodeEndpoint],
) -> bytes:
    parts = [uvarint(len(topics) + 1)]
    append = parts.append
    pack = _RESULT_9.pack
    for name, topic_id, partitions in topics:
        append(uuid_bytes(topic_id) if version >= 13 else compact_string(name))
        append(uvarint(len(partitions) + 1))
        for result in partitions:
            partition, error, base, append_ms, log_start, errors, message, leader = result
            if errors or message is not None or leader is not None:
                append(_odd_result(version, result))
            else:
                append(pack(partition, error, base, append_ms, log_start, 1, 0, 0))
        append(b"\x00")
    append(_INT32.pack(throttle_ms))
    if node_endpoints and version >= 10:
        append(tagged([(0, encode_node_endpoints(node_endpoints))]))
    else:
        append(b"\x00")
    return b"".join(parts)


def _odd_result(version: int, result: ProducePartitionResult) -> bytes:
    """A partition that failed, with all it has to say."""
    parts = [_RESULT_5.pack(*result[:5]), uvarint(len(result.record_errors) + 1)]
    for index, text in result.record_errors:
        parts += (_INT32.pack(index), compact_string(text), b"\x00")
    parts.append(compact_string(result.error_message))
    if result.current_leader is not None and version >= 10:
        parts.append(tagged([(0, _LEADER.pack(*result.current_leader, 0))]))
    else:
        parts.append(b"\x00")
    return b"".join(parts)


def encode_node_endpoints(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """Where the leaders named in the answer can be reached (KIP-951)."""
    parts = [uvarint(len(endpoints) + 1)]
    for node_id, host, port, rack in endpoints:
        parts += (
            _INT32.pack(node_id),
            compact_string(host),
            _INT32.pack(port),
            compact_string(rack),
            b"\x00",
        )
    return b"".join(parts)
