"""What AlterConfigs and IncrementalAlterConfigs share: one resource, judged and then changed.

Behaviour, as in Kafka: resources succeed or fail one by one; a resource or setting named twice is
INVALID_REQUEST; a value that a topic cannot have is INVALID_CONFIG; a broker's setting that cannot
be changed, or not to that value, is INVALID_REQUEST. `validate_only` stops before the change.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.model.broker_settings import DYNAMIC_CONFIGS, check_broker_config
from streamhouse.model.config_change import ConfigEdit, ConfigOp, changes_of, merged
from streamhouse.model.errors import NotFound, OutcomeUnknown, StreamhouseError, Unavailable
from streamhouse.model.topic import InvalidConfig, Topic, parse_settings
from streamhouse.server.kafka.broker_configs import broker_config_names
from streamhouse.server.kafka.door import NODE_ID, Caller, Door
from streamhouse.server.kafka.log_levels import LEVELS, ROOT, logger_levels, set_level

Alter = Callable[[Any], Awaitable[None]]

CODES: Mapping[type[StreamhouseError], ErrorCode] = {
    InvalidConfig: ErrorCode.INVALID_CONFIG,
    NotFound: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    Unavailable: ErrorCode.KAFKA_STORAGE_ERROR,
    OutcomeUnknown: ErrorCode.REQUEST_TIMED_OUT,
}


class Refused(Exception):
    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


async def alter_each(resources: Sequence[Any], alter: Alter) -> list[dict[str, Any]]:
    """Call `alter` for each resource; return the rows of the answer."""
    named = Counter((r.resource_type, r.resource_name) for r in resources)
    rows = []
    for resource in resources:
        code, message = ErrorCode.NONE, None
        try:
            if named[resource.resource_type, resource.resource_name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "each resource may appear only once")
            _check_names(resource.configs)
            await alter(resource)
        except Refused as refused:
            code, message = refused.code, str(refused)
        except tuple(CODES) as error:
            code, message = CODES[type(error)], str(error)
        rows.append(
            {
                "error_code": code,
                "error_message": message,
                "resource_type": resource.resource_type,
                "resource_name": resource.resource_name,
            }
        )
    return rows


def _check_names(configs: Sequence[Any]) -> None:
    twice = [name for name, count in Counter(c.name for c in configs).items() if count > 1]
    if twice:
        raise Refused(ErrorCode.INVALID_REQUEST, f"config {twice[0]!r} is named more than once")


async def edit_topic(
    door: Door, name: str, edits: Sequence[ConfigEdit], *, validate_only: bool
) -> None:
    topic = _topic(door, name)
    changes = changes_of(topic.config, edits)
    parse_settings(merged(topic.config, changes))
    if not validate_only and changes:
        await door.agent.change_topic_config(topic, changes)


async def replace_topic_config(
    door: Door, name: str, config: Mapping[str, str], *, validate_only: bool
) -> None:
    topic = _topic(door, name)
    parse_settings(config)
    if not validate_only:
        await door.agent.set_topic_config(topic, config)


def _topic(door: Door, name: str) -> Topic:
    if not name:
        raise Refused(ErrorCode.INVALID_REQUEST, "topics have no common settings to alter")
    topic = door.find_topic(name, None)
    if isinstance(topic, ErrorCode):
        raise Refused(topic, f"there is no topic {name!r}")
    return topic


async def edit_broker(
    door: Door, caller: Caller, name: str, edits: Sequence[ConfigEdit], *, validate_only: bool
) -> None:
    """Tools clear what they might have set, so taking back any setting succeeds."""
    if name:
        check_node(name)
    edits = [e for e in edits if e.op is not ConfigOp.DELETE or e.name in DYNAMIC_CONFIGS]
    for edit in edits:
        if edit.name not in DYNAMIC_CONFIGS:
            known = edit.name in broker_config_names(door, caller)
            text = "set it when the server is started" if known else "there is no such setting"
            raise Refused(
                ErrorCode.INVALID_REQUEST, f"cannot update {edit.name} dynamically: {text}"
            )
    try:
        current = door.broker_settings.of(name)
        changes = changes_of(current, edits, DYNAMIC_CONFIGS)
        check_broker_config(merged(current, changes))
    except InvalidConfig as error:  # Kafka's code for it (KAFKA-13609)
        raise Refused(ErrorCode.INVALID_REQUEST, str(error)) from error
    if not validate_only and changes:
        await door.broker_settings.change(name, changes)


def edit_loggers(name: str, edits: Sequence[ConfigEdit], *, validate_only: bool) -> None:
    check_node(name)
    known = logger_levels()
    for edit in edits:
        if edit.op not in (ConfigOp.SET, ConfigOp.DELETE):
            text = f"{edit.op.name} is not possible for a logger"
            raise Refused(ErrorCode.INVALID_REQUEST, text)
        if edit.name not in known:
            raise Refused(ErrorCode.INVALID_CONFIG, f"there is no logger {edit.name!r}")
        if edit.op is ConfigOp.SET and edit.value not in LEVELS:
            text = f"{edit.value!r} is not a level; use {', '.join(LEVELS)}"
            raise Refused(ErrorCode.INVALID_CONFIG, text)
        if edit.op is ConfigOp.DELETE and edit.name == ROOT:
            text = "the root logger needs a level"
            raise Refused(ErrorCode.INVALID_REQUEST, text)
    if not validate_only:
        for edit in edits:
            set_level(edit.name, edit.value if edit.op is ConfigOp.SET else None)


def check_node(name: str) -> None:
    if name != str(NODE_ID):
        raise Refused(ErrorCode.INVALID_REQUEST, f"the only broker has the id {NODE_ID}")
