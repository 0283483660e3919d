"""Random lives of a WAL on a disk that loses and tears what was not synced."""

import asyncio
import random
from dataclasses import dataclass, field

import pytest

from streamhouse.model.errors import Unavailable
from streamhouse.ports.wal import WalEntry
from streamhouse.wal.file_wal import FileWal
from streamhouse.wal.recovery import WalOptions
from tests.sim.disk import SimDisk
from tests.unit.wal.wal_world import Heard, file_wal, plain, run, tp

SEEDS = 300
LIVES = 6
OPTIONS = WalOptions(
    file_bytes=16 * 1024,
    bytes_max=5 * 16 * 1024,
    group_bytes_max=4096,
    batch_max_age_ms=0,
    spare_files_max=2,
)


@dataclass
class World:
    chance: random.Random
    disk: SimDisk
    appended: dict[int, WalEntry] = field(default_factory=dict)
    promised: int = 0  # every entry up to here was reported durable, or served after a restart
    segments_end: dict[int, int] = field(default_factory=dict)
    offset: int = 0
    trace: list[object] = field(default_factory=list)


async def _dawdle(chance: random.Random) -> None:
    for _ in range(chance.choice((0, 0, 1, 3))):
        await asyncio.sleep(0)


async def _live(world: World, wal: FileWal) -> None:
    """One life: recover, check, then append and trim until something ends it."""
    found = [(sequence, plain(one)) async for sequence, one in wal.replay()]
    _check_replay(world, found)
    heard = Heard()
    await wal.start(heard.events())
    world.promised = max(world.promised, found[-1][0] if found else 0)
    while True:
        await _dawdle(world.chance)
        if world.chance.random() < 0.1:
            await wal.trim({tp(p): end for p, end in world.segments_end.items()})
        if world.chance.random() < 0.15:
            _roll(world)
        if world.chance.random() < 0.8:
            _append(world, wal)
        world.promised = max(world.promised, heard.durable)


def _append(world: World, wal: FileWal) -> None:
    partition = world.chance.randrange(3)
    size = world.chance.choice((0, 10, 344, 388, 900, 3000))  # 388: records that fill sectors
    body = world.chance.randbytes(size)
    one = WalEntry(tp(partition), 1, world.offset, world.offset + 1, 1, body)
    try:
        sequence = wal.append(one)
    except Unavailable:
        return
    world.appended[sequence] = one
    world.offset += 1


def _roll(world: World) -> None:
    """Durable entries of a partition reach segments."""
    partition = world.chance.randrange(3)
    end = world.segments_end.get(partition, 0)
    for sequence in range(world.promised, 0, -1):
        one = world.appended[sequence]
        if one.tp.partition == partition:
            end = max(end, one.end)
            break
    world.segments_end[partition] = end


def _check_replay(world: World, found: list[tuple[int, WalEntry]]) -> None:
    sequences = [sequence for sequence, _ in found]
    assert sequences == list(range(sequences[0], sequences[-1] + 1)) if sequences else True
    for sequence, one in found:
        assert one == world.appended[sequence], f"entry {sequence} is not what was appended"
    present = set(sequences)
    for sequence in range(1, world.promised + 1):
        one = world.appended[sequence]
        stored = one.end <= world.segments_end.get(one.tp.partition, 0)
        assert sequence in present or stored, f"durable entry {sequence} is lost"
    last = max(world.promised, sequences[-1] if sequences else 0)
    world.appended = {s: e for s, e in world.appended.items() if s <= last}
    world.trace.append(tuple(sequences))


async def _history(seed: int) -> list[object]:
    chance = random.Random(seed)
    world = World(chance, SimDisk(chance))

    async def sleep(_operation: str) -> None:
        await _dawdle(chance)

    world.disk.faults.sleep = sleep
    for _ in range(LIVES):
        world.segments_end = {p: world.segments_end.get(p, 0) for p in range(3)}
        wal = file_wal(world.disk, OPTIONS)
        life = asyncio.create_task(_live(world, wal))
        for _ in range(chance.randrange(400)):
            await asyncio.sleep(0)
            if life.done():
                break
        (world.disk.crash if chance.random() < 0.6 else world.disk.kill)()
        if life.done():
            life.result()
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)
        await wal.close()
    world.disk.faults.sleep = None
    final = file_wal(world.disk, OPTIONS)
    _check_replay(world, [(sequence, plain(one)) async for sequence, one in final.replay()])
    # A crash adds at most one file beyond the bound; here every life ends in one.
    assert len(await world.disk.list_files()) <= OPTIONS.files_max + LIVES
    return world.trace


@pytest.mark.parametrize("block", range(0, SEEDS, 50))
def test_every_durable_entry_is_replayed_once_with_its_bytes(block: int) -> None:
    """SH-55, SH-56, invariant 15: whatever was torn, lost or interrupted, recovery included."""
    entries = 0
    for seed in range(block, block + 50):
        try:
            trace = run(_history(seed))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        entries += sum(len(found) for found in trace if isinstance(found, tuple))
    assert entries > 1000, "the histories hardly wrote anything"


def test_one_seed_gives_one_history() -> None:
    assert run(_history(7)) == run(_history(7))
