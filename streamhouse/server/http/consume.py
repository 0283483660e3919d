"""/api/v1/consume and /api/v1/consumer-groups: committed records out, and where a group stands.

A consumer that names its group and no offset goes on where the group committed last. An offset
that is not in the log is answered with 416 and the range there is, never with silence.
"""

from aiohttp import web

from streamhouse.model.errors import NotFound
from streamhouse.model.ids import TopicPartition
from streamhouse.model.limits import HTTP_RECORDS_MAX, HTTP_WAIT_MS_MAX
from streamhouse.ports.metadata import CommittedOffset
from streamhouse.server.http.fields import (
    Fields,
    checked_text,
    parse_integer,
    query_integer,
    query_text,
    read_body,
    shown,
)
from streamhouse.server.http.parts import HttpParts
from streamhouse.server.http.problems import bad_request
from streamhouse.server.http.record_json import record_json

RECORDS_DEFAULT = 100
GROUP_CHARS_MAX = 249
OFFSET_METADATA_BYTES_MAX = 4_096  # offset.metadata.max.bytes
NO_EPOCH = -1


class ConsumeRoutes:
    def __init__(self, parts: HttpParts) -> None:
        self._agent = parts.agent
        self._offsets = parts.metadata
        self._clock = parts.clock

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/consume", self.consume),
            web.post("/consumer-groups/commit", self.commit),
            web.get("/consumer-groups/{group}", self.describe_group),
        ]

    async def consume(self, request: web.Request) -> web.Response:
        topic = query_text(request, "topic")
        number = query_integer(request, "partition", 0)
        # Both are upper bounds of what may come back, so a larger wish is not an error.
        records_max = query_integer(request, "max_records", RECORDS_DEFAULT, low=1)
        wait_ms = query_integer(request, "max_wait_ms", 0)
        offset = await self._offset(request, topic, number)
        found = await self._agent.consume_records(
            topic,
            number,
            offset,
            records_max=min(records_max, HTTP_RECORDS_MAX),
            wait_ms=min(wait_ms, HTTP_WAIT_MS_MAX),
        )
        return web.json_response(
            {
                "topic": topic,
                "partition": number,
                "records": [record_json(record, number) for record in found.records],
                "next_offset": found.next_offset,
                "high_watermark": found.high_watermark,
                "log_start": found.log_start,
            }
        )

    async def commit(self, request: web.Request) -> web.Response:
        body = (await read_body(request)).only(
            {"group", "topic", "partition", "offset", "metadata"}
        )
        group = check_group(body.text("group"))
        topic, number = body.text("topic"), body.integer("partition", high=2**31 - 1)
        partition = self._agent.catalog.partition(topic, number)
        committed = CommittedOffset(
            offset=body.integer("offset"),
            leader_epoch=NO_EPOCH,
            metadata=_read_metadata(body),
            committed_ms=self._clock.now_ms(),
        )
        await self._offsets.commit_offsets(group, {partition.tp: committed})
        return web.json_response(
            {"group": group, "topic": topic, "partition": number, "offset": committed.offset}
        )

    async def describe_group(self, request: web.Request) -> web.Response:
        group = check_group(request.match_info["group"])
        committed = await self._offsets.committed_offsets(group)
        offsets = [
            shown_offset
            for tp, offset in sorted(committed.items())
            if (shown_offset := self._offset_json(tp, offset)) is not None
        ]
        if not offsets:
            raise NotFound(
                f"group {group!r} has committed nothing; "
                "commit with POST /api/v1/consumer-groups/commit"
            )
        offsets.sort(key=lambda item: (str(item["topic"]), item["partition"]))
        lag = sum(item["lag"] for item in offsets if isinstance(item["lag"], int))
        return web.json_response({"group": group, "lag": lag, "offsets": offsets})

    async def _offset(self, request: web.Request, topic: str, number: int) -> int:
        partition = self._agent.catalog.partition(topic, number)
        raw = request.query.get("offset")
        if raw is None:
            committed = await self._committed(request, partition.tp)
            return partition.machine.log_start if committed is None else committed
        if raw == "earliest":
            return partition.machine.log_start
        if raw == "latest":
            return partition.machine.high_watermark
        offset = parse_integer(raw)
        if offset is None:
            raise bad_request(
                "invalid_parameter",
                f"offset must be a whole number, earliest or latest, not {shown(raw)}",
            )
        return offset

    async def _committed(self, request: web.Request, tp: TopicPartition) -> int | None:
        if "group" not in request.query:
            return None
        group = check_group(query_text(request, "group"))
        found = (await self._offsets.committed_offsets(group)).get(tp)
        return None if found is None else found.offset

    def _offset_json(self, tp: TopicPartition, offset: CommittedOffset) -> dict[str, object] | None:
        topic = self._agent.catalog.find_id(tp.topic_id)
        if topic is None:
            return None  # deleted while we looked
        high_watermark = self._agent.catalog.partitions[tp].machine.high_watermark
        return {
            "topic": topic.name,
            "partition": tp.partition,
            "offset": offset.offset,
            "metadata": offset.metadata,
            "committed_ms": offset.committed_ms,
            "high_watermark": high_watermark,
            "lag": max(high_watermark - offset.offset, 0),
        }


def check_group(group: str) -> str:
    if len(group) > GROUP_CHARS_MAX or not group.isprintable():
        raise bad_request(
            "invalid_group",
            f"a group name has 1 to {GROUP_CHARS_MAX} printable characters",
        )
    return checked_text("group", group)


def _read_metadata(body: Fields) -> str:
    metadata = body.text_or("metadata", "")
    if len(metadata.encode()) > OFFSET_METADATA_BYTES_MAX:
        raise bad_request(
            "invalid_field", f"metadata has at most {OFFSET_METADATA_BYTES_MAX} bytes"
        )
    return metadata
