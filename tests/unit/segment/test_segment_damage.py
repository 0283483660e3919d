"""Damage and hostility: detected and named, never a wrong record, never unbounded memory."""

import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import pytest
import segment_samples as samples
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from streamhouse.model.errors import Corrupt, DecodeError
from streamhouse.segment.block import BlockEntry, decode_block, read_block_header
from streamhouse.segment.decode import NeedMore, SegmentTail, decode_tail, verify_segment
from streamhouse.segment.footer import Footer
from streamhouse.segment.layout import (
    BLOCK_BYTES_MAX,
    BLOCK_HEADER_BYTES,
    BLOCK_HEADER_FIELDS,
    CRC,
    FILE_HEADER_BYTES,
    SECTION_HEADER,
)
from streamhouse.segment.sections import encode_sections, split_sections
from streamhouse.segment.varint import put_uvarint, read_uvarint

Damaged = (Corrupt, DecodeError)
SEGMENTS = {
    "raw": samples.joined(samples.raw_golden()),
    "lz4": samples.joined(samples.lz4_golden()),
}


def reseal(data: bytes, **changes: int) -> bytes:
    """The file with a changed footer whose checksum is right: a hostile writer's work."""
    footer = replace(samples.read_tail(data).footer, **changes)
    return data[: -len(footer.encode())] + footer.encode()


def with_tail(data: bytes, index: bytes, sections: bytes, **changes: int) -> bytes:
    """The file with another index and other sections, every checksum right."""
    footer: Footer = replace(
        samples.read_tail(data).footer,
        index_bytes=len(index),
        sections_bytes=len(sections),
        index_crc=crc32c(index),
        sections_crc=crc32c(sections),
        **changes,
    )
    return data[: footer.index_offset] + index + sections + footer.encode()


def index_of(data: bytes) -> bytes:
    footer = samples.read_tail(data).footer
    return data[footer.index_offset : footer.index_offset + footer.index_bytes]


def sections_of(data: bytes) -> bytes:
    footer = samples.read_tail(data).footer
    start = footer.index_offset + footer.index_bytes
    return data[start : start + footer.sections_bytes]


@pytest.mark.parametrize("name", SEGMENTS)
@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_sh64_every_flipped_byte_is_detected(name: str, mask: int) -> None:
    """Goal (SH-64): a full check finds any changed byte; a broker's read is right or refused."""
    whole = SEGMENTS[name]
    tail, blocks = samples.read_tail(whole), samples.read_blocks(whole)
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= mask
        with pytest.raises(Damaged):
            verify_segment(damaged)
        try:
            found = samples.read_tail(bytes(damaged)), samples.read_blocks(bytes(damaged))
        except Damaged:
            continue
        # Only the file header is not looked at by a broker, which knows whose segment it reads.
        assert position < FILE_HEADER_BYTES
        assert found == (tail, blocks)


@pytest.mark.parametrize("name", SEGMENTS)
def test_sh64_every_cut_is_detected(name: str) -> None:
    """Goal (SH-64): a file that is too short, or begins too late, is never taken for whole."""
    whole = SEGMENTS[name]
    for length in range(len(whole)):
        with pytest.raises(Damaged):
            decode_tail(whole[:length], length)
    for start in range(1, len(whole)):
        with pytest.raises(Damaged):
            decode_tail(whole[start:], len(whole) - start)
    with pytest.raises(Damaged):
        decode_tail(whole + b"\0", len(whole) + 1)


@pytest.mark.parametrize("name", SEGMENTS)
def test_a_read_that_begins_too_late_asks_for_more(name: str) -> None:
    """Goal: any suffix of a good file gives the right tail or says how much it needs."""
    whole = SEGMENTS[name]
    tail = samples.read_tail(whole)
    for start in range(len(whole)):
        found = decode_tail(whole[start:], len(whole))
        if isinstance(found, NeedMore):
            assert len(whole) - start < found.bytes_needed <= tail.footer.tail_bytes
        else:
            assert found == tail


