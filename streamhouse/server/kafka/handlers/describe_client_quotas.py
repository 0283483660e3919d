"""DescribeClientQuotas (key 48), versions 0-1.

Owns: the stored limits that fit a filter.
Behaviour: a filter names types of entity, each with an exact name, the default or any name; strict
leaves out entities with further types. Errors are for the whole request, as in Kafka.
Versions: 1 flexible.
"""

from typing import Any

from streamhouse.kafka_proto.apis import DESCRIBE_CLIENT_QUOTAS
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.messages import decode_request, encode_response
from streamhouse.model.quotas import ENTITY_TYPES, IP, ClientQuota, Entity
from streamhouse.server.kafka.door import Answer, Caller, Door

MATCH_EXACT, MATCH_DEFAULT, MATCH_ANY = 0, 1, 2

_Filter = dict[str, tuple[int, str | None]]


class _Refused(Exception):
    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def handle(door: Door, caller: Caller, frame: memoryview) -> Answer:
    header, key = caller.header, DESCRIBE_CLIENT_QUOTAS
    request = decode_request(key, header.api_version, frame, header.body_at)
    values: dict[str, Any] = {"error_code": ErrorCode.NONE, "error_message": None}
    try:
        wanted = _filter(request.components)
    except _Refused as refused:
        values |= {"error_code": refused.code, "error_message": str(refused), "entries": None}
    else:
        found = [q for q in door.quotas.all() if _fits(q.entity, wanted, request.strict)]
        values["entries"] = [_entry(quota) for quota in found]
    return (encode_response(key, header.api_version, header.correlation_id, values),)


def _filter(components: Any) -> _Filter:
    wanted: _Filter = {}
    for component in components:
        kind, match = component.entity_type, component.match_type
        if not kind or kind in wanted:
            raise _Refused(ErrorCode.INVALID_REQUEST, f"entity type {kind!r}: name each type once")
        if kind not in ENTITY_TYPES:
            raise _Refused(ErrorCode.UNSUPPORTED_VERSION, f"there is no entity type {kind!r}")
        if match not in (MATCH_EXACT, MATCH_DEFAULT, MATCH_ANY):
            raise _Refused(ErrorCode.INVALID_REQUEST, f"{match} is not a way to match")
        if (match == MATCH_EXACT) != (component.match is not None):
            raise _Refused(ErrorCode.INVALID_REQUEST, "only an exact match has a name")
        wanted[kind] = (match, component.match)
    if IP in wanted and len(wanted) > 1:
        text = "an address cannot be combined with a user or client id"
        raise _Refused(ErrorCode.INVALID_REQUEST, text)
    return wanted


def _fits(entity: Entity, wanted: _Filter, strict: bool) -> bool:
    named = dict(entity)
    if strict and len(named) != len(wanted):
        return False
    for kind, (match, name) in wanted.items():
        if kind not in named or (match != MATCH_ANY and named[kind] != name):
            return False
    return True


def _entry(quota: ClientQuota) -> dict[str, Any]:
    pairs = sorted(quota.entity, key=lambda pair: pair[0])
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in pairs],
        "values": [{"key": key, "value": quota.limits[key]} for key in sorted(quota.limits)],
    }
