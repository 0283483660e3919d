"""Client quotas at the Kafka door: what is stored, and what each request costs its client.

Byte rates of Produce and Fetch are kept by pausing: the request is served and answered at once
with the time of the pause, then its connection is muted for that long (KIP-219). Without security
every client is the user ANONYMOUS, as in Kafka.
"""

from collections.abc import Mapping, Sequence

from streamhouse.model.limits import QUOTA_BUCKETS_MAX, QUOTA_THROTTLE_MS_MAX
from streamhouse.model.quotas import (
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    AppliedQuota,
    ClientQuota,
    Entity,
    QuotaChange,
    applied_quota,
)
from streamhouse.ports.clock import Clock
from streamhouse.ports.metadata import QuotaStore
from streamhouse.server.kafka.token_buckets import TokenBuckets

ANONYMOUS = "ANONYMOUS"


class ClientQuotas:
    def __init__(self, store: QuotaStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._quotas: Mapping[Entity, Mapping[str, float]] = {}
        self._applied: dict[tuple[str, str], AppliedQuota | None] = {}
        self._buckets = TokenBuckets(QUOTA_BUCKETS_MAX)
        self.any = False  # whether anything is limited at all
        self.throttled = 0  # requests answered with a pause

    async def load(self) -> None:
        """Make what the store says the truth here."""
        quotas = {quota.entity: quota.limits for quota in await self._store.client_quotas()}
        self._quotas = quotas
        self._applied.clear()
        self._buckets.clear()
        self.any = any(
            key in limits
            for limits in quotas.values()
            for key in (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE)
        )

    async def alter(self, changes: Sequence[QuotaChange]) -> None:
        """Store the changes; they are in force on return. Raises Invalid, Unavailable."""
        try:
            await self._store.alter_client_quotas(changes)
        finally:
            await self.load()  # also when the answer was lost: the changes may be stored

    def all(self) -> list[ClientQuota]:
        return [ClientQuota(entity, limits) for entity, limits in self._quotas.items()]

    def produced_ms(self, client_id: str | None, size_bytes: int) -> int:
        """Charge a Produce request; return the pause in ms."""
        return self._charge(PRODUCER_BYTE_RATE, client_id or "", size_bytes)

    def fetched_ms(self, client_id: str | None, size_bytes: int) -> int:
        """Charge an answer to Fetch; return the pause in ms."""
        return self._charge(CONSUMER_BYTE_RATE, client_id or "", size_bytes)

    def _charge(self, key: str, client_id: str, size_bytes: int) -> int:
        if not self.any:
            return 0
        applied = self._look_up(key, client_id)
        if applied is None:
            return 0
        now = self._clock.monotonic()
        pause = self._buckets.take((key, applied.bucket), applied.rate, size_bytes, now)
        pause_ms = min(int(pause * 1000), QUOTA_THROTTLE_MS_MAX)
        if pause_ms:
            self.throttled += 1
        return pause_ms

    def _look_up(self, key: str, client_id: str) -> AppliedQuota | None:
        known = self._applied.get((key, client_id))
        if known is None and (key, client_id) not in self._applied:
            if len(self._applied) >= QUOTA_BUCKETS_MAX:  # ids are the clients' choice
                self._applied.clear()
            known = applied_quota(self._quotas, key, ANONYMOUS, client_id)
            self._applied[key, client_id] = known
        return known
