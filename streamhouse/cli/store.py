"""Segments in a store, read without a server: a data directory, a bare directory, a bucket, a file.

Only reads: a store that a server uses at the same time is left exactly as it is.
"""

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from streamhouse.cli.main import CommandFailed
from streamhouse.model.errors import Corrupt, DecodeError, Invalid, NotFound
from streamhouse.model.ids import ObjectKey, TopicId, TopicPartition
from streamhouse.model.keys import (
    TOPICS_PREFIX,
    parse_manifest_key,
    parse_segment_key,
    topic_key,
)
from streamhouse.objects.local import LocalObjects
from streamhouse.objects.open import open_store
from streamhouse.ports.objects import OwnedObjectStore
from streamhouse.segment.block import BlockEntry, decode_block
from streamhouse.segment.decode import NeedMore, SegmentTail, decode_tail, tail_start
from streamhouse.segment.footer import decode_file_header
from streamhouse.segment.layout import FILE_HEADER_BYTES
from streamhouse.segment.manifest import Manifest, decode_manifest, decode_topic, join_pages

FROM_MANIFEST = "manifest"
FROM_KEYS = "keys"  # nobody vouches that the segment is live


@dataclass(frozen=True, slots=True)
class FoundSegment:
    """A segment that a manifest names, or that merely lies in the store."""

    key: ObjectKey
    tp: TopicPartition
    topic: str  # its name, or its id where the store does not say
    base: int
    end: int
    source: str
    record_count: int | None = None
    bytes_stored: int | None = None
    timestamp_min_ms: int | None = None
    timestamp_max_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Damage:
    """Something wrong with a segment. `block` is None outside blocks."""

    key: str
    block: int | None
    position: int | None
    detail: str


def store_url(store: str | None, data_dir: str) -> str:
    """The store to look into; the data directory's own unless another is named."""
    if store:
        return store if "://" in store else Path(store).resolve().as_uri()
    return (Path(data_dir) / "objects").resolve().as_uri()


async def open_for_reading(url: str) -> OwnedObjectStore:
    """Open without preparing anything: a server may be writing there, or the disk be read-only."""
    parts = urlsplit(url)
    if parts.scheme != "file":
        return await open_store(url)
    return _existing_directory(Path(unquote(parts.path)))


async def find_segments(
    objects: OwnedObjectStore, topic: str | None = None, partition: int | None = None
) -> list[FoundSegment]:
    """Live segments by topic, partition and offset.

    A partition's newest readable manifest says what is live; without one, every segment that lies
    there is listed.
    """
    manifests: dict[TopicPartition, list[tuple[int, ObjectKey]]] = {}
    lying: dict[TopicPartition, list[ObjectKey]] = {}
    async for key in objects.list_keys(TOPICS_PREFIX):
        _sort_in(key, manifests, lying)
    found: list[FoundSegment] = []
    names: dict[TopicId, str] = {}
    for tp in sorted(manifests.keys() | lying.keys()):
        name = names.setdefault(tp.topic_id, await _topic_name(objects, tp.topic_id))
        if topic not in (None, name, str(tp.topic_id)) or partition not in (None, tp.partition):
            continue
        manifest = await _newest_manifest(objects, manifests.get(tp, []))
        if manifest is not None:
            found += _of_manifest(manifest, name)
        else:
            found += _of_keys(lying.get(tp, []), name)
    return sorted(found, key=lambda s: (s.topic, s.tp, s.base, s.end))


async def read_tail(objects: OwnedObjectStore, key: ObjectKey) -> SegmentTail:
    """Footer, index and sections. Raises NotFound, Corrupt, DecodeError."""
    size = await objects.size(key)
    start = tail_start(size)
    while True:
        tail = decode_tail(await objects.get_range(key, start, size), size)
        if not isinstance(tail, NeedMore):
            return tail
        start = size - tail.bytes_needed


async def read_block(objects: OwnedObjectStore, key: ObjectKey, block: BlockEntry) -> bytes:
    """The record batches of one block. Raises Corrupt."""
    return decode_block(block, await objects.get_range(key, block.position, block.stop))


