"""DescribeConfigs (key 32), versions 1-4.

Owns: every topic setting with default, source and synonyms, and the settings of this broker.
Versions: 1 synonyms and sources; 3 types and documentation; 4 flexible.
"""

from collections.abc import Collection, Mapping
from typing import Any

from streamhouse.kafka_proto.apis import DESCRIBE_CONFIGS
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.messages import decode_request, encode_response
from streamhouse.model import limits
from streamhouse.model.topic import TOPIC_CONFIGS, ConfigType
from streamhouse.server.kafka.door import NODE_ID, Answer, Caller, Door

RESOURCE_TOPIC = 2
RESOURCE_BROKER = 4
SOURCE_TOPIC = 1
SOURCE_STATIC_BROKER = 4
SOURCE_DEFAULT = 5


def handle(door: Door, caller: Caller, frame: memoryview) -> Answer:
    header = caller.header
    request = decode_request(DESCRIBE_CONFIGS, header.api_version, frame, header.body_at)
    synonyms = request.include_synonyms
    results = [_describe(door, resource, synonyms) for resource in request.resources]
    values = {"results": results}
    return (encode_response(DESCRIBE_CONFIGS, header.api_version, header.correlation_id, values),)


def _describe(door: Door, resource: Any, synonyms: bool) -> dict[str, Any]:
    error, message, rows = ErrorCode.NONE, None, []
    # An empty list of names asks for all of them, as null does.
    wanted = resource.configuration_keys or None
    if resource.resource_type == RESOURCE_TOPIC:
        topic = door.find_topic(resource.resource_name, None)
        if isinstance(topic, ErrorCode):
            error, message = topic, f"there is no topic {resource.resource_name!r}"
        else:
            rows = topic_config_rows(topic.config, wanted, synonyms)
    elif resource.resource_type == RESOURCE_BROKER:
        if resource.resource_name in ("", str(NODE_ID)):
            rows = _broker_rows(door, wanted, synonyms) if resource.resource_name else []
        else:
            error, message = ErrorCode.INVALID_REQUEST, f"the only broker has the id {NODE_ID}"
    else:
        error = ErrorCode.INVALID_REQUEST
        message = f"resource type {resource.resource_type} has no settings here"
    return {
        "error_code": error,
        "error_message": message,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
        "configs": rows,
    }


def topic_config_rows(
    config: Mapping[str, str], wanted: Collection[str] | None, synonyms: bool = False
) -> list[dict[str, Any]]:
    """Every setting of a topic, or those named."""
    rows = []
    for known in TOPIC_CONFIGS.values():
        if wanted is not None and known.name not in wanted:
            continue
        is_set = known.name in config
        value = config.get(known.name, known.default)
        source = SOURCE_TOPIC if is_set else SOURCE_DEFAULT
        also = [(known.name, value, SOURCE_TOPIC)] if is_set else []
        also.append((known.name, known.default, SOURCE_DEFAULT))
        row = _row(known.name, value, source, known.type, also if synonyms else [])
        rows.append({**row, "documentation": known.doc, "read_only": False})
    return rows


def _broker_rows(
    door: Door, wanted: Collection[str] | None, synonyms: bool
) -> list[dict[str, Any]]:
    boolean, integer, long, text = (
        ConfigType.BOOLEAN,
        ConfigType.INT,
        ConfigType.LONG,
        ConfigType.STRING,
    )
    known: list[tuple[str, ConfigType, object]] = [
        ("auto.create.topics.enable", boolean, str(door.auto_create_topics).lower()),
        ("broker.id", integer, NODE_ID),
        ("broker.rack", text, door.rack or ""),
        ("compression.type", text, "producer"),
        ("connections.max.idle.ms", long, limits.CONNECTION_IDLE_MS_MAX),
        ("default.replication.factor", integer, 1),
        ("delete.topic.enable", boolean, "true"),
        ("fetch.max.bytes", integer, limits.FETCH_BYTES_MAX),
        ("log.cleanup.policy", ConfigType.LIST, TOPIC_CONFIGS["cleanup.policy"].default),
        ("log.message.timestamp.type", text, TOPIC_CONFIGS["message.timestamp.type"].default),
        ("log.retention.bytes", long, TOPIC_CONFIGS["retention.bytes"].default),
        ("log.retention.ms", long, TOPIC_CONFIGS["retention.ms"].default),
        ("log.segment.bytes", integer, TOPIC_CONFIGS["segment.bytes"].default),
        ("message.max.bytes", integer, limits.MESSAGE_BYTES_MAX),
        ("min.insync.replicas", integer, 1),
        ("node.id", integer, NODE_ID),
        ("num.partitions", integer, door.default_partitions),
        ("producer.id.expiration.ms", integer, limits.PRODUCER_IDLE_MS_MAX),
        ("socket.request.max.bytes", integer, limits.FRAME_BYTES_MAX),
    ]
    rows = []
    for name, kind, value in known:
        if wanted is None or name in wanted:
            also = [(name, str(value), SOURCE_STATIC_BROKER)] if synonyms else []
            row = _row(name, str(value), SOURCE_STATIC_BROKER, kind, also)
            rows.append({**row, "documentation": None, "read_only": True})
    return rows


def _row(
    name: str, value: str, source: int, kind: ConfigType, synonyms: list[tuple[str, str, int]]
) -> dict[str, Any]:
    return {
        "name": name,
        "value": value,
        "config_source": source,
        "is_sensitive": False,
        "synonyms": [{"name": n, "value": v, "source": s} for n, v, s in synonyms],
        "config_type": kind,
    }
