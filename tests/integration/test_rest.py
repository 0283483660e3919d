"""REST, gRPC and metrics of a real server process, with curl's eyes."""

import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import grpc
import pytest
from confluent_kafka import Message, Producer
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.integration.server_process import ServerFailed, ServerProcess, running_server

pytestmark = pytest.mark.integration

API = "/api/v1"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running_server(tmp_path_factory.mktemp("rest")) as running:
        yield running


def test_sh_01_all_three_doors_are_open(server: ServerProcess) -> None:
    assert server.call("GET", "/ready") == (200, {"status": "ready"})
    with grpc.insecure_channel(server.grpc) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        answer = health.Check(health_pb2.HealthCheckRequest(), timeout=10)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    assert _api_versions_error(server.kafka) == 0


def test_grpc_reflection_lists_the_services(server: ServerProcess) -> None:
    with grpc.insecure_channel(server.grpc) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        [answer] = stub.ServerReflectionInfo(iter([request]), timeout=10)
    names = [service.name for service in answer.list_services_response.service]
    assert "grpc.health.v1.Health" in names


def test_a_record_travels_through_rest(server: ServerProcess) -> None:
    status, topic = server.call("POST", f"{API}/topics", {"name": "walk", "partition_count": 3})
    assert (status, topic["partition_count"]) == (201, 3)
    status, place = server.call(
        "POST", f"{API}/produce", {"topic": "walk", "key": "k", "value": {"a": 1}}
    )
    assert status == 200
    query = f"topic=walk&partition={place['partition']}&offset=earliest"
    status, found = server.call("GET", f"{API}/consume?{query}")
    assert [(r["key"], r["value"]) for r in found["records"]] == [("k", '{"a":1}')]
    assert server.call("DELETE", f"{API}/topics/walk") == (204, None)
    assert server.call("GET", f"{API}/topics/walk")[0] == 404


def test_metrics_are_prometheus_text(server: ServerProcess) -> None:
    server.call("POST", f"{API}/topics", {"name": "measured", "partition_count": 1})
    server.call("POST", f"{API}/produce", {"topic": "measured", "value": "v"})
    with urlopen(f"{server.http}/metrics") as response:
        text = response.read().decode()
    line = re.compile(r"^(#.*|[a-z_]+(\{[^}]*\})? [0-9.e+-]+)$")
    assert [found for found in text.splitlines() if not line.match(found)] == []
    assert 'streamhouse_topic_high_watermark{topic="measured"} 1.0' in text
    assert "streamhouse_kafka_connections " in text


def test_garbage_on_the_http_port_harms_nobody(server: ServerProcess) -> None:
    host, _, port = server.endpoints["http"].rpartition(":")
    for garbage in (b"\x00\xff" * 100, b"GET / HTTP/9.9\r\n\r\n", b"POST / HTTP/1.1\r\n"):
        with socket.create_connection((host, int(port)), timeout=10) as client:
            client.sendall(garbage)
            client.shutdown(socket.SHUT_WR)
            while client.recv(4096):
                pass
    assert server.call("GET", "/live")[0] == 200


def test_sh_06_sh_74_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    """Goal: topics, settings, records, committed offsets survive SIGTERM and kill -9 alike."""
    with running_server(tmp_path) as server:
        body = {"name": "kept", "partition_count": 2, "config": {"retention.ms": "-1"}}
        server.call("POST", f"{API}/topics", body)
        records = [{"value": str(n), "partition": 1} for n in range(10)]
        server.call("POST", f"{API}/produce/batch", {"topic": "kept", "records": records})
        commit = {"group": "g", "topic": "kept", "partition": 1, "offset": 4}
        server.call("POST", f"{API}/consumer-groups/commit", commit)
        topic = server.call("GET", f"{API}/topics/kept")[1]
        server.restart()
        _check_kept(server, topic["topic_id"], count=10)
        more = {"topic": "kept", "value": "10", "partition": 1}
        assert server.call("POST", f"{API}/produce", more)[1]["offset"] == 10
        server.kill9()
        server.start()
        _check_kept(server, topic["topic_id"], count=11)