async def verify_segment(objects: OwnedObjectStore, key: ObjectKey) -> AsyncIterator[Damage | int]:
    """Check every byte of a segment: yields bytes checked, and damage where there is some."""
    try:
        tail = await read_tail(objects, key)
        head = await objects.get_range(key, 0, FILE_HEADER_BYTES)
    except (Corrupt, DecodeError, NotFound) as error:
        yield Damage(key, None, None, str(error))
        return
    damage = _header_damage(key, head, tail)
    if damage is not None:
        yield damage
    position = FILE_HEADER_BYTES
    for number, block in enumerate(tail.blocks):
        if block.position != position:
            yield Damage(key, number, position, f"bytes {position} to {block.position} are unused")
        position = block.stop
        try:
            await read_block(objects, key, block)
        except (Corrupt, DecodeError) as error:
            yield Damage(key, number, block.position, str(error))
        yield block.stored_length


def _existing_directory(root: Path) -> LocalObjects:
    if not root.is_dir():
        raise CommandFailed(
            f"there is no directory {root}; name the server's with --data-dir, or a store with "
            "--store file:///path"
        )
    return LocalObjects(root)


def local_segment(path: Path) -> tuple[OwnedObjectStore, ObjectKey]:
    """A single file, wherever it lies."""
    return LocalObjects(path.parent.resolve()), ObjectKey(path.name)


def _sort_in(
    key: ObjectKey,
    manifests: dict[TopicPartition, list[tuple[int, ObjectKey]]],
    lying: dict[TopicPartition, list[ObjectKey]],
) -> None:
    try:
        if key.endswith(".strm"):
            lying.setdefault(parse_segment_key(key).tp, []).append(key)
        elif "/manifest/" in key:
            tp, version = parse_manifest_key(key)
            manifests.setdefault(tp, []).append((version, key))
    except Invalid:
        return  # a stranger's object


async def _newest_manifest(
    objects: OwnedObjectStore, listed: Iterable[tuple[int, ObjectKey]]
) -> Manifest | None:
    """The highest version wins; one that is damaged or just removed leaves it to the one before."""
    for _, key in sorted(listed, reverse=True):
        try:
            head = decode_manifest(await _whole(objects, key))
            pages = {page.key: await _whole(objects, page.key) for page in head.pages}
            return join_pages(head, pages)
        except (Corrupt, DecodeError, NotFound):
            continue
    return None


async def _topic_name(objects: OwnedObjectStore, topic_id: TopicId) -> str:
    try:
        return decode_topic(await _whole(objects, topic_key(topic_id))).name
    except (Corrupt, DecodeError, NotFound):
        return str(topic_id)


async def _whole(objects: OwnedObjectStore, key: ObjectKey) -> bytes:
    return await objects.get_range(key, 0, await objects.size(key))


def _of_manifest(manifest: Manifest, topic: str) -> list[FoundSegment]:
    return [
        FoundSegment(
            key=ref.key,
            tp=manifest.tp,
            topic=topic,
            base=ref.base,
            end=ref.end,
            source=FROM_MANIFEST,
            record_count=ref.record_count,
            bytes_stored=ref.bytes_stored,
            timestamp_min_ms=ref.timestamp_min_ms,
            timestamp_max_ms=ref.timestamp_max_ms,
        )
        for ref in manifest.segments
    ]


def _of_keys(keys: Iterable[ObjectKey], topic: str) -> list[FoundSegment]:
    found = []
    for key in keys:
        name = parse_segment_key(key)
        found.append(FoundSegment(key, name.tp, topic, name.base, name.end, FROM_KEYS))
    return found


def _header_damage(key: ObjectKey, head: bytes, tail: SegmentTail) -> Damage | None:
    try:
        tp = decode_file_header(head)
    except (Corrupt, DecodeError) as error:
        return Damage(key, None, 0, str(error))
    if tp != tail.tp:
        return Damage(key, None, 0, f"the file header says {tp}, the sections say {tail.tp}")
    return None
