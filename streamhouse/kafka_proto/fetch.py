"""Fetch (key 1), versions 4-18, by hand.

Owns: request bytes -> FetchRequest, answers -> response frame as a list of buffers in which the
records are the caller's own buffers, never copied.
Must not know: sessions, logs, isolation; it only carries their fields.
Behaviour: a partition without records answers with empty, not null, records; bytes behind the
request are ignored, as Kafka does.
Gaps: tagged fields of followers (directory id, high watermark) are skipped: there are none here.
Versions: 5 log start offset; 7 sessions; 9 leader epoch; 10 zstd; 11 rack; 12 flexible, last
fetched epoch; 13 topic ids in place of names; 15 replica state; 16 node endpoints; 17-18
fields of followers.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from streamhouse.kafka_proto.primitives import (
    HOSTILE,
    Buffer,
    compact_string,
    read_compact_string,
    read_short_string,
    read_tags,
    read_uvarint,
    short_string,
    skip_tags,
    tagged,
    uuid_bytes,
    uuid_of,
    uvarint,
)
from streamhouse.kafka_proto.produce import NodeEndpoint, encode_node_endpoints
from streamhouse.model.errors import DecodeError
from streamhouse.model.limits import PARTITIONS_PER_PROCESS_MAX

VERSION_MIN: Final = 4
VERSION_FLEXIBLE: Final = 12
VERSION_MAX: Final = 18

NO_EPOCH: Final = -1
NO_OFFSET: Final = -1
SESSIONLESS_EPOCH: Final = -1

_INT32: Final = struct.Struct(">i")
_TOP_4: Final = struct.Struct(">iiiib")  # replica, wait, min, max, isolation
_TOP_7: Final = struct.Struct(">iiiibii")  # + session id, session epoch
_TOP_15: Final = struct.Struct(">iiibii")  # without the replica, which became a tagged field
_PARTITION_4: Final = struct.Struct(">iqi")
_PARTITION_5: Final = struct.Struct(">iqqi")
_PARTITION_9: Final = struct.Struct(">iiqqi")
_PARTITION_12: Final = struct.Struct(">iiqiqi")
_PARTITION_12_UNTAGGED: Final = struct.Struct(">iiqiqix")
_REPLICA_STATE: Final = struct.Struct(">iq")
_new: Final = tuple.__new__  # a NamedTuple from a row, without its Python constructor
_TAG_CLUSTER_ID: Final = 0
_TAG_REPLICA_STATE: Final = 1


class FetchPartition(NamedTuple):
    """In the order of version 12, so that one unpack fills it."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int


class FetchTopic(NamedTuple):
    name: str | None  # versions 4-12
    topic_id: UUID | None  # version 13 and up; None also for the all-zero id
    partitions: list[FetchPartition]


class ForgottenTopic(NamedTuple):
    name: str | None
    topic_id: UUID | None
    partitions: list[int]


class FetchRequest(NamedTuple):
    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]
    rack_id: str
    replica_epoch: int = NO_EPOCH
    cluster_id: str | None = None


class FetchHints(NamedTuple):
    """Tagged fields of a partition's answer, version 12 and up."""

    diverging_epoch: tuple[int, int] | None = None  # (epoch, end offset)
    current_leader: tuple[int, int] | None = None  # (node, epoch)
    snapshot_id: tuple[int, int] | None = None  # (end offset, epoch)


class FetchPartitionResult(NamedTuple):
    partition: int
    error_code: int
    high_watermark: int = NO_OFFSET
    last_stable_offset: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    records: Sequence[Buffer] = ()  # whole batches, one after the other
    records_bytes: int = 0  # all of them together
    aborted: Sequence[tuple[int, int]] | None = None  # (producer id, first offset)
    preferred_read_replica: int = -1
    hints: FetchHints | None = None


class FetchTopicResult(NamedTuple):
    name: str | None
    topic_id: UUID | None
    partitions: Sequence[FetchPartitionResult]


# The request


def decode_request(frame: memoryview, at: int, version: int) -> FetchRequest:
    """The request whose body begins at `at`. Raises DecodeError and nothing else."""
    assert VERSION_MIN <= version <= VERSION_MAX
    try:
        if version >= VERSION_FLEXIBLE:
            return _decode_flexible(frame, at, version)
        return _decode_plain(frame, at, version)
    except HOSTILE as error:
        raise DecodeError(f"Fetch {version} does not follow its format") from error


