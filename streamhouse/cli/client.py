"""The server's REST API from the command line, by the standard library alone.

One kept-alive connection. A problem document of the server becomes CommandFailed with its detail; a
server that cannot be reached becomes CommandFailed with the next step.
"""

import http.client
import json
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import click

from streamhouse.cli.main import CommandFailed

DEFAULT_SERVER = "http://127.0.0.1:8080"
TIMEOUT_SECONDS = 60.0  # longer than any long poll
_REUSE_ERRORS = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)

F = TypeVar("F", bound=Callable[..., Any])


class Refused(CommandFailed):
    """The server answered with an error."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code


class Api:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        try:
            port = parts.port
        except ValueError:
            raise _not_an_address(url) from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise _not_an_address(url)
        self.url = f"{parts.scheme}://{parts.netloc}"
        secure = parts.scheme == "https"
        make = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        self._connection = make(parts.hostname, port, timeout=TIMEOUT_SECONDS)
        self._used = False

    def get(self, path: str, query: Mapping[str, object] | None = None) -> Any:
        asked = {name: value for name, value in (query or {}).items() if value is not None}
        return self._json("GET", f"{path}?{urlencode(asked)}" if asked else path, None)

    def post(self, path: str, body: Mapping[str, object]) -> Any:
        return self._json("POST", path, body)

    def patch(self, path: str, body: Mapping[str, object]) -> Any:
        return self._json("PATCH", path, body)

    def delete(self, path: str) -> None:
        self._json("DELETE", path, None)

    def close(self) -> None:
        self._connection.close()

    def _json(self, method: str, path: str, body: Mapping[str, object] | None) -> Any:
        status, raw = self._answer(
            method, path, None if body is None else json.dumps(body).encode()
        )
        try:
            found = json.loads(raw) if raw else None
        except ValueError:
            raise CommandFailed(
                f"{self.url} does not answer like StreamHouse; is --server right?"
            ) from None
        if status >= http.HTTPStatus.BAD_REQUEST:
            problem = found if isinstance(found, dict) else {}
            code = str(problem.get("code", "unknown"))
            raise Refused(status, code, str(problem.get("detail", f"HTTP status {status}")))
        return found

    def _answer(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        try:
            return self._exchange(method, path, body)
        except http.client.HTTPException as error:
            self._connection.close()
            raise CommandFailed(f"{self.url} broke off: {error!r}; see the server's log") from error
        except OSError as error:
            self._connection.close()
            raise CommandFailed(
                f"cannot reach {self.url}: {error.strerror or error}; is the server running? "
                "start it with: streamhouse server"
            ) from error

    def _exchange(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        connection = self._connection
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
        except _REUSE_ERRORS:
            # An idle connection may have been closed meanwhile. Only what changes nothing is
            # sent again by itself.
            connection.close()
            if method != "GET" or not self._used:
                raise
            connection.request(method, path, body, headers)
            response = connection.getresponse()
        self._used = True
        return response.status, response.read()


def _not_an_address(url: str) -> CommandFailed:
    return CommandFailed(f"{url!r} is not a server's address; write one such as {DEFAULT_SERVER}")


def segment_of_path(name: str) -> str:
    """A name as one segment of a path."""
    return quote(name, safe="")


def with_server(function: F) -> F:
    """Add --server and hand the command an `api`, closed at its end."""

    @click.option(
        "--server",
        envvar="STREAMHOUSE_SERVER",
        default=DEFAULT_SERVER,
        show_default=True,
        show_envvar=True,
        metavar="URL",
        help="Address of the server's REST API.",
    )
    @wraps(function)
    def wrapped(*args: Any, server: str, **kwargs: Any) -> Any:
        api = Api(server)
        try:
            return function(*args, api=api, **kwargs)
        finally:
            api.close()

    return wrapped  # type: ignore[return-value]
