"""Looking into a store: reads only, trusts manifests, finds damage."""

import asyncio
from pathlib import Path

import pytest

from streamhouse.cli.main import CommandFailed
from streamhouse.cli.store import (
    FROM_KEYS,
    FROM_MANIFEST,
    Damage,
    find_segments,
    open_for_reading,
    store_url,
    verify_segment,
)
from streamhouse.model.ids import ObjectKey
from streamhouse.model.keys import manifest_key, topic_key
from streamhouse.objects.local import LocalObjects
from streamhouse.segment.manifest import Manifest, TopicDescription, encode_manifest, encode_topic
from tests.unit.cli.stored_segments import TP, StoredSegment, stored_segment

Pair = tuple[StoredSegment, StoredSegment]
Row = tuple[str, int, int, str]


def lay(root: Path, key: str, body: bytes) -> None:
    path = root / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)


def lay_manifest(root: Path, version: int, *segments: StoredSegment) -> None:
    refs = tuple(segment.ref for segment in segments)
    manifest = Manifest(TP, version, 1, refs[0].base, refs[-1].end, refs, (), 0)
    body, pages = encode_manifest(manifest)
    assert not pages
    lay(root, manifest_key(TP, version), body)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[StoredSegment, StoredSegment]:
    """Two segments in the store at `tmp_path`, no manifest."""
    found = stored_segment(0, 10), stored_segment(10, 5)
    for segment in found:
        lay(tmp_path, segment.ref.key, segment.body)
    return found


def find(root: Path, topic: str | None = None, partition: int | None = None) -> list[Row]:
    async def run() -> list[Row]:
        objects = await open_for_reading(root.as_uri())
        try:
            found = await find_segments(objects, topic, partition)
            return [(s.topic, s.base, s.end, s.source) for s in found]
        finally:
            await objects.close()

    return asyncio.run(run())


def damage(root: Path, key: str) -> list[Damage]:
    async def run() -> list[Damage]:
        objects = LocalObjects(root)
        try:
            results = [result async for result in verify_segment(objects, ObjectKey(key))]
            return [result for result in results if isinstance(result, Damage)]
        finally:
            await objects.close()

    return asyncio.run(run())


def test_without_a_manifest_everything_that_lies_there_is_listed(
    tmp_path: Path, pair: Pair
) -> None:
    name = str(TP.topic_id)
    assert find(tmp_path) == [(name, 0, 10, FROM_KEYS), (name, 10, 15, FROM_KEYS)]


def test_the_newest_manifest_decides_what_is_live(tmp_path: Path, pair: Pair) -> None:
    lay(tmp_path, topic_key(TP.topic_id), encode_topic(TopicDescription(TP.topic_id, "t", 1, 0)))
    lay_manifest(tmp_path, 1, *pair)
    lay_manifest(tmp_path, 2, pair[1])
    assert find(tmp_path) == [("t", 10, 15, FROM_MANIFEST)]
    assert find(tmp_path, topic="t", partition=TP.partition) == find(tmp_path)
    assert find(tmp_path, topic="other") == []
    assert find(tmp_path, partition=TP.partition + 1) == []


def test_a_damaged_manifest_leaves_it_to_the_one_before(tmp_path: Path, pair: Pair) -> None:
    lay_manifest(tmp_path, 1, *pair)
    lay(tmp_path, manifest_key(TP, 2), b"{}")
    assert [(base, end) for _, base, end, _ in find(tmp_path)] == [(0, 10), (10, 15)]


def test_strangers_objects_are_passed_over(tmp_path: Path, pair: Pair) -> None:
    before = find(tmp_path)
    lay(tmp_path, "topics/README", b"hello")
    lay(tmp_path, "topics/x/1/odd.strm", b"hello")
    lay(tmp_path, "topics/x/1/manifest/odd.json", b"hello")
    assert find(tmp_path) == before


def test_looking_changes_nothing(tmp_path: Path, pair: Pair) -> None:
    """Goal: a server may be in the middle of a put; its unfinished file stays."""
    lay(tmp_path, ".tmp/unfinished", b"half")
    before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))
    find(tmp_path)
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == before


def test_a_directory_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="there is no directory"):
        asyncio.run(open_for_reading((tmp_path / "absent").as_uri()))
    assert not (tmp_path / "absent").exists()


def test_where_to_look(tmp_path: Path) -> None:
    assert store_url(None, str(tmp_path)) == (tmp_path / "objects").as_uri()
    assert store_url(str(tmp_path), "ignored") == tmp_path.as_uri()
    assert store_url("s3://bucket/prefix", "ignored") == "s3://bucket/prefix"


def test_every_flipped_byte_is_damage(tmp_path: Path) -> None:
    """Goal: whichever byte of a segment changes, verify says so."""
    segment = stored_segment(0, 3)
    for at in range(len(segment.body)):
        body = bytearray(segment.body)
        body[at] ^= 0x10
        lay(tmp_path, segment.ref.key, bytes(body))
        assert damage(tmp_path, segment.ref.key), f"byte {at} changed unnoticed"
    lay(tmp_path, segment.ref.key, segment.body)
    assert damage(tmp_path, segment.ref.key) == []


def test_a_segment_cut_short_is_damage(tmp_path: Path) -> None:
    segment = stored_segment(0, 3)
    for length in range(0, len(segment.body), 7):
        lay(tmp_path, segment.ref.key, segment.body[:length])
        assert damage(tmp_path, segment.ref.key)


def test_a_segment_that_is_gone_is_damage(tmp_path: Path) -> None:
    assert damage(tmp_path, stored_segment(0, 3).ref.key)
