"""The Disk port on a real directory.

Owns one thread that does nothing but write and fdatasync, fed by a queue: a hop to it is cheaper
than one through an executor, and each group commit pays it. Everything else runs on two others.

Invariants:
- A file under its final name is complete: it is filled under another name, synced and renamed.
- Descriptors stay open until the file is deleted or the disk is closed.
"""

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple, TypeVar

from streamhouse.model.limits import MIB
from streamhouse.ports.disk import Buffer

IOV_MAX = 1024  # buffers per system call, as Linux has it
ZERO_PIECE_BYTES = 4 * MIB  # synced one by one, so that commits beside it are not held up for long
UNFINISHED = ".tmp"

T = TypeVar("T")


class _Write(NamedTuple):
    fd: int
    at: int
    buffers: Sequence[Buffer]
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[None]


class OsDisk:
    """Implements ports.disk.Disk. Makes the directory; `close` ends its threads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        _sync_directory(directory.parent)
        for leftover in sorted(directory.glob(f"*{UNFINISHED}")):
            leftover.unlink()
        self._lock = threading.Lock()
        self._open_files: dict[str, tuple[int, int]] = {}  # descriptor, size
        self._writes: SimpleQueue[_Write | None] = SimpleQueue()
        self._writer = threading.Thread(target=self._write_all, name="wal-disk", daemon=True)
        self._writer.start()
        self._others = ThreadPoolExecutor(max_workers=2, thread_name_prefix="wal-disk-other")

    async def list_files(self) -> list[str]:
        return await self._run(self._list)

    async def size(self, name: str) -> int:
        return await self._run(lambda: self._open(name)[1])

    async def create_zeroed(self, name: str, size: int) -> None:
        await self._run(lambda: self._create(name, size))

    async def write_synced(self, name: str, at: int, buffers: Sequence[Buffer]) -> None:
        held = self._open_files.get(name)
        fd, size = held if held is not None else await self._run(lambda: self._open(name))
        if at + sum(map(len, buffers)) > size:
            raise OSError(errno.EFBIG, "a write would extend the file", name)
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._writes.put(_Write(fd, at, buffers, loop, done))
        await done

    async def read(self, name: str, at: int, length: int) -> bytes:
        return await self._run(lambda: self._read(name, at, length))

    async def delete(self, name: str) -> None:
        await self._run(lambda: self._delete(name))

    def close(self) -> None:
        """Finish what is queued, then let go of threads and descriptors."""
        self._writes.put(None)
        self._writer.join()
        self._others.shutdown()
        with self._lock:
            for fd, _ in self._open_files.values():
                os.close(fd)
            self._open_files.clear()

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._others, work)

    def _write_all(self) -> None:
        while (write := self._writes.get()) is not None:
            error: OSError | None = None
            try:
                _write_fully(write.fd, write.at, write.buffers)
                os.fdatasync(write.fd)
            except OSError as failure:
                error = failure
            try:
                write.loop.call_soon_threadsafe(_complete, write.done, error)
            except RuntimeError:  # the loop was closed: nobody waits any more
                continue

    def _list(self) -> list[str]:
        found = os.scandir(self._directory)
        with found:
            return sorted(e.name for e in found if e.is_file() and not e.name.endswith(UNFINISHED))

    def _open(self, name: str) -> tuple[int, int]:
        with self._lock:
            return self._opened(name)

    def _opened(self, name: str) -> tuple[int, int]:
        held = self._open_files.get(name)
        if held is None:
            fd = os.open(self._directory / name, os.O_RDWR | os.O_CLOEXEC)
            held = self._open_files[name] = fd, os.fstat(fd).st_size
        return held

    def _read(self, name: str, at: int, length: int) -> bytes:
        with self._lock:  # a delete must not close the descriptor under the read
            return _read(self._opened(name)[0], at, length)

    def _create(self, name: str, size: int) -> None:
        target = self._directory / name
        if target.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
        unfinished = self._directory / (name + UNFINISHED)
        try:
            _fill_with_zeros(unfinished, size)
            unfinished.rename(target)
            _sync_directory(self._directory)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            target.unlink(missing_ok=True)
            raise

    def _delete(self, name: str) -> None:
        with self._lock:
            held = self._open_files.pop(name, None)
            if held is not None:
                os.close(held[0])
        (self._directory / name).unlink()
        _sync_directory(self._directory)


def _complete(done: asyncio.Future[None], error: OSError | None) -> None:
    if done.done():  # cancelled meanwhile
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


def _write_fully(fd: int, at: int, buffers: Sequence[Buffer]) -> None:
    """pwritev may take only a part: go on behind it."""
    left = list(buffers)
    while left:
        written = os.pwritev(fd, left[:IOV_MAX], at)
        at += written
        while left and written >= len(left[0]):
            written -= len(left[0])
            del left[0]
        if written:
            left[0] = memoryview(left[0])[written:]


def _read(fd: int, at: int, length: int) -> bytes:
    piece = os.pread(fd, length, at)
    if len(piece) in (0, length):
        return piece
    pieces = [piece]
    while piece and (rest := length - sum(map(len, pieces))):
        piece = os.pread(fd, rest, at + length - rest)
        pieces.append(piece)
    return b"".join(pieces)


def _fill_with_zeros(path: Path, size: int) -> None:
    """Really written: the first write to merely reserved space costs as much as an append."""
    zeros = bytes(min(size, ZERO_PIECE_BYTES))
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        _reserve(fd, size)
        for at in range(0, size, ZERO_PIECE_BYTES):
            _write_fully(fd, at, [memoryview(zeros)[: size - at]])
            os.fdatasync(fd)
        os.fsync(fd)
    finally:
        os.close(fd)


def _reserve(fd: int, size: int) -> None:
    """Learn at once that there is no space, and get it in one stretch; optional elsewhere."""
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
