"""Every message that is not on the hot path, driven by kio's generated schemas.

Owns: request bytes -> kio's dataclass of that version, and plain dicts -> response frames.
Must not know: what any message means.
Behaviour: kio supplies the field lists (generated from Kafka's own definitions), not the parser:
its native reader allocates what an array count announces, so that nine hostile bytes abort the
process. The reader here checks counts against the bytes that are left. Bytes behind a request are
ignored, as Kafka does. Values follow kio's types in requests (timedelta for times, None for the
all-zero id); responses are written from plain ints, strings, UUIDs, lists and dicts.
Invariant: hostile input gives DecodeError and nothing else; a dict that does not fit the message
is our own mistake and gives MessageMisuse.
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, fields
from datetime import UTC, datetime, timedelta
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin
from uuid import UUID

from streamhouse.kafka_proto.apis import APIS
from streamhouse.kafka_proto.framing import encode_response_frame
from streamhouse.kafka_proto.primitives import (
    NO_UUID,
    compact_string,
    read_span,
    read_tags,
    read_uvarint,
    short_string,
    skip_tags,
    tagged,
    uuid_of,
    uvarint,
)
from streamhouse.model.errors import DecodeError
from streamhouse.model.limits import MIB

BODY_BYTES_MAX: Final = 16 * MIB  # of a request; the objects it becomes are some ten times larger

Reader = Callable[[memoryview, int], tuple[Any, int]]
Writer = Callable[[Any], bytes]

_MS: Final = timedelta(milliseconds=1)
_HOSTILE: Final = (struct.error, IndexError, ValueError, OverflowError)


class MessageMisuse(Exception):
    """A handler wrote a field that no version of the message has, or left out a needed one."""


def decode_request(api_key: int, version: int, frame: memoryview, at: int = 0) -> Any:
    """The request whose body begins at `at`, as kio's dataclass. Raises DecodeError only."""
    if len(frame) - at > BODY_BYTES_MAX:
        raise DecodeError(f"a request of {len(frame) - at} bytes; {BODY_BYTES_MAX} are allowed")
    read = _request_reader(api_key, version)
    try:
        return read(frame, at)[0]
    except _HOSTILE as error:
        raise DecodeError(f"{APIS[api_key].name} {version}: {error}") from error


def encode_response(
    api_key: int, version: int, correlation_id: int, values: Mapping[str, Any]
) -> bytes:
    """The whole response frame, with size prefix and header.

    `values` are named as in kio's newest version of the message. Fields that `version` does not
    have are left out; missing ones take Kafka's default, and throttle_time is 0.
    """
    write = _response_writer(api_key, version)
    return encode_response_frame(api_key, version, correlation_id, write(values))


def warm(api_keys: Iterable[int]) -> None:
    """Load the newest version of these messages, so that no first request pays for it."""
    for key in api_keys:
        _request_reader(key, APIS[key].version_max)
        _response_writer(key, APIS[key].version_max)


@cache
def _request_reader(api_key: int, version: int) -> Reader:
    from kio.index import load_request_schema  # costs tens of ms, so not before it is needed

    return _entity_reader(load_request_schema(api_key, version))


@cache
def _response_writer(api_key: int, version: int) -> Writer:
    from kio.index import load_response_schema

    return _entity_writer(load_response_schema(api_key, version), api_key)


# Shapes: what kio's annotations say


class _Shape:
    """One field of a message."""

    def __init__(self, field: "Field[Any]") -> None:
        kind, self.nullable = _without_none(field.type)
        self.is_array = get_origin(kind) is tuple
        if self.is_array:
            kind = get_args(kind)[0]
        self.name = field.name
        self.tag: int | None = field.metadata.get("tag")
        self.kafka_type: str | None = field.metadata.get("kafka_type")  # None: a nested entity
        self.entity = kind if self.kafka_type is None else None
        self.default: Any = field.default


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) in (UnionType, Union):
        kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
        assert len(kinds) == 1, annotation
        return kinds[0], True
    return annotation, False


def _shapes(entity: type[Any]) -> tuple[list[_Shape], dict[int, _Shape]]:
    """Fields written in place, and tagged fields by tag in ascending order."""
    shapes = [_Shape(field) for field in fields(entity)]
    by_tag = {shape.tag: shape for shape in shapes if shape.tag is not None}
    return [s for s in shapes if s.tag is None], dict(sorted(by_tag.items()))


# Readers


def _entity_reader(entity: type[Any]) -> Reader:
    flexible: bool = entity.__flexible__
    inline, by_tag = _shapes(entity)
    readers = [(shape.name, _field_reader(shape, flexible)) for shape in inline]
    tag_readers = {
        tag: (shape.name, _field_reader(shape, flexible)) for tag, shape in by_tag.items()
    }

    def read(buf: memoryview, at: int) -> tuple[Any, int]:
        values: dict[str, Any] = {}
        for name, read_field in readers:
            values[name], at = read_field(buf, at)
        if not flexible:
            return entity(**values), at
        if not tag_readers:
            return entity(**values), skip_tags(buf, at)
        found, at = read_tags(buf, at)
        for tag, start, end in found:
            if tag in tag_readers:
                name, read_field = tag_readers[tag]
                values[name], stop = read_field(buf[:end], start)
                if stop != end:
                    raise DecodeError(f"tagged field {name} ends at byte {stop}, not {end}")
        return entity(**values), at

    return read