@pytest.mark.parametrize("name", SEGMENTS)
def test_sh64_every_cut_of_a_block_is_detected(name: str) -> None:
    """Goal (SH-64): a block read alone is whole or refused."""
    whole = SEGMENTS[name]
    for block in samples.read_tail(whole).blocks:
        data = whole[block.position : block.stop]
        for length in range(len(data)):
            with pytest.raises(Corrupt):
                decode_block(block, data[:length])
        with pytest.raises(Corrupt):
            decode_block(block, data + b"\0")


def test_sh64_a_block_in_the_place_of_another_is_detected() -> None:
    """Goal (SH-64): good bytes from the wrong place are not taken for the right ones."""
    whole = SEGMENTS["raw"]
    first, second = samples.read_tail(whole).blocks
    with pytest.raises(Corrupt, match=r"were read|disagrees"):
        decode_block(first, whole[second.position : second.stop])
    other = samples.batch(100, [b"ALPHA", b"beta"])
    builder_bytes = samples.joined(samples.raw_golden()).replace(b"alpha", b"ALPHA")
    with pytest.raises(Corrupt):
        decode_block(first, builder_bytes[first.position : first.stop])
    assert len(other.body) == first.raw_length


def test_blocks_can_be_walked_without_the_index() -> None:
    """Goal: when the tail is lost, the blocks still say who they are, and can be trusted."""
    whole = SEGMENTS["lz4"]
    tail = samples.read_tail(whole)
    position, found = FILE_HEADER_BYTES, []
    while whole[position : position + 4] == b"SBLK":
        block = read_block_header(whole[position : position + BLOCK_HEADER_BYTES], position)
        decode_block(block, whole[block.position : block.stop])
        found.append(block)
        position = block.stop
    assert found == tail.blocks


def test_unknown_sections_are_skipped_and_versions_refused() -> None:
    """Goal: a later writer may add facts; what changes the meaning has another version."""
    whole = SEGMENTS["raw"]
    more = sections_of(whole) + SECTION_HEADER.pack(900, 5) + b"later"
    assert samples.read_tail(with_tail(whole, index_of(whole), more)).blocks
    assert [tag for tag, _ in split_sections(more)] == [*range(1, 12), 900]
    newer = bytearray(whole)
    newer[-9] = 2
    with pytest.raises(DecodeError, match="footer says version 2; this reader knows version 1"):
        decode_tail(newer, len(newer))
    header = bytearray(whole[:FILE_HEADER_BYTES])
    header[5] = 2
    header[-4:] = CRC.pack(crc32c(bytes(header[:-4])))
    with pytest.raises(DecodeError, match="file header says version 2"):
        verify_segment(bytes(header) + whole[FILE_HEADER_BYTES:])


def _drop_first(sections: bytes) -> bytes:
    return sections[SECTION_HEADER.size + 16 :]


def _repeat(sections: bytes) -> bytes:
    return sections + sections


def _long_claim(sections: bytes) -> bytes:
    return sections + SECTION_HEADER.pack(900, 2**32 - 1)


def _cut_header(sections: bytes) -> bytes:
    return sections + b"\xff"


def _many_producers(sections: bytes) -> bytes:
    payload = dict(split_sections(sections))[10]
    start = sections.index(bytes(payload))
    return sections[: start + 8] + b"\xff\xff\xff\xff" + sections[start + 12 :]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_drop_first, "TOPIC_ID .* missing"),
        (_repeat, "tag 1 comes after tag 11"),
        (_long_claim, "claims 4294967295 bytes"),
        (_cut_header, "cut short"),
        (_many_producers, "SNAPSHOT"),
    ],
)
def test_hostile_sections_are_refused(change: Callable[[bytes], bytes], message: str) -> None:
    """Goal (SH-64): right checksums do not make wrong lengths right."""
    whole = SEGMENTS["raw"]
    with pytest.raises(Damaged, match=message):
        samples.read_tail(with_tail(whole, index_of(whole), change(sections_of(whole))))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("base", 0),
        ("last", 103),
        ("data_count", 2),
        ("control_count", 1),
        ("bytes_raw", 1),
        ("timestamp_max_ms", 0),
        ("epoch_first", 0),
        ("epoch_last", 9),
        ("open_transactions", ()),
    ],
)
def test_sections_that_contradict_the_rest_are_refused(field: str, value: object) -> None:
    """Goal (SH-64): a fact told twice is told the same, or the segment is not trusted."""
    whole = SEGMENTS["raw"]
    sections = samples.read_tail(whole).sections
    lying = encode_sections(replace(sections, **{field: value}))  # type: ignore[arg-type]
    with pytest.raises(Corrupt, match="sections say"):
        samples.read_tail(with_tail(whole, index_of(whole), lying))


