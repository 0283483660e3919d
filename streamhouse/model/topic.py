"""Topics and their settings.

`TOPIC_CONFIGS` is the one table of settings: validation, defaults, DescribeConfigs and the
documentation all read it. `effective=False` marks settings that are accepted and shown, because
tools send them, but change nothing here.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from streamhouse.model.errors import Invalid
from streamhouse.model.ids import TopicId
from streamhouse.model.limits import (
    MESSAGE_BYTES_MAX,
    PARTITIONS_PER_TOPIC_MAX,
    TOPIC_NAME_CHARS_MAX,
)

_NAME = re.compile(r"^[a-zA-Z0-9._-]+$")


class InvalidTopicName(Invalid):
    """The name breaks Kafka's rules for topic names."""


class InvalidPartitionCount(Invalid):
    """Zero, negative or too many partitions."""


class InvalidConfig(Invalid):
    """An unknown setting, or a value out of its range."""


class ConfigType(IntEnum):
    """Kafka's numbers for the types of settings (DescribeConfigs 3+)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True)
class ConfigDef:
    name: str
    type: ConfigType
    default: str
    check: Callable[[str], bool]
    expects: str  # said to the user when `check` fails
    doc: str
    effective: bool = True
    broker_name: str = ""  # Kafka's name of the broker setting that this one falls back to


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The settings the log acts on, parsed once."""

    retention_ms: int = 604_800_000  # -1: for ever
    retention_bytes: int = -1  # per partition; -1: unbounded
    max_message_bytes: int = MESSAGE_BYTES_MAX
    log_append_time: bool = False
    compact: bool = False
    delete: bool = True
    segment_bytes: int | None = None  # None: the process's SEGMENT_MAX_SIZE
    segment_ms: int | None = None
    timestamp_before_max_ms: int = 2**63 - 1
    timestamp_after_max_ms: int = 3_600_000


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """What a caller asks for when creating a topic."""

    name: str
    partition_count: int
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Topic:
    topic_id: TopicId
    name: str
    partition_count: int
    config: Mapping[str, str]  # only what was set; the rest is default
    created_ms: int
    settings: TopicSettings


def check_topic_name(name: str) -> None:
    if not name:
        raise InvalidTopicName("a topic needs a name")
    if name in (".", ".."):
        raise InvalidTopicName(f"{name!r} is not a topic name; choose one that is not '.' or '..'")
    if len(name) > TOPIC_NAME_CHARS_MAX:
        raise InvalidTopicName(
            f"the topic name has {len(name)} characters; at most {TOPIC_NAME_CHARS_MAX} are allowed"
        )
    if not _NAME.match(name):
        raise InvalidTopicName(
            f"{name!r} is not a topic name: use letters, digits, '.', '_' and '-'"
        )


def check_spec(spec: TopicSpec) -> None:
    """Raise the first thing wrong with `spec`; return if the topic may be created."""
    check_topic_name(spec.name)
    if not 1 <= spec.partition_count <= PARTITIONS_PER_TOPIC_MAX:
        raise InvalidPartitionCount(
            f"partition_count is {spec.partition_count}; "
            f"it must be between 1 and {PARTITIONS_PER_TOPIC_MAX}"
        )
    parse_settings(spec.config)


def parse_settings(config: Mapping[str, str]) -> TopicSettings:
    """Validate every entry and return the parsed settings. Raises InvalidConfig."""
    for name, value in config.items():
        known = TOPIC_CONFIGS.get(name)
        if known is None:
            raise InvalidConfig(f"unknown topic config {name!r}")
        if not known.check(value):
            raise InvalidConfig(f"{name}={value!r} is not valid: expected {known.expects}")

    def get(name: str) -> str:
        return config.get(name, TOPIC_CONFIGS[name].default)

    policy = {part.strip() for part in get("cleanup.policy").split(",")}
    return TopicSettings(
        retention_ms=int(get("retention.ms")),
        retention_bytes=int(get("retention.bytes")),
        max_message_bytes=int(get("max.message.bytes")),
        log_append_time=get("message.timestamp.type") == "LogAppendTime",
        compact="compact" in policy,
        delete="delete" in policy,
        segment_bytes=int(config["segment.bytes"]) if "segment.bytes" in config else None,
        segment_ms=int(config["segment.ms"]) if "segment.ms" in config else None,
        timestamp_before_max_ms=int(get("message.timestamp.before.max.ms")),
        timestamp_after_max_ms=int(get("message.timestamp.after.max.ms")),
    )


