"""DescribeGroups (key 15), versions 0-6.

Owns: one row per group asked for. A group nobody knows is `Dead`, from version 6 on with
GROUP_ID_NOT_FOUND.
Versions: 3 authorized operations; 4 static members; 5 flexible; 6 error message.
"""

from typing import Any

from streamhouse.kafka_proto.apis import DESCRIBE_GROUPS
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.messages import decode_request, encode_response
from streamhouse.model.groups import DescribedMember, GroupState
from streamhouse.server.kafka.door import Answer, Caller, Door

VERSION_NOT_FOUND = 6
NOT_ASKED = -(2**31)
READ, DELETE, DESCRIBE = 3, 6, 8  # what can be done with a group; without security, everybody may
ALL_OPERATIONS = 1 << READ | 1 << DELETE | 1 << DESCRIBE


def handle(door: Door, caller: Caller, frame: memoryview) -> Answer:
    header = caller.header
    request = decode_request(DESCRIBE_GROUPS, header.api_version, frame, header.body_at)
    asked = getattr(request, "include_authorized_operations", False)
    groups = [
        {
            **_group(door, group_id, header.api_version),
            "authorized_operations": ALL_OPERATIONS if asked else NOT_ASKED,
        }
        for group_id in request.groups
    ]
    values = {"groups": groups}
    return (encode_response(DESCRIBE_GROUPS, header.api_version, header.correlation_id, values),)


def _group(door: Door, group_id: str, version: int) -> dict[str, Any]:
    found = door.groups.describe(group_id)
    if found is None:
        is_error = version >= VERSION_NOT_FOUND
        return {
            "group_id": group_id,
            "error_code": ErrorCode.GROUP_ID_NOT_FOUND if is_error else ErrorCode.NONE,
            "error_message": f"Group {group_id} not found." if is_error else None,
            "group_state": GroupState.DEAD.value,
            "protocol_type": "",
            "protocol_data": "",
            "members": [],
        }
    return {
        "group_id": group_id,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "group_state": found.state.value,
        "protocol_type": found.protocol_type,
        "protocol_data": found.protocol_name,
        "members": [_member(member) for member in found.members],
    }


def _member(member: DescribedMember) -> dict[str, Any]:
    return {
        "member_id": member.row.member_id,
        "group_instance_id": member.row.instance_id,
        "client_id": member.row.client_id,
        "client_host": member.row.client_host,
        "member_metadata": member.metadata,
        "member_assignment": member.assignment,
    }
