"""The newest batches of a partition, in chunks.

A chunk gathers batches until it is worth a STRM block. Its bytes stay in memory while the shared
budget allows; a chunk that had to give up its bytes before it was rolled can be read again from the
WAL by the sequence numbers it keeps. Rolled chunks stay as a cache until the budget needs the room.

Performs no I/O. Invariant: chunks are contiguous and ascending, and the last one may be open.
"""

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator

from streamhouse.agent.batch_run import BatchRun, index_for
from streamhouse.kafka_proto.record_batch import BatchHeader
from streamhouse.model.limits import CHUNK_BATCHES_MAX, CHUNK_BYTES_TARGET

Buffer = bytes | bytearray | memoryview


class Chunk:
    """Batches [base, end) of one partition."""

    __slots__ = (
        "appended_ms",
        "base",
        "bases",
        "bodies",
        "compressed",
        "end",
        "epoch_first",
        "epoch_last",
        "positions",
        "records",
        "rolled",
        "run",
        "sealed",
        "sequences",
        "size",
        "timestamp_max_ms",
        "timestamp_min_ms",
    )

    def __init__(self, base: int, epoch: int, now_ms: int) -> None:
        self.base = base
        self.end = base
        self.size = 0
        self.records = 0
        self.epoch_first = self.epoch_last = epoch
        self.appended_ms = now_ms  # of its first batch: the age that makes a partition due
        self.timestamp_min_ms = 2**63 - 1
        self.timestamp_max_ms = -1
        self.compressed = True  # every batch came compressed by its producer
        self.bases = array("q")
        self.positions = array("q")
        self.sequences = array("q")
        self.bodies: list[Buffer] = []
        self.run: BatchRun | None = None
        self.sealed = False
        self.rolled = False

    @property
    def resident(self) -> bool:
        return not self.sealed or self.run is not None

    def add(self, header: BatchHeader, base: int, epoch: int, body: Buffer, sequence: int) -> None:
        assert not self.sealed
        self.bases.append(base)
        self.positions.append(self.size)
        self.sequences.append(sequence)
        self.bodies.append(body)
        self.size += len(body)
        self.records += header.record_count
        self.end = base + header.last_offset_delta + 1
        self.epoch_last = epoch
        if header.base_timestamp_ms < self.timestamp_min_ms:
            self.timestamp_min_ms = header.base_timestamp_ms
        if header.max_timestamp_ms > self.timestamp_max_ms:
            self.timestamp_max_ms = header.max_timestamp_ms
        if not header.attributes & 0x07:
            self.compressed = False

    def seal(self) -> None:
        """Lay the batches end to end. Frees the receive buffers they were slices of."""
        assert not self.sealed
        body = self.bodies[0] if len(self.bodies) == 1 else b"".join(self.bodies)
        self.run = self.run_of(body)
        self.bodies = []
        self.sealed = True

    def run_of(self, body: Buffer) -> BatchRun:
        assert len(body) == self.size
        return BatchRun(memoryview(body), self.bases, self.positions, self.end)

    def cut(
        self, offset: int, stop_offset: int, bytes_max: int, at_least_one: bool
    ) -> list[Buffer]:
        """As BatchRun.cut; the chunk must be resident."""
        if self.run is not None:
            part = self.run.cut(offset, stop_offset, bytes_max, at_least_one)
            return [part] if len(part) else []
        found: list[Buffer] = []
        total = 0
        for index in range(index_for(self.bases, offset), len(self.bodies)):
            body = self.bodies[index]
            if self.bases[index] >= stop_offset:
                break
            if total + len(body) > bytes_max and not (at_least_one and not found):
                break
            found.append(body)
            total += len(body)
        return found


class TailBudget:
    """Memory of all tails together; the oldest sealed chunks give up their bytes first."""

    def __init__(self, bytes_max: int) -> None:
        assert bytes_max > 0
        self.bytes_max = bytes_max
        self.bytes_used = 0
        self._sealed: deque[tuple[Tail, Chunk]] = deque()

    def add_open(self, size: int) -> None:
        self.bytes_used += size

    def sealed(self, tail: "Tail", chunk: Chunk) -> None:
        self._sealed.append((tail, chunk))

    def shrink(self) -> None:
        """Evict until the budget holds. Chunks that are not durable yet are still needed."""
        while self.bytes_used > self.bytes_max and self._sealed:
            tail, chunk = self._sealed[0]
            if chunk.run is not None and not tail.may_evict(chunk):
                return
            self._sealed.popleft()
            if chunk.run is not None:
                tail.evict(chunk)

    def release(self, size: int) -> None:
        self.bytes_used -= size
        assert self.bytes_used >= 0


