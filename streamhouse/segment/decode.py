"""Reading a segment: the tail by one ranged read from the end, then single blocks.

Owns nothing but the bytes it is given and fetches none: where more are needed it says which.
Invariant: whatever the bytes, the result is what was written, or Corrupt or DecodeError.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from crc32c import crc32c

from streamhouse.model.errors import Corrupt
from streamhouse.model.ids import TopicPartition
from streamhouse.model.partition import SegmentRef
from streamhouse.model.producers import AbortedTransaction, PartitionSnapshot
from streamhouse.segment.block import BlockEntry, decode_block
from streamhouse.segment.encode import open_transactions
from streamhouse.segment.footer import Footer, decode_file_header, decode_footer
from streamhouse.segment.index import decode_index
from streamhouse.segment.layout import (
    FILE_HEADER_BYTES,
    FOOTER_BYTES,
    SEGMENT_BYTES_MIN,
    TAIL_READ_BYTES,
    Buffer,
)
from streamhouse.segment.sections import OpenTransaction, Sections, decode_sections

__all__ = [
    "BlockEntry",
    "NeedMore",
    "SegmentTail",
    "check_ref",
    "decode_block",
    "decode_tail",
    "tail_start",
    "verify_segment",
]

_LAST = attrgetter("last")


@dataclass(frozen=True, slots=True)
class NeedMore:
    """The tail is longer than what was read: read this many bytes, up to the file's end."""

    bytes_needed: int


@dataclass(frozen=True, slots=True)
class SegmentTail:
    """All that a segment says about its records, without the records."""

    footer: Footer
    sections: Sections
    blocks: list[BlockEntry]  # ascending by offset and by position

    @property
    def tp(self) -> TopicPartition:
        return self.sections.tp

    @property
    def base(self) -> int:
        return self.footer.base

    @property
    def end(self) -> int:
        return self.footer.end

    @property
    def snapshot(self) -> PartitionSnapshot:
        return self.sections.snapshot

    @property
    def aborted(self) -> tuple[AbortedTransaction, ...]:
        return self.sections.aborted

    @property
    def open_transactions(self) -> tuple[OpenTransaction, ...]:
        return self.sections.open_transactions

    def find_block(self, offset: int) -> int | None:
        """Number of the first block that reaches `offset`.

        It holds the offset or, where compaction left a gap, what comes after it. None if there is
        no such block; the caller goes on with the next segment.
        """
        number = bisect_left(self.blocks, offset, key=_LAST)
        return number if number < len(self.blocks) else None

    def blocks_from(self, offset: int) -> list[BlockEntry]:
        """The block of `find_block` and all after it."""
        return self.blocks[bisect_left(self.blocks, offset, key=_LAST) :]

    def blocks_for_timestamp(self, timestamp_min_ms: int) -> list[BlockEntry]:
        """Blocks that may hold a record at or after this time, by offset.

        Timestamps need not ascend, so any of the blocks may be left out. The first record at or
        after the time lies in the first of these.
        """
        return [block for block in self.blocks if block.timestamp_max_ms >= timestamp_min_ms]


def tail_start(file_size: int) -> int:
    """Where the first read of a segment should begin; it ends with the file."""
    return max(0, file_size - TAIL_READ_BYTES)


def decode_tail(data: Buffer, file_size: int) -> SegmentTail | NeedMore:
    """The tail of a file of `file_size` bytes, of which `data` are the last.

    With at least FOOTER_BYTES at hand it asks for more at most once.
    Raises Corrupt for damage, DecodeError for what this reader does not know.
    """
    if file_size < SEGMENT_BYTES_MIN:
        raise Corrupt(f"a file of {file_size} bytes is too short for a STRM segment")
    if len(data) > file_size:
        raise Corrupt(f"{len(data)} bytes were read from a file of {file_size}")
    if len(data) < FOOTER_BYTES:
        return NeedMore(FOOTER_BYTES)
    footer = decode_footer(data, file_size)
    if len(data) < footer.tail_bytes:
        return NeedMore(footer.tail_bytes)
    tail = memoryview(data)[len(data) - footer.tail_bytes :]
    index = tail[: footer.index_bytes]
    described = tail[footer.index_bytes : footer.index_bytes + footer.sections_bytes]
    _check_crc("index", index, footer.index_crc)
    _check_crc("sections", described, footer.sections_crc)
    blocks = decode_index(index, footer)
    sections = decode_sections(described)
    _check_sections(sections, footer, blocks)
    return SegmentTail(footer, sections, blocks)


