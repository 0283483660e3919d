"""The metadata store on SQLite: the shell that carries each command to its transaction.

Owns: one connection, used only through the runner, one command at a time. Must not know: SQL, which
is in the `sqlite_*` files by caller. Time and ids come in by argument. A caller that is cancelled
while its command runs must treat it as OutcomeUnknown: the command is not interrupted.
"""

import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from streamhouse.metadata import (
    database,
    sqlite_administration,
    sqlite_groups,
    sqlite_partitions,
    sqlite_readers,
    sqlite_segments,
    sqlite_topics,
)
from streamhouse.metadata.runner import CLOSE, OPEN, Runner, ThreadRunner
from streamhouse.model.errors import Unavailable
from streamhouse.model.groups import GroupRow
from streamhouse.model.ids import ObjectKey, TopicId, TopicPartition
from streamhouse.model.partition import (
    Fence,
    PartitionRow,
    RetiredObject,
    SegmentCommit,
    SegmentRef,
    SegmentReplacement,
    Term,
)
from streamhouse.model.quotas import ClientQuota, QuotaChange
from streamhouse.model.topic import Topic, TopicSpec
from streamhouse.ports.clock import Ids
from streamhouse.ports.metadata import (
    CommittedOffset,
    DeletedTopic,
    Event,
    GroupChanges,
    Hold,
)

T = TypeVar("T")
P = ParamSpec("P")
Command = Callable[Concatenate[sqlite3.Connection, P], T]


