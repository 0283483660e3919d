"""DescribeConfigs (key 32), versions 1-4.

Owns: every topic setting with default, source and synonyms, the settings of this broker, and the
levels of its loggers.
Behaviour: settings that are not named are all told; an unknown name is left out. The broker
resource with the empty name has what was changed for all brokers. Groups and client metrics have
no settings of their own.
Versions: 1 synonyms and sources; 3 types and documentation; 4 flexible.
"""

from collections.abc import Mapping
from typing import Any

from streamhouse.kafka_proto.apis import DESCRIBE_CONFIGS
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.messages import decode_request, encode_response
from streamhouse.model.broker_settings import DYNAMIC_CONFIGS
from streamhouse.model.topic import TOPIC_CONFIGS, ConfigDef, ConfigType
from streamhouse.server.kafka.broker_configs import (
    BrokerConfig,
    Resource,
    broker_configs,
)
from streamhouse.server.kafka.broker_settings import EVERY_BROKER
from streamhouse.server.kafka.door import NODE_ID, Answer, Caller, Door
from streamhouse.server.kafka.log_levels import LEVELS, logger_levels

SOURCE_TOPIC = 1
SOURCE_BROKER = 2
SOURCE_EVERY_BROKER = 3
SOURCE_STATIC_BROKER = 4
SOURCE_DEFAULT = 5
SOURCE_BROKER_LOGGER = 6

Rows = list[dict[str, Any]]
Synonym = tuple[str, str, int]


class _Refused(Exception):
    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def handle(door: Door, caller: Caller, frame: memoryview) -> Answer:
    header = caller.header
    request = decode_request(DESCRIBE_CONFIGS, header.api_version, frame, header.body_at)
    synonyms = request.include_synonyms
    results = [_describe(door, caller, resource, synonyms) for resource in request.resources]
    values = {"results": results}
    return (encode_response(DESCRIBE_CONFIGS, header.api_version, header.correlation_id, values),)


def _describe(door: Door, caller: Caller, resource: Any, synonyms: bool) -> dict[str, Any]:
    error, message, rows = ErrorCode.NONE, None, []
    # An empty list of names asks for all of them, as null does.
    wanted = resource.configuration_keys or None
    try:
        rows = _rows(door, caller, resource, synonyms)
    except _Refused as refused:
        error, message = refused.code, str(refused)
    return {
        "error_code": error,
        "error_message": message,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
        "configs": [row for row in rows if wanted is None or row["name"] in wanted],
    }


def _rows(door: Door, caller: Caller, resource: Any, synonyms: bool) -> Rows:
    name = resource.resource_name
    match resource.resource_type:
        case Resource.TOPIC:
            topic = door.find_topic(name, None)
            if isinstance(topic, ErrorCode):
                raise _Refused(topic, f"there is no topic {name!r}")
            return topic_config_rows(door, topic.config, synonyms)
        case Resource.BROKER:
            if name == EVERY_BROKER:
                return _changed_rows(door)
            _check_node(name)
            return [_broker_row(door, c, synonyms) for c in broker_configs(door, caller)]
        case Resource.BROKER_LOGGER:
            _check_node(name)
            return _logger_rows()
        case Resource.CLIENT_METRICS | Resource.GROUP:
            return []
        case other:
            raise _Refused(ErrorCode.INVALID_REQUEST, f"resource type {other} has no settings here")


def _check_node(name: str) -> None:
    if name != str(NODE_ID):
        raise _Refused(ErrorCode.INVALID_REQUEST, f"the only broker has the id {NODE_ID}")


def topic_config_rows(door: Door, config: Mapping[str, str], synonyms: bool = False) -> Rows:
    """Every setting of a topic."""
    return [_topic_row(door, known, config, synonyms) for known in TOPIC_CONFIGS.values()]


def _topic_row(
    door: Door, known: ConfigDef, config: Mapping[str, str], synonyms: bool
) -> dict[str, Any]:
    also: list[Synonym] = []
    if known.name in config:
        also.append((known.name, config[known.name], SOURCE_TOPIC))
    chosen = door.topic_defaults.get(known.name, known.default)
    also += _falls_back(door, known.broker_name or known.name, chosen, known.default)
    row = _row(known.name, known.type, also, synonyms)
    return {**row, "documentation": known.doc, "read_only": False}


def _broker_row(door: Door, config: BrokerConfig, synonyms: bool) -> dict[str, Any]:
    also = _falls_back(door, config.name, config.value, config.default)
    row = _row(config.name, config.type, also, synonyms)
    return {**row, "documentation": config.doc, "read_only": config.read_only}


def _falls_back(door: Door, name: str, chosen: str, default: str | None) -> list[Synonym]:
    """What a broker's setting is, and what it would be without that, and so on."""
    found: list[Synonym] = []
    for broker, source in ((str(NODE_ID), SOURCE_BROKER), (EVERY_BROKER, SOURCE_EVERY_BROKER)):
        if (value := door.broker_settings.of(broker).get(name)) is not None:
            found.append((name, value, source))
    if chosen != default:
        found.append((name, chosen, SOURCE_STATIC_BROKER))
    if default is not None:
        found.append((name, default, SOURCE_DEFAULT))
    return found


def _changed_rows(door: Door) -> Rows:
    """What was changed for all brokers together."""
    rows = []
    for name, value in sorted(door.broker_settings.of(EVERY_BROKER).items()):
        known = DYNAMIC_CONFIGS[name]
        row = _row(name, known.type, [(name, value, SOURCE_EVERY_BROKER)], True)
        rows.append({**row, "documentation": known.doc, "read_only": False})
    return rows


def _logger_rows() -> Rows:
    rows = []
    for name, level in logger_levels().items():
        row = _row(name, ConfigType.STRING, [(name, level, SOURCE_BROKER_LOGGER)], False)
        text = f"Level of the logger: {', '.join(LEVELS)}."
        rows.append({**row, "documentation": text, "read_only": False})
    return rows


def _row(name: str, kind: ConfigType, also: list[Synonym], synonyms: bool) -> dict[str, Any]:
    """The first synonym is the one in force."""
    _, value, source = also[0]
    shown = also if synonyms else []
    return {
        "name": name,
        "value": value,
        "config_source": source,
        "is_sensitive": False,
        "synonyms": [{"name": n, "value": v, "source": s} for n, v, s in shown],
        "config_type": kind,
    }
