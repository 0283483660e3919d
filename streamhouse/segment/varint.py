"""Unsigned variable-length integers: seven bits a byte, low bits first, at most 64 bits."""

from streamhouse.model.errors import DecodeError
from streamhouse.segment.layout import Buffer

UVARINT_BYTES_MAX = 10


def put_uvarint(out: bytearray, value: int) -> None:
    assert 0 <= value < 1 << 64, f"{value} does not fit an unsigned 64-bit varint"
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_uvarint(buf: Buffer, at: int) -> tuple[int, int]:
    """Return (value, next position). Raises DecodeError when cut short or above 64 bits."""
    value = 0
    for i in range(UVARINT_BYTES_MAX):
        if at + i >= len(buf):
            raise DecodeError(f"uvarint cut short at byte {at + i}")
        byte = buf[at + i]
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            if value >> 64:
                raise DecodeError(f"uvarint above 64 bits at byte {at}")
            return value, at + i + 1
    raise DecodeError(f"uvarint longer than {UVARINT_BYTES_MAX} bytes at byte {at}")