class SqliteMetadata:
    def __init__(self, db: sqlite3.Connection, run: Runner) -> None:
        """Use `open`."""
        self._db = db
        self._run = run
        self._open = True

    @classmethod
    async def open(
        cls, path: Path | str, *, ids: Ids, run: Runner | None = None
    ) -> "SqliteMetadata":
        """Open or make the store at `path` (":memory:" for one that dies with the object).

        Without `run`, commands go to a thread of the store's own. Raises StartRefused with one
        line that says what to do.
        """
        runner = run or ThreadRunner()
        try:
            db = await runner.run(OPEN, lambda: database.open_database(str(path), ids), writes=True)
        except BaseException:
            await runner.close()
            raise
        return cls(db, runner)

    async def close(self) -> None:
        """Wait for the command under way and let go of the file. Idempotent."""
        if self._open:
            self._open = False
            await self._run.run(CLOSE, self._db.close, writes=True)
            await self._run.close()

    # TopicCatalog

    async def cluster_id(self) -> str:
        return await self._read(database.cluster_id)

    async def create_topic(self, topic_id: TopicId, spec: TopicSpec, now_ms: int) -> Topic:
        return await self._write(sqlite_topics.create_topic, topic_id, spec, now_ms)

    async def list_topics(self) -> list[Topic]:
        return await self._read(sqlite_topics.list_topics)

    async def set_topic_config(
        self, topic_id: TopicId, config: Mapping[str, str], now_ms: int = 0
    ) -> Topic:
        return await self._write(sqlite_topics.set_topic_config, topic_id, config, now_ms)

    async def change_topic_config(
        self, topic_id: TopicId, changes: Mapping[str, str | None], now_ms: int
    ) -> Topic:
        return await self._write(sqlite_topics.change_topic_config, topic_id, changes, now_ms)

    async def grow_topic(self, topic_id: TopicId, partition_count: int, now_ms: int) -> Topic:
        return await self._write(sqlite_topics.grow_topic, topic_id, partition_count, now_ms)

    async def delete_topic(self, topic_id: TopicId, now_ms: int) -> None:
        await self._write(sqlite_topics.delete_topic, topic_id, now_ms)

    async def deleted_topics(self, limit: int) -> list[DeletedTopic]:
        return await self._read(sqlite_topics.deleted_topics, limit)

    async def forget_deleted_topic(self, topic_id: TopicId) -> None:
        await self._write(sqlite_topics.forget_deleted_topic, topic_id)

    async def events_after(self, seq: int, limit: int) -> list[Event]:
        return await self._read(sqlite_topics.events_after, seq, limit)

    # Leadership

    async def take_partitions(
        self,
        holder: str,
        incarnation: str,
        wal_id: str,
        topic_id: TopicId | None = None,
        *,
        accept_wal_loss: bool = False,
    ) -> list[PartitionRow]:
        return await self._write(
            sqlite_partitions.take_partitions,
            holder,
            incarnation,
            wal_id,
            topic_id,
            accept_wal_loss,
        )

    async def terms(self, tps: Sequence[TopicPartition]) -> Mapping[TopicPartition, list[Term]]:
        return await self._read(sqlite_partitions.terms, tps)

    async def raise_log_start(self, fence: Fence, log_start: int, high_watermark: int) -> None:
        await self._write(sqlite_partitions.raise_log_start, fence, log_start, high_watermark)

    async def reserve_ids(self, counter: str, count: int) -> int:
        return await self._write(sqlite_partitions.reserve_ids, counter, count)

    # SegmentRegistry

    async def commit_segment(self, commit: SegmentCommit) -> PartitionRow:
        return await self._write(sqlite_segments.commit_segment, commit)

    async def replace_segments(self, change: SegmentReplacement, now_ms: int) -> PartitionRow:
        return await self._write(sqlite_segments.replace_segments, change, now_ms)

    async def live_segments(
        self, tps: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, list[SegmentRef]]:
        return await self._read(sqlite_segments.live_segments, tps)

    async def manifest_written(self, fence: Fence, version: int, now_ms: int = 0) -> None:
        await self._write(sqlite_segments.manifest_written, fence, version, now_ms)

    async def retired_objects(self, before_ms: int, limit: int) -> list[RetiredObject]:
        return await self._read(sqlite_segments.retired_objects, before_ms, limit)

    async def forget_retired(self, keys: Sequence[ObjectKey]) -> None:
        await self._write(sqlite_segments.forget_retired, keys)

    # OffsetStore, GroupStore and HoldStore

    async def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        await self._write(sqlite_readers.commit_offsets, group, offsets)

    async def committed_offsets(self, group: str) -> Mapping[TopicPartition, CommittedOffset]:
        return await self._read(sqlite_readers.committed_offsets, group)

    async def groups_with_offsets(self) -> list[str]:
        return await self._read(sqlite_readers.groups_with_offsets)

    async def delete_offsets(self, group: str, tps: Collection[TopicPartition]) -> None:
        await self._write(sqlite_readers.delete_offsets, group, tps)

    async def expire_offsets(self, before_ms: int, busy: Collection[str]) -> None:
        await self._write(sqlite_readers.expire_offsets, before_ms, busy)

    async def store_groups(self, changes: GroupChanges) -> frozenset[TopicPartition]:
        return await self._write(sqlite_groups.store_groups, changes)

    async def load_groups(self) -> list[GroupRow]:
        return await self._read(sqlite_groups.load_groups)

    async def delete_groups(self, groups: Collection[str]) -> None:
        await self._write(sqlite_groups.delete_groups, groups)

    async def set_hold(self, hold: Hold, now_ms: int) -> None:
        await self._write(sqlite_readers.set_hold, hold, now_ms)

    async def release_hold(self, name: str) -> None:
        await self._write(sqlite_readers.release_hold, name)

    async def holds(self, now_ms: int) -> list[Hold]:
        return await self._read(sqlite_readers.holds, now_ms)

    # QuotaStore and BrokerConfigStore

    async def client_quotas(self) -> list[ClientQuota]:
        return await self._read(sqlite_administration.client_quotas)

    async def alter_client_quotas(self, changes: Sequence[QuotaChange]) -> None:
        await self._write(sqlite_administration.alter_client_quotas, changes)

    async def broker_configs(self) -> Mapping[str, Mapping[str, str]]:
        return await self._read(sqlite_administration.broker_configs)

    async def change_broker_config(self, broker: str, changes: Mapping[str, str | None]) -> None:
        await self._write(sqlite_administration.change_broker_config, broker, changes)

    async def _read(self, command: Command[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        def work() -> T:
            return database.read(self._db, lambda db: command(db, *args, **kwargs))

        return await self._perform(command.__name__, work, writes=False)

    async def _write(self, command: Command[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        def work() -> T:
            return database.write(self._db, lambda db: command(db, *args, **kwargs))

        return await self._perform(command.__name__, work, writes=True)

    async def _perform(self, name: str, work: Callable[[], T], *, writes: bool) -> T:
        if not self._open:
            raise Unavailable(f"{name}: the metadata store is closed")
        return await self._run.run(name, work, writes=writes)
