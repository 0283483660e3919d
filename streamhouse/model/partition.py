"""The one row a partition has in the metadata store, and what is registered under it."""

from dataclasses import dataclass
from typing import NamedTuple

from streamhouse.model.ids import ObjectKey, TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """Fence and positions of one partition: one row, so that one UPDATE can check them all.

    `segments_end` <= `high_watermark`; in local commit mode the stored watermark lags behind the
    leader's, because the WAL holds what is committed but not yet rolled.
    """

    tp: TopicPartition
    holder: str
    incarnation: str
    epoch: int
    high_watermark: int
    log_start: int
    segments_end: int
    manifest_version: int  # raised by every change of the segment set
    manifest_written: int  # newest version known to be in the bucket
    snapshot_key: ObjectKey | None  # segment whose tail holds the newest producer snapshot
    wal_id: str  # in local mode the partition opens only with this WAL


@dataclass(frozen=True, slots=True)
class Term:
    """An epoch that committed something, and where its records begin."""

    epoch: int
    offset_start: int


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """A registered STRM object holding offsets [base, end)."""

    key: ObjectKey
    base: int
    end: int
    epoch: int  # of the leader that wrote the object
    record_count: int
    timestamp_min_ms: int
    timestamp_max_ms: int
    bytes_raw: int
    bytes_stored: int
    footer_crc: int
    created_ms: int
    format: str = "strm1"
    generation: int = 0  # 0 rolled, raised by each merge


class Fence(NamedTuple):
    """Who claims to lead: every fenced write names it, and fails if the row says otherwise."""

    tp: TopicPartition
    holder: str
    incarnation: str
    epoch: int


@dataclass(frozen=True, slots=True)
class SegmentCommit:
    """Register one rolled segment: moves `segments_end` from `segment.base` to `segment.end`."""

    fence: Fence
    segment: SegmentRef
    terms: tuple[Term, ...]  # epochs that begin inside this segment


@dataclass(frozen=True, slots=True)
class SegmentReplacement:
    """Put `new` (or nothing) in place of the live segments `old`; fails if one is not live."""

    fence: Fence
    old: tuple[ObjectKey, ...]
    new: tuple[SegmentRef, ...]
    log_start: int | None = None  # raise it in the same statement (retention)


@dataclass(frozen=True, slots=True)
class RetiredObject:
    """An object no row refers to any more; it is deleted after the grace period."""

    key: ObjectKey
    retired_ms: int
