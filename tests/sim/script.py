"""The story every world tells: faults while everybody works, then healing, then the last audit."""

import asyncio
from dataclasses import dataclass

from streamhouse.agent.service import AgentService
from streamhouse.metadata import sqlite_topics
from streamhouse.model.errors import Invalid, OffsetOutOfRange
from streamhouse.model.ids import ObjectKey, TopicPartition
from streamhouse.model.keys import parse_manifest_key, parse_segment_key, topic_key
from tests.sim.actors import Administrator, Scene, Storm, cast, find, positions
from tests.sim.checkers import Violation
from tests.sim.loop import Deadlock, run_virtually
from tests.sim.plan import draw_plan, small_limits
from tests.sim.process import Process
from tests.sim.world import World

HEALED_S_MAX = 60.0
SWEEPS_MAX = 12
MANIFESTS_LEFT_MAX = 4  # per partition: the newest, those kept for slow readers, one on its way
ACKS_MIN = 10
READS_MIN = 5


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a seed gave."""

    seed: int
    digest: str
    violation: str | None
    tail: tuple[str, ...]
    counts: dict[str, int]
    virtual_s: float


def run_seed(seed: int, show_trace: bool = False) -> Outcome:
    plan = draw_plan(seed)

    async def play() -> Outcome:
        world = World(plan, _show if show_trace else None)
        await world.run(story)
        violation = None if world.violation is None else str(world.violation)
        now_s = asyncio.get_running_loop().time()
        trace = world.trace
        return Outcome(seed, trace.digest, violation, tuple(trace.tail), dict(trace.counts), now_s)

    try:
        with small_limits(plan):
            return run_virtually(play)
    except Deadlock as error:
        return Outcome(seed, "", f"deadlock: {error}", (), {}, 0.0)


def _show(line: str) -> None:
    print(line)


async def story(world: World) -> None:
    scene = Scene()
    administrator = Administrator(world, scene)
    await administrator.set_up()
    cast(world, scene)
    world.spawn(administrator.run())
    await Storm(world).run(world.plan.stormy_s)
    world.heal()
    await world.serving()
    await asyncio.sleep(2.0)  # a little work under a clear sky
    scene.sending = False
    await _until_quiet(world, scene)
    await _until_swept(world)
    await audit(world)
    await (await world.serving()).stop()
    await audit(world)
    scene.stopping = True
    counts = world.trace.counts
    if counts["acks"] < ACKS_MIN or counts["reads"] < READS_MIN:
        raise Violation("activity", f"hardly anything happened: {dict(counts)}")


async def _until_quiet(world: World, scene: Scene) -> None:
    """Everything is acknowledged, rolled, and let go by the WAL."""
    deadline_s = world.clock.monotonic() + HEALED_S_MAX
    while True:
        process = await world.serving()
        waiting = _unfinished(world, scene, process)
        if waiting is None:
            return
        if world.clock.monotonic() > deadline_s:
            raise Violation("18 liveness", f"{HEALED_S_MAX} s after healing: {waiting}")
        await asyncio.sleep(0.25)


def _unfinished(world: World, scene: Scene, process: Process) -> str | None:
    service, wal = process.service, process.wal
    if scene.unsent:
        return f"{scene.unsent} batches are not acknowledged"
    if wal.queued_bytes:
        return f"{wal.queued_bytes} bytes are queued for the WAL"
    stored = [topic.topic_id for topic in sqlite_topics.list_topics(world.db)]
    led = [topic.topic_id for topic in service.catalog.topics()]
    if stored != led:
        return f"topics {stored} are stored, {led} are led"
    for tp, partition in service.catalog.partitions.items():
        machine = partition.machine
        if machine.segments_end < machine.high_watermark:
            return f"{tp} is rolled to {machine.segments_end} of {machine.high_watermark}"
        if partition.manifest_written < partition.manifest_version:
            return f"{tp} has an old manifest"
    if len(wal._files) > 2:  # telling the disk what was freed may have taken a new file
        return f"{len(wal._files)} WAL files are live"
    if sqlite_topics.deleted_topics(world.db, 1):
        return "a deleted topic is not removed yet"
    return None


async def _until_swept(world: World) -> None:
    """Looks a grace period apart leave no object that nothing refers to."""
    process = await world.serving()
    grace_s = world.plan.delete_grace_ms / 1000
    left: list[ObjectKey] = []
    for _ in range(SWEEPS_MAX):
        await process.call(lambda service: service.janitor.sweep_orphans())
        left = [key for key in world.bucket_content if not _is_expected(world, process, key)]
        if not left:
            return
        await asyncio.sleep(grace_s + 0.1)
    raise Violation("18 liveness", f"{len(left)} orphans are left: {sorted(left)[:3]}")


def _is_expected(world: World, process: Process, key: ObjectKey) -> bool:
    if key in world.objects.live:
        return True
    topics = process.service.catalog.topics()
    if key in [topic_key(topic.topic_id) for topic in topics]:
        return True
    retired = world.db.execute("SELECT 1 FROM retired_objects WHERE key = ?", (key,)).fetchone()
    try:
        tp, version = parse_manifest_key(key)
    except Invalid:
        try:
            known = parse_segment_key(key).tp in process.service.catalog.partitions
        except Invalid:
            return False
        return known and retired is not None
    partition = process.service.catalog.partitions.get(tp)
    return partition is not None and version > partition.manifest_written - MANIFESTS_LEFT_MAX


async def audit(world: World) -> None:
    """Read every log from its start to its end, through the broker and from the bucket alone."""
    world.check_bounds()
    world.check_bucket()
    process = await world.serving()
    world.check_topics(process)
    for tp in list(process.service.catalog.partitions):
        await process.call(lambda service, tp=tp: _read_all(world, service, tp))  # type: ignore[misc]


async def _read_all(world: World, service: AgentService, tp: TopicPartition) -> None:
    partition = find(service, tp)
    positions(world, partition)
    machine = partition.machine
    log_start = offset = machine.log_start
    while offset < machine.high_watermark:
        hw = machine.high_watermark
        try:
            buffers = await service.read(partition, offset, bytes_max=50_000)
        except OffsetOutOfRange as error:  # retention does not wait for us
            world.checker.on_out_of_range(tp, error, hw)
            positions(world, partition)
            log_start = offset = max(offset, error.log_start)
            continue
        offset = world.checker.on_read(tp, offset, buffers, hw, hw)
    world.checker.check_complete(tp, log_start, machine.high_watermark, offset)
    for epoch in range(machine.epoch + 1):
        world.checker.on_end_of_epoch(tp, epoch, machine.end_of_epoch(epoch))
