"""The sentences of `ports/metadata.py`, run on every adapter.

A new adapter is one more entry in `ADAPTERS`; one whose content survives close also goes in
`DURABLE`. Scenarios know only the port.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from streamhouse.metadata.runner import FaultyRunner, InlineRunner, ThreadRunner
from streamhouse.metadata.sqlite import SqliteMetadata
from streamhouse.model.errors import (
    AlreadyExists,
    Fenced,
    Invalid,
    NotFound,
    OutcomeUnknown,
    StreamhouseError,
    Unavailable,
)
from streamhouse.model.groups import GroupRow, GroupState, MemberRow, Protocol
from streamhouse.model.ids import ObjectKey, TopicId, TopicPartition
from streamhouse.model.keys import SegmentName, segment_key
from streamhouse.model.partition import (
    Fence,
    PartitionRow,
    RetiredObject,
    SegmentCommit,
    SegmentRef,
    SegmentReplacement,
    Term,
)
from streamhouse.model.quotas import QuotaChange, entity_of
from streamhouse.model.topic import InvalidPartitionCount, TopicSpec
from streamhouse.objects.faulty import FaultRates, Faults
from streamhouse.ports.metadata import (
    CommittedOffset,
    DeletedTopic,
    GroupChanges,
    GroupOffsets,
    Hold,
    MetadataStore,
)

Open = Callable[[Path], Awaitable[MetadataStore]]
Scenario = Callable[[MetadataStore], Awaitable[None]]
Run = Callable[[Scenario], None]

T1 = TopicId(UUID(int=1))
T2 = TopicId(UUID(int=2))
P0 = TopicPartition(T1, 0)
P1 = TopicPartition(T1, 1)
NOWHERE = TopicPartition(TopicId(UUID(int=99)), 0)
ORDERS = TopicSpec("orders", 2, {"retention.ms": "1000"})


class CountedIds:
    def __init__(self) -> None:
        self._next = count(1)

    def nonce(self) -> str:
        return f"{next(self._next):08x}"

    def uuid(self) -> bytes:
        return UUID(int=next(self._next) << 64, version=4).bytes


async def open_sqlite(directory: Path) -> MetadataStore:
    return await SqliteMetadata.open(directory / "meta.db", ids=CountedIds(), run=ThreadRunner())


async def open_sqlite_memory(directory: Path) -> MetadataStore:
    return await SqliteMetadata.open(":memory:", ids=CountedIds(), run=InlineRunner())


async def open_faultless(directory: Path) -> MetadataStore:
    run = FaultyRunner(InlineRunner(), Faults(Random(7), asyncio.sleep))
    return await SqliteMetadata.open(directory / "meta.db", ids=CountedIds(), run=run)


ADAPTERS: dict[str, Open] = {
    "sqlite": open_sqlite,
    "sqlite-memory": open_sqlite_memory,
    "faulty-off": open_faultless,
}
DURABLE = ("sqlite", "faulty-off")


@pytest.fixture(params=sorted(ADAPTERS))
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    return _runner(ADAPTERS[request.param], tmp_path)


@pytest.fixture(params=DURABLE)
def run_durable(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Each call opens the same store anew and closes it."""
    return _runner(ADAPTERS[request.param], tmp_path)


def _runner(open_: Open, directory: Path) -> Run:
    async def once(scenario: Scenario) -> None:
        store = await open_(directory)
        try:
            await scenario(store)
        finally:
            await store.close()

    return lambda scenario: asyncio.run(once(scenario))


def fence_of(row: PartitionRow) -> Fence:
    return Fence(row.tp, row.holder, row.incarnation, row.epoch)


def segment(
    tp: TopicPartition, base: int, end: int, *, epoch: int = 1, nonce: str = "a"
) -> SegmentRef:
    return SegmentRef(
        key=segment_key(SegmentName(tp, base, end, epoch, nonce)),
        base=base,
        end=end,
        epoch=epoch,
        record_count=end - base,
        timestamp_min_ms=1_000 + base,
        timestamp_max_ms=1_000 + end,
        bytes_raw=100 * (end - base),
        bytes_stored=40 * (end - base),
        footer_crc=0xFFFF_FFFF - base,
        created_ms=5_000 + end,
    )


def commit_of(fence: Fence, base: int, end: int, *terms: Term, nonce: str = "a") -> SegmentCommit:
    ref = segment(fence.tp, base, end, epoch=fence.epoch, nonce=nonce)
    return SegmentCommit(fence, ref, terms)


async def lead(
    store: MetadataStore, incarnation: str = "i1", *, holder: str = "agent", wal_id: str = "w1"
) -> dict[TopicPartition, PartitionRow]:
    return {r.tp: r for r in await store.take_partitions(holder, incarnation, wal_id)}


async def orders_led(store: MetadataStore) -> Fence:
    """Topic `orders` with partition 0 led at epoch 1."""
    await store.create_topic(T1, ORDERS, now_ms=10)
    return fence_of((await lead(store))[P0])


async def current(store: MetadataStore, tp: TopicPartition, *, by: str = "i1") -> PartitionRow:
    """The stored row, read without changing it: a repeated take by its own leader."""
    return (await lead(store, by))[tp]


# Topics


def test_cluster_id_is_made_once_and_looks_like_kafkas(run_durable: Run) -> None:
    seen: list[str] = []

    async def look(store: MetadataStore) -> None:
        seen.append(await store.cluster_id())

    run_durable(look)
    run_durable(look)
    assert len(seen[0]) == 22
    assert set(seen) == {seen[0]}
    assert not seen[0].startswith("-")


def test_a_topic_comes_with_all_its_partitions(run: Run) -> None:
    """SH-05, SH-06, SH-08, SH-09, SH-113, SH-114."""

    async def scenario(store: MetadataStore) -> None:
        topic = await store.create_topic(T1, ORDERS, now_ms=10)
        assert (topic.topic_id, topic.name, topic.partition_count) == (T1, "orders", 2)
        assert dict(topic.config) == {"retention.ms": "1000"}
        assert topic.settings.retention_ms == 1000
        assert topic.created_ms == 10
        assert await store.list_topics() == [topic]
        rows = await store.take_partitions("agent", "i1", "w1")
        assert [row.tp for row in rows] == [P0, P1]
        for row in rows:
            assert (row.high_watermark, row.log_start, row.segments_end) == (0, 0, 0)
            assert (row.epoch, row.manifest_version, row.snapshot_key) == (1, 0, None)

    run(scenario)