def _field_reader(shape: _Shape, flexible: bool) -> Reader:
    if shape.entity is not None:
        one = _entity_reader(shape.entity)
        if shape.nullable and not shape.is_array and shape.tag is None:
            return _nullable_entity_reader(one)
    else:
        assert shape.kafka_type is not None
        one = _primitive_reader(shape.kafka_type, flexible, shape.nullable and not shape.is_array)
    return _array_reader(one, flexible, shape) if shape.is_array else one


def _nullable_entity_reader(one: Reader) -> Reader:
    def read(buf: memoryview, at: int) -> tuple[Any, int]:
        return (None, at + 1) if buf[at] >= 0x80 else one(buf, at + 1)  # KIP-893: a signed byte

    return read


def _array_reader(one: Reader, flexible: bool, shape: _Shape) -> Reader:
    read_length = _compact_length if flexible else _plain_length

    def read(buf: memoryview, at: int) -> tuple[Any, int]:
        count, at = read_length(buf, at)
        if count is None:
            if not shape.nullable:
                raise DecodeError(f"{shape.name} is null")
            return None, at
        if count > len(buf) - at:  # each item has at least one byte
            raise DecodeError(f"{shape.name}: {count} items in {len(buf) - at} bytes")
        items = []
        for _ in range(count):
            item, at = one(buf, at)
            items.append(item)
        return tuple(items), at

    return read


def _compact_length(buf: memoryview, at: int) -> tuple[int | None, int]:
    length, at = read_uvarint(buf, at)
    return (length - 1 if length else None), at


def _plain_length(buf: memoryview, at: int) -> tuple[int | None, int]:
    length: int = _INT32.unpack_from(buf, at)[0]
    if length < -1:
        raise DecodeError(f"length {length} at byte {at}")
    return (length if length >= 0 else None), at + 4


def _short_length(buf: memoryview, at: int) -> tuple[int | None, int]:
    length: int = _INT16.unpack_from(buf, at)[0]
    if length < -1:
        raise DecodeError(f"length {length} at byte {at}")
    return (length if length >= 0 else None), at + 2


def _primitive_reader(kafka_type: str, flexible: bool, nullable: bool) -> Reader:
    if kafka_type == "string":
        length = _compact_length if flexible else _short_length
        return _bytes_reader(length, lambda span: str(span, "utf-8"), nullable)
    if kafka_type in ("bytes", "records"):
        return _bytes_reader(_compact_length if flexible else _plain_length, bytes, nullable)
    if kafka_type == "uuid":
        return _read_uuid
    packer, convert = _FIXED[kafka_type]

    def read(buf: memoryview, at: int) -> tuple[Any, int]:
        value = packer.unpack_from(buf, at)[0]
        return (value if convert is None else convert(value)), at + packer.size

    return read


def _bytes_reader(
    read_length: Callable[[memoryview, int], tuple[int | None, int]],
    convert: Callable[[memoryview], Any],
    nullable: bool,
) -> Reader:
    def read(buf: memoryview, at: int) -> tuple[Any, int]:
        length, at = read_length(buf, at)
        if length is None:
            if not nullable:
                raise DecodeError(f"null at byte {at} where a value must be")
            return None, at
        end = read_span(buf, at, length)
        return convert(buf[at:end]), end

    return read


def _read_uuid(buf: memoryview, at: int) -> tuple[UUID | None, int]:
    end = read_span(buf, at, 16)
    return uuid_of(bytes(buf[at:end])), end


def _timedelta_of(ms: int) -> timedelta:
    return timedelta(milliseconds=ms)


def _datetime_of(ms: int) -> datetime | None:
    return None if ms == -1 else datetime.fromtimestamp(ms / 1000, UTC)


_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_FIXED: Final[Mapping[str, tuple[struct.Struct, Callable[[Any], Any] | None]]] = {
    "bool": (struct.Struct(">B"), bool),
    "int8": (struct.Struct(">b"), None),
    "int16": (_INT16, None),
    "int32": (_INT32, None),
    "int64": (_INT64, None),
    "uint8": (struct.Struct(">B"), None),
    "uint16": (struct.Struct(">H"), None),
    "uint32": (struct.Struct(">I"), None),
    "uint64": (struct.Struct(">Q"), None),
    "float64": (struct.Struct(">d"), None),
    "error_code": (_INT16, None),
    "timedelta_i32": (_INT32, _timedelta_of),
    "timedelta_i64": (_INT64, _timedelta_of),
    "datetime_i64": (_INT64, _datetime_of),
}


# Writers


