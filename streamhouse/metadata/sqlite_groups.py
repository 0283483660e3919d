"""Consumer groups on SQLite: their rows, members and protocols.

Each function is one command's work inside a transaction that its caller holds. A row is replaced as
a whole, so that a repeat, or a later row after a lost one, leaves what it says and nothing else.
"""

import sqlite3
from collections.abc import Collection, Iterator
from itertools import groupby

from streamhouse.metadata import sqlite_readers
from streamhouse.model.groups import GroupRow, GroupState, MemberRow, Protocol
from streamhouse.model.ids import TopicPartition
from streamhouse.ports.metadata import GroupChanges

_CHILDREN_FIRST = ("consumer_group_protocols", "consumer_group_members", "consumer_groups")


def store_groups(db: sqlite3.Connection, changes: GroupChanges) -> frozenset[TopicPartition]:
    for row in changes.rows:
        _replace(db, row)
    tps = {tp for each in changes.offsets for tp in each.offsets}
    absent = frozenset(tp for tp in tps if not _exists(db, tp))
    for each in changes.offsets:
        kept = {tp: offset for tp, offset in each.offsets.items() if tp not in absent}
        sqlite_readers.put_offsets(db, each.group, kept)
    return absent


def load_groups(db: sqlite3.Connection) -> list[GroupRow]:
    protocols = _protocols(db)
    members = {
        group: tuple(_member(row, protocols) for row in rows)
        for group, rows in groupby(_member_rows(db), key=lambda row: str(row[0]))
    }
    rows = db.execute(
        "SELECT group_id, state, generation, protocol_type, protocol_name, leader, empty_since_ms"
        " FROM consumer_groups ORDER BY group_id"
    )
    return [
        GroupRow(
            group, GroupState(state), generation, kind, name, leader, empty, members.get(group, ())
        )
        for group, state, generation, kind, name, leader, empty in rows
    ]


def delete_groups(db: sqlite3.Connection, groups: Collection[str]) -> None:
    for group in groups:
        db.execute("DELETE FROM committed_offsets WHERE group_id = ?", (group,))
        _forget(db, group)


def _replace(db: sqlite3.Connection, row: GroupRow) -> None:
    _forget(db, row.group_id)
    db.execute(
        "INSERT INTO consumer_groups (group_id, state, generation, protocol_type, protocol_name,"
        " leader, empty_since_ms) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            row.group_id,
            row.state.value,
            row.generation,
            row.protocol_type,
            row.protocol_name,
            row.leader,
            row.empty_since_ms,
        ),
    )
    for position, member in enumerate(row.members):
        _add_member(db, row.group_id, position, member)


def _add_member(db: sqlite3.Connection, group: str, position: int, member: MemberRow) -> None:
    db.execute(
        "INSERT INTO consumer_group_members (group_id, position, member_id, instance_id, client_id,"
        " client_host, session_timeout_ms, rebalance_timeout_ms, assignment)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            group,
            position,
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.session_timeout_ms,
            member.rebalance_timeout_ms,
            member.assignment,
        ),
    )
    db.executemany(
        "INSERT INTO consumer_group_protocols (group_id, member_position, position, name, metadata)"
        " VALUES (?, ?, ?, ?, ?)",
        (
            (group, position, rank, protocol.name, protocol.metadata)
            for rank, protocol in enumerate(member.protocols)
        ),
    )


def _forget(db: sqlite3.Connection, group: str) -> None:
    for table in _CHILDREN_FIRST:
        db.execute(f"DELETE FROM {table} WHERE group_id = ?", (group,))


def _exists(db: sqlite3.Connection, tp: TopicPartition) -> bool:
    found = db.execute(
        "SELECT 1 FROM partitions WHERE topic_id = ? AND partition = ?",
        (tp.topic_id.bytes, tp.partition),
    )
    return found.fetchone() is not None


_MemberColumns = tuple[str, int, str, str | None, str, str, int, int, bytes]
_Protocols = dict[tuple[str, int], tuple[Protocol, ...]]


def _member_rows(db: sqlite3.Connection) -> Iterator[_MemberColumns]:
    return db.execute(
        "SELECT group_id, position, member_id, instance_id, client_id, client_host,"
        " session_timeout_ms, rebalance_timeout_ms, assignment"
        " FROM consumer_group_members ORDER BY group_id, position"
    )


def _member(row: _MemberColumns, protocols: _Protocols) -> MemberRow:
    group, position, member_id, instance_id, client_id, client_host, session, rebalance, raw = row
    offered = protocols.get((group, position), ())
    return MemberRow(
        member_id, instance_id, client_id, client_host, session, rebalance, offered, raw
    )


def _protocols(db: sqlite3.Connection) -> _Protocols:
    rows = db.execute(
        "SELECT group_id, member_position, name, metadata FROM consumer_group_protocols"
        " ORDER BY group_id, member_position, position"
    )
    return {
        (group, position): tuple(Protocol(row[2], row[3]) for row in found)
        for (group, position), found in groupby(rows, key=lambda row: (row[0], row[1]))
    }
