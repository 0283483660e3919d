"""Which quota applies to whom, and which cannot be."""

import pytest

from streamhouse.model.quotas import (
    PRODUCER_BYTE_RATE,
    AppliedQuota,
    Entity,
    InvalidQuota,
    QuotaChange,
    applied_quota,
    check_change,
    entity_of,
)

# Most specific first, as in Kafka's documentation of quotas.
IN_ORDER: list[tuple[Entity, tuple[str | None, str | None]]] = [
    (entity_of([("user", "u"), ("client-id", "c")]), ("u", "c")),
    (entity_of([("user", "u"), ("client-id", None)]), ("u", "c")),
    (entity_of([("user", "u")]), ("u", None)),
    (entity_of([("user", None), ("client-id", "c")]), ("u", "c")),
    (entity_of([("user", None), ("client-id", None)]), ("u", "c")),
    (entity_of([("user", None)]), ("u", None)),
    (entity_of([("client-id", "c")]), (None, "c")),
    (entity_of([("client-id", None)]), (None, "c")),
]


@pytest.mark.parametrize("first", range(len(IN_ORDER)))
def test_the_most_specific_quota_wins(first: int) -> None:
    quotas = {
        entity: {PRODUCER_BYTE_RATE: float(number)}
        for number, (entity, _) in enumerate(IN_ORDER)
        if number >= first
    }
    found = applied_quota(quotas, PRODUCER_BYTE_RATE, "u", "c")
    assert found == AppliedQuota(float(first), IN_ORDER[first][1])


def test_quotas_of_others_and_other_limits_do_not_apply() -> None:
    quotas = {
        entity_of([("user", "v")]): {PRODUCER_BYTE_RATE: 1.0},
        entity_of([("client-id", "d")]): {PRODUCER_BYTE_RATE: 1.0},
        entity_of([("user", "u")]): {"consumer_byte_rate": 1.0},
    }
    assert applied_quota(quotas, PRODUCER_BYTE_RATE, "u", "c") is None


@pytest.mark.parametrize(
    "pairs",
    [
        [],
        [("group", "g")],
        [("user", "")],
        [("user", "u"), ("user", "v")],
        [("ip", "127.0.0.1"), ("user", "u")],
    ],
)
def test_not_everything_can_have_a_quota(pairs: list[tuple[str, str | None]]) -> None:
    with pytest.raises(InvalidQuota):
        entity_of(pairs)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("no_such_rate", 1.0),
        ("producer_byte_rate", 0.0),
        ("producer_byte_rate", -5.0),
        ("producer_byte_rate", 1.5),
        ("producer_byte_rate", float("nan")),
        ("producer_byte_rate", 1e300),
        ("connection_creation_rate", 5.0),  # only addresses have it
    ],
)
def test_not_everything_can_be_a_limit(key: str, value: float) -> None:
    with pytest.raises(InvalidQuota):
        check_change(QuotaChange(entity_of([("user", "u")]), {key: value}))


def test_a_limit_may_be_taken_away() -> None:
    check_change(QuotaChange(entity_of([("user", None)]), {"request_percentage": None}))
