"""The metadata store: the only mutable truth.

Every method is a named command with plain arguments and results; no transaction and no SQL crosses
the port. Each is atomic and safe to repeat after OutcomeUnknown. All raise Unavailable when the
store was not reached. Split by caller; one adapter implements them all.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

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


@dataclass(frozen=True, slots=True)
class Event:
    """A change of the catalog, written in the statement that made it."""

    seq: int
    at_ms: int
    kind: str  # topic_created, topic_deleted, topic_altered, ...
    key: str
    detail: str


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    group: str
    offsets: Mapping[TopicPartition, CommittedOffset]


@dataclass(frozen=True, slots=True)
class GroupChanges:
    """What many groups have to remember, written together."""

    rows: Sequence[GroupRow] = ()
    offsets: Sequence[GroupOffsets] = ()  # a later one wins over an earlier one


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """A topic whose rows are gone and whose objects still have to be removed from the store."""

    topic_id: TopicId
    name: str
    partition_count: int
    deleted_ms: int


@dataclass(frozen=True, slots=True)
class Hold:
    """A reader that still needs `offset` and above; retention waits for it until `expires_ms`."""

    name: str
    tp: TopicPartition
    offset: int
    expires_ms: int


class TopicCatalog(Protocol):
    async def cluster_id(self) -> str:
        """Made when the store was made; never changes."""

    async def create_topic(self, topic_id: TopicId, spec: TopicSpec, now_ms: int) -> Topic:
        """Create the topic and all its partition rows at once.

        Epochs start above the highest ever used under this name. Raises AlreadyExists for a taken
        name (the same id and spec again is a repeat and succeeds), Invalid for a bad spec.
        """

    async def list_topics(self) -> list[Topic]:
        """All live topics, by name."""

    async def set_topic_config(
        self, topic_id: TopicId, config: Mapping[str, str], now_ms: int = 0
    ) -> Topic:
        """Replace the topic's settings; `now_ms` dates the event. Raises NotFound, Invalid."""

    async def change_topic_config(
        self, topic_id: TopicId, changes: Mapping[str, str | None], now_ms: int
    ) -> Topic:
        """Change the named settings and leave the others; None gives a default back.

        Raises NotFound, Invalid (then nothing has changed).
        """

    async def grow_topic(self, topic_id: TopicId, partition_count: int, now_ms: int) -> Topic:
        """Add partition rows up to `partition_count`; those that exist stay as they are.

        The same count again is a repeat and succeeds. Raises NotFound, and InvalidPartitionCount
        for fewer partitions than there are or more than are allowed.
        """

    async def delete_topic(self, topic_id: TopicId, now_ms: int) -> None:
        """Raise the epochs, then forget topic, partitions and offsets; retire its objects.

        Raises NotFound.
        """

    async def deleted_topics(self, limit: int) -> list[DeletedTopic]:
        """Deleted topics whose objects may still exist, oldest first."""

    async def forget_deleted_topic(self, topic_id: TopicId) -> None:
        """Nothing is left under the topic's prefix; drop what reminds of it. Idempotent."""

    async def events_after(self, seq: int, limit: int) -> list[Event]:
        """Catalog changes after `seq`, oldest first."""


class Leadership(Protocol):
    async def take_partitions(
        self,
        holder: str,
        incarnation: str,
        wal_id: str,
        topic_id: TopicId | None = None,
        *,
        accept_wal_loss: bool = False,
    ) -> list[PartitionRow]:
        """Become the leader of every partition (or those of one topic), each at its epoch + 1.

        Repeating it with the same incarnation changes nothing and returns the same rows.
        Raises Fenced, with nothing changed, if a partition belongs to another WAL, which may hold
        records no segment has; with `accept_wal_loss` such a partition goes on where its segments
        end. Raises NotFound for an unknown `topic_id`.
        """

    async def terms(self, tps: Sequence[TopicPartition]) -> Mapping[TopicPartition, list[Term]]:
        """Stored epochs with their first offsets, ascending."""

    async def raise_log_start(self, fence: Fence, log_start: int, high_watermark: int) -> None:
        """Store a higher log start (DeleteRecords); `high_watermark` rises at least to it.

        A lower or equal value changes nothing. Raises Fenced.
        """

    async def reserve_ids(self, counter: str, count: int) -> int:
        """Take `count` numbers from a counter that never goes back; return the first."""


