"""Bytes no client should send: the server goes on, its log stays clean, others notice nothing.

The log is checked when the module's server stops: one ERROR or traceback fails the module. Random
choices come from fixed seeds, so a failure can be repeated.
"""

import random
import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import psutil
import pytest
from crc32c import crc32c

from streamhouse.kafka_proto.apis import APIS
from tests.integration.admin_values import admin_values
from tests.integration.kafka_wire import (
    ACKS_ALL,
    API_VERSIONS,
    CREATE_TOPICS,
    DELETE_GROUPS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    FETCH,
    FIND_COORDINATOR,
    HEARTBEAT,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    LATEST,
    LEAVE_GROUP,
    LIST_GROUPS,
    LIST_OFFSETS,
    MAX_TIMESTAMP,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    SYNC_GROUP,
    Wire,
    batch_of,
    fetch_values,
    produce_values,
    records_of,
    request_frame,
)
from tests.integration.server_process import ServerProcess, running_server

pytestmark = pytest.mark.integration

MIB = 1 << 20
MUTATIONS_PER_VERSION = 30
SERVED = [(api.key, v) for api in APIS.values() for v in range(api.served_min, api.version_max + 1)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    settings = {"AUTO_CREATE_TOPICS": "0"}
    with running_server(tmp_path_factory.mktemp("hostile"), settings) as running:
        with Wire(running.kafka) as wire:
            wire.create_topic("good", 2)
            wire.produce("good", batch_of(b"kept"))
        yield running


@pytest.fixture
def bystander(server: ServerProcess) -> Iterator[Wire]:
    """A connection that was there before; at the end it must still be served."""
    with Wire(server.kafka) as wire:
        assert wire.call(METADATA, 1, topics=[]).brokers
        yield wire
        assert [r.value for r in records_of(wire.fetch("good", 0).records)] == [b"kept"]
        assert server.is_running


def sent_to_the_end(server: ServerProcess, raw: bytes) -> None:
    """Send everything, tell that no more comes, and read until the server closes."""
    with Wire(server.kafka, 10) as wire:
        try:
            wire.send_bytes(raw)
            wire.socket.shutdown(socket.SHUT_WR)
        except OSError:
            return  # closed before we were done: as good
        assert wire.is_closed(10), "a connection that says nothing more is closed"


def test_random_bytes(server: ServerProcess, bystander: Wire) -> None:
    chance = random.Random(1)
    for _ in range(150):
        sent_to_the_end(server, chance.randbytes(chance.choice((1, 3, 4, 5, 20, 300, 70_000))))


def test_random_frames(server: ServerProcess, bystander: Wire) -> None:
    """The size is right, the content is noise; often behind a header that is served."""
    chance = random.Random(2)
    for _ in range(300):
        body = chance.randbytes(chance.choice((0, 1, 7, 8, 9, 30, 400)))
        if chance.random() < 0.7:
            key, version = chance.choice(SERVED)
            body = struct.pack(">hhih", key, version, 1, chance.choice((-1, 0, 3))) + body
        sent_to_the_end(server, struct.pack(">i", len(body)) + body)


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 100 * MIB + 1, 0, 1, 7])
def test_impossible_sizes_close_the_connection(
    server: ServerProcess, bystander: Wire, size: int
) -> None:
    with Wire(server.kafka) as wire:
        wire.send_bytes(struct.pack(">i", size) + bytes(max(0, min(size, 7))))
        assert wire.is_closed()


def test_announced_bytes_cost_no_memory(server: ServerProcess, bystander: Wire) -> None:
    """Sixty connections announce 99 MiB each and send nothing more."""
    before = resident_bytes(server)
    held = [Wire(server.kafka) for _ in range(60)]
    for wire in held:
        wire.send_bytes(struct.pack(">ihhih", 99 * MIB, PRODUCE, 9, 1, -1) + bytes(2000))
    assert bystander.call(METADATA, 1, topics=[]).brokers
    time.sleep(0.2)
    grown = resident_bytes(server) - before
    for wire in held:
        wire.close()
    assert grown < 200 * MIB, f"{grown / MIB:.0f} MiB for nothing"


def resident_bytes(server: ServerProcess) -> int:
    return int(psutil.Process(server.pid).memory_info().rss)


def test_a_frame_cut_anywhere(server: ServerProcess, bystander: Wire) -> None:
    whole = request_frame(PRODUCE, 9, 1, produce_values({("good", 1): batch_of(b"never")}))
    for stop in range(1, len(whole), 3):
        sent_to_the_end(server, whole[:stop])
    assert bystander.list_offset("good", LATEST, 1).offset == 0, "nothing half was appended"


