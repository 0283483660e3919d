"""OffsetForLeaderEpoch (key 23), versions 2-4.

Owns: where an epoch ended, so that a consumer notices a log that changed under it (KIP-320).
"""

from typing import Any

from streamhouse.kafka_proto.apis import OFFSET_FOR_LEADER_EPOCH
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.messages import decode_request, encode_response
from streamhouse.server.kafka.door import Answer, Caller, Door, epoch_error


def handle(door: Door, caller: Caller, frame: memoryview) -> Answer:
    header = caller.header
    version = header.api_version
    request = decode_request(OFFSET_FOR_LEADER_EPOCH, version, frame, header.body_at)
    topics = [
        {"topic": topic.topic, "partitions": [_row(door, topic.topic, p) for p in topic.partitions]}
        for topic in request.topics
    ]
    values = {"topics": topics}
    return (encode_response(OFFSET_FOR_LEADER_EPOCH, version, header.correlation_id, values),)


def _row(door: Door, name: str, asked: Any) -> dict[str, Any]:
    row = {"partition": asked.partition, "error_code": ErrorCode.NONE}
    partition = door.find_partition(door.find_topic(name, None), asked.partition)
    if isinstance(partition, ErrorCode):
        return {**row, "error_code": partition, "leader_epoch": -1, "end_offset": -1}
    error = epoch_error(partition, asked.current_leader_epoch)
    if error:
        return {**row, "error_code": error, "leader_epoch": -1, "end_offset": -1}
    epoch, end_offset = partition.machine.end_of_epoch(asked.leader_epoch)
    return {**row, "leader_epoch": epoch, "end_offset": end_offset}
