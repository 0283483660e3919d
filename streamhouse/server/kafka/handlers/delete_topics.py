"""DeleteTopics (key 20), versions 1-6.

Owns: one result per topic named. The topic is gone when its success is answered; its objects are
removed soon after.
Versions: 4 flexible; 5 error message; 6 by name or id.
"""

from typing import Any
from uuid import UUID

from streamhouse.kafka_proto.apis import DELETE_TOPICS
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.messages import decode_request, encode_response
from streamhouse.model.errors import NotFound, OutcomeUnknown, Unavailable
from streamhouse.server.kafka.door import Caller, Door, Frame

VERSION_BY_ID = 6


async def handle(door: Door, caller: Caller, frame: memoryview) -> Frame:
    header = caller.header
    request = decode_request(DELETE_TOPICS, header.api_version, frame, header.body_at)
    asked: list[tuple[str | None, UUID | None]]
    if header.api_version >= VERSION_BY_ID:
        asked = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        asked = [(name, None) for name in request.topic_names]
    rows = [await _delete(door, name, topic_id) for name, topic_id in asked]
    values = {"responses": rows}
    return (encode_response(DELETE_TOPICS, header.api_version, header.correlation_id, values),)


async def _delete(door: Door, name: str | None, topic_id: UUID | None) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "topic_id": topic_id, "error_message": None}
    topic = door.find_topic(name, topic_id)
    if topic == ErrorCode.INVALID_TOPIC_EXCEPTION:
        topic = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if isinstance(topic, ErrorCode):
        return {**row, "error_code": topic}
    row["name"], row["topic_id"] = topic.name, topic.topic_id
    try:
        await door.agent.delete_topic(topic.topic_id)
    except NotFound:
        return {**row, "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    except Unavailable as error:
        code = ErrorCode.KAFKA_STORAGE_ERROR
        return {**row, "error_code": code, "error_message": str(error)}
    except OutcomeUnknown:
        return {**row, "error_code": ErrorCode.REQUEST_TIMED_OUT}
    return {**row, "error_code": ErrorCode.NONE}
