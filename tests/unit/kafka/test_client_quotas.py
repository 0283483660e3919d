"""Quotas at the door: stored, in force at once, and charged to the right client."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from streamhouse.metadata.runner import InlineRunner
from streamhouse.metadata.sqlite import SqliteMetadata
from streamhouse.model.limits import QUOTA_THROTTLE_MS_MAX
from streamhouse.model.quotas import InvalidQuota, QuotaChange, entity_of
from streamhouse.server.kafka.quotas import ClientQuotas
from streamhouse.system import SystemIds


class ManualClock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds


def run(scenario: Callable[[ClientQuotas, ManualClock, SqliteMetadata], Awaitable[None]]) -> None:
    async def once() -> None:
        store = await SqliteMetadata.open(":memory:", ids=SystemIds(), run=InlineRunner())
        clock = ManualClock()
        try:
            await scenario(ClientQuotas(store, clock), clock, store)
        finally:
            await store.close()

    asyncio.run(once())


def limit(rate: float | None, key: str = "producer_byte_rate", **entity: str | None) -> QuotaChange:
    pairs = [(kind.replace("_", "-"), name) for kind, name in entity.items()]
    return QuotaChange(entity_of(pairs), {key: rate})


def test_a_client_above_its_rate_is_told_to_pause() -> None:
    async def scenario(quotas: ClientQuotas, clock: ManualClock, store: SqliteMetadata) -> None:
        assert quotas.produced_ms("c", 10**9) == 0  # nothing is limited
        await quotas.alter([limit(1000, client_id="c")])
        assert quotas.produced_ms("c", 1000) == 0
        assert quotas.produced_ms("c", 500) == 500
        assert quotas.fetched_ms("c", 5000) == 0  # another limit
        assert quotas.produced_ms("d", 5000) == 0  # another client
        clock.seconds += 0.5
        assert quotas.produced_ms("c", 0) == 0
        assert quotas.throttled == 1

    run(scenario)


def test_clients_of_one_user_share_the_users_rate() -> None:
    async def scenario(quotas: ClientQuotas, clock: ManualClock, store: SqliteMetadata) -> None:
        await quotas.alter([limit(1000, "consumer_byte_rate", user=None)])
        assert quotas.fetched_ms("a", 1000) == 0
        assert quotas.fetched_ms("b", 1000) == 1000
        assert quotas.fetched_ms(None, 1000) == 2000

    run(scenario)


def test_one_pause_is_bounded_and_the_debt_stays() -> None:
    async def scenario(quotas: ClientQuotas, clock: ManualClock, store: SqliteMetadata) -> None:
        await quotas.alter([limit(1, client_id=None)])
        assert quotas.produced_ms("c", 100_000_000) == QUOTA_THROTTLE_MS_MAX
        clock.seconds += QUOTA_THROTTLE_MS_MAX / 1000
        assert quotas.produced_ms("c", 1) == QUOTA_THROTTLE_MS_MAX

    run(scenario)


def test_what_is_stored_is_in_force_after_a_restart() -> None:
    async def scenario(quotas: ClientQuotas, clock: ManualClock, store: SqliteMetadata) -> None:
        await quotas.alter([limit(1000, client_id="c"), limit(5, user="u")])
        again = ClientQuotas(store, clock)
        await again.load()
        assert again.produced_ms("c", 2000) == 1000
        assert {quota.entity: dict(quota.limits) for quota in again.all()} == {
            entity_of([("client-id", "c")]): {"producer_byte_rate": 1000.0},
            entity_of([("user", "u")]): {"producer_byte_rate": 5.0},
        }
        await again.alter([limit(None, client_id="c"), limit(None, user="u")])
        assert again.all() == []
        assert not again.any

    run(scenario)


def test_of_an_invalid_change_nothing_is_stored() -> None:
    async def scenario(quotas: ClientQuotas, clock: ManualClock, store: SqliteMetadata) -> None:
        with pytest.raises(InvalidQuota):
            await quotas.alter([limit(1000, client_id="c"), limit(-1, client_id="d")])
        assert quotas.all() == []

    run(scenario)
