"""Where the blocking commands of a store run.

The thread runner keeps SQLite's syncs off the event loop; the inline runner performs each command
at once, so that a simulation is deterministic; the faulty runner puts a bad network in between.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")

OPEN = "open"  # these two are no commands of the port: a fault plan leaves them alone
CLOSE = "close"


class Runner(Protocol):
    async def run(self, command: str, work: Callable[[], T], *, writes: bool) -> T:
        """Call `work` once and return its result. Commands do not overlap."""

    async def close(self) -> None:
        """Nothing runs any more after this."""


class ThreadRunner:
    """One thread of its own: SQLite connections belong to the thread that made them."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="metadata")

    async def run(self, command: str, work: Callable[[], T], *, writes: bool) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._thread.shutdown)


class InlineRunner:
    """In the caller's thread, without a suspension: for simulation and short scripts."""

    async def run(self, command: str, work: Callable[[], T], *, writes: bool) -> T:
        return work()

    async def close(self) -> None:
        return None


class FaultPlan(Protocol):
    """What the faulty runner needs of a fault plan (`objects.faulty.Faults` is one)."""

    async def around(self, what: str, effect: Callable[[], Awaitable[T]], *, writes: bool) -> T:
        """Perform the effect or not, answer or not."""


class FaultyRunner:
    """Refuses commands, loses them, or loses their answers."""

    def __init__(self, inner: Runner, faults: FaultPlan) -> None:
        self._inner = inner
        self._faults = faults

    async def run(self, command: str, work: Callable[[], T], *, writes: bool) -> T:
        if command in (OPEN, CLOSE):
            return await self._inner.run(command, work, writes=writes)
        return await self._faults.around(
            command, lambda: self._inner.run(command, work, writes=writes), writes=writes
        )

    async def close(self) -> None:
        await self._inner.close()
