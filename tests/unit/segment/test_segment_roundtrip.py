"""What goes in comes out: any blocks, any snapshot, found by offset and by time."""

import threading
from dataclasses import replace

import pytest
import segment_samples as samples
from hypothesis import given, settings
from hypothesis import strategies as st

from streamhouse.model.errors import Corrupt, Invalid
from streamhouse.model.ids import ObjectKey
from streamhouse.model.producers import (
    EMPTY_SNAPSHOT,
    AbortedTransaction,
    BatchStamp,
    PartitionSnapshot,
    ProducerSnapshot,
)
from streamhouse.segment.block import BlockStats, encode_block
from streamhouse.segment.decode import (
    NeedMore,
    SegmentTail,
    check_ref,
    decode_block,
    decode_tail,
    tail_start,
    verify_segment,
)
from streamhouse.segment.encode import EncodedSegment, SegmentBuilder
from streamhouse.segment.layout import (
    BLOCK_HEADER_BYTES,
    CODEC_LZ4,
    CODEC_STORED,
    FOOTER_BYTES,
    TAIL_READ_BYTES,
)

I64 = st.integers(-(2**63), 2**63 - 1)
OFFSETS = st.integers(0, 2**62)


@st.composite
def block_lists(draw: st.DrawFn) -> tuple[int, list[tuple[list[bytes], BlockStats, bool]]]:
    """A base offset and blocks that may follow it: gaps, empty batches, any timestamps."""
    base = draw(st.integers(0, 2**40))
    offset, epoch, blocks = base, 0, []
    for _ in range(draw(st.integers(0, 8))):
        offset += draw(st.sampled_from([0, 0, 0, 1, 70_000]))
        span = draw(st.integers(1, 500))
        count = draw(st.integers(0, span))
        low, high = sorted((draw(I64), draw(I64)))
        epoch_first = epoch + draw(st.integers(0, 3))
        epoch = epoch_first + draw(st.integers(0, 3))
        stats = BlockStats(
            base=offset,
            last=offset + span - 1,
            record_count=count,
            control_count=draw(st.integers(0, count)),
            timestamp_min_ms=low,
            timestamp_max_ms=high,
            epoch_first=epoch_first,
            epoch_last=epoch,
        )
        pieces = draw(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=3))
        repeat = draw(st.sampled_from([1, 1, 50]))
        blocks.append(([piece * repeat for piece in pieces], stats, draw(st.booleans())))
        offset += span
    return base, blocks


stamps = st.builds(
    BatchStamp,
    sequence_first=st.integers(-1, 2**31 - 1),
    sequence_last=st.integers(-1, 2**31 - 1),
    offset_base=OFFSETS,
    offset_last=OFFSETS,
    timestamp_ms=I64,
)
producers = st.builds(
    ProducerSnapshot,
    producer_id=OFFSETS,
    producer_epoch=st.integers(-1, 2**15 - 1),
    batches=st.lists(stamps, max_size=5).map(tuple),
    seen_ms=I64,
    transaction_first_offset=st.one_of(st.just(-1), OFFSETS),
    coordinator_epoch=st.integers(-1, 2**31 - 1),
)
aborted = st.builds(
    AbortedTransaction,
    producer_id=OFFSETS,
    offset_first=OFFSETS,
    offset_last=OFFSETS,
    stable_offset=OFFSETS,
)


def build(base: int, blocks: list[tuple[list[bytes], BlockStats, bool]]) -> EncodedSegment:
    builder = SegmentBuilder(samples.TP, base)
    for raw, stats, compress in blocks:
        builder.add_block(raw, stats, compress)
    return builder.finish(builder.offset_next + 1, EMPTY_SNAPSHOT)


@settings(max_examples=150, deadline=None)
@given(block_lists())
def test_sh52_any_sequence_of_blocks_round_trips(
    case: tuple[int, list[tuple[list[bytes], BlockStats, bool]]],
) -> None:
    """Goal (SH-52, SH-59, SH-61): bytes, statistics and order of every block survive."""
    base, blocks = case
    data = samples.joined(build(base, blocks))
    tail = verify_segment(data)
    assert samples.read_blocks(data) == [b"".join(raw) for raw, _, _ in blocks]
    assert [BlockStats(*block[4:12]) for block in tail.blocks] == [s for _, s, _ in blocks]
    assert tail.footer.record_count == sum(stats.record_count for _, stats, _ in blocks)
    assert tail.sections.control_count == sum(stats.control_count for _, stats, _ in blocks)
    assert tail.base == base


