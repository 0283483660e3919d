"""`streamhouse segments`: what lies in the store, without a server and without a database."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from functools import wraps
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
    record_json,
    time_text,
)
from streamhouse.cli.store import (
    Damage,
    FoundSegment,
    find_segments,
    local_segment,
    open_for_reading,
    read_block,
    read_tail,
    store_url,
    verify_segment,
)
from streamhouse.model.errors import NotFound
from streamhouse.model.ids import ObjectKey
from streamhouse.model.records import Record
from streamhouse.ports.objects import OwnedObjectStore
from streamhouse.segment.decode import SegmentTail
from streamhouse.segment.layout import CODEC_NAMES

F = TypeVar("F", bound=Callable[..., Any])
Chosen = list[tuple[OwnedObjectStore, ObjectKey]]


@dataclass(frozen=True, slots=True)
class Where:
    """Which store, and what in it."""

    url: str
    topic: str | None = None
    partition: int | None = None


@click.group("segments")
def command() -> None:
    """Look into stored segments: a server's data directory, a bare directory or a bucket."""


def _where_options(function: F) -> F:
    """Add the options that say where to look, and hand the command a `where`."""

    @click.option(
        "--store",
        envvar="OBJECT_STORE_URL",
        metavar="URL",
        help="A store, as file:///path or a plain directory.",
    )
    @click.option(
        "--data-dir",
        envvar="DATA_DIR",
        default="./streamhouse-data",
        show_default=True,
        help="A server's data directory; used unless --store is given.",
    )
    @click.option("--topic", help="Only this topic, by name or id.")
    @click.option("--partition", type=int, help="Only this partition.")
    @wraps(function)
    def wrapped(
        *args: Any,
        store: str | None,
        data_dir: str,
        topic: str | None,
        partition: int | None,
        **kwargs: Any,
    ) -> Any:
        where = Where(store_url(store, data_dir), topic, partition)
        return function(*args, where=where, **kwargs)

    return wrapped  # type: ignore[return-value]


def _run(work: Coroutine[None, None, None]) -> None:
    asyncio.run(work)


# -- ls ------------------------------------------------------------------------------------------


@command.command("ls")
@_where_options
@json_option
def list_segments(where: Where, as_json: bool) -> None:
    """List live segments, as the manifests name them (else all that lie there)."""
    _run(_list(where, as_json))


async def _list(where: Where, as_json: bool) -> None:
    async with _opened(where.url) as objects:
        found = await find_segments(objects, where.topic, where.partition)
        sizes = [
            await objects.size(segment.key)
            if segment.bytes_stored is None
            else segment.bytes_stored
            for segment in found
        ]
    rows = list(zip(found, sizes, strict=True))
    if as_json:
        print_json([_segment_json(segment, size) for segment, size in rows])
        return
    print_table(
        ("topic", "partition", "base", "end", "stored", "source", "key"),
        (
            (s.topic, s.tp.partition, s.base, s.end, bytes_text(size), s.source, s.key)
            for s, size in rows
        ),
        empty="no segments here; records younger than the roll age are still in the server's WAL",
    )


def _segment_json(segment: FoundSegment, bytes_stored: int) -> dict[str, object]:
    return {
        "topic": segment.topic,
        "topic_id": str(segment.tp.topic_id),
        "partition": segment.tp.partition,
        "base_offset": segment.base,
        "end_offset": segment.end,
        "record_count": segment.record_count,
        "bytes_stored": bytes_stored,
        "timestamp_min_ms": segment.timestamp_min_ms,
        "timestamp_max_ms": segment.timestamp_max_ms,
        "source": segment.source,
        "key": segment.key,
    }


# -- inspect -------------------------------------------------------------------------------------


@command.command("inspect")
@click.argument("segment")
@_where_options
@json_option
def inspect(segment: str, where: Where, as_json: bool) -> None:
    """Show footer, sections and index of SEGMENT: a key in the store, or a file."""
    _run(_inspect(segment, where, as_json))


async def _inspect(segment: str, where: Where, as_json: bool) -> None:
    async with _chosen([segment], where) as [(objects, key)]:
        tail = await read_tail(objects, key)
    if as_json:
        print_json(_tail_json(key, tail))
        return
    footer, sections = tail.footer, tail.sections
    low, high = time_text(footer.timestamp_min_ms), time_text(footer.timestamp_max_ms)
    print_fields(
        [
            ("key", key),
            ("topic id", tail.tp.topic_id),
            ("partition", tail.tp.partition),
            ("offsets", f"{footer.base} to {footer.end - 1}"),
            ("records", f"{sections.data_count} and {sections.control_count} control"),
            ("bytes", f"{sections.bytes_raw} raw, {footer.file_bytes} in the file"),
            ("time", f"{low} to {high}"),
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
                CODEC_NAMES.get(block.codec, str(block.codec)),
                block.base,
                block.last,
                block.record_count,
                f"{block.crc:08x}",
            )
            for number, block in enumerate(tail.blocks)
        ),
        empty="no blocks",
    )


