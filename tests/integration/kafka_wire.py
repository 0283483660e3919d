"""A Kafka client without opinions: any request of any version over one socket.

Messages are written and read by kio's own codecs, not by the server's. The field lists are kio's on
both sides (except Produce and Fetch, which the server has by hand), and record batches are made by
the server's own code: the real clients are the second opinion there.
Values are plain: ints for times, lists for arrays, dicts for structures; fields that a version does
not have are left out, missing ones take Kafka's default or a zero.
"""

import io
import socket
import struct
import time
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import timedelta
from types import NoneType, TracebackType, UnionType
from typing import Any, Union, get_args, get_origin
from uuid import UUID

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from streamhouse.kafka_proto.compression import Compression
from streamhouse.kafka_proto.record_batch import decode_records, encode_batch, iter_batches
from streamhouse.model.records import NewRecord, Record

PRODUCE, FETCH, LIST_OFFSETS, METADATA, FIND_COORDINATOR, API_VERSIONS = 0, 1, 2, 3, 10, 18
CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, INIT_PRODUCER_ID = 19, 20, 21, 22
OFFSET_FOR_LEADER_EPOCH, DESCRIBE_CONFIGS, DESCRIBE_CLUSTER = 23, 32, 60
OFFSET_COMMIT, OFFSET_FETCH, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 8, 9, 11, 12, 13, 14
DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS, OFFSET_DELETE = 15, 16, 42, 47
# Served only to a member or a group that was made before: `test_kafka_groups.py` does that.
GROUP_APIS = frozenset(
    {OFFSET_COMMIT, OFFSET_FETCH, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP}
    | {DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS, OFFSET_DELETE}
)

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
ACKS_ALL = -1
ZEROS: Mapping[str, Any] = {
    "bool": False,
    "string": "",
    "timedelta_i32": timedelta(0),
    "timedelta_i64": timedelta(0),
    "uuid": None,
    "records": None,
    "bytes": b"",
}


class ClosedByServer(Exception):
    """The server ended the connection instead of answering."""


class Wire:
    """One connection. Requests may be sent ahead; answers are read in the order of sending."""

    def __init__(self, address: str, timeout_seconds: float = 20.0) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout_seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def __enter__(self) -> "Wire":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    # -- whole messages --------------------------------------------------------------------------

    def call(self, api_key: int, version: int, **values: Any) -> Any:
        sent = self.send(api_key, version, **values)
        return self.receive(api_key, version, sent)

    def send(self, api_key: int, version: int, **values: Any) -> int:
        """Send a request; return its correlation id."""
        self._correlation_id += 1
        self.send_bytes(request_frame(api_key, version, self._correlation_id, values))
        return self._correlation_id

    def receive(self, api_key: int, version: int, correlation_id: int) -> Any:
        """The next answer, which must be the one to `correlation_id` and fit its version."""
        return read_response(api_key, version, self.receive_frame(), correlation_id)

    # -- bytes -----------------------------------------------------------------------------------

    def send_bytes(self, raw: bytes) -> None:
        self.socket.sendall(raw)

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def is_closed(self, seconds: float = 5.0) -> bool:
        """Whether the server ends the connection within `seconds`; unread answers are skipped."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                if not self.socket.recv(65536):
                    return True
            except TimeoutError:
                return False
            except ConnectionError:
                return True
        return False

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            try:
                part = self.socket.recv(min(count - len(parts), 1 << 20))
            except ConnectionError as error:
                raise ClosedByServer from error
            if not part:
                raise ClosedByServer
            parts += part
        return bytes(parts)

    # -- what tests ask for most -----------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> UUID:
        """Create it and return its id. `max_message_bytes="9"` sets max.message.bytes."""
        rows = [{"name": k.replace("_", "."), "value": v} for k, v in configs.items()]
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
        topic |= {"assignments": [], "configs": rows}
        (made,) = self.call(CREATE_TOPICS, 7, topics=[topic], timeout=10_000).topics
        assert made.error_code == 0, made
        assert isinstance(made.topic_id, UUID)
        return made.topic_id

    def produce(
        self, topic: str, batch: bytes, partition: int = 0, acks: int = ACKS_ALL, version: int = 9
    ) -> Any:
        """Write one batch; return the partition's answer."""
        answer = self.call(PRODUCE, version, **produce_values({(topic, partition): batch}, acks))
        return answer.responses[0].partition_responses[0]

    def fetch(self, topic: str, offset: int, partition: int = 0, **options: Any) -> Any:
        """Read from one partition (version 11 unless told); return the partition's answer."""
        version = options.pop("version", 11)
        answer = self.call(FETCH, version, **fetch_values([(topic, partition, offset)], **options))
        return answer.responses[0].partitions[0]

    def list_offset(
        self, topic: str, timestamp: int, partition: int = 0, version: int = 11, **more: Any
    ) -> Any:
        row = {"partition_index": partition, "timestamp": timestamp, **more}
        topics = [{"name": topic, "partitions": [row]}]
        answer = self.call(LIST_OFFSETS, version, replica_id=-1, topics=topics, timeout=5_000)
        return answer.topics[0].partitions[0]

    def new_producer_id(self) -> int:
        answer = self.call(INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout=60_000)
        assert answer.error_code == 0
        return int(answer.producer_id)

    def leader_epoch(self, topic: str, partition: int = 0) -> int:
        answer = self.call(METADATA, 12, topics=[{"name": topic}], allow_auto_topic_creation=False)
        (found,) = answer.topics
        return next(int(p.leader_epoch) for p in found.partitions if p.partition_index == partition)


