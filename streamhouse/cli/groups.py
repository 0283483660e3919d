"""`streamhouse groups`: consumer groups through the REST API.

`reset` shows what it would do; with `--execute` it does it.
"""

from typing import Any

import click

from streamhouse.cli.client import Api, segment_of_path, with_server
from streamhouse.cli.output import json_option, print_fields, print_json, print_table, time_text

GROUPS = "/api/v1/consumer-groups"
NOTHING = "-"


@click.group("groups")
def command() -> None:
    """List, describe, reset and delete consumer groups."""


@command.command("ls")
@json_option
@with_server
def list_groups(api: Api, as_json: bool) -> None:
    """List all groups."""
    groups = api.get(GROUPS)
    if as_json:
        print_json(groups)
        return
    print_table(
        ("group", "state", "type", "members"),
        (
            (one["group"], one["state"], one["protocol_type"] or NOTHING, one["member_count"])
            for one in groups
        ),
        empty="no groups yet; a consumer with a group.id makes one",
    )


@command.command("describe")
@click.argument("group")
@json_option
@with_server
def describe(api: Api, group: str, as_json: bool) -> None:
    """Show who is in a group and where it stands."""
    found = api.get(_path(group))
    if as_json:
        print_json(found)
        return
    print_fields(
        (
            ("group", found["group"]),
            ("state", found["state"]),
            ("type", found["protocol_type"] or NOTHING),
            ("protocol", found["protocol"] or NOTHING),
            ("generation", found["generation"]),
            ("lag", found["lag"]),
        )
    )
    print_table(
        ("member", "instance", "client", "host", "partitions"),
        (
            (
                member["member_id"],
                member["instance_id"] or NOTHING,
                member["client_id"],
                member["client_host"],
                _assigned_text(member["assigned"]),
            )
            for member in found["members"]
        ),
        empty="no members",
    )
    print_table(
        ("topic", "partition", "offset", "end", "lag", "committed"),
        (
            (
                row["topic"],
                row["partition"],
                row["offset"],
                row["high_watermark"],
                row["lag"],
                time_text(row["committed_ms"]),
            )
            for row in found["offsets"]
        ),
        empty="nothing committed",
    )


@command.command("lag")
@click.argument("group")
@json_option
@with_server
def lag(api: Api, group: str, as_json: bool) -> None:
    """Show how far a group is behind, partition by partition."""
    found = api.get(f"{_path(group)}/lag")
    if as_json:
        print_json(found)
        return
    print_table(
        ("topic", "partition", "offset", "end", "lag", "member"),
        (
            (
                row["topic"],
                row["partition"],
                _shown(row["offset"]),
                row["high_watermark"],
                _shown(row["lag"]),
                row["member_id"] or NOTHING,
            )
            for row in found["partitions"]
        ),
        empty="nothing committed and nothing assigned",
    )


@command.command("reset")
@click.argument("group")
@click.option("--topic", help="Only this topic; default: all the group has committed.")
@click.option(
    "--partition", "partitions", type=int, multiple=True, help="Only this partition of the topic."
)
@click.option("--to-earliest", is_flag=True, help="To the oldest record.")
@click.option("--to-latest", is_flag=True, help="To the end.")
@click.option("--to-offset", type=click.IntRange(min=0), help="To this offset.")
@click.option("--to-datetime", metavar="TIME", help="To the first record at or after this time.")
@click.option("--shift-by", type=int, help="So many records on; a negative number goes back.")
@click.option("--execute", is_flag=True, help="Do it; without, it is only shown.")
@json_option
@with_server
def reset(
    api: Api,
    group: str,
    topic: str | None,
    partitions: tuple[int, ...],
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_datetime: str | None,
    shift_by: int | None,
    execute: bool,
    as_json: bool,
) -> None:
    """Move a group that has no members to other offsets."""
    targets: dict[str, Any] = {
        "to": "earliest" if to_earliest else "latest" if to_latest else None,
        "to_offset": to_offset,
        "to_datetime": to_datetime,
        "shift_by": shift_by,
    }
    chosen = {name: value for name, value in targets.items() if value is not None}
    if len(chosen) + (to_earliest and to_latest) != 1:
        raise click.UsageError(
            "give exactly one of --to-earliest, --to-latest, --to-offset, --to-datetime, --shift-by"
        )
    body: dict[str, Any] = {**chosen, "dry_run": not execute}
    if topic is not None:
        body["topic"] = topic
    if partitions:
        body["partitions"] = list(partitions)
    answer = api.post(f"{_path(group)}/reset", body)
    if as_json:
        print_json(answer)
        return
    print_table(
        ("topic", "partition", "from", "to"),
        (
            (row["topic"], row["partition"], _shown(row["from"]), row["to"])
            for row in answer["offsets"]
        ),
        empty="there is nothing to move",
    )
    if not execute:
        click.echo("nothing was changed; add --execute to do it")


@command.command("delete")
@click.argument("group")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@with_server
def delete(api: Api, group: str, yes: bool, as_json: bool) -> None:
    """Delete a group without members, and everything it committed."""
    if not yes:
        click.confirm(f"delete group {group} and its offsets?", abort=True)
    api.delete(_path(group))
    if as_json:
        print_json({"deleted": group})
    else:
        click.echo(f"deleted {group}")


def _path(group: str) -> str:
    return f"{GROUPS}/{segment_of_path(group)}"


def _shown(value: int | None) -> object:
    return NOTHING if value is None else value


def _assigned_text(assigned: list[dict[str, Any]]) -> str:
    by_topic: dict[str, list[str]] = {}
    for one in assigned:
        by_topic.setdefault(one["topic"], []).append(str(one["partition"]))
    return "; ".join(f"{topic}: {', '.join(found)}" for topic, found in by_topic.items()) or NOTHING
