"""`streamhouse segments`: what lies in the store, without a server and without a database."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import click

from streamhouse.cli.main import EXIT_FAILED, CommandFailed
from streamhouse.cli.output import (
    bytes_text,
    json_option,
    print_fields,
    print_json,
    print_json_line,
    print_table,
    time_text,
)
from streamhouse.model.errors import NotFound
from streamhouse.model.ids import ObjectKey

F = TypeVar("F", bound=Callable[..., Any])


@click.group("segments")
def command() -> None:
    """Look into stored segments: a server's data directory, a bare directory or a bucket."""


def _store_options(function: F) -> F:
    function = click.option(
        "--store", envvar="OBJECT_STORE_URL", metavar="URL", help="file:///path or a directory."
    )(function)
    return click.option(
        "--data-dir",
        envvar="DATA_DIR",
        default="./streamhouse-data",
        show_default=True,
        help="A server's data directory; used unless --store is given.",
    )(function)


def _choice_options(function: F) -> F:
    function = click.option("--topic", help="Only this topic, by name or id.")(function)
    return click.option("--partition", type=int, help="Only this partition.")(function)


@command.command("ls")
@_choice_options
@_store_options
@json_option
def list_segments(
    topic: str | None, partition: int | None, store: str | None, data_dir: str, as_json: bool
) -> None:
    """List live segments, as the manifests name them (else all that lie there)."""
    _run(_list(topic, partition, store, data_dir, as_json))


@command.command("inspect")
@click.argument("segment")
@_store_options
@json_option
def inspect(segment: str, store: str | None, data_dir: str, as_json: bool) -> None:
    """Show footer, sections and index of SEGMENT: a key in the store, or a file."""
    _run(_inspect(segment, store, data_dir, as_json))


@command.command("verify")
@click.argument("segment", nargs=-1)
@_choice_options
@_store_options
@json_option
def verify(
    segment: Sequence[str],
    topic: str | None,
    partition: int | None,
    store: str | None,
    data_dir: str,
    as_json: bool,
) -> None:
    """Read every block and report damage; exit code 1 if there is any."""
    _run(_verify(segment, topic, partition, store, data_dir, as_json))


@command.command("cat")
@click.argument("segment", nargs=-1)
@_choice_options
@click.option("--offset", type=int, default=0, help="Begin with this offset.")
@click.option("--max", "records_max", type=click.IntRange(min=1), help="Stop after so many.")
@_store_options
def cat(
    segment: Sequence[str],
    topic: str | None,
    partition: int | None,
    offset: int,
    records_max: int | None,
    store: str | None,
    data_dir: str,
) -> None:
    """Print records as JSON lines: of the SEGMENTs named, or of all live ones."""
    _run(_cat(segment, topic, partition, offset, records_max, store, data_dir))


def _run(work: Coroutine[None, None, int]) -> None:
    code = asyncio.run(work)
    if code:
        raise click.exceptions.Exit(code)


@asynccontextmanager
async def _opened(store: str | None, data_dir: str) -> AsyncIterator[Any]:
    from streamhouse.cli.store import open_for_reading, store_url

    objects = await open_for_reading(store_url(store, data_dir))
    try:
        yield objects
    finally:
        await objects.close()


async def _list(
    topic: str | None, partition: int | None, store: str | None, data_dir: str, as_json: bool
) -> int:
    from streamhouse.cli.store import find_segments

    async with _opened(store, data_dir) as objects:
        found = await find_segments(objects, topic, partition)
        rows = []
        for segment in found:
            size = segment.bytes_stored
            rows.append((segment, await objects.size(segment.key) if size is None else size))
    if as_json:
        print_json(
            [
                {
                    "topic": segment.topic,
                    "topic_id": str(segment.tp.topic_id),
                    "partition": segment.tp.partition,
                    "base_offset": segment.base,
                    "end_offset": segment.end,
                    "record_count": segment.record_count,
                    "bytes_stored": size,
                    "timestamp_min_ms": segment.timestamp_min_ms,
                    "timestamp_max_ms": segment.timestamp_max_ms,
                    "source": segment.source,
                    "key": segment.key,
                }
                for segment, size in rows
            ]
        )
        return 0
    print_table(
        ("topic", "partition", "base", "end", "stored", "source", "key"),
        (
            (s.topic, s.tp.partition, s.base, s.end, bytes_text(size), s.source, s.key)
            for s, size in rows
        ),
        empty="no segments here; records younger than the roll age are still in the server's WAL",
    )
    return 0


async def _inspect(segment: str, store: str | None, data_dir: str, as_json: bool) -> int:
    from streamhouse.cli.store import read_tail
    from streamhouse.segment.layout import CODEC_NAMES

    async with _one(segment, store, data_dir) as (objects, key):
        tail = await read_tail(objects, key)
    footer, sections = tail.footer, tail.sections
    if as_json:
        print_json(
            {
                "key": key,
                "topic_id": str(tail.tp.topic_id),
                "partition": tail.tp.partition,
                "footer": {**asdict(footer), "crc": f"{footer.crc:08x}"},
                "epochs": [sections.epoch_first, sections.epoch_last],
                "data_count": sections.data_count,
                "control_count": sections.control_count,
                "producers": len(sections.snapshot.producers),
                "aborted": len(sections.aborted),
                "blocks": [block._asdict() for block in tail.blocks],
            }
        )
        return 0
    print_fields(
        [
            ("key", key),
            ("topic id", tail.tp.topic_id),
            ("partition", tail.tp.partition),
            ("offsets", f"{footer.base} to {footer.end - 1}"),
            ("records", f"{sections.data_count} and {sections.control_count} control"),
            ("bytes", f"{sections.bytes_raw} raw, {footer.file_bytes} in the file"),
            (
                "time",
                f"{time_text(footer.timestamp_min_ms)} to {time_text(footer.timestamp_max_ms)}",
            ),
            ("epochs", f"{sections.epoch_first} to {sections.epoch_last}"),
            ("producers", len(sections.snapshot.producers)),
        ]
    )
    print_table(
        ("block", "position", "stored", "raw", "codec", "first", "last", "records", "crc"),
        (
            (
                number,
                block.position,
                block.stored_length,
                block.raw_length,
                CODEC_NAMES.get(block.codec, block.codec),
                block.base,
                block.last,
                block.record_count,
                f"{block.crc:08x}",
            )
            for number, block in enumerate(tail.blocks)
        ),
        empty="no blocks",
    )
    return 0