class Tail:
    """Chunks from `base` to the log end of one partition."""

    def __init__(self, budget: TailBudget, base: int) -> None:
        self._budget = budget
        self._chunks: list[Chunk] = []
        self._bases: list[int] = []
        self.end = base
        self.offset_durable = base
        self.bytes_unrolled = 0

    @property
    def base(self) -> int:
        """First offset this tail can serve."""
        return self._bases[0] if self._bases else self.end

    def append(
        self, header: BatchHeader, base: int, epoch: int, body: Buffer, sequence: int, now_ms: int
    ) -> None:
        chunk = self._open_chunk(base, epoch, now_ms)
        chunk.add(header, base, epoch, body, sequence)
        size = len(body)
        self.end = chunk.end
        self.bytes_unrolled += size
        self._budget.add_open(size)
        if chunk.size >= CHUNK_BYTES_TARGET or len(chunk.bases) >= CHUNK_BATCHES_MAX:
            self._seal(chunk)

    def _open_chunk(self, base: int, epoch: int, now_ms: int) -> Chunk:
        if self._chunks and not self._chunks[-1].sealed:
            if self._chunks[-1].end == base:
                return self._chunks[-1]
            self._seal(self._chunks[-1])  # a gap, left by accepted loss, lies between chunks
        chunk = Chunk(base, epoch, now_ms)
        self._chunks.append(chunk)
        self._bases.append(base)
        return chunk

    def _seal(self, chunk: Chunk) -> None:
        chunk.seal()
        self._budget.sealed(self, chunk)
        self._budget.shrink()

    def seal_open(self) -> None:
        """Close the open chunk, so that a roll can take it."""
        if self._chunks and not self._chunks[-1].sealed:
            self._seal(self._chunks[-1])

    def chunk_at(self, offset: int) -> Chunk | None:
        """The chunk that holds `offset`, or the next one if it lies in a gap."""
        if not self._bases or offset < self._bases[0] or offset >= self.end:
            return None
        index = bisect_right(self._bases, offset) - 1
        if offset >= self._chunks[index].end:  # a gap left by accepted WAL loss
            index += 1
        return self._chunks[index]

    def chunks_from(self, offset: int) -> Iterator[Chunk]:
        index = max(bisect_right(self._bases, offset) - 1, 0)
        for chunk in self._chunks[index:]:
            if chunk.end > offset:
                yield chunk

    def unrolled(self) -> list[Chunk]:
        return [chunk for chunk in self._chunks if not chunk.rolled]

    def oldest_unrolled_ms(self) -> int | None:
        """When the oldest unrolled batch arrived."""
        for chunk in self._chunks:
            if not chunk.rolled:
                return chunk.appended_ms
        return None

    def on_rolled(self, chunks: list[Chunk]) -> None:
        """The chunks are in a segment now: keep those in memory as a cache, drop the others."""
        for chunk in chunks:
            assert chunk.sealed
            assert not chunk.rolled
            chunk.rolled = True
            self.bytes_unrolled -= chunk.size
        self._drop_front()

    def may_evict(self, chunk: Chunk) -> bool:
        return chunk.end <= self.offset_durable

    def evict(self, chunk: Chunk) -> None:
        assert chunk.run is not None
        chunk.run = None
        self._budget.release(chunk.size)
        self._drop_front()

    def drop_all(self) -> None:
        """The partition is gone; give its memory back."""
        for chunk in self._chunks:
            if chunk.resident:
                self._budget.release(chunk.size)
                chunk.run, chunk.sealed, chunk.bodies = None, True, []
        self._chunks, self._bases, self.bytes_unrolled = [], [], 0

    def _drop_front(self) -> None:
        gone = 0
        for chunk in self._chunks:
            if not chunk.rolled or chunk.run is not None:
                break
            gone += 1
        if gone:
            del self._chunks[:gone]
            del self._bases[:gone]
