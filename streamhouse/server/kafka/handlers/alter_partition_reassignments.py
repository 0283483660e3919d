"""AlterPartitionReassignments (key 45), versions 0-1.

Owns: one result per partition. The only possible assignment is the one there is: asking for it
succeeds and changes nothing, cancelling finds nothing under way, any other broker is unknown.
Versions: 1 whether the replication factor may change (it cannot).
"""

from typing import Any

from streamhouse.kafka_proto.apis import ALTER_PARTITION_REASSIGNMENTS
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.messages import decode_request, encode_response
from streamhouse.server.kafka.door import NODE_ID, Answer, Caller, Door


def handle(door: Door, caller: Caller, frame: memoryview) -> Answer:
    header, key = caller.header, ALTER_PARTITION_REASSIGNMENTS
    request = decode_request(key, header.api_version, frame, header.body_at)
    rows = [
        {"name": asked.name, "partitions": [_result(door, asked.name, p) for p in asked.partitions]}
        for asked in request.topics
    ]
    values = {
        "allow_replication_factor_change": getattr(
            request, "allow_replication_factor_change", True
        ),
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "responses": rows,
    }
    return (encode_response(key, header.api_version, header.correlation_id, values),)


def _result(door: Door, name: str, asked: Any) -> dict[str, Any]:
    code, message = _judge(door, name, asked)
    return {"partition_index": asked.partition_index, "error_code": code, "error_message": message}


def _judge(door: Door, name: str, asked: Any) -> tuple[ErrorCode, str | None]:
    partition = door.find_partition(door.find_topic(name, None), asked.partition_index)
    if isinstance(partition, ErrorCode):
        text = f"there is no {name}-{asked.partition_index}"
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text
    if asked.replicas is None:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment is in progress"
    if tuple(asked.replicas) != (NODE_ID,):
        text = f"replicas {list(asked.replicas)}: the only broker has the id {NODE_ID}"
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, text
    return ErrorCode.NONE, None