_INTEGER = re.compile(r"^[+-]?[0-9]{1,20}$")  # what Java's parser takes; Python's takes more
_DECIMAL = re.compile(r"^[+-]?[0-9]*\.?[0-9]+$")


def _is_int(low: int, high: int) -> Callable[[str], bool]:
    return lambda value: bool(_INTEGER.match(value)) and low <= int(value) <= high


def _is_float(value: str) -> bool:
    return bool(_DECIMAL.match(value)) and 0.0 <= float(value) <= 1.0


def _one_of(*words: str) -> Callable[[str], bool]:
    return lambda value: value in words


def _policy(value: str) -> bool:
    parts = [part.strip() for part in value.split(",")]
    return bool(value) and all(part in ("delete", "compact") for part in parts)


_LONG_MAX = 2**63 - 1
_INT_MAX = 2**31 - 1
_B, _S, _I, _L, _D, _LIST = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
)
_bool = _one_of("true", "false")
_positive = _is_int(1, _LONG_MAX)
_not_negative = _is_int(0, _LONG_MAX)


def _c(
    name: str,
    type_: ConfigType,
    default: str,
    check: Callable[[str], bool],
    expects: str,
    doc: str,
    effective: bool = True,
) -> ConfigDef:
    broker_name = _BROKER_NAMES.get(name, "")
    return ConfigDef(name, type_, default, check, expects, doc, effective, broker_name)


_BROKER_NAMES: Mapping[str, str] = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}


def _replica_list(value: str) -> bool:
    return value in ("", "*") or bool(re.match(r"^[0-9]+:[0-9]+(,[0-9]+:[0-9]+)*$", value))


