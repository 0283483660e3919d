"""/api/v1/topics: what is created is shown, and what is wrong is said."""

import pytest

from tests.unit.http.rest_door import API, Rest, with_rest


def test_sh_05_a_topic_has_all_its_parts() -> None:
    """Goal: name, partition count, retention, cleanup policy and config map come back as set."""

    async def scenario(rest: Rest) -> None:
        made = await rest.topic(
            "orders",
            3,
            retention_ms=5000,
            cleanup_policy="Compact",
            config={"max.message.bytes": 2048, "segment.ms": "1000"},
        )
        status, listed = await rest.get("/topics")
        assert status == 200
        assert [topic["name"] for topic in listed] == ["orders"]
        for shown in (made, listed[0], (await rest.get("/topics/orders"))[1]):
            assert shown["partition_count"] == 3
            assert shown["retention_ms"] == 5000
            assert shown["cleanup_policy"] == "compact"
            assert shown["config"] == {
                "retention.ms": "5000",
                "cleanup.policy": "compact",
                "max.message.bytes": "2048",
                "segment.ms": "1000",
            }

    with_rest(scenario)


def test_sh_08_sh_09_partitions_count_from_zero_and_show_the_next_offset() -> None:
    async def scenario(rest: Rest) -> None:
        await rest.topic("t", 4)
        await rest.post("/produce", {"topic": "t", "value": "x", "partition": 2})
        status, partitions = await rest.get("/topics/t/partitions")
        assert status == 200
        assert [p["partition"] for p in partitions] == [0, 1, 2, 3]
        assert [p["high_watermark"] for p in partitions] == [0, 0, 1, 0]
        assert {p["leader"] for p in partitions} == {"agent-1"}
        assert all(p["epoch"] >= 1 and p["low_watermark"] == 0 for p in partitions)

    with_rest(scenario)


def test_sh_07_the_partition_count_cannot_change() -> None:
    async def scenario(rest: Rest) -> None:
        await rest.topic("t", 2)
        status, problem = await rest.call("PATCH", f"{API}/topics/t", json={"partition_count": 3})
        assert (status, problem["code"]) == (400, "partition_count_fixed")
        assert "fixed" in problem["detail"]
        same, _ = await rest.call("PATCH", f"{API}/topics/t", json={"partition_count": 2})
        assert same == 200
        assert len((await rest.get("/topics/t/partitions"))[1]) == 2

    with_rest(scenario)


def test_a_changed_setting_takes_effect_at_once() -> None:
    """Goal: after the answer to PATCH the new limit is the one that is enforced."""

    async def scenario(rest: Rest) -> None:
        await rest.topic("t", 1, retention_ms=1000)
        big = {"topic": "t", "value": "x" * 500}
        assert (await rest.post("/produce", big))[0] == 200
        change = {"config": {"max.message.bytes": "200"}, "retention_ms": None}
        status, topic = await rest.call("PATCH", f"{API}/topics/t", json=change)
        assert status == 200
        assert topic["config"] == {"max.message.bytes": "200"}
        assert topic["retention_ms"] == 604_800_000
        status, problem = await rest.post("/produce", big)
        assert (status, problem["code"]) == (413, "message_too_large")

    with_rest(scenario)


def test_a_deleted_topic_is_gone() -> None:
    async def scenario(rest: Rest) -> None:
        await rest.topic("t")
        async with rest.client.delete(f"{API}/topics/t") as response:
            assert response.status == 204
            assert await response.read() == b""
        for status, problem in (
            await rest.get("/topics/t"),
            await rest.call("DELETE", f"{API}/topics/t"),
            await rest.call("PATCH", f"{API}/topics/t", json={}),
            await rest.get("/topics/t/partitions"),
            await rest.get("/topics/t/messages"),
            await rest.get("/topics/t/segments"),
        ):
            assert (status, problem["code"]) == (404, "not_found")
            assert "'t'" in problem["detail"]

    with_rest(scenario)