def test_a_frame_byte_by_byte(server: ServerProcess, bystander: Wire) -> None:
    """Slow, but right: it is answered."""
    whole = request_frame(METADATA, 9, 1, {"topics": []})
    with Wire(server.kafka) as wire:
        for n in range(len(whole)):
            wire.send_bytes(whole[n : n + 1])
        assert wire.receive(METADATA, 9, 1).brokers


def test_unserved_keys_and_versions(server: ServerProcess, bystander: Wire) -> None:
    served = {api.key for api in APIS.values()}
    asked = [(key, 0) for key in (*range(100), 1000, -1, 32767, -32768) if key not in served]
    for api in APIS.values():
        if api.key != API_VERSIONS:
            asked += [(api.key, api.served_min - 1), (api.key, api.version_max + 1)]
            asked += [(api.key, -1), (api.key, 32767)]
    for key, version in asked:
        with Wire(server.kafka) as wire:
            body = struct.pack(">hhih", key, version, 1, -1) + bytes(40)
            wire.send_bytes(struct.pack(">i", len(body)) + body)
            assert wire.is_closed(), (key, version)


# -- mutated requests ----------------------------------------------------------------------------


def honest(topic_id: UUID) -> dict[int, dict[str, Any]]:
    """One valid request per API; topics named here may be changed by what becomes of it."""
    name = "fuzzed"
    both = {"topic": name, "name": name, "topic_id": topic_id}
    fetched = fetch_values([(name, 0, 0)], max_wait=1)
    produced = {"index": 0, "records": batch_of(b"x")}
    offsets = [{"partition_index": 0, "timestamp": LATEST, "offset": 0}]
    of_epoch = [{"partition": 0, "leader_epoch": 0}]
    resource = {"resource_type": 2, "resource_name": name, "configuration_keys": ["a"]}
    made = {"name": "made", "num_partitions": 1, "replication_factor": 1}
    made |= {"configs": [{"name": "retention.ms", "value": "1"}]}
    made |= {"assignments": [{"partition_index": 0, "broker_ids": [0]}]}
    values: dict[int, dict[str, Any]] = {
        PRODUCE: {**produce_values({}), "topic_data": [{**both, "partition_data": [produced]}]},
        FETCH: {**fetched, "topics": [{**both, "partitions": fetched["topics"][0]["partitions"]}]},
        LIST_OFFSETS: {"replica_id": -1, "topics": [{"name": name, "partitions": offsets}]},
        METADATA: {"topics": [{"name": name, "topic_id": None}]},
        FIND_COORDINATOR: {"key": "g", "coordinator_keys": ["g"]},
        API_VERSIONS: {"client_software_name": "wire", "client_software_version": "1.0"},
        CREATE_TOPICS: {"topics": [made], "timeout": 100, "validate_only": True},
        DELETE_TOPICS: {"topics": [{"name": "made"}], "topic_names": ["made"], "timeout": 100},
        DELETE_RECORDS: {"topics": [{"name": name, "partitions": offsets}], "timeout": 100},
        INIT_PRODUCER_ID: {"transactional_id": None, "transaction_timeout": 100},
        OFFSET_FOR_LEADER_EPOCH: {"topics": [{"topic": name, "partitions": of_epoch}]},
        DESCRIBE_CONFIGS: {"resources": [resource]},
        DESCRIBE_CLUSTER: {},
        **honest_groups(both),
    }
    values |= admin_values(name)
    assert values.keys() == APIS.keys()
    return values


