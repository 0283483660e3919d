"""The hand-written Produce codec against kio, every version, both directions."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import kio_oracle as oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode

from streamhouse.kafka_proto import produce
from streamhouse.kafka_proto.primitives import uvarint
from streamhouse.kafka_proto.produce import (
    NodeEndpoint,
    ProducePartitionResult,
    ProduceRequest,
    ProduceTopic,
    ProduceTopicResult,
)
from streamhouse.model.errors import DecodeError
from streamhouse.model.limits import PARTITIONS_PER_PROCESS_MAX

VERSIONS = range(produce.VERSION_MIN, produce.VERSION_MAX + 1)
SOME = settings(max_examples=20, deadline=None)
FEW = settings(max_examples=8, deadline=None)


def as_ours(request: Any) -> ProduceRequest:
    return ProduceRequest(
        request.transactional_id,
        request.acks,
        request.timeout // timedelta(milliseconds=1),
        [
            ProduceTopic(
                getattr(topic, "name", None),
                getattr(topic, "topic_id", None),
                [(p.index, p.records) for p in topic.partition_data],
            )
            for topic in request.topic_data
        ],
    )


@pytest.mark.parametrize("version", VERSIONS)
@SOME
@given(data=st.data())
def test_sh111_every_produce_request_is_understood(version: int, data: st.DataObject) -> None:
    request = data.draw(oracle.entities(load_request_schema(0, version)))
    raw = b"head" + oracle.encode(request) + b"junk"
    assert produce.decode_request(memoryview(raw), 4, version) == as_ours(request)


def partition_results(version: int) -> st.SearchStrategy[ProducePartitionResult]:
    return st.builds(
        ProducePartitionResult,
        partition=oracle.ints(32),
        error_code=st.sampled_from(ErrorCode).map(int),
        base_offset=oracle.ints(64),
        log_append_time_ms=st.one_of(st.just(-1), st.integers(0, 2**32).map(lambda s: s * 1000)),
        log_start_offset=oracle.ints(64) if version >= 5 else st.just(-1),
        record_errors=(
            st.lists(st.tuples(oracle.ints(32), st.none() | oracle.TEXT), max_size=2).map(tuple)
            if version >= 8
            else st.just(())
        ),
        error_message=st.none() | oracle.TEXT if version >= 8 else st.none(),
        current_leader=(
            st.none() | st.tuples(st.integers(0, 9), oracle.ints(32))
            if version >= 10
            else st.none()
        ),
    )


def topic_results(version: int) -> st.SearchStrategy[list[ProduceTopicResult]]:
    partitions = st.lists(partition_results(version), max_size=3)
    if version >= 13:
        one = st.builds(ProduceTopicResult, st.none(), oracle.UUIDS, partitions)
    else:
        one = st.builds(ProduceTopicResult, oracle.TEXT, st.none(), partitions)
    return st.lists(one, max_size=3)


def result_of(partition: Any) -> ProducePartitionResult:
    appended = partition.log_append_time
    leader = getattr(partition, "current_leader", None)
    return ProducePartitionResult(
        partition.index,
        int(partition.error_code),
        partition.base_offset,
        -1 if appended is None else round(appended.timestamp() * 1000),
        getattr(partition, "log_start_offset", -1),
        tuple(
            (e.batch_index, e.batch_index_error_message)
            for e in getattr(partition, "record_errors", ())
        ),
        getattr(partition, "error_message", None),
        None
        if leader is None or leader.leader_id == -1
        else (leader.leader_id, leader.leader_epoch),
    )


ENDPOINTS = st.lists(
    st.builds(NodeEndpoint, oracle.ints(32), oracle.TEXT, oracle.ints(32), st.none() | oracle.TEXT),
    max_size=2,
)


@pytest.mark.parametrize("version", VERSIONS)
@SOME
@given(data=st.data())
def test_sh111_every_produce_response_is_readable(version: int, data: st.DataObject) -> None:
    topics = data.draw(topic_results(version))
    endpoints = data.draw(ENDPOINTS) if version >= 10 else []
    throttle_ms = data.draw(st.integers(0, 2**31 - 1))
    frame = produce.encode_response(
        version, 77, topics, throttle_ms=throttle_ms, node_endpoints=endpoints
    )
    head = b"\x00\x00\x00\x4d" + (b"\x00" if version >= produce.VERSION_FLEXIBLE else b"")
    assert frame[:4] == (len(frame) - 4).to_bytes(4, "big")
    assert frame[4:].startswith(head)
    found = oracle.decode(load_response_schema(0, version), frame[4 + len(head) :])
    assert found.throttle_time == timedelta(milliseconds=throttle_ms)
    assert [
        ProduceTopicResult(
            getattr(topic, "name", None),
            getattr(topic, "topic_id", None),
            [result_of(p) for p in topic.partition_responses],
        )
        for topic in found.responses
    ] == topics
    if version >= 10:
        assert [
            NodeEndpoint(e.node_id, e.host, e.port, e.rack) for e in found.node_endpoints
        ] == endpoints


@pytest.mark.parametrize("version", VERSIONS)
@FEW
@given(data=st.data())
def test_hostile_produce_requests_give_decode_errors_only(
    version: int, data: st.DataObject
) -> None:
    raw = oracle.encode(data.draw(oracle.entities(load_request_schema(0, version))))
    for cut in range(len(raw)):
        with pytest.raises(DecodeError):
            produce.decode_request(memoryview(raw[:cut]), 0, version)
    changed = bytearray(raw)
    for at in range(len(raw)):
        changed[at] ^= data.draw(st.integers(1, 255))
        swallow(changed, version)
    swallow(data.draw(st.binary(max_size=80)), version)


def swallow(raw: bytes | bytearray, version: int) -> None:
    try:
        produce.decode_request(memoryview(raw), 0, version)
    except DecodeError:
        return


def one_partition(version: int, records: bytes) -> bytes:
    schema: Any = load_request_schema(0, version)
    topic_schema = schema.__dataclass_fields__["topic_data"].type.__args__[0]
    partition_schema = topic_schema.__dataclass_fields__["partition_data"].type.__args__[0]
    partition = partition_schema(index=3, records=records)
    return oracle.encode(
        schema(
            acks=-1,
            timeout=timedelta(seconds=30),
            topic_data=(topic_schema(name="t", partition_data=(partition,)),),
        )
    )


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize(
    "size", [0, 126, 127, 128, 16_382, 16_383, 16_384, 2_097_150, 2_097_151, 2_097_152]
)
def test_records_of_every_length_of_length_are_cut_out_whole(version: int, size: int) -> None:
    """Goal: the short cuts for lengths of two and three bytes agree with the long way."""
    records = bytes(size - 1) + b"z" if size else b""
    raw = one_partition(version, records)
    ((partition, found),) = produce.decode_request(memoryview(raw), 0, version).topics[0].partitions
    assert partition == 3
    assert found is not None
    assert bytes(found) == records


def test_records_are_a_writable_slice_of_the_frame() -> None:
    """Goal: the leader numbers a batch in the receive buffer, without a copy."""
    frame = bytearray(one_partition(9, b"x" * 200))
    ((_, records),) = produce.decode_request(memoryview(frame), 0, 9).topics[0].partitions
    assert records is not None
    records[:3] = b"abc"
    assert b"abcxxx" in frame


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("topic_count", [1, 2])
def test_more_partitions_than_a_process_may_have_are_refused(
    version: int, topic_count: int
) -> None:
    """Goal: a frame of tiny items must not become gigabytes of objects, however it is cut up."""
    count = PARTITIONS_PER_PROCESS_MAX // topic_count + 1
    if version == 8:
        topic = b"\x00\x01t" + count.to_bytes(4, "big")
        topic += b"\x00\x00\x00\x00\xff\xff\xff\xff" * count
        raw = b"\xff\xff" + bytes(6) + topic_count.to_bytes(4, "big") + topic * topic_count
    else:
        topic = b"\x02t" + uvarint(count + 1) + bytes(6) * count + b"\x00"
        raw = b"\x00" + bytes(6) + uvarint(topic_count + 1) + topic * topic_count + b"\x00"
    with pytest.raises(DecodeError, match="partition"):
        produce.decode_request(memoryview(raw), 0, version)


def test_the_all_zero_topic_id_is_no_id() -> None:
    raw = b"\x00" + bytes(6) + b"\x02" + bytes(16) + b"\x01\x00\x00"
    assert produce.decode_request(memoryview(raw), 0, 13).topics == [ProduceTopic(None, None, [])]
    frame = produce.encode_response(13, 1, [ProduceTopicResult(None, UUID(int=0), [])])
    assert bytes(16) in frame
