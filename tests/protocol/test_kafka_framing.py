"""Frames, headers, the table of APIs and the list of error codes."""

import struct
from typing import Any

import kio_oracle as oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.schema.request_header.v1.header import RequestHeader as HeaderV1
from kio.schema.request_header.v2.header import RequestHeader as HeaderV2
from kio.static.constants import EntityType

from streamhouse.kafka_proto import apis
from streamhouse.kafka_proto.apis import UnsupportedRequest
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.framing import (
    FRAME_BYTES_MIN,
    RequestHeader,
    encode_response_frame,
    frame_size,
    parse_request_header,
    split_frames,
)
from streamhouse.kafka_proto.primitives import read_tags, read_uvarint, uvarint
from streamhouse.model.errors import DecodeError
from streamhouse.model.limits import FRAME_BYTES_MAX

SERVED = [
    pytest.param(api.key, version, id=f"{api.name}-{version}")
    for api in apis.APIS.values()
    for version in range(api.served_min, api.version_max + 1)
]


@pytest.mark.parametrize("size", [-(2**31), -1, 0, FRAME_BYTES_MIN - 1, FRAME_BYTES_MAX + 1])
def test_a_frame_outside_the_limits_is_refused(size: int) -> None:
    with pytest.raises(DecodeError):
        frame_size(struct.pack(">i", size))


def test_whole_frames_are_cut_out_and_the_rest_waits() -> None:
    one, two = bytes(range(10)), bytes(30)
    raw = struct.pack(">i", 10) + one + struct.pack(">i", 30) + two
    for cut in range(len(raw) + 1):
        frames, taken = split_frames(memoryview(raw[:cut]))
        whole = (cut >= 14) + (cut >= len(raw))
        assert [bytes(f) for f in frames] == [one, two][:whole]
        assert taken == [0, 14, len(raw)][whole]
    with pytest.raises(DecodeError):
        split_frames(memoryview(raw), bytes_max=29)


@pytest.mark.parametrize(("api_key", "version"), SERVED)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_request_headers_are_read_as_kio_writes_them(
    api_key: int, version: int, data: st.DataObject
) -> None:
    schema: Any = load_request_schema(api_key, version).__header_schema__
    assert (schema is HeaderV2) == apis.is_flexible(api_key, version)
    assert (schema is HeaderV1) != apis.is_flexible(api_key, version)
    client_id = data.draw(st.none() | oracle.TEXT)
    header = schema(
        request_api_key=api_key,
        request_api_version=version,
        correlation_id=data.draw(oracle.ints(32)),
        client_id=client_id,
    )
    raw = oracle.encode(header)
    assert parse_request_header(memoryview(raw + b"body")) == RequestHeader(
        api_key, version, header.correlation_id, client_id, len(raw)
    )
    for cut in range(len(raw)):
        with pytest.raises(DecodeError):
            parse_request_header(memoryview(raw[:cut]))


@settings(max_examples=200, deadline=None)
@given(raw=st.binary(max_size=60), served=st.sampled_from(SERVED))
def test_hostile_headers_give_decode_errors_only(raw: bytes, served: "pytest.ParameterSet") -> None:
    for frame in (raw, struct.pack(">hh", *served.values) + raw):
        try:
            parse_request_header(memoryview(frame))
        except DecodeError:
            continue


def test_tagged_fields_of_a_header_are_skipped() -> None:
    raw = struct.pack(">hhih", apis.METADATA, 12, 5, -1) + b"\x02\x00\x01x\x09\x02yy" + b"body"
    assert parse_request_header(memoryview(raw)).body_at == len(raw) - 4


@pytest.mark.parametrize(
    ("api_key", "version"),
    [(0, 2), (0, 14), (0, -1), (1, 3), (4, 0), (99, 0), (-1, 0), (18, 5), (18, -1)],
)
def test_what_is_not_served_is_told_apart(api_key: int, version: int) -> None:
    """Goal: the door closes, or answers ApiVersions, knowing the correlation id."""
    with pytest.raises(UnsupportedRequest) as caught:
        parse_request_header(memoryview(struct.pack(">hhih", api_key, version, 42, 30000)))
    assert caught.value.correlation_id == 42
    assert caught.value.is_api_versions == (api_key == 18)


@pytest.mark.parametrize(("api_key", "version"), SERVED)
def test_response_headers_follow_kio(api_key: int, version: int) -> None:
    schema: Any = load_response_schema(api_key, version).__header_schema__
    header = schema(correlation_id=42)
    frame = encode_response_frame(api_key, version, 42, b"body")
    assert frame[4:] == oracle.encode(header) + b"body"
    assert frame[:4] == struct.pack(">i", len(frame) - 4)


def test_sh111_the_table_offers_only_what_kafka_defines() -> None:
    for api in apis.APIS.values():
        versions = schema_name_map[api_key_map[api.key]]
        for version in range(api.served_min, api.version_max + 1):
            assert EntityType.request in versions[version]
        assert api.version_min <= api.served_min <= api.version_max
        assert api.name.lower() == api_key_map[api.key].replace("_", "")


def test_first_flexible_versions_are_kafkas() -> None:
    assert set(apis.FIRST_FLEXIBLE) == set(api_key_map)
    for api_key, name in api_key_map.items():
        for version, paths in schema_name_map[name].items():
            if EntityType.request in paths:
                schema = load_request_schema(api_key, version)
                assert schema.__flexible__ == apis.is_flexible(api_key, version), (name, version)


def test_the_markdown_table_has_a_row_per_api() -> None:
    lines = apis.markdown_table().splitlines()
    assert len(lines) == 2 + len(apis.APIS)
    assert "| 1 | Fetch | 4-18 |  |" in lines
    assert any("| 0 | Produce | 3-13 | offered from 0" in line for line in lines)


def test_error_codes_are_kafkas() -> None:
    assert {e.name: e.value for e in ErrorCode} == {
        e.name.upper(): int(e.value) for e in KioErrorCode
    }


@settings(max_examples=100, deadline=None)
@given(value=st.integers(0, 2**32 - 1))
def test_uvarints_survive_a_round_trip(value: int) -> None:
    assert read_uvarint(uvarint(value) + b"x", 0) == (value, len(uvarint(value)))


@pytest.mark.parametrize(
    "raw", [b"", b"\x80", b"\xff\xff\xff\xff\xff\x01", b"\xff\xff\xff\xff\x1f", b"\x80" * 9]
)
def test_uvarints_that_are_not_are_refused(raw: bytes) -> None:
    with pytest.raises(DecodeError):
        read_uvarint(raw, 0)


@pytest.mark.parametrize(
    "raw",
    [b"\x02\x01\x00\x01\x00", b"\x02\x02\x00\x01\x00", b"\x01\x00\x05abcd", b"\x7f\x00\x00"],
)
def test_tags_out_of_order_or_cut_short_are_refused(raw: bytes) -> None:
    with pytest.raises(DecodeError):
        read_tags(raw, 0)
