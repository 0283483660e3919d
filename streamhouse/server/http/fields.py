"""Bodies and queries, checked at the door: past it nobody looks at raw JSON.

Every refusal names the field, what was expected and what came.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from typing import NoReturn

from aiohttp import web

from streamhouse.server.http.problems import bad_request

INT64_MAX = 2**63 - 1
_SHOWN_CHARS_MAX = 60


class Fields:
    """One JSON object of a request; each getter refuses what is not of its type."""

    def __init__(self, values: Mapping[str, object], where: str = "") -> None:
        self._values = values
        self._where = where

    def only(self, known: Collection[str]) -> "Fields":
        """Refuse members outside `known`: a misspelt name must not be ignored silently."""
        for name in self._values:
            if name not in known:
                listed = ", ".join(sorted(known))
                raise bad_request(
                    "unknown_field", f"{self.path(name)} is not known here; known are {listed}"
                )
        return self

    def has(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str) -> object:
        """The value as it came; None if absent."""
        return self._values.get(name)

    def text(self, name: str) -> str:
        value = self._required(name)
        if not isinstance(value, str) or not value:
            self.refuse(name, "a text that is not empty", value)
        return checked_text(self.path(name), value)

    def text_or(self, name: str, default: str) -> str:
        value = self._values.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            self.refuse(name, "a text", value)
        return checked_text(self.path(name), value)

    def integer(self, name: str, low: int = 0, high: int = INT64_MAX) -> int:
        value = self._required(name)
        # bool is an int for Python, but true is no number for anyone else.
        if type(value) is not int or not low <= value <= high:
            self.refuse(name, f"a whole number from {low} to {high}", value)
        return value

    def integer_or_none(self, name: str, low: int = 0, high: int = INT64_MAX) -> int | None:
        return None if self._values.get(name) is None else self.integer(name, low, high)

    def object_or_empty(self, name: str) -> Mapping[str, object]:
        value = self._values.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.refuse(name, "an object", value)
        return value

    def objects(self, name: str) -> "Iterator[Fields]":
        value = self._required(name)
        if not isinstance(value, list):
            self.refuse(name, "a list of objects", value)
        return self._objects(name, value)

    def path(self, name: str) -> str:
        return f"{self._where}.{name}" if self._where else name

    def refuse(self, name: str, expected: str, value: object) -> NoReturn:
        raise bad_request(
            "invalid_field", f"{self.path(name)} must be {expected}, not {shown(value)}"
        )

    def _objects(self, name: str, values: list[object]) -> "Iterator[Fields]":
        for index, item in enumerate(values):
            where = f"{self.path(name)}[{index}]"
            if not isinstance(item, dict):
                raise bad_request("invalid_field", f"{where} must be an object, not {shown(item)}")
            yield Fields(item, where)

    def _required(self, name: str) -> object:
        if name not in self._values:
            raise bad_request("missing_field", f"{self.path(name)} is required")
        return self._values[name]


async def read_body(request: web.Request) -> Fields:
    """The JSON object in the body, whatever its Content-Type says (curl -d sends a form's)."""
    try:
        raw = await request.read()
    except (ConnectionError, web.RequestPayloadError):
        # If the client has gone, nobody reads this; raised to aiohttp it would be logged as ours.
        raise bad_request(
            "body_unreadable", "the body ended early or its encoding is broken"
        ) from None
    try:
        value = json.loads(raw, parse_constant=_refuse_constant)
    except RecursionError:
        raise bad_request("invalid_json", "the body is nested too deeply") from None
    except ValueError as error:
        raise bad_request("invalid_json", f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise bad_request("invalid_json", f"the body must be a JSON object, not {shown(value)}")
    return Fields(value)


def query_integer(
    request: web.Request, name: str, default: int, low: int = 0, high: int = INT64_MAX
) -> int:
    raw = request.query.get(name)
    if raw is None:
        return default
    value = parse_integer(raw)
    if value is None or not low <= value <= high:
        raise bad_request(
            "invalid_parameter",
            f"{name} must be a whole number from {low} to {high}, not {shown(raw)}",
        )
    return value


def query_text(request: web.Request, name: str) -> str:
    raw = request.query.get(name)
    if not raw:
        raise bad_request("missing_parameter", f"the parameter {name} is required: ?{name}=...")
    return checked_text(name, raw)


def parse_integer(raw: str) -> int | None:
    """Plain decimal digits only: no spaces, signs other than '-', or underscores."""
    digits = raw.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > len(str(INT64_MAX)):
        return None
    return int(raw)


def checked_text(where: str, value: str) -> str:
    """Refuse lone surrogates: JSON can carry them, UTF-8 cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise bad_request("invalid_field", f"{where} is not valid Unicode") from None
    return value


def shown(value: object) -> str:
    """A value as an error message may repeat it."""
    try:
        text = json.dumps(value)
    except RecursionError:
        text = "something deeply nested"
    return text if len(text) <= _SHOWN_CHARS_MAX else text[:_SHOWN_CHARS_MAX] + "..."


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
