"""An object store that fails as networks do, by a seeded plan.

Owns: the faults. `Faults.around` is the one place that decides; the metadata runner uses it too.
Invariants: a refused call had no effect; a lost request had none either but says OutcomeUnknown; a
lost answer had its effect. With all rates at zero nothing differs from the wrapped store. The same
generator and the same calls give the same faults.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import TypeVar

from streamhouse.model.errors import OutcomeUnknown, Unavailable
from streamhouse.model.ids import ObjectKey
from streamhouse.ports.disk import Buffer
from streamhouse.ports.objects import ObjectStore

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]


class Fault(Enum):
    NONE = "the call goes through"
    REFUSED = "Unavailable, no effect"
    REQUEST_LOST = "OutcomeUnknown, no effect"
    ANSWER_LOST = "OutcomeUnknown, after the effect"


@dataclass(frozen=True, slots=True)
class FaultRates:
    """Probabilities per call, each from 0 to 1; the first three together at most 1."""

    refused: float = 0.0
    request_lost: float = 0.0  # writes only; a read is refused instead
    answer_lost: float = 0.0  # writes only; a read is refused instead
    delayed: float = 0.0  # before the call, and again before its answer
    delay_s_max: float = 0.0


class Faults:
    """Draws what happens to each call. `rates` may be replaced at any time, e.g. to heal."""

    def __init__(self, random: Random, sleep: Sleep, rates: FaultRates | None = None) -> None:
        self._random = random
        self._sleep = sleep
        self.rates = rates or FaultRates()

    def draw(self) -> Fault:
        at = self._random.random()
        for fault, rate in (
            (Fault.REFUSED, self.rates.refused),
            (Fault.REQUEST_LOST, self.rates.request_lost),
            (Fault.ANSWER_LOST, self.rates.answer_lost),
        ):
            if at < rate:
                return fault
            at -= rate
        return Fault.NONE

    async def delay(self) -> None:
        if self._random.random() < self.rates.delayed:
            await self._sleep(self._random.random() * self.rates.delay_s_max)

    async def around(self, what: str, effect: Callable[[], Awaitable[T]], *, writes: bool) -> T:
        """Perform `effect` or not, answer or not."""
        fault = self.draw()
        await self.delay()
        if fault is Fault.REFUSED or (fault is not Fault.NONE and not writes):
            raise Unavailable(f"{what}: refused by the fault plan")
        if fault is Fault.REQUEST_LOST:
            raise OutcomeUnknown(f"{what}: no answer (fault plan)")
        result = await effect()
        await self.delay()
        if fault is Fault.ANSWER_LOST:
            raise OutcomeUnknown(f"{what}: the answer was lost (fault plan)")
        return result


class FaultyObjects:
    """Any object store behind a bad network."""

    def __init__(self, inner: ObjectStore, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    async def put_new(self, key: ObjectKey, body: Sequence[Buffer]) -> None:
        await self._faults.around(
            f"put_new {key}", lambda: self._inner.put_new(key, body), writes=True
        )

    async def get_range(self, key: ObjectKey, start: int, stop: int) -> bytes:
        return await self._faults.around(
            f"get_range {key}", lambda: self._inner.get_range(key, start, stop), writes=False
        )

    async def size(self, key: ObjectKey) -> int:
        return await self._faults.around(f"size {key}", lambda: self._inner.size(key), writes=False)

    async def list_keys(self, prefix: str) -> AsyncIterator[ObjectKey]:
        """May fail before the first key or after any: a listing is many requests."""
        async for key in self._inner.list_keys(prefix):
            await self._fail_or_pass(f"list_keys {prefix}")
            yield key
        await self._fail_or_pass(f"list_keys {prefix}")

    async def delete(self, keys: Collection[ObjectKey]) -> frozenset[ObjectKey]:
        """A failed deletion is no error of this port: the keys are only not known to be gone."""
        try:
            return await self._faults.around(
                "delete", lambda: self._inner.delete(keys), writes=True
            )
        except (Unavailable, OutcomeUnknown):
            return frozenset()

    async def _fail_or_pass(self, what: str) -> None:
        await self._faults.around(what, _nothing, writes=False)


async def _nothing() -> None:
    return None
