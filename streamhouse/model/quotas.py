"""Quotas: whom they are for, what they may limit, and which one applies to a client. Pure.

An entity is a set of (type, name) pairs; a name of None is the default for its type. `QUOTA_KEYS`
is the one table of limits; `effective=False` marks those that are kept and shown but limit nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from streamhouse.model.errors import Invalid

USER, CLIENT_ID, IP = "user", "client-id", "ip"
ENTITY_TYPES = (USER, CLIENT_ID, IP)
PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
_INT_MAX, _LONG_MAX = 2**31 - 1, 2**63 - 1

Entity = frozenset[tuple[str, str | None]]


class InvalidQuota(Invalid):
    """An entity or a limit that no quota can have."""


class QuotaKey(NamedTuple):
    is_whole: bool
    value_max: float
    for_ip: bool
    effective: bool
    doc: str


QUOTA_KEYS: Mapping[str, QuotaKey] = {
    PRODUCER_BYTE_RATE: QuotaKey(True, _LONG_MAX, False, True, "Bytes a second in Produce."),
    CONSUMER_BYTE_RATE: QuotaKey(True, _LONG_MAX, False, True, "Bytes a second from Fetch."),
    "request_percentage": QuotaKey(False, float("inf"), False, False, "Share of a thread's time."),
    "controller_mutation_rate": QuotaKey(
        False, float("inf"), False, False, "Partitions created or deleted a second."
    ),
    "connection_creation_rate": QuotaKey(True, _INT_MAX, True, False, "New connections a second."),
}


@dataclass(frozen=True, slots=True)
class ClientQuota:
    entity: Entity
    limits: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """Limits of one entity to set; None takes the limit away."""

    entity: Entity
    limits: Mapping[str, float | None]


def entity_of(pairs: Iterable[tuple[str, str | None]]) -> Entity:
    """Raises InvalidQuota for what cannot have a quota."""
    named: dict[str, str | None] = {}
    for kind, name in pairs:
        if kind not in ENTITY_TYPES:
            raise InvalidQuota(f"{kind!r} cannot have a quota; use {', '.join(ENTITY_TYPES)}")
        if kind in named:
            raise InvalidQuota(f"the entity names {kind} twice")
        if name == "":
            raise InvalidQuota(f"an empty {kind} cannot have a quota; null means the default")
        named[kind] = name
    if not named:
        raise InvalidQuota("an entity needs a user, a client id or an address")
    if IP in named and len(named) > 1:
        raise InvalidQuota("an address cannot be combined with a user or client id")
    return frozenset(named.items())


def check_change(change: QuotaChange) -> None:
    """Raises InvalidQuota for the first limit that cannot be."""
    is_ip = any(kind == IP for kind, _ in change.entity)
    for key, value in change.limits.items():
        known = QUOTA_KEYS.get(key)
        if known is None or known.for_ip != is_ip:
            raise InvalidQuota(f"{key!r} is not a quota of this kind of entity")
        if value is None:
            continue
        if not 0 < value <= known.value_max:  # also refuses NaN
            raise InvalidQuota(f"{key}={value} must be above 0")
        if known.is_whole and value != int(value):
            raise InvalidQuota(f"{key}={value} must be a whole number")


class AppliedQuota(NamedTuple):
    rate: float
    bucket: tuple[str | None, str | None]  # user and client id that share the rate; None: any


def applied_quota(
    quotas: Mapping[Entity, Mapping[str, float]], key: str, user: str, client_id: str
) -> AppliedQuota | None:
    """The most specific limit for a client, in Kafka's order; None if nothing limits it.

    Who shares a limit follows from it: a quota on users is one for all clients of that user, a
    quota on both is for each pair.
    """
    for user_name in (user, None):
        for pair in (
            {(USER, user_name), (CLIENT_ID, client_id)},
            {(USER, user_name), (CLIENT_ID, None)},
        ):
            if (found := quotas.get(frozenset(pair), {}).get(key)) is not None:
                return AppliedQuota(found, (user, client_id))
        if (found := quotas.get(frozenset({(USER, user_name)}), {}).get(key)) is not None:
            return AppliedQuota(found, (user, None))
    for client_name in (client_id, None):
        if (found := quotas.get(frozenset({(CLIENT_ID, client_name)}), {}).get(key)) is not None:
            return AppliedQuota(found, (None, client_id))
    return None
