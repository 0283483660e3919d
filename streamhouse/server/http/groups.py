"""/api/v1/consumer-groups: who is in a group, where it stands, how far behind it is, and resets.

Offsets are changed only through the coordinator, by the same rule as for Kafka's admin tools: not
while the group has members. A reset shows what it would do unless it is told to do it.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from aiohttp import web

from streamhouse.agent.service import Partition
from streamhouse.model.errors import NotFound
from streamhouse.model.groups import (
    NO_GENERATION,
    DescribedMember,
    GroupDescription,
    Identity,
    Refusal,
)
from streamhouse.model.ids import TopicPartition
from streamhouse.model.limits import OFFSET_METADATA_BYTES_MAX
from streamhouse.ports.metadata import CommittedOffset
from streamhouse.server.http.fields import Fields, checked_text, read_body
from streamhouse.server.http.parts import HttpParts
from streamhouse.server.http.problems import Problem, bad_request

GROUP_CHARS_MAX = 249
PARTITION_MAX = 2**31 - 1
NO_EPOCH = -1
NOBODY = Identity("")
TARGETS = ("to", "to_offset", "to_datetime", "shift_by")

Committed = Mapping[TopicPartition, CommittedOffset]


class GroupRoutes:
    def __init__(self, parts: HttpParts) -> None:
        self._agent = parts.agent
        self._groups = parts.groups
        self._clock = parts.clock

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/consumer-groups", self.list_groups),
            web.post("/consumer-groups/commit", self.commit),
            web.get("/consumer-groups/{group}", self.describe),
            web.delete("/consumer-groups/{group}", self.delete),
            web.get("/consumer-groups/{group}/lag", self.lag),
            web.post("/consumer-groups/{group}/reset", self.reset),
        ]

    async def list_groups(self, _: web.Request) -> web.Response:
        listed = [
            {
                "group": found.group_id,
                "state": found.state.value,
                "protocol_type": found.protocol_type,
                "member_count": found.member_count,
            }
            for found in self._groups.list_groups()
        ]
        return web.json_response(listed)

    async def describe(self, request: web.Request) -> web.Response:
        found, committed = await self._known(request)
        offsets = self._offsets_json(committed)
        return web.json_response(
            {
                "group": found.group_id,
                "state": found.state.value,
                "protocol_type": found.protocol_type,
                "protocol": found.protocol_name,
                "generation": found.generation,
                "members": [_member_json(member) for member in found.members],
                "lag": sum(offset["lag"] for offset in offsets),
                "offsets": offsets,
            }
        )

    async def lag(self, request: web.Request) -> web.Response:
        """Each partition that was committed or is assigned; unknown where nothing was committed."""
        found, committed = await self._known(request)
        owners = {place: member for member in found.members for place in member.assigned}
        rows: list[dict[str, object]] = []
        for offset in self._offsets_json(committed):
            owner = owners.pop((offset["topic"], offset["partition"]), None)
            rows.append({**offset, "member_id": owner.row.member_id if owner else None})
        for (topic, number), owner in sorted(owners.items(), key=lambda item: item[0]):
            partition = self._find(topic, number)
            if partition is not None:
                none = {"offset": None, "metadata": None, "committed_ms": None, "lag": None}
                high = {"high_watermark": partition.machine.high_watermark}
                place = {"topic": topic, "partition": number, "member_id": owner.row.member_id}
                rows.append({**place, **none, **high})
        rows.sort(key=lambda row: (str(row["topic"]), row["partition"]))
        total = sum(row["lag"] for row in rows if isinstance(row["lag"], int))
        return web.json_response({"group": found.group_id, "lag": total, "partitions": rows})

    async def delete(self, request: web.Request) -> web.Response:
        group = check_group(request.match_info["group"])
        refusal = await self._groups.delete(group)
        if refusal is not None:
            raise problem_of_refusal(group, refusal)
        return web.Response(status=HTTPStatus.NO_CONTENT)

    async def commit(self, request: web.Request) -> web.Response:
        body = (await read_body(request)).only(
            {"group", "topic", "partition", "offset", "metadata"}
        )
        group = check_group(body.text("group"))
        topic, number = body.text("topic"), body.integer("partition", high=PARTITION_MAX)
        partition = self._agent.catalog.partition(topic, number)
        offset = self._committed(body.integer("offset"), _read_metadata(body))
        await self._store(group, {partition.tp: offset})
        return web.json_response(
            {"group": group, "topic": topic, "partition": number, "offset": offset.offset}
        )

    async def reset(self, request: web.Request) -> web.Response:
        body = (await read_body(request)).only({"topic", "partitions", "dry_run", *TARGETS})
        target = Target(body)
        dry_run = body.get("dry_run")
        if dry_run not in (None, True, False):
            body.refuse("dry_run", "true or false", dry_run)
        group = check_group(request.match_info["group"])
        committed = await self._groups.committed(group)
        changes = []
        offsets = {}
        for partition in self._to_reset(body, group, committed):
            before = committed.get(partition.tp)
            offset = await self._target(partition, target, before)
            if offset is not None:
                offsets[partition.tp] = self._committed(offset, "")
                changes.append(_change_json(partition, before, offset))
        if dry_run is False:
            await self._store(group, offsets)
        return web.json_response(
            {"group": group, "dry_run": dry_run is not False, "offsets": changes}
        )

    # -- inside ------------------------------------------------------------------------------------

    async def _known(self, request: web.Request) -> tuple[GroupDescription, Committed]:
        group = check_group(request.match_info["group"])
        found = self._groups.describe(group)
        if found is None:
            raise NotFound(f"there is no group {group!r}; GET /api/v1/consumer-groups lists them")
        return found, await self._groups.committed(group)

    async def _store(self, group: str, offsets: Committed) -> None:
        verdict = await self._groups.commit(group, NOBODY, NO_GENERATION, offsets)
        if isinstance(verdict, Refusal):
            raise problem_of_refusal(group, verdict)
        if verdict:
            raise NotFound("the topic was deleted meanwhile")

    def _committed(self, offset: int, metadata: str) -> CommittedOffset:
        return CommittedOffset(offset, NO_EPOCH, metadata, self._clock.now_ms())

    def _to_reset(self, body: Fields, group: str, committed: Committed) -> list[Partition]:
        """The partitions named, or all of the topic, or all the group has committed."""
        catalog = self._agent.catalog
        if not body.has("topic"):
            if body.has("partitions"):
                raise bad_request("missing_field", "partitions are those of a topic: name it too")
            found = [catalog.partitions[tp] for tp in sorted(committed) if tp in catalog.partitions]
            if not found:
                raise NotFound(f"group {group!r} has committed nothing; name a topic")
            return found
        topic = catalog.topic(body.text("topic"))
        numbers = body.get("partitions")
        if numbers is None:
            numbers = list(range(topic.partition_count))
        if not isinstance(numbers, list) or not all(type(n) is int for n in numbers):
            body.refuse("partitions", "a list of partition numbers", numbers)
        return [catalog.partition(topic.name, number) for number in numbers]

    async def _target(
        self, partition: Partition, target: "Target", before: CommittedOffset | None
    ) -> int | None:
        """Where to, inside the log there is; None if it cannot be said."""
        low, high = partition.machine.log_start, partition.machine.high_watermark
        if target.timestamp_ms is not None:
            found = await self._agent.offset_at(partition, target.timestamp_ms, True)
            return high if found is None else found.offset
        if target.shift is not None:
            if before is None:
                return None
            return min(max(before.offset + target.shift, low), high)
        if target.offset is not None:
            return min(max(target.offset, low), high)
        return low if target.word == "earliest" else high

    def _find(self, topic: str, number: int) -> Partition | None:
        try:
            return self._agent.catalog.partition(topic, number)
        except NotFound:
            return None  # deleted, but still assigned

    def _offsets_json(self, committed: Committed) -> list[dict[str, Any]]:
        rows = []
        for tp, offset in committed.items():
            partition = self._agent.catalog.partitions.get(tp)
            if partition is None:
                continue  # deleted while we looked
            high_watermark = partition.machine.high_watermark
            rows.append(
                {
                    "topic": partition.topic.name,
                    "partition": tp.partition,
                    "offset": offset.offset,
                    "metadata": offset.metadata,
                    "committed_ms": offset.committed_ms,
                    "high_watermark": high_watermark,
                    "lag": max(high_watermark - offset.offset, 0),
                }
            )
        return sorted(rows, key=lambda row: (row["topic"], row["partition"]))


class Target:
    """Where a reset goes: exactly one of `to`, `to_offset`, `to_datetime`, `shift_by`."""

    def __init__(self, body: Fields) -> None:
        given = [name for name in TARGETS if body.get(name) is not None]
        if len(given) != 1:
            raise bad_request("missing_field", f"give exactly one of {', '.join(TARGETS)}")
        self.word = body.text_or("to", "")
        self.offset = body.integer_or_none("to_offset")
        self.shift = body.integer_or_none("shift_by", low=-(2**63))
        self.timestamp_ms = _timestamp_ms(body)
        if self.word not in ("", "earliest", "latest"):
            body.refuse("to", "earliest or latest", self.word)


def _timestamp_ms(body: Fields) -> int | None:
    """Milliseconds since 1970, or an ISO 8601 text; without a zone it is UTC."""
    value = body.get("to_datetime")
    if not isinstance(value, str):
        return body.integer_or_none("to_datetime")
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        body.refuse("to_datetime", "a time such as 2026-01-31T12:00:00Z", value)
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def check_group(group: str) -> str:
    if len(group) > GROUP_CHARS_MAX or not group.isprintable():
        raise bad_request(
            "invalid_group",
            f"a group name has 1 to {GROUP_CHARS_MAX} printable characters",
        )
    return checked_text("group", group)


def problem_of_refusal(group: str, refusal: Refusal) -> Problem:
    match refusal:
        case Refusal.GROUP_ID_NOT_FOUND:
            detail = f"there is no group {group!r}; GET /api/v1/consumer-groups lists them"
            return Problem(HTTPStatus.NOT_FOUND, "not_found", detail)
        case Refusal.NON_EMPTY_GROUP | Refusal.UNKNOWN_MEMBER_ID:
            detail = f"group {group!r} has members; stop its consumers first"
            return Problem(HTTPStatus.CONFLICT, "group_not_empty", detail)
        case _:
            detail = f"{refusal.value}; repeat the request in a moment"
            return Problem(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", detail)


def _member_json(member: DescribedMember) -> dict[str, object]:
    return {
        "member_id": member.row.member_id,
        "instance_id": member.row.instance_id,
        "client_id": member.row.client_id,
        "client_host": member.row.client_host,
        "assigned": [{"topic": topic, "partition": number} for topic, number in member.assigned],
    }


def _change_json(
    partition: Partition, before: CommittedOffset | None, offset: int
) -> dict[str, object]:
    return {
        "topic": partition.topic.name,
        "partition": partition.tp.partition,
        "from": None if before is None else before.offset,
        "to": offset,
    }


def _read_metadata(body: Fields) -> str:
    metadata = body.text_or("metadata", "")
    if len(metadata.encode()) > OFFSET_METADATA_BYTES_MAX:
        raise bad_request(
            "invalid_field", f"metadata has at most {OFFSET_METADATA_BYTES_MAX} bytes"
        )
    return metadata
