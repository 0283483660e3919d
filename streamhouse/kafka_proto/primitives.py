"""The small change of the wire format: varints, tagged fields, ids.

Owns: how one value of a primitive type is read and written. Every reader takes a buffer and a
position and returns (value, next position); hostile input gives DecodeError, or one of
`HOSTILE`, which the codec that called it turns into DecodeError at its door.
"""

import struct
from functools import lru_cache
from typing import Final
from uuid import UUID

from streamhouse.model.errors import DecodeError

Buffer = bytes | bytearray | memoryview

UVARINT_BYTES_MAX: Final = 5
UUIDS_CACHED_MAX: Final = 4_096  # ids of topics in use; building a UUID costs more than a lookup

# What plain Python raises when a read runs past the end or meets bytes that are not text. Codecs
# catch these once, around the whole message, instead of checking before each field.
HOSTILE: Final = (struct.error, IndexError, UnicodeDecodeError)

INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")
_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(0x80))


def read_uvarint(buf: Buffer, at: int) -> tuple[int, int]:
    """Seven bits a byte, low bits first, at most 32 bits."""
    try:
        byte = buf[at]
        if byte < 0x80:
            return byte, at + 1
        value = byte & 0x7F
        for i in range(1, UVARINT_BYTES_MAX):
            byte = buf[at + i]
            value |= (byte & 0x7F) << (7 * i)
            if byte < 0x80:
                if value >> 32:
                    raise DecodeError(f"uvarint above 32 bits at byte {at}")
                return value, at + i + 1
    except IndexError:
        raise DecodeError(f"uvarint cut short at byte {len(buf)}") from None
    raise DecodeError(f"uvarint longer than {UVARINT_BYTES_MAX} bytes at byte {at}")


def uvarint(value: int) -> bytes:
    """The encoding of an unsigned number."""
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_span(buf: Buffer, at: int, length: int) -> int:
    """The end of `length` bytes that begin at `at`, if the buffer has them."""
    end = at + length
    if length < 0 or end > len(buf):
        raise DecodeError(f"{length} bytes announced at byte {at}, {len(buf) - at} are left")
    return end


def read_tags(buf: Buffer, at: int) -> tuple[list[tuple[int, int, int]], int]:
    """Tagged fields as (tag, start, end), in ascending order of tags as KIP-482 demands."""
    count, at = read_uvarint(buf, at)
    if count > len(buf) - at:
        raise DecodeError(f"{count} tagged fields announced, {len(buf) - at} bytes are left")
    found: list[tuple[int, int, int]] = []
    tag_last = -1
    for _ in range(count):
        tag, at = read_uvarint(buf, at)
        if tag <= tag_last:
            raise DecodeError(f"tag {tag} follows tag {tag_last}")
        length, at = read_uvarint(buf, at)
        end = read_span(buf, at, length)
        found.append((tag, at, end))
        at, tag_last = end, tag
    return found, at


def skip_tags(buf: Buffer, at: int) -> int:
    """The position behind tagged fields nobody here wants."""
    if at < len(buf) and buf[at] == 0:
        return at + 1
    return read_tags(buf, at)[1]


def read_short_string(buf: memoryview, at: int) -> tuple[str | None, int]:
    """A nullable string with an int16 length; null is length -1."""
    length: int = INT16.unpack_from(buf, at)[0]
    at += 2
    if length == -1:
        return None, at
    end = read_span(buf, at, length)
    return str(buf[at:end], "utf-8"), end


def read_compact_string(buf: memoryview, at: int) -> tuple[str | None, int]:
    """A nullable string whose uvarint length is one more than its bytes; null is 0."""
    length, at = read_uvarint(buf, at)
    if length == 0:
        return None, at
    end = at + length - 1
    if end > len(buf):
        raise DecodeError(f"a string of {length - 1} bytes at byte {at}")
    return str(buf[at:end], "utf-8"), end


def short_string(value: str | None) -> bytes:
    if value is None:
        return b"\xff\xff"
    raw = value.encode()
    return len(raw).to_bytes(2, "big", signed=True) + raw


def compact_string(value: str | None) -> bytes:
    if value is None:
        return b"\x00"
    raw = value.encode()
    return uvarint(len(raw) + 1) + raw


def tagged(fields: list[tuple[int, bytes]]) -> bytes:
    """Tagged fields, given in ascending order of tags."""
    parts = [uvarint(len(fields))]
    for tag, body in fields:
        parts += (uvarint(tag), uvarint(len(body)), body)
    return b"".join(parts)


@lru_cache(maxsize=UUIDS_CACHED_MAX)
def uuid_of(raw: bytes) -> UUID | None:
    """The id behind 16 raw bytes; all zero means "no id"."""
    return UUID(bytes=raw) if raw != NO_UUID else None


def uuid_bytes(value: UUID | None) -> bytes:
    return NO_UUID if value is None else value.bytes


NO_UUID: Final = bytes(16)
