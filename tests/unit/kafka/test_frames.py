"""Frames from a byte stream, however it is cut."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamhouse.model.errors import DecodeError
from streamhouse.model.limits import FRAME_BYTES_POOLED
from streamhouse.server.kafka.frames import FrameReader


def feed(reader: FrameReader, stream: bytes, cuts: list[int]) -> list[bytes]:
    found: list[bytes] = []
    at = 0
    for cut in [*cuts, 1 << 20] * (len(stream) + 1):
        if at == len(stream):
            break
        room = reader.buffer()
        count = max(1, min(cut, len(room), len(stream) - at))
        room[:count] = stream[at : at + count]
        at += count
        found += [bytes(frame) for frame in reader.received(count)]
    return found


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(
        st.sampled_from([10, 11, 500, 40_000, FRAME_BYTES_POOLED - 4, FRAME_BYTES_POOLED, 200_000]),
        min_size=1,
        max_size=6,
    ),
    cuts=st.lists(st.sampled_from([1, 3, 4, 700, 30_000, 65_536]), min_size=1, max_size=5),
)
def test_frames_come_whole_and_in_order(sizes: list[int], cuts: list[int]) -> None:
    frames = [bytes([number]) * size for number, size in enumerate(sizes)]
    stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    assert feed(FrameReader(), stream, [cut for cut in cuts if cut > 3] or [700]) == frames


def test_one_byte_at_a_time() -> None:
    frames = [b"a" * 12, b"b" * 40]
    stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    assert feed(FrameReader(), stream, [1]) == frames


def test_a_frame_owns_its_memory() -> None:
    """Goal: batches stay slices of the frame, so later bytes must not reach it."""
    reader = FrameReader()
    stream = struct.pack(">i", 10) + b"a" * 10
    reader.buffer()[: len(stream)] = stream
    (first,) = reader.received(len(stream))
    reader.buffer()[: len(stream)] = struct.pack(">i", 10) + b"b" * 10
    list(reader.received(len(stream)))
    assert bytes(first) == b"a" * 10
    assert not first.readonly


@pytest.mark.parametrize("size", [-1, 0, 9, 2**31 - 1, -(2**31)])
def test_sizes_no_frame_can_have_are_refused(size: int) -> None:
    reader = FrameReader()
    reader.buffer()[:4] = struct.pack(">i", size)
    with pytest.raises(DecodeError):
        list(reader.received(4))
