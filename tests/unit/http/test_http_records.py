"""Records through REST: what goes in comes out, and nothing is taken for something else."""

import asyncio
from base64 import b64encode
from typing import Any

import pytest

from streamhouse.model.murmur2 import partition_for_key
from streamhouse.model.records import NewRecord
from streamhouse.server.http.produce import cut_groups, record_bytes_max
from tests.unit.http.rest_door import API, Rest, with_rest


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ({"value": "text é"}, {"value": "text é", "key": None}),
        ({"value": None, "key": "k"}, {"value": None, "key": "k"}),
        ({"value": ""}, {"value": ""}),
        ({"value": {"b": [1, 2.5, None], "é": True}}, {"value": '{"b":[1,2.5,null],"é":true}'}),
        ({"value": 7, "key": 8}, {"value": "7", "key": "8"}),
        ({"value": False}, {"value": "false"}),
        ({"value_base64": "aGk="}, {"value": "hi"}),
        (
            {"value_base64": "/w==", "key_base64": "AP8="},
            {
                "value": "/w==",
                "key": "AP8=",
                "encoding": "base64",
                "key_encoding": "base64",
                "value_encoding": "base64",
            },
        ),
        ({"value": "x", "timestamp": 1234}, {"timestamp": 1234}),
        (
            {"value": "x", "headers": {"a": "1", "b": None, "c": {"d": 1}}},
            {
                "headers": [
                    {"name": "a", "value": "1"},
                    {"name": "b", "value": None},
                    {"name": "c", "value": '{"d":1}'},
                ]
            },
        ),
        (
            {
                "value": "x",
                "headers": [{"name": "a", "value": "1"}, {"name": "a", "value_base64": "/w=="}],
            },
            {
                "headers": [
                    {"name": "a", "value": "1"},
                    {"name": "a", "value": "/w==", "encoding": "base64"},
                ]
            },
        ),
    ],
)
def test_a_record_comes_back_as_it_was_sent(
    sent: dict[str, object], shown: dict[str, object]
) -> None:
    async def scenario(rest: Rest) -> None:
        await rest.topic("t")
        status, place = await rest.post("/produce", {"topic": "t", **sent})
        assert status == 200, place
        assert (place["partition"], place["offset"]) == (0, 0)
        _, found = await rest.get("/consume", topic="t", offset=0)
        [record] = found["records"]
        assert record["timestamp"] == place["timestamp"]
        for name, value in shown.items():
            assert record[name] == value
        text_only = "encoding" not in shown
        assert ("encoding" in record) != text_only

    with_rest(scenario)


def test_sh_112_a_key_lands_where_kafka_clients_put_it() -> None:
    async def scenario(rest: Rest) -> None:
        await rest.topic("t", 7)
        for number in range(30):
            key = f"key-{number}"
            _, place = await rest.post("/produce", {"topic": "t", "key": key, "value": "v"})
            assert place["partition"] == partition_for_key(key.encode(), 7)

    with_rest(scenario)


def test_murmur2_is_kafkas() -> None:
    """Goal: the values that Apache Kafka's own UtilsTest holds for its murmur2."""
    expected = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    for key, signed in expected.items():
        assert partition_for_key(key, 1 << 31) == signed & 0x7FFFFFFF


