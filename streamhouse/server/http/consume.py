"""/api/v1/consume: committed records out.

A consumer that names its group and no offset goes on where the group committed last. An offset
that is not in the log is answered with 416 and the range there is, never with silence.
"""

from aiohttp import web

from streamhouse.model.ids import TopicPartition
from streamhouse.model.limits import HTTP_RECORDS_MAX, HTTP_WAIT_MS_MAX
from streamhouse.server.http.fields import (
    parse_integer,
    query_integer,
    query_text,
    shown,
)
from streamhouse.server.http.groups import check_group
from streamhouse.server.http.parts import HttpParts
from streamhouse.server.http.problems import bad_request
from streamhouse.server.http.record_json import record_json

RECORDS_DEFAULT = 100


class ConsumeRoutes:
    def __init__(self, parts: HttpParts) -> None:
        self._agent = parts.agent
        self._groups = parts.groups

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/consume", self.consume),
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
        found = (await self._groups.committed(group)).get(tp)
        return None if found is None else found.offset
