"""DescribeQuorum (key 55), versions 0-2.

Owns: the answer for tools that ask who decides about metadata: this node, alone.
Behaviour: only Kafka's metadata topic, partition 0, has a quorum. There is no replicated metadata
log behind it, so its offsets are told as 0 and never lag.
Versions: 1 timestamps; 2 error messages, directory ids and the nodes' addresses.
"""

from typing import Any

from streamhouse.kafka_proto.apis import DESCRIBE_QUORUM
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.messages import decode_request, encode_response
from streamhouse.server.kafka.door import NODE_ID, Answer, Caller, Door

METADATA_TOPIC = "__cluster_metadata"
LISTENER = "PLAINTEXT"


def handle(door: Door, caller: Caller, frame: memoryview) -> Answer:
    header = caller.header
    request = decode_request(DESCRIBE_QUORUM, header.api_version, frame, header.body_at)
    topics = [
        {
            "topic_name": asked.topic_name,
            "partitions": [
                _partition(door, asked.topic_name, row.partition_index) for row in asked.partitions
            ],
        }
        for asked in request.topics
    ]
    address = door.address(caller)
    listener = {"name": LISTENER, "host": address.host, "port": address.port}
    values = {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "topics": topics,
        "nodes": [{"node_id": NODE_ID, "listeners": [listener]}],
    }
    return (encode_response(DESCRIBE_QUORUM, header.api_version, header.correlation_id, values),)


def _partition(door: Door, name: str, number: int) -> dict[str, Any]:
    known = (name, number) == (METADATA_TOPIC, 0)
    now_ms = door.clock.now_ms()
    voter = {
        "replica_id": NODE_ID,
        "replica_directory_id": None,
        "log_end_offset": 0,
        "last_fetch_timestamp": now_ms,
        "last_caught_up_timestamp": now_ms,
    }
    error = ErrorCode.NONE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return {
        "partition_index": number,
        "error_code": error,
        "error_message": None if known else f"{name}-{number} has no quorum",
        "leader_id": NODE_ID if known else -1,
        "leader_epoch": 0 if known else -1,
        "high_watermark": 0 if known else -1,
        "current_voters": [voter] if known else [],
        "observers": [],
    }
