"""Where readers stand, on SQLite: committed offsets of groups, and named holds.

Each function is one command's work inside a transaction that its caller holds.
"""

import json
import sqlite3
from collections.abc import Collection, Mapping
from uuid import UUID

from streamhouse.metadata.sqlite_partitions import get_row
from streamhouse.model.ids import TopicId, TopicPartition
from streamhouse.ports.metadata import CommittedOffset, Hold


def commit_offsets(
    db: sqlite3.Connection, group: str, offsets: Mapping[TopicPartition, CommittedOffset]
) -> None:
    for tp in offsets:
        get_row(db, tp)
    put_offsets(db, group, offsets)


def put_offsets(
    db: sqlite3.Connection, group: str, offsets: Mapping[TopicPartition, CommittedOffset]
) -> None:
    """The partitions must exist."""
    db.executemany(
        "INSERT INTO committed_offsets"
        ' (group_id, topic_id, partition, "offset", leader_epoch, metadata, committed_ms)'
        " VALUES (?, ?, ?, ?, ?, ?, ?)"
        ' ON CONFLICT (group_id, topic_id, partition) DO UPDATE SET "offset" = excluded."offset",'
        " leader_epoch = excluded.leader_epoch, metadata = excluded.metadata,"
        " committed_ms = excluded.committed_ms",
        (
            (
                group,
                tp.topic_id.bytes,
                tp.partition,
                committed.offset,
                committed.leader_epoch,
                committed.metadata,
                committed.committed_ms,
            )
            for tp, committed in offsets.items()
        ),
    )


def committed_offsets(db: sqlite3.Connection, group: str) -> dict[TopicPartition, CommittedOffset]:
    rows = db.execute(
        'SELECT topic_id, partition, "offset", leader_epoch, metadata, committed_ms'
        " FROM committed_offsets WHERE group_id = ? ORDER BY topic_id, partition",
        (group,),
    )
    return {_tp(row[0], row[1]): CommittedOffset(*row[2:]) for row in rows}


def groups_with_offsets(db: sqlite3.Connection) -> list[str]:
    rows = db.execute("SELECT DISTINCT group_id FROM committed_offsets ORDER BY group_id")
    return [group for (group,) in rows]


def delete_offsets(db: sqlite3.Connection, group: str, tps: Collection[TopicPartition]) -> None:
    db.executemany(
        "DELETE FROM committed_offsets WHERE group_id = ? AND topic_id = ? AND partition = ?",
        [(group, tp.topic_id.bytes, tp.partition) for tp in tps],
    )


def expire_offsets(db: sqlite3.Connection, before_ms: int, busy: Collection[str]) -> None:
    db.execute(
        "DELETE FROM committed_offsets WHERE committed_ms < ?1"
        " AND group_id NOT IN (SELECT value FROM json_each(?2))"
        " AND group_id NOT IN (SELECT group_id FROM consumer_groups"
        "                      WHERE empty_since_ms IS NULL OR empty_since_ms >= ?1)",
        (before_ms, json.dumps(sorted(busy))),
    )


def set_hold(db: sqlite3.Connection, hold: Hold, now_ms: int) -> None:
    get_row(db, hold.tp)
    db.execute("DELETE FROM holds WHERE expires_ms <= ?", (now_ms,))
    db.execute(
        'INSERT INTO holds (name, topic_id, partition, "offset", expires_ms) VALUES (?, ?, ?, ?, ?)'
        " ON CONFLICT (name, topic_id, partition)"
        ' DO UPDATE SET "offset" = excluded."offset", expires_ms = excluded.expires_ms',
        (hold.name, hold.tp.topic_id.bytes, hold.tp.partition, hold.offset, hold.expires_ms),
    )


def release_hold(db: sqlite3.Connection, name: str) -> None:
    db.execute("DELETE FROM holds WHERE name = ?", (name,))


def holds(db: sqlite3.Connection, now_ms: int) -> list[Hold]:
    rows = db.execute(
        'SELECT name, topic_id, partition, "offset", expires_ms FROM holds'
        " WHERE expires_ms > ? ORDER BY name, topic_id, partition",
        (now_ms,),
    )
    return [Hold(row[0], _tp(row[1], row[2]), row[3], row[4]) for row in rows]


def _tp(topic_id: bytes, partition: int) -> TopicPartition:
    return TopicPartition(TopicId(UUID(bytes=topic_id)), partition)