@pytest.mark.parametrize(
    "spec",
    [
        TopicSpec("", 1),
        TopicSpec("no spaces", 1),
        TopicSpec("x" * 250, 1),
        TopicSpec("orders", 0),
        TopicSpec("orders", 10_001),
        TopicSpec("orders", 1, {"no.such.setting": "1"}),
        TopicSpec("orders", 1, {"retention.ms": "soon"}),
    ],
)
def test_a_bad_spec_creates_nothing(run: Run, spec: TopicSpec) -> None:
    async def scenario(store: MetadataStore) -> None:
        with pytest.raises(Invalid):
            await store.create_topic(T1, spec, now_ms=10)
        assert await store.list_topics() == []
        assert await store.take_partitions("agent", "i1", "w1") == []
        assert await store.events_after(0, 10) == []

    run(scenario)


def test_creating_again_is_a_repeat_only_with_the_same_id_and_spec(run: Run) -> None:
    """SH-07: nothing that claims to create a topic can change its partition count."""

    async def scenario(store: MetadataStore) -> None:
        topic = await store.create_topic(T1, ORDERS, now_ms=10)
        assert await store.create_topic(T1, ORDERS, now_ms=99) == topic
        for topic_id, spec in (
            (T2, ORDERS),
            (T1, replace(ORDERS, partition_count=3)),
            (T1, replace(ORDERS, config={})),
            (T1, replace(ORDERS, name="other")),
        ):
            with pytest.raises(AlreadyExists):
                await store.create_topic(topic_id, spec, now_ms=11)
        assert await store.list_topics() == [topic]
        assert len(await store.take_partitions("agent", "i1", "w1")) == 2
        assert len(await store.events_after(0, 10)) == 1

    run(scenario)


def test_topics_are_listed_by_name(run: Run) -> None:
    async def scenario(store: MetadataStore) -> None:
        for number, name in enumerate(("b", "a.z", "a", "B", "a-z")):
            await store.create_topic(TopicId(UUID(int=number)), TopicSpec(name, 1), now_ms=1)
        names = [topic.name for topic in await store.list_topics()]
        assert names == sorted(names)
        assert len(names) == 5

    run(scenario)


def test_settings_are_replaced_as_a_whole(run: Run) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create_topic(T1, ORDERS, now_ms=10)
        altered = await store.set_topic_config(T1, {"cleanup.policy": "compact"}, now_ms=20)
        assert dict(altered.config) == {"cleanup.policy": "compact"}
        assert altered.settings.compact
        assert altered.settings.retention_ms == 604_800_000
        assert await store.list_topics() == [altered]
        with pytest.raises(Invalid):
            await store.set_topic_config(T1, {"retention.ms": "x"}, now_ms=21)
        with pytest.raises(NotFound):
            await store.set_topic_config(T2, {}, now_ms=21)
        assert await store.list_topics() == [altered]

    run(scenario)


def test_settings_are_changed_one_by_one(run: Run) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create_topic(T1, ORDERS, 10)
        changed = await store.change_topic_config(T1, {"segment.ms": "5"}, 11)
        assert dict(changed.config) == {"retention.ms": "1000", "segment.ms": "5"}
        again = await store.change_topic_config(T1, {"retention.ms": None, "flush.ms": None}, 12)
        assert dict(again.config) == {"segment.ms": "5"}
        assert (await store.list_topics()) == [again]
        with pytest.raises(Invalid):
            await store.change_topic_config(T1, {"segment.ms": "6", "retention.ms": "x"}, 13)
        assert (await store.list_topics()) == [again]
        with pytest.raises(NotFound):
            await store.change_topic_config(T2, {}, 14)

    run(scenario)


def test_a_topic_grows_and_what_it_had_stays(run: Run) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create_topic(T1, ORDERS, 10)
        before = await lead(store)
        await store.commit_segment(commit_of(fence_of(before[P0]), 0, 5))
        grown = await store.grow_topic(T1, 4, 11)
        assert grown.partition_count == 4
        assert dict(grown.config) == dict(ORDERS.config)
        assert await store.grow_topic(T1, 4, 12) == grown
        rows = await lead(store)
        assert sorted(tp.partition for tp in rows) == [0, 1, 2, 3]
        assert rows[P0].segments_end == 5
        assert rows[P0].epoch == before[P0].epoch
        assert [rows[TopicPartition(T1, n)].high_watermark for n in (2, 3)] == [0, 0]
        assert {row.holder for row in rows.values()} == {"agent"}

    run(scenario)


@pytest.mark.parametrize("count", [-1, 0, 1, 10_001])
def test_a_topic_neither_shrinks_nor_bursts(run: Run, count: int) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create_topic(T1, ORDERS, 10)
        with pytest.raises(InvalidPartitionCount):
            await store.grow_topic(T1, count, 11)
        assert len(await lead(store)) == 2
        with pytest.raises(NotFound):
            await store.grow_topic(T2, 3, 11)

    run(scenario)


def test_partitions_added_to_a_name_used_again_start_above_its_epochs(run: Run) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create_topic(T1, ORDERS, 10)
        for incarnation in ("i1", "i2", "i3"):
            old = await lead(store, incarnation)
        await store.delete_topic(T1, 11)
        await store.create_topic(T2, TopicSpec("orders", 1), 12)
        await store.grow_topic(T2, 2, 13)
        rows = await lead(store, "i4")
        assert min(row.epoch for row in rows.values()) > max(row.epoch for row in old.values())

    run(scenario)


def test_client_quotas_are_kept(run_durable: Run) -> None:
    both = entity_of([("user", "u"), ("client-id", None)])
    one = entity_of([("client-id", "c")])

    async def write(store: MetadataStore) -> None:
        limits = {"producer_byte_rate": 1000.0, "request_percentage": 12.5}
        await store.alter_client_quotas([QuotaChange(both, limits), QuotaChange(one, limits)])
        taken = {"producer_byte_rate": None, "request_percentage": None}
        await store.alter_client_quotas([QuotaChange(one, taken)])
        with pytest.raises(Invalid):
            await store.alter_client_quotas(
                [QuotaChange(one, limits), QuotaChange(one, {"no_such": 1.0})]
            )

    async def read(store: MetadataStore) -> None:
        (kept,) = await store.client_quotas()
        assert kept.entity == both
        assert dict(kept.limits) == {"producer_byte_rate": 1000.0, "request_percentage": 12.5}

    run_durable(write)
    run_durable(read)


