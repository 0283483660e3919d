"""/api/v1/cluster, /api/v1/agents and /api/v1/events: who serves, and what changed."""

import asyncio
import json
from http import HTTPStatus

from aiohttp import web

from streamhouse.model.errors import NotFound, Unavailable
from streamhouse.ports.metadata import Event
from streamhouse.server.http.fields import parse_integer, query_integer
from streamhouse.server.http.parts import HttpParts
from streamhouse.server.http.problems import Problem

EVENTS_DEFAULT = 100
EVENTS_MAX = 1_000
STREAMS_MAX = 100
STREAM_POLL_SECONDS = 0.5
STREAM_SILENCE_POLLS_MAX = 30  # then a comment goes out, so that proxies keep the connection
STREAM_RETRY_MS = 2_000


class ClusterRoutes:
    """One agent lives in this process; in a cluster the store will know of the others."""

    def __init__(self, parts: HttpParts) -> None:
        self._parts = parts
        self._stopping = asyncio.Event()

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/cluster", self.cluster),
            web.get("/agents", self.agents),
            web.get("/agents/{agent}", self.agent),
            web.get("/events", self.events),
        ]

    async def stop_streams(self, _: web.Application) -> None:
        """Streams never end by themselves; at shutdown they must."""
        self._stopping.set()

    async def cluster(self, _: web.Request) -> web.Response:
        parts, catalog = self._parts, self._parts.agent.catalog
        return web.json_response(
            {
                "cluster_id": await parts.metadata.cluster_id(),
                "version": parts.identity.version,
                "agent": parts.identity.agent_id,
                "agent_count": 1,
                "topic_count": len(catalog.topics()),
                "partition_count": len(catalog.partitions),
                "endpoints": dict(parts.endpoints()),
            }
        )

    async def agents(self, _: web.Request) -> web.Response:
        return web.json_response([self._agent_json()])

    async def agent(self, request: web.Request) -> web.Response:
        asked, known = request.match_info["agent"], self._parts.identity.agent_id
        if asked != known:
            raise NotFound(f"there is no agent {asked!r}; this process runs {known!r}")
        return web.json_response(self._agent_json())

    async def events(self, request: web.Request) -> web.StreamResponse:
        if "text/event-stream" in request.headers.get("Accept", ""):
            return await self._stream(request)
        after = query_integer(request, "after", 0)
        limit = query_integer(request, "limit", EVENTS_DEFAULT, low=1, high=EVENTS_MAX)
        found = await self._parts.metadata.events_after(after, limit)
        return web.json_response([_event_json(event) for event in found])

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        after = _resume_after(request)
        counters = self._parts.counters
        if counters.streams_open >= STREAMS_MAX:
            raise Problem(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "too_many_streams",
                f"{STREAMS_MAX} event streams are open already; close some, or poll without Accept",
            )
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        )
        counters.streams_open += 1
        try:
            await response.prepare(request)
            await response.write(f"retry: {STREAM_RETRY_MS}\n\n".encode())
            await self._send_events(response, after)
        except ConnectionError:
            pass  # the reader went away, which is how these streams usually end
        finally:
            counters.streams_open -= 1
        return response

    async def _send_events(self, response: web.StreamResponse, after: int) -> None:
        silent_polls = 0
        while not self._stopping.is_set():
            try:
                found = await self._parts.metadata.events_after(after, EVENTS_DEFAULT)
            except Unavailable:
                found = []  # the store is away for a moment; nothing is missed by waiting
            for event in found:
                await response.write(_event_frame(event))
                after = event.seq
            silent_polls = 0 if found else silent_polls + 1
            if silent_polls >= STREAM_SILENCE_POLLS_MAX:
                await response.write(b": still here\n\n")
                silent_polls = 0
            if len(found) < EVENTS_DEFAULT:
                await self._pause()

    async def _pause(self) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), STREAM_POLL_SECONDS)
        except TimeoutError:
            return

    def _agent_json(self) -> dict[str, object]:
        parts = self._parts
        return {
            "agent_id": parts.identity.agent_id,
            "status": "active" if parts.health().ready else "starting",
            "zone": parts.identity.zone,
            "address": parts.endpoints().get("kafka", ""),
            "partition_count": len(parts.agent.catalog.partitions),
            "started_ms": parts.identity.started_ms,
            "version": parts.identity.version,
        }


def _resume_after(request: web.Request) -> int:
    """A browser that reconnects says in Last-Event-ID what it saw last."""
    last = parse_integer(request.headers.get("Last-Event-ID", ""))
    return query_integer(request, "after", 0) if last is None else max(last, 0)


def _event_json(event: Event) -> dict[str, object]:
    return {
        "seq": event.seq,
        "at_ms": event.at_ms,
        "kind": event.kind,
        "key": event.key,
        "detail": event.detail,
    }


def _event_frame(event: Event) -> bytes:
    data = json.dumps(_event_json(event))
    return f"id: {event.seq}\nevent: {event.kind}\ndata: {data}\n\n".encode()
