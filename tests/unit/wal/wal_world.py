"""What the WAL tests share: entries, a listener, and opening a WAL on some disk."""

import asyncio
import random
from collections.abc import Coroutine
from typing import Any, TypeVar
from uuid import UUID

from streamhouse.model.ids import TopicId, TopicPartition
from streamhouse.ports.disk import Disk
from streamhouse.ports.wal import Wal, WalEntry, WalEvents
from streamhouse.wal.file_wal import FileWal
from streamhouse.wal.recovery import WalOptions
from tests.sim.disk import SimDisk

T = TypeVar("T")

SMALL = WalOptions(
    file_bytes=64 * 1024, bytes_max=4 * 64 * 1024, group_bytes_max=16 * 1024, spare_files_max=2
)


class SeededIds:
    """Implements ports.clock.Ids."""

    def __init__(self, seed: int = 0) -> None:
        self._chance = random.Random(seed)

    def nonce(self) -> str:
        return self._chance.randbytes(8).hex()

    def uuid(self) -> bytes:
        return self._chance.randbytes(16)


class Heard:
    """Collects what the WAL tells its owner."""

    def __init__(self) -> None:
        self.durable = 0
        self.calls: list[int] = []
        self.failures: list[BaseException] = []
        self._changed = asyncio.Event()

    def events(self) -> WalEvents:
        return WalEvents(on_durable=self._on_durable, on_failed=self._on_failed)

    async def until(self, sequence: int) -> None:
        while self.durable < sequence and not self.failures:
            self._changed.clear()
            await self._changed.wait()

    def _on_durable(self, sequence: int) -> None:
        assert sequence > self.durable, "durable numbers rise"
        assert not self.failures, "nothing is durable after a failure"
        self.durable = sequence
        self.calls.append(sequence)
        self._changed.set()

    def _on_failed(self, error: BaseException) -> None:
        self.failures.append(error)
        self._changed.set()


_TOPIC = TopicId(UUID(int=7))


def tp(number: int) -> TopicPartition:
    return TopicPartition(_TOPIC, number)


def entry(number: int, size: int = 100, *, partition: int = 0, acks: int = -1) -> WalEntry:
    """Entry `number` of a partition: one record at that offset, with bytes only it has."""
    body = random.Random(number * 1000 + partition).randbytes(size)
    return WalEntry(tp(partition), 3, number, number + 1, acks, body)


def plain(found: WalEntry) -> WalEntry:
    return found._replace(body=bytes(found.body))


def sim_disk(seed: int = 0) -> SimDisk:
    return SimDisk(random.Random(seed))


def file_wal(disk: Disk, options: WalOptions = SMALL) -> FileWal:
    return FileWal(disk, SeededIds(), options)


async def replayed(wal: Wal) -> list[tuple[int, WalEntry]]:
    return [(sequence, plain(found)) async for sequence, found in wal.replay()]


async def started(wal: Wal) -> Heard:
    heard = Heard()
    await wal.start(heard.events())
    return heard


async def append_each(wal: Wal, heard: Heard, entries: list[WalEntry]) -> list[int]:
    """Append one by one, each durable before the next: one group per entry."""
    sequences = []
    for one in entries:
        sequences.append(wal.append(one))
        await heard.until(sequences[-1])
    return sequences


async def ticks(count: int = 20) -> None:
    """Let everything that is ready run."""
    for _ in range(count):
        await asyncio.sleep(0)


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)