@pytest.mark.parametrize(
    "changes",
    [
        {"index_bytes": 2**32 - 1},
        {"sections_bytes": 2**32 - 1},
        {"index_offset": 2**64 - 1},
        {"index_offset": 0},
        {"block_count": 2**32 - 1},
        {"block_count": 1},
        {"block_count": 3},
        {"record_count": 2**64 - 1},
        {"record_count": 2},
        {"base": -1},
        {"base": 99},
        {"end": 102},
        {"end": 2**63 - 1},
        {"timestamp_min_ms": 0},
        {"timestamp_max_ms": 2**63 - 1},
        {"timestamp_min_ms": 2**63 - 1},
    ],
)
def test_hostile_footers_are_refused_without_taking_memory(changes: dict[str, int]) -> None:
    """Goal (SH-64): no number in a footer makes the reader allocate before it is checked."""
    hostile = reseal(SEGMENTS["raw"], **changes)
    tracemalloc.start()
    with pytest.raises(Damaged):
        decode_tail(hostile, len(hostile))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 1_000_000


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 2**64 - 1), min_size=12, max_size=12), st.integers(0, 11))
def test_hostile_index_values_are_refused(values: list[int], kept: int) -> None:
    """Goal (SH-64): whatever stands in an index entry, the result is an error or a sane entry."""
    whole = SEGMENTS["raw"]
    index = index_of(whole)
    at, good = 0, []
    for _ in range(12):
        value, at = read_uvarint(index, at)
        good.append(value)
    mixed = bytearray()
    for value in [*good[:kept], *values[kept:]]:
        put_uvarint(mixed, value)
    hostile = with_tail(whole, bytes(mixed) + index[at:], sections_of(whole))
    try:
        tail = samples.read_tail(hostile)
    except Damaged:
        return
    assert all(b.stop <= tail.footer.index_offset and b.last < tail.end for b in tail.blocks)
    assert all(b.raw_length <= BLOCK_BYTES_MAX for b in tail.blocks)


def test_an_index_that_leads_outside_the_blocks_is_refused() -> None:
    """Goal (SH-64): entries lie before the index, end with it, and are as many as it can hold."""
    whole = SEGMENTS["raw"]
    index, sections = index_of(whole), sections_of(whole)
    shifted = b"\x01" + index[1:]  # the first block, and so the second, one byte further on
    with pytest.raises(Corrupt, match="blocks end at byte 326"):
        samples.read_tail(with_tail(whole, shifted, sections))
    with pytest.raises(Corrupt, match="blocks end at byte 325 and offset 103, beyond"):
        samples.read_tail(with_tail(whole, index, sections, end=102, record_count=2))
    with pytest.raises(Corrupt, match="1 bytes after its last entry"):
        samples.read_tail(with_tail(whole, index + b"\0", sections))
    with pytest.raises(Corrupt, match="cannot describe 4294967295 blocks"):
        samples.read_tail(with_tail(whole, index, sections, block_count=2**32 - 1))


def resealed_block(block: BlockEntry, data: bytes) -> tuple[BlockEntry, bytes]:
    """A block whose header says what `block` says, with the right checksum."""
    head = BLOCK_HEADER_FIELDS.pack(
        b"SBLK",
        block.codec,
        b"\0\0\0",
        block.base,
        block.last,
        block.timestamp_min_ms,
        block.timestamp_max_ms,
        block.epoch_first,
        block.epoch_last,
        block.record_count,
        block.control_count,
        block.raw_length,
        block.stored_length,
    )
    payload = data[BLOCK_HEADER_BYTES:]
    crc = crc32c(payload, crc32c(head))
    return block._replace(crc=crc), head + CRC.pack(crc) + payload


