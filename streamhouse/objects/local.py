"""Objects as files under one directory.

Owns: the directory. A key is the path of its file below the root; unfinished files live in `.tmp`
under the root and are removed when the store is opened.
Invariants: a file appears under its name complete and synced, by link(2), which never replaces
one; when `put_new` returns, file, name and every new directory above it are on disk. Blocking calls
run in a private pool, so that slow storage never holds the event loop.
Another process may use the same directory: if it opens the store in the middle of a put, that put
is refused and can be repeated.
"""

import asyncio
import errno
import os
import stat
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice
from pathlib import Path
from typing import TypeVar

from streamhouse.model.errors import (
    AlreadyExists,
    Corrupt,
    Invalid,
    NotFound,
    OutcomeUnknown,
    StartRefused,
    Unavailable,
)
from streamhouse.model.ids import ObjectKey
from streamhouse.objects.keys import UNFINISHED_DIR, check_key, check_prefix, check_range
from streamhouse.ports.disk import Buffer

T = TypeVar("T")

THREADS = 4
KEYS_PER_LIST_PAGE = 1_000
BUFFERS_PER_WRITE_MAX = 1_024  # IOV_MAX of Linux and macOS
DIRS_KNOWN_MAX = 100_000
LINK_TRIES_MAX = 8  # each lost try means that someone removed the empty directory just then

_CREATE = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR)


