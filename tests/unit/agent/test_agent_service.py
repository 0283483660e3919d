"""The agent on real stores in memory: roll, merge, retention, holds, restart, accepted loss."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import pytest

from streamhouse.agent.options import AgentOptions
from streamhouse.agent.service import AgentPorts, AgentService, Partition
from streamhouse.metadata.runner import InlineRunner
from streamhouse.metadata.sqlite import SqliteMetadata
from streamhouse.model.errors import OffsetOutOfRange, StartRefused
from streamhouse.model.records import NewRecord
from streamhouse.model.topic import TopicSpec
from streamhouse.objects.memory import MemoryObjects
from streamhouse.ports.metadata import Hold
from streamhouse.system import SystemIds, ThreadWorkers
from streamhouse.wal.memory_wal import MemoryWal


class HandClock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000


@dataclass
class House:
    """Stores that outlive the agents that use them."""

    metadata: SqliteMetadata
    objects: MemoryObjects
    wal: MemoryWal
    clock: HandClock
    options: AgentOptions
    starts: int = 0

    async def agent(self, **changes: bool) -> AgentService:
        self.starts += 1
        options = replace(self.options, incarnation=f"run-{self.starts}", **changes)
        ports = AgentPorts(
            self.metadata, self.objects, self.wal, ThreadWorkers(), self.clock, SystemIds()
        )

        def fatal(error: BaseException) -> None:
            raise AssertionError("the agent gave up") from error

        agent = AgentService(ports, options, fatal)
        await agent.start()
        return agent

    async def killed(self, **changes: bool) -> AgentService:
        """kill -9, then a new process."""
        self.wal = self.wal.reopened()
        return await self.agent(**changes)


def run(test: Callable[[House], Awaitable[None]]) -> None:
    async def main() -> None:
        options = AgentOptions("agent-1", "", merge_segments_min=2)
        metadata = await SqliteMetadata.open(":memory:", ids=SystemIds(), run=InlineRunner())
        await test(House(metadata, MemoryObjects(), MemoryWal(), HandClock(), options))

    asyncio.run(main())


async def topic(agent: AgentService, **config: str) -> Partition:
    spec = TopicSpec("t", 1, {name.replace("_", "."): value for name, value in config.items()})
    await agent.create_topic(spec)
    return agent.catalog.partition("t", 0)


async def write(agent: AgentService, *values: bytes) -> None:
    for value in values:
        await agent.produce_records("t", [(0, NewRecord(None, value, (), 5))])


async def values_from(agent: AgentService, offset: int = 0) -> list[tuple[int, bytes | None]]:
    found = await agent.consume_records("t", 0, offset, records_max=100, wait_ms=0)
    return [(record.offset, record.value) for record in found.records]


def test_sh_54_sh_75_records_are_readable_before_and_after_the_roll() -> None:
    async def test(house: House) -> None:
        agent = await house.agent()
        partition = await topic(agent)
        await write(agent, b"a", b"b")
        expected = [(0, b"a"), (1, b"b")]
        assert await values_from(agent) == expected
        assert await agent.roller.roll(partition)
        assert await values_from(agent) == expected
        again = await house.killed()
        assert await values_from(again) == expected
        assert again.catalog.partition("t", 0).machine.segments_end == 2

    run(test)


def test_sh_56_sh_94_a_restart_gives_the_same_offsets_whether_trimmed_or_not() -> None:
    """Goal: records that are in a segment and still in the WAL appear once."""

    async def test(house: House) -> None:
        agent = await house.agent()
        partition = await topic(agent)
        await write(agent, b"a", b"b")
        await agent.roller.roll(partition)  # registered, but the WAL is not trimmed
        await write(agent, b"c")
        expected = [(0, b"a"), (1, b"b"), (2, b"c")]
        again = await house.killed()
        assert await values_from(again) == expected
        await again.trim()
        third = await house.killed()
        assert await values_from(third) == expected
        assert third.catalog.partition("t", 0).machine.epoch == 3

    run(test)


def test_merged_segments_hold_the_same_records() -> None:
    async def test(house: House) -> None:
        agent = await house.agent()
        partition = await topic(agent)
        for number in range(4):
            await write(agent, b"%d" % number)
            await agent.roller.roll(partition)
        assert await agent.merger.merge(partition)
        assert [(s.base, s.end, s.generation) for s in partition.segments] == [(0, 3, 1), (3, 4, 0)]
        again = await house.killed()
        assert await values_from(again) == [(n, b"%d" % n) for n in range(4)]

    run(test)


def test_retention_waits_for_a_named_hold() -> None:
    async def test(house: House) -> None:
        agent = await house.agent()
        partition = await topic(agent, retention_ms="1000")
        for value in (b"a", b"b", b"c"):
            await write(agent, value)
            await agent.roller.roll(partition)
        house.clock.ms += 5_000
        hold = Hold("backfill", partition.tp, 1, expires_ms=house.clock.ms + 1_000)
        await house.metadata.set_hold(hold, house.clock.ms)
        await agent.read_holds()
        await agent.retain(partition)
        assert partition.machine.log_start == 1
        house.clock.ms += 5_000
        await agent.read_holds()
        await agent.retain(partition)
        assert partition.machine.log_start == 3
        with pytest.raises(OffsetOutOfRange):
            await values_from(agent, 2)

    run(test)


def test_deleted_records_stay_deleted_after_a_restart() -> None:
    async def test(house: House) -> None:
        agent = await house.agent()
        partition = await topic(agent)
        await write(agent, b"a", b"b", b"c")
        assert await agent.delete_records(partition, 2) == 2
        again = await house.killed()
        assert again.catalog.partition("t", 0).machine.log_start == 2
        assert await values_from(again, 2) == [(2, b"c")]

    run(test)


def test_accepted_loss_is_a_gap_that_later_starts_know() -> None:
    """Goal: --accept-wal-loss is needed once; offsets are not given out again."""

    async def test(house: House) -> None:
        agent = await house.agent()
        await topic(agent)
        await write(agent, b"a", b"b", b"c")
        house.wal.forget(2)  # the entry of offset 1 is gone
        with pytest.raises(StartRefused, match="accept-wal-loss"):
            await house.killed()
        again = await house.killed(accept_wal_loss=True)
        assert await values_from(again) == [(0, b"a"), (2, b"c")]
        assert await values_from(again, 1) == [(2, b"c")]
        await write(again, b"d")
        third = await house.killed()
        assert await values_from(third) == [(0, b"a"), (2, b"c"), (3, b"d")]

    run(test)


def test_a_lost_end_of_the_log_is_not_written_again() -> None:
    async def test(house: House) -> None:
        agent = await house.agent()
        partition = await topic(agent)
        await write(agent, b"a", b"b", b"c")
        await agent.delete_records(partition, 2)  # stores a watermark of 2
        for sequence in (1, 2, 3):
            house.wal.forget(sequence)
        with pytest.raises(StartRefused, match="accept-wal-loss"):
            await house.killed()
        again = await house.killed(accept_wal_loss=True)
        await write(again, b"d")
        assert await values_from(again, 2) == [(2, b"d")]
        third = await house.killed()
        assert await values_from(third, 2) == [(2, b"d")]

    run(test)
