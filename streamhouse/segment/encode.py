"""Writing a segment: one block after the other, then index, sections and footer.

Owns the order of things in the file and the totals. Performs no I/O and joins no blocks: the
result is a list of buffers for one create-only PUT. Invariants: blocks ascend by offset without
overlap, and the snapshot never speaks of records beyond the segment's end.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from crc32c import crc32c

from streamhouse.model.errors import Invalid
from streamhouse.model.ids import NO_TIMESTAMP, ObjectKey, TopicPartition
from streamhouse.model.partition import SegmentRef
from streamhouse.model.producers import AbortedTransaction, PartitionSnapshot
from streamhouse.segment.block import (
    BlockEntry,
    BlockStats,
    EncodedBlock,
    copy_block,
    encode_block,
)
from streamhouse.segment.footer import Footer, encode_file_header
from streamhouse.segment.index import encode_index
from streamhouse.segment.layout import (
    FILE_HEADER_BYTES,
    INDEX_BYTES_MAX,
    OFFSET_MAX,
    SECTIONS_BYTES_MAX,
    Buffer,
)
from streamhouse.segment.sections import OpenTransaction, Sections, encode_sections

__all__ = [
    "FORMAT_NAME",
    "BlockEntry",
    "BlockStats",
    "EncodedBlock",
    "EncodedSegment",
    "SegmentBuilder",
    "copy_block",
    "encode_block",
]

FORMAT_NAME = "strm1"  # of SegmentRef.format


@dataclass(frozen=True, slots=True)
class EncodedSegment:
    """A finished segment: its bytes are the buffers one after the other."""

    buffers: list[Buffer]
    footer: Footer
    sections: Sections
    blocks: list[BlockEntry]

    @property
    def size(self) -> int:
        return self.footer.file_bytes

    @property
    def bytes_raw(self) -> int:
        return self.sections.bytes_raw

    def ref(
        self, key: ObjectKey, *, epoch: int, created_ms: int, generation: int = 0
    ) -> SegmentRef:
        """How the segment is registered once it is stored under `key`."""
        return SegmentRef(
            key=key,
            base=self.footer.base,
            end=self.footer.end,
            epoch=epoch,
            record_count=self.footer.record_count,
            timestamp_min_ms=self.footer.timestamp_min_ms,
            timestamp_max_ms=self.footer.timestamp_max_ms,
            bytes_raw=self.sections.bytes_raw,
            bytes_stored=self.size,
            footer_crc=self.footer.crc,
            created_ms=created_ms,
            format=FORMAT_NAME,
            generation=generation,
        )


class SegmentBuilder:
    """Collects blocks in the order of their offsets; `finish` gives the segment.

    Not thread-safe, but `encode_block` and `copy_block` are plain functions: encode in worker
    threads, then `add` the results in order.
    """

    def __init__(self, tp: TopicPartition, base: int) -> None:
        if base < 0:
            raise Invalid(f"a segment cannot begin at offset {base}")
        self._tp = tp
        self._base = base
        self._buffers: list[Buffer] = [encode_file_header(tp)]
        self._blocks: list[BlockEntry] = []
        self._size_bytes = FILE_HEADER_BYTES
        self._offset_next = base
        self._epoch = 0  # of the newest batch
        self._raw_bytes = 0
        self._finished = False

    @property
    def offset_next(self) -> int:
        """The next block must not begin below this."""
        return self._offset_next

    @property
    def raw_bytes(self) -> int:
        return self._raw_bytes

    @property
    def size_bytes(self) -> int:
        """Bytes of the file so far, without its tail."""
        return self._size_bytes

    def add_block(
        self, raw: Buffer | Sequence[Buffer], stats: BlockStats, compress: bool
    ) -> BlockEntry:
        """Encode batches as the next block, trying LZ4 if `compress`. Raises Invalid."""
        return self.add(encode_block(raw, stats, compress))

    def add_encoded_block(self, entry: BlockEntry, data: Buffer) -> BlockEntry:
        """Copy a block of another segment of this partition: its bytes [position, stop) there.

        Verifies it first. Raises Corrupt, Invalid.
        """
        return self.add(copy_block(entry, data))

    def add(self, block: EncodedBlock) -> BlockEntry:
        """Append a finished block. Raises Invalid if offsets or epochs would go back."""
        assert not self._finished, "the segment is finished"
        entry = block.entry_at(self._size_bytes)
        if entry.base < self._offset_next:
            raise Invalid(
                f"a block from offset {entry.base} cannot follow; {self._offset_next} is next"
            )
        if entry.epoch_first < self._epoch:
            raise Invalid(
                f"a block of epoch {entry.epoch_first} at offset {entry.base} follows one of "
                f"epoch {self._epoch}"
            )
        self._buffers.extend(block.buffers)
        self._blocks.append(entry)
        self._size_bytes = entry.stop
        self._raw_bytes += entry.raw_length
        self._offset_next = entry.last + 1
        self._epoch = entry.epoch_last
        return entry

    def finish(
        self,
        end: int,
        snapshot: PartitionSnapshot,
        *,
        epoch: int = 0,
        aborted: Iterable[AbortedTransaction] | None = None,
        schema_ids: Iterable[int] = (),
    ) -> EncodedSegment:
        """Close the segment, which then stands for [base, end); call once.

        `end` lies beyond the last block when compaction removed the last records; `epoch` is used
        only when it removed all of them. `aborted` are the transactions whose abort marker lies in
        the segment; by default those the snapshot names. Raises Invalid if records would be lost,
        or if the snapshot is of a later offset than `end`.
        """
        assert not self._finished, "the segment is finished"
        if end < self._offset_next or not self._base < end <= OFFSET_MAX:
            raise Invalid(
                f"a segment from {self._base} cannot end at {end}; its blocks reach "
                f"{self._offset_next}"
            )
        if snapshot.offset > end:
            raise Invalid(f"snapshot at offset {snapshot.offset} in a segment that ends at {end}")
        self._finished = True
        ended = snapshot.aborted if aborted is None else aborted
        sections = self._sections(
            snapshot,
            end,
            epoch,
            tuple(t for t in ended if self._base <= t.offset_last < end),
            tuple(sorted(set(schema_ids))),
        )
        return self._close(sections)

    def _sections(
        self,
        snapshot: PartitionSnapshot,
        end: int,
        epoch: int,
        aborted: tuple[AbortedTransaction, ...],
        schema_ids: tuple[int, ...],
    ) -> Sections:
        blocks = self._blocks
        control_count = sum(block.control_count for block in blocks)
        return Sections(
            tp=self._tp,
            epoch_first=blocks[0].epoch_first if blocks else epoch,
            epoch_last=blocks[-1].epoch_last if blocks else epoch,
            base=self._base,
            last=end - 1,
            data_count=sum(block.record_count for block in blocks) - control_count,
            control_count=control_count,
            bytes_raw=self._raw_bytes,
            bytes_stored=sum(block.stored_length for block in blocks),
            timestamp_min_ms=min((b.timestamp_min_ms for b in blocks), default=NO_TIMESTAMP),
            timestamp_max_ms=max((b.timestamp_max_ms for b in blocks), default=NO_TIMESTAMP),
            aborted=aborted,
            open_transactions=open_transactions(snapshot),
            snapshot=snapshot,
            schema_ids=schema_ids,
        )

    def _close(self, sections: Sections) -> EncodedSegment:
        index = encode_index(
            self._blocks, base=sections.base, timestamp_min_ms=sections.timestamp_min_ms
        )
        described = encode_sections(sections)
        if len(index) > INDEX_BYTES_MAX or len(described) > SECTIONS_BYTES_MAX:
            raise Invalid(
                f"{len(index)} bytes of index and {len(described)} of sections; at most "
                f"{INDEX_BYTES_MAX} and {SECTIONS_BYTES_MAX} are allowed: roll smaller segments"
            )
        footer = Footer(
            block_count=len(self._blocks),
            index_offset=self._size_bytes,
            index_bytes=len(index),
            sections_bytes=len(described),
            base=sections.base,
            end=sections.last + 1,
            record_count=sections.data_count + sections.control_count,
            timestamp_min_ms=sections.timestamp_min_ms,
            timestamp_max_ms=sections.timestamp_max_ms,
            index_crc=crc32c(index),
            sections_crc=crc32c(described),
        )
        self._buffers.append(index + described + footer.encode())
        assert sum(map(len, self._buffers)) == footer.file_bytes
        return EncodedSegment(self._buffers, footer, sections, self._blocks)


def open_transactions(snapshot: PartitionSnapshot) -> tuple[OpenTransaction, ...]:
    return tuple(
        OpenTransaction(p.producer_id, p.producer_epoch, p.transaction_first_offset)
        for p in snapshot.producers
        if p.transaction_first_offset >= 0
    )
