"""SyncGroup (key 14), versions 0-5.

Owns: the leader's assignments in, one member's assignment out. A follower's answer comes when the
leader's assignments are stored.
Versions: 3 static members; 4 flexible; 5 protocol type and name, checked and echoed.
"""

from streamhouse.kafka_proto.apis import SYNC_GROUP
from streamhouse.kafka_proto.messages import decode_request, encode_response
from streamhouse.model.groups import SyncRequest
from streamhouse.server.kafka.door import Caller, Door, Frame, refusal_code


async def handle(door: Door, caller: Caller, frame: memoryview) -> Frame:
    header = caller.header
    request = decode_request(SYNC_GROUP, header.api_version, frame, header.body_at)
    asked = SyncRequest(
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        generation=request.generation_id,
        protocol_type=getattr(request, "protocol_type", None),
        protocol_name=getattr(request, "protocol_name", None),
        assignments={one.member_id: one.assignment for one in request.assignments},
    )
    answer = await door.groups.sync(request.group_id, asked)
    values = {
        "error_code": refusal_code(answer.refusal),
        "protocol_type": answer.protocol_type,
        "protocol_name": answer.protocol_name,
        "assignment": answer.assignment,
    }
    return (encode_response(SYNC_GROUP, header.api_version, header.correlation_id, values),)
