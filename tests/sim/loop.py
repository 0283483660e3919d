"""An event loop on virtual time: nothing waits, nothing runs in a thread, nothing reads a clock.

When no callback is ready, time jumps to the next timer. When there is no timer either, nothing can
ever happen again, and the loop says so instead of hanging. A task belongs to the simulated process
in whose context it was made; `owner` is how that process learns of it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from typing import Any, NoReturn, Protocol, TypeVar

T = TypeVar("T")


class Owner(Protocol):
    def adopt(self, task: "asyncio.Task[Any]") -> None:
        """A task was started on behalf of this owner."""


owner: ContextVar[Owner | None] = ContextVar("owner", default=None)


class Deadlock(AssertionError):
    """Every task waits, and no timer is set."""


class _Timers:
    """Stands where a selector would be: waiting for it moves the clock."""

    def __init__(self, loop: "VirtualLoop") -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Deadlock("every task waits, and no timer is set")
        if timeout > 0:
            self._loop.advance(timeout)
        return []

    def close(self) -> None:
        return None


class VirtualLoop(asyncio.BaseEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        self._selector = _Timers(self)
        self.set_task_factory(_make_task)  # type: ignore[arg-type]

    def time(self) -> float:
        return self._now_s

    def advance(self, seconds: float) -> None:
        self._now_s += seconds

    def _process_events(self, event_list: list[Any]) -> None:
        assert not event_list

    def _write_to_self(self) -> None:
        """Called when an unfinished async generator is dropped; there is nobody to wake."""

    def run_in_executor(self, executor: object, func: object, *args: object) -> NoReturn:
        raise AssertionError(f"a thread was asked for in the simulation: {func}")


def _make_task(
    loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, T], context: Context | None = None
) -> "asyncio.Task[T]":
    task = asyncio.Task(coro, loop=loop, context=context)
    found = owner.get() if context is None else context.get(owner)
    if found is not None:
        found.adopt(task)
    return task


def run_virtually(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `main` to its end on a loop of its own."""
    loop = VirtualLoop()
    try:
        result = loop.run_until_complete(main())
        loop.run_until_complete(loop.shutdown_asyncgens())
        return result
    finally:
        loop.close()
