"""Registered segments on SQLite: commit, replacement, and objects on their way out.

Each function is one command's work inside a transaction that its caller holds.
Invariants: live segments of a partition do not overlap and end at `segments_end`; above the log
start they have no gap. An object is live, named by `snapshot_key`, retired, or unknown here.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from itertools import pairwise

from streamhouse.metadata.sqlite_partitions import FENCED, fence_args, get_fenced, get_row
from streamhouse.model.errors import Invalid, NotFound
from streamhouse.model.ids import ObjectKey, TopicPartition
from streamhouse.model.partition import (
    Fence,
    PartitionRow,
    RetiredObject,
    SegmentCommit,
    SegmentRef,
    SegmentReplacement,
)

_SEGMENT = (
    'key, base, "end", epoch, record_count, timestamp_min_ms, timestamp_max_ms, bytes_raw,'
    " bytes_stored, footer_crc, created_ms, format, generation"
)


def commit_segment(db: sqlite3.Connection, commit: SegmentCommit) -> PartitionRow:
    fence, segment = commit.fence, commit.segment
    _check_commit(commit)
    before = get_row(db, fence.tp)
    changed = db.execute(
        "UPDATE partitions SET segments_end = ?, high_watermark = max(high_watermark, ?),"
        " manifest_version = manifest_version + 1, snapshot_key = ?"
        f" WHERE {FENCED} AND segments_end = ?",
        (segment.end, segment.end, segment.key, *fence_args(fence), segment.base),
    ).rowcount
    if not changed:
        return _commit_refused(db, commit, before)
    _insert(db, fence.tp, [segment])
    db.executemany(
        "INSERT OR IGNORE INTO partition_terms (topic_id, partition, epoch, offset_start)"
        " VALUES (?, ?, ?, ?)",
        (
            (fence.tp.topic_id.bytes, fence.tp.partition, term.epoch, term.offset_start)
            for term in commit.terms
        ),
    )
    after = get_row(db, fence.tp)
    if before.snapshot_key is not None and not _is_live(db, before.snapshot_key):
        _retire(db, after, [before.snapshot_key], segment.created_ms)
    assert after.segments_end == segment.end
    return after


def replace_segments(
    db: sqlite3.Connection, change: SegmentReplacement, now_ms: int
) -> PartitionRow:
    row = get_fenced(db, change.fence)
    live = {segment.key: segment for segment in _segments(db, row.tp)}
    missing = [key for key in change.old if key not in live]
    if missing and _replacement_applied(db, change, row, live):
        return row
    if missing:
        raise NotFound(f"segment {missing[0]} is not live; read the segments again")
    log_start = max(row.log_start, change.log_start or 0)
    _check_replacement(change, [live[key] for key in change.old], log_start)
    _update_for_replacement(db, change.fence, log_start)
    db.executemany("DELETE FROM segments WHERE key = ?", ((key,) for key in change.old))
    _insert(db, row.tp, change.new)
    after = get_row(db, row.tp)
    retired = [key for key in change.old if key != after.snapshot_key]
    _retire(db, after, retired, now_ms)
    return after


def live_segments(
    db: sqlite3.Connection, tps: Sequence[TopicPartition]
) -> dict[TopicPartition, list[SegmentRef]]:
    # One short query each: the statement is prepared once, and only what is returned is read.
    return {tp: _segments(db, tp) for tp in tps}


def manifest_written(db: sqlite3.Connection, fence: Fence, version: int, now_ms: int) -> None:
    row = get_fenced(db, fence)
    if version > row.manifest_version:
        raise Invalid(
            f"manifest {version} was never assigned; the newest is {row.manifest_version}"
        )
    if version <= row.manifest_written:
        return
    changed = db.execute(
        f"UPDATE partitions SET manifest_written = ? WHERE {FENCED}",
        (version, *fence_args(fence)),
    ).rowcount
    assert changed == 1
    db.execute(
        "UPDATE retired_objects"
        " SET manifest_version = NULL, retired_ms = max(retired_ms, ?)"
        " WHERE topic_id = ? AND partition = ? AND manifest_version <= ?",
        (now_ms, fence.tp.topic_id.bytes, fence.tp.partition, version),
    )


def retired_objects(db: sqlite3.Connection, before_ms: int, limit: int) -> list[RetiredObject]:
    rows = db.execute(
        "SELECT key, retired_ms FROM retired_objects"
        " WHERE manifest_version IS NULL AND retired_ms < ? ORDER BY retired_ms, key LIMIT ?",
        (before_ms, limit),
    )
    return [RetiredObject(ObjectKey(key), retired_ms) for key, retired_ms in rows]


def forget_retired(db: sqlite3.Connection, keys: Sequence[ObjectKey]) -> None:
    db.executemany("DELETE FROM retired_objects WHERE key = ?", ((key,) for key in keys))


def _check_commit(commit: SegmentCommit) -> None:
    segment = commit.segment
    if not 0 <= segment.base < segment.end:
        raise Invalid(f"segment {segment.key}: [{segment.base}, {segment.end}) is no range")
    for term in commit.terms:
        if not segment.base <= term.offset_start < segment.end:
            raise Invalid(
                f"segment {segment.key}: epoch {term.epoch} begins at {term.offset_start}, "
                f"outside [{segment.base}, {segment.end})"
            )


def _commit_refused(
    db: sqlite3.Connection, commit: SegmentCommit, row: PartitionRow
) -> PartitionRow:
    """The UPDATE hit nothing: it is a repeat, or the fence is gone, or the range does not fit.

    A repeat is answered first: what was committed stays committed, even if the lead moved since.
    """
    segment = commit.segment
    if _is_live(db, segment.key) or _was_live(db, row, segment.key):
        return row
    get_fenced(db, commit.fence)
    raise Invalid(
        f"segment {segment.key} begins at {segment.base}, "
        f"but the segments of its partition end at {row.segments_end}"
    )


def _replacement_applied(
    db: sqlite3.Connection,
    change: SegmentReplacement,
    row: PartitionRow,
    live: dict[ObjectKey, SegmentRef],
) -> bool:
    return all(key not in live and _was_live(db, row, key) for key in change.old) and all(
        segment.key in live or _was_live(db, row, segment.key) for segment in change.new
    )


def _check_replacement(
    change: SegmentReplacement, old: Sequence[SegmentRef], log_start: int
) -> None:
    """The pair of the agent's own check: no offset above the log start may lose its segment."""
    if not {segment.key for segment in change.new}.isdisjoint(change.old):
        raise Invalid("a new segment has the key of an old one, whose object will be deleted")
    base, end = _tiled(old, "old")
    base_kept, end_kept = _tiled(change.new, "new") if change.new else (end, end)
    if end_kept != end or base_kept < base:
        raise Invalid(f"new segments cover [{base_kept}, {end_kept}), the old ones [{base}, {end})")
    if base_kept > max(base, log_start):
        raise Invalid(
            f"offsets [{max(base, log_start)}, {base_kept}) would lose their segment; "
            f"the log starts at {log_start}"
        )


