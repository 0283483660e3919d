"""DeleteRecords (key 21), versions 0-2.

Owns: one result per partition. Answered after the new log start is stored; -1 means everything
below the high watermark.
"""

from typing import Any

from streamhouse.kafka_proto.apis import DELETE_RECORDS
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.messages import decode_request, encode_response
from streamhouse.model.errors import Fenced, OffsetOutOfRange, OutcomeUnknown, Unavailable
from streamhouse.server.kafka.door import Caller, Door, Frame


async def handle(door: Door, caller: Caller, frame: memoryview) -> Frame:
    header = caller.header
    request = decode_request(DELETE_RECORDS, header.api_version, frame, header.body_at)
    topics = []
    for topic in request.topics:
        rows = [await _delete(door, topic.name, asked) for asked in topic.partitions]
        topics.append({"name": topic.name, "partitions": rows})
    values = {"topics": topics}
    return (encode_response(DELETE_RECORDS, header.api_version, header.correlation_id, values),)


async def _delete(door: Door, name: str, asked: Any) -> dict[str, Any]:
    row = {"partition_index": asked.partition_index, "low_watermark": -1}
    partition = door.find_partition(door.find_topic(name, None), asked.partition_index)
    if isinstance(partition, ErrorCode):
        return {**row, "error_code": partition}
    try:
        low = await door.agent.delete_records(partition, asked.offset)
    except OffsetOutOfRange:
        return {**row, "error_code": ErrorCode.OFFSET_OUT_OF_RANGE}
    except (Unavailable, OutcomeUnknown):
        return {**row, "error_code": ErrorCode.KAFKA_STORAGE_ERROR}
    except Fenced:
        return {**row, "error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER}
    return {**row, "low_watermark": low, "error_code": ErrorCode.NONE}
