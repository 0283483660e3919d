"""ListGroups (key 16), versions 0-5.

Owns: the filters. States and types are compared without regard to case, as Kafka does.
Versions: 3 flexible; 4 states; 5 types.
"""

from streamhouse.kafka_proto.apis import LIST_GROUPS
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.messages import decode_request, encode_response
from streamhouse.server.kafka.door import Answer, Caller, Door

CLASSIC = "classic"


def handle(door: Door, caller: Caller, frame: memoryview) -> Answer:
    header = caller.header
    request = decode_request(LIST_GROUPS, header.api_version, frame, header.body_at)
    states = {state.lower() for state in getattr(request, "states_filter", ())}
    types = {kind.lower() for kind in getattr(request, "types_filter", ())}
    groups = [
        {
            "group_id": group.group_id,
            "protocol_type": group.protocol_type,
            "group_state": group.state.value,
            "group_type": CLASSIC,
        }
        for group in door.groups.list_groups()
        if (not states or group.state.value.lower() in states) and (not types or CLASSIC in types)
    ]
    values = {"error_code": ErrorCode.NONE, "groups": groups}
    return (encode_response(LIST_GROUPS, header.api_version, header.correlation_id, values),)