class LocalObjects:
    def __init__(self, root: Path) -> None:
        """Use `open`, which also prepares the directory."""
        self._root = root
        self._unfinished = root / UNFINISHED_DIR
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="objects")
        self._names = count()
        self._dirs = _Directories(root)

    @classmethod
    async def open(cls, root: Path) -> "LocalObjects":
        """Make the directory if need be and drop unfinished files. Raises StartRefused."""
        store = cls(root)
        try:
            await store._run(store._prepare)
        except OSError as error:
            await store.close()
            raise StartRefused(
                f"object directory {root} cannot be used: {error.strerror}; "
                "make it writable or choose another"
            ) from error
        return store

    async def put_new(self, key: ObjectKey, body: Sequence[Buffer]) -> None:
        check_key(key)
        await self._run(lambda: self._put(key, body))

    async def get_range(self, key: ObjectKey, start: int, stop: int) -> bytes:
        check_key(key)
        check_range(start, stop)
        return await self._run(lambda: self._get(key, start, stop))

    async def size(self, key: ObjectKey) -> int:
        check_key(key)
        return await self._run(lambda: self._size(key))

    async def list_keys(self, prefix: str) -> AsyncIterator[ObjectKey]:
        check_prefix(prefix)
        keys = self._walk(prefix)
        while page := await self._run(lambda: self._page(keys)):
            for key in page:
                yield key

    async def delete(self, keys: Collection[ObjectKey]) -> frozenset[ObjectKey]:
        for key in keys:
            check_key(key)
        return await self._run(lambda: self._delete(keys))

    async def close(self) -> None:
        """Wait for calls under way and end the threads."""
        await asyncio.get_running_loop().run_in_executor(None, self._pool.shutdown)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    # What follows runs in the pool.

    def _prepare(self) -> None:
        self._root.mkdir(parents=True, exist_ok=True)
        self._unfinished.mkdir(exist_ok=True)
        for name in os.listdir(self._unfinished):
            _unlink_quietly(self._unfinished / name)
        _sync_dir(self._root)
        _sync_dir(self._root.parent)
        self._prove_links()

    def _prove_links(self) -> None:
        """Fail at the start, not at the first roll, where files or hard links cannot be made."""
        path = self._write_unfinished([b"probe"])
        name = path.with_suffix(".link")
        try:
            os.link(path, name)
        finally:
            _unlink_quietly(path)
            _unlink_quietly(name)

    def _put(self, key: ObjectKey, body: Sequence[Buffer]) -> None:
        try:
            unfinished = self._write_unfinished(body)
        except OSError as error:
            raise Unavailable(f"object {key} was not written: {error.strerror}") from error
        try:
            self._link(key, unfinished)
        finally:
            _unlink_quietly(unfinished)

    def _write_unfinished(self, body: Sequence[Buffer]) -> Path:
        """A synced file with the body; on failure nothing of it remains."""
        file, path = self._create_unfinished()
        try:
            _write_all(file, body)
            os.fsync(file)
        except BaseException:
            _unlink_quietly(path)
            raise
        finally:
            os.close(file)
        return path

    def _create_unfinished(self) -> tuple[int, Path]:
        while True:
            path = self._unfinished / f"{os.getpid()}-{next(self._names)}"
            try:
                return os.open(path, _CREATE, 0o666), path
            except FileExistsError:
                continue  # another process in another container has our process id

    def _link(self, key: ObjectKey, unfinished: Path) -> None:
        path = self._root / key
        try:
            exists = self._link_or_find(path, unfinished)
        except (FileExistsError, NotADirectoryError) as error:
            raise Invalid(f"object {key}: a part of its path is already an object") from error
        except OSError as error:
            raise Unavailable(f"object {key} was not stored: {error.strerror}") from error
        try:
            # Also when it existed: its writer may not have synced the name yet, and the caller
            # may take "exists already" for success. The directory is ensured once more because it
            # may have been removed and made again, and not synced, between our look and the link.
            self._dirs.ensure(path.parent)
            _sync_dir(path.parent)
        except OSError as error:
            raise OutcomeUnknown(f"object {key} may not be durable: {error.strerror}") from error
        if exists:
            raise AlreadyExists(f"object {key} exists")

    def _link_or_find(self, path: Path, unfinished: Path) -> bool:
        """Give the file its name; True if the name is taken by another object."""
        for _ in range(LINK_TRIES_MAX):
            self._dirs.ensure(path.parent)
            try:
                os.link(unfinished, path)
                return False
            except FileExistsError:
                if path.is_dir():
                    raise
                return True
            except FileNotFoundError:
                self._dirs.forget(path.parent)
        raise FileNotFoundError(errno.ENOENT, "the directory or the unfinished file was removed")

    def _get(self, key: ObjectKey, start: int, stop: int) -> bytes:
        try:
            file = os.open(self._root / key, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return _read_exactly(file, key, start, stop)
            finally:
                os.close(file)
        except OSError as error:
            raise _read_error(key, error) from error

    def _size(self, key: ObjectKey) -> int:
        try:
            found = os.stat(self._root / key)
        except OSError as error:
            raise _read_error(key, error) from error
        if not stat.S_ISREG(found.st_mode):
            raise NotFound(f"object {key} does not exist")
        return found.st_size

    def _page(self, keys: Iterator[ObjectKey]) -> list[ObjectKey]:
        try:
            return list(islice(keys, KEYS_PER_LIST_PAGE))
        except OSError as error:
            raise Unavailable(f"objects cannot be listed: {error.strerror}") from error

    def _walk(self, prefix: str) -> Iterator[ObjectKey]:
        """Keys in ascending order, depth first; reads one directory at a time."""
        above = prefix.rpartition("/")[0]
        pending = [f"{above}/" if above else ""]
        while pending:
            at = pending.pop()
            if at and not at.endswith("/"):
                yield ObjectKey(at)
                continue
            names = (at + name for name in self._names_in(at))
            pending.extend(sorted((n for n in names if n.startswith(prefix)), reverse=True))

    def _names_in(self, directory: str) -> list[str]:
        """Names in a directory, those of directories with '/' so that they sort as keys do."""
        try:
            with os.scandir(self._root / directory) as entries:
                names = [
                    f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name
                    for entry in entries
                ]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [name for name in names if directory or name != f"{UNFINISHED_DIR}/"]

    def _delete(self, keys: Collection[ObjectKey]) -> frozenset[ObjectKey]:
        gone: dict[Path, list[ObjectKey]] = {}
        for key in keys:
            path = self._root / key
            try:
                path.unlink()
            except OSError as error:
                if error.errno not in _ABSENT:
                    continue
            gone.setdefault(path.parent, []).append(key)
        known: list[ObjectKey] = []
        for directory, deleted in gone.items():
            if _sync_dir_if_there(directory):
                known.extend(deleted)
                self._dirs.remove_if_empty(directory)
        return frozenset(known)


class _Directories:
    """Directories known to exist durably, so that each is synced once and not for every object.

    The lock makes "made and synced" one step: without it a second put could use a directory whose
    own name is not on disk yet.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._known: set[Path] = {root}

    def ensure(self, directory: Path) -> None:
        if directory in self._known:
            return
        with self._lock:
            self._ensure(directory)

    def forget(self, directory: Path) -> None:
        """Someone removed it; look again at every level."""
        with self._lock:
            while directory != self._root:
                self._known.discard(directory)
                directory = directory.parent

    def remove_if_empty(self, directory: Path) -> None:
        """Remove it and the parents that become empty. A put that races makes it again."""
        with self._lock:
            while directory != self._root:
                self._known.discard(directory)
                try:
                    directory.rmdir()
                except FileNotFoundError:
                    pass
                except OSError:
                    return
                directory = directory.parent

    def _ensure(self, directory: Path) -> None:
        if directory in self._known:
            return
        self._ensure(directory.parent)
        try:
            directory.mkdir(exist_ok=True)
        except FileNotFoundError:
            return  # the parent vanished under us; the link fails and the caller tries again
        _sync_dir(directory.parent)
        if len(self._known) >= DIRS_KNOWN_MAX:
            self._known = {self._root}
        self._known.add(directory)


def _write_all(file: int, body: Sequence[Buffer]) -> None:
    """Write the buffers one after the other without joining them."""
    pending = [memoryview(buffer).cast("B") for buffer in body if len(buffer)]
    first = 0
    while first < len(pending):
        written = os.writev(file, pending[first : first + BUFFERS_PER_WRITE_MAX])
        while first < len(pending) and written >= len(pending[first]):
            written -= len(pending[first])
            first += 1
        if written:
            pending[first] = pending[first][written:]


def _read_exactly(file: int, key: ObjectKey, start: int, stop: int) -> bytes:
    found_stat = os.fstat(file)
    if not stat.S_ISREG(found_stat.st_mode):
        raise NotFound(f"object {key} does not exist")
    size = found_stat.st_size
    if size < stop:
        raise Corrupt(f"object {key} has {size} bytes, {stop} were expected")
    found = os.pread(file, stop - start, start)
    while len(found) < stop - start:  # the kernel returns at most 2 GiB at once
        more = os.pread(file, stop - start - len(found), start + len(found))
        if not more:
            raise Corrupt(f"object {key} became shorter while it was read")
        found += more
    return found


def _read_error(key: ObjectKey, error: OSError) -> NotFound | Unavailable:
    if error.errno in _ABSENT:
        return NotFound(f"object {key} does not exist")
    return Unavailable(f"object {key} cannot be read: {error.strerror}")


def _sync_dir(directory: Path) -> None:
    file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _sync_dir_if_there(directory: Path) -> bool:
    try:
        _sync_dir(directory)
    except OSError as error:
        return error.errno in _ABSENT
    return True


def _unlink_quietly(path: Path) -> None:
    """An unfinished file that stays is removed at the next start; it must not hide the error."""
    try:
        os.unlink(path)
    except OSError:
        return