def test_a_batch_is_answered_in_its_own_order() -> None:
    async def scenario(rest: Rest) -> None:
        await rest.topic("t", 3)
        records = [{"value": str(n), "partition": n % 3} for n in range(9)]
        status, answer = await rest.post("/produce/batch", {"topic": "t", "records": records})
        assert (status, answer["count"]) == (200, 9)
        places = [(o["partition"], o["offset"]) for o in answer["offsets"]]
        assert places == [(n % 3, n // 3) for n in range(9)]

    with_rest(scenario)


def test_a_batch_larger_than_a_kafka_batch_is_cut_in_order() -> None:
    """Goal: only a single record can be too large, and then nothing is written."""

    async def scenario(rest: Rest) -> None:
        await rest.topic("t", 1, config={"max.message.bytes": 1000})
        records = [{"value": f"{n:0300d}"} for n in range(20)]
        status, answer = await rest.post("/produce/batch", {"topic": "t", "records": records})
        assert status == 200, answer
        assert [o["offset"] for o in answer["offsets"]] == list(range(20))
        _, found = await rest.get("/consume", topic="t", offset=0)
        assert [int(r["value"]) for r in found["records"]] == list(range(20))
        records[19] = {"value": "x" * 1000}
        status, problem = await rest.post("/produce/batch", {"topic": "t", "records": records})
        assert (status, problem["code"]) == (413, "message_too_large")
        assert "records[19]" in problem["detail"]
        _, after = await rest.get("/consume", topic="t", offset=0)
        assert after["high_watermark"] == 20

    with_rest(scenario)


def test_groups_keep_every_record_once() -> None:
    records: list[tuple[int | None, NewRecord]] = [
        (None, NewRecord(None, b"x" * size)) for size in (10, 400, 1, 1, 499, 2)
    ]
    groups = list(cut_groups(records, 600))
    assert [placed for group in groups for placed in group] == records
    assert len(groups) > 1
    for group in groups:
        assert 61 + sum(record_bytes_max(record) for _, record in group) <= 600


@pytest.mark.parametrize("acks", ["all", -1, 1, 0, "1"])
def test_all_ways_to_ask_for_an_ack_work(acks: object) -> None:
    async def scenario(rest: Rest) -> None:
        await rest.topic("t")
        status, place = await rest.post("/produce", {"topic": "t", "value": "v", "acks": acks})
        assert (status, place["offset"]) == (200, 0)

    with_rest(scenario)


def test_an_ack_waits_for_the_log_and_acks_0_does_not() -> None:
    async def scenario(rest: Rest) -> None:
        await rest.topic("t")
        rest.wal.hold()
        body = {"topic": "t", "value": "v"}
        assert (await rest.post("/produce", {**body, "acks": 0}))[0] == 200
        waiting = asyncio.create_task(rest.post("/produce", body))
        done, _ = await asyncio.wait([waiting], timeout=0.05)
        assert not done
        assert (await rest.get("/consume", topic="t", offset=0))[1]["records"] == []
        rest.wal.release()
        assert (await waiting)[1]["offset"] == 1
        assert len((await rest.get("/consume", topic="t", offset=0))[1]["records"]) == 2

    with_rest(scenario)


@pytest.mark.parametrize(
    ("body", "status", "code", "says"),
    [
        ({"topic": "nope", "value": "v"}, 404, "not_found", "nope"),
        ({"topic": "t", "value": "v", "partition": 9}, 404, "not_found", "0 to 1"),
        ({"topic": "t", "value": "v", "partition": -1}, 400, "invalid_field", "partition"),
        ({"topic": "t"}, 400, "missing_field", "value"),
        ({"value": "v"}, 400, "missing_field", "topic"),
        ({"topic": 1, "value": "v"}, 400, "invalid_field", "topic"),
        ({"topic": "t", "value": "v", "acks": 2}, 400, "invalid_field", "acks"),
        ({"topic": "t", "value": "v", "acks": True}, 400, "invalid_field", "acks"),
        ({"topic": "t", "value": "v", "timestamp": "now"}, 400, "invalid_field", "timestamp"),
        ({"topic": "t", "value": "v", "timestamp": 1.5}, 400, "invalid_field", "timestamp"),
        ({"topic": "t", "value": "v", "timestamp": 2**63 - 1}, 400, "invalid_timestamp", "ahead"),
        ({"topic": "t", "value": "v", "timestamp": 2**70}, 400, "invalid_field", "timestamp"),
        ({"topic": "t", "value": "v", "headers": "x"}, 400, "invalid_field", "headers"),
        ({"topic": "t", "value": "v", "headers": [{}]}, 400, "missing_field", "headers[0].name"),
        ({"topic": "t", "value": "v", "headers": [3]}, 400, "invalid_field", "headers[0]"),
        ({"topic": "t", "value_base64": "!!"}, 400, "invalid_field", "base64"),
        ({"topic": "t", "value_base64": 5}, 400, "invalid_field", "value_base64"),
        ({"topic": "t", "value": "a", "value_base64": "YQ=="}, 400, "invalid_field", "exclude"),
        ({"topic": "t", "value": "\udfff"}, 400, "invalid_field", "Unicode"),
        ({"topic": "t", "value": "v", "valeu": 1}, 400, "unknown_field", "valeu"),
        ({"topic": "t", "value": "x" * 1_100_000}, 413, "message_too_large", "max.message.bytes"),
    ],
)
def test_a_wrong_record_is_refused_and_nothing_is_written(
    body: dict[str, object], status: int, code: str, says: str
) -> None:
    async def scenario(rest: Rest) -> None:
        await rest.topic("t", 2)
        found, problem = await rest.post("/produce", body)
        assert (found, problem["code"]) == (status, code), problem
        assert says in problem["detail"]
        _, partitions = await rest.get("/topics/t/partitions")
        assert [p["high_watermark"] for p in partitions] == [0, 0]

    with_rest(scenario)


@pytest.mark.parametrize(
    ("records", "code", "says"),
    [
        ([], "invalid_field", "1 to 10000"),
        ("x", "invalid_field", "list"),
        ([{"value": "a"}, 5], "invalid_field", "records[1]"),
        ([{"value": "a"}, {"key": "k"}], "missing_field", "records[1].value"),
        ([{"value": "a", "topic": "t"}], "unknown_field", "records[0].topic"),
        ([{"value": "a"}] * 10_001, "invalid_field", "10001"),
    ],
)
def test_a_wrong_batch_says_which_record(records: Any, code: str, says: str) -> None:
    async def scenario(rest: Rest) -> None:
        await rest.topic("t")
        status, problem = await rest.post("/produce/batch", {"topic": "t", "records": records})
        assert (status, problem["code"]) == (400, code), problem
        assert says in problem["detail"]
        assert (await rest.get("/topics/t/partitions"))[1][0]["high_watermark"] == 0

    with_rest(scenario)


def test_consume_goes_on_where_it_stopped() -> None:
    async def scenario(rest: Rest) -> None:
        await rest.topic("t")
        for start in (0, 5):
            records = [{"value": str(start + n)} for n in range(5)]
            await rest.post("/produce/batch", {"topic": "t", "records": records})
        seen: list[str] = []
        offset: object = "earliest"
        while len(seen) < 10:
            _, found = await rest.get("/consume", topic="t", offset=offset, max_records=3)
            assert len(found["records"]) <= 3
            assert found["high_watermark"] == 10
            seen += [record["value"] for record in found["records"]]
            offset = found["next_offset"]
        assert seen == [str(n) for n in range(10)]
        _, at_end = await rest.get("/consume", topic="t", offset="latest")
        assert (at_end["records"], at_end["next_offset"]) == ([], 10)

    with_rest(scenario)


def test_a_long_poll_returns_when_a_record_comes() -> None:
    async def scenario(rest: Rest) -> None:
        await rest.topic("t")
        polling = asyncio.create_task(
            rest.get("/consume", topic="t", offset="latest", max_wait_ms=20_000)
        )
        await asyncio.sleep(0.02)
        assert not polling.done()
        await rest.post("/produce", {"topic": "t", "value": "news"})
        _, found = await asyncio.wait_for(polling, 5)
        assert [record["value"] for record in found["records"]] == ["news"]

    with_rest(scenario)


@pytest.mark.parametrize("offset", [-1, 4, 10**12])
def test_sh_76_an_offset_outside_the_log_is_answered_clearly(offset: int) -> None:
    async def scenario(rest: Rest) -> None:
        await rest.topic("t")
        records = [{"value": "v"}] * 3
        await rest.post("/produce/batch", {"topic": "t", "records": records})
        status, problem = await rest.get("/consume", topic="t", offset=offset)
        assert (status, problem["code"]) == (416, "offset_out_of_range")
        assert (problem["log_start"], problem["high_watermark"]) == (0, 3)

    with_rest(scenario)


def test_sh_76_an_offset_below_the_log_start_is_out_of_range() -> None:
    async def scenario(rest: Rest) -> None:
        await rest.topic("t")
        await rest.post("/produce/batch", {"topic": "t", "records": [{"value": "v"}] * 3})
        await rest.agent.delete_records(rest.agent.catalog.partition("t", 0), 2)
        status, problem = await rest.get("/consume", topic="t", offset=1)
        assert (status, problem["log_start"]) == (416, 2)
        _, found = await rest.get("/consume", topic="t", offset="earliest")
        assert [record["offset"] for record in found["records"]] == [2]

    with_rest(scenario)


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({}, "missing_parameter"),
        ({"topic": "t", "offset": "first"}, "invalid_parameter"),
        ({"topic": "t", "offset": "1_0"}, "invalid_parameter"),
        ({"topic": "t", "partition": "x"}, "invalid_parameter"),
        ({"topic": "t", "max_records": 0}, "invalid_parameter"),
        ({"topic": "t", "max_wait_ms": -5}, "invalid_parameter"),
        ({"topic": "t", "group": ""}, "missing_parameter"),
    ],
)
def test_a_wrong_parameter_is_named(query: dict[str, object], code: str) -> None:
    async def scenario(rest: Rest) -> None:
        await rest.topic("t")
        status, problem = await rest.get("/consume", **query)
        assert (status, problem["code"]) == (400, code)

    with_rest(scenario)


