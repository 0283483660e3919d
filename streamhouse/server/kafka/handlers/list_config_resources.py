"""ListConfigResources (key 74), versions 0-1.

Owns: the names of everything that can have settings.
Behaviour: version 0 asks only for client metrics, of which there are none; an empty list asks for
every kind, and a kind that does not exist is UNSUPPORTED_VERSION, as in Kafka.
Versions: 1 kinds of resources.
"""

from streamhouse.kafka_proto.apis import LIST_CONFIG_RESOURCES
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.messages import decode_request, encode_response
from streamhouse.server.kafka.broker_configs import Resource
from streamhouse.server.kafka.door import NODE_ID, Answer, Caller, Door

VERSION_KINDS = 1
KINDS = tuple(Resource)


def handle(door: Door, caller: Caller, frame: memoryview) -> Answer:
    header, key = caller.header, LIST_CONFIG_RESOURCES
    request = decode_request(key, header.api_version, frame, header.body_at)
    kinds: tuple[int, ...] = (Resource.CLIENT_METRICS,)
    if header.api_version >= VERSION_KINDS:
        kinds = tuple(dict.fromkeys(request.resource_types)) or KINDS
    error, rows = ErrorCode.NONE, []
    if set(kinds) - set(KINDS):
        error = ErrorCode.UNSUPPORTED_VERSION
    else:
        rows = [
            {"resource_name": name, "resource_type": kind}
            for kind in kinds
            for name in _names(door, kind)
        ]
    values = {"error_code": error, "config_resources": rows}
    return (encode_response(key, header.api_version, header.correlation_id, values),)


def _names(door: Door, kind: int) -> list[str]:
    if kind == Resource.TOPIC:
        return [topic.name for topic in door.agent.catalog.topics()]
    if kind in (Resource.BROKER, Resource.BROKER_LOGGER):
        return [str(NODE_ID)]
    return []
