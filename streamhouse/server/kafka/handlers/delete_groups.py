"""DeleteGroups (key 42), versions 0-2.

Owns: one result per group. A group with members stays (68); its offsets go with it otherwise.
Versions: 2 flexible.
"""

from streamhouse.kafka_proto.apis import DELETE_GROUPS
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.messages import decode_request, encode_response
from streamhouse.model.errors import StreamhouseError
from streamhouse.server.kafka.door import Caller, Door, Frame, refusal_code


async def handle(door: Door, caller: Caller, frame: memoryview) -> Frame:
    header = caller.header
    request = decode_request(DELETE_GROUPS, header.api_version, frame, header.body_at)
    results = [
        {"group_id": group_id, "error_code": await _delete(door, group_id)}
        for group_id in request.groups_names
    ]
    values = {"results": results}
    return (encode_response(DELETE_GROUPS, header.api_version, header.correlation_id, values),)


async def _delete(door: Door, group_id: str) -> ErrorCode:
    try:
        return refusal_code(await door.groups.delete(group_id))
    except StreamhouseError:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