def _tiled(segments: Sequence[SegmentRef], which: str) -> tuple[int, int]:
    """The range the segments cover together without gap or overlap."""
    if not segments:
        raise Invalid(f"no {which} segments are named")
    ordered = sorted(segments, key=lambda segment: segment.base)
    for left, right in pairwise(ordered):
        if left.end != right.base:
            raise Invalid(f"{which} segments do not join: {left.end} and {right.base}")
    return ordered[0].base, ordered[-1].end


def _update_for_replacement(db: sqlite3.Connection, fence: Fence, log_start: int) -> None:
    changed = db.execute(
        "UPDATE partitions SET log_start = ?, high_watermark = max(high_watermark, ?),"
        f" manifest_version = manifest_version + 1 WHERE {FENCED}",
        (log_start, log_start, *fence_args(fence)),
    ).rowcount
    assert changed == 1, "the fence was checked in this transaction"


def _segments(db: sqlite3.Connection, tp: TopicPartition) -> list[SegmentRef]:
    rows = db.execute(
        f"SELECT {_SEGMENT} FROM segments WHERE topic_id = ? AND partition = ? ORDER BY base",
        (tp.topic_id.bytes, tp.partition),
    )
    return [SegmentRef(*row) for row in rows]


def _insert(db: sqlite3.Connection, tp: TopicPartition, segments: Sequence[SegmentRef]) -> None:
    for segment in segments:
        if _is_retired(db, segment.key):
            raise Invalid(f"object {segment.key} is retired and will be deleted; use a new key")
    db.executemany(
        f"INSERT INTO segments (topic_id, partition, {_SEGMENT})"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        ((tp.topic_id.bytes, tp.partition, *_values(segment)) for segment in segments),
    )


def _values(segment: SegmentRef) -> tuple[str | int, ...]:
    """In the order of `_SEGMENT`, which is the order of the fields."""
    return tuple(getattr(segment, name) for name in SegmentRef.__slots__)


def _is_live(db: sqlite3.Connection, key: ObjectKey) -> bool:
    return db.execute("SELECT 1 FROM segments WHERE key = ?", (key,)).fetchone() is not None


def _was_live(db: sqlite3.Connection, row: PartitionRow, key: ObjectKey) -> bool:
    """Only a registered segment can be retired or be kept for its snapshot."""
    return key == row.snapshot_key or _is_retired(db, key)


def _is_retired(db: sqlite3.Connection, key: ObjectKey) -> bool:
    return db.execute("SELECT 1 FROM retired_objects WHERE key = ?", (key,)).fetchone() is not None


def _retire(
    db: sqlite3.Connection, row: PartitionRow, keys: Iterable[ObjectKey], now_ms: int
) -> None:
    """The manifest of the row's version is the first that does not name these objects."""
    db.executemany(
        "INSERT INTO retired_objects (key, retired_ms, topic_id, partition, manifest_version)"
        " VALUES (?, ?, ?, ?, ?)",
        (
            (key, now_ms, row.tp.topic_id.bytes, row.tp.partition, row.manifest_version)
            for key in keys
        ),
    )