def test_settings_of_brokers_are_kept(run_durable: Run) -> None:
    async def write(store: MetadataStore) -> None:
        assert await store.broker_configs() == {}
        await store.change_broker_config("", {"log.retention.ms": "5", "num.io.threads": "4"})
        await store.change_broker_config("0", {"log.retention.ms": "6"})
        await store.change_broker_config("", {"num.io.threads": None})
        for wrong in ({"log.retention.ms": "x"}, {"node.id": "7"}):
            with pytest.raises(Invalid):
                await store.change_broker_config("", {"log.flush.interval.ms": "9", **wrong})

    async def read(store: MetadataStore) -> None:
        expected = {"": {"log.retention.ms": "5"}, "0": {"log.retention.ms": "6"}}
        assert await store.broker_configs() == expected

    run_durable(write)
    run_durable(read)


def test_a_deleted_topic_is_gone_with_all_that_hung_on_it(run: Run) -> None:
    async def scenario(store: MetadataStore) -> None:
        fence = await orders_led(store)
        await store.create_topic(T2, TopicSpec("kept", 1), now_ms=11)
        await lead(store)
        kept = TopicPartition(T2, 0)
        commit = commit_of(fence, 0, 5, Term(1, 0))
        await store.commit_segment(commit)
        position = CommittedOffset(3, 1, "", 12)
        await store.commit_offsets("g", {P0: position, kept: position})
        await store.set_hold(Hold("backfill", P0, 2, 9_999), now_ms=12)
        await store.delete_topic(T1, now_ms=500)

        assert [topic.name for topic in await store.list_topics()] == ["kept"]
        assert set(await lead(store)) == {kept}
        assert await store.live_segments([P0]) == {P0: []}
        assert await store.terms([P0]) == {P0: []}
        assert await store.committed_offsets("g") == {kept: position}
        assert await store.holds(now_ms=12) == []
        assert await store.retired_objects(501, 10) == [RetiredObject(commit.segment.key, 500)]
        assert await store.deleted_topics(10) == [DeletedTopic(T1, "orders", 2, 500)]
        with pytest.raises(NotFound):
            await store.delete_topic(T1, now_ms=501)

    run(scenario)


def test_late_writes_to_a_deleted_topic_find_nothing(run: Run) -> None:
    """Also when the name lives again: a topic is its id (log protocol, section 1)."""

    async def scenario(store: MetadataStore) -> None:
        fence = await orders_led(store)
        await store.delete_topic(T1, now_ms=20)
        await store.create_topic(T2, ORDERS, now_ms=30)
        for write in (
            store.commit_segment(commit_of(fence, 0, 5)),
            store.raise_log_start(fence, 1, 1),
            store.manifest_written(fence, 0),
            store.commit_offsets("g", {P0: CommittedOffset(0, 0, "", 0)}),
            store.set_hold(Hold("h", P0, 0, 10**6), now_ms=0),
        ):
            with pytest.raises(NotFound):
                await write
        rows = await store.take_partitions("agent", "i1", "w1")
        assert [(row.tp.topic_id, row.segments_end) for row in rows] == [(T2, 0), (T2, 0)]
        assert await store.committed_offsets("g") == {}

    run(scenario)


def test_a_name_used_again_starts_above_every_epoch_it_had(run: Run) -> None:
    """SH-42 for clients that know a topic only by its name."""

    async def scenario(store: MetadataStore) -> None:
        highest = -1
        for life in range(4):
            topic_id = TopicId(UUID(int=100 + life))
            await store.create_topic(topic_id, TopicSpec("orders", 3), now_ms=life)
            rows: list[PartitionRow] = []
            for taken in range(4 - life):  # fewer each time: the tombstone must not be forgotten
                rows = await store.take_partitions("agent", f"{life}-{taken}", "w1")
            assert min(row.epoch for row in rows) > highest
            highest = max(row.epoch for row in rows)
            await store.delete_topic(topic_id, now_ms=life)

    run(scenario)


def test_a_deleted_topics_id_is_not_used_again_while_its_objects_go(run: Run) -> None:
    """Goal: a delayed repeat of CreateTopic cannot put objects where the janitor deletes."""

    async def scenario(store: MetadataStore) -> None:
        await store.create_topic(T1, ORDERS, now_ms=10)
        await store.delete_topic(T1, now_ms=20)
        with pytest.raises(AlreadyExists):
            await store.create_topic(T1, ORDERS, now_ms=30)
        assert await store.list_topics() == []

    run(scenario)


def test_forgetting_a_deleted_topic_forgets_only_its_objects(run: Run) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create_topic(T1, ORDERS, now_ms=10)
        await store.create_topic(T2, TopicSpec("other", 1), now_ms=10)
        rows = await lead(store)
        for row in rows.values():
            await store.commit_segment(commit_of(fence_of(row), 0, 5))
        await store.delete_topic(T1, now_ms=20)
        await store.delete_topic(T2, now_ms=30)
        assert [t.topic_id for t in await store.deleted_topics(10)] == [T1, T2]
        assert [t.topic_id for t in await store.deleted_topics(1)] == [T1]
        for _ in range(2):
            await store.forget_deleted_topic(T1)
        left = await store.retired_objects(100, 10)
        assert [o.key for o in left] == [segment(TopicPartition(T2, 0), 0, 5).key]
        assert [t.topic_id for t in await store.deleted_topics(10)] == [T2]

    run(scenario)


def test_each_change_of_the_catalog_is_an_event(run: Run) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create_topic(T1, ORDERS, now_ms=10)
        await store.set_topic_config(T1, {}, now_ms=20)
        await store.set_topic_config(T1, {}, now_ms=25)  # changes nothing: no event
        await store.delete_topic(T1, now_ms=30)
        events = await store.events_after(0, 10)
        assert [(e.at_ms, e.kind) for e in events] == [
            (10, "topic_created"),
            (20, "topic_altered"),
            (30, "topic_deleted"),
        ]
        assert {e.key for e in events} == {str(T1)}
        assert json.loads(events[0].detail)["name"] == "orders"
        assert [e.seq for e in events] == sorted({e.seq for e in events})
        assert await store.events_after(events[0].seq, 1) == [events[1]]
        assert await store.events_after(events[-1].seq, 10) == []

    run(scenario)


