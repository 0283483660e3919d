"""OffsetFetch (key 9), versions 1-10.

Owns: where groups stand, read from the store. What was never committed, and every partition of an
unknown group, is -1 without an error: clients begin by their own rules then.
Gaps: member id and epoch (version 9) mean something only for groups that the server assigns.
Versions: 2 null topics = all, top-level error; 5 leader epoch; 6 flexible; 7 require_stable;
8 several groups; 9 member id and epoch; 10 topic ids.
"""

from collections.abc import Mapping
from typing import Any

from streamhouse.kafka_proto.apis import OFFSET_FETCH
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.messages import decode_request, encode_response
from streamhouse.model.errors import StreamhouseError
from streamhouse.model.ids import TopicPartition
from streamhouse.ports.metadata import CommittedOffset
from streamhouse.server.kafka.door import Caller, Door, Frame

VERSION_MANY_GROUPS = 8
NOTHING = CommittedOffset(-1, -1, "", 0)

Committed = Mapping[TopicPartition, CommittedOffset]


async def handle(door: Door, caller: Caller, frame: memoryview) -> Frame:
    header = caller.header
    request = decode_request(OFFSET_FETCH, header.api_version, frame, header.body_at)
    if header.api_version >= VERSION_MANY_GROUPS:
        values: dict[str, Any] = {
            "groups": [
                {"group_id": one.group_id, **await _group(door, one.group_id, one.topics)}
                for one in request.groups
            ]
        }
    else:
        values = await _group(door, request.group_id, request.topics)
    return (encode_response(OFFSET_FETCH, header.api_version, header.correlation_id, values),)


async def _group(door: Door, group_id: str, topics: Any) -> dict[str, Any]:
    error = ErrorCode.NONE
    committed: Committed = {}
    try:
        committed = await door.groups.committed(group_id)
    except StreamhouseError:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    if topics is None:
        rows = _all(door, committed)
    else:
        rows = [_topic(door, asked, committed, error) for asked in topics]
    return {"topics": rows, "error_code": error}


def _all(door: Door, committed: Committed) -> list[dict[str, Any]]:
    """Everything committed, but for topics that went while we looked."""
    found: dict[str, dict[str, Any]] = {}
    for tp, offset in sorted(committed.items()):
        topic = door.agent.catalog.find_id(tp.topic_id)
        if topic is not None:
            row = {"name": topic.name, "topic_id": topic.topic_id, "partitions": []}
            partitions = found.setdefault(topic.name, row)["partitions"]
            partitions.append(_partition(tp.partition, offset, ErrorCode.NONE))
    return [found[name] for name in sorted(found)]


def _topic(door: Door, asked: Any, committed: Committed, error: ErrorCode) -> dict[str, Any]:
    name, topic_id = getattr(asked, "name", None), getattr(asked, "topic_id", None)
    topic = door.find_topic(name, topic_id)
    if topic is ErrorCode.UNKNOWN_TOPIC_ID:
        error = error or topic
    rows = []
    for number in asked.partition_indexes:
        offset = NOTHING
        if not isinstance(topic, ErrorCode):
            offset = committed.get(TopicPartition(topic.topic_id, number), NOTHING)
        rows.append(_partition(number, offset, error))
    return {"name": name or "", "topic_id": topic_id, "partitions": rows}


def _partition(number: int, offset: CommittedOffset, error: ErrorCode) -> dict[str, Any]:
    return {
        "partition_index": number,
        "committed_offset": offset.offset,
        "committed_leader_epoch": offset.leader_epoch,
        "metadata": offset.metadata,
        "error_code": error,
    }