def _entity_writer(entity: type[Any], api_key: int) -> Writer:
    flexible: bool = entity.__flexible__
    inline, by_tag = _shapes(entity)
    writers = [(s.name, _field_writer(s, flexible, api_key), _default(s)) for s in inline]
    tag_writers = [
        (tag, s.name, write_field, _default_bytes(s, write_field))
        for tag, s in by_tag.items()
        for write_field in (_field_writer(s, flexible, api_key),)
    ]
    names = frozenset(f.name for f in fields(entity))

    def put(name: str, write_field: Writer, value: Any) -> bytes:
        if value is MISSING:
            raise MessageMisuse(f"{entity.__name__} needs {name}")
        try:
            return write_field(value)
        except (struct.error, TypeError, AttributeError, OverflowError) as error:
            raise MessageMisuse(f"{entity.__name__}.{name} = {value!r}: {error}") from error

    def write(values: Any) -> bytes:
        if not isinstance(values, Mapping):  # a default of kio's
            values = {name: getattr(values, name) for name in names}
        _check_names(values, names, api_key)
        parts = [put(name, one, values.get(name, default)) for name, one, default in writers]
        if flexible:
            found = []
            for tag, name, one, default in tag_writers:
                if name in values and (raw := put(name, one, values[name])) != default:
                    found.append((tag, raw))
            parts.append(tagged(found))
        return b"".join(parts)

    return write


def _default(shape: _Shape) -> Any:
    return 0 if shape.name == "throttle_time" else shape.default


def _default_bytes(shape: _Shape, write_field: Writer) -> bytes | None:
    """What a tagged field is left out for. Null has no bytes unless the type has room for it."""
    if shape.default is None and shape.kafka_type != "uuid":
        return None
    if shape.default is not MISSING:
        return write_field(shape.default)
    if shape.is_array:
        return write_field(())
    return write_field("" if shape.kafka_type == "string" else 0)


def _check_names(values: Mapping[str, Any], names: frozenset[str], api_key: int) -> None:
    """Names of other versions are fine; names of none are a typing mistake."""
    if not values.keys() <= names:
        unknown = values.keys() - names - _names_newest(api_key)
        if unknown and not unknown <= _names_all(api_key):
            raise MessageMisuse(f"no {APIS[api_key].name} response has {sorted(unknown)}")


@cache
def _names_newest(api_key: int) -> frozenset[str]:
    return _names_of(api_key, APIS[api_key].version_max)


@cache
def _names_all(api_key: int) -> frozenset[str]:
    api = APIS[api_key]
    versions = range(api.served_min, api.version_max + 1)
    return frozenset().union(*(_names_of(api_key, version) for version in versions))


def _names_of(api_key: int, version: int) -> frozenset[str]:
    from kio.index import load_response_schema

    names: set[str] = set()
    todo: list[type[Any]] = [load_response_schema(api_key, version)]
    while todo:
        for shape in map(_Shape, fields(todo.pop())):
            names.add(shape.name)
            if shape.entity is not None:
                todo.append(shape.entity)
    return frozenset(names)


def _field_writer(shape: _Shape, flexible: bool, api_key: int) -> Writer:
    if shape.entity is not None:
        one = _entity_writer(shape.entity, api_key)
        if shape.nullable and not shape.is_array and shape.tag is None:
            return _nullable_entity_writer(one)
    else:
        assert shape.kafka_type is not None
        one = _primitive_writer(shape.kafka_type, flexible, shape.nullable and not shape.is_array)
    return _array_writer(one, flexible, shape) if shape.is_array else one


def _nullable_entity_writer(one: Writer) -> Writer:
    return lambda value: b"\xff" if value is None else b"\x01" + one(value)


def _array_writer(one: Writer, flexible: bool, shape: _Shape) -> Writer:
    def write(values: Any) -> bytes:
        if values is None:
            if not shape.nullable:
                raise TypeError("must not be null")
            return b"\x00" if flexible else b"\xff\xff\xff\xff"
        count = uvarint(len(values) + 1) if flexible else _INT32.pack(len(values))
        return count + b"".join([one(value) for value in values])

    return write


def _primitive_writer(kafka_type: str, flexible: bool, nullable: bool) -> Writer:
    if kafka_type == "string":
        return _not_null(compact_string if flexible else short_string, nullable)
    if kafka_type in ("bytes", "records"):
        return _not_null(_compact_bytes if flexible else _plain_bytes, nullable)
    if kafka_type == "uuid":
        return _write_uuid
    pack = _FIXED[kafka_type][0].pack
    match kafka_type:
        case "timedelta_i32" | "timedelta_i64":
            return lambda value: pack(value // _MS if isinstance(value, timedelta) else value)
        case "datetime_i64":
            return lambda value: pack(_milliseconds(value))
    return pack


def _not_null(one: Writer, nullable: bool) -> Writer:
    if nullable:
        return one

    def write(value: Any) -> bytes:
        if value is None:
            raise TypeError("must not be null")
        return one(value)

    return write


def _compact_bytes(value: bytes | None) -> bytes:
    return b"\x00" if value is None else uvarint(len(value) + 1) + value


def _plain_bytes(value: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if value is None else _INT32.pack(len(value)) + value


def _write_uuid(value: UUID | None) -> bytes:
    return NO_UUID if value is None else value.bytes


def _milliseconds(value: datetime | int | None) -> int:
    if value is None:
        return -1
    return value if isinstance(value, int) else round(value.timestamp() * 1000)
