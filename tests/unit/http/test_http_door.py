"""The door itself: routes, probes, metrics, events, and everything that is not a proper request."""

import asyncio
import json
import logging

import pytest

from streamhouse.model.errors import Corrupt, Fenced, OutcomeUnknown, StreamhouseError
from streamhouse.model.limits import HTTP_BODY_BYTES_MAX
from streamhouse.server.health import Health
from streamhouse.server.http.app import http_runner
from streamhouse.server.http.problems import problem_of
from tests.unit.http.rest_door import API, Rest, with_rest


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "route_not_found"),
        ("GET", "/api/v1/nothing", 404, "route_not_found"),
        ("PUT", "/api/v1/topics", 405, "method_not_allowed"),
        ("GET", "/api/v1/produce", 405, "method_not_allowed"),
        ("GET", "/api/v1/topics/%ff%fe", 404, "not_found"),
        ("GET", "/api/v1/consumer-groups/nobody", 404, "not_found"),
        ("GET", "/api/v1/agents/nobody", 404, "not_found"),
    ],
)
def test_unknown_paths_and_methods_are_problems(
    method: str, path: str, status: int, code: str
) -> None:
    async def scenario(rest: Rest) -> None:
        found, problem = await rest.call(method, path)
        assert (found, problem["code"]) == (status, code)

    with_rest(scenario)


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'"x"', b"null", b"\xff\xfe", b'{"a":NaN}', b"[" * 100_000, b"9" * 5000],
)
def test_a_body_that_is_no_json_object_is_refused(body: bytes) -> None:
    async def scenario(rest: Rest) -> None:
        for path in ("/topics", "/produce", "/produce/batch", "/consumer-groups/commit"):
            status, problem = await rest.call("POST", API + path, data=body)
            assert (status, problem["code"]) == (400, "invalid_json")

    with_rest(scenario)


def test_a_deeply_nested_value_never_breaks_the_server(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(rest: Rest) -> None:
        await rest.topic("t")
        for depth in range(100, 1100, 50):
            raw = b'{"topic":"t","value":' + b"[" * depth + b"]" * depth + b"}"
            status, _ = await rest.call("POST", f"{API}/produce", data=raw)
            assert status in (200, 400)

    with_rest(scenario)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_an_oversize_body_is_refused() -> None:
    async def scenario(rest: Rest) -> None:
        status, problem = await rest.call(
            "POST", f"{API}/produce", data=b"x" * (HTTP_BODY_BYTES_MAX + 1)
        )
        assert (status, problem["code"]) == (413, "body_too_large")
        assert str(HTTP_BODY_BYTES_MAX) in problem["detail"]

    with_rest(scenario)


def test_a_broken_content_encoding_is_refused() -> None:
    async def scenario(rest: Rest) -> None:
        headers = {"Content-Encoding": "gzip"}
        status, _ = await rest.call("POST", f"{API}/topics", data=b"no gzip", headers=headers)
        assert status == 400

    with_rest(scenario)


def test_what_nobody_expected_is_logged_once_and_told_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(rest: Rest) -> None:
        del rest.agent.catalog  # a mistake of ours, as far as the door can tell
        status, problem = await rest.get("/topics")
        assert (status, problem["code"]) == (500, "internal_error")
        assert "catalog" not in problem["detail"]

    with pytest.raises(AttributeError):  # stopping such an agent fails as well
        with_rest(scenario)
    errors = [record for record in caplog.records if record.name.endswith("problems")]
    assert [record.levelname for record in errors] == ["ERROR"]


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (Fenced("gone"), 503, "fenced"),
        (OutcomeUnknown("no answer"), 503, "may_have_happened"),
        (Corrupt("bad bytes"), 500, "corrupt"),
        (StreamhouseError("?"), 500, "internal_error"),
    ],
)
def test_every_error_of_ours_has_a_status(error: StreamhouseError, status: int, code: str) -> None:
    problem = problem_of(error)
    assert (problem.status, problem.code) == (status, code)
    assert ("Retry-After" in problem.headers) == (status == 503)


def test_probes_follow_the_health_of_the_process() -> None:
    async def scenario(rest: Rest) -> None:
        assert (await rest.call("GET", "/live"))[0] == 200
        assert (await rest.call("GET", "/ready"))[1] == {"status": "ready"}
        status, health = await rest.call("GET", "/health")
        assert (status, health["status"], health["agent_id"]) == (200, "ok", "agent-1")
        rest.health = Health(ready=True, problems=("the disk is nearly full",))
        status, health = await rest.call("GET", "/health")
        assert (status, health["status"]) == (200, "degraded")
        rest.health = Health(ready=False, problems=("replaying the log",))
        assert (await rest.call("GET", "/live"))[0] == 200
        for path in ("/ready", "/health"):
            status, problem = await rest.call("GET", path)
            assert (status, problem["code"]) == (503, "not_ready")
            assert "replaying the log" in problem["detail"]
        rest.health = Health(ready=False, live=False)
        assert (await rest.call("GET", "/live"))[0] == 503

    with_rest(scenario)


