"""The pause that keeps a rate."""

from hypothesis import given, settings
from hypothesis import strategies as st

from streamhouse.server.kafka.token_buckets import BURST_SECONDS, TokenBuckets


def test_a_burst_is_free_and_debt_is_paid_by_waiting() -> None:
    buckets = TokenBuckets(10)
    assert buckets.take("a", 100, 100, 0.0) == 0.0
    assert buckets.take("a", 100, 50, 0.0) == 0.5
    assert buckets.take("a", 100, 0, 0.25) == 0.25
    assert buckets.take("a", 100, 0, 0.5) == 0.0


def test_idle_time_saves_no_more_than_a_burst() -> None:
    buckets = TokenBuckets(10)
    buckets.take("a", 100, 100, 0.0)
    assert buckets.take("a", 100, 100, 1_000.0) == 0.0
    assert buckets.take("a", 100, 100, 1_000.0) == 1.0


def test_keys_do_not_pay_for_each_other() -> None:
    buckets = TokenBuckets(10)
    buckets.take("a", 10, 1_000, 0.0)
    assert buckets.take("b", 10, 10, 0.0) == 0.0


def test_the_longest_unused_is_forgotten() -> None:
    buckets = TokenBuckets(2)
    for key in ("a", "b", "a", "c"):
        buckets.take(key, 1, 2, 0.0)
    assert len(buckets) == 2
    assert buckets.take("a", 1, 0, 0.0) == 3.0  # kept: it was used after b
    assert buckets.take("b", 1, 0, 0.0) == 0.0


@settings(max_examples=100, deadline=None)
@given(
    rate=st.integers(1, 10_000),
    amounts=st.lists(st.integers(0, 50_000), min_size=1, max_size=40),
)
def test_a_client_that_pauses_as_told_keeps_the_rate(rate: int, amounts: list[int]) -> None:
    """Goal: whatever the sizes, bytes over time stay below the rate plus one burst."""
    buckets, now = TokenBuckets(1), 0.0
    for amount in amounts:
        now += buckets.take("a", rate, amount, now)
    assert sum(amounts) <= rate * (now + BURST_SECONDS) * (1 + 1e-9) + 1e-6
