"""/api/v1/topics: the catalog, partitions, segments and newest messages.

A topic's settings take effect as soon as they are stored; its partition count never changes.
"""

from collections.abc import Mapping
from http import HTTPStatus

from aiohttp import web

from streamhouse.model.errors import NotFound
from streamhouse.model.limits import HTTP_RECORDS_MAX
from streamhouse.model.partition import SegmentRef
from streamhouse.model.topic import Topic, TopicSpec
from streamhouse.server.http.fields import Fields, parse_integer, query_integer, read_body, shown
from streamhouse.server.http.parts import HttpParts
from streamhouse.server.http.problems import bad_request
from streamhouse.server.http.record_json import record_json

MESSAGES_DEFAULT = 50
SEGMENTS_SHOWN_MAX = 10_000

# A field of ours and the setting it stands for.
_SHORTHANDS = {
    "retention_ms": "retention.ms",
    "retention_bytes": "retention.bytes",
    "cleanup_policy": "cleanup.policy",
}


class TopicRoutes:
    def __init__(self, parts: HttpParts) -> None:
        self._parts = parts
        self._agent = parts.agent

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/topics", self.list_topics),
            web.post("/topics", self.create),
            web.get("/topics/{topic}", self.describe),
            web.patch("/topics/{topic}", self.alter),
            web.delete("/topics/{topic}", self.delete),
            web.get("/topics/{topic}/partitions", self.partitions),
            web.get("/topics/{topic}/messages", self.messages),
            web.get("/topics/{topic}/segments", self.segments),
        ]

    async def list_topics(self, _: web.Request) -> web.Response:
        return web.json_response([topic_json(topic) for topic in self._agent.catalog.topics()])

    async def create(self, request: web.Request) -> web.Response:
        body = (await read_body(request)).only({"name", "partition_count", "config", *_SHORTHANDS})
        # The range of the count is checked with the rest of the spec, for every door alike.
        count = body.integer_or_none("partition_count", low=-(2**31), high=2**31 - 1)
        if count is None:
            count = self._parts.settings.default_partitions
        config = {name: value for name, value in _read_config(body).items() if value is not None}
        topic = await self._agent.create_topic(TopicSpec(body.text("name"), count, config))
        location = {"Location": f"/api/v1/topics/{topic.name}"}
        return web.json_response(
            self._described(topic), status=HTTPStatus.CREATED, headers=location
        )

    async def describe(self, request: web.Request) -> web.Response:
        return web.json_response(self._described(self._topic(request)))

    async def alter(self, request: web.Request) -> web.Response:
        topic = self._topic(request)
        body = (await read_body(request)).only({"config", "partition_count", *_SHORTHANDS})
        if body.has("partition_count") and body.get("partition_count") != topic.partition_count:
            raise bad_request(
                "partition_count_fixed",
                f"topic {topic.name!r} has {topic.partition_count} partitions, and a partition "
                "count is fixed when the topic is created; create another topic with more",
            )
        changed = await self._agent.change_topic_config(topic, _read_config(body))
        return web.json_response(self._described(changed))

    async def delete(self, request: web.Request) -> web.Response:
        await self._agent.delete_topic(self._topic(request).topic_id)
        return web.Response(status=HTTPStatus.NO_CONTENT)

    async def partitions(self, request: web.Request) -> web.Response:
        return web.json_response(self._partitions_json(self._topic(request)))

    async def messages(self, request: web.Request) -> web.Response:
        """Records from `offset` on, or the newest ones."""
        topic = self._topic(request)
        number = query_integer(request, "partition", 0)
        limit = query_integer(request, "limit", MESSAGES_DEFAULT, low=1, high=HTTP_RECORDS_MAX)
        machine = self._agent.catalog.partition(topic.name, number).machine
        newest = max(machine.log_start, machine.high_watermark - limit)
        offset = query_integer(request, "offset", newest)
        found = await self._agent.consume_records(
            topic.name, number, offset, records_max=limit, wait_ms=0
        )
        return web.json_response(
            {
                "topic": topic.name,
                "partition": number,
                "records": [record_json(record, number) for record in found.records],
                "next_offset": found.next_offset,
                "high_watermark": found.high_watermark,
                "log_start": found.log_start,
            }
        )

    async def segments(self, request: web.Request) -> web.Response:
        """Registered segments; with `partition` and `offset` the one that holds the offset."""
        topic = self._topic(request)
        limit = query_integer(request, "limit", SEGMENTS_SHOWN_MAX, low=1, high=SEGMENTS_SHOWN_MAX)
        numbers = range(topic.partition_count)
        if "partition" in request.query:
            number = query_integer(request, "partition", 0)
            self._agent.catalog.partition(topic.name, number)
            numbers = range(number, number + 1)
        elif "offset" in request.query:
            raise bad_request("missing_parameter", "offset needs partition: offsets count there")
        found: list[dict[str, object]] = []
        for number in numbers:
            for segment in self._segments_of(request, topic, number):
                found.append(segment_json(segment, number))
            if len(found) >= limit:
                break
        return web.json_response(found[:limit])

    def _segments_of(self, request: web.Request, topic: Topic, number: int) -> list[SegmentRef]:
        partition = self._agent.catalog.partition(topic.name, number)
        raw = request.query.get("offset")
        if raw is None:
            return partition.segments
        offset = parse_integer(raw)
        if offset is None:
            raise bad_request(
                "invalid_parameter", f"offset must be a whole number, not {shown(raw)}"
            )
        partition.check_range(offset)
        try:
            return [partition.segment_for(offset)]
        except NotFound:
            return []  # still in the write-ahead log

    def _topic(self, request: web.Request) -> Topic:
        return self._agent.catalog.topic(request.match_info["topic"])

    def _described(self, topic: Topic) -> dict[str, object]:
        return {**topic_json(topic), "partitions": self._partitions_json(topic)}

    def _partitions_json(self, topic: Topic) -> list[dict[str, object]]:
        leader = self._parts.identity.agent_id
        found: list[dict[str, object]] = []
        for number in range(topic.partition_count):
            partition = self._agent.catalog.partition(topic.name, number)
            machine = partition.machine
            found.append(
                {
                    "partition": number,
                    "leader": leader,
                    "epoch": machine.epoch,
                    "high_watermark": machine.high_watermark,
                    "low_watermark": machine.log_start,
                    "last_stable_offset": machine.offset_stable,
                    "segments_end": machine.segments_end,
                    "segment_count": len(partition.segments),
                    "bytes_stored": sum(s.bytes_stored for s in partition.segments),
                }
            )
        return found


