"""ListPartitionReassignments (key 46), version 0.

Owns: an empty list. A partition has one replica, so none is ever on the move between brokers.
"""

from streamhouse.kafka_proto.apis import LIST_PARTITION_REASSIGNMENTS
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.messages import decode_request, encode_response
from streamhouse.server.kafka.door import Answer, Caller, Door


def handle(door: Door, caller: Caller, frame: memoryview) -> Answer:
    header, key = caller.header, LIST_PARTITION_REASSIGNMENTS
    decode_request(key, header.api_version, frame, header.body_at)
    values = {"error_code": ErrorCode.NONE, "error_message": None, "topics": ()}
    return (encode_response(key, header.api_version, header.correlation_id, values),)
