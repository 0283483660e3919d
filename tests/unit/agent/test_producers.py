"""Idempotence: which batches are new, which are retries, which are refused (SH-106)."""

import pytest

from streamhouse.agent.producers import SEQUENCE_MODULUS, ProducerTable, Refusal
from streamhouse.model.producers import BatchStamp


def accept(
    table: ProducerTable, first: int, offset: int, *, epoch: int = 0, count: int = 1
) -> None:
    last = (first + count - 1) % SEQUENCE_MODULUS
    assert table.check(1, epoch, first, last) is None
    table.apply(1, epoch, BatchStamp(first, last, offset, offset + count - 1, 99), 5)


def test_sh_106_a_retry_is_answered_with_the_first_place() -> None:
    table = ProducerTable()
    accept(table, 0, 100, count=3)
    accept(table, 3, 103)
    assert table.check(1, 0, 0, 2) == BatchStamp(0, 2, 100, 102, 99)


def test_sh_106_the_window_has_five_batches() -> None:
    """Goal: the fifth newest is still a duplicate, the sixth is out of order."""
    table = ProducerTable()
    for number in range(6):
        accept(table, number, number)
    assert isinstance(table.check(1, 0, 1, 1), BatchStamp)
    assert table.check(1, 0, 0, 0) is Refusal.OUT_OF_ORDER_SEQUENCE


def test_a_gap_is_refused_and_leaves_no_trace() -> None:
    table = ProducerTable()
    accept(table, 0, 0)
    assert table.check(1, 0, 2, 2) is Refusal.OUT_OF_ORDER_SEQUENCE
    accept(table, 1, 1)


def test_an_overlapping_batch_is_not_a_duplicate() -> None:
    table = ProducerTable()
    accept(table, 0, 0, count=3)
    assert table.check(1, 0, 0, 1) is Refusal.OUT_OF_ORDER_SEQUENCE


def test_sequences_wrap_to_zero() -> None:
    table = ProducerTable()
    accept(table, SEQUENCE_MODULUS - 2, 0, count=2)
    accept(table, 0, 2)


def test_a_new_epoch_starts_at_zero_and_fences_the_old_one() -> None:
    table = ProducerTable()
    accept(table, 0, 0)
    assert table.check(1, 1, 5, 5) is Refusal.OUT_OF_ORDER_SEQUENCE
    accept(table, 0, 1, epoch=1)
    assert table.check(1, 0, 1, 1) is Refusal.STALE_PRODUCER_EPOCH


def test_an_unknown_producer_may_begin_anywhere() -> None:
    accept(ProducerTable(), 77, 0)


def test_a_forgotten_producer_may_begin_anywhere() -> None:
    table = ProducerTable()
    accept(table, 0, 0)
    table.expire(idle_since_ms=6)
    assert len(table) == 0
    accept(table, 77, 1)


@pytest.mark.parametrize("cut", range(9))
def test_a_snapshot_and_the_batches_after_it_give_the_same_state(cut: int) -> None:
    """Goal: recovery knows what the live leader knew, wherever the segment ended."""
    live = ProducerTable()
    for number in range(8):
        accept(live, number, number)
    again = ProducerTable()
    again.restore(live.snapshot_below(cut))
    for number in range(cut, 8):
        again.apply(1, 0, BatchStamp(number, number, number, number, 99), 5)
    assert again.snapshot_below(100) == live.snapshot_below(100)