# Leadership


def test_each_new_incarnation_raises_every_epoch(run: Run) -> None:
    """SH-10, SH-39, SH-42."""

    async def scenario(store: MetadataStore) -> None:
        await store.create_topic(T1, ORDERS, now_ms=10)
        for epoch in (1, 2, 3):
            rows = await lead(store, f"i{epoch}", holder=f"agent-{epoch % 2}")
            assert {row.epoch for row in rows.values()} == {epoch}
            assert {row.incarnation for row in rows.values()} == {f"i{epoch}"}
            assert await lead(store, f"i{epoch}", holder=f"agent-{epoch % 2}") == rows

    run(scenario)


def test_a_new_topic_is_taken_without_touching_the_others(run: Run) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create_topic(T1, ORDERS, now_ms=10)
        before = await lead(store)
        await store.create_topic(T2, TopicSpec("new", 1), now_ms=11)
        taken = await store.take_partitions("agent", "i1", "w1", T2)
        assert [row.tp.topic_id for row in taken] == [T2]
        after = await lead(store)
        assert after == {**before, taken[0].tp: taken[0]}
        with pytest.raises(NotFound):
            await store.take_partitions("agent", "i1", "w1", NOWHERE.topic_id)

    run(scenario)


def test_taking_one_topic_leaves_the_others_with_their_leader(run: Run) -> None:
    async def scenario(store: MetadataStore) -> None:
        fence = await orders_led(store)
        await store.create_topic(T2, TopicSpec("new", 1), now_ms=11)
        await store.take_partitions("agent", "i2", "w1", T2)
        assert (await store.commit_segment(commit_of(fence, 0, 5))).epoch == 1

    run(scenario)


@pytest.mark.parametrize(("holder", "incarnation"), [("", "i1"), ("agent", "")])
def test_nobody_cannot_lead(run: Run, holder: str, incarnation: str) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create_topic(T1, ORDERS, now_ms=10)
        with pytest.raises(Invalid):
            await store.take_partitions(holder, incarnation, "w1")
        with pytest.raises(Fenced):
            await store.commit_segment(commit_of(Fence(P0, "", "", 0), 0, 5))

    run(scenario)


@pytest.mark.parametrize("other_wal", ["w2", ""])
def test_a_partition_opens_only_with_its_own_wal(run: Run, other_wal: str) -> None:
    """Goal: a lost WAL directory is noticed, nothing is taken, and the message helps."""

    async def scenario(store: MetadataStore) -> None:
        await store.create_topic(T2, TopicSpec("fresh", 1), now_ms=9)
        fence = await orders_led(store)
        before = await lead(store)
        with pytest.raises(Fenced, match="belongs to WAL w1, this process has WAL") as refused:
            await store.take_partitions("agent", "i2", other_wal)
        assert "--accept-wal-loss" in str(refused.value)
        assert await lead(store) == before
        assert (await store.commit_segment(commit_of(fence, 0, 5))).segments_end == 5

    run(scenario)


def test_a_lost_wal_can_be_accepted(run: Run) -> None:
    """Goal: the log goes on where its segments end, and can really be written there."""

    async def scenario(store: MetadataStore) -> None:
        fence = await orders_led(store)
        await store.commit_segment(commit_of(fence, 0, 5))
        await store.raise_log_start(fence, 7, 9)  # its WAL held offsets up to 9
        taken = await store.take_partitions("agent", "i2", "w2", accept_wal_loss=True)
        row = {r.tp: r for r in taken}[P0]
        assert (row.epoch, row.wal_id, row.log_start, row.segments_end) == (2, "w2", 7, 7)
        assert row.high_watermark == 9
        written = await store.commit_segment(commit_of(fence_of(row), 7, 20))
        assert (written.segments_end, written.high_watermark) == (20, 20)
        with pytest.raises(Fenced):
            await store.take_partitions("agent", "i3", "w1")

    run(scenario)


def test_log_start_only_rises(run: Run) -> None:
    async def scenario(store: MetadataStore) -> None:
        fence = await orders_led(store)
        await store.raise_log_start(fence, 5, 8)
        raised = await current(store, P0)
        assert (raised.log_start, raised.high_watermark, raised.segments_end) == (5, 8, 0)
        for log_start, high_watermark in ((5, 100), (3, 100), (0, 0)):
            await store.raise_log_start(fence, log_start, high_watermark)
            assert await current(store, P0) == raised
        await store.raise_log_start(fence, 6, 7)
        risen = await current(store, P0)
        assert (risen.log_start, risen.high_watermark) == (6, 8)
        with pytest.raises(Invalid):
            await store.raise_log_start(fence, 9, 8)
        assert await current(store, P0) == risen

    run(scenario)


def test_reserved_numbers_are_given_once(run: Run) -> None:
    async def scenario(store: MetadataStore) -> None:
        firsts = await asyncio.gather(*(store.reserve_ids("producer", 10) for _ in range(8)))
        assert sorted(firsts) == list(range(0, 80, 10))
        assert await store.reserve_ids("producer", 1) == 80
        assert await store.reserve_ids("producer", 5) == 81
        assert await store.reserve_ids("other", 1) == 0
        with pytest.raises(Invalid):
            await store.reserve_ids("producer", 0)

    run(scenario)


# Segments


def test_a_commit_moves_everything_at_once(run: Run) -> None:
    async def scenario(store: MetadataStore) -> None:
        fence = await orders_led(store)
        first, second = commit_of(fence, 0, 5, Term(1, 0)), commit_of(fence, 5, 9)
        row = await store.commit_segment(first)
        assert (row.segments_end, row.high_watermark, row.manifest_version) == (5, 5, 1)
        assert row.snapshot_key == first.segment.key
        row = await store.commit_segment(second)
        assert (row.segments_end, row.high_watermark, row.manifest_version) == (9, 9, 2)
        assert row.snapshot_key == second.segment.key
        assert await current(store, P0) == row
        assert await store.live_segments([P0, P1]) == {P0: [first.segment, second.segment], P1: []}
        assert await store.terms([P0, P1]) == {P0: [Term(1, 0)], P1: []}
        assert await store.retired_objects(10**12, 10) == []

    run(scenario)