def _tail_json(key: str, tail: SegmentTail) -> dict[str, object]:
    sections = tail.sections
    return {
        "key": key,
        "topic_id": str(tail.tp.topic_id),
        "partition": tail.tp.partition,
        "footer": {**asdict(tail.footer), "crc": f"{tail.footer.crc:08x}"},
        "epochs": [sections.epoch_first, sections.epoch_last],
        "data_count": sections.data_count,
        "control_count": sections.control_count,
        "producers": len(sections.snapshot.producers),
        "aborted": len(sections.aborted),
        "blocks": [block._asdict() for block in tail.blocks],
    }


# -- verify --------------------------------------------------------------------------------------


@command.command("verify")
@click.argument("segment", nargs=-1)
@_where_options
@json_option
def verify(segment: Sequence[str], where: Where, as_json: bool) -> None:
    """Read every block and report damage; exit code 1 if there is any."""
    _run(_verify(segment, where, as_json))


async def _verify(segments: Sequence[str], where: Where, as_json: bool) -> None:
    damages: list[Damage] = []
    bytes_checked = 0
    async with _chosen(segments, where) as chosen:
        with _progress(len(chosen), quiet=as_json) as advance:
            for objects, key in chosen:
                async for result in verify_segment(objects, key):
                    if isinstance(result, Damage):
                        damages.append(result)
                    else:
                        bytes_checked += result
                advance()
    if as_json:
        listed = [asdict(damage) for damage in damages]
        print_json({"segments": len(chosen), "bytes": bytes_checked, "damage": listed})
    else:
        for damage in damages:
            click.echo(f"DAMAGED {_place(damage)}: {damage.detail}")
        verdict = f"damage in {len(damages)} places" if damages else "no damage"
        click.echo(f"{len(chosen)} segments, {bytes_text(bytes_checked)} checked: {verdict}")
    if damages:
        raise click.exceptions.Exit(EXIT_FAILED)


def _place(damage: Damage) -> str:
    block = "" if damage.block is None else f", block {damage.block}"
    position = "" if damage.position is None else f", byte {damage.position}"
    return f"{damage.key}{block}{position}"


@contextmanager
def _progress(total: int, quiet: bool) -> Iterator[Callable[[], None]]:
    """A bar on stderr, if somebody looks."""
    if quiet or not sys.stderr.isatty():
        yield lambda: None
        return
    with click.progressbar(length=total, label="verifying", file=sys.stderr) as bar:
        yield lambda: bar.update(1)


# -- cat -----------------------------------------------------------------------------------------


@command.command("cat")
@click.argument("segment", nargs=-1)
@click.option("--offset", type=int, default=0, help="Begin with this offset.")
@click.option("--max", "records_max", type=click.IntRange(min=1), help="Stop after so many.")
@_where_options
def cat(segment: Sequence[str], offset: int, records_max: int | None, where: Where) -> None:
    """Print records as JSON lines: of the SEGMENTs named, or of all live ones."""
    _run(_cat(segment, offset, records_max, where))


async def _cat(segments: Sequence[str], offset: int, records_max: int | None, where: Where) -> None:
    left = sys.maxsize if records_max is None else records_max
    async with _chosen(segments, where) as chosen:
        for objects, key in chosen:
            tail = await read_tail(objects, key)
            for block in tail.blocks_from(offset):
                for record in _records_of(await read_block(objects, key, block)):
                    if record.offset < offset:
                        continue
                    print_json_line(record_json(record, tail.tp.partition))
                    left -= 1
                    if not left:
                        return


def _records_of(block: bytes) -> Iterator[Record]:
    """Data records of a block's batches, in order."""
    from streamhouse.kafka_proto.record_batch import decode_records, iter_batches

    view = memoryview(block)
    for position, header in iter_batches(view):
        if not header.is_control:
            yield from decode_records(view[position : position + header.size_bytes])


# -- choosing ------------------------------------------------------------------------------------


@asynccontextmanager
async def _opened(url: str) -> AsyncIterator[OwnedObjectStore]:
    objects = await open_for_reading(url)
    try:
        yield objects
    finally:
        await objects.close()


@asynccontextmanager
async def _chosen(segments: Sequence[str], where: Where) -> AsyncIterator[Chosen]:
    """The segments named (keys, or paths of files), or all live ones that fit `where`."""
    files = _files(segments)
    if files:
        try:
            yield files
        finally:
            for objects, _ in files:
                await objects.close()
        return
    async with _opened(where.url) as objects:
        if not segments:
            found = await find_segments(objects, where.topic, where.partition)
            yield [(objects, segment.key) for segment in found]
            return
        for name in segments:
            await _check_exists(objects, name)
        yield [(objects, ObjectKey(name)) for name in segments]


def _files(segments: Sequence[str]) -> Chosen:
    if not all(Path(name).is_file() for name in segments):
        return []
    return [local_segment(Path(name)) for name in segments]


async def _check_exists(objects: OwnedObjectStore, name: str) -> None:
    try:
        await objects.size(ObjectKey(name))
    except NotFound:
        raise CommandFailed(
            f"there is no segment {name}; list them with: streamhouse segments ls"
        ) from None
