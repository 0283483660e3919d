"""Frames and headers: where a request begins and ends, and whom it is for.

Owns: the size prefix and its limits, request headers 1 and 2, response headers 0 and 1.
Must not know: sockets, buffers' lifetimes, message bodies.
Invariant: a header that parses belongs to an API and version of `apis.APIS`; everything else is
DecodeError, UnsupportedRequest where the caller may have to answer.
"""

import struct
from typing import Final, NamedTuple

from streamhouse.kafka_proto.apis import (
    APIS,
    FIRST_FLEXIBLE,
    UnsupportedRequest,
    has_tagged_response_header,
)
from streamhouse.kafka_proto.primitives import INT32, Buffer, read_span, skip_tags
from streamhouse.model.errors import DecodeError
from streamhouse.model.limits import FRAME_BYTES_MAX

SIZE_BYTES: Final = 4
FRAME_BYTES_MIN: Final = 10  # key, version, correlation id and the length of the client id

_FIXED: Final = struct.Struct(">hhih")
_SIZE_AND_ID: Final = struct.Struct(">ii")

_SERVED: Final = {
    api.key: (api.served_min, api.version_max, FIRST_FLEXIBLE[api.key]) for api in APIS.values()
}
_NOT_SERVED: Final = (1, 0, 0)  # an empty range


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_at: int  # where the body begins in the frame


def frame_size(buf: Buffer, at: int = 0, *, bytes_max: int = FRAME_BYTES_MAX) -> int:
    """The size announced by the prefix at `at`; the frame's bytes follow the prefix."""
    if len(buf) - at < SIZE_BYTES:
        raise DecodeError("the size of the frame is cut short")
    size: int = INT32.unpack_from(buf, at)[0]
    if size < FRAME_BYTES_MIN:
        raise DecodeError(f"a frame of {size} bytes cannot hold a request")
    if size > bytes_max:
        raise DecodeError(f"a frame of {size} bytes; at most {bytes_max} are allowed")
    return size


def split_frames(
    buf: memoryview, *, bytes_max: int = FRAME_BYTES_MAX
) -> tuple[list[memoryview], int]:
    """The whole frames in `buf` without their prefixes, and how many bytes they take."""
    frames: list[memoryview] = []
    at = 0
    while len(buf) - at >= SIZE_BYTES:
        end = at + SIZE_BYTES + frame_size(buf, at, bytes_max=bytes_max)
        if end > len(buf):
            break
        frames.append(buf[at + SIZE_BYTES : end])
        at = end
    return frames, at


def parse_request_header(frame: memoryview) -> RequestHeader:
    """Read the header of a frame (without size prefix).

    Raises UnsupportedRequest, which carries the correlation id, before anything behind it is
    looked at: what follows may be in a format we do not know.
    """
    if len(frame) < FRAME_BYTES_MIN:
        raise DecodeError(f"a request header cut short at {len(frame)} bytes")
    api_key, api_version, correlation_id, client_id_bytes = _FIXED.unpack_from(frame)
    served_min, version_max, first_flexible = _SERVED.get(api_key, _NOT_SERVED)
    if not served_min <= api_version <= version_max:
        raise UnsupportedRequest(api_key, api_version, correlation_id)
    at = FRAME_BYTES_MIN
    client_id = None
    if client_id_bytes != -1:  # not compact, not even in header 2
        end = read_span(frame, at, client_id_bytes)
        try:
            client_id = str(frame[at:end], "utf-8")
        except UnicodeDecodeError as error:
            raise DecodeError("the client id is not UTF-8") from error
        at = end
    if api_version >= first_flexible:
        at = skip_tags(frame, at)
    return RequestHeader(api_key, api_version, correlation_id, client_id, at)


def encode_response_frame(
    api_key: int, api_version: int, correlation_id: int, body: bytes
) -> bytes:
    """Size prefix, response header and body as one frame."""
    tags = b"\x00" if has_tagged_response_header(api_key, api_version) else b""
    head = _SIZE_AND_ID.pack(4 + len(tags) + len(body), correlation_id)
    return head + tags + body
