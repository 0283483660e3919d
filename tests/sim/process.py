"""One incarnation of the server: the real agent on simulated ports, which may end at any of them.

Every call of a port passes `Process.step` before and after its effect. A step may end the process:
then all its tasks are cancelled, its ports do nothing any more, and the disk decides what is left
of unsynced writes. What the process had in memory is gone with it; clients see a lost connection.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from contextvars import ContextVar, copy_context
from enum import Enum
from typing import Any, Protocol, TypeVar, TypeVarTuple

from streamhouse.agent.service import AgentOptions, AgentPorts, AgentService
from streamhouse.metadata.runner import InlineRunner
from streamhouse.model.errors import NotFound, OutcomeUnknown, StartRefused, Unavailable
from streamhouse.model.ids import ObjectKey
from streamhouse.ports.disk import Buffer, Disk
from streamhouse.ports.objects import ObjectStore
from streamhouse.wal.file_wal import FileWal
from tests.sim.loop import owner

_for_client: ContextVar[bool] = ContextVar("for_client", default=False)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Disconnected(Exception):
    """The client lost its connection: what it asked for may or may not have happened."""


class End(Enum):
    KILLED = "killed"  # the page cache stays
    POWER_LOST = "power lost"
    STOPPED = "stopped"
    REFUSED = "did not start"


class SimWorkers:
    """Implements ports.workers.Workers: at once, in the caller."""

    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        return function(*args)


class Surroundings(Protocol):
    """What a process needs of its world."""

    chance: random.Random

    def note(self, text: str) -> None: ...
    def count(self, what: str, times: int = 1) -> None: ...
    def fail(self, invariant: str, detail: str) -> None: ...
    def on_end(self, process: "Process", end: End) -> None: ...
    def on_command(self, process: "Process", command: str) -> None: ...
    def on_put(self, process: "Process", key: ObjectKey) -> None: ...
    def on_deleted(self, process: "Process", keys: Collection[ObjectKey]) -> None: ...
    def pause_s(self) -> float: ...
    def read_pause_s(self) -> float: ...
    def is_start_trouble(self, error: BaseException) -> bool: ...


class Process:
    def __init__(self, number: int, around: Surroundings, steps_left: int | None) -> None:
        self.number = number
        self.alive = True
        self.serving = False
        self._around = around
        self._steps_left = steps_left  # None: no step ends it
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self.service: AgentService
        self.wal: FileWal

    def build(self, ports: AgentPorts, options: AgentOptions, wal: FileWal) -> None:
        self.wal = wal
        self.service = AgentService(ports, options, on_fatal=self._on_fatal)

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Run the real start in this process; a refusal ends the process, not the world."""
        try:
            await self._finish(self.service.start())
        except Disconnected:
            return
        except (StartRefused, Unavailable, OutcomeUnknown) as error:
            self._around.note(f"p{self.number} start refused: {error}")
            if isinstance(error, StartRefused) and not self._around.is_start_trouble(error):
                self._around.fail("15 recovery", f"the start was refused: {error}")
            self.end(End.REFUSED)
        else:
            if self.alive:
                self.serving = True
                self._around.note(f"p{self.number} serves")

    async def stop(self) -> None:
        """SIGTERM: no more clients, then the real stop."""
        self.serving = False
        with suppress(Disconnected):
            await self._finish(self.service.stop())
            self.end(End.STOPPED)

    def end(self, end: End) -> None:
        if not self.alive:
            return
        self.alive = self.serving = False
        self._around.note(f"p{self.number} {end.value}")
        self._around.on_end(self, end)
        for task in list(self._tasks):
            task.cancel()

    @property
    def has_tasks(self) -> bool:
        return bool(self._tasks)

    def spare(self) -> None:
        """No step ends this process any more."""
        self._steps_left = None

    def adopt(self, task: "asyncio.Task[Any]") -> None:
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        if not self.alive:
            task.cancel()

    def _spawn(self, work: Coroutine[Any, Any, T], for_client: bool) -> "asyncio.Task[T]":
        context = copy_context()
        context.run(owner.set, self)
        context.run(_for_client.set, for_client)
        return asyncio.get_running_loop().create_task(work, context=context)

    async def _finish(self, work: Coroutine[Any, Any, T], *, for_client: bool = False) -> T:
        """Run the work inside this process. Raises Disconnected if the process ends first."""
        task = self._spawn(work, for_client)
        await asyncio.wait([task])
        if task.cancelled():
            raise Disconnected
        return task.result()

    def _on_fatal(self, error: BaseException) -> None:
        if not self.alive:
            return
        self._around.note(f"p{self.number} fatal: {type(error).__name__}: {error}")
        if not isinstance(error, OSError):
            self._around.fail("18 liveness", f"the process ended itself: {error!r}")
        self._around.count("fatal write errors")
        self.end(self._around.chance.choice((End.KILLED, End.POWER_LOST)))

    # -- clients ---------------------------------------------------------------------------------

    async def call(self, run: Callable[[AgentService], Coroutine[Any, Any, T]]) -> T:
        """What a request does inside the server. Raises Disconnected if the process ends."""
        if not self.serving:
            raise Disconnected
        return await self._finish(run(self.service), for_client=True)

    # -- ports -----------------------------------------------------------------------------------

    async def step(self, what: str) -> None:
        """A place where the process may be interrupted or end."""
        self._check_alive()
        around = self._around
        around.note(f"p{self.number} {what}")
        if self._steps_left is not None:
            self._steps_left -= 1
            if self._steps_left < 0:
                self.end(around.chance.choice((End.KILLED, End.POWER_LOST)))
                self._check_alive()
        pause_s = around.pause_s()
        if pause_s > 0:
            await asyncio.sleep(pause_s)
            self._check_alive()

    def count(self, what: str) -> None:
        self._around.count(what)

    def _check_alive(self) -> None:
        if not self.alive:
            raise asyncio.CancelledError

    async def around_effect(self, what: str, effect: Callable[[], Awaitable[T]]) -> T:
        await self.step(what)
        result = await effect()
        await self.step(f"{what} done")
        return result


