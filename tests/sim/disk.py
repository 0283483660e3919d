"""A disk in memory that knows what is synced and what is not, with faults on demand.

What a process reads is the page cache: all writes so far. What survives `crash` is what was synced,
and of every other write any choice of its 512-byte sectors. `kill` ends only the process: the page
cache stays, synced or not, and may still be lost by a later `crash`.
"""

import errno
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from streamhouse.ports.disk import Buffer

SECTOR_BYTES = 512


@dataclass(slots=True)
class DiskFaults:
    """Hooks; each may be set and cleared while the world runs."""

    sleep: Callable[[str], Awaitable[None]] | None = None  # awaited with the operation's name
    write_error: OSError | None = None  # the fdatasync fails; the bytes may or may not be there
    create_error: OSError | None = None

    def fill_disk(self) -> None:
        self.create_error = OSError(errno.ENOSPC, "No space left on device")


@dataclass(slots=True, eq=False)
class _Unsynced:
    name: str
    at: int
    data: bytes


class SimDisk:
    """Implements ports.disk.Disk."""

    def __init__(self, chance: random.Random, faults: DiskFaults | None = None) -> None:
        self._chance = chance
        self._cached: dict[str, bytearray] = {}
        self._synced: dict[str, bytearray] = {}
        self._unsynced: list[_Unsynced] = []
        self._life = 0
        self.faults = faults or DiskFaults()
        self.syncs = 0

    async def list_files(self) -> list[str]:
        return sorted(self._cached)

    async def size(self, name: str) -> int:
        return len(self._file(name))

    async def create_zeroed(self, name: str, size: int) -> None:
        if name in self._cached:
            raise FileExistsError(errno.EEXIST, "File exists", name)
        life = self._life
        await self._pause("create_zeroed")
        if self.faults.create_error is not None:
            raise self.faults.create_error
        self._check_alive(life)
        self._cached[name] = bytearray(size)
        self._synced[name] = bytearray(size)

    async def write_synced(self, name: str, at: int, buffers: Sequence[Buffer]) -> None:
        life = self._life
        await self._pause("write")
        self._check_alive(life)
        file = self._file(name)
        data = b"".join(buffers)
        if at + len(data) > len(file):
            raise OSError(errno.EFBIG, "a write would extend the file", name)
        file[at : at + len(data)] = data
        write = _Unsynced(name, at, data)
        self._unsynced.append(write)
        await self._pause("sync")
        self._check_alive(life)
        if self.faults.write_error is not None:
            raise self.faults.write_error
        self._unsynced.remove(write)
        self._unsynced = [left for one in self._unsynced for left in _outside(one, write)]
        self._synced[name][at : at + len(data)] = data
        self.syncs += 1

    async def read(self, name: str, at: int, length: int) -> bytes:
        life = self._life
        await self._pause("read")
        self._check_alive(life)
        return bytes(memoryview(self._file(name))[at : at + length])

    async def delete(self, name: str) -> None:
        life = self._life
        await self._pause("delete")
        self._check_alive(life)
        self._file(name)
        del self._cached[name], self._synced[name]
        self._unsynced = [write for write in self._unsynced if write.name != name]

    def kill(self) -> None:
        """The process ends; calls it had under way have no further effect."""
        self._life += 1

    def crash(self) -> None:
        """Power fails: each unsynced write is kept, lost or torn."""
        self._life += 1
        for write in self._unsynced:
            self._settle(write)
        self._unsynced = []
        self._cached = {name: bytearray(data) for name, data in self._synced.items()}

    def peek(self, name: str) -> bytes:
        """The file as a process would read it."""
        return bytes(self._file(name))

    def poke(self, name: str, at: int, data: bytes) -> None:
        """Damage: change synced bytes behind everyone's back."""
        for file in (self._cached[name], self._synced[name]):
            assert at + len(data) <= len(file)
            file[at : at + len(data)] = data

    def lose_file(self, name: str) -> None:
        del self._cached[name], self._synced[name]

    def shorten(self, name: str, size: int) -> None:
        del self._cached[name][size:], self._synced[name][size:]

    def copy(self) -> "SimDisk":
        """Another disk with the same synced bytes."""
        twin = SimDisk(self._chance)
        twin._cached = {name: bytearray(data) for name, data in self._synced.items()}
        twin._synced = {name: bytearray(data) for name, data in self._synced.items()}
        return twin

    def _settle(self, write: _Unsynced) -> None:
        fate = self._chance.choice(("kept", "lost", "torn"))
        synced = self._synced[write.name]
        stop = write.at + len(write.data)
        at = write.at
        while at < stop:
            sector_end = min(stop, (at // SECTOR_BYTES + 1) * SECTOR_BYTES)
            if fate == "kept" or (fate == "torn" and self._chance.random() < 0.5):
                synced[at:sector_end] = write.data[at - write.at : sector_end - write.at]
            at = sector_end

    def _file(self, name: str) -> bytearray:
        try:
            return self._cached[name]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "No such file", name) from None

    def _check_alive(self, life: int) -> None:
        if life != self._life:
            raise OSError(errno.EIO, "the process that asked is gone")

    async def _pause(self, operation: str) -> None:
        if self.faults.sleep is not None:
            await self.faults.sleep(operation)


def _outside(older: _Unsynced, newer: _Unsynced) -> list[_Unsynced]:
    """What is left of an unsynced write when a later one over it has been synced."""
    if older.name != newer.name:
        return [older]
    stop = older.at + len(older.data)
    newer_stop = newer.at + len(newer.data)
    left = []
    if older.at < min(stop, newer.at):
        left.append(_Unsynced(older.name, older.at, older.data[: newer.at - older.at]))
    if max(older.at, newer_stop) < stop:
        at = max(older.at, newer_stop)
        left.append(_Unsynced(older.name, at, older.data[at - older.at :]))
    return left
