"""Settings of a process: each is an environment variable and a flag of the same meaning.

Flags win over the environment, the environment over the default. `SETTINGS` is the one table; the
command line, the documentation and the parser all read it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamhouse.model import limits
from streamhouse.model.errors import Invalid


@dataclass(frozen=True, slots=True)
class Setting:
    name: str  # field of Settings; the variable is its upper case, the flag has dashes
    kind: type
    default: Any
    help: str

    @property
    def variable(self) -> str:
        return self.name.upper()

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")


@dataclass(frozen=True, slots=True)
class Settings:
    http_addr: str = "127.0.0.1:8080"
    grpc_addr: str = "127.0.0.1:50051"
    kafka_addr: str = "127.0.0.1:9092"
    kafka_advertised: str = ""
    data_dir: str = "./streamhouse-data"
    database_url: str = ""
    object_store_url: str = ""
    agent_id: str = ""
    agent_zone: str = ""
    segment_max_size: int = 1_048_576
    segment_max_age_ms: int = 60_000
    wal_batch_max_age_ms: int = 10
    wal_max_bytes: int = limits.WAL_BYTES_MAX
    auto_create_topics: bool = True
    default_partitions: int = 1
    topic_partitions_growable: bool = False
    group_initial_rebalance_delay_ms: int = limits.GROUP_INITIAL_REBALANCE_DELAY_MS
    delete_grace_ms: int = limits.DELETE_GRACE_MS
    retention_check_interval_ms: int = 30_000
    manifest_interval_ms: int = limits.MANIFEST_INTERVAL_MS
    tail_max_bytes: int = limits.TAIL_BYTES_MAX
    cache_max_bytes: int = limits.BLOCK_CACHE_BYTES_MAX
    max_connections: int = limits.CONNECTIONS_MAX
    connection_idle_ms: int = limits.CONNECTION_IDLE_MS_MAX
    accept_wal_loss: bool = False
    log_level: str = "info"


_HELP = {
    "http_addr": "Address of the REST API, health and metrics; port 0 takes a free one.",
    "grpc_addr": "Address of the gRPC API; port 0 takes a free one.",
    "kafka_addr": "Address of the Kafka protocol; port 0 takes a free one.",
    "kafka_advertised": "host:port told to Kafka clients; default: the address they reached.",
    "data_dir": "Directory of the WAL and, by default, of metadata and objects.",
    "database_url": "Metadata store; default: an SQLite file in the data directory.",
    "object_store_url": "Object store; default: a file:// directory in the data directory.",
    "agent_id": "Name of this agent; default: generated once and kept in the data directory.",
    "agent_zone": "Availability zone, told to clients as the broker's rack.",
    "segment_max_size": "Bytes at which a partition is rolled into a segment.",
    "segment_max_age_ms": "Age at which a partition is rolled into a segment.",
    "wal_batch_max_age_ms": "How long records nobody waits for (acks=0) may gather before a write.",
    "wal_max_bytes": "Size of the WAL on disk; when it is full, producers are refused for a while.",
    "auto_create_topics": "Create a topic when a client asks for its metadata.",
    "default_partitions": "Partitions of a topic that is created without a count.",
    "topic_partitions_growable": "Let CreatePartitions add partitions to existing topics.",
    "group_initial_rebalance_delay_ms": "How long an empty group waits for more members to join.",
    "delete_grace_ms": "How long an object stays after the last reference to it is gone.",
    "retention_check_interval_ms": "How often retention and merging look at every partition.",
    "manifest_interval_ms": "How often manifests are written for partitions that changed.",
    "tail_max_bytes": "Memory for the newest records of all partitions.",
    "cache_max_bytes": "Memory for decoded blocks of older segments.",
    "max_connections": "Kafka connections accepted at once.",
    "connection_idle_ms": "Kafka connections without a request for so long are closed.",
    "accept_wal_loss": "Start although the WAL is damaged or lost; what it held is given up.",
    "log_level": "debug, info, warning or error.",
}


_MINIMUM = {
    "segment_max_size": 1,
    "segment_max_age_ms": 1,
    "wal_batch_max_age_ms": 0,
    "wal_max_bytes": 2 * limits.WAL_FILE_BYTES,
    "default_partitions": 1,
    "delete_grace_ms": 0,
    "retention_check_interval_ms": 1,
    "manifest_interval_ms": 1,
    "tail_max_bytes": 1,
    "cache_max_bytes": 1,
    "max_connections": 1,
    "connection_idle_ms": 1,
}


def _settings() -> tuple[Setting, ...]:
    defaults = Settings()
    found = []
    for name, text in _HELP.items():
        default = getattr(defaults, name)
        found.append(Setting(name, type(default), default, text))
    return tuple(found)


SETTINGS = _settings()


def settings_from(environment: Mapping[str, str], flags: Mapping[str, Any]) -> Settings:
    """Flags (those not None), then the environment, then defaults. Raises Invalid."""
    chosen: dict[str, Any] = {}
    for setting in SETTINGS:
        raw = flags.get(setting.name)
        if raw is None:
            raw = environment.get(setting.variable)
        if raw is not None and raw != "":
            chosen[setting.name] = _parse(setting, raw)
    return Settings(**chosen)


def split_address(address: str) -> tuple[str, int]:
    """host:port, with [v6]:port for IPv6."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise Invalid(f"{address!r} is not an address; write host:port, such as 127.0.0.1:9092")
    return host.strip("[]"), int(port)


def _parse(setting: Setting, raw: Any) -> Any:
    if setting.kind is not int and isinstance(raw, setting.kind):
        return raw
    text = str(raw).strip()
    if setting.kind is bool:
        if text.lower() in ("1", "true", "yes", "on"):
            return True
        if text.lower() in ("0", "false", "no", "off"):
            return False
        raise Invalid(f"{setting.variable}={text!r} is not a switch; use 1 or 0")
    if setting.kind is int:
        try:
            number = int(text)
        except ValueError:
            raise Invalid(f"{setting.variable}={text!r} is not a whole number") from None
        return _at_least(setting, number)
    return text


def _at_least(setting: Setting, number: int) -> int:
    minimum = _MINIMUM.get(setting.name, 0)
    if number < minimum:
        raise Invalid(f"{setting.variable}={number} is too small; it must be {minimum} or more")
    return number
