"""The fault plan does what its names say, and the same seed does the same."""

import asyncio
from random import Random

import pytest

from streamhouse.model.errors import (
    AlreadyExists,
    NotFound,
    OutcomeUnknown,
    StreamhouseError,
    Unavailable,
)
from streamhouse.model.ids import ObjectKey
from streamhouse.objects.faulty import FaultRates, Faults, FaultyObjects
from streamhouse.objects.memory import MemoryObjects

A = ObjectKey("a")


async def no_sleep(seconds: float) -> None:
    assert seconds >= 0


def faulty(rates: FaultRates) -> tuple[MemoryObjects, FaultyObjects]:
    inner = MemoryObjects()
    return inner, FaultyObjects(inner, Faults(Random(1), no_sleep, rates))


def test_a_refused_put_has_no_effect() -> None:
    async def scenario() -> None:
        inner, store = faulty(FaultRates(refused=1.0))
        with pytest.raises(Unavailable):
            await store.put_new(A, [b"x"])
        with pytest.raises(NotFound):
            await inner.size(A)

    asyncio.run(scenario())


def test_a_lost_request_has_no_effect_and_does_not_say_so() -> None:
    async def scenario() -> None:
        inner, store = faulty(FaultRates(request_lost=1.0))
        with pytest.raises(OutcomeUnknown):
            await store.put_new(A, [b"x"])
        with pytest.raises(NotFound):
            await inner.size(A)

    asyncio.run(scenario())


def test_a_lost_answer_had_its_effect() -> None:
    async def scenario() -> None:
        inner, store = faulty(FaultRates(answer_lost=1.0))
        with pytest.raises(OutcomeUnknown):
            await store.put_new(A, [b"x"])
        assert await inner.size(A) == 1
        with pytest.raises(AlreadyExists):  # an error of the store itself is an answer
            await store.put_new(A, [b"x"])
        assert await store.delete([A]) == frozenset()
        with pytest.raises(NotFound):
            await inner.size(A)

    asyncio.run(scenario())


def test_a_read_is_never_unknown() -> None:
    async def scenario() -> None:
        inner, store = faulty(FaultRates(request_lost=0.5, answer_lost=0.5))
        await inner.put_new(A, [b"x"])
        with pytest.raises(Unavailable):
            await store.size(A)
        with pytest.raises(Unavailable):
            await store.get_range(A, 0, 1)
        with pytest.raises(Unavailable):
            await anext(aiter(store.list_keys("")))

    asyncio.run(scenario())


async def trace(seed: int) -> list[str]:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    rates = FaultRates(0.2, 0.2, 0.2, delayed=0.5, delay_s_max=2.0)
    store = FaultyObjects(MemoryObjects(), Faults(Random(seed), sleep, rates))
    answers = []
    for i in range(50):
        try:
            await store.put_new(ObjectKey(str(i)), [b"x"])
            answers.append("done")
        except StreamhouseError as error:
            answers.append(type(error).__name__)
    assert {"done", "Unavailable", "OutcomeUnknown"} == set(answers)
    assert 10 < len(slept) < 90
    assert max(slept) <= 2.0
    return answers + [str(s) for s in slept]


def test_one_seed_gives_one_run() -> None:
    assert asyncio.run(trace(3)) == asyncio.run(trace(3))
    assert asyncio.run(trace(3)) != asyncio.run(trace(4))


def test_rates_can_be_healed_while_running() -> None:
    async def scenario() -> None:
        faults = Faults(Random(1), no_sleep, FaultRates(refused=1.0))
        store = FaultyObjects(MemoryObjects(), faults)
        with pytest.raises(Unavailable):
            await store.put_new(A, [b"x"])
        faults.rates = FaultRates()
        await store.put_new(A, [b"x"])
        assert [k async for k in store.list_keys("")] == [A]

    asyncio.run(scenario())
