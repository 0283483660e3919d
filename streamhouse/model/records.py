"""A record as people see it: REST, command line. The Kafka path never makes one."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RecordHeader:
    name: str
    value: bytes | None


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to be written; the leader gives it an offset and, if absent, a timestamp."""

    key: bytes | None
    value: bytes | None
    headers: tuple[RecordHeader, ...] = ()
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Record:
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[RecordHeader, ...] = ()


@dataclass(frozen=True, slots=True)
class Produced:
    """Where a record went."""

    partition: int
    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Consumed:
    """Some records of a partition, and where to go on."""

    records: tuple[Record, ...]
    next_offset: int
    high_watermark: int
    log_start: int