async def _verify(
    segments: Sequence[str],
    topic: str | None,
    partition: int | None,
    store: str | None,
    data_dir: str,
    as_json: bool,
) -> int:
    from streamhouse.cli.store import Damage
    from streamhouse.cli.store import verify as verify_segment

    damages: list[Damage] = []
    checked, bytes_checked = 0, 0
    async with _several(segments, topic, partition, store, data_dir) as chosen:
        with _progress(len(chosen), quiet=as_json) as advance:
            for objects, key in chosen:
                async for result in verify_segment(objects, key):
                    if isinstance(result, Damage):
                        damages.append(result)
                    else:
                        bytes_checked += result
                checked += 1
                advance()
    if as_json:
        print_json(
            {
                "segments": checked,
                "bytes": bytes_checked,
                "damage": [asdict(damage) for damage in damages],
            }
        )
    else:
        for damage in damages:
            where = "" if damage.block is None else f", block {damage.block}"
            where += "" if damage.position is None else f", byte {damage.position}"
            click.echo(f"DAMAGED {damage.key}{where}: {damage.detail}")
        verdict = f"{len(damages)} damaged places" if damages else "no damage"
        click.echo(f"{checked} segments, {bytes_text(bytes_checked)} checked: {verdict}")
    return EXIT_FAILED if damages else 0


async def _cat(
    segments: Sequence[str],
    topic: str | None,
    partition: int | None,
    offset: int,
    records_max: int | None,
    store: str | None,
    data_dir: str,
) -> int:
    from streamhouse.cli.store import read_block, read_tail
    from streamhouse.kafka_proto.record_batch import decode_records, iter_batches

    left = records_max
    async with _several(segments, topic, partition, store, data_dir) as chosen:
        for objects, key in chosen:
            tail = await read_tail(objects, key)
            for block in tail.blocks_from(offset):
                raw = memoryview(await read_block(objects, key, block))
                for position, header in iter_batches(raw):
                    if header.is_control:
                        continue
                    for record in decode_records(raw[position : position + header.size_bytes]):
                        if record.offset < offset:
                            continue
                        print_json_line(_record_json(record, tail.tp.partition))
                        left = None if left is None else left - 1
                        if left == 0:
                            return 0
    return 0


def _record_json(record: Any, partition: int) -> dict[str, object]:
    shown: dict[str, object] = {
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
    }
    for name, data in (("key", record.key), ("value", record.value)):
        try:
            shown[name] = None if data is None else data.decode()
        except UnicodeDecodeError:
            shown[name] = b64encode(data).decode("ascii")
            shown[f"{name}_encoding"] = shown["encoding"] = "base64"
    shown["headers"] = [
        {"name": header.name, "value": _header_text(header.value)} for header in record.headers
    ]
    return shown


def _header_text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="backslashreplace")


@asynccontextmanager
async def _one(segment: str, store: str | None, data_dir: str) -> AsyncIterator[Any]:
    """(store, key) of a segment named by its key, or by a file's path."""
    async with _several([segment], None, None, store, data_dir) as chosen:
        yield chosen[0]


@asynccontextmanager
async def _several(
    segments: Sequence[str],
    topic: str | None,
    partition: int | None,
    store: str | None,
    data_dir: str,
) -> AsyncIterator[list[tuple[Any, ObjectKey]]]:
    """(store, key) of the segments named, or of all live ones that fit topic and partition."""
    from streamhouse.cli.store import find_segments, local_segment

    if segments and all(Path(name).is_file() for name in segments):
        files = [local_segment(Path(name)) for name in segments]
        try:
            yield list(files)
        finally:
            for objects, _ in files:
                await objects.close()
        return
    async with _opened(store, data_dir) as objects:
        if not segments:
            found = await find_segments(objects, topic, partition)
            yield [(objects, segment.key) for segment in found]
            return
        for name in segments:
            await _check_exists(objects, name)
        yield [(objects, ObjectKey(name)) for name in segments]


async def _check_exists(objects: Any, name: str) -> None:
    try:
        await objects.size(ObjectKey(name))
    except NotFound:
        raise CommandFailed(
            f"there is no segment {name}; list them with: streamhouse segments ls"
        ) from None


class _progress:
    """A bar on stderr, if somebody looks."""

    def __init__(self, total: int, quiet: bool) -> None:
        import sys

        self._bar: Any = None
        if not quiet and sys.stderr.isatty():
            self._bar = click.progressbar(length=total, label="verifying", file=sys.stderr)

    def __enter__(self) -> Callable[[], None]:
        if self._bar is None:
            return lambda: None
        bar = self._bar.__enter__()
        return lambda: bar.update(1)

    def __exit__(self, *error: Any) -> None:
        if self._bar is not None:
            self._bar.__exit__(*error)