def test_the_watermark_does_not_go_back_to_a_segments_end(run: Run) -> None:
    async def scenario(store: MetadataStore) -> None:
        fence = await orders_led(store)
        await store.raise_log_start(fence, 2, 50)
        row = await store.commit_segment(commit_of(fence, 0, 5))
        assert (row.high_watermark, row.segments_end, row.log_start) == (50, 5, 2)

    run(scenario)


@pytest.mark.parametrize(("base", "end"), [(4, 9), (6, 9), (0, 9), (0, 5), (5, 5), (9, 5), (-1, 5)])
def test_a_segment_that_does_not_join_is_refused(run: Run, base: int, end: int) -> None:
    """Goal: no gap, no overlap; at our own epoch that is a wrong request, not a lost lead."""

    async def scenario(store: MetadataStore) -> None:
        fence = await orders_led(store)
        before = await store.commit_segment(commit_of(fence, 0, 5))
        wrong = segment(P0, 5, 9, nonce="b")
        wrong = replace(wrong, base=base, end=end)
        with pytest.raises(Invalid):
            await store.commit_segment(SegmentCommit(fence, wrong, ()))
        assert await current(store, P0) == before
        assert [s.base for s in (await store.live_segments([P0]))[P0]] == [0]

    run(scenario)


def test_a_term_outside_its_segment_is_refused(run: Run) -> None:
    async def scenario(store: MetadataStore) -> None:
        fence = await orders_led(store)
        for start in (-1, 5, 6):
            with pytest.raises(Invalid):
                await store.commit_segment(commit_of(fence, 0, 5, Term(1, start)))
        assert (await current(store, P0)).segments_end == 0

    run(scenario)


def test_a_stale_leader_changes_nothing(run: Run) -> None:
    """SH-43, SH-47: every fenced write, with each part of the fence wrong in turn."""

    async def scenario(store: MetadataStore) -> None:
        old = await orders_led(store)
        commit = commit_of(old, 0, 5, Term(1, 0))
        await store.commit_segment(commit)
        new_row = (await lead(store, "i2", holder="agent-2"))[P0]
        new = fence_of(new_row)
        assert new.epoch == 2
        stale = [
            old,
            new._replace(epoch=1),
            new._replace(epoch=3),
            new._replace(holder="agent"),
            new._replace(incarnation="i1"),
        ]
        for fence in stale:
            swap = SegmentReplacement(fence, (commit.segment.key,), (), log_start=5)
            for write in (
                store.commit_segment(commit_of(fence, 5, 9, nonce="f")),
                store.replace_segments(swap, now_ms=50),
                store.raise_log_start(fence, 5, 5),
                store.raise_log_start(fence, 0, 0),
                store.manifest_written(fence, 1),
            ):
                with pytest.raises(Fenced):
                    await write
        assert (await lead(store, "i2", holder="agent-2"))[P0] == new_row
        assert await store.live_segments([P0]) == {P0: [commit.segment]}
        assert await store.retired_objects(10**12, 10) == []
        row = await store.commit_segment(commit_of(new, 5, 9, Term(2, 5)))
        assert (row.segments_end, row.epoch) == (9, 2)
        assert await store.terms([P0]) == {P0: [Term(1, 0), Term(2, 5)]}

    run(scenario)


def test_a_repeated_commit_is_answered_and_not_repeated(run: Run) -> None:
    """Also after the lead has moved, and after the segment was merged away: it did happen."""

    async def scenario(store: MetadataStore) -> None:
        old = await orders_led(store)
        commit = commit_of(old, 0, 5, Term(1, 0))
        row = await store.commit_segment(commit)
        assert await store.commit_segment(commit) == row
        next_row = await store.commit_segment(commit_of(old, 5, 9))
        assert await store.commit_segment(commit) == next_row

        taken = (await lead(store, "i2"))[P0]
        assert await store.commit_segment(commit) == taken
        keys = tuple(s.key for s in (await store.live_segments([P0]))[P0])
        merged = segment(P0, 0, 9, epoch=2, nonce="m")
        swapped = await store.replace_segments(
            SegmentReplacement(fence_of(taken), keys, (merged,)), now_ms=50
        )
        assert await store.commit_segment(commit) == swapped
        assert await store.live_segments([P0]) == {P0: [merged]}

    run(scenario)


def test_a_merge_swaps_segments_and_retires_the_old(run: Run) -> None:
    async def scenario(store: MetadataStore) -> None:
        fence = await orders_led(store)
        commits = [commit_of(fence, base, base + 5) for base in (0, 5, 10)]
        for commit in commits:
            await store.commit_segment(commit)
        merged = replace(segment(P0, 0, 10, nonce="m"), generation=1, record_count=7)
        change = SegmentReplacement(
            fence, (commits[1].segment.key, commits[0].segment.key), (merged,)
        )
        row = await store.replace_segments(change, now_ms=700)
        assert (row.segments_end, row.log_start, row.manifest_version) == (15, 0, 4)
        assert await store.live_segments([P0]) == {P0: [merged, commits[2].segment]}
        assert await store.replace_segments(change, now_ms=800) == row

        assert await store.retired_objects(10**12, 10) == []  # a manifest still names them
        await store.manifest_written(fence, 3, now_ms=900)
        assert await store.retired_objects(10**12, 10) == []
        await store.manifest_written(fence, 4, now_ms=1_000)
        assert (await current(store, P0)).manifest_written == 4
        gone = [RetiredObject(c.segment.key, 1_000) for c in commits[:2]]
        assert await store.retired_objects(1_001, 10) == gone
        assert await store.retired_objects(1_001, 1) == gone[:1]
        assert await store.retired_objects(1_000, 10) == []
        for _ in range(2):
            await store.forget_retired([gone[0].key])
        assert await store.retired_objects(1_001, 10) == gone[1:]

    run(scenario)


def test_retention_drops_segments_below_the_log_start(run: Run) -> None:
    async def scenario(store: MetadataStore) -> None:
        fence = await orders_led(store)
        commits = [commit_of(fence, base, base + 5) for base in (0, 5, 10)]
        for commit in commits:
            await store.commit_segment(commit)
        keys = tuple(commit.segment.key for commit in commits)
        change = SegmentReplacement(fence, keys[:2], (), log_start=10)
        row = await store.replace_segments(change, now_ms=700)
        assert (row.log_start, row.segments_end, row.manifest_version) == (10, 15, 4)
        assert await store.live_segments([P0]) == {P0: [commits[2].segment]}
        assert await store.replace_segments(change, now_ms=800) == row

    run(scenario)