class ProcessDisk:
    """Implements ports.disk.Disk for one process."""

    def __init__(self, inner: Disk, process: Process) -> None:
        self._inner = inner
        self._process = process

    async def list_files(self) -> list[str]:
        return await self._process.around_effect("disk list", self._inner.list_files)

    async def size(self, name: str) -> int:
        return await self._inner.size(name)

    async def create_zeroed(self, name: str, size: int) -> None:
        await self._process.around_effect(
            f"disk create {name}", lambda: self._inner.create_zeroed(name, size)
        )

    async def write_synced(self, name: str, at: int, buffers: Sequence[Buffer]) -> None:
        length = sum(map(len, buffers))
        await self._process.around_effect(
            f"disk write {name} {at}+{length}", lambda: self._inner.write_synced(name, at, buffers)
        )

    async def read(self, name: str, at: int, length: int) -> bytes:
        if self._process.serving:
            self._process.count("wal reads")
        return await self._process.around_effect(
            f"disk read {name} {at}+{length}", lambda: self._inner.read(name, at, length)
        )

    async def delete(self, name: str) -> None:
        await self._process.around_effect(f"disk delete {name}", lambda: self._inner.delete(name))


class ProcessObjects:
    """Implements ports.objects.ObjectStore for one process; reports what it changed."""

    def __init__(self, inner: ObjectStore, process: Process, around: Surroundings) -> None:
        self._inner = inner
        self._process = process
        self._around = around

    async def put_new(self, key: ObjectKey, body: Sequence[Buffer]) -> None:
        async def put() -> None:
            await self._inner.put_new(key, body)
            self._around.on_put(self._process, key)

        await self._process.around_effect(f"put {key}", put)

    async def get_range(self, key: ObjectKey, start: int, stop: int) -> bytes:
        async def get() -> bytes:
            pause_s = self._around.read_pause_s() if _for_client.get() else 0.0
            if pause_s:
                await asyncio.sleep(pause_s)
            try:
                return await self._inner.get_range(key, start, stop)
            except NotFound:
                self._around.count("gets of deleted objects")
                raise

        return await self._process.around_effect(f"get {key} {start}-{stop}", get)

    async def size(self, key: ObjectKey) -> int:
        return await self._process.around_effect(f"size {key}", lambda: self._inner.size(key))

    async def list_keys(self, prefix: str) -> AsyncIterator[ObjectKey]:
        await self._process.step(f"list {prefix}")
        async for key in self._inner.list_keys(prefix):
            yield key

    async def delete(self, keys: Collection[ObjectKey]) -> frozenset[ObjectKey]:
        async def remove() -> frozenset[ObjectKey]:
            gone = await self._inner.delete(keys)
            self._around.on_deleted(self._process, keys)
            return gone

        return await self._process.around_effect(f"delete {len(keys)} objects", remove)


class ProcessRunner:
    """Implements metadata.runner.Runner for one process: looks at the rows after every command."""

    def __init__(self, process: Process, around: Surroundings) -> None:
        self._inner = InlineRunner()
        self._process = process
        self._around = around

    async def run(self, command: str, work: Callable[[], T], *, writes: bool) -> T:
        await self._process.step(f"meta {command}")
        result = await self._inner.run(command, work, writes=writes)
        if writes:
            self._around.on_command(self._process, command)
        await self._process.step(f"meta {command} done")
        return result

    async def close(self) -> None:
        return None
