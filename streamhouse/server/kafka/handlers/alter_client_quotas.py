"""AlterClientQuotas (key 49), versions 0-1.

Owns: one result per entity. Limits are stored and in force when the success is answered.
Behaviour: an entity named twice or a limit that cannot be is INVALID_REQUEST for that entity only.
Gaps: of the limits, the byte rates take effect; the others are kept and shown.
Versions: 1 flexible.
"""

from collections import Counter
from typing import Any

from streamhouse.kafka_proto.apis import ALTER_CLIENT_QUOTAS
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.messages import decode_request, encode_response
from streamhouse.model.errors import OutcomeUnknown, Unavailable
from streamhouse.model.quotas import InvalidQuota, QuotaChange, check_change, entity_of
from streamhouse.server.kafka.door import Caller, Door, Frame

_Result = tuple[ErrorCode, str | None]


async def handle(door: Door, caller: Caller, frame: memoryview) -> Frame:
    header, key = caller.header, ALTER_CLIENT_QUOTAS
    request = decode_request(key, header.api_version, frame, header.body_at)
    named = Counter(_pairs(entry) for entry in request.entries)
    rows = []
    for entry in request.entries:
        if named[_pairs(entry)] > 1:
            code, message = ErrorCode.INVALID_REQUEST, "the request names this entity twice"
            rows.append(_row(entry, (code, message)))
        else:
            rows.append(_row(entry, await _alter(door, entry, request.validate_only)))
    values = {"entries": rows}
    return (encode_response(key, header.api_version, header.correlation_id, values),)


async def _alter(door: Door, entry: Any, validate_only: bool) -> _Result:
    try:
        change = _change(entry)
        check_change(change)
        if not validate_only:
            await door.quotas.alter([change])
    except InvalidQuota as error:
        return ErrorCode.INVALID_REQUEST, str(error)
    except Unavailable as error:
        return ErrorCode.KAFKA_STORAGE_ERROR, str(error)
    except OutcomeUnknown as error:
        return ErrorCode.REQUEST_TIMED_OUT, str(error)
    return ErrorCode.NONE, None


def _change(entry: Any) -> QuotaChange:
    entity = entity_of((part.entity_type, part.entity_name) for part in entry.entity)
    keys = [op.key for op in entry.ops]
    if len(set(keys)) < len(keys):
        raise InvalidQuota("the request names a limit twice")
    return QuotaChange(entity, {op.key: None if op.remove else op.value for op in entry.ops})


def _pairs(entry: Any) -> frozenset[tuple[str, str | None]]:
    return frozenset((part.entity_type, part.entity_name) for part in entry.entity)


def _row(entry: Any, result: _Result) -> dict[str, Any]:
    code, message = result
    entity = [
        {"entity_type": part.entity_type, "entity_name": part.entity_name} for part in entry.entity
    ]
    return {"error_code": code, "error_message": message, "entity": entity}
