"""The bytes of a WAL file: encoding, decoding and scanning. Pure; knows no disk and no clock.

A file is a 4 KiB header block followed by groups. A group is what one write + fdatasync made
durable: a group header and its records, beginning at a multiple of 512 bytes, so that a torn write
never touches the sectors of an earlier group.

    file   = header block (header at 0, a copy at 2048) | group | group | ...
    group  = group header (56 bytes) | record | record | ... (up to the next multiple of 512)
    record = record header (68 bytes) | body

Invariants:
- The header of a generation is durable before the first group of that generation is written, so
  one generation number never stands for two different attempts.
- Checksums of groups and records are seeded with the WAL's id and the generation: what an earlier
  life of a reused file left behind never passes for the present one.
- A group header says which sequence number was durable when it was written. A record that cannot be
  read although a later group calls it durable is damage; without such a witness it is a torn tail.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from crc32c import crc32c

from streamhouse.model.ids import TopicId, TopicPartition
from streamhouse.ports.disk import Buffer
from streamhouse.ports.wal import WalEntry

FORMAT_VERSION = 1
SECTOR_BYTES = 512
HEADER_BLOCK_BYTES = 4096
HEADER_COPY_AT = 2048

FILE_MAGIC = b"\x89SHWAL\r\n"
GROUP_MAGIC = b"\x8bSHGRP\r\n"

_FILE_HEADER = Struct("<8sI16sQQQQQQQ")
_CRC = Struct("<I")
_FILE_HEADER_CRC_AT = SECTOR_BYTES - _CRC.size  # the same place in every version to come

_GROUP = Struct("<8sIIQQQQII")
_GROUP_CHECKED = Struct("<IQQQQII")  # what its checksum covers
_GROUP_CHECKED_AT = _GROUP.size - _GROUP_CHECKED.size
GROUP_HEADER_BYTES = _GROUP.size

_RECORD = Struct("<IIQQ16siiqqi")
_RECORD_CHECKED = Struct("<IQQ16siiqqi")
_RECORD_TP_AT = 24  # topic id and partition: twenty bytes that name a partition
_RECORD_TP_BYTES = 20
_TP = Struct("<16si")
RECORD_HEADER_BYTES = _RECORD.size

COALESCE_BYTES_MAX = 32 * 1024  # smaller bodies are copied together: fewer buffers per write

_pack_crc = _CRC.pack
_pack_record = _RECORD_CHECKED.pack


class NewerVersion(Exception):
    """The header is intact and was written by a newer format version."""

    def __init__(self, version: int) -> None:
        super().__init__(f"format version {version}, this program reads up to {FORMAT_VERSION}")
        self.version = version


@dataclass(frozen=True, slots=True)
class FileHeader:
    wal_id: str  # 32 hex digits
    generation: int
    previous: int  # generation of the file before it in the stream; 0: none
    oldest_live: int  # files of lower generations are free
    first_sequence: int  # all below it is durable in earlier files
    copied_last: int  # the file counts only if it holds all of first_sequence..copied_last
    accepted_below: int  # losses below this sequence number were accepted by a person
    file_bytes: int


class GroupHeader(NamedTuple):
    at: int
    generation: int
    first_sequence: int
    durable: int
    oldest_live: int
    entries_count: int
    records_bytes: int

    @property
    def end(self) -> int:
        return self.at + GROUP_HEADER_BYTES + self.records_bytes


class GroupStamp(NamedTuple):
    """What every group says about the stream at the time it is written."""

    seed: int
    generation: int
    first_sequence: int
    durable: int
    oldest_live: int


class Found(NamedTuple):
    """A record that passed its checks. The entry's body is a view of the piece it was read in."""

    sequence: int
    body_at: int
    entry: WalEntry


def align(position: int) -> int:
    """The next multiple of the sector size."""
    return (position + SECTOR_BYTES - 1) & -SECTOR_BYTES


def checksum_seed(wal_id: str, generation: int) -> int:
    seed: int = crc32c(bytes.fromhex(wal_id) + generation.to_bytes(8, "little"))
    return seed


def encode_file_header(header: FileHeader) -> bytes:
    sector = bytearray(SECTOR_BYTES)
    _FILE_HEADER.pack_into(
        sector,
        0,
        FILE_MAGIC,
        FORMAT_VERSION,
        bytes.fromhex(header.wal_id),
        header.generation,
        header.previous,
        header.oldest_live,
        header.first_sequence,
        header.copied_last,
        header.accepted_below,
        header.file_bytes,
    )
    _CRC.pack_into(sector, _FILE_HEADER_CRC_AT, crc32c(sector[:_FILE_HEADER_CRC_AT]))
    gap = bytes(HEADER_COPY_AT - SECTOR_BYTES)
    block = bytes(sector) + gap + bytes(sector) + gap
    assert len(block) == HEADER_BLOCK_BYTES
    return block