@pytest.mark.parametrize("raw_length", [2**32 - 1, 100_000_000, 40_000, 1_000, 1])
def test_an_lz4_block_that_lies_about_its_size_is_refused(raw_length: int) -> None:
    """Goal (SH-64): the claimed size is bounded by what LZ4 can hold, then compared."""
    whole = SEGMENTS["lz4"]
    block = samples.read_tail(whole).blocks[0]
    lying, data = resealed_block(
        block._replace(raw_length=raw_length), whole[block.position : block.stop]
    )
    tracemalloc.start()
    with pytest.raises(Corrupt):
        decode_block(lying, data)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 1_000_000


def test_lz4_garbage_with_a_right_checksum_is_refused() -> None:
    """Goal (SH-64): a hostile writer gets an error, not a crash."""
    whole = SEGMENTS["lz4"]
    block = samples.read_tail(whole).blocks[0]
    garbage = whole[block.position : block.position + BLOCK_HEADER_BYTES] + b"\xff" * (
        block.stored_length - BLOCK_HEADER_BYTES
    )
    with pytest.raises(Corrupt, match="decompress"):
        decode_block(*resealed_block(block, garbage))


def test_reserved_bytes_must_be_zero() -> None:
    """Goal: a later meaning of these bytes is not ignored, even with a right checksum."""
    whole = SEGMENTS["raw"]
    block = samples.read_tail(whole).blocks[0]
    head = bytearray(whole[block.position : block.position + BLOCK_HEADER_FIELDS.size])
    head[5] = 1
    payload = whole[block.position + BLOCK_HEADER_BYTES : block.stop]
    crc = crc32c(payload, crc32c(bytes(head)))
    with pytest.raises(Corrupt, match="reserved bytes"):
        decode_block(block._replace(crc=crc), bytes(head) + CRC.pack(crc) + payload)


def test_an_unknown_codec_is_named() -> None:
    """Goal: a segment of a later version is refused with the reason."""
    whole = SEGMENTS["lz4"]
    block = samples.read_tail(whole).blocks[0]
    with pytest.raises(DecodeError, match="codec 9 is unknown"):
        decode_block(*resealed_block(block._replace(codec=9), whole[block.position : block.stop]))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=400))
def test_sh64_random_bytes_are_no_segment(data: bytes) -> None:
    """Goal (SH-64): any bytes at all give an error of ours."""
    with pytest.raises(Damaged):
        decode_tail(data, len(data))
    with pytest.raises(Damaged):
        decode_tail(data + b"MRTS", len(data) + 4)


@pytest.mark.parametrize(
    ("position", "message"),
    [
        (0, "not a STRM segment"),
        (8, "file header has checksum"),
        (FILE_HEADER_BYTES, "block at byte 32: begins with"),
        (FILE_HEADER_BYTES + BLOCK_HEADER_BYTES, "block at byte 32 .* has checksum"),
        (-1, "ends with"),
        (-20, "footer has checksum"),
        (-100, "sections has checksum"),
    ],
)
def test_sh64_the_message_says_what_and_where(position: int, message: str) -> None:
    """Goal (SH-64): a person can tell from the message which part is damaged."""
    damaged = bytearray(SEGMENTS["raw"])
    damaged[position] ^= 0x20
    with pytest.raises(Damaged, match=message):
        verify_segment(damaged)


def test_sh64_a_damaged_index_is_named() -> None:
    damaged = bytearray(SEGMENTS["raw"])
    damaged[samples.read_tail(SEGMENTS["raw"]).footer.index_offset] ^= 1
    with pytest.raises(Corrupt, match="index has checksum"):
        decode_tail(damaged, len(damaged))


def test_whole_golden_segments_are_undamaged() -> None:
    """Goal: the refusals above are not refusals of everything."""
    for whole in SEGMENTS.values():
        assert isinstance(verify_segment(whole), SegmentTail)
