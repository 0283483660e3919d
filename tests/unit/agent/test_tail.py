"""The tail: what is served from memory, what is given up first, how a fetch is cut."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamhouse.agent.batch_run import BatchRun
from streamhouse.agent.tail import Tail, TailBudget
from streamhouse.kafka_proto.record_batch import iter_batches, read_header
from streamhouse.model.limits import CHUNK_BYTES_TARGET
from tests.unit.agent.agent_samples import batch


def filled(budget: TailBudget, counts: list[int], value: bytes = b"v") -> Tail:
    tail = Tail(budget, 0)
    for sequence, count in enumerate(counts, 1):
        body = batch(tail.end, count, value=value)
        tail.append(read_header(body), tail.end, 3, body, sequence, 0)
    tail.offset_durable = tail.end
    return tail


def offsets(parts: list[bytes | bytearray | memoryview]) -> list[int]:
    return [header.base_offset for part in parts for _, header in iter_batches(part)]


def test_a_cut_begins_with_the_batch_that_holds_the_offset() -> None:
    """Goal: an offset inside a batch gives that batch, not the next one (pitfall 27)."""
    tail = filled(TailBudget(1 << 20), [3, 3, 3])
    chunk = tail.chunk_at(4)
    assert chunk is not None
    for sealed in (False, True):
        if sealed:
            tail.seal_open()
        assert offsets(chunk.cut(4, 9, 1 << 20, at_least_one=False)) == [3, 6]
        assert offsets(chunk.cut(4, 6, 1 << 20, at_least_one=False)) == [3]


def test_sh_108_the_first_batch_comes_even_if_it_is_too_large() -> None:
    tail = filled(TailBudget(1 << 20), [1, 1])
    tail.seal_open()
    chunk = tail.chunk_at(0)
    assert chunk is not None
    assert offsets(chunk.cut(0, 2, 10, at_least_one=True)) == [0]
    assert chunk.cut(0, 2, 10, at_least_one=False) == []


@settings(max_examples=150, deadline=None)
@given(
    counts=st.lists(st.integers(1, 4), min_size=1, max_size=12),
    offset=st.integers(0, 40),
    stop=st.integers(1, 50),
    limit=st.integers(0, 2_000),
    at_least_one=st.booleans(),
)
def test_cuts_agree_with_a_plain_walk(
    counts: list[int], offset: int, stop: int, limit: int, at_least_one: bool
) -> None:
    tail = filled(TailBudget(1 << 20), counts)
    offset %= tail.end
    stop = min(stop, tail.end)
    if offset >= stop:
        return
    chunk = tail.chunk_at(offset)
    assert chunk is not None
    expected: list[int] = []
    total = 0
    for body in list(chunk.bodies):
        header = read_header(body)
        if header.end_offset <= offset:
            continue
        if header.base_offset >= stop:
            break
        if total + len(body) > limit and not (at_least_one and not expected):
            break
        expected.append(header.base_offset)
        total += len(body)
    assert offsets(chunk.cut(offset, stop, limit, at_least_one)) == expected
    tail.seal_open()
    assert offsets(chunk.cut(offset, stop, limit, at_least_one)) == expected


def test_the_oldest_chunks_give_up_memory_first_and_only_when_durable() -> None:
    value = b"x" * CHUNK_BYTES_TARGET
    budget = TailBudget(2 * CHUNK_BYTES_TARGET + 4_000)
    tail = Tail(budget, 0)
    for sequence in range(1, 5):
        body = batch(tail.end, 1, value=value)
        tail.append(read_header(body), tail.end, 3, body, sequence, 0)
    assert budget.bytes_used > budget.bytes_max, "nothing is durable yet, so nothing may go"
    tail.offset_durable = 4
    budget.shrink()
    assert budget.bytes_used <= budget.bytes_max
    assert [chunk.resident for chunk in tail.unrolled()] == [False, False, True, True]
    assert list(tail.unrolled()[0].sequences) == [1]


def test_rolled_chunks_stay_as_a_cache_until_memory_is_needed() -> None:
    value = b"x" * CHUNK_BYTES_TARGET
    budget = TailBudget(10 * CHUNK_BYTES_TARGET)
    tail = filled(budget, [1, 1, 1], value)
    tail.on_rolled(tail.unrolled()[:2])
    assert (tail.base, tail.bytes_unrolled) == (0, tail.unrolled()[0].size)
    budget.bytes_max = CHUNK_BYTES_TARGET * 2
    budget.shrink()
    assert tail.base == 2


def test_a_dropped_tail_gives_all_its_memory_back() -> None:
    budget = TailBudget(1 << 30)
    tail = filled(budget, [1, 2, 3])
    tail.drop_all()
    assert budget.bytes_used == 0


def test_a_block_is_indexed_by_its_batches() -> None:
    body = bytes(batch(10, 2)) + bytes(batch(12, 3))
    run = BatchRun.of_block(body)
    assert (list(run.bases), run.base, run.end) == ([10, 12], 10, 15)
    assert bytes(run.batch(1)) == bytes(batch(12, 3))


@pytest.mark.parametrize("offset", [0, 9])
def test_an_offset_in_a_gap_begins_at_the_next_batch(offset: int) -> None:
    run = BatchRun.of_block(bytes(batch(10, 2)))
    assert offsets([run.cut(offset, 12, 1 << 20, at_least_one=False)]) == [10]


def test_a_gap_in_the_middle_of_a_run_is_stepped_over() -> None:
    """Goal: an offset that was lost gives the batch after the gap, not the one before it."""
    run = BatchRun.of_block(bytes(batch(10, 2)) + bytes(batch(20, 1)))
    assert offsets([run.cut(15, 21, 1 << 20, at_least_one=False)]) == [20]
    assert offsets([run.cut(11, 21, 1 << 20, at_least_one=False)]) == [10, 20]
    assert len(run.cut(21, 30, 1 << 20, at_least_one=True)) == 0


def test_a_gap_lies_between_chunks() -> None:
    tail = Tail(TailBudget(1 << 20), 0)
    for base, sequence in ((0, 1), (7, 2)):
        body = batch(base, 1)
        tail.append(read_header(body), base, 3, body, sequence, 0)
    assert [(chunk.base, chunk.end) for chunk in tail.unrolled()] == [(0, 1), (7, 8)]
