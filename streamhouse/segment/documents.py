"""Small JSON documents that carry their own checksum.

A document is one JSON object with `kind`, `format_version` and `crc32c`. The checksum is that of
the canonical form of all other members (sorted names, no spaces, ASCII), so white space is free and
everything else is protected. Readers ignore members they do not know.
"""

import json
from collections.abc import Mapping
from typing import NoReturn
from uuid import UUID

from crc32c import crc32c

from streamhouse.model.errors import Corrupt, DecodeError
from streamhouse.model.limits import MIB
from streamhouse.segment.layout import OFFSET_MAX, Buffer

FORMAT_VERSION = 1
DOCUMENT_BYTES_MAX = 64 * MIB


class Fields:
    """A decoded object; each getter raises DecodeError saying where a member is wrong."""

    def __init__(self, values: Mapping[str, object], where: str) -> None:
        self._values = values
        self._where = where

    def integer(self, name: str, low: int = 0, high: int = OFFSET_MAX) -> int:
        value = self._get(name)
        if type(value) is not int or not low <= value <= high:
            self._refuse(name, f"an integer from {low} to {high}", value)
        return value

    def text(self, name: str) -> str:
        value = self._get(name)
        if not isinstance(value, str) or not value:
            self._refuse(name, "a text", value)
        return value

    def crc(self, name: str) -> int:
        value = self.text(name)
        if len(value) != 8 or not set(value) <= set("0123456789abcdef"):
            self._refuse(name, "8 hexadecimal digits", value)
        return int(value, 16)

    def uuid(self, name: str) -> UUID:
        value = self.text(name)
        try:
            found = UUID(value)
        except ValueError:
            self._refuse(name, "a UUID", value)
        if str(found) != value:
            self._refuse(name, "a UUID in its usual form", value)
        return found

    def objects(self, name: str) -> "list[Fields]":
        value = self._get(name)
        if not isinstance(value, list):
            self._refuse(name, "a list", value)
        found = []
        for number, item in enumerate(value):
            where = f"{self._where}.{name}[{number}]"
            if not isinstance(item, dict):
                raise DecodeError(f"{where} is {_short(item)}, expected an object")
            found.append(Fields(item, where))
        return found

    def _get(self, name: str) -> object:
        if name not in self._values:
            raise DecodeError(f"{self._where}.{name} is missing")
        return self._values[name]

    def _refuse(self, name: str, expected: str, value: object) -> NoReturn:
        raise DecodeError(f"{self._where}.{name} is {_short(value)}, expected {expected}")


def encode_document(kind: str, fields: Mapping[str, object]) -> bytes:
    document = {**fields, "kind": kind, "format_version": FORMAT_VERSION}
    document["crc32c"] = f"{crc32c(_canonical(document)):08x}"
    return _canonical(document) + b"\n"


def decode_document(kind: str, data: Buffer) -> Fields:
    """Raises DecodeError for what is not such a document, Corrupt for a wrong checksum."""
    document = _parse(kind, data)
    fields = Fields(document, kind)
    if fields.text("kind") != kind:
        raise DecodeError(f"this is a {fields.text('kind')!r} document, expected {kind!r}")
    version = fields.integer("format_version")
    if version != FORMAT_VERSION:
        raise DecodeError(
            f"{kind} has format version {version}; this reader knows {FORMAT_VERSION}"
        )
    expected = fields.crc("crc32c")
    rest = {name: value for name, value in document.items() if name != "crc32c"}
    try:
        computed = crc32c(_canonical(rest))
    except RecursionError as error:
        raise DecodeError(f"{kind} is nested too deeply") from error
    if computed != expected:
        raise Corrupt(f"{kind} has checksum {computed:08x}, expected {expected:08x}")
    return Fields(rest, kind)


def _parse(kind: str, data: Buffer) -> dict[str, object]:
    if len(data) > DOCUMENT_BYTES_MAX:
        raise DecodeError(f"{kind} has {len(data)} bytes; at most {DOCUMENT_BYTES_MAX} are allowed")
    try:
        document = json.loads(bytes(data).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"{kind} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise DecodeError(f"{kind} is {_short(document)}, expected an object")
    return document


def _canonical(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode("ascii")


def _short(value: object) -> str:
    if isinstance(value, dict | list):  # never shown: it may be huge, or nested without end
        return "an object" if isinstance(value, dict) else "a list"
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
