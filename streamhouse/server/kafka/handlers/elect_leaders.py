"""ElectLeaders (key 43), versions 0-2.

Owns: saying per partition that its leader is the preferred one already: there is one node.
Behaviour: without a list of partitions nothing needs an election, so the answer is empty.
Versions: 1 election type and top-level error; 2 flexible.
"""

from typing import Any

from streamhouse.kafka_proto.apis import ELECT_LEADERS
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.messages import decode_request, encode_response
from streamhouse.server.kafka.door import Answer, Caller, Door

ELECTION_TYPES = (0, 1)  # preferred, unclean


def handle(door: Door, caller: Caller, frame: memoryview) -> Answer:
    header = caller.header
    request = decode_request(ELECT_LEADERS, header.api_version, frame, header.body_at)
    error, topics = ErrorCode.NONE, request.topic_partitions or ()
    if getattr(request, "election_type", 0) not in ELECTION_TYPES:
        error, topics = ErrorCode.INVALID_REQUEST, ()
    results = [
        {
            "topic": asked.topic,
            "partition_result": [_result(door, asked.topic, n) for n in asked.partitions],
        }
        for asked in topics
    ]
    values = {"error_code": error, "replica_election_results": results}
    return (encode_response(ELECT_LEADERS, header.api_version, header.correlation_id, values),)


def _result(door: Door, name: str, number: int) -> dict[str, Any]:
    code, message = ErrorCode.ELECTION_NOT_NEEDED, "the only replica leads already"
    if isinstance(door.find_partition(door.find_topic(name, None), number), ErrorCode):
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {name}-{number}"
    return {"partition_id": number, "error_code": code, "error_message": message}
