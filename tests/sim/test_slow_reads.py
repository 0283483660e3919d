"""A read that outlasts its segment: merged, named by no manifest, deleted, and still no gap.

Rare in random worlds, because so much has to happen while one read waits; here it is arranged.
"""

import asyncio
from dataclasses import replace

import pytest

from streamhouse.agent.service import AgentService
from streamhouse.model.ids import TopicPartition
from streamhouse.model.topic import TopicSpec
from tests.sim.actors import BatchMaker, find, send
from tests.sim.loop import run_virtually
from tests.sim.plan import Plan, draw_plan, small_limits
from tests.sim.process import Process
from tests.sim.world import World

SEGMENTS = 8
GRACE_MS = 500


def plan_of_many_merges() -> Plan:
    return replace(
        draw_plan(0),
        batch_bytes_max=300,
        segment_max_age_ms=100,
        tail_bytes_max=1,
        cache_bytes_max=1,
        merge_segments_min=4,
        merge_bytes_small=64 * 1024,
        segment_bytes_max=1024 * 1024,
        retention_check_ms=200,
        manifest_ms=200,
        delete_grace_ms=GRACE_MS,
        crash_steps_mean=0,
    )


async def story(world: World) -> None:
    process = await world.serving()
    topic = await process.call(lambda service: service.create_topic(TopicSpec("t", 1)))
    tp = TopicPartition(topic.topic_id, 0)
    maker = BatchMaker(world, "p")
    for _ in range(SEGMENTS):
        await send(world, process, maker.make(tp, topic), -1)
        await asyncio.sleep(0.5)
    # From now on a read begins with a look at the segments, and gets its bytes much later.
    world.weather.slow_read_s = 20.0
    reads = [asyncio.ensure_future(read_at(world, process, tp, n)) for n in range(4 * SEGMENTS)]
    for _ in range(SEGMENTS):
        await send(world, process, maker.make(tp, topic), -1)
        await asyncio.sleep(0.5)
    await asyncio.gather(*reads)


async def read_at(world: World, process: Process, tp: TopicPartition, number: int) -> None:
    async def handle(service: AgentService) -> None:
        partition = find(service, tp)
        hw = partition.machine.high_watermark
        offset = number % hw
        buffers = await service.read(partition, offset, bytes_max=10_000)
        world.checker.on_read(tp, offset, buffers, partition.machine.high_watermark, hw)

    await asyncio.sleep(number * 0.1)
    await process.call(handle)
    world.count("reads")


@pytest.mark.sim
def test_a_slow_read_survives_merge_and_deletion_of_what_it_reads() -> None:
    plan = plan_of_many_merges()

    async def play() -> World:
        world = World(plan)
        await world.run(story)
        return world

    with small_limits(plan):
        world = run_virtually(play)
    assert world.violation is None
    assert world.trace.counts["merges"] > 0
    assert world.trace.counts["reads"] == 4 * SEGMENTS
    assert world.trace.counts["gets of deleted objects"] > 0, "no read met a deleted object"
