"""CreatePartitions (key 37), versions 0-3.

Owns: one result per topic named; new partitions are led when the success is answered.
Behaviour: counts are fixed at creation, so growth is POLICY_VIOLATION unless the operator allows
it (TOPIC_PARTITIONS_GROWABLE). A count that is no increase is INVALID_PARTITIONS either way.
Versions: 2 flexible; 3 as 2.
"""

from collections import Counter
from typing import Any

from streamhouse.kafka_proto.apis import CREATE_PARTITIONS
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.messages import decode_request, encode_response
from streamhouse.model.errors import NotFound, OutcomeUnknown, StreamhouseError, Unavailable
from streamhouse.model.limits import PARTITIONS_PER_TOPIC_MAX
from streamhouse.model.topic import InvalidPartitionCount, Topic
from streamhouse.server.kafka.door import NODE_ID, Caller, Door, Frame

CODES: dict[type[StreamhouseError], ErrorCode] = {
    InvalidPartitionCount: ErrorCode.INVALID_PARTITIONS,
    NotFound: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    Unavailable: ErrorCode.KAFKA_STORAGE_ERROR,
    OutcomeUnknown: ErrorCode.REQUEST_TIMED_OUT,
}


class _Refused(Exception):
    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


async def handle(door: Door, caller: Caller, frame: memoryview) -> Frame:
    header = caller.header
    request = decode_request(CREATE_PARTITIONS, header.api_version, frame, header.body_at)
    named = Counter(asked.name for asked in request.topics)
    rows = []
    for asked in {asked.name: asked for asked in request.topics}.values():
        code, message = ErrorCode.NONE, None
        try:
            if named[asked.name] > 1:
                text = "the request names this topic more than once"
                raise _Refused(ErrorCode.INVALID_REQUEST, text)
            topic = _check(door, asked)
            if not request.validate_only:
                await door.agent.grow_topic(topic, asked.count)
        except _Refused as refused:
            code, message = refused.code, str(refused)
        except tuple(CODES) as error:
            code, message = CODES[type(error)], str(error)
        rows.append({"name": asked.name, "error_code": code, "error_message": message})
    values = {"results": rows}
    return (encode_response(CREATE_PARTITIONS, header.api_version, header.correlation_id, values),)


def _check(door: Door, asked: Any) -> Topic:
    topic = door.find_topic(asked.name, None)
    if isinstance(topic, ErrorCode):
        raise _Refused(topic, f"there is no topic {asked.name!r}")
    count = topic.partition_count
    if asked.count <= count:
        raise _Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {asked.name!r} has {count} partitions; {asked.count} would not be an increase",
        )
    if asked.count > PARTITIONS_PER_TOPIC_MAX:
        text = f"a topic has at most {PARTITIONS_PER_TOPIC_MAX} partitions"
        raise _Refused(ErrorCode.INVALID_PARTITIONS, text)
    if asked.assignments is not None:
        _check_assignments(asked, asked.count - count)
    if not door.partitions_growable:
        raise _Refused(
            ErrorCode.POLICY_VIOLATION,
            "partition counts are fixed when a topic is created, because more partitions would "
            "move keys to other partitions; start the server with TOPIC_PARTITIONS_GROWABLE=1 to "
            "allow it",
        )
    return topic


def _check_assignments(asked: Any, added: int) -> None:
    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    if len(asked.assignments) != added:
        text = f"{added} partitions would be added, {len(asked.assignments)} are assigned"
        raise _Refused(code, text)
    if any(tuple(row.broker_ids) != (NODE_ID,) for row in asked.assignments):
        raise _Refused(code, f"the only broker has the id {NODE_ID}")
