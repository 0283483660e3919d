"""IncrementalAlterConfigs (key 44), versions 0-1.

Owns: SET, DELETE, APPEND and SUBTRACT on the settings of topics and of the broker, and the levels
of loggers.
Behaviour: a change is in force when its success is answered.
Gaps: no settings of groups and client metrics.
Versions: 1 flexible.
"""

from typing import Any

from streamhouse.kafka_proto.apis import INCREMENTAL_ALTER_CONFIGS
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.messages import decode_request, encode_response
from streamhouse.model.config_change import ConfigEdit, ConfigOp
from streamhouse.server.kafka.broker_configs import Resource
from streamhouse.server.kafka.config_alteration import (
    Refused,
    alter_each,
    edit_broker,
    edit_loggers,
    edit_topic,
)
from streamhouse.server.kafka.door import Caller, Door, Frame


async def handle(door: Door, caller: Caller, frame: memoryview) -> Frame:
    header, key = caller.header, INCREMENTAL_ALTER_CONFIGS
    request = decode_request(key, header.api_version, frame, header.body_at)

    async def alter(resource: Any) -> None:
        await _alter(door, caller, resource, request.validate_only)

    values = {"responses": await alter_each(request.resources, alter)}
    return (encode_response(key, header.api_version, header.correlation_id, values),)


async def _alter(door: Door, caller: Caller, resource: Any, validate_only: bool) -> None:
    edits = [_edit(config) for config in resource.configs]
    match resource.resource_type:
        case Resource.TOPIC:
            await edit_topic(door, resource.resource_name, edits, validate_only=validate_only)
        case Resource.BROKER:
            await edit_broker(
                door, caller, resource.resource_name, edits, validate_only=validate_only
            )
        case Resource.BROKER_LOGGER:
            edit_loggers(resource.resource_name, edits, validate_only=validate_only)
        case other:
            raise Refused(ErrorCode.INVALID_REQUEST, f"resource type {other} cannot be altered")


def _edit(config: Any) -> ConfigEdit:
    try:
        op = ConfigOp(config.config_operation)
    except ValueError:
        text = f"{config.config_operation} is not an operation"
        raise Refused(ErrorCode.INVALID_REQUEST, text) from None
    if config.value is None and op is not ConfigOp.DELETE:
        raise Refused(ErrorCode.INVALID_REQUEST, f"config {config.name!r} has no value")
    return ConfigEdit(config.name, op, config.value)