def check_ref(tail: SegmentTail, tp: TopicPartition, ref: SegmentRef) -> None:
    """Raise Corrupt unless the object is the one that was registered."""
    said = (tp, ref.base, ref.end, ref.record_count, ref.bytes_stored, ref.footer_crc)
    footer = tail.footer
    found = (
        tail.tp,
        footer.base,
        footer.end,
        footer.record_count,
        footer.file_bytes,
        footer.crc,
    )
    if said != found:
        raise Corrupt(f"segment {ref.key} is {found}, but {said} was registered")


def verify_segment(data: Buffer) -> SegmentTail:
    """Check every byte of a whole file and return its tail. Raises Corrupt, DecodeError."""
    tail = decode_tail(data, len(data))
    assert isinstance(tail, SegmentTail), "the whole file was given"
    tp = decode_file_header(data)
    if tp != tail.tp:
        raise Corrupt(f"file header says {tp}, sections say {tail.tp}")
    view, position = memoryview(data), FILE_HEADER_BYTES
    for block in tail.blocks:
        _check_gap(position, block.position)
        decode_block(block, view[block.position : block.stop])
        position = block.stop
    _check_gap(position, tail.footer.index_offset)
    return tail


def _check_gap(position: int, start: int) -> None:
    """Version 1 leaves no byte unaccounted for between blocks."""
    if position != start:
        raise Corrupt(f"bytes {position} to {start} belong to no block")


def _check_crc(what: str, data: memoryview, expected: int) -> None:
    computed = crc32c(data)
    if computed != expected:
        raise Corrupt(f"{what} has checksum {computed:08x}, expected {expected:08x}")


def _check_sections(sections: Sections, footer: Footer, blocks: Sequence[BlockEntry]) -> None:
    """Facts told twice must agree: a writer that contradicts itself is not to be trusted."""
    control_count = sum(block.control_count for block in blocks)
    told = {
        "offsets": (sections.base, sections.last + 1),
        "counts": (sections.data_count, sections.control_count),
        "bytes": (sections.bytes_raw, sections.bytes_stored),
        "timestamps": (sections.timestamp_min_ms, sections.timestamp_max_ms),
        "epochs": (sections.epoch_first, sections.epoch_last),
        "open transactions": sections.open_transactions,
    }
    known = {
        "offsets": (footer.base, footer.end),
        "counts": (footer.record_count - control_count, control_count),
        "bytes": (sum(b.raw_length for b in blocks), sum(b.stored_length for b in blocks)),
        "timestamps": (footer.timestamp_min_ms, footer.timestamp_max_ms),
        "epochs": (
            (blocks[0].epoch_first, blocks[-1].epoch_last)
            if blocks
            else (sections.epoch_first, sections.epoch_last)
        ),
        "open transactions": open_transactions(sections.snapshot),
    }
    for what, value in told.items():
        if value != known[what]:
            raise Corrupt(f"sections say {what} {value}, the rest of the segment {known[what]}")
    if not 0 <= sections.epoch_first <= sections.epoch_last:
        raise Corrupt(f"epochs {sections.epoch_first} to {sections.epoch_last} are not a range")
    if sections.snapshot.offset > footer.end:
        raise Corrupt(f"snapshot at offset {sections.snapshot.offset}, beyond end {footer.end}")
