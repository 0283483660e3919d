"""The four codecs of record batches, as clients really frame them, with a bound on the output.

Owns: bytes of a batch's records section <-> its compressed form. gzip is RFC 1952 (members may be
concatenated), snappy is raw (librdkafka) or in the xerial framing (Java), lz4 is the frame format,
zstd is one or more frames. Hostile input gives DecodeError and nothing else, and never more than
`RECORDS_BYTES_MAX` of output.
"""

import struct
import zlib
from enum import IntEnum
from typing import Final

import cramjam
import lz4.frame
import zstandard

from streamhouse.kafka_proto.primitives import Buffer, read_span
from streamhouse.model.errors import DecodeError
from streamhouse.model.limits import MIB

RECORDS_BYTES_MAX: Final = 64 * MIB  # of one batch, decompressed
ZSTD_WINDOW_BYTES_MAX: Final = 128 * MIB  # what zstd's strongest level asks for

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024  # Java's block size
_ZSTD_STEP_BYTES: Final = 256 * 1024
_GZIP_WBITS: Final = 16 + zlib.MAX_WBITS


class Compression(IntEnum):
    """Bits 0-2 of a batch's attributes; 5-7 mean nothing."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Compression, raw: bytes) -> bytes:
    """Frame `raw` as Java's client does."""
    match codec:
        case Compression.NONE:
            return raw
        case Compression.GZIP:
            packer = zlib.compressobj(wbits=_GZIP_WBITS)
            return packer.compress(raw) + packer.flush()
        case Compression.SNAPPY:
            return _snappy_blocks(raw)
        case Compression.LZ4:
            packed: bytes = lz4.frame.compress(
                raw, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False
            )
            return packed
        case Compression.ZSTD:
            return zstandard.ZstdCompressor().compress(raw)


def decompress(codec: int, packed: Buffer, *, bytes_max: int = RECORDS_BYTES_MAX) -> bytes:
    """Undo `compress`, and what other clients do in its place."""
    match codec:
        case Compression.NONE:
            return bytes(packed)
        case Compression.GZIP:
            return _gunzip(packed, bytes_max)
        case Compression.SNAPPY:
            return _unsnappy(packed, bytes_max)
        case Compression.LZ4:
            return _unlz4(packed, bytes_max)
        case Compression.ZSTD:
            return _unzstd(packed, bytes_max)
    raise DecodeError(f"compression codec {codec} does not exist")


def _gunzip(packed: Buffer, bytes_max: int) -> bytes:
    out = bytearray()
    rest = bytes(packed)
    while True:
        unpacker = zlib.decompressobj(wbits=_GZIP_WBITS)
        try:
            out += unpacker.decompress(rest, bytes_max - len(out) + 1)
        except zlib.error as error:
            raise DecodeError(f"gzip: {error}") from error
        _check_bound(len(out), bytes_max)
        if not unpacker.eof:
            raise DecodeError("gzip: the stream is cut short")
        rest = unpacker.unused_data
        if not rest:
            return bytes(out)


def _snappy_blocks(raw: bytes) -> bytes:
    parts = [_XERIAL_HEADER]
    for at in range(0, len(raw), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(raw[at : at + _XERIAL_BLOCK_BYTES]))
        parts += (struct.pack(">i", len(block)), block)
    return b"".join(parts)


def _unsnappy(packed: Buffer, bytes_max: int) -> bytes:
    view = bytes(packed)
    if not view.startswith(_XERIAL_MAGIC):
        return _unsnappy_raw(view, bytes_max)
    at = read_span(view, 0, len(_XERIAL_HEADER))
    out = bytearray()
    while at < len(view):
        start = read_span(view, at, 4)
        end = read_span(view, start, int.from_bytes(view[at:start], "big", signed=True))
        out += _unsnappy_raw(view[start:end], bytes_max - len(out))
        at = end
    return bytes(out)


def _unsnappy_raw(packed: bytes, bytes_max: int) -> bytes:
    try:
        _check_bound(cramjam.snappy.decompress_raw_len(packed), bytes_max)
        return bytes(cramjam.snappy.decompress_raw(packed))
    except cramjam.DecompressionError as error:
        raise DecodeError(f"snappy: {error}") from error


def _unlz4(packed: Buffer, bytes_max: int) -> bytes:
    unpacker = lz4.frame.LZ4FrameDecompressor()
    try:
        out: bytes = unpacker.decompress(bytes(packed), max_length=bytes_max + 1)
    except (RuntimeError, MemoryError) as error:
        raise DecodeError(f"lz4: {error}") from error
    _check_bound(len(out), bytes_max)
    if not unpacker.eof:
        raise DecodeError("lz4: the frame is cut short")
    return out


def _unzstd(packed: Buffer, bytes_max: int) -> bytes:
    # A frame that is cut short ends the reader quietly; the record count then does not add up.
    unpacker = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES_MAX)
    out = bytearray()
    try:
        with unpacker.stream_reader(bytes(packed), read_across_frames=True) as reader:
            while piece := reader.read(_ZSTD_STEP_BYTES):
                out += piece
                _check_bound(len(out), bytes_max)
    except zstandard.ZstdError as error:
        raise DecodeError(f"zstd: {error}") from error
    return bytes(out)


def _check_bound(size: int, bytes_max: int) -> None:
    if size > bytes_max:
        raise DecodeError(f"the records decompress to more than {bytes_max} bytes")