def honest_groups(topic: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """Requests of a member of a group, and of an admin."""
    protocol = {"name": "range", "metadata": b"\0\0\0\0\0\0"}
    join = {"protocol_type": "consumer", "protocols": [protocol], "session_timeout": 6_000}
    member = {"group_id": "g", "member_id": "m", "generation_id": 1}
    given = [{"member_id": "m", "assignment": b"mine"}]
    offset = {"partition_index": 0, "committed_offset": 1, "committed_metadata": "note"}
    asked = [{**topic, "partition_indexes": [0]}]
    rows = [{**topic, "partitions": [{"partition_index": 0}]}]
    return {
        OFFSET_COMMIT: {"group_id": "g", "topics": [{**topic, "partitions": [offset]}]},
        OFFSET_FETCH: {
            "group_id": "g",
            "topics": asked,
            "groups": [{"group_id": "g", "topics": asked}],
        },
        JOIN_GROUP: {"group_id": "g", "rebalance_timeout": 100, **join},
        HEARTBEAT: member,
        LEAVE_GROUP: {**member, "members": [{"member_id": "m", "group_instance_id": "i"}]},
        SYNC_GROUP: {**member, "assignments": given},
        DESCRIBE_GROUPS: {"groups": ["g"]},
        LIST_GROUPS: {"states_filter": ["Stable"], "types_filter": ["classic"]},
        DELETE_GROUPS: {"groups_names": ["g"]},
        OFFSET_DELETE: {"group_id": "g", "topics": rows},
    }


def mutated(chance: random.Random, frame: bytes) -> bytes:
    """A frame whose header is left alone and whose body is not; the size stays right."""
    head, body = frame[4:18], bytearray(frame[18:])
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(body) + 1)
        match chance.randrange(5):
            case 0:
                body[at : at + 1] = chance.randbytes(1)
            case 1:
                body[at : at + 4] = chance.choice((b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff" * 4))
            case 2:
                del body[at:]
            case 3:
                body[at:at] = chance.randbytes(chance.randint(1, 12))
            case _:
                body[at : at + 5] = b"\xff\xff\xff\xff\x0f"  # the largest varint
    return struct.pack(">i", len(head) + len(body)) + head + bytes(body)


def test_mutated_requests_of_every_api_and_version(server: ServerProcess, bystander: Wire) -> None:
    """Answered or closed, always in short time."""
    values = honest(bystander.create_topic("fuzzed"))
    before = resident_bytes(server)

    def attack(key: int, version: int) -> int:
        chance = random.Random(key * 100 + version)
        frame = request_frame(key, version, 1, values[key])
        answered = 0
        for _ in range(MUTATIONS_PER_VERSION):
            with Wire(server.kafka, 10) as wire:
                wire.send_bytes(mutated(chance, frame))
                wire.socket.shutdown(socket.SHUT_WR)
                wire.socket.settimeout(10)
                try:
                    answered += bool(wire.socket.recv(1))
                except ConnectionError:
                    continue
        return answered

    with ThreadPoolExecutor(4) as pool:
        answered = sum(pool.map(lambda served: attack(*served), SERVED))
    total = MUTATIONS_PER_VERSION * len(SERVED)
    assert 0 < answered < total, "the mutations reach both sides of the decoder"
    assert resident_bytes(server) - before < 100 * MIB


def test_counts_that_lie_allocate_nothing(server: ServerProcess, bystander: Wire) -> None:
    """An array of two thousand million entries in a dozen bytes, for every API and version."""
    before = resident_bytes(server)
    for key, version in SERVED:
        head = struct.pack(">hhih", key, version, 1, -1)
        for tail in (b"\x7f\xff\xff\xff" * 3, b"\0\xff\xff\xff\xff\x0f" * 3, b"\0" * 12):
            body = head + tail
            sent_to_the_end(server, struct.pack(">i", len(body)) + body)
    assert resident_bytes(server) - before < 50 * MIB


# -- valid batches with rubbish inside -----------------------------------------------------------


def rubbish_batch(codec: int, seed: int) -> bytes:
    """The header and the checksum are right, so a server that keeps batches closed takes it."""
    raw = bytearray(batch_of(b"x" * 100, b"y", b"z"))
    raw[61:] = random.Random(seed).randbytes(len(raw) - 61)
    raw[22] = codec
    raw[17:21] = struct.pack(">I", crc32c(bytes(raw[21:])))
    return bytes(raw)


@pytest.mark.parametrize("codec", range(5))
def test_rubbish_inside_a_batch_harms_only_its_readers(
    server: ServerProcess, bystander: Wire, codec: int
) -> None:
    """Every way to look inside it ends in an answer, not in a broken connection or a 500."""
    name = f"rubbish-{uuid4().hex}"
    bystander.create_topic(name)
    told = bystander.produce(name, rubbish_batch(codec, codec), acks=ACKS_ALL)
    if told.error_code:
        return  # refused at the door is as good
    bystander.produce(name, batch_of(b"after"))
    for timestamp in (0, MAX_TIMESTAMP):
        bystander.list_offset(name, timestamp)
    assert bystander.fetch(name, 0).error_code == 0
    query = f"topic={name}&partition=0&offset=0"
    status, body = server.call("GET", f"/api/v1/consume?{query}")
    assert status != 500, body
    status, found = server.call("GET", f"/api/v1/consume?topic={name}&partition=0&offset=3")
    assert [record["value"] for record in found["records"]] == ["after"]


def test_nothing_is_left_after_a_storm(server: ServerProcess, bystander: Wire) -> None:
    """Many connections at once, half of them reset in the middle of a frame."""

    def one(seed: int) -> None:
        chance = random.Random(seed)
        with Wire(server.kafka) as wire:
            wire.send_bytes(struct.pack(">i", 5000) + chance.randbytes(chance.randrange(5000)))
            if seed % 2:
                linger = struct.pack("ii", 1, 0)  # closing now sends a reset
                wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(300)))
    assert bystander.call(METADATA, 1, topics=[]).brokers