class SegmentRegistry(Protocol):
    async def commit_segment(self, commit: SegmentCommit) -> PartitionRow:
        """Register a rolled segment in one fenced statement and return the new row.

        The segment must begin exactly at `segments_end`. Raises Fenced, NotFound (no such
        partition), Invalid (not contiguous at the caller's own epoch). Already applied: same row.
        """

    async def replace_segments(self, change: SegmentReplacement, now_ms: int) -> PartitionRow:
        """Swap live segments; the old objects become retired. Raises Fenced, NotFound (not live).

        `new` must cover what `old` covered, except below the log start (Invalid otherwise). The
        object named by `snapshot_key` is retired only when a later segment takes that role.
        """

    async def live_segments(
        self, tps: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, list[SegmentRef]]:
        """Registered segments of each partition, by base."""

    async def manifest_written(self, fence: Fence, version: int, now_ms: int = 0) -> None:
        """Remember that the bucket holds this manifest version. Raises Fenced.

        The grace period of the objects that it no longer names begins now.
        """

    async def retired_objects(self, before_ms: int, limit: int) -> list[RetiredObject]:
        """Objects retired before this time that no current manifest names, oldest first.

        A replaced segment appears once a manifest without it was written (`manifest_written`).
        """

    async def forget_retired(self, keys: Sequence[ObjectKey]) -> None:
        """The objects are gone; drop their rows."""


class OffsetStore(Protocol):
    async def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        """Remember where a group stands. Raises NotFound if a partition does not exist."""

    async def committed_offsets(self, group: str) -> Mapping[TopicPartition, CommittedOffset]:
        """Everything a group has committed; empty for an unknown group."""

    async def groups_with_offsets(self) -> list[str]:
        """Groups that have committed something, by name."""

    async def delete_offsets(self, group: str, tps: Collection[TopicPartition]) -> None:
        """Forget where a group stands in these partitions. Idempotent."""

    async def expire_offsets(self, before_ms: int, busy: Collection[str]) -> None:
        """Forget offsets committed before this time, unless their group is in use.

        A group is in use if it is among `busy`, or if its row has members or had some after
        `before_ms`. Idempotent.
        """


class GroupStore(Protocol):
    async def store_groups(self, changes: GroupChanges) -> frozenset[TopicPartition]:
        """Replace the rows of these groups and commit these offsets in one transaction.

        Returns the partitions that do not exist; offsets for them are left out.
        """

    async def load_groups(self) -> list[GroupRow]:
        """Every stored group, by name."""

    async def delete_groups(self, groups: Collection[str]) -> None:
        """Forget the rows of these groups and everything they committed. Idempotent."""


class HoldStore(Protocol):
    async def set_hold(self, hold: Hold, now_ms: int) -> None:
        """Place or move a hold; expired ones are dropped. Raises NotFound (no such partition)."""

    async def release_hold(self, name: str) -> None:
        """Drop every hold of this name. Idempotent."""

    async def holds(self, now_ms: int) -> list[Hold]:
        """Holds that have not expired, by name and partition."""


class QuotaStore(Protocol):
    async def client_quotas(self) -> list[ClientQuota]:
        """Every entity that has a limit, with all its limits."""

    async def alter_client_quotas(self, changes: Sequence[QuotaChange]) -> None:
        """Make all changes or, raising Invalid, none."""


class BrokerConfigStore(Protocol):
    async def broker_configs(self) -> Mapping[str, Mapping[str, str]]:
        """Settings changed while brokers run, by broker; '' stands for all of them."""

    async def change_broker_config(self, broker: str, changes: Mapping[str, str | None]) -> None:
        """Change the named settings and leave the others; None takes one back.

        Raises Invalid, with nothing changed, for a setting that cannot be changed or a bad value.
        """


class MetadataStore(
    TopicCatalog,
    Leadership,
    SegmentRegistry,
    OffsetStore,
    GroupStore,
    HoldStore,
    QuotaStore,
    BrokerConfigStore,
    Protocol,
):
    """All of it, as the composition root hands it out."""

    async def close(self) -> None: ...
