"""The broker's settings under Kafka's names, and the kinds of things that have settings.

Those of `model.broker_settings` can be changed while the broker runs; the others come from flags
and the environment, or are fixed. The values are those the process acts on, so a tool that reads
them is not misled.
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from streamhouse.model import limits
from streamhouse.model.broker_settings import DYNAMIC_CONFIGS
from streamhouse.model.topic import TOPIC_CONFIGS, ConfigType
from streamhouse.server.kafka.door import NODE_ID, Caller, Door


class Resource(IntEnum):
    """Kafka's numbers for things that have settings (ConfigResource)."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


PROTOCOL_VERSION = "4.0-IV3"  # what consoles take for the version of the cluster

_BOOLEAN, _INT, _LONG, _TEXT, _LIST = (
    ConfigType.BOOLEAN,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.STRING,
    ConfigType.LIST,
)


class BrokerConfig(NamedTuple):
    name: str
    type: ConfigType
    value: str  # by flags and the environment
    default: str | None  # None: there is none, the value is this process's own
    doc: str
    read_only: bool = True


def broker_configs(door: Door, caller: Caller) -> list[BrokerConfig]:
    """Every setting of the broker, by name."""
    found = {config.name: config for config in (*_dynamic(door), *_own(door, caller))}
    return [found[name] for name in sorted(found)]


def broker_config_names(door: Door, caller: Caller) -> frozenset[str]:
    return frozenset(config.name for config in broker_configs(door, caller))


def _dynamic(door: Door) -> Iterator[BrokerConfig]:
    chosen = {TOPIC_CONFIGS[name].broker_name: value for name, value in door.topic_defaults.items()}
    for known in DYNAMIC_CONFIGS.values():
        value = chosen.get(known.name, known.default)
        yield BrokerConfig(known.name, known.type, value, known.default, known.doc, False)


def _own(door: Door, caller: Caller) -> Iterator[BrokerConfig]:
    address = door.address(caller)
    listener = f"PLAINTEXT://{address.host}:{address.port}"
    rows: list[tuple[str, ConfigType, object, object | None, str]] = [
        (
            "advertised.listeners",
            _TEXT,
            listener,
            None,
            "The address clients are told.",
        ),
        (
            "auto.create.topics.enable",
            _BOOLEAN,
            door.auto_create_topics,
            True,
            "Create a topic when a client asks for its metadata.",
        ),
        ("authorizer.class.name", _TEXT, "", "", "Nothing checks access."),
        ("broker.id", _INT, NODE_ID, None, "The number of this broker."),
        ("broker.rack", _TEXT, door.rack or "", "", "The zone of this broker."),
        (
            "connections.max.idle.ms",
            _LONG,
            door.connection_idle_ms,
            limits.CONNECTION_IDLE_MS_MAX,
            "Connections without a request for so long are closed.",
        ),
        ("default.replication.factor", _INT, 1, 1, "There is one replica of everything."),
        ("delete.topic.enable", _BOOLEAN, True, True, "Topics can be deleted."),
        (
            "fetch.max.bytes",
            _INT,
            limits.FETCH_BYTES_MAX,
            limits.FETCH_BYTES_MAX,
            "Bytes in one answer to Fetch.",
        ),
        (
            "inter.broker.protocol.version",
            _TEXT,
            PROTOCOL_VERSION,
            PROTOCOL_VERSION,
            "The version of Kafka whose clients and tools are served; consoles read it.",
        ),
        ("listeners", _TEXT, listener, None, "The address that is listened on."),
        ("log.dirs", _LIST, door.log_dir, None, "The data directory."),
        (
            "max.incremental.fetch.session.cache.slots",
            _INT,
            limits.FETCH_SESSIONS_MAX,
            limits.FETCH_SESSIONS_MAX,
            "Fetch sessions kept.",
        ),
        (
            "max.request.partition.size.limit",
            _INT,
            limits.DESCRIBED_PARTITIONS_MAX,
            limits.DESCRIBED_PARTITIONS_MAX,
            "Partitions in one page of DescribeTopicPartitions.",
        ),
        ("node.id", _INT, NODE_ID, None, "The number of this broker."),
        (
            "num.partitions",
            _INT,
            door.default_partitions,
            1,
            "Partitions of a topic that is created without a count.",
        ),
        ("process.roles", _LIST, "broker,controller", None, "One process does everything."),
        (
            "producer.id.expiration.ms",
            _INT,
            limits.PRODUCER_IDLE_MS_MAX,
            limits.PRODUCER_IDLE_MS_MAX,
            "How long the state of a silent producer is kept.",
        ),
        (
            "socket.request.max.bytes",
            _INT,
            limits.FRAME_BYTES_MAX,
            limits.FRAME_BYTES_MAX,
            "Bytes in one request.",
        ),
    ]
    for name, kind, value, default, doc in rows:
        shown = None if default is None else _text(default)
        yield BrokerConfig(name, kind, _text(value), shown, doc)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