def decode_file_header(block: bytes) -> FileHeader | None:
    """The header, from its copy if need be; None when neither is intact. Raises NewerVersion."""
    found = [
        header
        for at in (0, HEADER_COPY_AT)
        if (header := _decode_header_sector(block[at : at + SECTOR_BYTES])) is not None
    ]
    return max(found, key=lambda header: header.generation, default=None)


def encode_group(
    stamp: GroupStamp, entries: Sequence[WalEntry], bodies_bytes: int
) -> tuple[list[Buffer], int]:
    """Buffers to write one after the other, and their length. Large bodies are not copied."""
    generation = stamp.generation
    seed = stamp.seed
    sequence = stamp.first_sequence
    records_bytes = bodies_bytes + RECORD_HEADER_BYTES * len(entries)
    buffers: list[Buffer] = []
    small: list[Buffer] = [_encode_group_header(stamp, len(entries), records_bytes)]
    for tp, epoch, base, end, acks, body in entries:
        size = len(body)
        checked = _pack_record(
            size, generation, sequence, tp[0].bytes, tp[1], epoch, base, end, acks
        )
        small += (_pack_crc(crc32c(body, crc32c(checked, seed))), checked)
        if size <= COALESCE_BYTES_MAX:
            small.append(body)
        else:
            buffers += (b"".join(small), body)
            small = []
        sequence += 1
    if small:
        buffers.append(b"".join(small))
    return buffers, GROUP_HEADER_BYTES + records_bytes


def check_record(data: bytes, *, generation: int, sequence: int) -> bool:
    """Whether `data` begins with the header of this very record and has its whole body."""
    if len(data) < RECORD_HEADER_BYTES:
        return False
    _, size, found_generation, found_sequence, *_ = _RECORD.unpack_from(data)
    whole = size == len(data) - RECORD_HEADER_BYTES
    return bool(whole and found_generation == generation and found_sequence == sequence)


def find_groups(wal_id: str, piece: bytes, piece_at: int, start: int) -> Iterator[GroupHeader]:
    """Intact group headers at or after file position `start`, of whatever generation."""
    assert piece_at % SECTOR_BYTES == 0
    at = piece.find(GROUP_MAGIC, max(0, start - piece_at))
    while at >= 0:
        if at % SECTOR_BYTES == 0:
            group = _decode_group(wal_id, piece, at, piece_at)
            if group is not None:
                yield group
        at = piece.find(GROUP_MAGIC, at + 1)


