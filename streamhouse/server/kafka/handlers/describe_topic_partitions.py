"""DescribeTopicPartitions (key 75), version 0.

Owns: partitions of topics in order of name, a page at a time.
Behaviour: no topics means all; a page ends at the client's limit or ours and names where the next
begins. A cursor that does not fit the list of topics is INVALID_REQUEST for each of them.
"""

from typing import Any

from streamhouse.kafka_proto.apis import DESCRIBE_TOPIC_PARTITIONS
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.messages import decode_request, encode_response
from streamhouse.model.limits import DESCRIBED_PARTITIONS_MAX
from streamhouse.model.topic import Topic
from streamhouse.server.kafka.door import Answer, Caller, Door
from streamhouse.server.kafka.handlers.metadata import (
    OPERATIONS_NOT_ASKED,
    TOPIC_OPERATIONS,
    partition_row,
)


def handle(door: Door, caller: Caller, frame: memoryview) -> Answer:
    header, key = caller.header, DESCRIBE_TOPIC_PARTITIONS
    request = decode_request(key, header.api_version, frame, header.body_at)
    rows, next_cursor = _page(door, request)
    values = {"topics": rows, "next_cursor": next_cursor}
    return (encode_response(key, header.api_version, header.correlation_id, values),)


def _page(door: Door, request: Any) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    cursor = request.cursor
    all_topics = not request.topics
    named = {topic.name for topic in request.topics}
    names = sorted({topic.name for topic in door.agent.catalog.topics()} if all_topics else named)
    if cursor is not None and not _fits(cursor, named, all_topics):
        return [_failed(name, ErrorCode.INVALID_REQUEST) for name in names], None
    left = max(1, min(request.response_partition_limit, DESCRIBED_PARTITIONS_MAX))
    rows: list[dict[str, Any]] = []
    for name in names:
        if cursor is not None and name < cursor.topic_name:
            continue
        if left == 0:
            return rows, {"topic_name": name, "partition_index": 0}
        topic = door.find_topic(name, None)
        if isinstance(topic, ErrorCode):
            rows.append(_failed(name, topic))
            continue
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        stop = min(first + left, topic.partition_count)
        rows.append(_described(door, topic, range(first, stop)))
        if stop < topic.partition_count:
            return rows, {"topic_name": name, "partition_index": stop}
        left -= max(stop - first, 0)
    return rows, None


def _fits(cursor: Any, named: set[str], all_topics: bool) -> bool:
    return cursor.partition_index >= 0 and (all_topics or cursor.topic_name in named)


def _described(door: Door, topic: Topic, numbers: range) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.NONE,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": False,
        # Null lists are legal on the wire, and the Java client fails on them.
        "partitions": [
            {
                **partition_row(door, topic, number),
                "eligible_leader_replicas": (),
                "last_known_elr": (),
            }
            for number in numbers
        ],
        "topic_authorized_operations": TOPIC_OPERATIONS,
    }


def _failed(name: str, code: ErrorCode) -> dict[str, Any]:
    return {
        "error_code": code,
        "name": name,
        "topic_id": None,
        "is_internal": False,
        "partitions": (),
        "topic_authorized_operations": OPERATIONS_NOT_ASKED,
    }
