"""One block: whole Kafka record batches, stored as they are or as one LZ4 block.

Owns the bytes of a block and the entry that describes it. Must not know what a batch looks like:
the caller hands over raw bytes together with what it knows about them. A block says nothing about
where it lies, so blocks are encoded in any thread and copied verbatim from segment to segment.

Invariant: one CRC32C covers the block's header and its stored bytes, and stands in the block and
in the index alike, so a single ranged read can be trusted and a wrong block is noticed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import lz4.block
from crc32c import crc32c

from streamhouse.model.errors import Corrupt, DecodeError, Invalid
from streamhouse.segment.layout import (
    BLOCK_BYTES_MAX,
    BLOCK_HEADER_BYTES,
    BLOCK_HEADER_FIELDS,
    CODEC_LZ4,
    CODEC_NAMES,
    CODEC_STORED,
    CRC,
    EPOCH_MAX,
    LZ4_RATIO_MAX,
    LZ4_WORTH_PERCENT,
    MAGIC_BLOCK,
    OFFSET_MAX,
    Buffer,
)

_RESERVED = b"\0\0\0"


class BlockStats(NamedTuple):
    """What the caller knows about the batches of a block.

    Offsets are those of the batch headers: `base` of the first batch, `last` of the last one.
    The largest timestamp bounds those of all records, and readers prune by it. The smallest is the
    lowest base timestamp of the batches, below which a record may still lie (ADR 0010).
    """

    base: int
    last: int
    record_count: int  # control records included
    control_count: int
    timestamp_min_ms: int
    timestamp_max_ms: int
    epoch_first: int  # leader epochs of the first and the last batch; they never decrease
    epoch_last: int


class BlockEntry(NamedTuple):
    """Where a block lies and what it holds. Its bytes in the file are [position, stop)."""

    position: int
    stored_length: int  # the block's header included
    raw_length: int
    codec: int
    base: int
    last: int
    record_count: int
    control_count: int
    timestamp_min_ms: int
    timestamp_max_ms: int
    epoch_first: int
    epoch_last: int
    crc: int

    @property
    def stop(self) -> int:
        return self.position + self.stored_length


@dataclass(frozen=True, slots=True)
class EncodedBlock:
    """A finished block that has no place yet."""

    stats: BlockStats
    codec: int
    raw_length: int
    stored_length: int
    crc: int
    buffers: tuple[Buffer, ...]  # header first

    def entry_at(self, position: int) -> BlockEntry:
        return BlockEntry(
            position, self.stored_length, self.raw_length, self.codec, *self.stats, self.crc
        )


def encode_block(raw: Buffer | Sequence[Buffer], stats: BlockStats, compress: bool) -> EncodedBlock:
    """Make a block of whole batches. Pure and thread-safe; compression releases the GIL.

    Stored bytes are not copied when they are not compressed: `raw` must not change until the
    segment is written. Raises Invalid if there is nothing in it or more than a block may hold.
    """
    parts: tuple[Buffer, ...]
    parts = (raw,) if isinstance(raw, bytes | bytearray | memoryview) else tuple(raw)
    raw_length = sum(map(len, parts))
    if not 0 < raw_length <= BLOCK_BYTES_MAX - BLOCK_HEADER_BYTES:
        raise Invalid(
            f"a block holds 1 to {BLOCK_BYTES_MAX - BLOCK_HEADER_BYTES} bytes, not {raw_length}"
        )
    fault = stats_fault(stats)
    if fault:
        raise Invalid(f"block at offset {stats.base}: {fault}")
    codec, stored = _compress(parts, raw_length) if compress else (CODEC_STORED, parts)
    stored_length = BLOCK_HEADER_BYTES + sum(map(len, stored))
    head = BLOCK_HEADER_FIELDS.pack(
        MAGIC_BLOCK,
        codec,
        _RESERVED,
        stats.base,
        stats.last,
        stats.timestamp_min_ms,
        stats.timestamp_max_ms,
        stats.epoch_first,
        stats.epoch_last,
        stats.record_count,
        stats.control_count,
        raw_length,
        stored_length,
    )
    crc = crc32c(head)
    for part in stored:
        crc = crc32c(part, crc)
    return EncodedBlock(
        stats, codec, raw_length, stored_length, crc, (head + CRC.pack(crc), *stored)
    )


def copy_block(entry: BlockEntry, data: Buffer) -> EncodedBlock:
    """Take a block over from another segment byte for byte. Raises Corrupt if it is damaged."""
    check_block(entry, data)
    return EncodedBlock(
        stats=_stats_of(entry),
        codec=entry.codec,
        raw_length=entry.raw_length,
        stored_length=entry.stored_length,
        crc=entry.crc,
        buffers=(data,),
    )


def decode_block(entry: BlockEntry, data: Buffer) -> bytes:
    """The batches of the block `entry` describes, from the file's bytes [position, stop).

    Raises Corrupt unless header, index entry, checksum and lengths all agree.
    """
    check_block(entry, data)
    stored = memoryview(data)[BLOCK_HEADER_BYTES:]
    if entry.codec == CODEC_STORED:
        return bytes(stored)
    try:
        raw: bytes = lz4.block.decompress(stored, uncompressed_size=entry.raw_length)
    except lz4.block.LZ4BlockError as error:
        raise Corrupt(f"{_name(entry)} does not decompress: {error}") from error
    if len(raw) != entry.raw_length:
        raise Corrupt(f"{_name(entry)} decompresses to {len(raw)} bytes, not {entry.raw_length}")
    return raw


def check_block(entry: BlockEntry, data: Buffer) -> None:
    """Raise Corrupt unless `data` is exactly the block that `entry` describes."""
    if len(data) != entry.stored_length:
        raise Corrupt(f"{_name(entry)} has {entry.stored_length} bytes, {len(data)} were read")
    found = read_block_header(data, entry.position)
    if found != entry:
        raise Corrupt(f"{_name(entry)} disagrees with the index: the block says {found}")
    crc = crc32c(memoryview(data)[: BLOCK_HEADER_FIELDS.size])
    crc = crc32c(memoryview(data)[BLOCK_HEADER_BYTES:], crc)
    if crc != entry.crc:
        raise Corrupt(f"{_name(entry)} has checksum {crc:08x}, expected {entry.crc:08x}")


def read_block_header(data: Buffer, position: int) -> BlockEntry:
    """What the block beginning with `data`, at `position` of the file, says of itself.

    Enough to walk a file whose index is lost. The checksum is not verified here: do so with
    `check_block` once the stored bytes are at hand. Raises Corrupt.
    """
    if len(data) < BLOCK_HEADER_BYTES:
        raise Corrupt(f"block at byte {position}: header cut short after {len(data)} bytes")
    magic, codec, reserved, *fields = BLOCK_HEADER_FIELDS.unpack_from(data)
    base, last, low, high, epoch_first, epoch_last, count, control, raw, stored = fields
    if magic != MAGIC_BLOCK:
        raise Corrupt(f"block at byte {position}: begins with {magic!r}, not {MAGIC_BLOCK!r}")
    if reserved != _RESERVED:
        raise Corrupt(f"block at byte {position}: reserved bytes are not zero")
    (crc,) = CRC.unpack_from(data, BLOCK_HEADER_FIELDS.size)
    stats = BlockStats(base, last, count, control, low, high, epoch_first, epoch_last)
    entry = BlockEntry(position, stored, raw, codec, *stats, crc)
    check_entry(entry)
    return entry


def check_entry(entry: BlockEntry) -> None:
    """Refuse an entry that contradicts itself or asks for more memory than a block may take."""
    fault = stats_fault(_stats_of(entry)) or _size_fault(entry)
    if fault is None:
        return
    if entry.codec not in CODEC_NAMES:
        raise DecodeError(f"{_name(entry)}: {fault}")
    raise Corrupt(f"{_name(entry)}: {fault}")


def stats_fault(stats: BlockStats) -> str | None:
    """What is wrong with these numbers, if anything."""
    if not 0 <= stats.base <= stats.last < OFFSET_MAX:
        return f"offsets {stats.base} to {stats.last} are not a range"
    if not 0 <= stats.record_count <= stats.last - stats.base + 1:
        return f"{stats.record_count} records do not fit offsets {stats.base} to {stats.last}"
    if not 0 <= stats.control_count <= stats.record_count:
        return f"{stats.control_count} control records among {stats.record_count} records"
    if stats.timestamp_min_ms > stats.timestamp_max_ms:
        return f"timestamps {stats.timestamp_min_ms} to {stats.timestamp_max_ms} are not a range"
    if not 0 <= stats.epoch_first <= stats.epoch_last <= EPOCH_MAX:
        return f"epochs {stats.epoch_first} to {stats.epoch_last} are not a range"
    return None


def _size_fault(entry: BlockEntry) -> str | None:
    if entry.codec not in CODEC_NAMES:
        return f"codec {entry.codec} is unknown to this reader"
    stored, raw = entry.stored_length - BLOCK_HEADER_BYTES, entry.raw_length
    if not 0 < stored <= raw <= BLOCK_BYTES_MAX - BLOCK_HEADER_BYTES:
        return f"{stored} stored bytes for {raw} raw ones; a block has 1 to {BLOCK_BYTES_MAX}"
    if entry.codec == CODEC_STORED and stored != raw:
        return f"stored as it is, yet {stored} bytes stand for {raw}"
    if raw > stored * LZ4_RATIO_MAX:
        return f"{stored} LZ4 bytes cannot hold {raw}"
    return None


def _compress(parts: tuple[Buffer, ...], raw_length: int) -> tuple[int, tuple[Buffer, ...]]:
    whole = parts[0] if len(parts) == 1 else b"".join(parts)
    packed: bytes = lz4.block.compress(whole, store_size=False)
    if len(packed) * 100 < raw_length * LZ4_WORTH_PERCENT:
        return CODEC_LZ4, (packed,)
    return CODEC_STORED, parts


def _stats_of(entry: BlockEntry) -> BlockStats:
    return BlockStats(
        entry.base,
        entry.last,
        entry.record_count,
        entry.control_count,
        entry.timestamp_min_ms,
        entry.timestamp_max_ms,
        entry.epoch_first,
        entry.epoch_last,
    )


def _name(entry: BlockEntry) -> str:
    return f"block at byte {entry.position} (offsets {entry.base} to {entry.last})"
