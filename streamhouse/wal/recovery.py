"""Reads a WAL directory after a stop or a crash: what is live, what is damaged, what comes next.

Only reads; `FileWal.start` performs what is decided here. So a crash during recovery leaves the
directory as it was, or with one more file that does not count until its copies are complete.

The live stream is a chain: the newest complete file, the file its header names as previous, and so
on down to the oldest live generation. A file is read up to the first sequence number of its
successor: beyond it lies a tail that was cut or copied.
"""

import logging
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from streamhouse.model.errors import StartRefused
from streamhouse.model.limits import MIB, WAL_BYTES_MAX, WAL_FILE_BYTES, WAL_GROUP_BYTES_MAX
from streamhouse.ports.clock import Ids
from streamhouse.ports.disk import Disk
from streamhouse.ports.wal import WalEntry
from streamhouse.wal.format import (
    GROUP_MAGIC,
    HEADER_BLOCK_BYTES,
    SECTOR_BYTES,
    FileHeader,
    Found,
    GroupHeader,
    NewerVersion,
    Scan,
    decode_file_header,
    find_groups,
)
from streamhouse.wal.live_file import LiveFile

PIECE_BYTES = 4 * MIB

_NAME = re.compile(r"^wal-(\d{8})\.log$")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WalOptions:
    file_bytes: int = WAL_FILE_BYTES
    bytes_max: int = WAL_BYTES_MAX
    group_bytes_max: int = WAL_GROUP_BYTES_MAX
    batch_max_age_ms: int = 10  # entries nobody waits for are grouped up to this long
    accept_loss: bool = False
    spare_files_max: int = 4  # free files kept for reuse; further ones are deleted
    prepare_retry_ms: int = 1_000  # a full disk is asked again this often

    def __post_init__(self) -> None:
        assert self.file_bytes % SECTOR_BYTES == 0
        assert HEADER_BLOCK_BYTES + 4 * SECTOR_BYTES <= self.file_bytes < 1 << 32
        assert self.files_max >= 2, "one file to write and one to come"
        assert self.group_bytes_max > 0
        assert self.spare_files_max >= 1

    @property
    def files_max(self) -> int:
        return self.bytes_max // self.file_bytes


class WalLoss(NamedTuple):
    """Entries first_sequence..last_sequence could not be read; a person accepted that."""

    file: str
    position: int
    first_sequence: int
    last_sequence: int
    reason: str


class _Seen(NamedTuple):
    """One file as it was found."""

    name: str
    size: int
    header: FileHeader | None
    headless: bool  # no intact header, yet something is written in it
    grouped: bool  # begins with what looks like a group


@dataclass(slots=True)
class Recovered:
    """What `FileWal.start` builds on; complete once the replay has ended."""

    wal_id: str
    files: list[LiveFile] = field(default_factory=list)  # the chain, oldest first
    spares: list[str] = field(default_factory=list)
    unfit: list[str] = field(default_factory=list)  # to be deleted before anything is written
    tail: list[WalEntry] = field(default_factory=list)  # copied to the next file, from copy_from on
    copy_from: int = 1
    next_sequence: int = 1
    next_generation: int = 1
    next_number: int = 1  # of the next file name
    accepted_below: int = 0


def file_name(number: int) -> str:
    return f"wal-{number:08d}.log"


