"""Messages driven by kio's schemas: every served version, both ways, and hostile bytes."""

from typing import Any
from uuid import UUID

import kio_oracle as oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema

from streamhouse.kafka_proto import apis
from streamhouse.kafka_proto.messages import (
    BODY_BYTES_MAX,
    MessageMisuse,
    decode_request,
    encode_response,
)
from streamhouse.model.errors import DecodeError

BY_HAND = {apis.PRODUCE, apis.FETCH}
SERVED = [
    pytest.param(api.key, version, id=f"{api.name}-{version}")
    for api in apis.APIS.values()
    if api.key not in BY_HAND
    for version in range(api.served_min, api.version_max + 1)
]
FEW = settings(max_examples=8, deadline=None)


def response_body(api_key: int, version: int, frame: bytes) -> bytes:
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert frame[4:8] == b"\x00\x00\x00\x09"
    if not apis.has_tagged_response_header(api_key, version):
        return frame[8:]
    assert frame[8] == 0
    return frame[9:]


@pytest.mark.parametrize(("api_key", "version"), SERVED)
@FEW
@given(data=st.data())
def test_sh111_every_advertised_request_is_understood(
    api_key: int, version: int, data: st.DataObject
) -> None:
    """Goal: what Kafka's definitions allow in a request is read, field by field."""
    request = data.draw(oracle.entities(load_request_schema(api_key, version)))
    raw = oracle.encode(request)
    assert decode_request(api_key, version, memoryview(raw)) == request
    # a header before and junk behind change nothing
    assert decode_request(api_key, version, memoryview(b"head" + raw + b"junk"), 4) == request


@pytest.mark.parametrize(("api_key", "version"), SERVED)
@FEW
@given(data=st.data())
def test_sh111_every_advertised_response_can_be_written(
    api_key: int, version: int, data: st.DataObject
) -> None:
    """Goal: plain dicts become exactly the response that kio reads back."""
    schema = load_response_schema(api_key, version)
    response = data.draw(oracle.entities(schema))
    frame = encode_response(api_key, version, 9, oracle.plain(response))
    assert oracle.decode(schema, response_body(api_key, version, frame)) == response
    assert response_body(api_key, version, frame) == oracle.encode(response)


@pytest.mark.parametrize(("api_key", "version"), SERVED)
@FEW
@given(data=st.data())
def test_hostile_requests_give_decode_errors_only(
    api_key: int, version: int, data: st.DataObject
) -> None:
    raw = oracle.encode(data.draw(oracle.entities(load_request_schema(api_key, version))))
    for cut in range(len(raw)):
        with pytest.raises(DecodeError):
            decode_request(api_key, version, memoryview(raw[:cut]))
    changed = bytearray(raw)
    for at in range(len(raw)):
        changed[at] ^= data.draw(st.integers(1, 255))
        swallow(api_key, version, changed)
    swallow(api_key, version, data.draw(st.binary(max_size=60)))


def swallow(api_key: int, version: int, raw: bytes | bytearray) -> Any:
    try:
        return decode_request(api_key, version, memoryview(raw))
    except DecodeError:
        return None


@pytest.mark.parametrize("raw", [b"\x7f\xff\xff\xff" + bytes(20), b"\xff\xff\xff\xfe" + bytes(20)])
def test_an_array_count_is_believed_only_if_the_bytes_are_there(raw: bytes) -> None:
    """Goal: nine bytes must not allocate gigabytes (kio's own reader aborts the process here)."""
    with pytest.raises(DecodeError):
        decode_request(apis.METADATA, 4, memoryview(raw))


def test_a_request_above_the_body_limit_is_refused() -> None:
    with pytest.raises(DecodeError, match="allowed"):
        decode_request(apis.METADATA, 4, memoryview(bytearray(BODY_BYTES_MAX + 1)))


def test_fields_of_other_versions_are_left_out_and_defaults_filled_in() -> None:
    """Goal: a handler writes one dict for all versions of a message."""
    topic_id = UUID(int=7)
    values = {
        "brokers": [{"node_id": 1, "host": "h", "port": 9092}],
        "cluster_id": "c",
        "controller_id": 1,
        "topics": [
            {"error_code": 0, "name": "t", "topic_id": topic_id, "partitions": []},
        ],
    }
    for version in range(1, 13):
        schema = load_response_schema(apis.METADATA, version)
        frame = encode_response(apis.METADATA, version, 9, {**values, "topics": topics(values)})
        found = oracle.decode(schema, response_body(apis.METADATA, version, frame))
        assert found.topics[0].name == "t"
        assert found.topics[0].is_internal is False
        assert found.brokers[0].rack is None
        assert getattr(found.topics[0], "topic_id", topic_id) == topic_id


def topics(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**topic, "is_internal": False} for topic in values["topics"]]


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"error_code": 0, "api_keys": [], "surprise": 1}, "surprise"),
        ({"api_keys": []}, "error_code"),
        ({"error_code": 0, "api_keys": None}, "api_keys"),
        ({"error_code": "none", "api_keys": []}, "error_code"),
        ({"error_code": 1 << 20, "api_keys": []}, "error_code"),
    ],
)
def test_a_wrong_dict_is_named(values: dict[str, Any], what: str) -> None:
    """Goal: a typing mistake in a handler fails loudly, with the field's name."""
    with pytest.raises(MessageMisuse, match=what):
        encode_response(apis.API_VERSIONS, 2, 9, values)