def test_the_object_with_the_newest_snapshot_outlives_retention(run: Run) -> None:
    """Goal: producers' state survives an empty log (log protocol, section 4)."""

    async def scenario(store: MetadataStore) -> None:
        fence = await orders_led(store)
        commits = [commit_of(fence, 0, 5), commit_of(fence, 5, 9)]
        for commit in commits:
            await store.commit_segment(commit)
        keys = tuple(commit.segment.key for commit in commits)
        change = SegmentReplacement(fence, keys, (), log_start=9)
        row = await store.replace_segments(change, now_ms=700)
        assert row.snapshot_key == keys[1]
        assert await store.replace_segments(change, now_ms=701) == row
        await store.manifest_written(fence, row.manifest_version, now_ms=800)
        assert [o.key for o in await store.retired_objects(10**12, 10)] == [keys[0]]

        row = await store.commit_segment(commit_of(fence, 9, 12))
        await store.manifest_written(fence, row.manifest_version, now_ms=900)
        retired = {o.key for o in await store.retired_objects(10**12, 10)}
        assert retired == set(keys)
        assert row.snapshot_key not in retired

    run(scenario)


def test_a_replacement_that_would_lose_offsets_is_refused(run: Run) -> None:
    async def scenario(store: MetadataStore) -> None:
        fence = await orders_led(store)
        refs = []
        for base in (0, 5, 10):
            commit = commit_of(fence, base, base + 5)
            await store.commit_segment(commit)
            refs.append(commit.segment)
        before = await current(store, P0)
        k0, k1, k2 = (ref.key for ref in refs)
        wrong: list[tuple[tuple[ObjectKey, ...], tuple[SegmentRef, ...], int | None]] = [
            ((), (), None),
            ((k0,), (), None),  # above the log start
            ((k0, k1), (), 9),
            ((k0, k1), (segment(P0, 0, 9, nonce="m"),), None),  # short
            ((k0, k1), (segment(P0, 1, 10, nonce="m"),), None),
            ((k0, k1), (segment(P0, 0, 11, nonce="m"),), None),  # overlaps its neighbour
            ((k0, k1), (segment(P0, 0, 4, nonce="m"), segment(P0, 5, 10, nonce="m")), None),
            ((k0, k2), (segment(P0, 0, 15, nonce="m"),), None),  # swallows the one between
            ((k0,), (refs[0],), None),  # its object would be deleted
        ]
        for old, new, log_start in wrong:
            with pytest.raises(Invalid):
                await store.replace_segments(SegmentReplacement(fence, old, new, log_start), 50)
        unknown = segment(P0, 0, 5, nonce="ffff").key
        with pytest.raises(NotFound):
            await store.replace_segments(SegmentReplacement(fence, (unknown,), (), 15), 50)
        with pytest.raises(NotFound):
            await store.replace_segments(SegmentReplacement(fence, (k0, unknown), (), 15), 50)
        assert await current(store, P0) == before
        assert await store.live_segments([P0]) == {P0: refs}

    run(scenario)


def test_of_two_replacements_of_one_segment_the_second_fails(run: Run) -> None:
    async def scenario(store: MetadataStore) -> None:
        fence = await orders_led(store)
        for base in (0, 5, 10):
            await store.commit_segment(commit_of(fence, base, base + 5))
        k0, k1, k2 = (s.key for s in (await store.live_segments([P0]))[P0])
        left = SegmentReplacement(fence, (k0, k1), (segment(P0, 0, 10, nonce="1"),))
        right = SegmentReplacement(fence, (k1, k2), (segment(P0, 5, 15, nonce="2"),))
        answers = await asyncio.gather(
            store.replace_segments(left, 50),
            store.replace_segments(right, 50),
            return_exceptions=True,
        )
        assert [type(a) for a in answers] == [PartitionRow, NotFound]
        bases = [(s.base, s.end) for s in (await store.live_segments([P0]))[P0]]
        assert bases == [(0, 10), (10, 15)]

    run(scenario)


def test_a_retired_object_is_not_registered_again(run: Run) -> None:
    async def scenario(store: MetadataStore) -> None:
        fence = await orders_led(store)
        first = commit_of(fence, 0, 5)
        await store.commit_segment(first)
        await store.commit_segment(commit_of(fence, 5, 9))
        drop = SegmentReplacement(fence, (first.segment.key,), (), log_start=5)
        before = await store.replace_segments(drop, now_ms=50)
        again = replace(first.segment, base=9, end=12)
        with pytest.raises(Invalid):
            await store.commit_segment(SegmentCommit(fence, again, ()))
        assert await current(store, P0) == before
        assert [s.base for s in (await store.live_segments([P0]))[P0]] == [5]

    run(scenario)


def test_a_manifest_version_that_was_not_assigned_is_refused(run: Run) -> None:
    async def scenario(store: MetadataStore) -> None:
        fence = await orders_led(store)
        await store.commit_segment(commit_of(fence, 0, 5))
        with pytest.raises(Invalid):
            await store.manifest_written(fence, 2)
        await store.manifest_written(fence, 1)
        await store.manifest_written(fence, 0)  # an old answer that arrives late
        assert (await current(store, P0)).manifest_written == 1

    run(scenario)


# Readers


def test_groups_resume_where_they_committed(run_durable: Run) -> None:
    """SH-72, SH-74."""
    first = CommittedOffset(5, 1, "note", 100)
    later = CommittedOffset(3, -1, "", 200)  # a reset goes back

    async def commit(store: MetadataStore) -> None:
        await store.create_topic(T1, ORDERS, now_ms=10)
        await store.commit_offsets("g", {P0: first, P1: first})
        await store.commit_offsets("g", {P1: later})
        await store.commit_offsets("other", {P0: later})

    async def resume(store: MetadataStore) -> None:
        assert await store.committed_offsets("g") == {P0: first, P1: later}
        assert await store.committed_offsets("other") == {P0: later}
        assert await store.committed_offsets("unknown") == {}

    run_durable(commit)
    run_durable(resume)


def test_offsets_of_an_unknown_partition_commit_nothing(run: Run) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create_topic(T1, ORDERS, now_ms=10)
        position = CommittedOffset(5, 1, "", 100)
        for absent in (NOWHERE, TopicPartition(T1, 2)):
            with pytest.raises(NotFound):
                await store.commit_offsets("g", {P0: position, absent: position})
        assert await store.committed_offsets("g") == {}

    run(scenario)