class Recovery:
    """One pass over the directory: `survey` first, then `entries` to its end."""

    def __init__(self, disk: Disk, ids: Ids, options: WalOptions) -> None:
        self._disk = disk
        self._ids = ids
        self._options = options
        self._chain: list[tuple[str, FileHeader]] = []
        self.losses: list[WalLoss] = []
        self.recovered = Recovered(wal_id="")

    async def survey(self) -> None:
        """Find the chain and judge its newest file. Raises StartRefused on damage."""
        seen = await self._look()
        headed = sorted(
            ((s, s.header) for s in seen if s.header is not None),
            key=lambda pair: pair[1].generation,
        )
        self._check_identity(headed)
        out = self.recovered
        out.next_number = max((_number(s.name) for s in seen), default=0) + 1
        if headed:
            out.wal_id = headed[0][1].wal_id
            out.next_generation = headed[-1][1].generation + 1
            out.accepted_below = max(header.accepted_below for _, header in headed)
            await self._survey_used(seen, headed)
        else:
            self._check_never_used(seen)
            out.wal_id = self._ids.uuid().hex()
        taken = {name for name, _ in self._chain} | set(out.unfit)
        for file in seen:
            if file.name not in taken:
                fit = file.size == self._options.file_bytes
                (out.spares if fit else out.unfit).append(file.name)

    async def _survey_used(self, seen: list[_Seen], headed: list[tuple[_Seen, FileHeader]]) -> None:
        newest, scan = await self._newest(headed)
        damaged = bool(self.losses)
        self.losses.clear()  # they are found again when the file is replayed
        await self._check_headless(seen, newest.generation, scan.sequence)
        self._link(headed, newest, scan.oldest_live)
        self._decide_copy(newest, scan, damaged=damaged)

    async def entries(self) -> AsyncIterator[tuple[int, WalEntry]]:
        """Everything readable in the chain, in order; fills the index and the tail to copy."""
        out = self.recovered
        for position, (name, header) in enumerate(self._chain):
            last = position + 1 == len(self._chain)
            bound = None if last else self._chain[position + 1][1].first_sequence
            live = LiveFile(name, header.generation, header.first_sequence, header.file_bytes)
            out.files.append(live)
            async for found in self._walk(name, Scan(header), header, bound):
                for sequence, body_at, entry in found:
                    if bound is not None and sequence >= bound:
                        break
                    live.add(sequence, body_at, len(entry.body))
                    live.note_end(entry.tp, entry.end)
                    if sequence >= out.copy_from:
                        out.tail.append(entry)
                    yield sequence, entry
        if self.losses and self._options.accept_loss:
            out.accepted_below = out.next_sequence
        for loss in self.losses:
            _log.warning("WAL entries are lost, as was accepted: %s", loss)

    async def _look(self) -> list[_Seen]:
        seen = []
        for name in await self._disk.list_files():
            if _NAME.match(name) is None:
                continue
            size = await self._disk.size(name)
            block = await self._disk.read(name, 0, HEADER_BLOCK_BYTES + SECTOR_BYTES)
            try:
                header = decode_file_header(block)
            except NewerVersion as newer:
                raise StartRefused(
                    f"WAL file {name} was written by a newer version of StreamHouse ({newer}); "
                    "start that version or a later one"
                ) from None
            grouped = block.startswith(GROUP_MAGIC, HEADER_BLOCK_BYTES)
            headless = header is None and (grouped or any(block))
            seen.append(_Seen(name, size, header, headless, grouped))
        return seen

    def _check_identity(self, headed: list[tuple[_Seen, FileHeader]]) -> None:
        for (one, header), (other, after) in pairwise(headed):
            if header.wal_id != after.wal_id:
                raise StartRefused(
                    f"WAL files {one.name} and {other.name} belong to different WALs "
                    f"({header.wal_id}, {after.wal_id}); move the foreign files away"
                )
            if header.generation == after.generation:
                raise StartRefused(
                    f"WAL files {one.name} and {other.name} both claim generation "
                    f"{header.generation}; move the copy away"
                )

    def _check_never_used(self, seen: list[_Seen]) -> None:
        """Without any header a group can only come from a WAL whose headers were destroyed."""
        for file in seen:
            if file.headless and file.grouped:
                self._damage(file.name, 0, 1, 2, "its header is destroyed")
                self.recovered.unfit.append(file.name)

    async def _newest(self, headed: list[tuple[_Seen, FileHeader]]) -> tuple[FileHeader, Scan]:
        """The newest file whose copies are complete, and its scan.

        Newer ones are left over from a recovery that crashed before it served: they hold only
        copies. They are deleted, not reused, because a torn header over their groups would look
        like a damaged header of a live file.
        """
        incomplete: list[str] = []
        for seen, header in reversed(headed):
            scan = await self._scanned(seen.name, header)
            if scan.sequence > header.copied_last:
                self.recovered.unfit += incomplete
                return header, scan
            incomplete.append(seen.name)
        seen, header = headed[-1]
        reason = "the entries it begins with are incomplete"
        first, after = header.first_sequence, header.copied_last + 1
        self._damage(seen.name, HEADER_BLOCK_BYTES, first, after, reason)
        return header, await self._scanned(seen.name, header)

    async def _scanned(self, name: str, header: FileHeader) -> Scan:
        scan = Scan(header)
        async for _ in self._walk(name, scan, header, None):
            pass
        return scan

    async def _check_headless(self, seen: list[_Seen], newest: int, expected: int) -> None:
        """A header is durable before its groups: newer groups without one mean it was damaged."""
        out = self.recovered
        for file in seen:
            if not file.headless:
                continue
            groups = [
                group
                async for group in self._groups(file.name, file.size, HEADER_BLOCK_BYTES)
                if group.generation > newest
            ]
            if groups:
                after = groups[-1].first_sequence + groups[-1].entries_count
                self._damage(file.name, 0, expected, after, "its header is destroyed")
                out.next_sequence = max(out.next_sequence, after)
                out.next_generation = max(out.next_generation, groups[-1].generation + 1)
                out.unfit.append(file.name)

    def _link(
        self, headed: list[tuple[_Seen, FileHeader]], newest: FileHeader, oldest_live: int
    ) -> None:
        """Follow the chain from the newest file down to the oldest live one."""
        files = {header.generation: (seen, header) for seen, header in headed}
        generation = newest.generation
        while generation and generation >= oldest_live:
            if generation not in files:
                name, after = self._chain[-1]
                reason = f"the file before it, of generation {generation}, is missing"
                self._damage(name, 0, after.first_sequence - 1, after.first_sequence, reason)
                generation = max((g for g in files if g < generation), default=0)
                continue
            seen, header = files[generation]
            if seen.size != header.file_bytes:
                reason = f"it has {seen.size} bytes and should have {header.file_bytes}"
                first = header.first_sequence
                self._damage(seen.name, seen.size, first, first + 1, reason)
            self._chain.append((seen.name, header))
            generation = header.previous
        self._chain.reverse()

    def _decide_copy(self, newest: FileHeader, scan: Scan, *, damaged: bool) -> None:
        """What may be on disk only by luck is written again; a small file is copied whole.

        Copying a small file whole lets it go, so restarts do not pile up nearly empty files.
        """
        out = self.recovered
        out.next_sequence = max(
            out.next_sequence, scan.sequence, scan.durable + 1, newest.copied_last + 1
        )
        small = scan.at - HEADER_BLOCK_BYTES <= self._options.group_bytes_max
        if out.next_sequence > scan.sequence:  # numbers of lost entries are not given again
            out.copy_from = out.next_sequence
        elif small and not damaged:
            out.copy_from = newest.first_sequence
        else:
            out.copy_from = scan.durable + 1

    async def _walk(
        self, name: str, scan: Scan, header: FileHeader, bound: int | None
    ) -> AsyncIterator[list[Found]]:
        """Feed the file to the scan; go on behind accepted damage."""
        while True:
            while scan.ended is None:
                piece = await self._disk.read(name, scan.at, max(PIECE_BYTES, scan.wanted))
                found = scan.feed(piece)
                if found:
                    yield found
                if bound is not None and scan.sequence >= bound:
                    return
            at, expected, reason = scan.at, scan.sequence, scan.ended
            resume = await self._witness(name, header, scan)
            if resume is None and bound is None:
                return  # nothing says that more was durable: the end, or a torn tail
            found_next = bound if resume is None else resume.first_sequence
            assert found_next is not None
            self._damage(name, at, expected, found_next, reason)
            if resume is None:
                return
            scan.resume(resume.at, resume.first_sequence)

    async def _witness(self, name: str, header: FileHeader, scan: Scan) -> GroupHeader | None:
        """The first intact group further on, if one there says the expected number was durable."""
        first: GroupHeader | None = None
        async for group in self._groups(name, header.file_bytes, scan.at):
            if group.generation != header.generation or group.first_sequence < scan.sequence:
                continue
            first = first or group
            if group.durable >= scan.sequence:
                return first
        return None

    async def _groups(self, name: str, size: int, start: int) -> AsyncIterator[GroupHeader]:
        piece_at = start // SECTOR_BYTES * SECTOR_BYTES
        while piece_at < size:
            piece = await self._disk.read(name, piece_at, PIECE_BYTES)
            if not piece:
                return
            for group in find_groups(self.recovered.wal_id, piece, piece_at, start):
                yield group
            piece_at += PIECE_BYTES

    def _damage(self, name: str, at: int, expected: int, after: int, reason: str) -> None:
        """Entries from `expected` up to before `after` are unreadable: refuse, or note the loss."""
        if not self._options.accept_loss and after > self.recovered.accepted_below:
            raise StartRefused(
                f"WAL file {name} is damaged at byte {at}: {reason}; entry {expected} was durable "
                "and cannot be read. Restore the file, or start with --accept-wal-loss to go on "
                "with what can still be read"
            )
        self.losses.append(WalLoss(name, at, expected, after - 1, reason))


def _number(name: str) -> int:
    found = _NAME.match(name)
    assert found is not None
    return int(found[1])
