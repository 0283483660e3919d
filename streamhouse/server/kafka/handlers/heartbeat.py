"""Heartbeat (key 12), versions 0-4.

Owns: a member's sign of life, answered with REBALANCE_IN_PROGRESS when it has to join again.
Versions: 3 static members; 4 flexible.
"""

from streamhouse.kafka_proto.apis import HEARTBEAT
from streamhouse.kafka_proto.messages import decode_request, encode_response
from streamhouse.model.groups import Identity
from streamhouse.server.kafka.door import Answer, Caller, Door, refusal_code


def handle(door: Door, caller: Caller, frame: memoryview) -> Answer:
    header = caller.header
    request = decode_request(HEARTBEAT, header.api_version, frame, header.body_at)
    identity = Identity(request.member_id, getattr(request, "group_instance_id", None))
    refusal = door.groups.heartbeat(request.group_id, identity, request.generation_id)
    values = {"error_code": refusal_code(refusal)}
    return (encode_response(HEARTBEAT, header.api_version, header.correlation_id, values),)