def produce_values(
    batches: Mapping[tuple[str, int], bytes | None], acks: int = ACKS_ALL, timeout_ms: int = 10_000
) -> dict[str, Any]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for (name, number), batch in batches.items():
        topics.setdefault(name, []).append({"index": number, "records": batch})
    rows = [{"name": name, "partition_data": parts} for name, parts in topics.items()]
    return {"transactional_id": None, "acks": acks, "timeout": timeout_ms, "topic_data": rows}


def fetch_values(
    wanted: Iterable[tuple[str | UUID, int, int]],
    *,
    max_wait: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 2**31 - 1,
    partition_max_bytes: int = 1 << 20,
    current_leader_epoch: int = -1,
    **more: Any,
) -> dict[str, Any]:
    topics: dict[str | UUID, list[dict[str, Any]]] = {}
    for name, number, offset in wanted:
        row = {"partition": number, "fetch_offset": offset, "log_start_offset": -1}
        row |= {"partition_max_bytes": partition_max_bytes}
        row |= {"current_leader_epoch": current_leader_epoch, "last_fetched_epoch": -1}
        topics.setdefault(name, []).append(row)
    rows = [
        {"topic_id" if isinstance(name, UUID) else "topic": name, "partitions": parts}
        for name, parts in topics.items()
    ]
    return {
        "replica_id": -1,
        "max_wait": max_wait,
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "topics": rows,
        "forgotten_topics_data": [],
        "session_epoch": -1,
        **more,
    }


def batch_of(*values: bytes, **options: Any) -> bytes:
    """A batch of keyless records, one per value."""
    records = [NewRecord(None, value) for value in values]
    return bytes(encode_batch(records, time.time_ns() // 1_000_000, **options))


def timed_batch(times_ms: Iterable[int], compression: Compression = Compression.NONE) -> bytes:
    records = [NewRecord(None, b"t%d" % t, timestamp_ms=t) for t in times_ms]
    return bytes(encode_batch(records, 0, compression=compression))


def records_of(raw: bytes | None) -> list[Record]:
    """Every record in the bytes of a fetch answer."""
    found: list[Record] = []
    for at, header in iter_batches(raw or b""):
        found += decode_records(memoryview(raw or b"")[at : at + header.size_bytes])
    return found


# -- encoding ------------------------------------------------------------------------------------


def request_frame(
    api_key: int, version: int, correlation_id: int, values: Mapping[str, Any]
) -> bytes:
    entity = build(load_request_schema(api_key, version), values)
    header_type = entity.__header_schema__
    header = build(
        header_type,
        {
            "request_api_key": api_key,
            "request_api_version": version,
            "correlation_id": correlation_id,
            "client_id": "wire",
        },
    )
    raw = _bytes(header) + _bytes(entity)
    return struct.pack(">i", len(raw)) + raw


def read_response(api_key: int, version: int, frame: bytes, correlation_id: int) -> Any:
    entity = load_response_schema(api_key, version)
    header, at = entity_reader(entity.__header_schema__)(frame, 0)
    assert header.correlation_id == correlation_id, "answers out of order"
    body, size = entity_reader(entity)(frame, at)
    assert at + size == len(frame), f"{len(frame) - at - size} bytes behind the answer"
    return body


def build(entity: type[Any], values: Mapping[str, Any]) -> Any:
    """A kio dataclass from plain values."""
    return entity(**{f.name: _value(f, values) for f in fields(entity)})


def _value(field: Any, values: Mapping[str, Any]) -> Any:
    kind, nullable = field.type, False
    if get_origin(kind) in (UnionType, Union):
        (kind,) = (k for k in get_args(kind) if k is not NoneType)
        nullable = True
    is_array = get_origin(kind) is tuple
    inner = get_args(kind)[0] if is_array else kind
    if field.name not in values:
        if field.default is not MISSING:
            return field.default
        return () if is_array else _zero(inner, nullable, field.metadata.get("kafka_type"))
    value = values[field.name]
    if value is None:
        return None
    if is_array:
        return tuple(_one(inner, item, field) for item in value)
    return _one(inner, value, field)


def _one(kind: type[Any], value: Any, field: Any) -> Any:
    if is_dataclass(kind):
        return build(kind, value)
    if field.metadata.get("kafka_type") == "timedelta_i32" and isinstance(value, int):
        return timedelta(milliseconds=value)
    return value


def _zero(kind: type[Any], nullable: bool, kafka_type: str | None) -> Any:
    if nullable:
        return None
    return build(kind, {}) if is_dataclass(kind) else ZEROS.get(kafka_type or "", 0)


def _bytes(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()