@pytest.mark.parametrize(
    ("body", "status", "code", "says"),
    [
        ({"name": "taken"}, 409, "already_exists", "taken"),
        ({"name": "no spaces"}, 400, "invalid_topic_name", "letters"),
        ({"name": "\ud800"}, 400, "invalid_field", "Unicode"),
        ({"name": "x" * 250}, 400, "invalid_topic_name", "249"),
        ({"name": ""}, 400, "invalid_field", "name"),
        ({"name": 7}, 400, "invalid_field", "name must be a text"),
        ({}, 400, "missing_field", "name"),
        ({"name": "t", "partition_count": 0}, 400, "invalid_partition_count", "between 1"),
        ({"name": "t", "partition_count": 10**6}, 400, "invalid_partition_count", "10000"),
        ({"name": "t", "partition_count": "3"}, 400, "invalid_field", "whole number"),
        ({"name": "t", "partition_count": True}, 400, "invalid_field", "whole number"),
        ({"name": "t", "partitions": 3}, 400, "unknown_field", "partition_count"),
        ({"name": "t", "config": {"no.such": "1"}}, 400, "invalid_config", "no.such"),
        ({"name": "t", "config": {"retention.ms": "x"}}, 400, "invalid_config", "retention.ms"),
        ({"name": "t", "config": []}, 400, "invalid_field", "config must be an object"),
        ({"name": "t", "config": {"retention.ms": [1]}}, 400, "invalid_field", "retention.ms"),
        ({"name": "t", "cleanup_policy": "burn"}, 400, "invalid_config", "cleanup.policy"),
        (
            {"name": "t", "retention_ms": 1, "config": {"retention.ms": 2}},
            400,
            "invalid_field",
            "contradict",
        ),
    ],
)
def test_a_wrong_topic_is_refused_with_words_that_help(
    body: dict[str, object], status: int, code: str, says: str
) -> None:
    async def scenario(rest: Rest) -> None:
        await rest.topic("taken")
        found, problem = await rest.post("/topics", body)
        assert (found, problem["code"]) == (status, code), problem
        assert says in problem["detail"]
        assert [topic["name"] for topic in (await rest.get("/topics"))[1]] == ["taken"]

    with_rest(scenario)


def test_a_count_left_out_takes_the_default() -> None:
    async def scenario(rest: Rest) -> None:
        status, topic = await rest.post("/topics", {"name": "t"})
        assert (status, topic["partition_count"]) == (201, 2)

    with_rest(scenario)


def test_sh_72_segments_are_found_by_offset() -> None:
    """Goal: rolled segments are listed, and an offset leads to the one that holds it."""

    async def scenario(rest: Rest) -> None:
        await rest.topic("t", 2)
        partition = rest.agent.catalog.partition("t", 1)
        for count in (3, 2):
            records = [{"value": "v", "partition": 1}] * count
            assert (await rest.post("/produce/batch", {"topic": "t", "records": records}))[0] == 200
            assert await rest.agent.roller.roll(partition)
        await rest.post("/produce", {"topic": "t", "value": "young", "partition": 1})
        _, listed = await rest.get("/topics/t/segments")
        ranges = [(s["partition"], s["base_offset"], s["end_offset"]) for s in listed]
        assert ranges == [(1, 0, 3), (1, 3, 5)]
        assert all(s["record_count"] and s["bytes_stored"] and s["key"] for s in listed)
        _, found = await rest.get("/topics/t/segments", partition=1, offset=4)
        assert [s["base_offset"] for s in found] == [3]
        _, unrolled = await rest.get("/topics/t/segments", partition=1, offset=5)
        assert unrolled == []
        status, problem = await rest.get("/topics/t/segments", partition=1, offset=7)
        assert (status, problem["high_watermark"]) == (416, 6)

    with_rest(scenario)


def test_messages_show_the_newest_unless_told_otherwise() -> None:
    async def scenario(rest: Rest) -> None:
        await rest.topic("t")
        records = [{"value": str(number)} for number in range(60)]
        await rest.post("/produce/batch", {"topic": "t", "records": records})
        _, newest = await rest.get("/topics/t/messages")
        assert [r["value"] for r in newest["records"]] == [str(n) for n in range(10, 60)]
        _, chosen = await rest.get("/topics/t/messages", partition=0, offset=5, limit=2)
        assert [r["offset"] for r in chosen["records"]] == [5, 6]
        assert chosen["next_offset"] == 7
        status, problem = await rest.get("/topics/t/messages", limit="many")
        assert (status, problem["code"]) == (400, "invalid_parameter")

    with_rest(scenario)