class Scan:
    """Walks the groups and records of one file, fed with pieces of it.

    `at` is the position from which the next piece must begin and `wanted` how long it must be at
    least. Once `ended` says why, `sequence` is the number that was expected at `at`.
    """

    __slots__ = (
        "_file_bytes",
        "_generation",
        "_group_end",
        "_group_left",
        "_seed",
        "_tps",
        "_wal_id",
        "at",
        "durable",
        "ended",
        "groups",
        "oldest_live",
        "sequence",
        "wanted",
    )

    def __init__(self, header: FileHeader) -> None:
        self._wal_id = header.wal_id
        self._generation = header.generation
        self._seed = checksum_seed(header.wal_id, header.generation)
        self._file_bytes = header.file_bytes
        self._tps: dict[bytes, TopicPartition] = {}
        self._group_left = 0
        self._group_end = HEADER_BLOCK_BYTES
        self.at = HEADER_BLOCK_BYTES
        self.wanted = GROUP_HEADER_BYTES
        self.sequence = header.first_sequence
        self.durable = header.first_sequence - 1
        self.oldest_live = header.oldest_live
        self.groups = 0
        self.ended: str | None = None

    def resume(self, at: int, sequence: int) -> None:
        """Go on at an intact group further on."""
        assert at % SECTOR_BYTES == 0
        assert sequence >= self.sequence
        self.at = self._group_end = at
        self.sequence = sequence
        self._group_left = 0
        self.wanted = GROUP_HEADER_BYTES
        self.ended = None

    def feed(self, piece: bytes) -> list[Found]:
        """Decode what is whole in `piece`, which begins at `self.at`."""
        found: list[Found] = []
        view = memoryview(piece)
        piece_at = self.at
        asked = self.wanted
        while self.ended is None:
            here = self.at - piece_at
            if self._group_left:
                whole = self._record(piece, view, here, found)
            else:
                whole = self._group(piece, piece_at)
            if not whole:
                break
        if self.ended is None and len(piece) < asked and self.at == piece_at:
            self.ended = "the file ends early"
        return found

    def _group(self, piece: bytes, piece_at: int) -> bool:
        at = align(self._group_end)
        self.at = at
        if at + GROUP_HEADER_BYTES > self._file_bytes:
            self.ended = "end of the file"
            return False
        if at - piece_at + GROUP_HEADER_BYTES > len(piece):
            self.wanted = GROUP_HEADER_BYTES
            return False
        group = _decode_group(self._wal_id, piece, at - piece_at, piece_at)
        if group is None or group.generation != self._generation:
            self.ended = "no group of this generation"
            return False
        if group.first_sequence != self.sequence or group.end > self._file_bytes:
            self.ended = f"a group that begins at number {group.first_sequence}"
            return False
        self.groups += 1
        self.durable = max(self.durable, group.durable)
        self.oldest_live = max(self.oldest_live, group.oldest_live)
        self._group_left = group.entries_count
        self._group_end = group.end
        self.at = at + GROUP_HEADER_BYTES
        return True

    def _record(self, piece: bytes, view: memoryview, here: int, found: list[Found]) -> bool:
        body = here + RECORD_HEADER_BYTES
        if body > len(piece):
            self.wanted = RECORD_HEADER_BYTES
            return False
        crc, size, generation, sequence, _, _, epoch, base, end, acks = _RECORD.unpack_from(
            piece, here
        )
        if (
            generation != self._generation
            or sequence != self.sequence
            or self.at + RECORD_HEADER_BYTES + size > self._group_end
        ):
            self.ended = "not the next record"
            return False
        stop = body + size
        if stop > len(piece):
            self.wanted = RECORD_HEADER_BYTES + size
            return False
        if crc32c(view[here + 4 : stop], self._seed) != crc:
            self.ended = "a record that fails its checksum"
            return False
        tp_at = here + _RECORD_TP_AT
        tp = self._tp(piece[tp_at : tp_at + _RECORD_TP_BYTES])
        entry = WalEntry(tp, epoch, base, end, acks, view[body:stop])
        found.append(Found(sequence, self.at + RECORD_HEADER_BYTES, entry))
        self.sequence = sequence + 1
        self.at += RECORD_HEADER_BYTES + size
        self._group_left -= 1
        return True

    def _tp(self, raw: bytes) -> TopicPartition:
        tp = self._tps.get(raw)
        if tp is None:
            topic, partition = _TP.unpack(raw)
            tp = self._tps[raw] = TopicPartition(TopicId(UUID(bytes=topic)), partition)
        return tp


def _decode_header_sector(sector: bytes) -> FileHeader | None:
    if len(sector) < SECTOR_BYTES or not sector.startswith(FILE_MAGIC):
        return None
    if _CRC.unpack_from(sector, _FILE_HEADER_CRC_AT)[0] != crc32c(sector[:_FILE_HEADER_CRC_AT]):
        return None
    _, version, wal_id, *numbers = _FILE_HEADER.unpack_from(sector)
    if version > FORMAT_VERSION:
        raise NewerVersion(version)
    return FileHeader(wal_id.hex(), *numbers)


def _encode_group_header(stamp: GroupStamp, count: int, records_bytes: int) -> bytes:
    checked = _GROUP_CHECKED.pack(
        count,
        stamp.generation,
        stamp.first_sequence,
        stamp.durable,
        stamp.oldest_live,
        records_bytes,
        0,
    )
    return GROUP_MAGIC + _pack_crc(crc32c(checked, stamp.seed)) + checked


def _decode_group(wal_id: str, piece: bytes, here: int, piece_at: int) -> GroupHeader | None:
    if not piece.startswith(GROUP_MAGIC, here) or here + GROUP_HEADER_BYTES > len(piece):
        return None
    _, crc, count, generation, first, durable, oldest, records_bytes, _ = _GROUP.unpack_from(
        piece, here
    )
    checked = piece[here + _GROUP_CHECKED_AT : here + GROUP_HEADER_BYTES]
    if crc32c(checked, checksum_seed(wal_id, generation)) != crc:
        return None
    return GroupHeader(here + piece_at, generation, first, durable, oldest, count, records_bytes)
