"""ListOffsets (key 2), versions 1-11.

Owns: the special times and the search by timestamp, exact to the record.
Behaviour: -1 latest (the last stable offset under read_committed), -2 and -4 earliest, -3 the
record with the highest timestamp, -5 and -6 do not apply without tiers and answer -1.
Versions: 2 isolation level; 4 leader epoch; 6 flexible; 7 -3; 8 -4; 9 -5; 10 timeout; 11 -6.
"""

import logging
from typing import Any

from streamhouse.agent.service import Partition
from streamhouse.kafka_proto.apis import LIST_OFFSETS
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.messages import decode_request, encode_response
from streamhouse.model.errors import Corrupt, DecodeError, NotFound, Unavailable
from streamhouse.server.kafka.door import Caller, Door, Frame, epoch_error

log = logging.getLogger(__name__)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
READ_COMMITTED = 1
FIRST_VERSION = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
VERSION_NEVER = 1 << 15

Found = tuple[int, int, int]  # offset, timestamp, leader epoch
NOTHING: Found = (-1, -1, -1)


async def handle(door: Door, caller: Caller, frame: memoryview) -> Frame:
    header = caller.header
    request = decode_request(LIST_OFFSETS, header.api_version, frame, header.body_at)
    committed_only = getattr(request, "isolation_level", 0) == READ_COMMITTED
    topics = []
    for topic in request.topics:
        rows = []
        for asked in topic.partitions:
            if _is_unsupported(asked.timestamp, header.api_version):
                rows.append(_answer(asked, NOTHING, ErrorCode.UNSUPPORTED_VERSION))
            else:
                rows.append(await _row(door, topic.name, asked, committed_only))
        topics.append({"name": topic.name, "partitions": rows})
    values = {"topics": topics}
    return (encode_response(LIST_OFFSETS, header.api_version, header.correlation_id, values),)


def _is_unsupported(timestamp_ms: int, version: int) -> bool:
    """A special time that this version of the message does not have, or none has."""
    return timestamp_ms < 0 and version < FIRST_VERSION.get(timestamp_ms, VERSION_NEVER)


async def _row(door: Door, name: str, asked: Any, committed_only: bool) -> dict[str, Any]:
    found, error = NOTHING, ErrorCode.NONE
    partition = door.find_partition(door.find_topic(name, None), asked.partition_index)
    if isinstance(partition, ErrorCode):
        error = partition
    else:
        error = epoch_error(partition, getattr(asked, "current_leader_epoch", -1))
        if not error:
            found, error = await _find(door, partition, asked.timestamp, committed_only)
    return _answer(asked, found, error)


def _answer(asked: Any, found: Found, error: ErrorCode) -> dict[str, Any]:
    return {
        "partition_index": asked.partition_index,
        "error_code": error,
        "offset": found[0],
        "timestamp": found[1],
        "leader_epoch": found[2],
    }


async def _find(
    door: Door, partition: Partition, timestamp_ms: int, committed_only: bool
) -> tuple[Found, ErrorCode]:
    machine = partition.machine
    if timestamp_ms == LATEST:
        return (partition.stop_offset(committed_only), -1, machine.epoch), ErrorCode.NONE
    if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
        start = machine.log_start
        return (start, -1, machine.epoch_at(start)), ErrorCode.NONE
    if timestamp_ms in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOTHING, ErrorCode.NONE
    try:
        if timestamp_ms == MAX_TIMESTAMP:
            found = await door.agent.offset_latest_timestamp(partition, committed_only)
        else:
            found = await door.agent.offset_at(partition, timestamp_ms, committed_only)
    except (Unavailable, NotFound):
        return NOTHING, ErrorCode.KAFKA_STORAGE_ERROR
    except (Corrupt, DecodeError) as error:
        log.error("a look-up by time met damage in the store: %s", error)
        return NOTHING, ErrorCode.CORRUPT_MESSAGE
    if found is None:
        return NOTHING, ErrorCode.NONE
    epoch = machine.epoch_at(found.offset)
    return (found.offset, found.timestamp_ms, epoch), ErrorCode.NONE
