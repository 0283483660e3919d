"""OffsetCommit (key 8), versions 2-10.

Owns: which offsets are acceptable, partition by partition; the group decides whether the member may
commit at all. Success is answered after the offsets are stored.
Gaps: retention_time (versions 2-4) is ignored; offsets are kept as long as all others.
Versions: 5 no retention; 6 leader epoch; 7 static members; 8 flexible; 9 GROUP_ID_NOT_FOUND for an
unknown group; 10 topic ids.
"""

from typing import Any

from streamhouse.kafka_proto.apis import OFFSET_COMMIT
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.messages import decode_request, encode_response
from streamhouse.model.errors import StreamhouseError
from streamhouse.model.groups import Identity, Refusal
from streamhouse.model.ids import TopicPartition
from streamhouse.model.limits import OFFSET_METADATA_BYTES_MAX
from streamhouse.ports.metadata import CommittedOffset
from streamhouse.server.kafka.door import Caller, Door, Frame, refusal_code

VERSION_GROUP_NOT_FOUND = 9

Place = tuple[int, int]  # which topic and which partition of the request
Offsets = dict[TopicPartition, CommittedOffset]


async def handle(door: Door, caller: Caller, frame: memoryview) -> Frame:
    header = caller.header
    request = decode_request(OFFSET_COMMIT, header.api_version, frame, header.body_at)
    offsets, places, errors = _acceptable(door, request)
    verdict = await _commit(door, request, offsets, header.api_version)
    for place, tp in places.items():
        if isinstance(verdict, ErrorCode):
            errors[place] = verdict
        elif tp in verdict:
            errors[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    values = {"topics": _rows(request, errors)}
    return (encode_response(OFFSET_COMMIT, header.api_version, header.correlation_id, values),)


def _acceptable(
    door: Door, request: Any
) -> tuple[Offsets, dict[Place, TopicPartition], dict[Place, ErrorCode]]:
    """Offsets that can be stored, where they stood, and an error for each of the others."""
    offsets: Offsets = {}
    places: dict[Place, TopicPartition] = {}
    errors: dict[Place, ErrorCode] = {}
    now_ms = door.clock.now_ms()
    for at_topic, asked in enumerate(request.topics):
        topic = door.find_topic(getattr(asked, "name", None), getattr(asked, "topic_id", None))
        if topic == ErrorCode.INVALID_TOPIC_EXCEPTION:
            topic = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for at, row in enumerate(asked.partitions):
            place = (at_topic, at)
            partition = door.find_partition(topic, row.partition_index)
            metadata = row.committed_metadata or ""
            if isinstance(partition, ErrorCode):
                errors[place] = partition
            elif len(metadata.encode()) > OFFSET_METADATA_BYTES_MAX:
                errors[place] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                errors[place] = ErrorCode.NONE
                epoch = getattr(row, "committed_leader_epoch", -1)
                places[place] = partition.tp
                offsets[partition.tp] = CommittedOffset(
                    row.committed_offset, epoch, metadata, now_ms
                )
    return offsets, places, errors


async def _commit(
    door: Door, request: Any, offsets: Offsets, version: int
) -> frozenset[TopicPartition] | ErrorCode:
    """Partitions that are gone meanwhile, or the code for all of them."""
    identity = Identity(request.member_id, getattr(request, "group_instance_id", None))
    generation = request.generation_id_or_member_epoch
    try:
        verdict = await door.groups.commit(request.group_id, identity, generation, offsets)
    except StreamhouseError:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE  # a commit may be repeated
    if not isinstance(verdict, Refusal):
        return verdict
    if verdict is Refusal.GROUP_ID_NOT_FOUND and version < VERSION_GROUP_NOT_FOUND:
        return ErrorCode.ILLEGAL_GENERATION
    return refusal_code(verdict)


def _rows(request: Any, errors: dict[Place, ErrorCode]) -> list[dict[str, Any]]:
    return [
        {
            "name": getattr(topic, "name", ""),
            "topic_id": getattr(topic, "topic_id", None),
            "partitions": [
                {"partition_index": row.partition_index, "error_code": errors[at_topic, at]}
                for at, row in enumerate(topic.partitions)
            ],
        }
        for at_topic, topic in enumerate(request.topics)
    ]
