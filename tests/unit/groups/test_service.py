"""The coordinator on a real store: what is stored before it is told, restarts, faults, timers.

Time is virtual: waiting costs nothing, and every run is the same.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random
from uuid import UUID

import pytest

from streamhouse.groups.service import GroupOptions, GroupService
from streamhouse.metadata.runner import FaultyRunner, InlineRunner
from streamhouse.metadata.sqlite import SqliteMetadata
from streamhouse.model.errors import Unavailable
from streamhouse.model.groups import GroupState, Identity, JoinAnswer, Refusal, SyncRequest
from streamhouse.model.ids import TopicId, TopicPartition
from streamhouse.model.limits import SESSION_TIMEOUT_MS_MAX
from streamhouse.model.topic import TopicSpec
from streamhouse.objects.faulty import FaultRates, Faults
from streamhouse.ports.metadata import CommittedOffset
from tests.sim.loop import run_virtually
from tests.unit.groups.group_world import REBALANCE_MS, SESSION_MS, request

TOPIC = TopicId(UUID(int=1))
P0, P1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
GONE = TopicPartition(TopicId(UUID(int=2)), 0)
NOBODY = Identity("")
DAY_MS = 86_400_000
OPTIONS = GroupOptions(initial_delay_ms=0)


class LoopClock:
    """The loop's own time, also as wall time."""

    def now_ms(self) -> int:
        return 1_000_000_000_000 + int(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


class CountedIds:
    def __init__(self) -> None:
        self._next = 0

    def nonce(self) -> str:
        self._next += 1
        return str(self._next)

    def uuid(self) -> bytes:
        self._next += 1
        return UUID(int=self._next, version=4).bytes


class World:
    """A store that survives, and the coordinator that is restarted on it."""

    def __init__(self, options: GroupOptions) -> None:
        self.clock, self.ids, self.options = LoopClock(), CountedIds(), options
        self.faults = Faults(Random(1), asyncio.sleep)
        self.fatal: list[BaseException] = []
        self.store: SqliteMetadata
        self.groups: GroupService

    async def open(self) -> None:
        run = FaultyRunner(InlineRunner(), self.faults)
        self.store = await SqliteMetadata.open(":memory:", ids=self.ids, run=run)
        await self.store.create_topic(TOPIC, TopicSpec("t", 2), now_ms=0)
        await self.start()

    async def start(self) -> None:
        self.groups = GroupService(
            self.store, self.clock, self.ids, self.options, on_fatal=self.fatal.append
        )
        await self.groups.start()

    async def restart(self) -> None:
        await self.groups.stop()
        await self.start()

    def break_store(self) -> None:
        self.faults.rates = FaultRates(refused=1.0)

    def heal_store(self) -> None:
        self.faults.rates = FaultRates()

    def offset(self, number: int) -> CommittedOffset:
        return CommittedOffset(number, -1, "", self.clock.now_ms())

    async def member(self, group: str = "g") -> JoinAnswer:
        """A new dynamic member, joined."""
        told = await self.groups.join(group, request())
        assert told.refusal is Refusal.MEMBER_ID_REQUIRED
        return await self.groups.join(group, request(told.member_id))

    async def stable(self, group: str = "g") -> JoinAnswer:
        joined = await self.member(group)
        assert joined.refusal is None
        synced = await self.groups.sync(group, assign(joined))
        assert synced.refusal is None
        return joined


def assign(joined: JoinAnswer) -> SyncRequest:
    given = {member.member_id: member.member_id.encode() for member in joined.members}
    return SyncRequest(joined.member_id, None, joined.generation, None, None, given)


def run(scenario: Callable[[World], Awaitable[None]], options: GroupOptions = OPTIONS) -> None:
    async def main() -> None:
        world = World(options)
        await world.open()
        await scenario(world)
        await world.groups.stop()
        await world.store.close()
        assert not world.fatal

    run_virtually(main)


def state_of(world: World, group: str = "g") -> GroupState | None:
    found = world.groups.describe(group)
    return None if found is None else found.state


# -- stored before told ----------------------------------------------------------------------------


def test_a_generation_and_its_assignment_are_stored_before_they_are_told() -> None:
    async def scenario(world: World) -> None:
        joined = await world.member()
        (row,) = await world.store.load_groups()
        assert (row.state, row.generation) == (GroupState.COMPLETING, joined.generation)
        await world.groups.sync("g", assign(joined))
        (row,) = await world.store.load_groups()
        assert row.state is GroupState.STABLE
        assert row.members[0].assignment == joined.member_id.encode()

    run(scenario)


def test_without_a_store_nobody_is_told_success_and_the_group_recovers() -> None:
    async def scenario(world: World) -> None:
        told = await world.groups.join("g", request())
        world.break_store()
        refused = await world.groups.join("g", request(told.member_id))
        assert refused.refusal is Refusal.COORDINATOR_NOT_AVAILABLE
        with pytest.raises(Unavailable):
            await world.groups.commit("simple", NOBODY, -1, {P0: world.offset(1)})
        world.heal_store()
        again = await world.groups.join("g", request(told.member_id))
        assert (again.refusal, again.generation) == (None, 1), "nothing was told twice"
        assert (await world.groups.sync("g", assign(again))).refusal is None

    run(scenario)


def test_a_stable_group_and_its_offsets_survive_a_restart() -> None:
    async def scenario(world: World) -> None:
        joined = await world.stable()
        identity = Identity(joined.member_id)
        offset = world.offset(5)
        assert await world.groups.commit("g", identity, 1, {P0: offset}) == frozenset()
        await world.restart()
        assert state_of(world) is GroupState.STABLE
        assert world.groups.heartbeat("g", identity, 1) is None
        assert await world.groups.committed("g") == {P0: offset}
        assert await world.groups.commit("g", identity, 1, {P0: world.offset(6)}) == frozenset()
        await asyncio.sleep(SESSION_MS / 1000)
        assert state_of(world) is GroupState.EMPTY, "its session began anew, and is over"

    run(scenario)


def test_groups_that_only_commit_are_known_after_a_restart() -> None:
    async def scenario(world: World) -> None:
        await world.groups.commit("simple", NOBODY, -1, {P0: world.offset(1)})
        await world.restart()
        (found,) = world.groups.list_groups()
        assert (found.group_id, found.state, found.protocol_type) == (
            "simple",
            GroupState.EMPTY,
            "",
        )

    run(scenario)


# -- many at once ----------------------------------------------------------------------------------


def test_commits_that_arrive_together_are_one_transaction() -> None:
    async def scenario(world: World) -> None:
        before = world.groups._writer.transactions
        commits = [
            world.groups.commit(f"g{number}", NOBODY, -1, {P0: world.offset(number)})
            for number in range(1_000)
        ]
        assert set(await asyncio.gather(*commits)) == {frozenset()}
        assert world.groups._writer.transactions - before <= 2
        assert (await world.groups.committed("g999"))[P0].offset == 999

    run(scenario)


def test_a_deleted_topic_fails_only_its_own_commits() -> None:
    async def scenario(world: World) -> None:
        one = world.groups.commit("a", NOBODY, -1, {P0: world.offset(1), GONE: world.offset(1)})
        other = world.groups.commit("b", NOBODY, -1, {P1: world.offset(1)})
        assert await asyncio.gather(one, other) == [{GONE}, frozenset()]

    run(scenario)


def test_one_timer_serves_many_groups() -> None:
    async def scenario(world: World) -> None:
        for number in range(50):
            await world.stable(f"g{number}")
            await asyncio.sleep(0.01)
        assert {group.state for group in world.groups.list_groups()} == {GroupState.STABLE}
        await asyncio.sleep(SESSION_MS / 1000)
        assert {group.state for group in world.groups.list_groups()} == {GroupState.EMPTY}

    run(scenario)


# -- clients that go -------------------------------------------------------------------------------


def test_a_cancelled_join_leaves_nothing_behind() -> None:
    async def scenario(world: World) -> None:
        asked = request(version=3)
        joining = asyncio.create_task(world.groups.join("g", asked))
        await asyncio.sleep(0)
        joining.cancel()
        await asyncio.gather(joining, return_exceptions=True)
        await asyncio.sleep(REBALANCE_MS / 1000)
        assert state_of(world) is GroupState.EMPTY
        assert world.groups._waiting == {}

    run(scenario, replace(OPTIONS, initial_delay_ms=3_000))


def test_an_id_nobody_uses_does_not_make_a_group() -> None:
    async def scenario(world: World) -> None:
        await world.groups.join("g", request())
        assert state_of(world) is GroupState.EMPTY
        await asyncio.sleep(SESSION_MS / 1000)
        assert world.groups.list_groups() == []

    run(scenario)


def test_there_is_room_for_so_many_groups() -> None:
    async def scenario(world: World) -> None:
        await world.groups.commit("a", NOBODY, -1, {P0: world.offset(1)})
        full = Refusal.COORDINATOR_NOT_AVAILABLE
        assert (await world.groups.join("b", request())).refusal is full
        assert await world.groups.commit("b", NOBODY, -1, {P0: world.offset(1)}) is full
        assert await world.groups.commit("a", NOBODY, -1, {P0: world.offset(2)}) == frozenset()

    run(scenario, replace(OPTIONS, groups_max=1))


# -- deletion and retention ------------------------------------------------------------------------


def test_only_an_empty_group_is_deleted_and_for_good() -> None:
    async def scenario(world: World) -> None:
        joined = await world.stable()
        await world.groups.commit("g", Identity(joined.member_id), 1, {P0: world.offset(1)})
        assert await world.groups.delete("g") is Refusal.NON_EMPTY_GROUP
        world.groups.leave("g", [Identity(joined.member_id)])
        assert await world.groups.delete("g") is None
        assert await world.groups.delete("g") is Refusal.GROUP_ID_NOT_FOUND
        await world.restart()
        assert world.groups.list_groups() == []
        assert await world.groups.committed("g") == {}

    run(scenario)


def test_a_group_that_could_not_be_deleted_goes_on() -> None:
    async def scenario(world: World) -> None:
        await world.groups.commit("g", NOBODY, -1, {P0: world.offset(1)})
        world.break_store()
        with pytest.raises(Unavailable):
            await world.groups.delete("g")
        world.heal_store()
        assert await world.groups.commit("g", NOBODY, -1, {P0: world.offset(2)}) == frozenset()
        assert await world.groups.delete("g") is None

    run(scenario)


def test_offsets_are_kept_for_seven_days_after_the_last_member_left() -> None:
    async def scenario(world: World) -> None:
        long_ms = SESSION_TIMEOUT_MS_MAX
        told = await world.groups.join("g", request(session_ms=long_ms))
        joined = await world.groups.join("g", request(told.member_id, session_ms=long_ms))
        await world.groups.sync("g", assign(joined))
        await world.groups.commit("g", Identity(joined.member_id), 1, {P0: world.offset(1)})
        for _ in range(9 * DAY_MS // long_ms):
            # An old commit does not expire while somebody is there.
            await asyncio.sleep(long_ms / 1000 - 1)
            assert world.groups.heartbeat("g", Identity(joined.member_id), 1) is None
        await world.groups.commit("other", NOBODY, -1, {P0: world.offset(1)})
        world.groups.leave("g", [Identity(joined.member_id)])
        await asyncio.sleep(6.9 * DAY_MS / 1000)
        assert [found.group_id for found in world.groups.list_groups()] == ["g", "other"]
        await asyncio.sleep(0.2 * DAY_MS / 1000)
        assert world.groups.list_groups() == []
        assert await world.store.groups_with_offsets() == []
        assert await world.store.load_groups() == []

    run(scenario, replace(OPTIONS, retention_check_ms=3_600_000))


def test_subscribed_offsets_are_not_deleted() -> None:
    async def scenario(world: World) -> None:
        joined = await world.stable()
        offsets = {P0: world.offset(1), P1: world.offset(1)}
        await world.groups.commit("g", Identity(joined.member_id), 1, offsets)
        kept = await world.groups.delete_offsets("g", {P0: "t", P1: "elsewhere"})
        assert kept == {P0}
        assert (await world.groups.committed("g")).keys() == {P0}
        unknown = await world.groups.delete_offsets("nobody", {P0: "t"})
        assert unknown is Refusal.GROUP_ID_NOT_FOUND

    run(scenario)
