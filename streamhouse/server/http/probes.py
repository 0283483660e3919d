"""/live, /ready, /health and /metrics: for orchestrators and for Prometheus.

Live: the event loop answers. Ready: clients are served. Health: the same, with reasons.
"""

from http import HTTPStatus

from aiohttp import web

from streamhouse.server.health import Health
from streamhouse.server.http.parts import HttpParts
from streamhouse.server.http.problems import RETRY_AFTER_SECONDS, Problem

METRICS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class ProbeRoutes:
    def __init__(self, parts: HttpParts) -> None:
        self._parts = parts

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/live", self.live),
            web.get("/ready", self.ready),
            web.get("/health", self.health),
            web.get("/metrics", self.metrics),
        ]

    async def live(self, _: web.Request) -> web.Response:
        if not self._parts.health().live:
            raise Problem(
                HTTPStatus.SERVICE_UNAVAILABLE, "not_live", "this process must be restarted"
            )
        return web.json_response({"status": "live"})

    async def ready(self, _: web.Request) -> web.Response:
        _require_ready(self._parts.health())
        return web.json_response({"status": "ready"})

    async def health(self, _: web.Request) -> web.Response:
        parts = self._parts
        found = parts.health()
        _require_ready(found)
        return web.json_response(
            {
                "status": "degraded" if found.problems else "ok",
                "problems": list(found.problems),
                "agent_id": parts.identity.agent_id,
                "version": parts.identity.version,
                "started_ms": parts.identity.started_ms,
                "now_ms": parts.clock.now_ms(),
                "endpoints": dict(parts.endpoints()),
                "data_dir": parts.settings.data_dir,
            }
        )

    async def metrics(self, _: web.Request) -> web.Response:
        body = self._parts.render_metrics()
        return web.Response(body=body, headers={"Content-Type": METRICS_CONTENT_TYPE})


def _require_ready(health: Health) -> None:
    if health.ready:
        return
    reasons = "; ".join(health.problems) or "the server is starting or stopping"
    raise Problem(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "not_ready",
        f"{reasons}; try again in a moment",
        {"problems": list(health.problems)},
        {"Retry-After": RETRY_AFTER_SECONDS},
    )
