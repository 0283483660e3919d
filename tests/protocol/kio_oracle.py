"""kio as the second opinion: entities of any message, drawn by Hypothesis, and their bytes.

kio's native reader trusts array counts, so it is only ever given bytes that a writer made.
"""

import io
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin
from uuid import UUID

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
UUIDS = st.one_of(st.none(), st.integers(1, 2**128 - 1).map(lambda n: UUID(int=n)))


def ints(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": ints(8),
    "int16": ints(16),
    "int32": ints(32),
    "int64": ints(64),
    "uint16": st.integers(0, 2**16 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "float64": st.floats(allow_nan=False),
    "string": TEXT,
    "bytes": st.binary(max_size=40),
    "records": st.binary(max_size=300),
    "uuid": UUIDS,
    "error_code": st.sampled_from(ErrorCode),
    "timedelta_i32": ints(32).map(lambda ms: timedelta(milliseconds=ms)),
    "timedelta_i64": ints(50).map(lambda ms: timedelta(milliseconds=ms)),
    "datetime_i64": st.integers(0, 2**32).map(lambda s: datetime.fromtimestamp(s, UTC)),
}


def entities(entity: type[Any]) -> st.SearchStrategy[Any]:
    """Any value of a kio dataclass."""
    return st.builds(entity, **{f.name: _field(f) for f in fields(entity)})


def _field(field: Any) -> st.SearchStrategy[Any]:
    kind: Any = field.type
    nullable = False
    if get_origin(kind) in (UnionType, Union):
        (kind,) = (k for k in get_args(kind) if k is not NoneType)
        nullable = True
    is_array = get_origin(kind) is tuple
    if is_array:
        kind = get_args(kind)[0]
    name = field.metadata.get("kafka_type")  # only nested entities have none
    one = entities(kind) if name is None else PRIMITIVES[name]
    if is_array:
        one = st.lists(one, max_size=3).map(tuple)
    return st.one_of(st.none(), one) if nullable else one


def encode(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def decode(entity: type[Any], raw: bytes) -> Any:
    """The entity, which must fill `raw` to its end."""
    value, size = entity_reader(entity)(raw, 0)
    assert size == len(raw)
    return value


def plain(value: Any) -> Any:
    """What a handler would write: dicts, lists, ints, strings, UUIDs."""
    if is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    return int(value) if isinstance(value, ErrorCode) else value
