"""The topic catalog on SQLite: topics with all their partition rows, deletion, and the outbox.

Each function is one command's work inside a transaction that its caller holds.
"""

import json
import sqlite3
from collections.abc import Mapping
from uuid import UUID

from streamhouse.model.config_change import merged
from streamhouse.model.errors import AlreadyExists, NotFound
from streamhouse.model.ids import TopicId
from streamhouse.model.keys import topic_prefix
from streamhouse.model.topic import (
    InvalidPartitionCount,
    Topic,
    TopicSpec,
    check_spec,
    parse_settings,
)
from streamhouse.ports.metadata import DeletedTopic, Event

EVENTS_KEPT_MAX = 10_000  # a watcher further behind reads the catalog again

_TOPIC = "topic_id, name, partition_count, config, created_ms"
_Row = tuple[bytes, str, int, str, int]


def create_topic(db: sqlite3.Connection, topic_id: TopicId, spec: TopicSpec, now_ms: int) -> Topic:
    check_spec(spec)
    existing = _find(db, topic_id)
    if existing is not None:
        return _repeated(existing, spec)
    _check_free(db, topic_id, spec.name)
    db.execute(
        f"INSERT INTO topics ({_TOPIC}) VALUES (?, ?, ?, ?, ?)",
        (topic_id.bytes, spec.name, spec.partition_count, _to_json(spec.config), now_ms),
    )
    epoch = _epoch_above_all(db, spec.name)
    _add_partitions(db, topic_id, range(spec.partition_count), epoch)
    topic = _get(db, topic_id)
    _add_event(db, now_ms, "topic_created", topic)
    return topic


def list_topics(db: sqlite3.Connection) -> list[Topic]:
    return [_topic(row) for row in db.execute(f"SELECT {_TOPIC} FROM topics ORDER BY name")]


def set_topic_config(
    db: sqlite3.Connection, topic_id: TopicId, config: Mapping[str, str], now_ms: int
) -> Topic:
    parse_settings(config)
    before = _get(db, topic_id)
    if dict(before.config) == dict(config):
        return before
    db.execute(
        "UPDATE topics SET config = ? WHERE topic_id = ?", (_to_json(config), topic_id.bytes)
    )
    topic = _get(db, topic_id)
    _add_event(db, now_ms, "topic_altered", topic)
    return topic


def change_topic_config(
    db: sqlite3.Connection, topic_id: TopicId, changes: Mapping[str, str | None], now_ms: int
) -> Topic:
    config = merged(_get(db, topic_id).config, changes)
    return set_topic_config(db, topic_id, config, now_ms)


def grow_topic(
    db: sqlite3.Connection, topic_id: TopicId, partition_count: int, now_ms: int
) -> Topic:
    before = _get(db, topic_id)
    check_spec(TopicSpec(before.name, partition_count))
    if partition_count < before.partition_count:
        raise InvalidPartitionCount(
            f"topic {before.name!r} has {before.partition_count} partitions, which cannot become "
            f"{partition_count}"
        )
    if partition_count == before.partition_count:
        return before
    db.execute(
        "UPDATE topics SET partition_count = ? WHERE topic_id = ?",
        (partition_count, topic_id.bytes),
    )
    epoch = _epoch_above_all(db, before.name)
    _add_partitions(db, topic_id, range(before.partition_count, partition_count), epoch)
    topic = _get(db, topic_id)
    _add_event(db, now_ms, "topic_altered", topic)
    return topic


def delete_topic(db: sqlite3.Connection, topic_id: TopicId, now_ms: int) -> None:
    topic = _get(db, topic_id)
    _remember_epoch(db, topic)
    _retire_objects(db, topic_id, now_ms)
    for table in ("committed_offsets", "holds", "segments", "partition_terms", "partitions"):
        db.execute(f"DELETE FROM {table} WHERE topic_id = ?", (topic_id.bytes,))
    db.execute("DELETE FROM topics WHERE topic_id = ?", (topic_id.bytes,))
    db.execute(
        "INSERT INTO deleted_topics (topic_id, name, partition_count, deleted_ms)"
        " VALUES (?, ?, ?, ?)",
        (topic_id.bytes, topic.name, topic.partition_count, now_ms),
    )
    _add_event(db, now_ms, "topic_deleted", topic)


def deleted_topics(db: sqlite3.Connection, limit: int) -> list[DeletedTopic]:
    rows = db.execute(
        "SELECT topic_id, name, partition_count, deleted_ms FROM deleted_topics"
        " ORDER BY deleted_ms, topic_id LIMIT ?",
        (limit,),
    )
    return [DeletedTopic(TopicId(UUID(bytes=row[0])), *row[1:]) for row in rows]