@settings(max_examples=60, deadline=None)
@given(st.lists(producers, max_size=4), st.lists(aborted, max_size=4), st.integers(0, 3))
def test_any_snapshot_round_trips(
    some: list[ProducerSnapshot], ended: list[AbortedTransaction], schema_count: int
) -> None:
    """Goal: a new leader finds in the tail exactly the state the old one had."""
    snapshot = PartitionSnapshot(100, tuple(some), tuple(ended))
    builder = SegmentBuilder(samples.TP, 0)
    segment = builder.finish(100, snapshot, epoch=3, schema_ids=range(schema_count))
    tail = verify_segment(samples.joined(segment))
    assert tail.snapshot == snapshot
    assert tail.aborted == tuple(t for t in ended if t.offset_last < 100)
    assert [t.offset_first for t in tail.open_transactions] == [
        p.transaction_first_offset for p in some if p.transaction_first_offset >= 0
    ]
    assert tail.sections.schema_ids == tuple(range(schema_count))
    assert (tail.sections.epoch_first, tail.sections.epoch_last) == (3, 3)


@settings(max_examples=100, deadline=None)
@given(block_lists(), st.data())
def test_sh63_seek_agrees_with_a_linear_scan(
    case: tuple[int, list[tuple[list[bytes], BlockStats, bool]]], data: st.DataObject
) -> None:
    """Goal (SH-63): seeking by offset or time finds what reading everything would find."""
    base, blocks = case
    tail = samples.read_tail(samples.joined(build(base, blocks)))
    edges = [base, *(s.base for _, s, _ in blocks), *(s.last for _, s, _ in blocks)]
    offset = data.draw(st.sampled_from(edges)) + data.draw(st.integers(-1, 1))
    reaching = [n for n, block in enumerate(tail.blocks) if block.last >= offset]
    assert tail.find_block(offset) == (reaching[0] if reaching else None)
    assert tail.blocks_from(offset) == [tail.blocks[n] for n in reaching]
    low = data.draw(I64)
    may_hold = [b for b in tail.blocks if not (b.timestamp_max_ms < low)]
    assert tail.blocks_for_timestamp(low) == may_hold


def test_sh63_seek_reads_the_tail_and_one_block_only() -> None:
    """Goal (SH-63): with all other bytes of the file gone, a record is still found."""
    batches = [samples.batch(n * 2, [b"x" * 900, b"y" * 900]) for n in range(50)]
    builder = SegmentBuilder(samples.TP, 0)
    for body, stats in batches:
        builder.add_block(body, stats, compress=False)
    whole = samples.joined(builder.finish(100, EMPTY_SNAPSHOT))
    tail = samples.read_tail(whole)
    number = tail.find_block(41)
    assert number == 20
    block = tail.blocks[number]
    erased = bytearray(len(whole))
    erased[block.position : block.stop] = whole[block.position : block.stop]
    erased[-tail.footer.tail_bytes :] = whole[-tail.footer.tail_bytes :]
    again = samples.read_tail(bytes(erased))
    assert decode_block(again.blocks[20], erased[block.position : block.stop]) == batches[20].body
    assert tail.footer.tail_bytes + block.stored_length < len(whole) // 10


def test_footer_and_index_come_with_one_read_or_exactly_two() -> None:
    """Goal (SH-62, SH-63): a tail longer than the hint says how long it is; then it is complete."""
    many = tuple(ProducerSnapshot(n, 0, (), 0) for n in range(3_000))
    segment = SegmentBuilder(samples.TP, 0).finish(10, PartitionSnapshot(10, many))
    data = samples.joined(segment)
    assert segment.footer.tail_bytes > TAIL_READ_BYTES
    first = decode_tail(data[tail_start(len(data)) :], len(data))
    assert first == NeedMore(segment.footer.tail_bytes)
    second = decode_tail(data[-first.bytes_needed :], len(data))
    assert isinstance(second, SegmentTail)
    assert second.snapshot.producers == many
    assert decode_tail(data[-(FOOTER_BYTES - 1) :], len(data)) == NeedMore(FOOTER_BYTES)
    small = samples.joined(samples.raw_golden())
    assert isinstance(decode_tail(small[tail_start(len(small)) :], len(small)), SegmentTail)


def test_sh60_blocks_are_compressed_only_when_asked_and_worth_it() -> None:
    """Goal (SH-60): text shrinks, noise and batches that came compressed stay as they are."""
    text, stats = samples.lz4_golden_batches()[0]
    assert encode_block(text, stats, compress=True).codec == CODEC_LZ4
    assert encode_block(text, stats, compress=False).codec == CODEC_STORED
    assert encode_block(samples.noise(640), stats, compress=True).codec == CODEC_STORED
    zeros = encode_block(bytes(4_000_000), stats, compress=True)
    assert zeros.codec == CODEC_LZ4
    stored = b"".join(zeros.buffers)
    assert decode_block(zeros.entry_at(32), stored) == bytes(4_000_000)


def test_stored_batches_are_not_copied() -> None:
    """Goal: an incompressible segment costs no copy of its records."""
    body, stats = samples.batch(0, [b"alpha"])
    parts = [memoryview(body)[:20], memoryview(body)[20:]]
    builder = SegmentBuilder(samples.TP, 0)
    builder.add_block(parts, stats, compress=False)
    segment = builder.finish(1, EMPTY_SNAPSHOT)
    assert segment.buffers[2] is parts[0]
    assert segment.buffers[3] is parts[1]
    assert samples.read_blocks(samples.joined(segment)) == [body]


