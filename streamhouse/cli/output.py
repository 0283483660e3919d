"""What commands print: tables for people, JSON for programs."""

import json
import sys
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from streamhouse.model.records import Record, RecordHeader

F = TypeVar("F", bound=Callable[..., Any])

PIPE_WIDTH = 10_000  # tables are never cut when nobody looks at a terminal
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_UNIT_STEP = 1024


def json_option(function: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def print_json(value: object) -> None:
    click.echo(json.dumps(value, indent=2))


def print_json_line(value: object) -> None:
    click.echo(json.dumps(value))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], empty: str) -> None:
    """A table, or the sentence `empty` if there are no rows. Columns of numbers align right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    listed = [list(row) for row in rows]
    if not listed:
        click.echo(empty)
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        numeric = all(isinstance(row[index], int) for row in listed)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in listed:
        table.add_row(*(Text(str(cell)) for cell in row))
    Console(width=None if sys.stdout.isatty() else PIPE_WIDTH).print(table)


def print_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Names and values, one per line."""
    listed = list(fields)
    width = max(len(name) for name, _ in listed)
    for name, value in listed:
        click.echo(f"{name.ljust(width)}  {value}")


def record_json(record: Record, partition: int) -> dict[str, object]:
    """A record as the REST API shows it: text, or base64 where the bytes are no text."""
    shown: dict[str, object] = {
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
    }
    for name, data in (("key", record.key), ("value", record.value)):
        shown[name], is_text = _text(data)
        if not is_text:
            shown[f"{name}_encoding"] = shown["encoding"] = "base64"
    shown["headers"] = [_header_json(header) for header in record.headers]
    return shown


def _header_json(header: RecordHeader) -> dict[str, object]:
    value, is_text = _text(header.value)
    shown: dict[str, object] = {"name": header.name, "value": value}
    return shown if is_text else {**shown, "encoding": "base64"}


def _text(data: bytes | None) -> tuple[str | None, bool]:
    if data is None:
        return None, True
    try:
        return data.decode(), True
    except UnicodeDecodeError:
        return b64encode(data).decode("ascii"), False


def bytes_text(size: int) -> str:
    value = float(size)
    for unit in _UNITS[:-1]:
        if value < _UNIT_STEP:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= _UNIT_STEP
    return f"{value:.1f} {_UNITS[-1]}"


def time_text(timestamp_ms: int) -> str:
    if timestamp_ms < 0:
        return "-"
    try:
        at = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return at.strftime("%Y-%m-%d %H:%M:%S.") + f"{timestamp_ms % 1000:03d}Z"