def test_offsets_of_a_group_can_be_forgotten(run: Run) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create_topic(T1, ORDERS, now_ms=10)
        position = CommittedOffset(5, 1, "", 100)
        for group in ("h", "g"):
            await store.commit_offsets(group, {P0: position, P1: position})
        assert await store.groups_with_offsets() == ["g", "h"]
        for _ in range(2):
            await store.delete_offsets("g", [P0, NOWHERE])
        assert await store.committed_offsets("g") == {P1: position}
        await store.delete_offsets("g", [P1])
        assert await store.groups_with_offsets() == ["h"]

    run(scenario)


# Groups


def member_row(name: str, instance: str | None = None) -> MemberRow:
    protocols = (Protocol("range", b"\x00\xff" + name.encode()), Protocol("sticky", b""))
    return MemberRow(name, instance, "client", "/10.0.0.1", 6_000, 60_000, protocols, b"\x01")


def group_row(name: str, generation: int = 3, *members: MemberRow) -> GroupRow:
    leader = members[0].member_id if members else None
    return GroupRow(
        group_id=name,
        state=GroupState.STABLE if members else GroupState.EMPTY,
        generation=generation,
        protocol_type="consumer",
        protocol_name="range" if members else None,
        leader=leader,
        empty_since_ms=None if members else 500,
        members=members,
    )


STABLE = group_row("stable", 3, member_row("z"), member_row("a", "static-a"))
EMPTY = group_row("empty", 9)


def test_groups_are_there_again_as_they_were_stored(run_durable: Run) -> None:
    """Members keep their order: it decides who leads next."""

    async def store_them(store: MetadataStore) -> None:
        await store.store_groups(GroupChanges(rows=(STABLE, EMPTY)))

    async def load_them(store: MetadataStore) -> None:
        assert await store.load_groups() == [EMPTY, STABLE]

    run_durable(store_them)
    run_durable(load_them)


def test_a_group_is_replaced_as_a_whole(run: Run) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.store_groups(GroupChanges(rows=(STABLE, EMPTY)))
        smaller = group_row("stable", 4, member_row("a", "static-a"))
        await store.store_groups(GroupChanges(rows=(smaller,)))
        assert await store.load_groups() == [EMPTY, smaller]

    run(scenario)


def test_rows_and_offsets_of_many_groups_are_one_change(run: Run) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create_topic(T1, ORDERS, now_ms=10)
        first, later = CommittedOffset(1, 1, "", 100), CommittedOffset(2, 1, "m", 200)
        changes = GroupChanges(
            rows=(EMPTY,),
            offsets=(
                GroupOffsets("g", {P0: first, P1: first}),
                GroupOffsets("h", {P0: first}),
                GroupOffsets("g", {P0: later}),
            ),
        )
        assert await store.store_groups(changes) == frozenset()
        assert await store.committed_offsets("g") == {P0: later, P1: first}
        assert await store.committed_offsets("h") == {P0: first}

    run(scenario)


def test_offsets_of_partitions_that_are_gone_do_not_hinder_the_others(run: Run) -> None:
    """One topic deleted at the wrong moment must not fail everybody's commit."""

    async def scenario(store: MetadataStore) -> None:
        await store.create_topic(T1, ORDERS, now_ms=10)
        position = CommittedOffset(1, 1, "", 100)
        offsets = (GroupOffsets("g", {P0: position, NOWHERE: position}),)
        absent = await store.store_groups(GroupChanges(rows=(STABLE,), offsets=offsets))
        assert absent == {NOWHERE}
        assert await store.committed_offsets("g") == {P0: position}
        assert await store.load_groups() == [STABLE]

    run(scenario)


def test_a_deleted_group_leaves_nothing(run: Run) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create_topic(T1, ORDERS, now_ms=10)
        position = CommittedOffset(1, 1, "", 100)
        offsets = tuple(GroupOffsets(name, {P0: position}) for name in ("stable", "empty"))
        await store.store_groups(GroupChanges((STABLE, EMPTY), offsets))
        for _ in range(2):
            await store.delete_groups(["stable", "nobody"])
        assert await store.load_groups() == [EMPTY]
        assert await store.groups_with_offsets() == ["empty"]

    run(scenario)


def test_offsets_expire_only_where_nobody_uses_the_group(run: Run) -> None:
    """2.6: by the age of the commit, and not before the group has been empty as long."""

    async def scenario(store: MetadataStore) -> None:
        await store.create_topic(T1, ORDERS, now_ms=10)
        old, young = CommittedOffset(1, 1, "", 400), CommittedOffset(1, 1, "", 600)
        names = ("busy", "empty", "simple", "stable", "young")
        offsets = [GroupOffsets(name, {P0: old, P1: old}) for name in names]
        offsets.append(GroupOffsets("young", {P1: young}))
        await store.store_groups(GroupChanges((STABLE, EMPTY), offsets))
        await store.expire_offsets(500, ["busy"])
        assert await store.groups_with_offsets() == ["busy", "empty", "stable", "young"]
        assert await store.committed_offsets("young") == {P1: young}
        await store.expire_offsets(501, [])  # "empty" became so at 500
        assert await store.groups_with_offsets() == ["stable", "young"]

    run(scenario)


def test_holds_last_until_released_or_expired(run: Run) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create_topic(T1, ORDERS, now_ms=10)
        short, long = Hold("backfill", P0, 3, 200), Hold("pipeline", P1, 7, 900)
        await store.set_hold(short, now_ms=100)
        await store.set_hold(long, now_ms=100)
        assert await store.holds(now_ms=199) == [short, long]
        assert await store.holds(now_ms=200) == [long]
        moved = Hold("pipeline", P1, 8, 950)
        await store.set_hold(moved, now_ms=300)
        assert await store.holds(now_ms=100) == [moved]
        for _ in range(2):
            await store.release_hold("pipeline")
        assert await store.holds(now_ms=100) == []
        with pytest.raises(NotFound):
            await store.set_hold(Hold("h", NOWHERE, 0, 900), now_ms=100)

    run(scenario)


# The whole store


