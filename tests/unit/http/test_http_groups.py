"""Consumer groups through the REST API."""

import asyncio
from typing import Any

import pytest

from streamhouse.model.groups import Identity, JoinAnswer, JoinRequest, Protocol, SyncRequest
from streamhouse.ports.metadata import CommittedOffset
from tests.unit.http.rest_door import Rest, with_rest

RANGE = Protocol("range", b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff")
# Partitions 0 and 1 of `t`.
ASSIGNMENT = b"\x00\x00\x00\x00\x00\x01\x00\x01t" + bytes([0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1])


async def active_group(rest: Rest, group: str) -> JoinAnswer:
    """One member that reads `t`."""
    asked = JoinRequest(
        member_id="",
        instance_id="worker-1",
        client_id="app",
        client_host="/10.0.0.9",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(RANGE,),
    )
    joined = await asyncio.wait_for(rest.groups.join(group, asked), 10)
    assert joined.refusal is None
    given = {joined.member_id: ASSIGNMENT}
    sync = SyncRequest(joined.member_id, "worker-1", joined.generation, None, None, given)
    assert (await rest.groups.sync(group, sync)).refusal is None
    return joined


async def records(rest: Rest, count: int) -> None:
    await rest.topic("t", 2)
    rows = [{"value": f"v{n}", "partition": 0, "timestamp": 1_000 * n} for n in range(count)]
    status, answer = await rest.post("/produce/batch", {"topic": "t", "records": rows})
    assert status == 200, answer


async def commit(rest: Rest, group: str, offset: int, partition: int = 0) -> tuple[int, Any]:
    body = {"group": group, "topic": "t", "partition": partition, "offset": offset}
    return await rest.post("/consumer-groups/commit", body)


async def offsets(rest: Rest, group: str) -> dict[int, int]:
    _, found = await rest.get(f"/consumer-groups/{group}")
    return {row["partition"]: row["offset"] for row in found["offsets"]}


def test_a_group_is_shown_with_members_offsets_and_lag() -> None:
    async def scenario(rest: Rest) -> None:
        await records(rest, 5)
        assert (await rest.get("/consumer-groups")) == (200, [])
        joined = await active_group(rest, "g")
        _, listed = await rest.get("/consumer-groups")
        assert listed == [
            {"group": "g", "state": "Stable", "protocol_type": "consumer", "member_count": 1}
        ]
        identity = Identity(joined.member_id, "worker-1")
        partition = rest.agent.catalog.partition("t", 0)
        offset = CommittedOffset(3, -1, "m", 77)
        await rest.groups.commit("g", identity, 1, {partition.tp: offset})
        _, found = await rest.get("/consumer-groups/g")
        assert (found["state"], found["generation"], found["protocol"]) == ("Stable", 1, "range")
        assert found["lag"] == 2
        assert found["members"] == [
            {
                "member_id": joined.member_id,
                "instance_id": "worker-1",
                "client_id": "app",
                "client_host": "/10.0.0.9",
                "assigned": [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 1}],
            }
        ]
        _, lag = await rest.get("/consumer-groups/g/lag")
        shown = [(row["partition"], row["offset"], row["lag"]) for row in lag["partitions"]]
        assert shown == [(0, 3, 2), (1, None, None)], "unknown is not zero"
        assert {row["member_id"] for row in lag["partitions"]} == {joined.member_id}
        assert lag["lag"] == 2

    with_rest(scenario)


def test_a_group_with_members_is_neither_moved_nor_deleted() -> None:
    async def scenario(rest: Rest) -> None:
        await records(rest, 1)
        joined = await active_group(rest, "g")
        status, problem = await commit(rest, "g", 1)
        assert (status, problem["code"]) == (409, "group_not_empty")
        body = {"topic": "t", "to": "latest", "dry_run": False}
        status, problem = await rest.post("/consumer-groups/g/reset", body)
        assert (status, problem["code"]) == (409, "group_not_empty")
        status, problem = await rest.call("DELETE", "/api/v1/consumer-groups/g")
        assert (status, problem["code"]) == (409, "group_not_empty")
        rest.groups.leave("g", [Identity(joined.member_id, "worker-1")])
        assert (await commit(rest, "g", 1))[0] == 200
        assert (await rest.call("DELETE", "/api/v1/consumer-groups/g")) == (204, None)
        status, problem = await rest.call("DELETE", "/api/v1/consumer-groups/g")
        assert (status, problem["code"]) == (404, "not_found")

    with_rest(scenario)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"to": "earliest"}, {0: 0}),
        ({"to": "latest"}, {0: 5}),
        ({"to_offset": 4}, {0: 4}),
        ({"to_offset": 99}, {0: 5}),
        ({"shift_by": -2}, {0: 1}),
        ({"shift_by": -9}, {0: 0}),
        ({"shift_by": 1}, {0: 4}),
        ({"to_datetime": 1_500}, {0: 2}),
        ({"to_datetime": "1970-01-01T00:00:04"}, {0: 4}),
        ({"to_datetime": "1970-01-01T02:00:04+02:00"}, {0: 4}),
        ({"to_datetime": "2100-01-01T00:00:00Z"}, {0: 5}),
        ({"to": "latest", "topic": "t"}, {0: 5, 1: 0}),
        ({"to": "latest", "topic": "t", "partitions": [1]}, {0: 3, 1: 0}),
        ({"shift_by": 1, "topic": "t"}, {0: 4}),
    ],
)
def test_a_reset_shows_first_and_then_does(body: dict[str, Any], expected: dict[int, int]) -> None:
    async def scenario(rest: Rest) -> None:
        await records(rest, 5)
        await commit(rest, "g", 3)
        status, shown = await rest.post("/consumer-groups/g/reset", body)
        assert (status, shown["dry_run"]) == (200, True)
        assert await offsets(rest, "g") == {0: 3}, "nothing was changed"
        _, done = await rest.post("/consumer-groups/g/reset", {**body, "dry_run": False})
        assert done == {**shown, "dry_run": False}
        assert await offsets(rest, "g") == expected

    with_rest(scenario)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "missing_field"),
        ({"to": "latest", "shift_by": 1}, 400, "missing_field"),
        ({"to": "middle"}, 400, "invalid_field"),
        ({"to_offset": -1}, 400, "invalid_field"),
        ({"to_datetime": "yesterday"}, 400, "invalid_field"),
        ({"to_datetime": True}, 400, "invalid_field"),
        ({"to": "latest", "dry_run": "no"}, 400, "invalid_field"),
        ({"to": "latest", "partitions": [0]}, 400, "missing_field"),
        ({"to": "latest", "topic": "t", "partitions": ["0"]}, 400, "invalid_field"),
        ({"to": "latest", "topic": "t", "partitions": [7]}, 404, "not_found"),
        ({"to": "latest", "topic": "u"}, 404, "not_found"),
        ({"to": "latest"}, 404, "not_found"),
        ({"to": "latest", "typo": 1}, 400, "unknown_field"),
    ],
)
def test_a_reset_that_cannot_be_meant_is_refused(
    body: dict[str, Any], status: int, code: str
) -> None:
    async def scenario(rest: Rest) -> None:
        await rest.topic("t", 2)
        found, problem = await rest.post("/consumer-groups/nobody/reset", body)
        assert (found, problem["code"]) == (status, code), problem

    with_rest(scenario)