def topic_json(topic: Topic) -> dict[str, object]:
    settings = topic.settings
    policies = [
        name for name, on in (("compact", settings.compact), ("delete", settings.delete)) if on
    ]
    return {
        "name": topic.name,
        "topic_id": str(topic.topic_id),
        "partition_count": topic.partition_count,
        "retention_ms": settings.retention_ms,
        "retention_bytes": settings.retention_bytes,
        "cleanup_policy": ",".join(policies),
        "config": dict(topic.config),
        "created_ms": topic.created_ms,
    }


def segment_json(segment: SegmentRef, partition: int) -> dict[str, object]:
    return {
        "partition": partition,
        "base_offset": segment.base,
        "end_offset": segment.end,
        "record_count": segment.record_count,
        "bytes_raw": segment.bytes_raw,
        "bytes_stored": segment.bytes_stored,
        "timestamp_min_ms": segment.timestamp_min_ms,
        "timestamp_max_ms": segment.timestamp_max_ms,
        "epoch": segment.epoch,
        "generation": segment.generation,
        "created_ms": segment.created_ms,
        "format": segment.format,
        "key": segment.key,
    }


def _read_config(body: Fields) -> Mapping[str, str | None]:
    """Settings by Kafka's names; None asks for the default back."""
    config: dict[str, str | None] = {}
    for name, value in body.object_or_empty("config").items():
        config[name] = None if value is None else _setting(body, f"config.{name}", value)
    for name, setting in _SHORTHANDS.items():
        if not body.has(name):
            continue
        value = body.get(name)
        chosen = None if value is None else _setting(body, name, value).lower()
        if config.get(setting, chosen) != chosen:
            raise bad_request("invalid_field", f"{name} and config.{setting} contradict each other")
        config[setting] = chosen
    return config


def _setting(body: Fields, name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int):
        body.refuse(name, "a text, a whole number, true, false or null", value)
    return str(value)
