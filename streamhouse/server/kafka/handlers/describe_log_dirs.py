"""DescribeLogDirs (key 35), versions 1-4.

Owns: what each partition takes, as one log directory: its segments in the object store and what
is still only in the write-ahead log.
Behaviour: unknown topics and partitions are left out; null asks for all. The volume's size is
answered as -1, "unknown": most of the data is not on a volume of this machine.
Versions: 2 flexible; 3 top-level error; 4 volume size.
"""

from collections.abc import Iterable
from typing import Any

from streamhouse.agent.service import Partition
from streamhouse.kafka_proto.apis import DESCRIBE_LOG_DIRS
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.messages import decode_request, encode_response
from streamhouse.server.kafka.door import Answer, Caller, Door


def handle(door: Door, caller: Caller, frame: memoryview) -> Answer:
    header = caller.header
    request = decode_request(DESCRIBE_LOG_DIRS, header.api_version, frame, header.body_at)
    topics = [
        {"name": name, "partitions": [_row(partition) for partition in found]}
        for name, found in _wanted(door, request.topics)
    ]
    directory = {"error_code": ErrorCode.NONE, "log_dir": door.log_dir, "topics": topics}
    values = {"error_code": ErrorCode.NONE, "results": [directory]}
    return (encode_response(DESCRIBE_LOG_DIRS, header.api_version, header.correlation_id, values),)


def _wanted(door: Door, asked: Any) -> Iterable[tuple[str, list[Partition]]]:
    if asked is None:
        asked_for = [(t.name, range(t.partition_count)) for t in door.agent.catalog.topics()]
    else:
        asked_for = [(topic.topic, topic.partitions) for topic in asked]
    for name, numbers in asked_for:
        topic = door.find_topic(name, None)
        found = [door.find_partition(topic, number) for number in numbers]
        led = [partition for partition in found if isinstance(partition, Partition)]
        if led:
            yield name, led


def _row(partition: Partition) -> dict[str, Any]:
    stored = sum(segment.bytes_stored for segment in partition.segments)
    return {
        "partition_index": partition.tp.partition,
        "partition_size": stored + partition.tail.bytes_unrolled,
        "offset_lag": 0,
        "is_future_key": False,
    }
