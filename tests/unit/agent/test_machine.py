"""The partition machine: offsets, watermark, epochs, when to roll."""

import pytest

from streamhouse.agent.machine import PartitionMachine, RollPolicy
from streamhouse.kafka_proto.record_batch import read_header
from streamhouse.model.partition import Term
from tests.unit.agent.agent_samples import batch, row


def append(machine: PartitionMachine, count: int, epoch: int = 3) -> int:
    base = machine.offset_next
    return machine.apply(read_header(batch(base, count)), base, epoch, 0)


def test_sh_09_sh_12_offsets_are_contiguous_and_the_watermark_is_the_next() -> None:
    machine = PartitionMachine(row(), [])
    assert append(machine, 3) == 3
    assert append(machine, 1) == 4
    assert (machine.offset_next, machine.high_watermark) == (4, 0)
    machine.on_durable(3)
    assert machine.high_watermark == 3


def test_sh_58_the_watermark_never_falls_nor_passes_the_log_end() -> None:
    machine = PartitionMachine(row(), [])
    append(machine, 5)
    machine.on_durable(5)
    machine.on_durable(3)
    assert machine.high_watermark == 5
    with pytest.raises(AssertionError):
        machine.on_durable(6)


def test_a_machine_begins_where_its_segments_end() -> None:
    machine = PartitionMachine(row(segments_end=40, high_watermark=40, log_start=10), [])
    assert (machine.offset_next, machine.high_watermark, machine.log_start) == (40, 40, 10)


def test_nothing_above_the_watermark_is_rolled() -> None:
    machine = PartitionMachine(row(), [])
    append(machine, 5)
    machine.on_durable(2)
    with pytest.raises(AssertionError):
        machine.on_rolled(5)


def test_epochs_end_where_the_next_one_begins() -> None:
    machine = PartitionMachine(row(epoch=7), [Term(2, 0), Term(4, 10)])
    machine.skip_to(20)
    append(machine, 5, epoch=7)
    machine.on_durable(25)
    assert machine.end_of_epoch(2) == (2, 10)
    assert machine.end_of_epoch(3) == (2, 10)
    assert machine.end_of_epoch(4) == (4, 20)
    assert machine.end_of_epoch(7) == (7, 25)
    assert machine.end_of_epoch(1) == (1, 0)
    assert machine.end_of_epoch(8) == (-1, -1)
    assert [machine.epoch_at(offset) for offset in (0, 9, 10, 19, 20)] == [2, 2, 4, 4, 7]


def test_terms_of_a_segment_are_those_that_begin_in_it() -> None:
    machine = PartitionMachine(row(epoch=7), [Term(2, 0), Term(4, 10)])
    assert machine.terms_between(0, 10) == (Term(2, 0),)
    assert machine.terms_between(1, 11) == (Term(4, 10),)


@pytest.mark.parametrize(
    ("size", "oldest_ms", "due"),
    [(0, None, False), (99, 1_000, False), (100, 1_000, True), (1, 940, True), (1, 941, False)],
)
def test_sh_53_a_partition_is_due_by_size_or_by_age(
    size: int, oldest_ms: int | None, due: bool
) -> None:
    policy = RollPolicy(bytes_due=100, age_ms_due=60)
    assert PartitionMachine.is_due(policy, size, oldest_ms, now_ms=1_000) is due
