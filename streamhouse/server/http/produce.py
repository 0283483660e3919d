"""/api/v1/produce: records in, places out, through the same append as Kafka's.

Answers after the records are committed unless `acks` says otherwise. A batch that is larger than
one Kafka batch may be is cut, so that only single records can be too large, and those are found
before anything is written.
"""

import asyncio
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from itertools import chain

from aiohttp import web

from streamhouse.model.errors import StreamhouseError
from streamhouse.model.limits import HTTP_RECORDS_MAX
from streamhouse.model.records import NewRecord, Produced
from streamhouse.server.http.fields import Fields, read_body
from streamhouse.server.http.parts import HttpParts
from streamhouse.server.http.problems import Problem, problem_of
from streamhouse.server.http.record_json import RECORD_FIELDS, read_record

# Upper bounds of what the batch format adds; see Kafka's record batch v2.
BATCH_BYTES_OVERHEAD = 61
RECORD_BYTES_OVERHEAD = 40
HEADER_BYTES_OVERHEAD = 10

_ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}

Placed = tuple[int | None, NewRecord]


class ProduceRoutes:
    def __init__(self, parts: HttpParts) -> None:
        self._agent = parts.agent

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/produce", self.produce),
            web.post("/produce/batch", self.produce_batch),
        ]

    async def produce(self, request: web.Request) -> web.Response:
        body = (await read_body(request)).only({"topic", "acks", *RECORD_FIELDS})
        topic, acks = body.text("topic"), read_acks(body)
        [place] = await self._agent.produce_records(topic, [read_record(body)], acks)
        return web.json_response(
            {"partition": place.partition, "offset": place.offset, "timestamp": place.timestamp_ms}
        )

    async def produce_batch(self, request: web.Request) -> web.Response:
        body = (await read_body(request)).only({"topic", "acks", "records"})
        name, acks = body.text("topic"), read_acks(body)
        bytes_max = self._agent.catalog.topic(name).settings.max_message_bytes
        records = [read_record(item.only(RECORD_FIELDS)) for item in body.objects("records")]
        if not 1 <= len(records) <= HTTP_RECORDS_MAX:
            body.refuse("records", f"1 to {HTTP_RECORDS_MAX} records", len(records))
        groups = list(cut_groups(records, bytes_max))
        # Each call appends before it first waits, so the groups keep their order.
        results = await asyncio.gather(
            *(self._agent.produce_records(name, group, acks) for group in groups),
            return_exceptions=True,
        )
        places = _all_or_problem(results)
        offsets = [{"partition": place.partition, "offset": place.offset} for place in places]
        return web.json_response({"count": len(offsets), "offsets": offsets})


def read_acks(body: Fields) -> int:
    value = body.get("acks")
    if value is None:
        return -1
    acks = None if isinstance(value, bool) else _ACKS.get(str(value))
    if acks is None:
        body.refuse("acks", '"all" (or -1), 1 or 0', value)
    return acks


def cut_groups(records: Sequence[Placed], bytes_max: int) -> Iterator[list[Placed]]:
    """Consecutive records that fit one batch even if all of them go to one partition."""
    for index, (_, record) in enumerate(records):
        if BATCH_BYTES_OVERHEAD + record_bytes_max(record) > bytes_max:
            raise Problem(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                "message_too_large",
                f"records[{index}] does not fit max.message.bytes={bytes_max} of the topic; "
                "nothing was written",
            )
    group: list[Placed] = []
    size_bytes = BATCH_BYTES_OVERHEAD
    for placed in records:
        record_bytes = record_bytes_max(placed[1])
        if group and size_bytes + record_bytes > bytes_max:
            yield group
            group, size_bytes = [], BATCH_BYTES_OVERHEAD
        group.append(placed)
        size_bytes += record_bytes
    if group:
        yield group


def record_bytes_max(record: NewRecord) -> int:
    """What the record takes in a batch, at most."""
    headers = sum(
        HEADER_BYTES_OVERHEAD + len(header.name.encode()) + len(header.value or b"")
        for header in record.headers
    )
    return RECORD_BYTES_OVERHEAD + len(record.key or b"") + len(record.value or b"") + headers


def _all_or_problem(results: Sequence[list[Produced] | BaseException]) -> list[Produced]:
    written: list[list[Produced]] = []
    failures: list[BaseException] = []
    for result in results:
        if isinstance(result, BaseException):
            failures.append(result)
        else:
            written.append(result)
    if not failures:
        return list(chain.from_iterable(written))
    if not written or not isinstance(failures[0], StreamhouseError):
        raise failures[0]
    cause = problem_of(failures[0])
    count = sum(map(len, written))
    raise Problem(
        cause.status,
        "partly_written",
        f"{count} records were written, the rest not: {cause.detail}",
        {"count": count, "cause": cause.code},
        cause.headers,
    )
