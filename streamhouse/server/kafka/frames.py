"""Bytes from a socket into whole frames, with as few copies as possible. No I/O.

Small frames are copied out of one reused buffer; a large one gets a buffer of its own, which the
socket fills directly. Either way a frame owns its memory, so record batches may stay slices of it.
Memory follows the bytes that came, not those that were announced: very large buffers grow.
"""

from collections.abc import Iterator

from streamhouse.kafka_proto.framing import SIZE_BYTES, frame_size
from streamhouse.model.limits import FRAME_BYTES_MAX, FRAME_BYTES_POOLED, FRAME_BYTES_TRUSTED


class FrameReader:
    def __init__(self, bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._pool = bytearray(FRAME_BYTES_POOLED)
        self._view = memoryview(self._pool)
        self._start = 0  # of the first byte not yet given out
        self._end = 0  # of what was received
        self._large: bytearray | None = None
        self._large_size = 0  # of the frame; its buffer may still be shorter
        self._filled = 0

    def buffer(self) -> memoryview:
        """Where the next bytes go; never empty."""
        if self._large is not None:
            if self._filled == len(self._large):
                self._large = self._grown(self._large)
            return memoryview(self._large)[self._filled :]
        if self._start and self._end == len(self._pool):
            rest = self._end - self._start
            self._pool[:rest] = self._pool[self._start : self._end]
            self._start, self._end = 0, rest
        return self._view[self._end :]

    def received(self, count: int) -> Iterator[memoryview]:
        """Note that `count` bytes arrived; yield the frames that are whole now.

        Raises DecodeError for a size that no frame may have.
        """
        if self._large is not None:
            self._filled += count
            if self._filled == self._large_size:
                frame, self._large = self._large, None
                yield memoryview(frame)
            return
        self._end += count
        yield from self._split()

    def _split(self) -> Iterator[memoryview]:
        while self._end - self._start >= SIZE_BYTES:
            size = frame_size(self._pool, self._start, bytes_max=self._bytes_max)
            body = self._start + SIZE_BYTES
            if body + size <= self._end:
                self._start = body + size
                yield memoryview(bytearray(self._view[body : body + size]))
            elif size + SIZE_BYTES > len(self._pool) // 2:
                self._begin_large(size, body)
                return
            else:
                break
        if self._start == self._end:
            self._start = self._end = 0

    def _begin_large(self, size: int, body: int) -> None:
        self._large = bytearray(min(size, FRAME_BYTES_TRUSTED))
        self._large_size = size
        self._filled = self._end - body
        self._large[: self._filled] = self._view[body : self._end]
        self._start = self._end = 0

    def _grown(self, filled: bytearray) -> bytearray:
        """A buffer of twice the size: whoever sent so much may send as much again."""
        larger = bytearray(min(self._large_size, 2 * len(filled)))
        larger[: len(filled)] = filled
        return larger
