"""The hand-written Fetch codec against kio, every version, both directions."""

from datetime import timedelta
from typing import Any

import kio_oracle as oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode

from streamhouse.kafka_proto import fetch
from streamhouse.kafka_proto.fetch import (
    FetchHints,
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchTopic,
    FetchTopicResult,
    ForgottenTopic,
)
from streamhouse.kafka_proto.primitives import uvarint
from streamhouse.kafka_proto.produce import NodeEndpoint
from streamhouse.model.errors import DecodeError
from streamhouse.model.limits import PARTITIONS_PER_PROCESS_MAX

VERSIONS = range(fetch.VERSION_MIN, fetch.VERSION_MAX + 1)
SOME = settings(max_examples=20, deadline=None)
FEW = settings(max_examples=6, deadline=None)


def as_ours(request: Any) -> FetchRequest:
    replica = getattr(request, "replica_state", request)
    return FetchRequest(
        replica.replica_id,
        request.max_wait // timedelta(milliseconds=1),
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        getattr(request, "session_id", 0),
        getattr(request, "session_epoch", -1),
        [
            FetchTopic(
                getattr(topic, "topic", None),
                getattr(topic, "topic_id", None),
                [
                    FetchPartition(
                        p.partition,
                        getattr(p, "current_leader_epoch", -1),
                        p.fetch_offset,
                        getattr(p, "last_fetched_epoch", -1),
                        getattr(p, "log_start_offset", -1),
                        p.partition_max_bytes,
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ],
        [
            ForgottenTopic(
                getattr(topic, "topic", None),
                getattr(topic, "topic_id", None),
                list(topic.partitions),
            )
            for topic in getattr(request, "forgotten_topics_data", ())
        ],
        getattr(request, "rack_id", ""),
        getattr(replica, "replica_epoch", -1),
        getattr(request, "cluster_id", None),
    )


@pytest.mark.parametrize("version", VERSIONS)
@SOME
@given(data=st.data())
def test_sh111_every_fetch_request_is_understood(version: int, data: st.DataObject) -> None:
    request = data.draw(oracle.entities(load_request_schema(1, version)))
    raw = b"head" + oracle.encode(request) + b"junk"
    assert fetch.decode_request(memoryview(raw), 4, version) == as_ours(request)


PAIRS = st.tuples(oracle.ints(32), oracle.ints(32))


@st.composite
def partition_results(draw: st.DrawFn, version: int) -> FetchPartitionResult:
    records = draw(st.lists(st.binary(min_size=1, max_size=200), max_size=3))
    hints = draw(
        st.none()
        | st.builds(
            FetchHints,
            st.none() | st.tuples(st.integers(0, 9), oracle.ints(64)),
            st.none() | st.tuples(st.integers(0, 9), oracle.ints(32)),
            st.none() | st.tuples(st.integers(0, 9), oracle.ints(32)),
        )
    )
    return FetchPartitionResult(
        draw(oracle.ints(32)),
        int(draw(st.sampled_from(ErrorCode))),
        draw(oracle.ints(64)),
        draw(oracle.ints(64)),
        draw(oracle.ints(64)) if version >= 5 else -1,
        records,
        sum(map(len, records)),
        draw(st.none() | st.lists(st.tuples(oracle.ints(64), oracle.ints(64)), max_size=2)),
        draw(oracle.ints(32)) if version >= 11 else -1,
        hints if version >= 12 else None,
    )


def topic_results(version: int) -> st.SearchStrategy[list[FetchTopicResult]]:
    partitions = st.lists(partition_results(version), max_size=3)
    if version >= 13:
        one = st.builds(FetchTopicResult, st.none(), oracle.UUIDS, partitions)
    else:
        one = st.builds(FetchTopicResult, oracle.TEXT, st.none(), partitions)
    return st.lists(one, max_size=3)


def assert_same(found: Any, expected: FetchPartitionResult, version: int) -> None:
    assert found.partition_index == expected.partition
    assert found.error_code == expected.error_code
    assert found.high_watermark == expected.high_watermark
    assert found.last_stable_offset == expected.last_stable_offset
    assert getattr(found, "log_start_offset", -1) == expected.log_start_offset
    assert getattr(found, "preferred_read_replica", -1) == expected.preferred_read_replica
    assert found.records == b"".join(expected.records)
    aborted = found.aborted_transactions
    assert expected.aborted == (
        None if aborted is None else [(a.producer_id, a.first_offset) for a in aborted]
    )
    if version >= 12:
        hints = expected.hints or FetchHints()
        diverging, leader, snapshot = found.diverging_epoch, found.current_leader, found.snapshot_id
        assert (diverging.epoch, diverging.end_offset) == (hints.diverging_epoch or (-1, -1))
        assert (leader.leader_id, leader.leader_epoch) == (hints.current_leader or (-1, -1))
        assert (snapshot.end_offset, snapshot.epoch) == (hints.snapshot_id or (-1, -1))


@pytest.mark.parametrize("version", VERSIONS)
@SOME
@given(data=st.data())
def test_sh111_every_fetch_response_is_readable(version: int, data: st.DataObject) -> None:
    topics = data.draw(topic_results(version))
    endpoints = [NodeEndpoint(1, "a", 9, None), NodeEndpoint(2, "b", 9, "r")][: len(topics)]
    session_id = data.draw(oracle.ints(32))
    buffers = fetch.encode_response(
        version,
        77,
        topics,
        throttle_ms=5,
        error_code=70,
        session_id=session_id,
        node_endpoints=endpoints,
    )
    frame = b"".join(buffers)
    head = b"\x00\x00\x00\x4d" + (b"\x00" if version >= fetch.VERSION_FLEXIBLE else b"")
    assert frame[:4] == (len(frame) - 4).to_bytes(4, "big")
    assert frame[4:].startswith(head)
    found = oracle.decode(load_response_schema(1, version), frame[4 + len(head) :])
    assert found.throttle_time == timedelta(milliseconds=5)
    if version >= 7:
        assert (found.error_code, found.session_id) == (70, session_id)
    if version >= 16:
        assert [
            NodeEndpoint(e.node_id, e.host, e.port, e.rack) for e in found.node_endpoints
        ] == endpoints
    assert len(found.responses) == len(topics)
    for topic, expected in zip(found.responses, topics, strict=True):
        assert getattr(topic, "topic", None) == expected.name
        assert getattr(topic, "topic_id", None) == expected.topic_id
        for one, other in zip(topic.partitions, expected.partitions, strict=True):
            assert_same(one, other, version)


@pytest.mark.parametrize("version", [4, 7, 11, 12, 18])
def test_records_are_sent_without_a_copy(version: int) -> None:
    """Goal: the very buffers of the log are in the answer, in order."""
    records = [memoryview(bytes(100)), memoryview(bytes(50))]
    result = FetchPartitionResult(0, 0, 9, 9, 0, records, 150)
    topic = FetchTopicResult("t", None, [result, result])
    buffers = fetch.encode_response(version, 1, [topic])
    assert [id(b) for b in buffers if isinstance(b, memoryview)] == [id(r) for r in records] * 2
    assert all(len(b) for b in buffers)


@pytest.mark.parametrize("version", VERSIONS)
@FEW
@given(data=st.data())
def test_hostile_fetch_requests_give_decode_errors_only(version: int, data: st.DataObject) -> None:
    raw = oracle.encode(data.draw(oracle.entities(load_request_schema(1, version))))
    for cut in range(len(raw)):
        with pytest.raises(DecodeError):
            fetch.decode_request(memoryview(raw[:cut]), 0, version)
    changed = bytearray(raw)
    for at in range(len(raw)):
        changed[at] ^= data.draw(st.integers(1, 255))
        swallow(changed, version)
    swallow(data.draw(st.binary(max_size=80)), version)


def swallow(raw: bytes | bytearray, version: int) -> None:
    try:
        fetch.decode_request(memoryview(raw), 0, version)
    except DecodeError:
        return


@pytest.mark.parametrize("version", [4, 12])
@pytest.mark.parametrize("topic_count", [1, 2])
def test_more_partitions_than_a_process_may_have_are_refused(
    version: int, topic_count: int
) -> None:
    """Goal: a frame of tiny items must not become gigabytes of objects, however it is cut up."""
    count = PARTITIONS_PER_PROCESS_MAX // topic_count + 1
    if version == 4:
        topic = b"\x00\x01t" + count.to_bytes(4, "big") + bytes(16) * count
        raw = bytes(17) + topic_count.to_bytes(4, "big") + topic * topic_count
    else:
        topic = b"\x02t" + uvarint(count + 1) + bytes(33) * count + b"\x00"
        raw = bytes(25) + uvarint(topic_count + 1) + topic * topic_count + b"\x01\x01\x00"
    with pytest.raises(DecodeError, match=r"array|more than"):
        fetch.decode_request(memoryview(raw), 0, version)