TOPIC_CONFIGS: Mapping[str, ConfigDef] = {
    d.name: d
    for d in (
        _c(
            "cleanup.policy",
            _LIST,
            "delete",
            _policy,
            "delete, compact or both",
            "What happens to old records.",
        ),
        _c(
            "compression.gzip.level",
            _I,
            "-1",
            lambda value: _is_int(1, 9)(value) or value == "-1",
            "-1 or a level from 1 to 9",
            "Batches keep the producer's compression.",
            False,
        ),
        _c(
            "compression.lz4.level",
            _I,
            "9",
            _is_int(1, 17),
            "a level from 1 to 17",
            "Batches keep the producer's compression.",
            False,
        ),
        _c(
            "compression.type",
            _S,
            "producer",
            _one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
            "producer, uncompressed, gzip, snappy, lz4 or zstd",
            "Batches keep the producer's compression.",
            False,
        ),
        _c(
            "compression.zstd.level",
            _I,
            "3",
            _is_int(-131072, 22),
            "a level from -131072 to 22",
            "Batches keep the producer's compression.",
            False,
        ),
        _c(
            "delete.retention.ms",
            _L,
            "86400000",
            _not_negative,
            "a number of ms, 0 or more",
            "How long compaction keeps tombstones.",
            False,
        ),
        _c(
            "file.delete.delay.ms",
            _L,
            "60000",
            _not_negative,
            "a number of ms, 0 or more",
            "Objects are deleted after a grace period of their own.",
            False,
        ),
        _c(
            "flush.messages",
            _L,
            str(_LONG_MAX),
            _positive,
            "1 or more",
            "Every acknowledged batch is already on disk.",
            False,
        ),
        _c(
            "flush.ms",
            _L,
            str(_LONG_MAX),
            _not_negative,
            "0 or more",
            "Every acknowledged batch is already on disk.",
            False,
        ),
        _c(
            "follower.replication.throttled.replicas",
            _LIST,
            "",
            _replica_list,
            "* or pairs of partition:broker",
            "There are no replicas to throttle.",
            False,
        ),
        _c(
            "index.interval.bytes",
            _I,
            "4096",
            _is_int(0, _INT_MAX),
            "0 or more",
            "The index has one entry per block.",
            False,
        ),
        _c(
            "leader.replication.throttled.replicas",
            _LIST,
            "",
            _replica_list,
            "* or pairs of partition:broker",
            "There are no replicas to throttle.",
            False,
        ),
        _c(
            "max.compaction.lag.ms",
            _L,
            str(_LONG_MAX),
            _positive,
            "1 or more",
            "Longest time a record stays uncompacted.",
            False,
        ),
        _c(
            "max.message.bytes",
            _I,
            str(MESSAGE_BYTES_MAX),
            _is_int(0, _INT_MAX),
            "a number of bytes, 0 or more",
            "Largest record batch accepted.",
        ),
        _c(
            "message.timestamp.after.max.ms",
            _L,
            "3600000",
            _not_negative,
            "0 or more",
            "How far a record's timestamp may lie in the future.",
        ),
        _c(
            "message.timestamp.before.max.ms",
            _L,
            str(_LONG_MAX),
            _not_negative,
            "0 or more",
            "How far a record's timestamp may lie in the past.",
        ),
        _c(
            "message.timestamp.type",
            _S,
            "CreateTime",
            _one_of("CreateTime", "LogAppendTime"),
            "CreateTime or LogAppendTime",
            "Whose clock stamps the records.",
        ),
        _c(
            "min.cleanable.dirty.ratio",
            _D,
            "0.5",
            _is_float,
            "a number from 0 to 1",
            "Share of uncompacted data that starts a compaction.",
            False,
        ),
        _c(
            "min.compaction.lag.ms",
            _L,
            "0",
            _not_negative,
            "0 or more",
            "Shortest time a record stays uncompacted.",
            False,
        ),
        _c(
            "min.insync.replicas",
            _I,
            "1",
            _is_int(1, _INT_MAX),
            "1 or more",
            "Durability comes from the store, not from replicas.",
            False,
        ),
        _c(
            "preallocate",
            _B,
            "false",
            _bool,
            "true or false",
            "WAL files are always preallocated.",
            False,
        ),
        _c(
            "remote.storage.enable",
            _B,
            "false",
            _one_of("false"),
            "false",
            "Segments are in the object store in any case.",
            False,
        ),
        _c(
            "retention.bytes",
            _L,
            "-1",
            _is_int(-1, _LONG_MAX),
            "-1 or a number of bytes",
            "Size of a partition above which old segments go.",
        ),
        _c(
            "retention.ms",
            _L,
            "604800000",
            _is_int(-1, _LONG_MAX),
            "-1 or a number of ms",
            "Age above which segments go.",
        ),
        _c(
            "segment.bytes",
            _I,
            "1048576",
            _is_int(1024, _INT_MAX),
            "1024 or more",
            "Size at which a partition is rolled into a segment.",
        ),
        _c(
            "segment.index.bytes",
            _I,
            "10485760",
            _is_int(4, _INT_MAX),
            "4 or more",
            "The index grows as needed.",
            False,
        ),
        _c(
            "segment.jitter.ms",
            _L,
            "0",
            _not_negative,
            "0 or more",
            "Rolls are not aligned to begin with.",
            False,
        ),
        _c(
            "segment.ms",
            _L,
            "60000",
            _positive,
            "1 or more",
            "Age at which a partition is rolled into a segment.",
        ),
        _c(
            "unclean.leader.election.enable",
            _B,
            "false",
            _bool,
            "true or false",
            "A new leader always starts from committed data.",
            False,
        ),
    )
}
