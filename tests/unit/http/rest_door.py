"""The HTTP door on a real agent: memory WAL and objects, SQLite in memory, a real socket."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from aiohttp.test_utils import TestClient, TestServer

from streamhouse.agent.options import AgentOptions
from streamhouse.agent.service import AgentPorts, AgentService
from streamhouse.groups.service import GroupOptions, GroupService
from streamhouse.metadata.sqlite import SqliteMetadata
from streamhouse.metrics.exposition import MetricSources, render
from streamhouse.model.settings import Settings
from streamhouse.objects.memory import MemoryObjects
from streamhouse.server.health import Health
from streamhouse.server.http.app import build_http
from streamhouse.server.http.parts import AgentIdentity, HttpCounters, HttpParts
from streamhouse.system import SystemClock, SystemIds, ThreadWorkers
from streamhouse.wal.memory_wal import MemoryWal

API = "/api/v1"


@dataclass(slots=True)
class Rest:
    client: Any  # aiohttp's TestClient
    agent: AgentService
    groups: GroupService
    wal: MemoryWal
    health: Health
    fatal: list[BaseException]

    async def call(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        """(status, decoded body). Errors must be problem documents, whatever went wrong."""
        if "json" in options:
            options["data"] = json.dumps(options.pop("json")).encode()
        if "data" in options:
            options["data"] = BytesIO(options["data"])  # aiohttp warns of large plain bytes
        async with self.client.request(method, path, **options) as response:
            body = await response.json(content_type=None)
            if response.status >= 400:
                assert response.content_type == "application/problem+json", await response.text()
                assert body["status"] == response.status
                assert {"type", "title", "code", "detail"} <= body.keys()
                assert "Traceback" not in body["detail"]
            return response.status, body

    async def get(self, path: str, **query: Any) -> tuple[int, Any]:
        params = {name: str(value) for name, value in query.items()}
        return await self.call("GET", API + path, params=params)

    async def post(self, path: str, body: object) -> tuple[int, Any]:
        return await self.call("POST", API + path, json=body)

    async def topic(self, name: str, partition_count: int = 1, **fields: Any) -> Any:
        body = {"name": name, "partition_count": partition_count, **fields}
        status, topic = await self.post("/topics", body)
        assert status == 201, topic
        return topic


@asynccontextmanager
async def rest_door() -> AsyncIterator[Rest]:
    clock, ids, workers = SystemClock(), SystemIds(), ThreadWorkers()
    metadata = await SqliteMetadata.open(":memory:", ids=ids)
    wal = MemoryWal()
    fatal: list[BaseException] = []
    ports = AgentPorts(metadata, MemoryObjects(), wal, workers, clock, ids)
    agent = AgentService(ports, AgentOptions("agent-1", "run-1"), on_fatal=fatal.append)
    await agent.start()
    groups = GroupService(metadata, clock, ids, GroupOptions(0), on_fatal=fatal.append)
    await groups.start()
    counters = HttpCounters()
    sources = MetricSources(agent=agent, wal=wal, http=counters)
    rest = Rest(None, agent, groups, wal, Health(ready=True), fatal)
    parts = HttpParts(
        agent=agent,
        groups=groups,
        metadata=metadata,
        settings=Settings(default_partitions=2),
        identity=AgentIdentity("agent-1", "9.9.9", clock.now_ms(), "zone-a"),
        clock=clock,
        health=lambda: rest.health,
        render_metrics=lambda: render(sources),
        endpoints=lambda: {"kafka": "127.0.0.1:9092"},
        counters=counters,
    )
    async with TestClient(TestServer(build_http(parts))) as client:
        rest.client = client
        yield rest
    await groups.stop()
    await agent.stop()
    workers.close()
    await metadata.close()
    assert not fatal


def with_rest(scenario: Callable[[Rest], Awaitable[None]]) -> None:
    async def run() -> None:
        async with rest_door() as rest:
            await scenario(rest)

    asyncio.run(run())
