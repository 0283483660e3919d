"""A record in JSON, in both directions.

In: a text is stored as its UTF-8 bytes, null as nothing (a tombstone), any other JSON value as
compact JSON, and `*_base64` carries bytes. Out: text where the bytes are valid UTF-8, else base64,
which `encoding` says for the record and `key_encoding`, `value_encoding` for each part.
"""

import json
from base64 import b64decode, b64encode
from binascii import Error as Base64Error

from streamhouse.model.records import NewRecord, Record, RecordHeader
from streamhouse.server.http.fields import Fields, checked_text
from streamhouse.server.http.problems import bad_request

RECORD_FIELDS = frozenset(
    {"key", "key_base64", "value", "value_base64", "partition", "headers", "timestamp"}
)
HEADERS_PER_RECORD_MAX = 1_000


def read_record(fields: Fields) -> tuple[int | None, NewRecord]:
    """(partition or None, record) of one JSON object."""
    if not fields.has("value") and not fields.has("value_base64"):
        raise bad_request(
            "missing_field",
            f"{fields.path('value')} is required (null writes a tombstone); "
            "bytes go into value_base64",
        )
    record = NewRecord(
        key=_bytes_of(fields, "key"),
        value=_bytes_of(fields, "value"),
        headers=_read_headers(fields),
        timestamp_ms=fields.integer_or_none("timestamp"),
    )
    return fields.integer_or_none("partition", high=2**31 - 1), record


def record_json(record: Record, partition: int) -> dict[str, object]:
    """One record as `consume` and `messages` show it."""
    key, key_encoding = _text_of(record.key)
    value, value_encoding = _text_of(record.value)
    shown: dict[str, object] = {
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": key,
        "value": value,
        "headers": [_header_json(header) for header in record.headers],
    }
    if key_encoding:
        shown["key_encoding"] = key_encoding
    if value_encoding:
        shown["value_encoding"] = value_encoding
    if key_encoding or value_encoding:
        shown["encoding"] = "base64"
    return shown


def _bytes_of(fields: Fields, name: str) -> bytes | None:
    encoded = f"{name}_base64"
    if fields.get(encoded) is None:
        return _bytes_of_json(fields.path(name), fields.get(name))
    if fields.get(name) is not None:
        raise bad_request(
            "invalid_field", f"{fields.path(name)} and {encoded} exclude each other; send one"
        )
    try:
        return b64decode(fields.text_or(encoded, ""), validate=True)
    except (Base64Error, ValueError):
        raise bad_request("invalid_field", f"{fields.path(encoded)} is not base64") from None


def _bytes_of_json(where: str, value: object) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return checked_text(where, value).encode()
    try:
        packed = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    except RecursionError:
        raise bad_request("invalid_field", f"{where} is nested too deeply") from None
    return checked_text(where, packed).encode()


def _read_headers(fields: Fields) -> tuple[RecordHeader, ...]:
    """An object {name: value}, or a list of {name, value} where names repeat or order matters."""
    value = fields.get("headers")
    if value is None:
        return ()
    if not isinstance(value, dict | list):
        fields.refuse("headers", "an object, or a list of {name, value}", value)
    if len(value) > HEADERS_PER_RECORD_MAX:
        fields.refuse("headers", f"at most {HEADERS_PER_RECORD_MAX} headers", len(value))
    if isinstance(value, dict):
        return tuple(_header(fields.path(f"headers.{name}"), name, v) for name, v in value.items())
    found = []
    for item in fields.objects("headers"):
        item.only({"name", "value", "value_base64"})
        found.append(RecordHeader(item.text("name"), _bytes_of(item, "value")))
    return tuple(found)


def _header(where: str, name: str, value: object) -> RecordHeader:
    return RecordHeader(checked_text(where, name), _bytes_of_json(where, value))


def _header_json(header: RecordHeader) -> dict[str, object]:
    value, encoding = _text_of(header.value)
    if encoding:
        return {"name": header.name, "value": value, "encoding": encoding}
    return {"name": header.name, "value": value}


def _text_of(data: bytes | None) -> tuple[str | None, str]:
    """(text, "" or "base64")."""
    if data is None:
        return None, ""
    try:
        return data.decode(), ""
    except UnicodeDecodeError:
        return b64encode(data).decode("ascii"), "base64"
