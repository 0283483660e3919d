"""Growth and changed settings on the agent: at once, together, and after lost answers."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random

import pytest

from streamhouse.agent.options import AgentOptions
from streamhouse.agent.service import AgentPorts, AgentService
from streamhouse.metadata.runner import FaultyRunner, ThreadRunner
from streamhouse.metadata.sqlite import SqliteMetadata
from streamhouse.model.errors import NotFound, OutcomeUnknown
from streamhouse.model.records import NewRecord
from streamhouse.model.topic import InvalidPartitionCount, Topic, TopicSpec
from streamhouse.objects.faulty import FaultRates, Faults
from streamhouse.objects.memory import MemoryObjects
from streamhouse.system import SystemClock, SystemIds, ThreadWorkers
from streamhouse.wal.memory_wal import MemoryWal


@dataclass
class World:
    agent: AgentService
    objects: MemoryObjects
    faults: Faults

    @property
    def topic(self) -> Topic:
        return self.agent.catalog.topic("t")


def run(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        faults = Faults(Random(1), asyncio.sleep)
        runner = FaultyRunner(ThreadRunner(), faults)
        metadata = await SqliteMetadata.open(":memory:", ids=SystemIds(), run=runner)
        objects, workers = MemoryObjects(), ThreadWorkers()
        ports = AgentPorts(metadata, objects, MemoryWal(), workers, SystemClock(), SystemIds())
        # Upkeep would reconcile by itself; here the test does, when it has looked.
        options = AgentOptions("agent-1", "run-1", maintenance_interval_ms=3_600_000)
        failures: list[BaseException] = []
        agent = AgentService(ports, options, failures.append)
        await agent.start()
        await agent.create_topic(TopicSpec("t", 2))
        await scenario(World(agent, objects, faults))
        await agent.stop()
        await metadata.close()
        workers.close()
        assert failures == []

    asyncio.run(main())


async def write(agent: AgentService, partition: int) -> int:
    (place,) = await agent.produce_records("t", [(partition, NewRecord(None, b"x"))])
    return place.offset


def test_growing_keeps_what_is_there_and_leads_what_is_new() -> None:
    async def scenario(world: World) -> None:
        agent = world.agent
        await write(agent, 1)
        before = agent.catalog.partition("t", 1)
        grown = await agent.grow_topic(world.topic, 4)
        assert grown.partition_count == world.topic.partition_count == 4
        assert agent.catalog.partition("t", 1) is before
        assert [await write(agent, n) for n in range(4)] == [0, 1, 0, 0]
        with pytest.raises(InvalidPartitionCount):
            await agent.grow_topic(world.topic, 3)

    run(scenario)


def test_growth_and_settings_changed_at_once_all_happen() -> None:
    """Goal: answers that cross do not undo each other."""

    async def scenario(world: World) -> None:
        agent, topic = world.agent, world.topic
        await asyncio.gather(
            agent.grow_topic(topic, 4),
            agent.change_topic_config(topic, {"retention.ms": "5"}),
            agent.grow_topic(topic, 6),
            agent.change_topic_config(topic, {"max.message.bytes": "777"}),
            agent.change_topic_config(topic, {"segment.ms": "9"}),
        )
        assert world.topic.partition_count == 6
        expected = {"retention.ms": "5", "max.message.bytes": "777", "segment.ms": "9"}
        assert dict(world.topic.config) == expected
        for number in range(6):
            partition = agent.catalog.partition("t", number)
            assert partition.topic is world.topic
            assert partition.topic.settings.max_message_bytes == 777
            await write(agent, number)

    run(scenario)


def test_a_growth_whose_answer_was_lost_is_found_later() -> None:
    async def scenario(world: World) -> None:
        agent = world.agent
        world.faults.rates = FaultRates(answer_lost=1.0)
        with pytest.raises(OutcomeUnknown):
            await agent.grow_topic(world.topic, 3)
        assert world.topic.partition_count == 2
        world.faults.rates = FaultRates()
        assert await agent.reconcile_catalog()
        assert world.topic.partition_count == 3
        assert await write(agent, 2) == 0

    run(scenario)


def test_settings_whose_answer_was_lost_are_found_later() -> None:
    async def scenario(world: World) -> None:
        agent = world.agent
        world.faults.rates = FaultRates(answer_lost=1.0)
        with pytest.raises(OutcomeUnknown):
            await agent.change_topic_config(world.topic, {"max.message.bytes": "777"})
        world.faults.rates = FaultRates()
        assert await agent.reconcile_catalog()
        assert agent.catalog.partition("t", 1).topic.settings.max_message_bytes == 777

    run(scenario)


def test_a_deleted_topic_does_not_come_back_with_new_settings() -> None:
    async def scenario(world: World) -> None:
        agent, topic = world.agent, world.topic
        results = await asyncio.gather(
            agent.change_topic_config(topic, {"retention.ms": "5"}),
            agent.grow_topic(topic, 5),
            agent.delete_topic(topic.topic_id),
            return_exceptions=True,
        )
        assert all(isinstance(r, NotFound | Topic | None) for r in results), results
        assert agent.catalog.topics() == []
        assert agent.catalog.partitions == {}

    run(scenario)


def test_defaults_reach_topics_without_a_setting_of_their_own() -> None:
    async def scenario(world: World) -> None:
        agent = world.agent
        await agent.create_topic(TopicSpec("own", 1, {"retention.ms": "7"}))
        agent.set_topic_defaults({"retention.ms": "9", "segment.bytes": "2048"})
        await agent.create_topic(TopicSpec("later", 1))
        settings = {t.name: t.settings for t in agent.catalog.topics()}
        assert [settings[n].retention_ms for n in ("t", "own", "later")] == [9, 7, 9]
        assert agent.catalog.partition("t", 0).topic.settings.segment_bytes == 2048
        agent.set_topic_defaults({})
        assert world.topic.settings.retention_ms == 604_800_000
        assert world.topic.settings.segment_bytes is None

    run(scenario)
