"""The index: one entry per block, each told as its difference from what is known already.

Entries ascend by position and by offset. The differences are chosen so that none can be negative:
positions, offsets and epochs from the end of the block before, raw length from stored length,
timestamps from the segment's smallest.
"""

from collections.abc import Sequence

from streamhouse.model.errors import Corrupt, DecodeError
from streamhouse.segment.block import BlockEntry, check_entry
from streamhouse.segment.footer import Footer
from streamhouse.segment.layout import BLOCK_HEADER_BYTES, CRC, FILE_HEADER_BYTES, Buffer
from streamhouse.segment.varint import put_uvarint, read_uvarint

_VARINTS_PER_ENTRY = 12
_ENTRY_BYTES_MIN = _VARINTS_PER_ENTRY + CRC.size


def encode_index(blocks: Sequence[BlockEntry], *, base: int, timestamp_min_ms: int) -> bytes:
    out = bytearray()
    position, offset, epoch = FILE_HEADER_BYTES, base, 0
    for block in blocks:
        payload_length = block.stored_length - BLOCK_HEADER_BYTES
        for value in (
            block.position - position,
            payload_length,
            block.raw_length - payload_length,
            block.codec,
            block.base - offset,
            block.last - block.base,
            block.record_count,
            block.control_count,
            block.timestamp_min_ms - timestamp_min_ms,
            block.timestamp_max_ms - block.timestamp_min_ms,
            block.epoch_first - epoch,
            block.epoch_last - block.epoch_first,
        ):
            put_uvarint(out, value)
        out += CRC.pack(block.crc)
        position, offset, epoch = block.stop, block.last + 1, block.epoch_last
    return bytes(out)


def decode_index(data: Buffer, footer: Footer) -> list[BlockEntry]:
    """The entries, checked against themselves and the footer. Raises Corrupt, DecodeError.

    `data` is exactly the index, its checksum already verified.
    """
    if footer.block_count * _ENTRY_BYTES_MIN > len(data):
        raise Corrupt(f"{len(data)} bytes of index cannot describe {footer.block_count} blocks")
    blocks: list[BlockEntry] = []
    at = 0
    position, offset, epoch = FILE_HEADER_BYTES, footer.base, 0
    for number in range(footer.block_count):
        try:
            values, crc, at = _read_values(data, at)
        except DecodeError as error:
            raise DecodeError(f"index entry {number}: {error}") from error
        gap, payload, saved, codec, skipped, span, count, control, later, spread = values[:10]
        base, low, epoch_first = (
            offset + skipped,
            footer.timestamp_min_ms + later,
            epoch + values[10],
        )
        block = BlockEntry(
            position=position + gap,
            stored_length=BLOCK_HEADER_BYTES + payload,
            raw_length=payload + saved,
            codec=codec,
            base=base,
            last=base + span,
            record_count=count,
            control_count=control,
            timestamp_min_ms=low,
            timestamp_max_ms=low + spread,
            epoch_first=epoch_first,
            epoch_last=epoch_first + values[11],
            crc=crc,
        )
        check_entry(block)
        position, offset, epoch = block.stop, block.last + 1, block.epoch_last
        blocks.append(block)
    if at != len(data):
        raise Corrupt(f"index has {len(data) - at} bytes after its last entry")
    if position > footer.index_offset or offset > footer.end:
        raise Corrupt(
            f"blocks end at byte {position} and offset {offset}, beyond the footer's "
            f"{footer.index_offset} and {footer.end}"
        )
    _check_totals(blocks, footer)
    return blocks


def _read_values(data: Buffer, at: int) -> tuple[list[int], int, int]:
    """The numbers of one entry, its checksum, and the position after it."""
    values: list[int] = []
    for _ in range(_VARINTS_PER_ENTRY):
        if at < len(data) and data[at] < 0x80:  # most numbers are small
            values.append(data[at])
            at += 1
            continue
        value, at = read_uvarint(data, at)
        values.append(value)
    if at + CRC.size > len(data):
        raise DecodeError(f"checksum cut short at byte {at}")
    (crc,) = CRC.unpack_from(data, at)
    return values, crc, at + CRC.size


def _check_totals(blocks: Sequence[BlockEntry], footer: Footer) -> None:
    record_count = sum(block.record_count for block in blocks)
    if record_count != footer.record_count:
        raise Corrupt(f"blocks hold {record_count} records, the footer says {footer.record_count}")
    low = min((block.timestamp_min_ms for block in blocks), default=footer.timestamp_min_ms)
    high = max((block.timestamp_max_ms for block in blocks), default=footer.timestamp_max_ms)
    if (low, high) != (footer.timestamp_min_ms, footer.timestamp_max_ms):
        raise Corrupt(
            f"blocks hold timestamps {low} to {high}, the footer says "
            f"{footer.timestamp_min_ms} to {footer.timestamp_max_ms}"
        )