def forget_deleted_topic(db: sqlite3.Connection, topic_id: TopicId) -> None:
    known = db.execute("DELETE FROM deleted_topics WHERE topic_id = ?", (topic_id.bytes,)).rowcount
    if known:
        prefix = topic_prefix(topic_id)
        after = prefix[:-1] + chr(ord(prefix[-1]) + 1)  # the first key that is not under it
        db.execute("DELETE FROM retired_objects WHERE key >= ? AND key < ?", (prefix, after))


def events_after(db: sqlite3.Connection, seq: int, limit: int) -> list[Event]:
    rows = db.execute(
        "SELECT seq, at_ms, kind, key, detail FROM events WHERE seq > ? ORDER BY seq LIMIT ?",
        (seq, limit),
    )
    return [Event(*row) for row in rows]


def _repeated(existing: Topic, spec: TopicSpec) -> Topic:
    asked = (spec.name, spec.partition_count, dict(spec.config))
    if (existing.name, existing.partition_count, dict(existing.config)) != asked:
        raise AlreadyExists(f"topic id {existing.topic_id} belongs to topic {existing.name!r}")
    return existing


def _check_free(db: sqlite3.Connection, topic_id: TopicId, name: str) -> None:
    if db.execute("SELECT 1 FROM topics WHERE name = ?", (name,)).fetchone():
        raise AlreadyExists(f"topic {name!r} exists already")
    if db.execute("SELECT 1 FROM deleted_topics WHERE topic_id = ?", (topic_id.bytes,)).fetchone():
        # Its objects are being removed by prefix; new ones under the same id would go too.
        raise AlreadyExists(f"topic id {topic_id} was used by a deleted topic; take a new id")


def _add_partitions(db: sqlite3.Connection, topic_id: TopicId, numbers: range, epoch: int) -> None:
    db.executemany(
        "INSERT INTO partitions (topic_id, partition, epoch) VALUES (?, ?, ?)",
        ((topic_id.bytes, partition, epoch) for partition in numbers),
    )


def _epoch_above_all(db: sqlite3.Connection, name: str) -> int:
    row = db.execute("SELECT epoch_max FROM topic_name_epochs WHERE name = ?", (name,)).fetchone()
    return 0 if row is None else int(row[0]) + 1


def _remember_epoch(db: sqlite3.Connection, topic: Topic) -> None:
    db.execute(
        "INSERT INTO topic_name_epochs (name, epoch_max)"
        " SELECT ?, max(epoch) FROM partitions WHERE topic_id = ?"
        " ON CONFLICT (name) DO UPDATE SET epoch_max = max(epoch_max, excluded.epoch_max)",
        (topic.name, topic.topic_id.bytes),
    )


def _retire_objects(db: sqlite3.Connection, topic_id: TopicId, now_ms: int) -> None:
    """No manifest of a deleted topic is read any more, so no object waits for one."""
    db.execute(
        "UPDATE retired_objects SET manifest_version = NULL WHERE topic_id = ?",
        (topic_id.bytes,),
    )
    for source in (
        "SELECT key, ?, topic_id, partition FROM segments WHERE topic_id = ?",
        "SELECT snapshot_key, ?, topic_id, partition FROM partitions"
        " WHERE topic_id = ? AND snapshot_key IS NOT NULL",
    ):
        db.execute(
            "INSERT OR IGNORE INTO retired_objects (key, retired_ms, topic_id, partition) "
            + source,
            (now_ms, topic_id.bytes),
        )


def _add_event(db: sqlite3.Connection, at_ms: int, kind: str, topic: Topic) -> None:
    detail = {
        "name": topic.name,
        "partition_count": topic.partition_count,
        "config": dict(topic.config),
    }
    seq = db.execute(
        "INSERT INTO events (at_ms, kind, key, detail) VALUES (?, ?, ?, ?)",
        (at_ms, kind, str(topic.topic_id), json.dumps(detail, sort_keys=True)),
    ).lastrowid
    assert seq is not None
    db.execute("DELETE FROM events WHERE seq <= ?", (seq - EVENTS_KEPT_MAX,))


def _get(db: sqlite3.Connection, topic_id: TopicId) -> Topic:
    found = _find(db, topic_id)
    if found is None:
        raise NotFound(f"topic {topic_id} does not exist")
    return found


def _find(db: sqlite3.Connection, topic_id: TopicId) -> Topic | None:
    row = db.execute(
        f"SELECT {_TOPIC} FROM topics WHERE topic_id = ?", (topic_id.bytes,)
    ).fetchone()
    return None if row is None else _topic(row)


def _topic(row: _Row) -> Topic:
    raw_id, name, partition_count, config_json, created_ms = row
    config: dict[str, str] = json.loads(config_json)
    return Topic(
        topic_id=TopicId(UUID(bytes=raw_id)),
        name=name,
        partition_count=partition_count,
        config=config,
        created_ms=created_ms,
        settings=parse_settings(config),
    )


def _to_json(config: Mapping[str, str]) -> str:
    return json.dumps(dict(config), sort_keys=True)
