"""The Kafka door, byte by byte: what clients rely on, asked over a plain socket.

What the socket's side shares with the server is said in `kafka_wire`.
"""

import random
import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from kio.schema.errors import ErrorCode

from streamhouse.kafka_proto.apis import APIS
from streamhouse.kafka_proto.compression import Compression
from streamhouse.kafka_proto.record_batch import HEADER_BYTES, encode_batch, read_header
from streamhouse.model.records import NewRecord
from tests.integration.admin_values import ADMIN_CODES, admin_values
from tests.integration.kafka_wire import (
    API_VERSIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    EARLIEST,
    FETCH,
    FIND_COORDINATOR,
    GROUP_APIS,
    INIT_PRODUCER_ID,
    LATEST,
    LIST_OFFSETS,
    MAX_TIMESTAMP,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    Wire,
    batch_of,
    fetch_values,
    produce_values,
    read_response,
    records_of,
    request_frame,
    timed_batch,
)
from tests.integration.server_process import ServerProcess, running_server

pytestmark = pytest.mark.integration

SERVED = [
    pytest.param(api.key, version, id=f"{api.name}-{version}")
    for api in APIS.values()
    if api.key not in GROUP_APIS
    for version in range(api.served_min, api.version_max + 1)
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running_server(tmp_path_factory.mktemp("protocol")) as running:
        yield running


@pytest.fixture
def wire(server: ServerProcess) -> Iterator[Wire]:
    with Wire(server.kafka) as connection:
        yield connection


@pytest.fixture
def topic(wire: Wire) -> str:
    name = f"t-{uuid4().hex}"
    wire.create_topic(name, 2)
    return name


# -- every advertised API and version ------------------------------------------------------------


def valid_values(key: int, topic: str, topic_id: UUID) -> dict[str, Any]:
    """A request that makes sense, with every field any version of it has."""
    both = {"topic": topic, "name": topic, "topic_id": topic_id}
    fetched = fetch_values([(topic, 0, 0)])
    latest = {"partition_index": 0, "timestamp": LATEST}
    made = {"name": f"v-{uuid4().hex}", "num_partitions": 1, "replication_factor": 1}
    produced = {"index": 0, "records": batch_of(b"x")}
    of_epoch = {"partition": 0, "leader_epoch": 0}
    values: dict[int, dict[str, Any]] = {
        PRODUCE: {**produce_values({}), "topic_data": [{**both, "partition_data": [produced]}]},
        FETCH: {**fetched, "topics": [{**both, "partitions": fetched["topics"][0]["partitions"]}]},
        LIST_OFFSETS: {"replica_id": -1, "topics": [{"name": topic, "partitions": [latest]}]},
        METADATA: {"topics": [{"name": topic, "topic_id": None}]},
        FIND_COORDINATOR: {"key": "g", "key_type": 0, "coordinator_keys": ["g"]},
        API_VERSIONS: {"client_software_name": "wire", "client_software_version": "1.0"},
        CREATE_TOPICS: {"topics": [made], "timeout": 5_000},
        DELETE_TOPICS: {"topics": [{"name": topic}], "topic_names": [topic], "timeout": 5_000},
        DELETE_RECORDS: {
            "topics": [{"name": topic, "partitions": [{"partition_index": 0, "offset": 0}]}],
            "timeout": 5_000,
        },
        INIT_PRODUCER_ID: {"transactional_id": None, "transaction_timeout": 60_000},
        OFFSET_FOR_LEADER_EPOCH: {
            "replica_id": -1,
            "topics": [{"topic": topic, "partitions": [of_epoch]}],
        },
        DESCRIBE_CONFIGS: {"resources": [{"resource_type": 2, "resource_name": topic}]},
        DESCRIBE_CLUSTER: {},
    }
    values |= admin_values(topic)
    assert values.keys() | GROUP_APIS == APIS.keys(), "write a request for each API that is served"
    return values[key]


def error_codes(answer: Any) -> list[int]:
    """Every error code anywhere in an answer."""
    if isinstance(answer, tuple):
        return [code for item in answer for code in error_codes(item)]
    names = getattr(answer, "__dataclass_fields__", {})
    found = [int(answer.error_code)] if "error_code" in names else []
    return found + [code for name in names for code in error_codes(getattr(answer, name))]


@pytest.mark.parametrize(("key", "version"), SERVED)
def test_sh_111_every_advertised_version_is_served(wire: Wire, key: int, version: int) -> None:
    """The answer decodes as that very version, to its last byte, and says what is right."""
    name = f"t-{uuid4().hex}"
    topic_id = wire.create_topic(name)
    answer = wire.call(key, version, **valid_values(key, name, topic_id))
    assert set(error_codes(answer)) <= ADMIN_CODES.get(key, {0}), answer


def test_sh_111_what_is_advertised_is_what_is_in_the_table(wire: Wire) -> None:
    for version in range(5):
        values = valid_values(API_VERSIONS, "", uuid4())
        rows = wire.call(API_VERSIONS, version, **values).api_keys
        told = {row.api_key: (row.min_version, row.max_version) for row in rows}
        assert told == {a.key: (a.version_min, a.version_max) for a in APIS.values()}
        # Pitfall 32: librdkafka below 2.11.1 stops compressing unless Produce 0 is offered.
        assert told[PRODUCE][0] == 0


def test_api_versions_too_new_is_answered_in_version_0(wire: Wire) -> None:
    body = struct.pack(">hhih", API_VERSIONS, 99, 7, -1) + b"\x00\x01\x01\x00"
    wire.send_bytes(struct.pack(">i", len(body)) + body)
    answer = read_response(API_VERSIONS, 0, wire.receive_frame(), 7)
    assert answer.error_code == ErrorCode.unsupported_version
    assert API_VERSIONS in {row.api_key for row in answer.api_keys}
    assert wire.call(METADATA, 1, topics=[]).brokers, "the connection goes on"


def test_api_versions_with_an_odd_client_name_is_invalid(wire: Wire) -> None:
    values = {"client_software_name": "-bad name-", "client_software_version": "1"}
    answer = wire.call(API_VERSIONS, 3, **values)
    assert answer.error_code == ErrorCode.invalid_request


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_produce_formats_are_refused_not_guessed(server: ServerProcess, version: int) -> None:
    with Wire(server.kafka) as wire:
        wire.send_bytes(struct.pack(">ihhih", 10, PRODUCE, version, 1, -1))
        assert wire.is_closed()


# -- order on one connection (2.1) ---------------------------------------------------------------


def test_fifty_pipelined_requests_are_answered_in_order(wire: Wire, topic: str) -> None:
    """SH-12: kinds are mixed so that quick answers stand behind slow ones."""
    sent = []
    for n in range(50):
        match n % 4:
            case 0:
                values = produce_values({(topic, 0): batch_of(b"%d" % n)})
                sent.append((PRODUCE, 9, wire.send(PRODUCE, 9, **values)))
            case 1:
                values = fetch_values([(topic, 1, 0)], max_wait=5)
                sent.append((FETCH, 11, wire.send(FETCH, 11, **values)))
            case 2:
                sent.append((METADATA, 9, wire.send(METADATA, 9, topics=None)))
            case _:
                sent.append((API_VERSIONS, 0, wire.send(API_VERSIONS, 0)))
    offsets = []
    for key, version, correlation_id in sent:
        answer = wire.receive(key, version, correlation_id)
        if key == PRODUCE:
            offsets.append(answer.responses[0].partition_responses[0].base_offset)
    assert offsets == list(range(13))
    values_read = [r.value for r in records_of(wire.fetch(topic, 0).records)]
    assert values_read == [b"%d" % n for n in range(0, 50, 4)]


def test_sh_105_acks_0_gets_no_answer_and_shifts_none(wire: Wire, topic: str) -> None:
    for n in range(20):
        wire.send(PRODUCE, 9, **produce_values({(topic, 0): batch_of(b"%d" % n)}, acks=0))
        assert wire.call(METADATA, 9, topics=[]).brokers
    told = wire.produce(topic, batch_of(b"last"))
    assert (told.error_code, told.base_offset) == (0, 20)
    assert len(records_of(wire.fetch(topic, 0).records)) == 21


def test_sh_105_a_failed_acks_0_closes_the_connection(server: ServerProcess) -> None:
    with Wire(server.kafka) as wire:
        wire.send(PRODUCE, 9, **produce_values({("no-such-topic", 0): batch_of(b"x")}, acks=0))
        assert wire.is_closed()


@pytest.mark.parametrize("acks", [1, -1])
def test_sh_105_acks_1_and_all_are_answered(wire: Wire, topic: str, acks: int) -> None:
    told = wire.produce(topic, batch_of(b"x"), acks=acks)
    assert (told.error_code, told.base_offset) == (0, 0)


@pytest.mark.parametrize("acks", [2, -2, 7])
def test_other_acks_are_refused(wire: Wire, topic: str, acks: int) -> None:
    told = wire.produce(topic, batch_of(b"x"), acks=acks)
    assert told.error_code == ErrorCode.invalid_required_acks
    assert wire.list_offset(topic, LATEST).offset == 0


def test_sh_51_records_nobody_waits_for_are_readable_soon(
    server: ServerProcess, wire: Wire, topic: str
) -> None:
    """acks=0 may gather for WAL_BATCH_MAX_AGE_MS, not longer."""
    with Wire(server.kafka) as reader:
        sent = reader.send(FETCH, 11, **fetch_values([(topic, 0, 0)], max_wait=20_000))
        began = time.monotonic()
        wire.send(PRODUCE, 9, **produce_values({(topic, 0): batch_of(b"x")}, acks=0))
        assert reader.receive(FETCH, 11, sent).responses[0].partitions[0].high_watermark == 1
        assert time.monotonic() - began < 2


def test_a_slow_reader_does_not_block_others(server: ServerProcess, wire: Wire, topic: str) -> None:
    """One connection asks for far more than fits in any buffer and does not read."""
    big = batch_of(b"x" * 1_000_000)
    for _ in range(4):
        assert wire.produce(topic, big).error_code == 0
    with Wire(server.kafka) as slow:
        values = fetch_values([(topic, 0, 0)], partition_max_bytes=1 << 26)
        sent = [slow.send(FETCH, 11, **values) for _ in range(12)]
        began = time.monotonic()
        for _ in range(5):
            assert wire.produce(topic, batch_of(b"y"), partition=1).error_code == 0
        assert time.monotonic() - began < 5
        for correlation_id in sent:  # and it gets everything once it does read
            answer = slow.receive(FETCH, 11, correlation_id)
            assert len(answer.responses[0].partitions[0].records) >= 4_000_000


def connections_open(server: ServerProcess) -> int:
    from urllib.request import urlopen

    with urlopen(server.http + "/metrics", timeout=10) as response:
        text = response.read().decode()
    (line,) = [row for row in text.splitlines() if row.startswith("streamhouse_kafka_connections ")]
    return int(float(line.split()[1]))


def eventually(condition: Any, seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def test_dropped_connections_leave_nothing_behind(server: ServerProcess, topic: str) -> None:
    """150 are opened; some are idle, some in the middle of a frame, some in a long poll."""
    before = connections_open(server)
    opened = [Wire(server.kafka) for _ in range(150)]
    for n, one in enumerate(opened):
        if n % 3 == 1:
            one.send_bytes(b"\x00\x00\x10\x00half a frame")
        elif n % 3 == 2:
            one.send(FETCH, 11, **fetch_values([(topic, 0, 0)], max_wait=60_000))
    assert eventually(lambda: connections_open(server) == before + 150)
    for one in opened:
        one.close()
    assert eventually(lambda: connections_open(server) == before)


# -- produce (2.2) -------------------------------------------------------------------------------


def damaged(batch: bytes, at: int, content: bytes) -> bytes:
    raw = bytearray(batch)
    raw[at : at + len(content)] = content
    return bytes(raw)


def resealed(batch: bytes, at: int, content: bytes) -> bytes:
    """Change bytes under the checksum and make it right again."""
    from crc32c import crc32c

    raw = bytearray(damaged(batch, at, content))
    raw[17:21] = struct.pack(">I", crc32c(bytes(raw[21:])))
    return bytes(raw)


GOOD = batch_of(b"a", b"b")
BAD_BATCHES = {
    "crc": (damaged(GOOD, 17, b"\0\0\0\0"), ErrorCode.corrupt_message),
    "flipped byte": (damaged(GOOD, len(GOOD) - 1, b"\xff"), ErrorCode.corrupt_message),
    "cut": (GOOD[:-3], ErrorCode.corrupt_message),
    "too short": (GOOD[:20], ErrorCode.corrupt_message),
    "magic 1": (damaged(GOOD, 16, b"\x01"), ErrorCode.invalid_record),
    "magic 3": (damaged(GOOD, 16, b"\x03"), ErrorCode.invalid_record),
    "two batches": (GOOD + GOOD, ErrorCode.invalid_record),
    "empty": (b"", ErrorCode.invalid_record),
    "null": (None, ErrorCode.invalid_record),
    "count": (resealed(GOOD, 57, struct.pack(">i", 3)), ErrorCode.invalid_record),
    "no records": (resealed(GOOD, 57, struct.pack(">i", 0)), ErrorCode.invalid_record),
    "control": (resealed(GOOD, 22, b"\x20"), ErrorCode.invalid_record),
    "codec 5": (resealed(GOOD, 22, b"\x05"), ErrorCode.unsupported_compression_type),
    "log append time": (resealed(GOOD, 22, b"\x08"), ErrorCode.invalid_timestamp),
    "producer, no sequence": (resealed(GOOD, 43, struct.pack(">q", 5)), ErrorCode.invalid_record),
    "too large": (batch_of(b"x" * 2_000_000), ErrorCode.message_too_large),
    "far future": (timed_batch([2**50]), ErrorCode.invalid_timestamp),
}


@pytest.mark.parametrize("what", BAD_BATCHES)
def test_a_bad_batch_fails_alone(wire: Wire, topic: str, what: str) -> None:
    """The exact code for that partition; its neighbours in the same request succeed."""
    bad, code = BAD_BATCHES[what]
    batches = {(topic, 0): bad, (topic, 1): GOOD, ("no-such-topic", 0): GOOD, (topic, 9): GOOD}
    answer = wire.call(PRODUCE, 9, **produce_values(batches))
    told = {
        (row.name, part.index): part for row in answer.responses for part in row.partition_responses
    }
    assert told[topic, 0].error_code == code
    assert told[topic, 0].base_offset == -1
    assert (told[topic, 1].error_code, told[topic, 1].base_offset) == (0, 0)
    assert told["no-such-topic", 0].error_code == ErrorCode.unknown_topic_or_partition
    assert told[topic, 9].error_code == ErrorCode.unknown_topic_or_partition
    assert wire.list_offset(topic, LATEST, 0).offset == 0
    assert wire.list_offset(topic, LATEST, 1).offset == 2


def test_an_invalid_topic_name_is_told_as_such(wire: Wire) -> None:
    assert wire.produce("bad name", GOOD).error_code == ErrorCode.invalid_topic_exception


def test_max_message_bytes_of_the_topic_counts(wire: Wire) -> None:
    name = f"t-{uuid4().hex}"
    wire.create_topic(name, max_message_bytes="1000")
    assert wire.produce(name, batch_of(b"x" * 900)).error_code == 0
    assert wire.produce(name, batch_of(b"x" * 1000)).error_code == ErrorCode.message_too_large


def test_a_large_batch_travels_whole(wire: Wire) -> None:
    """Far above every buffer on the way, in and out, also when it comes in small pieces."""
    name = f"t-{uuid4().hex}"
    wire.create_topic(name, max_message_bytes="20000000")
    value = random.Random(1).randbytes(9_000_000)
    assert wire.produce(name, batch_of(value)).base_offset == 0
    raw = request_frame(PRODUCE, 9, 77, produce_values({(name, 0): batch_of(value[::-1])}))
    for at in range(0, len(raw), 700_001):
        wire.send_bytes(raw[at : at + 700_001])
    told = read_response(PRODUCE, 9, wire.receive_frame(), 77).responses[0].partition_responses[0]
    assert (told.error_code, told.base_offset) == (0, 1)
    found = records_of(wire.fetch(name, 0, partition_max_bytes=1 << 26).records)
    assert [r.value for r in found] == [value, value[::-1]]


def test_zstd_below_its_versions_is_refused(wire: Wire, topic: str) -> None:
    zstd = batch_of(b"z", compression=Compression.ZSTD)
    old = wire.produce(topic, zstd, version=6)
    assert old.error_code == ErrorCode.unsupported_compression_type
    assert wire.produce(topic, zstd, version=7).error_code == 0
    assert wire.fetch(topic, 0, version=10).error_code == 0
    old = wire.fetch(topic, 0, version=9)
    assert old.error_code == ErrorCode.unsupported_compression_type


def test_log_append_time_is_the_brokers(wire: Wire) -> None:
    """The batch keeps a valid checksum, and the answer says which time was given."""
    name = f"t-{uuid4().hex}"
    wire.create_topic(name, message_timestamp_type="LogAppendTime")
    before = time.time_ns() // 1_000_000
    told = wire.produce(name, timed_batch([1000, 2000]))
    raw = wire.fetch(name, 0).records
    stamped = read_header(raw)
    assert told.log_append_time is not None
    assert round(told.log_append_time.timestamp() * 1000) == stamped.max_timestamp_ms >= before
    assert stamped.is_log_append_time
    assert [r.timestamp_ms for r in records_of(raw)] == [stamped.max_timestamp_ms] * 2
    from crc32c import crc32c

    assert crc32c(raw[21:]) == stamped.crc


def test_create_time_is_the_producers(wire: Wire, topic: str) -> None:
    told = wire.produce(topic, timed_batch([1000, 2000]))
    assert told.log_append_time is None
    assert [r.timestamp_ms for r in records_of(wire.fetch(topic, 0).records)] == [1000, 2000]


def test_a_compacted_topic_refuses_records_without_key(wire: Wire) -> None:
    """As Kafka: the whole batch is INVALID_RECORD and the record is named (KIP-467)."""
    name = f"t-{uuid4().hex}"
    wire.create_topic(name, cleanup_policy="compact")
    mixed = [NewRecord(b"k", b"1"), NewRecord(None, b"2")]
    for codec in Compression:
        told = wire.produce(name, bytes(encode_batch(mixed, 0, compression=codec)))
        assert told.error_code == ErrorCode.invalid_record
        assert [row.batch_index for row in told.record_errors] == [1]
    assert wire.produce(name, bytes(encode_batch(mixed[:1], 0))).error_code == 0
    assert wire.list_offset(name, LATEST).offset == 1


def test_produce_by_an_unknown_topic_id(wire: Wire) -> None:
    values = produce_values({})
    part = {"index": 0, "records": GOOD}
    values["topic_data"] = [{"topic_id": uuid4(), "partition_data": [part]}]
    (row,) = wire.call(PRODUCE, 13, **values).responses
    assert row.partition_responses[0].error_code == ErrorCode.unknown_topic_id


# -- idempotent producers (2.3) ------------------------------------------------------------------


def numbered(producer_id: int, sequence: int, count: int = 1, epoch: int = 0) -> bytes:
    values = [b"%d-%d" % (sequence, n) for n in range(count)]
    return batch_of(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def test_sh_106_a_duplicate_gets_the_first_answer(wire: Wire, topic: str) -> None:
    """Pitfall 25: not an error, not offset 0, and no second copy; the window is five batches."""
    producer_id = wire.new_producer_id()
    sent = [numbered(producer_id, sequence, 2) for sequence in range(0, 12, 2)]
    first = [wire.produce(topic, batch).base_offset for batch in sent]
    assert first == [0, 2, 4, 6, 8, 10]
    again = [wire.produce(topic, batch) for batch in sent[1:]]
    assert [(row.error_code, row.base_offset) for row in again] == [(0, n) for n in first[1:]]
    beyond = wire.produce(topic, sent[0])
    assert beyond.error_code == ErrorCode.out_of_order_sequence_number
    assert wire.list_offset(topic, LATEST).offset == 12


def test_sh_106_a_gap_or_a_partial_overlap_is_out_of_order(wire: Wire, topic: str) -> None:
    producer_id = wire.new_producer_id()
    assert wire.produce(topic, numbered(producer_id, 0, 3)).error_code == 0
    for sequence, count in ((4, 1), (1, 2), (0, 2), (2, 2)):
        told = wire.produce(topic, numbered(producer_id, sequence, count))
        assert told.error_code == ErrorCode.out_of_order_sequence_number
    assert wire.produce(topic, numbered(producer_id, 3)).base_offset == 3


def test_sh_106_epochs_of_a_producer(wire: Wire, topic: str) -> None:
    producer_id = wire.new_producer_id()
    assert wire.produce(topic, numbered(producer_id, 0)).error_code == 0
    told = wire.produce(topic, numbered(producer_id, 1, epoch=1))
    assert told.error_code == ErrorCode.out_of_order_sequence_number, "a new epoch starts at 0"
    assert wire.produce(topic, numbered(producer_id, 0, epoch=1)).base_offset == 1
    stale = wire.produce(topic, numbered(producer_id, 1, epoch=0))
    assert stale.error_code == ErrorCode.invalid_producer_epoch


def test_sh_106_sequences_wrap(wire: Wire, topic: str) -> None:
    producer_id = wire.new_producer_id()
    last = 2**31 - 1
    assert wire.produce(topic, numbered(producer_id, last - 1)).error_code == 0
    across = numbered(producer_id, last, 2)  # 2147483647, then 0
    assert wire.produce(topic, across).base_offset == 1
    assert wire.produce(topic, numbered(producer_id, 1)).base_offset == 3
    assert wire.produce(topic, across).base_offset == 1


def test_sh_106_a_refused_batch_is_not_remembered(wire: Wire, topic: str) -> None:
    """Pitfall 25: the sequence must not advance before the write."""
    producer_id = wire.new_producer_id()
    good = numbered(producer_id, 0)
    refused = wire.produce(topic, damaged(good, 17, b"\0\0\0\0"))
    assert refused.error_code == ErrorCode.corrupt_message
    assert wire.produce(topic, good).base_offset == 0
    assert len(records_of(wire.fetch(topic, 0).records)) == 1


def test_sh_106_in_flight_duplicates_join_the_first(wire: Wire, topic: str) -> None:
    """Twenty copies pipelined: one is written, all get its offset."""
    producer_id = wire.new_producer_id()
    values = produce_values({(topic, 0): numbered(producer_id, 0)})
    sent = [wire.send(PRODUCE, 9, **values) for _ in range(20)]
    for correlation_id in sent:
        answer = wire.receive(PRODUCE, 9, correlation_id)
        told = answer.responses[0].partition_responses[0]
        assert (told.error_code, told.base_offset) == (0, 0)
    assert wire.list_offset(topic, LATEST).offset == 1


def test_producer_ids_are_never_given_twice(server: ServerProcess) -> None:
    def some(_: int) -> list[int]:
        with Wire(server.kafka) as wire:
            return [wire.new_producer_id() for _ in range(300)]

    with ThreadPoolExecutor(4) as pool:
        given = [one for part in pool.map(some, range(4)) for one in part]
    assert len(set(given)) == 1200


# -- fetch (2.7) ---------------------------------------------------------------------------------


def test_a_fetch_in_the_middle_of_a_batch_gets_that_batch(wire: Wire, topic: str) -> None:
    """Pitfall 27, for plain and compressed batches."""
    for codec in (Compression.NONE, Compression.LZ4):
        wire.produce(topic, batch_of(*[b"%d" % n for n in range(10)], compression=codec))
    for offset in range(20):
        found = records_of(wire.fetch(topic, offset, partition_max_bytes=1).records)
        base = offset // 10 * 10
        assert [r.offset for r in found] == list(range(base, base + 10))


def test_sh_76_out_of_range_is_told_at_once(wire: Wire, topic: str) -> None:
    wire.produce(topic, batch_of(b"a", b"b", b"c"))
    began = time.monotonic()
    for offset in (4, 1 << 40, -1, -5):
        told = wire.fetch(topic, offset, max_wait=20_000)
        assert told.error_code == ErrorCode.offset_out_of_range
    rows = [{"partition_index": 0, "offset": 2}]
    wire.call(DELETE_RECORDS, 2, topics=[{"name": topic, "partitions": rows}], timeout=5_000)
    assert wire.fetch(topic, 1, max_wait=20_000).error_code == ErrorCode.offset_out_of_range
    assert time.monotonic() - began < 10, "an error ends the wait"
    found = wire.fetch(topic, 2)
    assert (found.error_code, found.log_start_offset, found.high_watermark) == (0, 2, 3)


def test_sh_108_an_empty_fetch_waits_its_time(wire: Wire, topic: str) -> None:
    began = time.monotonic()
    told = wire.fetch(topic, 0, max_wait=300)
    waited = time.monotonic() - began
    assert 0.29 <= waited < 5
    assert (told.error_code, told.records or b"") == (0, b"")


def test_sh_108_max_wait_0_does_not_wait(wire: Wire, topic: str) -> None:
    began = time.monotonic()
    for _ in range(20):
        wire.fetch(topic, 0, max_wait=0, min_bytes=1000)
    assert time.monotonic() - began < 2


def test_sh_75_new_records_wake_a_waiting_fetch(
    server: ServerProcess, wire: Wire, topic: str
) -> None:
    with Wire(server.kafka) as reader:
        sent = reader.send(FETCH, 11, **fetch_values([(topic, 0, 0)], max_wait=20_000))
        time.sleep(0.05)
        began = time.monotonic()
        wire.produce(topic, batch_of(b"wake"))
        answer = reader.receive(FETCH, 11, sent)
        assert time.monotonic() - began < 5
        found = records_of(answer.responses[0].partitions[0].records)
        assert [r.value for r in found] == [b"wake"]


def test_sh_108_min_bytes_holds_until_enough(server: ServerProcess, wire: Wire, topic: str) -> None:
    with Wire(server.kafka) as reader:
        values = fetch_values([(topic, 0, 0), (topic, 1, 0)], max_wait=20_000, min_bytes=3000)
        sent = reader.send(FETCH, 11, **values)
        wire.produce(topic, batch_of(b"x" * 1000), 0)
        wire.produce(topic, batch_of(b"x" * 1000), 1)
        reader.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            reader.socket.recv(1, socket.MSG_PEEK)
        reader.socket.settimeout(20)
        wire.produce(topic, batch_of(b"x" * 1000), 0)
        answer = reader.receive(FETCH, 11, sent)
        sizes = [len(part.records or b"") for part in answer.responses[0].partitions]
        assert sum(sizes) >= 3000


def test_sh_108_min_bytes_above_max_bytes_does_not_stall(wire: Wire, topic: str) -> None:
    """Kafka bounds min_bytes by max_bytes: more cannot come, so waiting would be for nothing."""
    wire.produce(topic, batch_of(b"x" * 500))
    wire.produce(topic, batch_of(b"x" * 500))
    began = time.monotonic()
    told = wire.fetch(topic, 0, max_wait=10_000, min_bytes=100_000, max_bytes=500)
    assert time.monotonic() - began < 5
    assert len(records_of(told.records)) == 1


def test_sh_108_the_first_batch_comes_whatever_its_size(wire: Wire, topic: str) -> None:
    """KIP-74: else a consumer would hang for ever on a large record."""
    for partition in (0, 1):
        for _ in range(3):
            wire.produce(topic, batch_of(b"x" * 50_000), partition)
    values = fetch_values([(topic, 0, 0), (topic, 1, 0)], max_bytes=1000, partition_max_bytes=1000)
    answer = wire.call(FETCH, 11, **values)
    sizes = [len(records_of(part.records)) for part in answer.responses[0].partitions]
    assert sorted(sizes) == [0, 1]
    values = fetch_values([(topic, 0, 0), (topic, 1, 0)], partition_max_bytes=110_000)
    answer = wire.call(FETCH, 11, **values)
    sizes = [len(records_of(part.records)) for part in answer.responses[0].partitions]
    assert sizes == [2, 2], "whole batches up to the limit of each partition"
    values = fetch_values([(topic, 0, 0), (topic, 1, 0)], max_bytes=210_000)
    answer = wire.call(FETCH, 11, **values)
    sizes = [len(records_of(part.records)) for part in answer.responses[0].partitions]
    assert sizes == [3, 1]


def test_leader_epochs_are_compared(wire: Wire, topic: str) -> None:
    wire.produce(topic, batch_of(b"a"))
    epoch = wire.leader_epoch(topic)
    assert wire.fetch(topic, 0, current_leader_epoch=epoch).error_code == 0
    old = wire.fetch(topic, 0, current_leader_epoch=epoch - 1)
    expected = ErrorCode.fenced_leader_epoch if epoch > 0 else 0
    assert old.error_code == expected
    new = wire.fetch(topic, 0, current_leader_epoch=epoch + 1)
    assert new.error_code == ErrorCode.unknown_leader_epoch
    told = wire.list_offset(topic, LATEST, current_leader_epoch=epoch + 1)
    assert told.error_code == ErrorCode.unknown_leader_epoch


def test_read_committed_sees_everything_without_transactions(wire: Wire, topic: str) -> None:
    """Pitfall 21: the last stable offset moves with the high watermark."""
    wire.produce(topic, batch_of(b"a", b"b"))
    told = wire.fetch(topic, 0, isolation_level=1)
    assert len(records_of(told.records)) == 2
    assert (told.high_watermark, told.last_stable_offset, told.log_start_offset) == (2, 2, 0)
    assert told.aborted_transactions in ((), None)
    assert wire.fetch(topic, 0, isolation_level=0).aborted_transactions is None


def test_fetch_by_topic_id(wire: Wire) -> None:
    name = f"t-{uuid4().hex}"
    topic_id = wire.create_topic(name)
    wire.produce(name, batch_of(b"by id"))
    wanted = [(topic_id, 0, 0), (uuid4(), 0, 0)]
    for version in range(13, 19):
        answer = wire.call(FETCH, version, **fetch_values(wanted))
        told = {row.topic_id: row.partitions[0] for row in answer.responses}
        assert [r.value for r in records_of(told.pop(topic_id).records)] == [b"by id"]
        (unknown,) = told.values()
        assert unknown.error_code == ErrorCode.unknown_topic_id


def test_a_topic_deleted_while_fetching_ends_the_wait(server: ServerProcess, wire: Wire) -> None:
    name = f"t-{uuid4().hex}"
    topic_id = wire.create_topic(name)
    by_id: list[tuple[str | UUID, int, int]] = [(topic_id, 0, 0)]
    with Wire(server.kafka) as one, Wire(server.kafka) as two:
        by_name = one.send(FETCH, 11, **fetch_values([(name, 0, 0)], max_wait=20_000))
        with_id = two.send(FETCH, 13, **fetch_values(by_id, max_wait=20_000))
        time.sleep(0.05)
        began = time.monotonic()
        wire.call(DELETE_TOPICS, 5, topic_names=[name], timeout=5_000)
        told = one.receive(FETCH, 11, by_name).responses[0].partitions[0]
        assert told.error_code == ErrorCode.unknown_topic_or_partition
        told = two.receive(FETCH, 13, with_id).responses[0].partitions[0]
        assert told.error_code == ErrorCode.unknown_topic_id
        assert time.monotonic() - began < 5


# -- fetch sessions (KIP-227) --------------------------------------------------------------------


def session_fetch(wire: Wire, session: int, epoch: int, wanted: Any, **more: Any) -> Any:
    values = fetch_values(wanted, session_id=session, **more)
    return wire.call(FETCH, more.pop("version", 11), **{**values, "session_epoch": epoch})


def told_partitions(answer: Any) -> dict[int, int]:
    return {
        part.partition_index: len(records_of(part.records))
        for row in answer.responses
        for part in row.partitions
    }


def test_a_session_tells_only_what_changed(wire: Wire, topic: str) -> None:
    wire.produce(topic, batch_of(b"a"), 0)
    made = session_fetch(wire, 0, 0, [(topic, 0, 0), (topic, 1, 0)])
    session = made.session_id
    assert session > 0
    assert told_partitions(made) == {0: 1, 1: 0}, "a full answer names everything"
    idle = session_fetch(wire, session, 1, [(topic, 0, 1)])
    assert (idle.error_code, idle.session_id) == (0, session)
    assert told_partitions(idle) == {}
    wire.produce(topic, batch_of(b"b"), 1)
    assert told_partitions(session_fetch(wire, session, 2, [])) == {1: 1}
    assert told_partitions(session_fetch(wire, session, 3, [(topic, 1, 1)])) == {}


def test_a_session_forgets_partitions(wire: Wire, topic: str) -> None:
    made = session_fetch(wire, 0, 0, [(topic, 0, 0), (topic, 1, 0)])
    wire.produce(topic, batch_of(b"a"), 0)
    wire.produce(topic, batch_of(b"b"), 1)
    gone = [{"topic": topic, "partitions": [0]}]
    answer = session_fetch(wire, made.session_id, 1, [], forgotten_topics_data=gone)
    assert told_partitions(answer) == {1: 1}


def test_session_errors(wire: Wire, topic: str) -> None:
    made = session_fetch(wire, 0, 0, [(topic, 0, 0)])
    wrong = session_fetch(wire, made.session_id, 5, [])
    assert wrong.error_code == ErrorCode.invalid_fetch_session_epoch
    unknown = session_fetch(wire, 2**30, 1, [])
    assert unknown.error_code == ErrorCode.fetch_session_id_not_found
    topic_id = wire.create_topic(f"t-{uuid4().hex}")
    values = fetch_values([(topic_id, 0, 0)], session_id=made.session_id)
    mixed = wire.call(FETCH, 13, **{**values, "session_epoch": 1})
    assert mixed.error_code == ErrorCode.fetch_session_topic_id_error
    closed = session_fetch(wire, made.session_id, -1, [])
    assert (closed.error_code, closed.session_id) == (0, 0)
    after = session_fetch(wire, made.session_id, 1, [])
    assert after.error_code == ErrorCode.fetch_session_id_not_found


def test_a_fetch_without_session_gets_none(wire: Wire, topic: str) -> None:
    assert session_fetch(wire, 0, -1, [(topic, 0, 0)]).session_id == 0


# -- ListOffsets, OffsetForLeaderEpoch -----------------------------------------------------------


@pytest.mark.parametrize("codec", list(Compression))
def test_sh_109_offsets_by_time_are_exact(wire: Wire, topic: str, codec: Compression) -> None:
    """To the record, also inside compressed batches and with times out of order."""
    wire.produce(topic, timed_batch([1000, 1010, 1020], codec))
    wire.produce(topic, timed_batch([1005, 1030, 1025], codec))
    expected = {
        0: (0, 1000),
        1000: (0, 1000),
        1001: (1, 1010),
        1011: (2, 1020),
        1020: (2, 1020),
        1021: (4, 1030),
        1030: (4, 1030),
        1031: (-1, -1),
    }
    for target, found in expected.items():
        told = wire.list_offset(topic, target)
        assert (told.error_code, told.offset, told.timestamp) == (0, *found), target


def test_sh_109_special_times(wire: Wire, topic: str) -> None:
    empty = {t: wire.list_offset(topic, t) for t in (LATEST, EARLIEST, MAX_TIMESTAMP, -4, -5, -6)}
    assert [empty[t].offset for t in (LATEST, EARLIEST, -4)] == [0, 0, 0]
    assert [(empty[t].offset, empty[t].error_code) for t in (MAX_TIMESTAMP, -5, -6)] == [
        (-1, 0)
    ] * 3
    wire.produce(topic, timed_batch([1000, 3000, 2000]))
    wire.produce(topic, timed_batch([2500]))
    told = {t: wire.list_offset(topic, t) for t in (LATEST, EARLIEST, MAX_TIMESTAMP, -4, -5)}
    assert (told[LATEST].offset, told[LATEST].timestamp) == (4, -1)
    assert (told[EARLIEST].offset, told[EARLIEST].timestamp) == (0, -1)
    assert (told[MAX_TIMESTAMP].offset, told[MAX_TIMESTAMP].timestamp) == (1, 3000)
    assert (told[-4].offset, told[-5].offset) == (0, -1)
    assert wire.list_offset(topic, LATEST).leader_epoch == wire.leader_epoch(topic)
    committed = wire.call(
        LIST_OFFSETS,
        11,
        replica_id=-1,
        isolation_level=1,
        topics=[{"name": topic, "partitions": [{"partition_index": 0, "timestamp": LATEST}]}],
    )
    assert committed.topics[0].partitions[0].offset == 4


@pytest.mark.parametrize(("timestamp", "version"), [(-3, 6), (-4, 7), (-5, 8), (-6, 10), (-7, 11)])
def test_special_times_before_their_version(
    wire: Wire, topic: str, timestamp: int, version: int
) -> None:
    told = wire.list_offset(topic, timestamp, version=version)
    assert told.error_code == ErrorCode.unsupported_version


def test_list_offsets_of_unknown_places(wire: Wire, topic: str) -> None:
    unknown = ErrorCode.unknown_topic_or_partition
    assert wire.list_offset(topic, LATEST, partition=7).error_code == unknown
    assert wire.list_offset("no-such-topic", LATEST).error_code == unknown


# -- topics and settings (2.8) -------------------------------------------------------------------


def create(wire: Wire, *topics: dict[str, Any], **more: Any) -> dict[str, int]:
    defaults = {"num_partitions": 1, "replication_factor": 1}
    rows = [{**defaults, **topic} for topic in topics]
    answer = wire.call(CREATE_TOPICS, 7, topics=rows, timeout=5_000, **more)
    return {row.name: int(row.error_code) for row in answer.topics}


def test_create_topics_errors_are_kafkas_and_per_topic(wire: Wire, topic: str) -> None:
    ok = f"t-{uuid4().hex}"
    unknown = [{"name": "no.such.config", "value": "1"}]
    invalid = [{"name": "retention.ms", "value": "soon"}]
    null = [{"name": "retention.ms", "value": None}]
    told = create(
        wire,
        {"name": ok},
        {"name": topic},
        {"name": "bad name"},
        {"name": ""},
        {"name": "."},
        {"name": "x" * 250},
        {"name": "zero", "num_partitions": 0},
        {"name": "negative", "num_partitions": -2},
        {"name": "many", "num_partitions": 1_000_000},
        {"name": "replicas", "replication_factor": 3},
        {"name": "no-replicas", "replication_factor": 0},
        {"name": "unknown-config", "configs": unknown},
        {"name": "invalid-config", "configs": invalid},
        {"name": "null-config", "configs": null},
    )
    assert told == {
        ok: 0,
        topic: ErrorCode.topic_already_exists,
        "bad name": ErrorCode.invalid_topic_exception,
        "": ErrorCode.invalid_topic_exception,
        ".": ErrorCode.invalid_topic_exception,
        "x" * 250: ErrorCode.invalid_topic_exception,
        "zero": ErrorCode.invalid_partitions,
        "negative": ErrorCode.invalid_partitions,
        "many": ErrorCode.invalid_partitions,
        "replicas": ErrorCode.invalid_replication_factor,
        "no-replicas": ErrorCode.invalid_replication_factor,
        "unknown-config": ErrorCode.invalid_config,
        "invalid-config": ErrorCode.invalid_config,
        "null-config": ErrorCode.invalid_config,
    }
    twice = create(wire, {"name": "twice"}, {"name": "twice"})
    assert twice == {"twice": ErrorCode.invalid_request}
    listed = {row.name for row in wire.call(METADATA, 12, topics=None).topics}
    assert ok in listed
    assert not listed & {"zero", "many", "replicas", "unknown-config", "twice"}


def test_many_clients_create_one_topic(server: ServerProcess) -> None:
    """One of them is told it did; clients that only ask all find the same topic, soon."""
    name, wanted = f"t-{uuid4().hex}", f"t-{uuid4().hex}"

    def one(_: int) -> tuple[int, UUID]:
        with Wire(server.kafka) as wire:
            made = create(wire, {"name": name})[name]
            asked = [{"name": wanted}]
            assert eventually(lambda: wire.call(METADATA, 12, topics=asked).topics[0].topic_id)
            return made, wire.call(METADATA, 12, topics=asked).topics[0].topic_id

    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(one, range(16)))
    assert sorted(code for code, _ in told) == [0] + [int(ErrorCode.topic_already_exists)] * 15
    assert len({topic_id for _, topic_id in told}) == 1


def test_create_topics_defaults_and_validate_only(wire: Wire) -> None:
    name = f"t-{uuid4().hex}"
    asked = {"name": name, "num_partitions": -1, "replication_factor": -1}
    assert create(wire, asked, validate_only=True) == {name: 0}
    unknown = ErrorCode.unknown_topic_or_partition
    assert metadata_of(wire, name).error_code == unknown, "nothing was made"
    assert create(wire, asked) == {name: 0}
    assert len(metadata_of(wire, name).partitions) == 1
    assigned = f"t-{uuid4().hex}"
    rows = [{"partition_index": n, "broker_ids": [0]} for n in (1, 0)]
    by_hand = {"num_partitions": -1, "replication_factor": -1, "assignments": rows}
    assert create(wire, {"name": assigned, **by_hand}) == {assigned: 0}
    assert len(metadata_of(wire, assigned).partitions) == 2
    rows[0]["broker_ids"] = [5]
    told = create(wire, {"name": "elsewhere", **by_hand})
    assert told == {"elsewhere": ErrorCode.invalid_replica_assignment}


def metadata_of(wire: Wire, name: str) -> Any:
    asked = [{"name": name}]
    (row,) = wire.call(METADATA, 12, topics=asked, allow_auto_topic_creation=False).topics
    return row


def test_metadata_creates_only_when_asked(wire: Wire) -> None:
    name = f"t-{uuid4().hex}"
    assert metadata_of(wire, name).error_code == ErrorCode.unknown_topic_or_partition
    (made,) = wire.call(METADATA, 12, topics=[{"name": name}]).topics
    assert (made.error_code, len(made.partitions)) == (0, 1)
    (bad,) = wire.call(METADATA, 12, topics=[{"name": "bad name"}]).topics
    assert bad.error_code == ErrorCode.invalid_topic_exception
    (by_id,) = wire.call(METADATA, 12, topics=[{"topic_id": made.topic_id}]).topics
    assert by_id.name == name
    (lost,) = wire.call(METADATA, 12, topics=[{"topic_id": uuid4()}]).topics
    assert lost.error_code == ErrorCode.unknown_topic_id


def test_metadata_names_one_stable_broker(server: ServerProcess, wire: Wire) -> None:
    first, second = (wire.call(METADATA, 9, topics=[]) for _ in range(2))
    (broker,) = first.brokers
    assert f"{broker.host}:{broker.port}" == server.kafka
    assert first.controller_id == broker.node_id
    assert first.cluster_id == second.cluster_id
    assert not first.topics, "from version 1 on an empty list means none"
    assert wire.call(METADATA, 0, topics=[]).topics is not None
    cluster = wire.call(DESCRIBE_CLUSTER, 1)
    assert cluster.cluster_id == first.cluster_id


def test_delete_topics_errors(wire: Wire) -> None:
    name, other = f"t-{uuid4().hex}", f"t-{uuid4().hex}"
    wire.create_topic(name)
    other_id = wire.create_topic(other)
    asked = [{"name": name}, {"name": "no-such-topic"}, {"topic_id": other_id}]
    asked.append({"topic_id": uuid4()})
    answer = wire.call(DELETE_TOPICS, 6, topics=asked, timeout=5_000)
    assert [int(row.error_code) for row in answer.responses] == [
        0,
        ErrorCode.unknown_topic_or_partition,
        0,
        ErrorCode.unknown_topic_id,
    ]
    unknown = ErrorCode.unknown_topic_or_partition
    assert metadata_of(wire, name).error_code == unknown
    assert metadata_of(wire, other).error_code == unknown
    assert wire.produce(name, GOOD).error_code == unknown
    assert wire.fetch(name, 0).error_code == unknown


def test_a_recreated_topic_is_another_one(wire: Wire) -> None:
    """New id, empty, and epochs that do not go back (clients ignore older ones)."""
    name = f"t-{uuid4().hex}"
    first_id = wire.create_topic(name)
    wire.produce(name, batch_of(b"old"))
    first_epoch = wire.leader_epoch(name)
    wire.call(DELETE_TOPICS, 5, topic_names=[name], timeout=5_000)
    second_id = wire.create_topic(name)
    assert second_id != first_id
    assert wire.leader_epoch(name) > first_epoch
    assert wire.list_offset(name, LATEST).offset == 0
    assert wire.produce(name, batch_of(b"new")).base_offset == 0
    assert [r.value for r in records_of(wire.fetch(name, 0).records)] == [b"new"]
    old: list[tuple[str | UUID, int, int]] = [(first_id, 0, 0)]
    told = wire.call(FETCH, 13, **fetch_values(old)).responses[0].partitions[0]
    assert told.error_code == ErrorCode.unknown_topic_id


def test_delete_records(wire: Wire, topic: str) -> None:
    wire.produce(topic, batch_of(*[b"%d" % n for n in range(10)]))

    def delete(offset: int, partition: int = 0, name: str = topic) -> tuple[int, int]:
        rows = [{"partition_index": partition, "offset": offset}]
        answer = wire.call(
            DELETE_RECORDS, 2, topics=[{"name": name, "partitions": rows}], timeout=5_000
        )
        told = answer.topics[0].partitions[0]
        return int(told.error_code), told.low_watermark

    assert delete(4) == (0, 4)
    assert delete(2) == (0, 4), "the log start never goes back"
    assert wire.list_offset(topic, EARLIEST).offset == 4
    assert wire.fetch(topic, 3).error_code == ErrorCode.offset_out_of_range
    assert delete(11)[0] == ErrorCode.offset_out_of_range
    assert delete(-2)[0] == ErrorCode.offset_out_of_range
    assert delete(-1) == (0, 10)
    assert delete(0, partition=9)[0] == ErrorCode.unknown_topic_or_partition
    assert delete(0, name="no-such-topic")[0] == ErrorCode.unknown_topic_or_partition
    assert wire.list_offset(topic, EARLIEST).offset == 10
    assert wire.produce(topic, batch_of(b"next")).base_offset == 10


def test_describe_configs_lists_everything(wire: Wire) -> None:
    """Pitfall 28: every setting, with its default and its source."""
    name = f"t-{uuid4().hex}"
    wire.create_topic(name, retention_ms="12345")
    resources = [
        {"resource_type": 2, "resource_name": name, "configuration_keys": None},
        {"resource_type": 2, "resource_name": "no-such-topic", "configuration_keys": None},
        {"resource_type": 4, "resource_name": "0", "configuration_keys": None},
        {"resource_type": 4, "resource_name": "77", "configuration_keys": None},
        {"resource_type": 2, "resource_name": name, "configuration_keys": ["segment.bytes"]},
    ]
    results = wire.call(DESCRIBE_CONFIGS, 4, resources=resources, include_synonyms=True).results
    codes = [int(row.error_code) for row in results]
    assert codes == [0, ErrorCode.unknown_topic_or_partition, 0, ErrorCode.invalid_request, 0]
    configs = {row.name: row for row in results[0].configs}
    assert {"cleanup.policy", "retention.ms", "max.message.bytes", "segment.ms"} <= set(configs)
    changed, kept = configs["retention.ms"], configs["cleanup.policy"]
    assert (changed.value, changed.config_source) == ("12345", 1)
    assert [(s.value, s.source) for s in changed.synonyms] == [("12345", 1), ("604800000", 5)]
    assert (kept.value, kept.config_source) == ("delete", 5)
    broker = {row.name: row.value for row in results[2].configs}
    assert broker["auto.create.topics.enable"] == "true"
    assert [row.name for row in results[4].configs] == ["segment.bytes"]


def test_transactional_ids_are_refused_cleanly(wire: Wire) -> None:
    answer = wire.call(INIT_PRODUCER_ID, 4, transactional_id="tx", transaction_timeout=60_000)
    assert answer.error_code != 0
    assert answer.producer_id == -1


# -- a server of its own: limits of connections --------------------------------------------------


def test_connection_limit_and_idle_close(tmp_path: Path) -> None:
    """Beyond the limit a connection is closed at once; an idle one is closed after its time."""
    settings = {"MAX_CONNECTIONS": "3", "CONNECTION_IDLE_MS": "1500"}
    with running_server(tmp_path, settings) as server:
        server.expect_in_log("refusing a Kafka connection")
        kept = [Wire(server.kafka) for _ in range(3)]
        for one in kept:
            assert one.call(METADATA, 1, topics=[]).brokers
        with Wire(server.kafka) as extra:
            assert extra.is_closed(2)
        began = time.monotonic()
        while time.monotonic() - began < 2.5:  # the busy one stays
            assert kept[0].call(METADATA, 1, topics=[]).brokers
            time.sleep(0.1)
        assert kept[1].is_closed(3)
        assert kept[2].is_closed(3)
        assert kept[0].call(METADATA, 1, topics=[]).brokers
        with Wire(server.kafka) as again:
            assert again.call(METADATA, 1, topics=[]).brokers, "closed ones make room"
        for one in kept:
            one.close()


def test_sigterm_does_not_wait_for_clients(tmp_path: Path) -> None:
    """Neither for a long poll nor for one that does not read its answers."""
    with running_server(tmp_path) as server, Wire(server.kafka) as poll, Wire(server.kafka) as slow:
        poll.create_topic("quiet")
        poll.create_topic("large")
        for _ in range(4):
            poll.produce("large", batch_of(b"x" * 1_000_000))
        poll.send(FETCH, 11, **fetch_values([("quiet", 0, 0)], max_wait=60_000))
        for _ in range(12):
            values = fetch_values([("large", 0, 0)], partition_max_bytes=1 << 26)
            slow.send(FETCH, 11, **values)
        began = time.monotonic()
        assert server.terminate() == 0
        assert time.monotonic() - began < 10
        assert poll.is_closed()


# -- after rolls and restarts --------------------------------------------------------------------


def test_positions_and_producers_survive_roll_and_restart(tmp_path: Path) -> None:
    """SH-54, SH-58, SH-71, SH-106, SH-109: once from the WAL (kill -9), once from segments."""
    settings = {"SEGMENT_MAX_SIZE": "1000000", "SEGMENT_MAX_AGE_MS": "3600000"}
    with running_server(tmp_path, settings) as server:
        with Wire(server.kafka) as wire:
            topic_id = wire.create_topic("kept")
            producer_id = wire.new_producer_id()
            sent = [numbered(producer_id, sequence, 2) for sequence in range(0, 12, 2)]
            for batch in sent:
                assert wire.produce("kept", batch).error_code == 0
            wire.produce("kept", timed_batch([1000, 1010, 1020], Compression.GZIP))
            epochs = [wire.leader_epoch("kept")]
        for stop in (server.kill9, server.terminate, server.kill9):
            stop()
            server.start()
            with Wire(server.kafka) as wire:
                epochs.append(wire.leader_epoch("kept"))
                _check_kept(wire, sent, topic_id)
                assert wire.new_producer_id() > producer_id
                ends = [end_of_epoch(wire, "kept", epoch) for epoch in epochs]
                # All records were written in the first epoch, so each ends where the log does.
                assert [end for _, end in ends] == [15] * len(epochs)
        assert epochs == sorted(set(epochs)), "each leadership has an epoch of its own"
        with Wire(server.kafka) as wire:
            assert wire.produce("kept", numbered(producer_id, 12)).base_offset == 15
            assert end_of_epoch(wire, "kept", epochs[0]) == (epochs[0], 15)
            assert end_of_epoch(wire, "kept", epochs[1]) == (epochs[0], 15)
            assert end_of_epoch(wire, "kept", epochs[-1]) == (epochs[-1], 16)
            assert end_of_epoch(wire, "kept", epochs[-1] + 1) == (-1, -1)


def _check_kept(wire: Wire, sent: list[bytes], topic_id: UUID) -> None:
    told = [wire.produce("kept", batch) for batch in sent[1:]]
    assert [(row.error_code, row.base_offset) for row in told] == [(0, n) for n in range(2, 12, 2)]
    beyond = wire.produce("kept", sent[0])
    assert beyond.error_code == ErrorCode.out_of_order_sequence_number
    found = records_of(wire.fetch("kept", 0).records)
    assert [r.offset for r in found] == list(range(15))
    for target, offset in ((0, 0), (1001, 0), (2**41, -1)):
        assert wire.list_offset("kept", target).offset == (0 if offset == 0 else -1)
    assert wire.list_offset("kept", EARLIEST).offset == 0
    assert wire.list_offset("kept", LATEST).offset == 15
    assert metadata_of(wire, "kept").topic_id == topic_id


def end_of_epoch(wire: Wire, topic: str, epoch: int) -> tuple[int, int]:
    rows = [{"partition": 0, "leader_epoch": epoch, "current_leader_epoch": -1}]
    topics = [{"topic": topic, "partitions": rows}]
    answer = wire.call(OFFSET_FOR_LEADER_EPOCH, 4, replica_id=-1, topics=topics)
    told = answer.topics[0].partitions[0]
    assert told.error_code == 0
    return told.leader_epoch, told.end_offset


def test_sh_109_offsets_by_time_after_roll_and_restart(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        with Wire(server.kafka) as wire:
            wire.create_topic("times")
            for n in range(40):
                times = range(1000 + n * 100, 1100 + n * 100, 10)
                wire.produce("times", timed_batch(times, list(Compression)[n % 5]))
        for _ in range(2):  # from memory first, then from segments
            with Wire(server.kafka) as wire:
                for target in range(995, 5000, 157):
                    told = wire.list_offset("times", target)
                    expected = max(0, -(-(target - 1000) // 10))
                    assert (told.offset, told.timestamp) == (expected, 1000 + expected * 10)
                told = wire.list_offset("times", MAX_TIMESTAMP)
                assert (told.offset, told.timestamp) == (399, 4990)
                for offset in range(0, 400, 13):  # pitfall 27, memory or segment
                    part = wire.fetch("times", offset, partition_max_bytes=1)
                    base = offset // 10 * 10
                    found = [r.offset for r in records_of(part.records)]
                    assert found == list(range(base, base + 10))
            server.restart()


def test_what_is_old_or_deleted_goes_away(tmp_path: Path) -> None:
    """SH-76: retention moves the log start; the objects of a deleted topic leave the disk."""
    settings = {"RETENTION_CHECK_INTERVAL_MS": "200", "DELETE_GRACE_MS": "100"}
    with running_server(tmp_path, {**settings, "SEGMENT_MAX_AGE_MS": "200"}) as server:
        objects = server.data_dir / "objects" / "topics"
        with Wire(server.kafka) as wire:
            short_id = wire.create_topic("short", retention_ms="500")
            kept_id = wire.create_topic("kept")
            producer_id = wire.new_producer_id()
            first = numbered(producer_id, 0, 3)
            assert wire.produce("short", first).base_offset == 0
            assert wire.produce("kept", batch_of(b"x")).error_code == 0
            assert eventually(lambda: wire.list_offset("short", EARLIEST).offset == 3)
            assert wire.fetch("short", 0).error_code == ErrorCode.offset_out_of_range
            assert wire.list_offset("short", LATEST).offset == 3
            again = wire.produce("short", first)
            assert (again.error_code, again.base_offset) == (0, 0), "the producer is not forgotten"
            assert wire.produce("short", numbered(producer_id, 3)).base_offset == 3
            assert eventually(lambda: list((objects / str(kept_id)).glob("0/*.strm")))
            wire.call(DELETE_TOPICS, 5, topic_names=["short", "kept"], timeout=5_000)
        for topic_id in (short_id, kept_id):
            place = objects / str(topic_id)
            assert eventually(lambda place=place: not list(place.glob("**/*.strm"))), topic_id


def test_sh_76_delete_records_survives_kill(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        with Wire(server.kafka) as wire:
            wire.create_topic("cut")
            wire.produce("cut", batch_of(*[b"%d" % n for n in range(10)]))
            rows = [{"partition_index": 0, "offset": 6}]
            topics = [{"name": "cut", "partitions": rows}]
            wire.call(DELETE_RECORDS, 2, topics=topics, timeout=5_000)
        server.kill9()
        server.start()
        with Wire(server.kafka) as wire:
            assert wire.list_offset("cut", EARLIEST).offset == 6
            assert wire.list_offset("cut", LATEST).offset == 10
            assert wire.fetch("cut", 5).error_code == ErrorCode.offset_out_of_range
            assert records_of(wire.fetch("cut", 6).records)[-1].offset == 9


def test_the_frame_is_as_kio_writes_it() -> None:
    """The helper's own check: a header, then the body, behind a size."""
    raw = request_frame(API_VERSIONS, 0, 5, {})
    assert raw == struct.pack(">ihhih4s", 14, API_VERSIONS, 0, 5, 4, b"wire")
    assert HEADER_BYTES == 61
