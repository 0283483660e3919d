"""JoinGroup (key 11), versions 0-9.

Owns: the request in the group's terms and its answer back. The answer comes when the group has its
next generation; requests behind it on the same connection wait, as in Kafka.
Must not know: states and timers of a group.
Versions: 1 rebalance timeout (before: the session timeout); 4 MEMBER_ID_REQUIRED (KIP-394);
5 static members (KIP-345); 6 flexible; 7 protocol type in the answer; 8 reason; 9 SkipAssignment.
"""

from typing import Any

from streamhouse.kafka_proto.apis import JOIN_GROUP
from streamhouse.kafka_proto.messages import decode_request, encode_response
from streamhouse.model.groups import JoinAnswer, JoinRequest, Protocol
from streamhouse.server.kafka.door import Caller, Door, Frame, milliseconds, refusal_code

VERSION_KNOWN_ID = 4
VERSION_NULLABLE_PROTOCOL = 7
VERSION_SKIP_ASSIGNMENT = 9


async def handle(door: Door, caller: Caller, frame: memoryview) -> Frame:
    header = caller.header
    request = decode_request(JOIN_GROUP, header.api_version, frame, header.body_at)
    answer = await door.groups.join(request.group_id, _request(caller, request))
    values = _values(answer, header.api_version)
    return (encode_response(JOIN_GROUP, header.api_version, header.correlation_id, values),)


def _request(caller: Caller, request: Any) -> JoinRequest:
    version = caller.header.api_version
    session_timeout_ms = milliseconds(request.session_timeout)
    rebalance_timeout = getattr(request, "rebalance_timeout", request.session_timeout)
    return JoinRequest(
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        client_id=caller.header.client_id or "",
        client_host=caller.client_host,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=max(milliseconds(rebalance_timeout), 0),
        protocol_type=request.protocol_type,
        protocols=tuple(Protocol(one.name, one.metadata) for one in request.protocols),
        needs_known_id=version >= VERSION_KNOWN_ID,
        skips_assignment=version >= VERSION_SKIP_ASSIGNMENT,
    )


def _values(answer: JoinAnswer, version: int) -> dict[str, Any]:
    protocol_name = answer.protocol_name
    if version < VERSION_NULLABLE_PROTOCOL:
        protocol_name = protocol_name or ""
    return {
        "error_code": refusal_code(answer.refusal),
        "generation_id": answer.generation,
        "protocol_type": answer.protocol_type,
        "protocol_name": protocol_name,
        "leader": answer.leader,
        "skip_assignment": answer.skip_assignment,
        "member_id": answer.member_id,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "metadata": member.metadata,
            }
            for member in answer.members
        ],
    }
