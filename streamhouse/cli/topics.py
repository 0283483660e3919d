"""`streamhouse topics`: the catalog through the REST API."""

from collections.abc import Sequence
from typing import Any

import click

from streamhouse.cli.client import Api, segment_of_path, with_server
from streamhouse.cli.main import CommandFailed
from streamhouse.cli.output import (
    bytes_text,
    json_option,
    print_fields,
    print_json,
    print_table,
    time_text,
)

TOPICS = "/api/v1/topics"


@click.group("topics")
def command() -> None:
    """List, create, describe, change and delete topics."""


@command.command("ls")
@json_option
@with_server
def list_topics(api: Api, as_json: bool) -> None:
    """List all topics."""
    topics = api.get(TOPICS)
    if as_json:
        print_json(topics)
        return
    print_table(
        ("topic", "partitions", "cleanup", "retention", "created"),
        (
            (
                topic["name"],
                topic["partition_count"],
                topic["cleanup_policy"],
                _duration(topic["retention_ms"]),
                time_text(topic["created_ms"]),
            )
            for topic in topics
        ),
        empty="no topics yet; create one with: streamhouse topics create NAME",
    )


@command.command("create")
@click.argument("name")
@click.option("--partitions", type=int, help="Number of partitions; it can never be changed.")
@click.option("--retention-ms", type=int, help="Age at which records go; -1 keeps them for ever.")
@click.option("--cleanup-policy", type=click.Choice(["delete", "compact", "compact,delete"]))
@click.option("--config", "-c", multiple=True, metavar="NAME=VALUE", help="Any topic setting.")
@json_option
@with_server
def create(
    api: Api,
    name: str,
    partitions: int | None,
    retention_ms: int | None,
    cleanup_policy: str | None,
    config: Sequence[str],
    as_json: bool,
) -> None:
    """Create a topic."""
    body: dict[str, object] = {"name": name, "config": _pairs(config)}
    wishes = {
        "partition_count": partitions,
        "retention_ms": retention_ms,
        "cleanup_policy": cleanup_policy,
    }
    body |= {field: wish for field, wish in wishes.items() if wish is not None}
    topic = api.post(TOPICS, body)
    if as_json:
        print_json(topic)
    else:
        count = topic["partition_count"]
        click.echo(f"created {name} with {count} partition{'s' if count != 1 else ''}")


@command.command("describe")
@click.argument("name")
@json_option
@with_server
def describe(api: Api, name: str, as_json: bool) -> None:
    """Show a topic with its partitions."""
    topic = api.get(_path(name))
    if as_json:
        print_json(topic)
        return
    print_fields(
        [
            ("topic", topic["name"]),
            ("id", topic["topic_id"]),
            ("cleanup", topic["cleanup_policy"]),
            ("retention", _duration(topic["retention_ms"])),
            ("created", time_text(topic["created_ms"])),
            ("config", _config_text(topic["config"])),
        ]
    )
    print_table(
        ("partition", "leader", "epoch", "low", "high watermark", "segments", "stored"),
        (
            (
                partition["partition"],
                partition["leader"],
                partition["epoch"],
                partition["low_watermark"],
                partition["high_watermark"],
                partition["segment_count"],
                bytes_text(partition["bytes_stored"]),
            )
            for partition in topic["partitions"]
        ),
        empty="no partitions",
    )


@command.command("delete")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@with_server
def delete(api: Api, name: str, yes: bool, as_json: bool) -> None:
    """Delete a topic with all its records."""
    if not yes:
        click.confirm(f"delete topic {name} with all its records?", abort=True)
    api.delete(_path(name))
    if as_json:
        print_json({"deleted": name})
    else:
        click.echo(f"deleted {name}")


@command.command("config")
@click.argument("name")
@click.option("--set", "-s", "set_", multiple=True, metavar="NAME=VALUE", help="Change a setting.")
@click.option("--unset", "-u", multiple=True, metavar="NAME", help="Go back to the default.")
@json_option
@with_server
def config(api: Api, name: str, set_: Sequence[str], unset: Sequence[str], as_json: bool) -> None:
    """Show or change a topic's settings; changes take effect at once."""
    if set_ or unset:
        changes: dict[str, Any] = {**_pairs(set_), **dict.fromkeys(unset)}
        topic = api.patch(_path(name), {"config": changes})
    else:
        topic = api.get(_path(name))
    if as_json:
        print_json(topic["config"])
        return
    print_table(
        ("setting", "value"),
        sorted(topic["config"].items()),
        empty=f"{name} uses the defaults; change one with --set NAME=VALUE",
    )


def _path(name: str) -> str:
    return f"{TOPICS}/{segment_of_path(name)}"


def _pairs(entries: Sequence[str]) -> dict[str, str]:
    found = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not equals or not name:
            raise CommandFailed(f"{entry!r} is not a setting; write NAME=VALUE")
        found[name] = value
    return found


def _config_text(config: dict[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(config.items())) or "defaults"


def _duration(milliseconds: int) -> str:
    if milliseconds < 0:
        return "for ever"
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if milliseconds >= size and milliseconds % size == 0:
            return f"{milliseconds // size} {unit}"
    return f"{milliseconds} ms"