def test_blocks_may_be_encoded_in_other_threads() -> None:
    """Goal: a block does not know its place, so threads may encode ahead of the builder."""
    batches = [samples.batch(n, [b"word " * 200]) for n in range(4)]
    encoded = [encode_block(batches[0].body, batches[0].stats, True)] * 4

    def work(n: int) -> None:
        encoded[n] = encode_block(batches[n].body, batches[n].stats, True)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    builder = SegmentBuilder(samples.TP, 0)
    for block in encoded:
        builder.add(block)
    data = samples.joined(builder.finish(4, EMPTY_SNAPSHOT))
    assert samples.read_blocks(data) == [body for body, _ in batches]


def test_merge_copies_blocks_of_two_segments_verbatim() -> None:
    """Goal: a merged segment covers both ranges and gives the same batches."""
    first, second = samples.joined(samples.lz4_golden()), samples.joined(samples.raw_golden())
    builder = SegmentBuilder(samples.TP, 0)
    for data in (first, second):
        for block in samples.read_tail(data).blocks:
            builder.add_encoded_block(block, data[block.position : block.stop])
    merged = samples.joined(builder.finish(103, samples.raw_golden_snapshot()))
    assert samples.read_blocks(merged) == samples.read_blocks(first) + samples.read_blocks(second)
    assert verify_segment(merged).footer.record_count == 44


def test_merge_refuses_a_damaged_block() -> None:
    """Goal (SH-64): damage is not carried on under a fresh checksum."""
    data = bytearray(samples.joined(samples.raw_golden()))
    block = samples.read_tail(bytes(data)).blocks[0]
    data[block.position + BLOCK_HEADER_BYTES] ^= 1
    builder = SegmentBuilder(samples.TP, 0)
    with pytest.raises(Corrupt, match="checksum"):
        builder.add_encoded_block(block, data[block.position : block.stop])


def test_an_emptied_segment_keeps_its_range() -> None:
    """Goal: compaction may leave [base, end) without a single record."""
    segment = SegmentBuilder(samples.TP, 50).finish(60, EMPTY_SNAPSHOT, epoch=2)
    tail = verify_segment(samples.joined(segment))
    assert (tail.base, tail.end, tail.footer.record_count, tail.blocks) == (50, 60, 0, [])
    assert (tail.footer.timestamp_min_ms, tail.footer.timestamp_max_ms) == (-1, -1)
    assert tail.find_block(50) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"base": 3}, "10 is next"),
        ({"last": 5}, "not a range"),
        ({"record_count": 4}, "do not fit"),
        ({"control_count": 3}, "control records"),
        ({"timestamp_max_ms": 0}, "timestamps"),
        ({"epoch_first": 1, "epoch_last": 1}, "follows one of epoch 2"),
        ({"epoch_last": 1}, "epochs"),
    ],
)
def test_builder_refuses_what_would_not_be_readable(change: dict[str, int], message: str) -> None:
    """Goal: our own mistakes end before a byte is stored."""
    good = BlockStats(10, 11, 2, 0, 1, 2, 2, 2)
    builder = SegmentBuilder(samples.TP, 0)
    builder.add_block(b"a", good._replace(base=8, last=9), compress=False)
    with pytest.raises(Invalid, match=message):
        builder.add_block(b"b", good._replace(**change), compress=False)


def test_builder_refuses_a_wrong_end_or_a_snapshot_from_the_future() -> None:
    """Goal: no record is outside [base, end), and no state is of records beyond it."""
    builder = SegmentBuilder(samples.TP, 0)
    builder.add_block(b"a", BlockStats(0, 4, 5, 0, 1, 2, 0, 0), compress=False)
    with pytest.raises(Invalid, match="cannot end at 4"):
        builder.finish(4, EMPTY_SNAPSHOT)
    with pytest.raises(Invalid, match="snapshot at offset 6"):
        builder.finish(5, PartitionSnapshot(6))
    with pytest.raises(Invalid, match="1 to"):
        builder.add_block([], BlockStats(5, 5, 1, 0, 1, 2, 0, 0), compress=False)


def test_registered_reference_must_match_the_object() -> None:
    """Goal (SH-64): a whole, undamaged, but different object under the key is noticed."""
    segment = samples.raw_golden()
    tail = samples.read_tail(samples.joined(segment))
    ref = segment.ref(ObjectKey("topics/x.strm"), epoch=6, created_ms=1)
    assert (ref.bytes_stored, ref.record_count) == (segment.size, 3)
    assert ref.bytes_raw == sum(block.raw_length for block in tail.blocks)
    check_ref(tail, samples.TP, ref)
    with pytest.raises(Corrupt, match="was registered"):
        check_ref(tail, samples.TP, replace(ref, footer_crc=ref.footer_crc ^ 1))
    with pytest.raises(Corrupt, match="was registered"):
        check_ref(tail, samples.TP._replace(partition=4), ref)
