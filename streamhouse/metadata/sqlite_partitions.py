"""The partition row on SQLite: taking the lead, and the fence every later write must pass.

Each function is one command's work inside a transaction that its caller holds.
Invariants: `epoch` only rises; a fenced UPDATE names holder, incarnation and epoch in its WHERE,
and when it hits nothing the reason is looked up in the same transaction.
"""

import sqlite3
from collections.abc import Sequence
from uuid import UUID

from streamhouse.model.errors import Fenced, Invalid, NotFound
from streamhouse.model.ids import ObjectKey, TopicId, TopicPartition
from streamhouse.model.partition import Fence, PartitionRow, Term

FENCED = (
    "topic_id = ? AND partition = ?"
    " AND holder = ? AND incarnation = ? AND epoch = ? AND holder <> ''"
)
_ROW = (
    "topic_id, partition, holder, incarnation, epoch, high_watermark, log_start, segments_end,"
    " manifest_version, manifest_written, snapshot_key, wal_id"
)
_Row = tuple[bytes, int, str, str, int, int, int, int, int, int, str | None, str]
_FenceArgs = tuple[bytes, int, str, str, int]


def take_partitions(
    db: sqlite3.Connection,
    holder: str,
    incarnation: str,
    wal_id: str,
    topic_id: TopicId | None,
    accept_wal_loss: bool,
) -> list[PartitionRow]:
    if not holder or not incarnation:
        raise Invalid("a leader needs an id and an incarnation")
    where, args = ("topic_id = ?", (topic_id.bytes,)) if topic_id else ("1", ())
    if accept_wal_loss:
        _give_up_other_wal(db, wal_id, where, args)
    else:
        _check_wal(db, wal_id, where, args)
    db.execute(
        "UPDATE partitions SET holder = ?, incarnation = ?, wal_id = ?, epoch = epoch + 1"
        " WHERE NOT (holder = ? AND incarnation = ? AND wal_id = ?)"
        f" AND {where}",
        (holder, incarnation, wal_id, holder, incarnation, wal_id, *args),
    )
    rows = db.execute(
        f"SELECT {_ROW} FROM partitions WHERE {where} ORDER BY topic_id, partition", args
    )
    taken = [partition_row(row) for row in rows]
    if topic_id and not taken:
        raise NotFound(f"topic {topic_id} does not exist")
    return taken


def terms(
    db: sqlite3.Connection, tps: Sequence[TopicPartition]
) -> dict[TopicPartition, list[Term]]:
    return {
        tp: [
            Term(*row)
            for row in db.execute(
                "SELECT epoch, offset_start FROM partition_terms"
                " WHERE topic_id = ? AND partition = ? ORDER BY epoch",
                (tp.topic_id.bytes, tp.partition),
            )
        ]
        for tp in tps
    }


def raise_log_start(
    db: sqlite3.Connection, fence: Fence, log_start: int, high_watermark: int
) -> None:
    if not 0 <= log_start <= high_watermark:
        raise Invalid(f"log start {log_start} is outside [0, {high_watermark}]")
    changed = db.execute(
        "UPDATE partitions SET log_start = ?, high_watermark = max(high_watermark, ?)"
        f" WHERE {FENCED} AND log_start < ?",
        (log_start, high_watermark, *fence_args(fence), log_start),
    ).rowcount
    if not changed:
        get_fenced(db, fence)  # the fence holds: it was as high already


def reserve_ids(db: sqlite3.Connection, counter: str, count: int) -> int:
    if count < 1:
        raise Invalid(f"cannot reserve {count} numbers")
    db.execute("INSERT OR IGNORE INTO counters (name, value_next) VALUES (?, 0)", (counter,))
    (first,) = db.execute("SELECT value_next FROM counters WHERE name = ?", (counter,)).fetchone()
    db.execute("UPDATE counters SET value_next = value_next + ? WHERE name = ?", (count, counter))
    return int(first)


def fence_args(fence: Fence) -> _FenceArgs:
    """Values for the places of `FENCED`."""
    tp = fence.tp
    return (tp.topic_id.bytes, tp.partition, fence.holder, fence.incarnation, fence.epoch)


def get_fenced(db: sqlite3.Connection, fence: Fence) -> PartitionRow:
    """The row, if the fence holds. Raises NotFound or Fenced."""
    row = get_row(db, fence.tp)
    named = (row.holder, row.incarnation, row.epoch)
    if named != (fence.holder, fence.incarnation, fence.epoch) or not row.holder:
        raise Fenced(
            f"partition {fence.tp.topic_id}-{fence.tp.partition} is led by "
            f"{row.holder or 'nobody'} at epoch {row.epoch}; "
            f"{fence.holder} at epoch {fence.epoch} may not write it any more"
        )
    return row


def get_row(db: sqlite3.Connection, tp: TopicPartition) -> PartitionRow:
    row = db.execute(
        f"SELECT {_ROW} FROM partitions WHERE topic_id = ? AND partition = ?",
        (tp.topic_id.bytes, tp.partition),
    ).fetchone()
    if row is None:
        raise NotFound(f"partition {tp.topic_id}-{tp.partition} does not exist")
    return partition_row(row)


def partition_row(row: _Row) -> PartitionRow:
    topic_id, partition, holder, incarnation, epoch, *positions, snapshot_key, wal_id = row
    high_watermark, log_start, segments_end, manifest_version, manifest_written = positions
    return PartitionRow(
        tp=TopicPartition(TopicId(UUID(bytes=topic_id)), partition),
        holder=holder,
        incarnation=incarnation,
        epoch=epoch,
        high_watermark=high_watermark,
        log_start=log_start,
        segments_end=segments_end,
        manifest_version=manifest_version,
        manifest_written=manifest_written,
        snapshot_key=None if snapshot_key is None else ObjectKey(snapshot_key),
        wal_id=wal_id,
    )


def _check_wal(
    db: sqlite3.Connection, wal_id: str, where: str, args: tuple[bytes] | tuple[()]
) -> None:
    """The stored watermark lags behind the WAL, so any other WAL may hold records we would lose."""
    other = db.execute(
        "SELECT topics.name, p.partition, p.wal_id"
        f" FROM (SELECT * FROM partitions WHERE {where}) AS p JOIN topics USING (topic_id)"
        " WHERE p.wal_id NOT IN ('', ?) ORDER BY topics.name, p.partition LIMIT 1",
        (*args, wal_id),
    ).fetchone()
    if other is not None:
        name, partition, other_wal_id = other
        raise Fenced(
            f"partition {name}-{partition} belongs to WAL {other_wal_id}, this process has WAL "
            f"{wal_id or '(none)'}: start with the data directory that holds WAL {other_wal_id}; "
            "if that directory is lost, start once with --accept-wal-loss, which gives up the "
            "records that were in it and in no segment"
        )


def _give_up_other_wal(
    db: sqlite3.Connection, wal_id: str, where: str, args: tuple[bytes] | tuple[()]
) -> None:
    """What only the lost WAL held is gone: the log goes on where its segments end.

    That is not below the log start, else the next segment could never begin at `segments_end`.
    """
    db.execute(
        "UPDATE partitions SET segments_end = max(segments_end, log_start)"
        f" WHERE wal_id NOT IN ('', ?) AND {where}",
        (wal_id, *args),
    )
