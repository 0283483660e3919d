"""FindCoordinator (key 10), versions 0-6.

Owns: who coordinates a group or a transaction. One node serves everything, so it is this one.
Behaviour: librdkafka reads from version 0 being offered that lz4 is allowed.
Versions: 1 key type; 3 flexible; 4 several keys at once; 6 share groups, which are refused.
"""

from typing import Any

from streamhouse.kafka_proto.apis import FIND_COORDINATOR
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.messages import decode_request, encode_response
from streamhouse.server.kafka.door import NODE_ID, Answer, Caller, Door

VERSION_MANY_KEYS = 4
KEY_TYPES = (0, 1)  # groups, transactions


def handle(door: Door, caller: Caller, frame: memoryview) -> Answer:
    header = caller.header
    request = decode_request(FIND_COORDINATOR, header.api_version, frame, header.body_at)
    key_type = getattr(request, "key_type", KEY_TYPES[0])
    if header.api_version >= VERSION_MANY_KEYS:
        rows = [_row(door, caller, key, key_type) for key in request.coordinator_keys]
        values: dict[str, Any] = {"coordinators": rows}
    else:
        values = _row(door, caller, request.key, key_type)
        del values["key"]
    return (encode_response(FIND_COORDINATOR, header.api_version, header.correlation_id, values),)


def _row(door: Door, caller: Caller, key: str, key_type: int) -> dict[str, Any]:
    if key_type not in KEY_TYPES:
        return {
            "key": key,
            "node_id": -1,
            "host": "",
            "port": -1,
            "error_code": ErrorCode.INVALID_REQUEST,
            "error_message": f"there is no coordinator of type {key_type}",
        }
    address = door.address(caller)
    return {
        "key": key,
        "node_id": NODE_ID,
        "host": address.host,
        "port": address.port,
        "error_code": ErrorCode.NONE,
        "error_message": None,
    }