def test_the_index_lists_the_routes() -> None:
    async def scenario(rest: Rest) -> None:
        _, index = await rest.call("GET", "/")
        assert "POST /api/v1/produce" in index["routes"]
        assert "GET /metrics" in index["routes"]

    with_rest(scenario)


def test_cluster_and_agents_say_who_serves() -> None:
    async def scenario(rest: Rest) -> None:
        await rest.topic("t", 3)
        _, cluster = await rest.get("/cluster")
        assert (cluster["version"], cluster["agent"]) == ("9.9.9", "agent-1")
        assert (cluster["topic_count"], cluster["partition_count"]) == (1, 3)
        assert cluster["cluster_id"]
        _, [agent] = await rest.get("/agents")
        assert (agent["agent_id"], agent["zone"], agent["partition_count"]) == (
            "agent-1",
            "zone-a",
            3,
        )
        assert (await rest.get("/agents/agent-1"))[1] == agent

    with_rest(scenario)


def test_metrics_count_what_happened() -> None:
    async def scenario(rest: Rest) -> None:
        await rest.topic("t", 2)
        await rest.post("/produce/batch", {"topic": "t", "records": [{"value": "v"}] * 4})
        await rest.get("/nothing")
        async with rest.client.get("/metrics") as response:
            assert response.status == 200
            assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            lines = (await response.text()).splitlines()
        assert "streamhouse_append_records_total 4.0" in lines
        assert "streamhouse_partitions 2.0" in lines
        assert 'streamhouse_topic_high_watermark{topic="t"} 4.0' in lines
        assert 'streamhouse_http_requests_total{status="404"} 1.0' in lines
        assert any(line.startswith("process_resident_memory_bytes") for line in lines)

    with_rest(scenario)


def test_events_tell_changes_of_the_catalog() -> None:
    async def scenario(rest: Rest) -> None:
        await rest.topic("a")
        await rest.topic("b")
        _, events = await rest.get("/events")
        assert [event["kind"] for event in events] == ["topic_created", "topic_created"]
        _, later = await rest.get("/events", after=events[0]["seq"])
        assert later == events[1:]

    with_rest(scenario)


def test_a_stream_of_events_starts_where_the_reader_left_and_goes_on() -> None:
    async def scenario(rest: Rest) -> None:
        await rest.topic("a")
        await rest.topic("b")
        first = (await rest.get("/events"))[1][0]["seq"]
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(first)}
        async with rest.client.get(f"{API}/events", headers=headers) as response:
            assert response.content_type == "text/event-stream"
            assert "b" in json.dumps(await _next_event(response.content))
            await rest.topic("c")
            event = await _next_event(response.content)
            assert event["kind"] == "topic_created"
            assert event["seq"] > first + 1

    with_rest(scenario)


def test_a_stream_ends_when_the_server_stops() -> None:
    async def scenario(rest: Rest) -> None:
        headers = {"Accept": "text/event-stream"}
        async with rest.client.get(f"{API}/events", headers=headers) as response:
            assert await response.content.readline() == b"retry: 2000\n"
            await rest.client.app.shutdown()
            assert await asyncio.wait_for(response.content.read(), 2) == b"\n"

    with_rest(scenario)


async def _next_event(stream: asyncio.StreamReader) -> dict[str, int | str]:
    while True:
        line = await asyncio.wait_for(stream.readline(), 5)
        assert line, "the stream ended"
        if line.startswith(b"data: "):
            event: dict[str, int | str] = json.loads(line.removeprefix(b"data: "))
            return event


def test_bytes_that_are_not_http_leave_no_error_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Goal: hostile input is answered or cut off, logged by nobody, and others are served."""

    async def scenario(rest: Rest) -> None:
        runner = http_runner(rest.client.server.app)
        await runner.setup()
        assert runner.server is not None
        server = await asyncio.get_running_loop().create_server(runner.server, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        for garbage in (
            b"\x16\x03\x01\x02\x00\x01\x00",
            b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
            b"GET " + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n",
            b"POST /api/v1/topics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"POST /api/v1/topics HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(garbage)
            writer.write_eof()
            await asyncio.wait_for(reader.read(), 5)
            writer.close()
        assert (await rest.call("GET", "/live"))[0] == 200
        server.close()
        await server.wait_closed()

    with_rest(scenario)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_name_used_again_is_another_topic() -> None:
    async def scenario(rest: Rest) -> None:
        first = await rest.topic("t")
        await rest.post("/produce", {"topic": "t", "value": "old"})
        async with rest.client.delete(f"{API}/topics/t") as response:
            assert response.status == 204
        again = await rest.topic("t")
        assert again["topic_id"] != first["topic_id"]
        assert (await rest.get("/consume", topic="t", offset="earliest"))[1]["records"] == []

    with_rest(scenario)