async def contents(store: MetadataStore) -> list[object]:
    """Everything the port shows, with partition 0 and 1 of `orders` led by i2."""
    tps = [P0, P1, TopicPartition(T2, 0)]
    rows = await store.take_partitions("agent", "i2", "w1")
    return [
        rows,
        await store.list_topics(),
        await store.live_segments(tps),
        await store.terms(tps),
        await store.retired_objects(10**12, 100),
        await store.deleted_topics(100),
        await store.events_after(0, 100),
        await store.committed_offsets("g"),
        await store.groups_with_offsets(),
        await store.load_groups(),
        await store.holds(0),
        await store.client_quotas(),
        await store.broker_configs(),
        await store.cluster_id(),
    ]


def script(store: MetadataStore) -> list[tuple[str, Callable[[], Awaitable[object]]]]:
    """Each changing command once. `reserve_ids` is left out: its repeat takes further numbers."""
    f1, f2 = Fence(P0, "agent", "i1", 1), Fence(P0, "agent", "i2", 2)
    c1, c2 = commit_of(f1, 0, 5, Term(1, 0)), commit_of(f2, 5, 9, Term(2, 5))
    c3 = commit_of(f2, 9, 12)
    merged = segment(P0, 0, 9, epoch=2, nonce="m")
    keys = (c1.segment.key, c2.segment.key)
    position = CommittedOffset(4, 1, "m", 60)
    quota = QuotaChange(entity_of([("user", None)]), {"consumer_byte_rate": 9.0})
    return [
        ("create_topic", lambda: store.create_topic(T1, ORDERS, 10)),
        ("create_topic", lambda: store.create_topic(T2, TopicSpec("gone", 1), 11)),
        ("set_topic_config", lambda: store.set_topic_config(T1, {"retention.ms": "5"}, 12)),
        (
            "change_topic_config",
            lambda: store.change_topic_config(T1, {"segment.ms": "7", "retention.ms": None}, 13),
        ),
        ("grow_topic", lambda: store.grow_topic(T1, 3, 14)),
        ("alter_client_quotas", lambda: store.alter_client_quotas([quota])),
        (
            "change_broker_config",
            lambda: store.change_broker_config("", {"log.retention.ms": "5"}),
        ),
        ("take_partitions", lambda: store.take_partitions("agent", "i1", "w1")),
        ("commit_segment", lambda: store.commit_segment(c1)),
        ("take_partitions", lambda: store.take_partitions("agent", "i2", "w1")),
        ("commit_segment", lambda: store.commit_segment(c2)),
        ("commit_segment", lambda: store.commit_segment(c3)),
        (
            "replace_segments",
            lambda: store.replace_segments(SegmentReplacement(f2, keys, (merged,)), 50),
        ),
        ("manifest_written", lambda: store.manifest_written(f2, 4, 55)),
        ("raise_log_start", lambda: store.raise_log_start(f2, 3, 12)),
        ("commit_offsets", lambda: store.commit_offsets("g", {P0: position})),
        (
            "store_groups",
            lambda: store.store_groups(
                GroupChanges(
                    (STABLE, EMPTY),
                    [GroupOffsets(name, {P0: position, P1: position}) for name in ("k", "l", "m")],
                )
            ),
        ),
        ("delete_offsets", lambda: store.delete_offsets("k", [P1])),
        ("expire_offsets", lambda: store.expire_offsets(61, ["g", "k", "l"])),
        ("delete_groups", lambda: store.delete_groups(["empty", "l"])),
        ("set_hold", lambda: store.set_hold(Hold("h", P0, 1, 10**6), 60)),
        ("set_hold", lambda: store.set_hold(Hold("h2", P0, 1, 10**6), 60)),
        ("release_hold", lambda: store.release_hold("h2")),
        ("delete_topic", lambda: store.delete_topic(T2, 70)),
        ("forget_retired", lambda: store.forget_retired([keys[0]])),
    ]


def test_every_command_may_be_repeated(run: Run) -> None:
    """Goal: a repeat at once leaves what one call leaves, and gives the same answer."""
    once: list[object] = []

    async def singly(store: MetadataStore) -> None:
        for _, command in script(store):
            await command()
        once.extend(await contents(store))

    async def doubly(store: MetadataStore) -> None:
        for name, command in script(store):
            first = await command()
            try:
                assert await command() == first
            except NotFound:
                assert name == "delete_topic"
        assert await contents(store) == once

    asyncio.run(_with_memory_store(singly))
    run(doubly)


async def _with_memory_store(scenario: Scenario) -> None:
    store = await open_sqlite_memory(Path())
    await scenario(store)
    await store.close()


def test_lost_commands_and_lost_answers_end_where_a_good_network_does(tmp_path: Path) -> None:
    """Goal: with every command repeated until it is answered, faults leave no trace."""
    once: list[object] = []
    faults_met: set[str] = set()

    async def calm(store: MetadataStore) -> None:
        for _, command in script(store):
            await command()
        once.extend(await contents(store))

    async def stormy(seed: int) -> None:
        faults = Faults(Random(seed), asyncio.sleep)
        store = await SqliteMetadata.open(
            ":memory:", ids=CountedIds(), run=FaultyRunner(InlineRunner(), faults)
        )
        faults.rates = FaultRates(refused=0.2, request_lost=0.2, answer_lost=0.2)
        for _, command in script(store):
            await _until_answered(command, faults_met)
        faults.rates = FaultRates()
        assert await contents(store) == once
        await store.close()

    asyncio.run(_with_memory_store(calm))
    for seed in range(20):
        asyncio.run(stormy(seed))
    assert faults_met == {"Unavailable", "OutcomeUnknown", "NotFound"}


async def _until_answered(command: Callable[[], Awaitable[object]], faults_met: set[str]) -> None:
    for _ in range(100):
        try:
            await command()
            return
        except (Unavailable, OutcomeUnknown) as error:
            faults_met.add(type(error).__name__)
        except NotFound as error:  # a deletion whose answer was lost
            faults_met.add(type(error).__name__)
            return
    raise AssertionError("never answered")


def test_everything_survives_close_and_reopen(run_durable: Run) -> None:
    before: list[object] = []

    async def fill(store: MetadataStore) -> None:
        for _, command in script(store):
            await command()
        assert await store.reserve_ids("producer", 10) == 0
        before.extend(await contents(store))

    async def look(store: MetadataStore) -> None:
        assert await contents(store) == before
        assert await store.reserve_ids("producer", 1) == 10

    run_durable(fill)
    run_durable(look)


def test_a_closed_store_says_so(run: Run) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.close()
        with pytest.raises(StreamhouseError, match="closed"):
            await store.list_topics()

    run(scenario)
