"""CreateTopics (key 19), versions 2-7.

Owns: one result per topic named; a topic is usable when its success is answered.
Behaviour: -1 partitions or replicas mean the default; more than one replica cannot be given by a
single node; an unknown or invalid config fails that topic only.
Versions: 5 flexible, returns configs; 7 topic id.
"""

from collections import Counter
from typing import Any

from streamhouse.kafka_proto.apis import CREATE_TOPICS
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.messages import decode_request, encode_response
from streamhouse.model.errors import AlreadyExists, OutcomeUnknown, StreamhouseError, Unavailable
from streamhouse.model.topic import (
    InvalidConfig,
    InvalidPartitionCount,
    InvalidTopicName,
    Topic,
    TopicSpec,
    check_spec,
)
from streamhouse.server.kafka.door import NODE_ID, Caller, Door, Frame
from streamhouse.server.kafka.handlers.describe_configs import topic_config_rows

REPLICATION_FACTORS = (-1, 1)
CONFIG_FIELDS = ("name", "value", "read_only", "config_source", "is_sensitive")
CODES: dict[type[StreamhouseError], ErrorCode] = {
    InvalidTopicName: ErrorCode.INVALID_TOPIC_EXCEPTION,
    InvalidPartitionCount: ErrorCode.INVALID_PARTITIONS,
    InvalidConfig: ErrorCode.INVALID_CONFIG,
    AlreadyExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    Unavailable: ErrorCode.KAFKA_STORAGE_ERROR,
    OutcomeUnknown: ErrorCode.REQUEST_TIMED_OUT,
}


class _Refused(Exception):
    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


async def handle(door: Door, caller: Caller, frame: memoryview) -> Frame:
    header = caller.header
    request = decode_request(CREATE_TOPICS, header.api_version, frame, header.body_at)
    named = Counter(asked.name for asked in request.topics)
    rows = []
    for asked in {asked.name: asked for asked in request.topics}.values():
        if named[asked.name] > 1:
            code, text = ErrorCode.INVALID_REQUEST, "the request names this topic more than once"
            rows.append(_failed(asked.name, code, text))
        else:
            rows.append(await _create(door, asked, request.validate_only))
    values = {"topics": rows}
    return (encode_response(CREATE_TOPICS, header.api_version, header.correlation_id, values),)


async def _create(door: Door, asked: Any, validate_only: bool) -> dict[str, Any]:
    try:
        spec = _spec(door, asked)
        check_spec(spec)
        if door.agent.catalog.find(spec.name) is not None:
            raise AlreadyExists(f"topic {spec.name!r} already exists")
        topic = None if validate_only else await door.agent.create_topic(spec)
    except _Refused as error:
        return _failed(asked.name, error.code, str(error))
    except tuple(CODES) as error:
        return _failed(asked.name, CODES[type(error)], str(error))
    return _created(door, spec, topic)


def _spec(door: Door, asked: Any) -> TopicSpec:
    count = asked.num_partitions
    if asked.assignments:
        count = _count_assigned(asked)
    elif asked.replication_factor not in REPLICATION_FACTORS:
        raise _Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {asked.replication_factor}: there is one broker, and durability "
            "comes from the object store; use 1 or -1",
        )
    if count == -1:
        count = door.default_partitions
    unset = [entry.name for entry in asked.configs if entry.value is None]
    if unset:
        raise _Refused(ErrorCode.INVALID_CONFIG, f"config {unset[0]!r} has no value")
    return TopicSpec(asked.name, count, {entry.name: entry.value for entry in asked.configs})


def _count_assigned(asked: Any) -> int:
    if asked.num_partitions != -1 or asked.replication_factor != -1:
        raise _Refused(ErrorCode.INVALID_REQUEST, "give either assignments or counts, not both")
    numbers = sorted(row.partition_index for row in asked.assignments)
    if numbers != list(range(len(numbers))):
        raise _Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions must be numbered from 0 without gaps"
        )
    if any(tuple(row.broker_ids) != (NODE_ID,) for row in asked.assignments):
        raise _Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"the only broker has the id {NODE_ID}"
        )
    return len(numbers)


def _created(door: Door, spec: TopicSpec, topic: Topic | None) -> dict[str, Any]:
    return {
        "name": spec.name,
        "topic_id": topic.topic_id if topic else None,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "num_partitions": spec.partition_count,
        "replication_factor": 1,
        "configs": _config_rows(door, spec),
    }


def _config_rows(door: Door, spec: TopicSpec) -> list[dict[str, Any]]:
    """What DescribeConfigs says of the topic, as far as this message has fields for it."""
    rows = topic_config_rows(door, spec.config)
    return [{name: row[name] for name in CONFIG_FIELDS} for row in rows]


def _failed(name: str, code: ErrorCode, message: str) -> dict[str, Any]:
    return {
        "name": name,
        "topic_id": None,
        "error_code": code,
        "error_message": message,
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": None,
    }
