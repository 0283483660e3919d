"""Where CPU-heavy pure functions run: threads in the process, inline in the simulation."""

from collections.abc import Callable
from typing import Protocol, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Workers(Protocol):
    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Call `function(*args)` off the event loop and return what it returns or raises."""