def test_sh_112_rest_and_kafka_clients_agree_on_the_partition_of_a_key(
    server: ServerProcess,
) -> None:
    """Goal: librdkafka with Java's partitioner and REST put each key in the same partition."""
    server.call("POST", f"{API}/topics", {"name": "agreed", "partition_count": 7})
    producer = Producer({"bootstrap.servers": server.kafka, "partitioner": "murmur2_random"})
    placed: dict[str, int] = {}

    def note(error: object, message: Message) -> None:
        assert error is None, error
        key, partition = message.key(), message.partition()
        assert isinstance(key, bytes)
        assert partition is not None
        placed[key.decode()] = partition

    keys = [f"key-{number}" for number in range(40)] + ["", "é", "a" * 300]
    for key in keys:
        producer.produce("agreed", key=key.encode(), value=b"v", on_delivery=note)
    assert producer.flush(30) == 0
    for key in keys:
        body = {"topic": "agreed", "key": key, "value": "v"}
        assert server.call("POST", f"{API}/produce", body)[1]["partition"] == placed[key], key
    assert len(set(placed.values())) == 7


def test_a_stop_does_not_wait_for_those_who_wait(tmp_path: Path) -> None:
    """Goal: SIGTERM with a long poll and an event stream open ends soon, with a clean log."""
    with running_server(tmp_path) as server:
        server.call("POST", f"{API}/topics", {"name": "quiet", "partition_count": 1})
        host, _, port = server.endpoints["http"].rpartition(":")
        poll = "/consume?topic=quiet&offset=latest&max_wait_ms=30000"
        with (
            socket.create_connection((host, int(port)), timeout=20) as polling,
            socket.create_connection((host, int(port)), timeout=20) as streaming,
        ):
            polling.sendall(f"GET {API}{poll} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            accept = "Accept: text/event-stream"
            streaming.sendall(f"GET {API}/events HTTP/1.1\r\nHost: x\r\n{accept}\r\n\r\n".encode())
            assert b"200 OK" in streaming.recv(4096)
            started = time.monotonic()
            assert server.terminate() == 0
            assert time.monotonic() - started < 10
        assert "stopped" in server.log_text()


def test_the_harness_notices_what_a_server_must_not_write(tmp_path: Path) -> None:
    """Goal: an ERROR line fails a test unless the test said that it will come."""
    server = ServerProcess(tmp_path)
    (tmp_path / "server.log").write_text("2026-01-01 ERROR streamhouse: broken\n", encoding="utf-8")
    with pytest.raises(ServerFailed, match="broken"):
        server.check_log()
    server.expect_in_log("streamhouse: broken")
    server.check_log()


def _check_kept(server: ServerProcess, topic_id: str, count: int) -> None:
    _, topic = server.call("GET", f"{API}/topics/kept")
    assert topic["topic_id"] == topic_id
    assert topic["config"] == {"retention.ms": "-1"}
    assert [p["high_watermark"] for p in topic["partitions"]] == [0, count]
    _, everything = server.call("GET", f"{API}/consume?topic=kept&partition=1&offset=0")
    assert [r["value"] for r in everything["records"]] == [str(n) for n in range(count)]
    _, resumed = server.call("GET", f"{API}/consume?topic=kept&partition=1&group=g")
    assert resumed["records"][0]["offset"] == 4


def test_segments_appear_when_a_partition_is_rolled(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        server.call("POST", f"{API}/topics", {"name": "rolled", "partition_count": 1})
        server.call("POST", f"{API}/produce", {"topic": "rolled", "value": "v"})
        server.restart()  # a graceful stop rolls what is in the write-ahead log
        _, [segment] = server.call("GET", f"{API}/topics/rolled/segments")
        assert (segment["base_offset"], segment["end_offset"]) == (0, 1)
        assert (server.data_dir / "objects" / segment["key"]).is_file()


def _api_versions_error(address: str) -> int:
    """The error code in the answer to an ApiVersions v0 request, byte by byte."""
    host, _, port = address.rpartition(":")
    request = (18).to_bytes(2, "big") + bytes(2) + (7).to_bytes(4, "big") + b"\xff\xff"
    with socket.create_connection((host, int(port)), timeout=10) as client:
        client.sendall(len(request).to_bytes(4, "big") + request)
        answer = client.recv(4096)
    assert answer[4:8] == (7).to_bytes(4, "big")
    return int.from_bytes(answer[8:10], "big", signed=True)
