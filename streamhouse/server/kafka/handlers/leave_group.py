"""LeaveGroup (key 13), versions 0-5.

Owns: one member (before version 3) or several that leave, each with a verdict of its own.
Behaviour: an admin removes a static member by its instance id alone.
Versions: 3 several members, instance ids; 4 flexible; 5 reason.
"""

from typing import Any

from streamhouse.kafka_proto.apis import LEAVE_GROUP
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.messages import decode_request, encode_response
from streamhouse.model.groups import Identity
from streamhouse.server.kafka.door import Answer, Caller, Door, refusal_code

VERSION_MANY = 3


def handle(door: Door, caller: Caller, frame: memoryview) -> Answer:
    header = caller.header
    request = decode_request(LEAVE_GROUP, header.api_version, frame, header.body_at)
    is_many = header.api_version >= VERSION_MANY
    if is_many:
        leaving = [Identity(one.member_id, one.group_instance_id) for one in request.members]
    else:
        leaving = [Identity(request.member_id)]
    verdicts = [refusal_code(refusal) for refusal in door.groups.leave(request.group_id, leaving)]
    values: dict[str, Any] = {"error_code": ErrorCode.NONE if is_many else verdicts[0]}
    if not request.group_id:
        values["error_code"] = ErrorCode.INVALID_GROUP_ID
    if is_many:
        values["members"] = [
            {
                "member_id": one.member_id,
                "group_instance_id": one.instance_id,
                "error_code": verdict,
            }
            for one, verdict in zip(leaving, verdicts, strict=True)
        ]
    return (encode_response(LEAVE_GROUP, header.api_version, header.correlation_id, values),)
