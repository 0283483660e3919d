"""The write-ahead log in files: group commit, rotation, trimming, reading back.

Owns: the order of writes. Its only I/O is the Disk port, so the same code runs in the simulation.
Must not know: what an entry's body means.

Invariants:
- One write is under way at a time, and `on_durable` follows its fdatasync. After a failed write
  nothing is written and nothing is called durable any more.
- Every write lies within a file that was zero-filled before, so a full disk shows as missing room
  in `append`, never as an error of a write.
- Files are freed oldest first. A freed file is reused or deleted only after a durable group or
  header has said that its generation is no longer live.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import islice

from streamhouse.model.errors import Invalid, NotFound, StartRefused, Unavailable
from streamhouse.model.ids import TopicPartition
from streamhouse.ports.clock import Ids
from streamhouse.ports.disk import Disk
from streamhouse.ports.wal import WalEntry, WalEvents
from streamhouse.wal.format import (
    GROUP_HEADER_BYTES,
    HEADER_BLOCK_BYTES,
    RECORD_HEADER_BYTES,
    SECTOR_BYTES,
    FileHeader,
    GroupStamp,
    align,
    check_record,
    checksum_seed,
    encode_file_header,
    encode_group,
)
from streamhouse.wal.live_file import LiveFile
from streamhouse.wal.recovery import Recovered, Recovery, WalLoss, WalOptions, file_name

GATHER_TURNS_MAX = 10
LOW_PART = 4  # low once less than a quarter is free
READ_GAP_BYTES = 64 * 1024  # entries closer than this are read together
READ_BYTES_MAX = 2 * 1024 * 1024
_COST_EXTRA = GROUP_HEADER_BYTES + RECORD_HEADER_BYTES + SECTOR_BYTES - 1

_log = logging.getLogger(__name__)

_Place = tuple[int, int, int]  # sequence, position of the record, its length


class _Slot:
    """Queued entries that will go to one file. The first slot is the file being written."""

    __slots__ = ("cost_bytes", "count", "limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.count = 0
        self.cost_bytes = 0  # what the entries take if each is written alone: the worst case
        self.limit_bytes = limit_bytes


class FileWal:
    """Implements ports.wal.Wal. `replay` (to its end), then `start`, then the rest."""

    def __init__(self, disk: Disk, ids: Ids, options: WalOptions | None = None) -> None:
        self._disk = disk
        self._options = options or WalOptions()
        self._slot_bytes = self._options.file_bytes - HEADER_BLOCK_BYTES - SECTOR_BYTES
        self._recovery = Recovery(disk, ids, self._options)
        self._opened = False
        self._replay_begun = False
        self._replayed = False

        self._events: WalEvents | None = None
        self._writer: asyncio.Task[None] | None = None
        self._preparer: asyncio.Task[None] | None = None
        self._work = asyncio.Event()  # something for the writer
        self._supply = asyncio.Event()  # something for the preparer
        self._stopped = False  # closed or failed: nothing is accepted
        self._failed = False
        self._supply_ended = False

        self._queue: deque[WalEntry] = deque()
        self._queued_bytes = 0
        self._waiting = 0  # queued entries somebody waits for
        self._linger: asyncio.TimerHandle | None = None
        self._overdue = False
        self._group_last = 0  # entries of the last group that somebody waited for
        self._plan: deque[_Slot] = deque()

        self._files: list[LiveFile] = []  # oldest first; the last is being written
        self._at = 0  # where the next group goes
        self._file_end = 0  # entries end here; one more sector is kept for a group without any
        self._seed = 0
        self._sequence = 0  # of the last appended entry
        self._durable = 0
        self._oldest_live = 0
        self._oldest_live_durable = 0
        self._accepted_below = 0

        self._crowded = False  # recovery needed a file beyond the bound: first some must go
        self._ready: deque[str] = deque()  # zero-filled or reusable
        self._retired: list[LiveFile] = []  # freed, but the disk does not know yet
        self._doomed: list[str] = []  # to be deleted
        self._next_number = 1
        self._prepare_failed = False
        self._trims: list[tuple[int, asyncio.Future[None]]] = []

    @property
    def wal_id(self) -> str:
        assert self._recovery.recovered.wal_id, "known after open"
        return self._recovery.recovered.wal_id

    @property
    def losses(self) -> tuple[WalLoss, ...]:
        """What could not be read and was accepted as lost; known after replay."""
        return tuple(self._recovery.losses)

    @property
    def queued_bytes(self) -> int:
        return self._queued_bytes

    @property
    def room_bytes(self) -> int:
        """An upper bound: each entry also takes headers and rounding to whole sectors."""
        if self._stopped or self._crowded or not self._plan:
            return 0
        slot = self._plan[-1]
        left = max(0, slot.limit_bytes - slot.cost_bytes)
        return left + self._files_plannable() * self._slot_bytes

    @property
    def is_low(self) -> bool:
        return self.room_bytes < self._options.bytes_max // LOW_PART

    @property
    def files_count(self) -> int:
        """Files on disk, live or spare."""
        return len(self._files) + len(self._retired) + len(self._ready) + len(self._doomed)

    async def open(self) -> None:
        """Find the files and judge the newest. Raises StartRefused on damage."""
        if not self._opened:
            self._opened = True
            await self._recovery.survey()

    async def replay(self) -> AsyncIterator[tuple[int, WalEntry]]:
        """Yield (sequence, entry) of everything durable, in order. Once, before `start`.

        A body is a view of the piece of file it was read in: it stays valid as long as it is held,
        and holds the whole piece (recovery.PIECE_BYTES) in memory. Copy what is kept for long.
        """
        assert not self._replay_begun, "replay runs once"
        self._replay_begun = True
        await self.open()
        async for numbered in self._recovery.entries():
            yield numbered
        self._files = self._recovery.recovered.files
        self._sequence = self._durable = self._recovery.recovered.next_sequence - 1
        self._replayed = True

    async def start(self, events: WalEvents) -> None:
        """Begin a new generation in a file of its own: a cut tail is never written over.

        Entries that were not known to be durable are copied there first. The new file counts only
        once all its copies are readable, so a crash at any point here changes nothing.
        """
        assert self._events is None, "start runs once"
        if not self._replay_begun:
            async for _ in self.replay():
                pass
        assert self._replayed, "replay must have come to its end"
        found = self._recovery.recovered
        try:
            await self._begin_generation(found)
        except OSError as error:
            raise StartRefused(
                f"the WAL cannot be written: {error}; free disk space or check the disk"
            ) from error
        self._events = events
        self._writer = asyncio.create_task(self._write(), name="wal writer")
        self._writer.add_done_callback(self._on_writer_done)
        self._preparer = asyncio.create_task(self._prepare(), name="wal preparer")

    def append(self, entry: WalEntry) -> int:
        size = len(entry.body)
        cost = (size + _COST_EXTRA) & -SECTOR_BYTES
        if self._stopped:
            raise Unavailable("the write-ahead log is stopped")
        if self._crowded:
            raise Unavailable("no room in the write-ahead log: segments must be stored first")
        slot = self._plan[-1]
        if slot.cost_bytes + cost > slot.limit_bytes:
            slot = self._next_slot(cost)
        slot.cost_bytes += cost
        slot.count += 1
        self._queue.append(entry)
        self._queued_bytes += size
        self._sequence += 1
        if entry.acks:
            self._waiting += 1
            self._work.set()
        elif self._linger is None:
            self._start_linger()
        return self._sequence

    async def read(self, sequence: int) -> bytes:
        return (await self.read_many((sequence,)))[0]

    async def read_many(self, sequences: Sequence[int]) -> list[bytes]:
        """Entries of many partitions lie mixed; neighbours with small gaps share a read."""
        found: list[bytes] = []
        for file, places in self._spans(sequences):
            start, stop = places[0][1], places[-1][1] + places[-1][2]
            try:
                data = await self._disk.read(file.name, start, stop - start)
            except FileNotFoundError:  # trimmed and deleted meanwhile
                data = b""
            for sequence, at, length in places:
                record = data[at - start : at - start + length]
                if not check_record(record, generation=file.generation, sequence=sequence):
                    raise NotFound(f"WAL entry {sequence} was trimmed while it was read")
                found.append(record[RECORD_HEADER_BYTES:])
        return found

    def _spans(self, sequences: Sequence[int]) -> list[tuple[LiveFile, list[_Place]]]:
        """Group entries that one read can bring: same file, ascending, small gaps."""
        spans: list[tuple[LiveFile, list[_Place]]] = []
        for sequence in sequences:
            file = self._file_of(sequence)
            place = file.locate(sequence) if file is not None else None
            if file is None or place is None:
                raise NotFound(f"WAL entry {sequence} was trimmed or is not durable")
            at, length = place
            if spans and spans[-1][0] is file:
                places = spans[-1][1]
                gap = at - (places[-1][1] + places[-1][2])
                if 0 <= gap <= READ_GAP_BYTES and at + length - places[0][1] <= READ_BYTES_MAX:
                    places.append((sequence, at, length))
                    continue
            spans.append((file, [(sequence, at, length)]))
        return spans

    async def trim(self, segments_end: Mapping[TopicPartition, int]) -> None:
        """Free closed files from the oldest on; returns when they can be used again."""
        free = 0
        while free < len(self._files) - 1 and self._files[free].is_free(segments_end):
            free += 1
        if not free or self._stopped:
            return
        self._retired += self._files[:free]
        del self._files[:free]
        self._oldest_live = self._files[0].generation
        known = asyncio.get_running_loop().create_future()
        self._trims.append((self._oldest_live, known))
        self._work.set()
        await known

    def oldest(self) -> frozenset[TopicPartition]:
        return frozenset(self._files[0].ends) if self._files else frozenset()

    async def close(self) -> None:
        """Write and sync what is queued, then stop. Entries without room are dropped, unacked."""
        self._stopped = True
        self._work.set()
        self._supply.set()
        if self._linger is not None:
            self._linger.cancel()
        tasks = [task for task in (self._writer, self._preparer) if task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    # Starting

    async def _begin_generation(self, found: Recovered) -> None:
        for name in found.unfit:
            await self._disk.delete(name)
        self._next_number = found.next_number
        self._accepted_below = found.accepted_below
        self._ready.extend(found.spares)
        kept = [file for file in found.files if file.first_sequence < found.copy_from]
        copied = found.files[len(kept) :]
        self._files = kept
        bodies_bytes = sum(len(entry.body) for entry in found.tail)
        file_bytes = self._file_bytes_for(len(found.tail), bodies_bytes)
        if file_bytes > self._options.file_bytes or not self._ready:
            self._ready.appendleft(await self._create(file_bytes))
        first = found.copy_from
        await self._open(found.next_generation, first, file_bytes)
        self._plan.append(_Slot(self._slot_bytes))
        if found.tail:  # in one group, whatever its size
            assert first + len(found.tail) == found.next_sequence
            await self._write_group(found.tail, bodies_bytes, first=first, durable=first - 1)
            found.tail = []
        self._plan[0].limit_bytes = self._file_end - self._at
        self._release(copied)
        self._note_crowd()

    def _file_bytes_for(self, count: int, bodies_bytes: int) -> int:
        """The usual size, unless it was set below what the copies need."""
        group_bytes = align(GROUP_HEADER_BYTES + RECORD_HEADER_BYTES * count + bodies_bytes)
        return max(self._options.file_bytes, HEADER_BLOCK_BYTES + group_bytes + SECTOR_BYTES)

    async def _open(self, generation: int, first_sequence: int, file_bytes: int) -> None:
        """Make the next ready file the one that is written. Its header is durable before groups."""
        name = self._ready.popleft()
        previous = self._files[-1].generation if self._files else 0
        self._oldest_live = self._files[0].generation if self._files else generation
        header = FileHeader(
            wal_id=self.wal_id,
            generation=generation,
            previous=previous,
            oldest_live=self._oldest_live,
            first_sequence=first_sequence,
            copied_last=self._durable,
            accepted_below=self._accepted_below,
            file_bytes=file_bytes,
        )
        self._files.append(LiveFile(name, generation, first_sequence, file_bytes))
        self._at = HEADER_BLOCK_BYTES
        self._file_end = file_bytes - SECTOR_BYTES
        self._seed = checksum_seed(header.wal_id, generation)
        await self._disk.write_synced(name, 0, [encode_file_header(header)])
        self._on_oldest_live_durable(header.oldest_live)

    # Appending

    def _next_slot(self, cost: int) -> _Slot:
        """Plan for one more file, which must exist or be possible."""
        if cost > self._slot_bytes:
            raise Invalid(
                f"an entry of {cost} bytes does not fit in a WAL file of "
                f"{self._options.file_bytes} bytes"
            )
        if not self._files_plannable():
            why = "the disk is full" if self._prepare_failed else "segments must be stored first"
            raise Unavailable(f"no room in the write-ahead log: {why}")
        slot = _Slot(self._slot_bytes)
        self._plan.append(slot)
        self._supply.set()
        self._work.set()
        return slot

    def _files_plannable(self) -> int:
        """Further files that entries may be planned for: ready ones, and those to be made."""
        makeable = 0 if self._prepare_failed else self._options.files_max - self.files_count
        return max(0, len(self._ready) + max(0, makeable) - (len(self._plan) - 1))

    def _start_linger(self) -> None:
        delay_s = self._options.batch_max_age_ms / 1000
        self._linger = asyncio.get_running_loop().call_later(delay_s, self._on_linger_over)

    def _on_linger_over(self) -> None:
        self._linger = None
        if self._queue:
            self._overdue = True
            self._work.set()

    # Writing

    async def _write(self) -> None:
        while True:
            self._work.clear()
            if self._plan[0].count:
                if self._is_due():
                    await self._gather()
                    await self._write_queued()
                    continue
            elif self._ready and (len(self._plan) > 1 or self._must_rotate_to_tell()):
                await self._rotate()
                continue
            elif self._must_tell() and self._at <= self._file_end:
                await self._write_group([], 0, first=self._durable + 1, durable=self._durable)
                continue
            if self._stopped and (not self._queue or self._supply_ended):
                return
            await self._work.wait()

    async def _gather(self) -> None:
        """Give requests that are on their way a few turns of the loop to join the group.

        Clients with several requests in flight send the next ones when answers arrive, so a group
        that starts with the first of them leaves the rest to wait for a whole sync. The size of the
        last group says whether more can be expected; a lone writer never waits.
        """
        turns = GATHER_TURNS_MAX if self._waiting else 0
        while turns and self._waiting < self._group_last:
            turns -= 1
            await asyncio.sleep(0)

    def _is_due(self) -> bool:
        return bool(
            self._waiting
            or self._overdue
            or self._stopped
            or len(self._plan) > 1
            or self._queued_bytes >= self._options.group_bytes_max
            or self._must_tell()
        )

    def _must_tell(self) -> bool:
        """Whether files were freed that the disk still calls live."""
        return self._oldest_live > self._oldest_live_durable

    def _must_rotate_to_tell(self) -> bool:
        return self._must_tell() and self._at > self._file_end

    async def _rotate(self) -> None:
        if len(self._plan) == 1:
            self._plan.append(_Slot(self._slot_bytes))
        assert not self._plan[0].count
        self._plan.popleft()
        self._supply.set()
        next_generation = self._files[-1].generation + 1
        await self._open(next_generation, self._durable + 1, self._options.file_bytes)

    async def _write_queued(self) -> None:
        waiting = self._waiting
        entries, bodies_bytes = self._take()
        waiting -= self._waiting
        last = self._durable + len(entries)
        await self._write_group(
            entries, bodies_bytes, first=self._durable + 1, durable=self._durable
        )
        self._durable = last
        self._group_last = waiting
        self._queued_bytes -= bodies_bytes
        assert self._events is not None
        self._events.on_durable(last)

    def _take(self) -> tuple[list[WalEntry], int]:
        """The next group: all that is queued for this file, up to the size of a group."""
        slot = self._plan[0]
        bodies_bytes = cost_bytes = count = waiting = 0
        for entry in islice(self._queue, slot.count):
            size = len(entry.body)
            if count and bodies_bytes + size > self._options.group_bytes_max:
                break
            count += 1
            bodies_bytes += size
            cost_bytes += (size + _COST_EXTRA) & -SECTOR_BYTES
            if entry.acks:
                waiting += 1
        entries = [self._queue.popleft() for _ in range(count)]
        self._waiting -= waiting
        slot.count -= count
        slot.cost_bytes -= cost_bytes
        if not self._queue:
            self._overdue = False
        return entries, bodies_bytes

    async def _write_group(
        self, entries: list[WalEntry], bodies_bytes: int, *, first: int, durable: int
    ) -> None:
        file = self._files[-1]
        at = self._at
        oldest_live = self._oldest_live
        stamp = GroupStamp(self._seed, file.generation, first, durable, oldest_live)
        buffers, length = encode_group(stamp, entries, bodies_bytes)
        self._index(file, entries, first, at)
        self._at = align(at + length)
        assert self._at <= file.file_bytes
        # A group takes less than its entries one by one: the difference is room again.
        self._plan[0].limit_bytes = self._file_end - self._at
        await self._disk.write_synced(file.name, at, buffers)
        self._on_oldest_live_durable(oldest_live)

    def _index(self, file: LiveFile, entries: list[WalEntry], sequence: int, at: int) -> None:
        body_at = at + GROUP_HEADER_BYTES + RECORD_HEADER_BYTES
        for entry in entries:
            size = len(entry.body)
            file.add(sequence, body_at, size)
            file.note_end(entry.tp, entry.end)
            sequence += 1
            body_at += RECORD_HEADER_BYTES + size

    # Freeing and preparing files

    def _on_oldest_live_durable(self, oldest_live: int) -> None:
        if oldest_live <= self._oldest_live_durable:
            return
        self._oldest_live_durable = oldest_live
        free = [file for file in self._retired if file.generation < oldest_live]
        self._retired = [file for file in self._retired if file.generation >= oldest_live]
        self._release(free)
        for generation, known in self._trims:
            if generation <= oldest_live and not known.done():
                known.set_result(None)
        self._trims = [(g, known) for g, known in self._trims if g > oldest_live]

    def _release(self, free: list[LiveFile]) -> None:
        for file in free:
            fit = file.file_bytes == self._options.file_bytes
            (self._ready.append if fit else self._doomed.append)(file.name)
        # One spare is always kept: telling the disk what was freed may take a new file.
        used = len(self._files) + len(self._retired)
        spares_max = min(self._options.spare_files_max, max(1, self._options.files_max - used))
        while len(self._ready) > spares_max:
            self._doomed.append(self._ready.pop())
        self._note_crowd()
        self._work.set()
        self._supply.set()

    def _note_crowd(self) -> None:
        """Each start opens a file of its own; without this a crash loop would fill the disk."""
        self._crowded = len(self._files) + len(self._retired) > self._options.files_max

    async def _prepare(self) -> None:
        """Keep one file ready ahead of what is planned; delete what is too much."""
        while not self._stopped or self._is_file_owed():
            self._supply.clear()
            try:
                if self._doomed:
                    await self._disk.delete(self._doomed[0])
                    del self._doomed[0]  # others may have been added behind it meanwhile
                    self._on_prepared()
                    continue
                if self._is_file_wanted():
                    self._ready.append(await self._create(self._options.file_bytes))
                    self._on_prepared()
                    continue
            except OSError as error:
                if self._stopped:
                    break
                await self._on_prepare_failed(error)
                continue
            await self._supply.wait()
        self._supply_ended = True
        self._work.set()  # the writer learns that no file will come

    def _is_file_wanted(self) -> bool:
        wanted = len(self._plan) - 1 if self._stopped else len(self._plan)
        return len(self._ready) < wanted and self.files_count < self._options.files_max

    def _is_file_owed(self) -> bool:
        """Closing, and entries that were accepted wait for a file that can be made."""
        return len(self._plan) > 1 and not self._failed and self._is_file_wanted()

    async def _create(self, file_bytes: int) -> str:
        name = file_name(self._next_number)
        self._next_number += 1
        await self._disk.create_zeroed(name, file_bytes)
        return name

    def _on_prepared(self) -> None:
        if self._prepare_failed:
            _log.info("WAL files can be made again")
        self._prepare_failed = False
        self._work.set()

    async def _on_prepare_failed(self, error: OSError) -> None:
        if not self._prepare_failed:
            _log.warning("no further WAL file can be made, writes are held back: %s", error)
        self._prepare_failed = True
        try:
            async with asyncio.timeout(self._options.prepare_retry_ms / 1000):
                while not self._stopped:
                    self._supply.clear()
                    await self._supply.wait()
        except TimeoutError:
            pass

    # Ending

    def _on_writer_done(self, writer: asyncio.Task[None]) -> None:
        error = None if writer.cancelled() else writer.exception()
        self._stopped = True
        self._supply.set()
        for _, known in self._trims:
            if not known.done():
                known.set_result(None)
        if error is not None:
            self._failed = True
            assert self._events is not None
            self._events.on_failed(error)

    def _file_of(self, sequence: int) -> LiveFile | None:
        if sequence > self._durable:
            return None
        for file in reversed(self._files):
            if file.first_sequence <= sequence:
                return file
        return None