def _decode_plain(buf: memoryview, at: int, version: int) -> FetchRequest:
    session_id, session_epoch = 0, SESSIONLESS_EPOCH
    if version >= 7:
        replica, wait, low, high, isolation, session_id, session_epoch = _TOP_7.unpack_from(buf, at)
        at += _TOP_7.size
    else:
        replica, wait, low, high, isolation = _TOP_4.unpack_from(buf, at)
        at += _TOP_4.size
    topic_count, at = _plain_count(buf, at, 6)
    topics: list[FetchTopic] = []
    partitions_total = 0
    for _ in range(topic_count):
        name, at = _plain_text(buf, at)
        count, at = _plain_count(buf, at, 16)
        partitions_total = _add_partitions(partitions_total, count)
        partitions, at = _plain_partitions(buf, at, count, version)
        topics.append(FetchTopic(name, None, partitions))
    forgotten: list[ForgottenTopic] = []
    if version >= 7:
        forgotten, at = _plain_forgotten(buf, at)
    rack = ""
    if version >= 11:
        rack, at = _plain_text(buf, at)
    return FetchRequest(
        replica, wait, low, high, isolation, session_id, session_epoch, topics, forgotten, rack
    )


def _plain_partitions(
    buf: memoryview, at: int, count: int, version: int
) -> tuple[list[FetchPartition], int]:
    """Partitions have a fixed size here, so one unpack walks them all."""
    if version >= 9:
        row = _PARTITION_9
    elif version >= 5:
        row = _PARTITION_5
    else:
        row = _PARTITION_4
    end = at + count * row.size
    if end > len(buf):
        raise DecodeError(f"{count} partitions in {len(buf) - at} bytes")
    rows = row.iter_unpack(buf[at:end])
    if version >= 9:
        return [FetchPartition(p, e, o, -1, start, m) for p, e, o, start, m in rows], end
    if version >= 5:
        return [FetchPartition(p, -1, o, -1, start, m) for p, o, start, m in rows], end
    return [FetchPartition(p, -1, o, -1, -1, m) for p, o, m in rows], end


def _plain_forgotten(buf: memoryview, at: int) -> tuple[list[ForgottenTopic], int]:
    topic_count, at = _plain_count(buf, at, 6)
    forgotten: list[ForgottenTopic] = []
    partitions_total = 0
    for _ in range(topic_count):
        name, at = _plain_text(buf, at)
        count, at = _plain_count(buf, at, 4)
        partitions_total = _add_partitions(partitions_total, count)
        end = at + 4 * count
        partitions = [partition for (partition,) in _INT32.iter_unpack(buf[at:end])]
        forgotten.append(ForgottenTopic(name, None, partitions))
        at = end
    return forgotten, at


def _plain_text(buf: memoryview, at: int) -> tuple[str, int]:
    text, at = read_short_string(buf, at)
    if text is None:
        raise DecodeError("a topic name or rack id is null")
    return text, at


