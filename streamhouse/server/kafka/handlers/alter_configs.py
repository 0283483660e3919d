"""AlterConfigs (key 33), versions 0-2.

Owns: replacing all settings of a topic, or all that were changed of the broker: what is not named
goes back to its default.
Behaviour: as IncrementalAlterConfigs, which clients should prefer (KIP-339).
Versions: 2 flexible.
"""

from typing import Any

from streamhouse.kafka_proto.apis import ALTER_CONFIGS
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.messages import decode_request, encode_response
from streamhouse.model.config_change import ConfigEdit, ConfigOp
from streamhouse.server.kafka.broker_configs import Resource
from streamhouse.server.kafka.config_alteration import (
    Refused,
    alter_each,
    edit_broker,
    replace_topic_config,
)
from streamhouse.server.kafka.door import Caller, Door, Frame


async def handle(door: Door, caller: Caller, frame: memoryview) -> Frame:
    header = caller.header
    request = decode_request(ALTER_CONFIGS, header.api_version, frame, header.body_at)

    async def alter(resource: Any) -> None:
        await _alter(door, caller, resource, request.validate_only)

    values = {"responses": await alter_each(request.resources, alter)}
    return (encode_response(ALTER_CONFIGS, header.api_version, header.correlation_id, values),)


async def _alter(door: Door, caller: Caller, resource: Any, validate_only: bool) -> None:
    unset = [config.name for config in resource.configs if config.value is None]
    if unset:
        raise Refused(ErrorCode.INVALID_REQUEST, f"config {unset[0]!r} has no value")
    name = resource.resource_name
    match resource.resource_type:
        case Resource.TOPIC:
            config = {c.name: c.value.strip() for c in resource.configs}
            await replace_topic_config(door, name, config, validate_only=validate_only)
        case Resource.BROKER:
            await edit_broker(
                door, caller, name, _replacing(door, resource), validate_only=validate_only
            )
        case other:
            raise Refused(ErrorCode.INVALID_REQUEST, f"resource type {other} cannot be altered")


def _replacing(door: Door, resource: Any) -> list[ConfigEdit]:
    """Edits that leave nothing of what was set before."""
    named = {config.name for config in resource.configs}
    before = door.broker_settings.of(resource.resource_name)
    dropped = [ConfigEdit(name, ConfigOp.DELETE, None) for name in before if name not in named]
    return [ConfigEdit(c.name, ConfigOp.SET, c.value) for c in resource.configs] + dropped
