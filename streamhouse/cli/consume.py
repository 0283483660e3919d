"""`streamhouse consume`: records of one or all partitions, up to now or as they come.

Records of one partition come in order; between partitions there is no order.
"""

import sys
import time
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import click

from streamhouse.cli.client import Api, segment_of_path, with_server
from streamhouse.cli.main import CommandFailed
from streamhouse.cli.output import json_option, print_json_line

RECORDS_PER_REQUEST = 1_000
WAIT_MS = 5_000  # long poll of a single partition
IDLE_SECONDS = 0.2  # pause after a round over several partitions that brought nothing


@click.command("consume")
@click.argument("topic")
@click.option("--partition", type=int, help="Read only this partition; default: all.")
@click.option(
    "--offset",
    metavar="earliest|latest|N",
    help="Where to begin; default: where the group stands, else earliest.",
)
@click.option(
    "--max", "records_max", type=click.IntRange(min=1), help="Stop after so many records."
)
@click.option("--follow", "-f", is_flag=True, help="Wait for new records instead of ending.")
@click.option("--group", help="Begin where this group stands, and commit what was printed.")
@click.option("--with-key", is_flag=True, help="Print key, tab, value.")
@json_option
@with_server
def command(
    api: Api,
    topic: str,
    partition: int | None,
    offset: str | None,
    records_max: int | None,
    follow: bool,
    group: str | None,
    with_key: bool,
    as_json: bool,
) -> None:
    """Print the records of TOPIC, up to its end, or with --follow as they come."""
    begin = _begin(offset, follow, group)
    cursors = [
        Cursor(api, topic, number, begin, group) for number in _partitions(api, topic, partition)
    ]
    left = sys.maxsize if records_max is None else records_max
    try:
        for cursor, record in _records(cursors, follow, left):
            _print(record, as_json, with_key)
            cursor.printed(record)
    except KeyboardInterrupt:
        pass  # how --follow ends
    finally:
        sys.stdout.flush()
        for cursor in cursors:
            cursor.commit()


class Cursor:
    """Where one partition is read, and how far its records were printed."""

    def __init__(
        self, api: Api, topic: str, number: int, begin: str | None, group: str | None
    ) -> None:
        self._api = api
        self._topic = topic
        self._number = number
        self._group = group
        self._offset: str | int | None = begin
        self._stop: int | None = None  # the high watermark of the first answer
        self._printed_next: int | None = None
        self._committed: int | None = None

    @property
    def at_end(self) -> bool:
        """Everything that was there when reading began has been read."""
        return (
            self._stop is not None
            and isinstance(self._offset, int)
            and (self._offset >= self._stop)
        )

    def fetch(self, records_max: int, wait_ms: int) -> list[dict[str, Any]]:
        answer = self._api.get(
            "/api/v1/consume",
            {
                "topic": self._topic,
                "partition": self._number,
                "offset": self._offset,
                "group": self._group if self._offset is None else None,
                "max_records": min(records_max, RECORDS_PER_REQUEST),
                "max_wait_ms": wait_ms,
            },
        )
        if self._stop is None:
            self._stop = answer["high_watermark"]
        self._offset = answer["next_offset"]
        records: list[dict[str, Any]] = answer["records"]
        return records

    def printed(self, record: dict[str, Any]) -> None:
        self._printed_next = record["offset"] + 1

    def commit(self) -> None:
        """Tell the group's position; only what was printed counts."""
        if self._group is None or self._printed_next in (None, self._committed):
            return
        self._api.post(
            "/api/v1/consumer-groups/commit",
            {
                "group": self._group,
                "topic": self._topic,
                "partition": self._number,
                "offset": self._printed_next,
            },
        )
        self._committed = self._printed_next


def _records(
    cursors: list[Cursor], follow: bool, left: int
) -> Iterator[tuple[Cursor, dict[str, Any]]]:
    wait_ms = WAIT_MS if follow and len(cursors) == 1 else 0
    while cursors and left > 0:
        found_any = False
        for cursor in cursors:
            if left <= 0:
                return
            found = cursor.fetch(left, wait_ms)
            for record in found:
                yield cursor, record
            left -= len(found)
            found_any = found_any or bool(found)
            cursor.commit()
        if not follow:
            cursors = [cursor for cursor in cursors if not cursor.at_end]
        elif not found_any and not wait_ms:
            sys.stdout.flush()
            time.sleep(IDLE_SECONDS)


def _begin(offset: str | None, follow: bool, group: str | None) -> str | None:
    if offset is None:
        # Who follows without saying from where wants what comes, as with `tail -f`; a group
        # goes on where it stands.
        return "latest" if follow and group is None else None
    if offset not in ("earliest", "latest") and not offset.isdigit():
        raise click.UsageError("--offset is earliest, latest or a whole number")
    return offset


def _partitions(api: Api, topic: str, partition: int | None) -> list[int]:
    if partition is not None:
        return [partition]
    listed = api.get(f"/api/v1/topics/{segment_of_path(topic)}/partitions")
    return [item["partition"] for item in listed]


def _print(record: dict[str, Any], as_json: bool, with_key: bool) -> None:
    if as_json:
        print_json_line(record)
        return
    out = sys.stdout.buffer
    if with_key:
        out.write(_bytes(record, "key") + b"\t")
    out.write(_bytes(record, "value") + b"\n")
    out.flush()


def _bytes(record: dict[str, Any], name: str) -> bytes:
    value = record[name]
    if value is None:
        return b""
    if record.get(f"{name}_encoding") == "base64":
        return b64decode(value)
    if not isinstance(value, str):
        raise CommandFailed(f"the server sent {name} as {type(value).__name__}")
    return value.encode()