def _plain_count(buf: memoryview, at: int, item_bytes: int) -> tuple[int, int]:
    count: int = _INT32.unpack_from(buf, at)[0]
    at += 4
    if not 0 <= count <= min((len(buf) - at) // item_bytes, PARTITIONS_PER_PROCESS_MAX):
        raise DecodeError(f"an array of {count} items in {len(buf) - at} bytes")
    return count, at


def _decode_flexible(buf: memoryview, at: int, version: int) -> FetchRequest:
    by_id = version >= 13
    replica = -1
    if version >= 15:
        wait, low, high, isolation, session_id, session_epoch = _TOP_15.unpack_from(buf, at)
        at += _TOP_15.size
    else:
        replica, wait, low, high, isolation, session_id, session_epoch = _TOP_7.unpack_from(buf, at)
        at += _TOP_7.size
    topic_count, at = _compact_count(buf, at, 3)
    topics: list[FetchTopic] = []
    partitions_total = 0
    for _ in range(topic_count):
        name, topic_id, at = _topic(buf, at, by_id)
        count, at = _compact_count(buf, at, _PARTITION_12_UNTAGGED.size)
        partitions_total = _add_partitions(partitions_total, count)
        partitions, at = _flexible_partitions(buf, at, count)
        at = skip_tags(buf, at)
        topics.append(FetchTopic(name, topic_id, partitions))
    forgotten: list[ForgottenTopic] = []
    if buf[at] == 1:  # an empty array, as nearly always
        at += 1
    else:
        forgotten, at = _flexible_forgotten(buf, at, by_id)
    rack, at = read_compact_string(buf, at)
    if rack is None:
        raise DecodeError("rack id is null")
    replica_epoch, cluster_id = NO_EPOCH, None
    if buf[at]:
        replica, replica_epoch, cluster_id = _top_tags(buf, at, replica, version)
    return FetchRequest(
        replica,
        wait,
        low,
        high,
        isolation,
        session_id,
        session_epoch,
        topics,
        forgotten,
        rack,
        replica_epoch,
        cluster_id,
    )


def _flexible_partitions(buf: memoryview, at: int, count: int) -> tuple[list[FetchPartition], int]:
    """One unpack walks them all if none has tagged fields, which is so for consumers."""
    stride = _PARTITION_12_UNTAGGED.size
    end = at + count * stride
    # By induction: if each count of tagged fields stands where it must and is 0, so it is.
    if not any(buf[at + stride - 1 : end : stride]):
        rows = _PARTITION_12_UNTAGGED.iter_unpack(buf[at:end])
        return [_new(FetchPartition, row) for row in rows], end
    partitions: list[FetchPartition] = []
    for _ in range(count):
        partitions.append(_new(FetchPartition, _PARTITION_12.unpack_from(buf, at)))
        at = skip_tags(buf, at + _PARTITION_12.size)
    return partitions, at


def _flexible_forgotten(buf: memoryview, at: int, by_id: bool) -> tuple[list[ForgottenTopic], int]:
    topic_count, at = _compact_count(buf, at, 3)
    forgotten: list[ForgottenTopic] = []
    partitions_total = 0
    for _ in range(topic_count):
        name, topic_id, at = _topic(buf, at, by_id)
        count, at = _compact_count(buf, at, 4)
        partitions_total = _add_partitions(partitions_total, count)
        end = at + 4 * count
        partitions = [partition for (partition,) in _INT32.iter_unpack(buf[at:end])]
        forgotten.append(ForgottenTopic(name, topic_id, partitions))
        at = skip_tags(buf, end)
    return forgotten, at


def _topic(buf: memoryview, at: int, by_id: bool) -> tuple[str | None, UUID | None, int]:
    if by_id:
        end = at + 16
        if end > len(buf):
            raise DecodeError("a topic id cut short")
        return None, uuid_of(buf[at:end].tobytes()), end
    name, at = read_compact_string(buf, at)
    if name is None:
        raise DecodeError("a topic without a name")
    return name, None, at


def _compact_count(buf: memoryview, at: int, item_bytes: int) -> tuple[int, int]:
    count = buf[at]
    if count < 0x80:
        at += 1
    else:
        count, at = read_uvarint(buf, at)
    if not 1 <= count <= min((len(buf) - at) // item_bytes, PARTITIONS_PER_PROCESS_MAX) + 1:
        raise DecodeError(f"array count {count} in {len(buf) - at} bytes")
    return count - 1, at


def _add_partitions(total: int, count: int) -> int:
    total += count
    if total > PARTITIONS_PER_PROCESS_MAX:
        raise DecodeError(f"more than {PARTITIONS_PER_PROCESS_MAX} partitions in one request")
    return total


def _top_tags(buf: memoryview, at: int, replica: int, version: int) -> tuple[int, int, str | None]:
    """(replica id, replica epoch, cluster id) out of the tagged fields at the end."""
    replica_epoch, cluster_id = NO_EPOCH, None
    for tag, start, end in read_tags(buf, at)[0]:
        if tag == _TAG_CLUSTER_ID:
            cluster_id, _ = read_compact_string(buf[start:end], 0)
        elif tag == _TAG_REPLICA_STATE and version >= 15:
            replica, replica_epoch = _REPLICA_STATE.unpack_from(buf[start:end])
    return replica, replica_epoch, cluster_id


# The response

_HEAD_4: Final = struct.Struct(">iii")  # size, correlation id, throttle
_HEAD_7: Final = struct.Struct(">iiihi")  # + error, session id
_HEAD_12: Final = struct.Struct(">iiBihi")  # + tagged fields of the header
_RESULT_4: Final = struct.Struct(">ihqq")
_RESULT_5: Final = struct.Struct(">ihqqq")
_RESULT_12: Final = struct.Struct(">ihqqqBi")  # no aborted list, preferred replica
_ABORTED: Final = struct.Struct(">qq")
_ABORTED_12: Final = struct.Struct(">qqB")
_DIVERGING: Final = struct.Struct(">iqB")
_LEADER: Final = struct.Struct(">iiB")
_SNAPSHOT: Final = struct.Struct(">qiB")


def encode_response(
    version: int,
    correlation_id: int,
    topics: Sequence[FetchTopicResult],
    *,
    throttle_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[Buffer]:
    """The whole response frame, with size prefix and header, as buffers to send in order."""
    glue = bytearray(_HEAD_12.size)  # everything between two runs of records
    out: list[Buffer] = [glue]
    if version >= VERSION_FLEXIBLE:
        size = _put_flexible(out, version, topics, node_endpoints)
        _HEAD_12.pack_into(
            glue, 0, size - 4, correlation_id, 0, throttle_ms, error_code, session_id
        )
        return out
    head = _HEAD_7 if version >= 7 else _HEAD_4
    del glue[head.size :]
    size = _put_plain(out, version, topics)
    if version >= 7:
        _HEAD_7.pack_into(glue, 0, size - 4, correlation_id, throttle_ms, error_code, session_id)
    else:
        _HEAD_4.pack_into(glue, 0, size - 4, correlation_id, throttle_ms)
    return out


def _put_flexible(
    out: list[Buffer],
    version: int,
    topics: Sequence[FetchTopicResult],
    node_endpoints: Sequence[NodeEndpoint],
) -> int:
    """Append the body to `out`, whose last buffer is the open glue; return the bytes of all."""
    glue = out[-1]
    assert isinstance(glue, bytearray)
    size = 0
    glue += uvarint(len(topics) + 1)
    for name, topic_id, partitions in topics:
        glue += uuid_bytes(topic_id) if version >= 13 else compact_string(name)
        glue += uvarint(len(partitions) + 1)
        for p, error, high, stable, start, records, length, aborted, replica, hints in partitions:
            if aborted is None:
                glue += _RESULT_12.pack(p, error, high, stable, start, 0, replica)
            else:
                glue += _RESULT_5.pack(p, error, high, stable, start)
                glue += uvarint(len(aborted) + 1)
                for producer_id, first_offset in aborted:
                    glue += _ABORTED_12.pack(producer_id, first_offset, 0)
                glue += _INT32.pack(replica)
            glue += uvarint(length + 1)
            if length:
                size += len(glue) + length
                out += records
                glue = bytearray()
                out.append(glue)
            if hints is None:
                glue.append(0)
            else:
                glue += _encode_hints(hints)
        glue.append(0)
    if node_endpoints and version >= 16:
        glue += tagged([(0, encode_node_endpoints(node_endpoints))])
    else:
        glue.append(0)
    return size + len(glue)


def _put_plain(out: list[Buffer], version: int, topics: Sequence[FetchTopicResult]) -> int:
    """As `_put_flexible`, for versions 4-11."""
    glue = out[-1]
    assert isinstance(glue, bytearray)
    size = 0
    glue += _INT32.pack(len(topics))
    for name, _, partitions in topics:
        glue += short_string(name)
        glue += _INT32.pack(len(partitions))
        for p, error, high, stable, start, records, length, aborted, replica, _ in partitions:
            if version >= 5:
                glue += _RESULT_5.pack(p, error, high, stable, start)
            else:
                glue += _RESULT_4.pack(p, error, high, stable)
            glue += _INT32.pack(-1 if aborted is None else len(aborted))
            for producer_id, first_offset in aborted or ():
                glue += _ABORTED.pack(producer_id, first_offset)
            if version >= 11:
                glue += _INT32.pack(replica)
            glue += _INT32.pack(length)
            if length:
                size += len(glue) + length
                out += records
                glue = bytearray()
                out.append(glue)
    if not glue:
        out.pop()
    return size + len(glue)


def _encode_hints(hints: FetchHints) -> bytes:
    fields: list[tuple[int, bytes]] = []
    if hints.diverging_epoch is not None:
        fields.append((0, _DIVERGING.pack(*hints.diverging_epoch, 0)))
    if hints.current_leader is not None:
        fields.append((1, _LEADER.pack(*hints.current_leader, 0)))
    if hints.snapshot_id is not None:
        fields.append((2, _SNAPSHOT.pack(*hints.snapshot_id, 0)))
    return tagged(fields)