def test_sh_72_sh_74_a_group_goes_on_where_it_committed() -> None:
    async def scenario(rest: Rest) -> None:
        await rest.topic("t", 2)
        records = [{"value": str(n), "partition": 1} for n in range(5)]
        await rest.post("/produce/batch", {"topic": "t", "records": records})
        _, fresh = await rest.get("/consume", topic="t", partition=1, group="g")
        assert fresh["records"][0]["offset"] == 0
        commit = {"group": "g", "topic": "t", "partition": 1, "offset": 3, "metadata": "m"}
        status, answer = await rest.post("/consumer-groups/commit", commit)
        assert (status, answer["offset"]) == (200, 3)
        _, resumed = await rest.get("/consume", topic="t", partition=1, group="g")
        assert [record["offset"] for record in resumed["records"]] == [3, 4]
        _, group = await rest.get("/consumer-groups/g")
        [offset] = group["offsets"]
        assert (offset["topic"], offset["partition"], offset["offset"]) == ("t", 1, 3)
        assert (offset["lag"], offset["metadata"], group["lag"]) == (2, "m", 2)

    with_rest(scenario)


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"topic": "nope"}, 404, "not_found"),
        ({"partition": 5}, 404, "not_found"),
        ({"offset": -1}, 400, "invalid_field"),
        ({"offset": "3"}, 400, "invalid_field"),
        ({"group": ""}, 400, "invalid_field"),
        ({"group": "a\nb"}, 400, "invalid_group"),
        ({"metadata": "m" * 5000}, 400, "invalid_field"),
    ],
)
def test_a_wrong_commit_changes_nothing(change: dict[str, object], status: int, code: str) -> None:
    async def scenario(rest: Rest) -> None:
        await rest.topic("t")
        commit = {"group": "g", "topic": "t", "partition": 0, "offset": 0, **change}
        found, problem = await rest.post("/consumer-groups/commit", commit)
        assert (found, problem["code"]) == (status, code)
        assert (await rest.get("/consumer-groups/g"))[0] == 404

    with_rest(scenario)


def test_a_full_log_is_said_to_be_retried() -> None:
    """Goal: no room in the WAL is a 503 with Retry-After, and reads go on."""

    async def scenario(rest: Rest) -> None:
        await rest.topic("t")
        await rest.post("/produce", {"topic": "t", "value": "kept"})
        rest.wal._bytes_max = 0
        body = {"topic": "t", "value_base64": b64encode(b"x").decode()}
        async with rest.client.post(f"{API}/produce", json=body) as response:
            assert response.status == 503
            assert response.headers["Retry-After"]
            assert (await response.json(content_type=None))["code"] == "unavailable"
        _, found = await rest.get("/consume", topic="t", offset=0)
        assert [record["value"] for record in found["records"]] == ["kept"]

    with_rest(scenario)
