"""Metadata (key 3), versions 0-13.

Owns: brokers, topics and partitions as clients see them.
Behaviour: null names all topics (an empty list does in version 0); an unknown topic is created if
the client and the operator allow it, and is in the answer at once.
Versions: 4 auto-create flag; 7 leader epoch; 8 authorized operations; 10 topic ids; 12 by id.
"""

from typing import Any
from uuid import UUID

from streamhouse.kafka_proto.apis import METADATA
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.messages import decode_request, encode_response
from streamhouse.model.errors import AlreadyExists, OutcomeUnknown, Unavailable
from streamhouse.model.ids import TopicPartition
from streamhouse.model.topic import Topic, TopicSpec
from streamhouse.server.kafka.door import NODE_ID, Answer, Caller, Door, Frame

VERSION_AUTO_CREATE_FLAG = 4
VERSION_NULL_MEANS_ALL = 1
VERSION_BY_ID = 12  # versions 10 and 11 have a field for it, and nothing that may be in it
OPERATIONS_NOT_ASKED = -(2**31)
TOPIC_OPERATIONS = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))


def handle(door: Door, caller: Caller, frame: memoryview) -> Answer:
    header = caller.header
    request = decode_request(METADATA, header.api_version, frame, header.body_at)
    found, missing = _look_up(door, request, header.api_version)
    may_create = getattr(request, "allow_auto_topic_creation", True) and door.auto_create_topics
    creatable = [name for name, code in missing.items() if _is_creatable(name, code)]
    if may_create and creatable:
        return _create_then_answer(door, caller, request, creatable)
    return _answer(door, caller, request, found, missing)


def _is_creatable(name: "str | UUID", code: ErrorCode) -> bool:
    return isinstance(name, str) and code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def _create_then_answer(
    door: Door, caller: Caller, request: Any, names: "list[str | UUID]"
) -> Frame:
    for name in names:
        assert isinstance(name, str)
        try:
            await door.agent.create_topic(TopicSpec(name, door.default_partitions))
        except (AlreadyExists, Unavailable, OutcomeUnknown):
            continue  # another client was quicker, or the client asks again later
    found, missing = _look_up(door, request, caller.header.api_version)
    return _answer(door, caller, request, found, missing)


def _look_up(
    door: Door, request: Any, version: int
) -> "tuple[list[Topic], dict[str | UUID, ErrorCode]]":
    asked = request.topics
    if asked is None or (not asked and version < VERSION_NULL_MEANS_ALL):
        return door.agent.catalog.topics(), {}
    found: dict[str, Topic] = {}
    missing: dict[str | UUID, ErrorCode] = {}
    for topic in asked:
        topic_id = getattr(topic, "topic_id", None)
        if version < VERSION_BY_ID and (topic_id is not None or topic.name is None):
            missing[topic.name or ""] = ErrorCode.INVALID_REQUEST
            continue
        name = topic.name if topic_id is None else None
        result = door.find_topic(name, topic_id)
        if isinstance(result, ErrorCode):
            missing[name if name is not None else topic_id or UUID(int=0)] = result
        else:
            found[result.name] = result
    return list(found.values()), missing


def _answer(
    door: Door,
    caller: Caller,
    request: Any,
    found: list[Topic],
    missing: "dict[str | UUID, ErrorCode]",
) -> Frame:
    operations = OPERATIONS_NOT_ASKED
    if getattr(request, "include_topic_authorized_operations", False):
        operations = TOPIC_OPERATIONS
    cluster_operations = OPERATIONS_NOT_ASKED
    if getattr(request, "include_cluster_authorized_operations", False):
        cluster_operations = CLUSTER_OPERATIONS
    topics = [_topic(door, topic, operations) for topic in found]
    topics += [_missing(name, code) for name, code in missing.items()]
    address = door.address(caller)
    broker = {"node_id": NODE_ID, "host": address.host, "port": address.port, "rack": door.rack}
    values = {
        "brokers": [broker],
        "cluster_id": door.cluster_id,
        "controller_id": NODE_ID,
        "topics": topics,
        "cluster_authorized_operations": cluster_operations,
        "error_code": ErrorCode.NONE,
    }
    header = caller.header
    return (encode_response(METADATA, header.api_version, header.correlation_id, values),)


def partition_row(door: Door, topic: Topic, number: int) -> dict[str, Any]:
    """One partition as clients see it: led by the only node, which is its only replica."""
    partition = door.agent.catalog.partitions[TopicPartition(topic.topic_id, number)]
    return {
        "error_code": ErrorCode.NONE,
        "partition_index": number,
        "leader_id": NODE_ID,
        "leader_epoch": partition.machine.epoch,
        "replica_nodes": (NODE_ID,),
        "isr_nodes": (NODE_ID,),
        "offline_replicas": (),
    }


def _topic(door: Door, topic: Topic, operations: int) -> dict[str, Any]:
    rows = [partition_row(door, topic, number) for number in range(topic.partition_count)]
    return {
        "error_code": ErrorCode.NONE,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": False,
        "partitions": rows,
        "topic_authorized_operations": operations,
    }


def _missing(name: "str | UUID", code: ErrorCode) -> dict[str, Any]:
    by_name = isinstance(name, str)
    return {
        "error_code": code,
        "name": name if by_name else None,
        "topic_id": None if by_name else name,
        "is_internal": False,
        "partitions": (),
        "topic_authorized_operations": OPERATIONS_NOT_ASKED,
    }
