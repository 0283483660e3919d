"""A WAL in memory, for tests of what stands on it. Survives `reopened`, not the process."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

from streamhouse.model.errors import NotFound, Unavailable
from streamhouse.model.ids import TopicPartition
from streamhouse.model.limits import WAL_BYTES_MAX
from streamhouse.ports.wal import WalEntry, WalEvents


class MemoryWal:
    """Implements ports.wal.Wal. Entries become durable in a later turn of the event loop.

    `hold` keeps them from it until `release`, so that a test can stand in between.
    """

    def __init__(self, wal_id: str = "0" * 32, bytes_max: int = WAL_BYTES_MAX) -> None:
        self._wal_id = wal_id
        self._bytes_max = bytes_max
        self._kept: dict[int, WalEntry] = {}  # ascending
        self._kept_bytes = 0
        self._queue: list[WalEntry] = []
        self._queued_bytes = 0
        self._durable = 0
        self._events: WalEvents | None = None
        self._scheduled = False
        self._held = False
        self._stopped = False

    @property
    def wal_id(self) -> str:
        return self._wal_id

    @property
    def queued_bytes(self) -> int:
        return self._queued_bytes

    @property
    def room_bytes(self) -> int:
        return 0 if self._stopped else self._bytes_max - self._kept_bytes - self._queued_bytes

    @property
    def is_low(self) -> bool:
        return self.room_bytes < self._bytes_max // 4

    async def open(self) -> None:
        """Nothing to find."""

    def reopened(self) -> "MemoryWal":
        """As after kill -9 and restart: what was durable is there, what was queued is gone."""
        self._stopped = True
        again = MemoryWal(self._wal_id, self._bytes_max)
        again._kept = dict(self._kept)
        again._kept_bytes = self._kept_bytes
        again._durable = self._durable
        return again

    def hold(self) -> None:
        self._held = True

    def release(self) -> None:
        self._held = False
        self._schedule()

    def fail(self, error: OSError) -> None:
        """A write failed: nothing queued becomes durable any more."""
        assert self._events is not None
        self._stopped = True
        self._events.on_failed(error)

    def forget(self, sequence: int) -> None:
        """As if the disk had lost this entry."""
        self._kept_bytes -= len(self._kept.pop(sequence).body)

    async def replay(self) -> AsyncIterator[tuple[int, WalEntry]]:
        for sequence, entry in list(self._kept.items()):
            yield sequence, entry

    async def start(self, events: WalEvents) -> None:
        assert self._events is None, "start runs once"
        self._events = events

    def append(self, entry: WalEntry) -> int:
        assert self._events is not None
        if len(entry.body) > self.room_bytes:
            raise Unavailable("no room in the write-ahead log")
        self._queue.append(entry)
        self._queued_bytes += len(entry.body)
        self._schedule()
        return self._durable + len(self._queue)

    async def read(self, sequence: int) -> bytes:
        entry = self._kept.get(sequence)
        if entry is None:
            raise NotFound(f"WAL entry {sequence} was trimmed or is not durable")
        return bytes(entry.body)

    async def read_many(self, sequences: Sequence[int]) -> list[bytes]:
        return [await self.read(sequence) for sequence in sequences]

    async def trim(self, segments_end: Mapping[TopicPartition, int]) -> None:
        for sequence, entry in list(self._kept.items()):
            if entry.end > segments_end.get(entry.tp, entry.end):
                return
            del self._kept[sequence]
            self._kept_bytes -= len(entry.body)

    def oldest(self) -> frozenset[TopicPartition]:
        first = next(iter(self._kept.values()), None)
        return frozenset() if first is None else frozenset({first.tp})

    async def close(self) -> None:
        self._held = False
        self._flush()
        self._stopped = True

    def _schedule(self) -> None:
        if not self._scheduled and not self._held and self._queue:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        if self._stopped or self._held or not self._queue:
            return
        for entry in self._queue:
            self._durable += 1
            self._kept[self._durable] = entry
        self._kept_bytes += self._queued_bytes
        self._queue, self._queued_bytes = [], 0
        assert self._events is not None
        self._events.on_durable(self._durable)
