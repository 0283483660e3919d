"""The two fixed ends of a segment: the file header and the footer.

The footer is the last thing in the file and names everything before it, so its checksum stands for
the whole segment: footer -> index checksum -> block checksums.
"""

from dataclasses import dataclass
from uuid import UUID

from crc32c import crc32c

from streamhouse.model.errors import Corrupt, DecodeError
from streamhouse.model.ids import TopicId, TopicPartition
from streamhouse.segment.layout import (
    CRC,
    FILE_HEADER,
    FILE_HEADER_BYTES,
    FOOTER_BYTES,
    FOOTER_FIELDS,
    INDEX_BYTES_MAX,
    MAGIC_END,
    MAGIC_FILE,
    SECTIONS_BYTES_MAX,
    SEGMENT_BYTES_MIN,
    VERSION,
    Buffer,
)


@dataclass(frozen=True, slots=True)
class Footer:
    """Offsets [base, end), and where the index lies."""

    block_count: int
    index_offset: int
    index_bytes: int
    sections_bytes: int
    base: int
    end: int
    record_count: int  # control records included
    timestamp_min_ms: int  # -1 if there is no block
    timestamp_max_ms: int
    index_crc: int
    sections_crc: int

    @property
    def tail_bytes(self) -> int:
        """Index, sections and footer together."""
        return self.index_bytes + self.sections_bytes + FOOTER_BYTES

    @property
    def file_bytes(self) -> int:
        return self.index_offset + self.tail_bytes

    @property
    def crc(self) -> int:
        return crc32c(self._fields())

    def encode(self) -> bytes:
        fields = self._fields()
        return fields + CRC.pack(crc32c(fields)) + MAGIC_END

    def _fields(self) -> bytes:
        return FOOTER_FIELDS.pack(
            self.block_count,
            self.index_offset,
            self.index_bytes,
            self.sections_bytes,
            self.base,
            self.end,
            self.record_count,
            self.timestamp_min_ms,
            self.timestamp_max_ms,
            self.index_crc,
            self.sections_crc,
            0,
            VERSION,
        )


def encode_file_header(tp: TopicPartition) -> bytes:
    head = FILE_HEADER.pack(MAGIC_FILE, VERSION, 0, tp.topic_id.bytes, tp.partition, 0)
    head = head[: -CRC.size]
    return head + CRC.pack(crc32c(head))


def decode_file_header(data: Buffer) -> TopicPartition:
    """Whose segment this is, from the first bytes of the file. Raises Corrupt, DecodeError."""
    if len(data) < FILE_HEADER_BYTES:
        raise Corrupt(f"file header cut short after {len(data)} bytes")
    magic, version, flags, topic_id, partition, crc = FILE_HEADER.unpack_from(data)
    if magic != MAGIC_FILE:
        raise Corrupt(f"file begins with {magic!r}, not {MAGIC_FILE!r}: not a STRM segment")
    computed = crc32c(memoryview(data)[: FILE_HEADER_BYTES - CRC.size])
    if computed != crc:
        raise Corrupt(f"file header has checksum {computed:08x}, expected {crc:08x}")
    _check_version("file header", version, flags)
    return TopicPartition(TopicId(UUID(bytes=topic_id)), partition)


def decode_footer(data: Buffer, file_size: int) -> Footer:
    """The footer from the last bytes of a file of `file_size` bytes.

    Raises Corrupt for damage, DecodeError for a version this reader does not know.
    """
    if file_size < SEGMENT_BYTES_MIN or len(data) < FOOTER_BYTES:
        raise Corrupt(f"a file of {file_size} bytes is too short for a STRM segment")
    last = memoryview(data)[len(data) - FOOTER_BYTES :]
    if last[-len(MAGIC_END) :] != MAGIC_END:
        raise Corrupt(
            f"file of {file_size} bytes ends with {bytes(last[-len(MAGIC_END) :])!r}, not "
            f"{MAGIC_END!r}: cut short or not a STRM segment"
        )
    *fields, flags, version = FOOTER_FIELDS.unpack_from(last)
    (crc,) = CRC.unpack_from(last, FOOTER_FIELDS.size)
    computed = crc32c(last[: FOOTER_FIELDS.size])
    # Another version may have a footer of another length, so its version is looked at first.
    if computed != crc and version == VERSION:
        raise Corrupt(f"footer has checksum {computed:08x}, expected {crc:08x}")
    _check_version("footer", version, flags)
    footer = Footer(*fields)
    _check_footer(footer, file_size)
    return footer


def _check_version(where: str, version: int, flags: int) -> None:
    if version != VERSION:
        raise DecodeError(f"{where} says version {version}; this reader knows version {VERSION}")
    if flags:
        raise DecodeError(f"{where} has flags {flags:#06x}, which this reader does not know")


def _check_footer(footer: Footer, file_size: int) -> None:
    if footer.index_bytes > INDEX_BYTES_MAX or footer.sections_bytes > SECTIONS_BYTES_MAX:
        raise Corrupt(
            f"footer claims {footer.index_bytes} bytes of index and {footer.sections_bytes} of "
            f"sections; at most {INDEX_BYTES_MAX} and {SECTIONS_BYTES_MAX} are allowed"
        )
    if footer.index_offset < FILE_HEADER_BYTES or footer.file_bytes != file_size:
        raise Corrupt(
            f"footer describes a file of {footer.file_bytes} bytes with its index at "
            f"{footer.index_offset}, but the file has {file_size}"
        )
    if not 0 <= footer.base < footer.end:
        raise Corrupt(f"footer's offsets [{footer.base}, {footer.end}) are not a range")
    if footer.record_count > footer.end - footer.base:
        raise Corrupt(
            f"footer's {footer.record_count} records do not fit [{footer.base}, {footer.end})"
        )
    if footer.timestamp_min_ms > footer.timestamp_max_ms:
        raise Corrupt(
            f"footer's timestamps {footer.timestamp_min_ms} to {footer.timestamp_max_ms} "
            f"are not a range"
        )
