"""Errors as HTTP tells them: application/problem+json with a stable `code` (RFC 9457).

Owns the one table from our errors to statuses. Must not know which handler raised. Invariant: no
response carries a traceback; what nobody expected is logged once, here, and answered with 500.
"""

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus

from aiohttp import web
from aiohttp.typedefs import Handler

from streamhouse.model.errors import (
    AlreadyExists,
    Corrupt,
    Fenced,
    Invalid,
    NotFound,
    OffsetOutOfRange,
    OutcomeUnknown,
    StreamhouseError,
    Unavailable,
)
from streamhouse.model.limits import HTTP_BODY_BYTES_MAX
from streamhouse.model.topic import InvalidConfig, InvalidPartitionCount, InvalidTopicName

log = logging.getLogger(__name__)

CONTENT_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = "1"

# First match wins: subclasses stand before their parents.
_KNOWN: tuple[tuple[type[StreamhouseError], HTTPStatus, str], ...] = (
    (NotFound, HTTPStatus.NOT_FOUND, "not_found"),
    (AlreadyExists, HTTPStatus.CONFLICT, "already_exists"),
    (OffsetOutOfRange, HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, "offset_out_of_range"),
    (InvalidTopicName, HTTPStatus.BAD_REQUEST, "invalid_topic_name"),
    (InvalidPartitionCount, HTTPStatus.BAD_REQUEST, "invalid_partition_count"),
    (InvalidConfig, HTTPStatus.BAD_REQUEST, "invalid_config"),
    (Invalid, HTTPStatus.BAD_REQUEST, "invalid_request"),
    (Unavailable, HTTPStatus.SERVICE_UNAVAILABLE, "unavailable"),
    (Fenced, HTTPStatus.SERVICE_UNAVAILABLE, "fenced"),
    (OutcomeUnknown, HTTPStatus.SERVICE_UNAVAILABLE, "may_have_happened"),
    (Corrupt, HTTPStatus.INTERNAL_SERVER_ERROR, "corrupt"),
)


class Problem(Exception):
    """An error that only HTTP knows: raised by handlers, answered by the middleware."""

    def __init__(
        self,
        status: HTTPStatus,
        code: str,
        detail: str,
        extra: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.extra = extra or {}
        self.headers = headers or {}


def bad_request(code: str, detail: str) -> Problem:
    return Problem(HTTPStatus.BAD_REQUEST, code, detail)


@web.middleware
async def answer_problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn whatever a handler raises into a problem document."""
    try:
        return await handler(request)
    except Problem as problem:
        return problem_response(problem)
    except StreamhouseError as error:
        return problem_response(problem_of(error))
    except web.HTTPException as error:
        if error.status < HTTPStatus.BAD_REQUEST:
            raise
        return problem_response(_problem_of_http(request, error))
    except Exception:
        log.exception("%s %s failed", request.method, request.path)
        return problem_response(_unexpected())


def problem_response(problem: Problem) -> web.Response:
    body = {
        "type": f"urn:streamhouse:problem:{problem.code}",
        "title": problem.status.phrase,
        "status": int(problem.status),
        "code": problem.code,
        "detail": problem.detail,
        **problem.extra,
    }
    return web.Response(
        status=problem.status,
        text=json.dumps(body) + "\n",
        content_type=CONTENT_TYPE,
        headers=problem.headers,
    )


def problem_of(error: StreamhouseError) -> Problem:
    """The problem that stands for one of our own errors."""
    refused = _kafka_refusal(error)
    if refused is not None:
        return refused
    found = next(((status, code) for kind, status, code in _KNOWN if isinstance(error, kind)), None)
    if found is None:
        log.error("an error without a status: %r", error)
        return _unexpected()
    status, code = found
    if isinstance(error, OffsetOutOfRange):
        extra = {"log_start": error.log_start, "high_watermark": error.high_watermark}
        return Problem(status, code, str(error), extra)
    if isinstance(error, Corrupt):
        log.error("stored data is damaged: %s", error)
        detail = f"{error}; run 'streamhouse segments verify' on the server's store"
        return Problem(status, code, detail)
    if status is HTTPStatus.SERVICE_UNAVAILABLE:
        return Problem(status, code, _advice(error), headers={"Retry-After": RETRY_AFTER_SECONDS})
    return Problem(status, code, str(error))


def _advice(error: StreamhouseError) -> str:
    if isinstance(error, OutcomeUnknown):
        return f"{error}; it may have happened: look before you repeat the request"
    return f"{error}; nothing was written, repeat the request in a moment"


def _kafka_refusal(error: StreamhouseError) -> Problem | None:
    """The append path refuses with Kafka's own code; its name is stable, so it becomes ours."""
    name = getattr(getattr(error, "code", None), "name", None)
    if not isinstance(name, str):
        return None
    too_large = name in ("MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE")
    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE if too_large else HTTPStatus.BAD_REQUEST
    return Problem(status, name.lower(), str(error))


def _problem_of_http(request: web.Request, error: web.HTTPException) -> Problem:
    """What aiohttp itself refuses: routes, methods, body size."""
    status = HTTPStatus(error.status)
    match status:
        case HTTPStatus.NOT_FOUND:
            detail = f"there is nothing at {request.path}; GET / lists the routes"
            return Problem(status, "route_not_found", detail)
        case HTTPStatus.METHOD_NOT_ALLOWED:
            allowed = error.headers.get("Allow", "")
            detail = f"{request.method} is not possible here; use {allowed}"
            return Problem(status, "method_not_allowed", detail, headers={"Allow": allowed})
        case HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            detail = f"a body has at most {HTTP_BODY_BYTES_MAX} bytes; send several smaller ones"
            return Problem(status, "body_too_large", detail)
        case _:
            return Problem(status, status.name.lower(), error.reason)


def _unexpected() -> Problem:
    return Problem(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "internal_error",
        "the server met something unexpected and wrote it to its log; "
        "look before you repeat a write, it may have happened",
    )
