"""OffsetDelete (key 47), version 0.

Owns: one result per partition. Offsets of a topic that the group reads stay (86).
"""

from typing import Any

from streamhouse.kafka_proto.apis import OFFSET_DELETE
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.messages import decode_request, encode_response
from streamhouse.model.errors import StreamhouseError
from streamhouse.model.groups import Refusal
from streamhouse.model.ids import TopicPartition
from streamhouse.server.kafka.door import Caller, Door, Frame, refusal_code


async def handle(door: Door, caller: Caller, frame: memoryview) -> Frame:
    header = caller.header
    request = decode_request(OFFSET_DELETE, header.api_version, frame, header.body_at)
    asked: dict[TopicPartition, str] = {}
    for topic in request.topics:
        for row in topic.partitions:
            partition = door.find_partition(door.find_topic(topic.name, None), row.partition_index)
            if not isinstance(partition, ErrorCode):
                asked[partition.tp] = topic.name
    values: dict[str, Any] = {"error_code": ErrorCode.NONE, "topics": []}
    try:
        verdict = await door.groups.delete_offsets(request.group_id, asked)
    except StreamhouseError:
        verdict = Refusal.COORDINATOR_NOT_AVAILABLE
    if isinstance(verdict, Refusal):
        values["error_code"] = refusal_code(verdict)
    else:
        values["topics"] = [_topic(door, topic, verdict) for topic in request.topics]
    return (encode_response(OFFSET_DELETE, header.api_version, header.correlation_id, values),)


def _topic(door: Door, topic: Any, kept: frozenset[TopicPartition]) -> dict[str, Any]:
    rows = []
    for row in topic.partitions:
        partition = door.find_partition(door.find_topic(topic.name, None), row.partition_index)
        error = ErrorCode.NONE
        if isinstance(partition, ErrorCode):
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif partition.tp in kept:
            error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        rows.append({"partition_index": row.partition_index, "error_code": error})
    return {"name": topic.name, "partitions": rows}
