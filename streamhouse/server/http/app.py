"""The HTTP door: which routes there are, and how the server behind them behaves.

`build_http` makes the application; `http_runner` wraps it for the composition root, which picks the
address and starts and stops it.
"""

import logging

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler, Middleware

from streamhouse.model.limits import HTTP_BODY_BYTES_MAX
from streamhouse.server.http.cluster import ClusterRoutes
from streamhouse.server.http.consume import ConsumeRoutes
from streamhouse.server.http.groups import GroupRoutes
from streamhouse.server.http.parts import HttpCounters, HttpParts
from streamhouse.server.http.probes import ProbeRoutes
from streamhouse.server.http.problems import answer_problems
from streamhouse.server.http.produce import ProduceRoutes
from streamhouse.server.http.topics import TopicRoutes

API_PREFIX = "/api/v1"
SHUTDOWN_SECONDS_MAX = 2.0  # long polls still open then are cut
KEEPALIVE_SECONDS = 75.0
_METHODS_SHOWN = ("GET", "POST", "PATCH", "PUT", "DELETE")


def build_http(parts: HttpParts) -> web.Application:
    """The application with all routes; it holds no state of its own but counters and streams."""
    app = web.Application(
        middlewares=[_counting(parts.counters), answer_problems],
        client_max_size=HTTP_BODY_BYTES_MAX,
    )
    cluster = ClusterRoutes(parts)
    records = (TopicRoutes(parts), ProduceRoutes(parts), ConsumeRoutes(parts))
    for room in (*records, GroupRoutes(parts), cluster):
        app.add_routes([_under_api(route) for route in room.routes()])
    app.add_routes(ProbeRoutes(parts).routes())
    app.on_shutdown.append(cluster.stop_streams)
    listed: list[str] = []

    async def index(_: web.Request) -> web.Response:
        about = {"name": "streamhouse", "version": parts.identity.version, "routes": listed}
        return web.json_response(about)

    app.router.add_get("/", index)
    listed += _routes_of(app)
    return app


def http_runner(app: web.Application) -> web.AppRunner:
    """No access log; hostile bytes on the port are not worth an ERROR line."""
    logger = logging.getLogger(f"{__name__}.wire")
    logger.addFilter(_is_our_fault)
    return web.AppRunner(
        app,
        access_log=None,
        logger=logger,
        keepalive_timeout=KEEPALIVE_SECONDS,
        shutdown_timeout=SHUTDOWN_SECONDS_MAX,
    )


def _is_our_fault(record: logging.LogRecord) -> bool:
    """Let everything pass but complaints about requests that are not HTTP."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError)


def _counting(counters: HttpCounters) -> Middleware:
    @web.middleware
    async def count(request: web.Request, handler: Handler) -> web.StreamResponse:
        counters.requests_in_flight += 1
        try:
            response = await handler(request)
        finally:
            counters.requests_in_flight -= 1
        counters.count(response.status)
        return response

    return count


def _under_api(route: web.RouteDef) -> web.RouteDef:
    return web.RouteDef(route.method, API_PREFIX + route.path, route.handler, route.kwargs)


def _routes_of(app: web.Application) -> list[str]:
    """'METHOD /path' of every route, for people who look around."""
    return sorted(
        f"{route.method} {route.resource.canonical}"
        for route in app.router.routes()
        if route.resource is not None and route.method in _METHODS_SHOWN
    )
