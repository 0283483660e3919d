"""`streamhouse produce`: one record from options, or one per line of standard input.

Lines are sent as they arrive: whatever one read of the input brings is one request, so a slow
source is not held back and a fast one is batched.
"""

import os
import sys
from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import Any

import click

from streamhouse.cli.client import Api, with_server
from streamhouse.cli.main import CommandFailed
from streamhouse.cli.output import json_option, print_json

READ_BYTES = 1 << 18
LINES_PER_REQUEST_MAX = 5_000
LINE_BYTES_MAX = 8 << 20  # base64 and JSON make it larger; the server's limit is 16 MiB


@click.command("produce")
@click.argument("topic")
@click.option("--value", help="Write this one record instead of reading standard input.")
@click.option("--key", help="Key of the record, or of every line.")
@click.option("--partition", type=int, help="Write to this partition; default: by key, or in turn.")
@click.option("--header", "-H", multiple=True, metavar="NAME=VALUE", help="Add a record header.")
@click.option("--key-separator", metavar="TEXT", help="Split each line into key and value here.")
@click.option("--acks", type=click.Choice(["all", "1", "0"]), default="all", show_default=True)
@json_option
@with_server
def command(
    api: Api,
    topic: str,
    value: str | None,
    key: str | None,
    partition: int | None,
    header: Sequence[str],
    key_separator: str | None,
    acks: str,
    as_json: bool,
) -> None:
    """Write records to TOPIC: --value for one, else one per line of standard input."""
    common: dict[str, Any] = {}
    if partition is not None:
        common["partition"] = partition
    if header:
        common["headers"] = [_header(entry) for entry in header]
    if key is not None:
        common["key"] = key
    if value is not None:
        place = api.post(
            "/api/v1/produce", {"topic": topic, "acks": acks, "value": value, **common}
        )
        if as_json:
            print_json(place)
        else:
            click.echo(f"partition {place['partition']}, offset {place['offset']}")
        return
    separator = key_separator.encode() if key_separator else None
    places = Places(as_json)
    for lines in read_lines(sys.stdin.fileno()):
        records = [{**common, **record_of_line(line, separator)} for line in lines]
        body = {"topic": topic, "acks": acks, "records": records}
        places.add(api.post("/api/v1/produce/batch", body)["offsets"])
    places.finish(topic)


class Places:
    """Where the records went, told while it goes on and at the end."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._live = sys.stderr.isatty() and not sys.stdin.isatty()
        self._count = 0
        self._next_offsets: dict[int, int] = {}

    def add(self, offsets: Sequence[dict[str, int]]) -> None:
        self._count += len(offsets)
        for place in offsets:
            self._next_offsets[place["partition"]] = place["offset"] + 1
        if self._live:
            click.echo(f"\r{self._count} records", err=True, nl=False)

    def finish(self, topic: str) -> None:
        if self._live:
            click.echo("\r", err=True, nl=False)
        if self._as_json:
            ends = {str(number): end for number, end in sorted(self._next_offsets.items())}
            print_json({"topic": topic, "count": self._count, "next_offsets": ends})
        else:
            click.echo(f"produced {self._count} records to {topic}", err=True)


def read_lines(descriptor: int) -> Iterator[list[bytes]]:
    """Whole lines, as many as arrived together; the last one need not end with a newline."""
    rest = b""
    while chunk := os.read(descriptor, READ_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > LINE_BYTES_MAX:
            raise CommandFailed(f"a line is longer than {LINE_BYTES_MAX} bytes; nothing of it went")
        for start in range(0, len(lines), LINES_PER_REQUEST_MAX):
            yield [
                line.removesuffix(b"\r") for line in lines[start : start + LINES_PER_REQUEST_MAX]
            ]
    if rest:
        yield [rest]


def record_of_line(line: bytes, separator: bytes | None) -> dict[str, str]:
    """The record of one line; bytes that are no text travel as base64."""
    if separator is None:
        return _field("value", line)
    key, found, value = line.partition(separator)
    if not found:
        raise CommandFailed(
            f"line {line[:60]!r} has no {separator.decode()!r}; without --key-separator the whole "
            "line is the value"
        )
    return {**_field("key", key), **_field("value", value)}


def _field(name: str, data: bytes) -> dict[str, str]:
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode("ascii")}


def _header(entry: str) -> dict[str, str]:
    name, equals, value = entry.partition("=")
    if not equals or not name:
        raise CommandFailed(f"{entry!r} is not a header; write NAME=VALUE")
    return {"name": name, "value": value}
