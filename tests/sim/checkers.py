"""The model of what the log must be, fed with everything that anybody was told or shown.

Nothing here asks the server what it thinks: acknowledgements, reads, stored rows, objects and
manifests are compared with each other. Names of violations begin with the number of the invariant
in the design paper of the log.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import crc32c

from streamhouse.agent.lookup import FoundOffset
from streamhouse.kafka_proto.record_batch import decode_records, is_intact, iter_batches
from streamhouse.model.errors import OffsetOutOfRange
from streamhouse.model.ids import ObjectKey, TopicPartition
from streamhouse.model.partition import PartitionRow, SegmentRef
from streamhouse.model.records import NewRecord, Record
from streamhouse.ports.disk import Buffer


class Violation(AssertionError):
    """An invariant does not hold."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant
        self.detail = detail


@dataclass(eq=False, slots=True)
class SentBatch:
    """A batch some producer sent at least once. `uid` stands in its records and nowhere else."""

    uid: str
    tp: TopicPartition
    records: tuple[NewRecord, ...]
    body: bytes
    sender: str  # one sender's acknowledged batches keep their order in a partition
    log_append_time: bool
    acked_base: int | None = None
    acked_ms: int = 0

    @property
    def count(self) -> int:
        return len(self.records)


@dataclass(frozen=True, slots=True)
class SeenBatch:
    base: int
    end: int
    digest: int
    size: int
    epoch: int
    uid: str


@dataclass(slots=True)
class LogModel:
    """One partition."""

    tp: TopicPartition
    bases: list[int] = field(default_factory=list)  # of all seen batches, ascending
    seen: dict[int, SeenBatch] = field(default_factory=dict)
    acked: dict[int, SentBatch] = field(default_factory=dict)
    times_ms: dict[int, int] = field(default_factory=dict)  # offset -> timestamp, where known
    last_acked: dict[str, int] = field(default_factory=dict)  # sender -> base
    bytes_sent: int = 0
    hw: int = 0  # the highest anybody was told
    log_start: int = 0
    epoch: int = -1
    deletable: int = 0  # DeleteRecords was asked up to here; it may have happened
    retention_ms_min: int | None = None  # the shortest ever set
    retention_bytes_min: int | None = None
    clock_back_ms: int = 0


class Checker:
    def __init__(self) -> None:
        self.sent: dict[str, SentBatch] = {}
        self.logs: dict[TopicPartition, LogModel] = {}
        self.rows: dict[TopicPartition, PartitionRow] = {}
        self._placed: dict[str, int] = {}
        self._leaders: dict[tuple[TopicPartition, int], str] = {}

    def log(self, tp: TopicPartition) -> LogModel:
        found = self.logs.get(tp)
        if found is None:
            found = self.logs[tp] = LogModel(tp)
        return found

    # -- producers -------------------------------------------------------------------------------

    def on_send(self, batch: SentBatch) -> None:
        assert batch.uid not in self.sent
        self.sent[batch.uid] = batch
        self.log(batch.tp).bytes_sent += len(batch.body)

    def on_ack(self, batch: SentBatch, base: int, time_ms: int, now_ms: int, hw: int) -> None:
        log = self.log(batch.tp)
        end = base + batch.count
        if hw < end:
            raise Violation("7 watermark", f"{batch.uid} acked at {base}, but HW is {hw}")
        if batch.acked_base is not None and batch.acked_base != base:
            raise Violation("8 idempotence", f"{batch.uid} acked at {batch.acked_base} and {base}")
        self._place(batch, base)
        if batch.acked_base is None:  # an answer that got lost comes again later
            if log.last_acked.get(batch.sender, -1) > base:
                raise Violation("9 order", f"{batch.uid} acked at {base}, behind a later one")
            log.last_acked[batch.sender] = base
        seen = log.seen.get(base)
        if seen is not None and seen.uid != batch.uid:
            raise Violation("2 one value", f"{log.tp} {base}: acked {batch.uid}, seen {seen.uid}")
        other = log.acked.get(base)
        if other is not None and other is not batch:
            raise Violation("2 one value", f"{log.tp} {base}: acked {batch.uid} and {other.uid}")
        if batch.acked_base is None:
            batch.acked_base, batch.acked_ms = base, now_ms
            log.acked[base] = batch
            for delta, record in enumerate(batch.records):
                stamp = time_ms if batch.log_append_time else record.timestamp_ms
                assert stamp is not None
                log.times_ms.setdefault(base + delta, stamp)
        log.hw = max(log.hw, end)

    def _place(self, batch: SentBatch, base: int) -> None:
        known = self._placed.setdefault(batch.uid, base)
        if known != base:
            raise Violation("8 idempotence", f"{batch.uid} stands at {known} and at {base}")

    # -- readers ---------------------------------------------------------------------------------

    def on_read(
        self, tp: TopicPartition, offset: int, buffers: Iterable[Buffer], hw: int, asked_hw: int
    ) -> int:
        """Whole batches came for `offset`; return the offset after them."""
        at: int | None = None
        for buffer in buffers:
            view = memoryview(buffer)
            for position, header in iter_batches(view):
                batch = bytes(view[position : position + header.size_bytes])
                if at is None and not header.base_offset <= offset < header.end_offset:
                    raise Violation("3 dense", f"{tp} asked {offset}, got {header.base_offset}")
                if at is not None and header.base_offset != at:
                    raise Violation("3 dense", f"{tp} {header.base_offset} follows {at}")
                at = header.end_offset
                if at > hw:
                    raise Violation("7 watermark", f"{tp} shows up to {at}, but HW is {hw}")
                self.on_batch(tp, batch)
        if at is None and offset < asked_hw:
            raise Violation("1 acked is read", f"{tp} {offset} is empty, though HW is {asked_hw}")
        return offset if at is None else at

    def on_batch(self, tp: TopicPartition, batch: bytes) -> None:
        """Somebody was shown these bytes."""
        log = self.log(tp)
        ((_, header),) = iter_batches(batch)
        base, digest = header.base_offset, crc32c.crc32c(batch)
        known = log.seen.get(base)
        if known is not None:
            if (known.digest, known.size) != (digest, len(batch)):
                raise Violation("2 one value", f"{tp} {base} shows other bytes than before")
            return
        if not is_intact(batch):
            raise Violation("1 acked is read", f"{tp} {base}: the batch's checksum is wrong")
        records = decode_records(batch)
        uid = _uid(records)
        sent = self.sent.get(uid)
        if sent is None or sent.tp != tp or not _same(records, sent):
            raise Violation("2 one value", f"{tp} {base} holds {uid!r}, which nobody sent there")
        self._place(sent, base)
        acked = log.acked.get(base)
        if acked is not None and acked.uid != uid:
            raise Violation("1 acked is read", f"{tp} {base}: acked {acked.uid}, read {uid}")
        seen = SeenBatch(base, header.end_offset, digest, len(batch), header.leader_epoch, uid)
        self._insert(log, seen)
        for record in records:
            log.times_ms[record.offset] = record.timestamp_ms
        log.hw = max(log.hw, seen.end)

    def _insert(self, log: LogModel, new: SeenBatch) -> None:
        index = bisect_left(log.bases, new.base)
        near = [log.seen[base] for base in log.bases[max(index - 1, 0) : index + 1]]
        for other in near:
            first, second = (other, new) if other.base < new.base else (new, other)
            if first.end > second.base:
                raise Violation("2 one value", f"{log.tp}: {first} and {second} overlap")
            if first.epoch > second.epoch:
                raise Violation("12 epochs", f"{log.tp}: the epoch falls between {first}, {second}")
        log.seen[new.base] = new
        insort(log.bases, new.base)

    def on_records(self, tp: TopicPartition, offset: int, records: Sequence[Record]) -> None:
        """Single records were shown (REST)."""
        log, expected = self.log(tp), offset
        for record in records:
            if record.offset != expected:
                raise Violation("3 dense", f"{tp} record {record.offset}, expected {expected}")
            expected += 1
            base = _base_of(log, record.offset)
            if base is not None:
                sent = self.sent[log.seen[base].uid]
                if sent.records[record.offset - base].value != record.value:
                    raise Violation("2 one value", f"{tp} record {record.offset} differs")

    def on_positions(
        self, tp: TopicPartition, *, hw: int, log_start: int, epoch: int, now_ms: int
    ) -> None:
        """A leader was asked where its log begins and ends."""
        log = self.log(tp)
        if hw < log.hw:
            raise Violation("4 monotonic", f"{tp} HW {hw}, but {log.hw} was told before")
        if epoch < log.epoch:
            raise Violation("4 monotonic", f"{tp} epoch {epoch}, but {log.epoch} was told before")
        if log_start < log.log_start:
            raise Violation("4 monotonic", f"{tp} log start {log_start} fell from {log.log_start}")
        if not 0 <= log_start <= hw:
            raise Violation("3 tiling", f"{tp} log start {log_start}, HW {hw}")
        log.hw, log.epoch = hw, epoch
        if log_start > log.log_start:
            self._check_deletion(log, log_start, now_ms)
            log.log_start = log_start

    def on_out_of_range(self, tp: TopicPartition, error: OffsetOutOfRange, asked_hw: int) -> None:
        below = error.offset < error.log_start
        above = error.offset > error.high_watermark
        if not (below or above):
            raise Violation("11 out of range", f"{tp} {error}")
        if above and error.high_watermark < asked_hw:
            raise Violation("11 out of range", f"{tp} {error}, but HW was {asked_hw}")

    # -- log start -------------------------------------------------------------------------------

    def _check_deletion(self, log: LogModel, log_start: int, now_ms: int) -> None:
        """Records below the log start went because somebody asked, or because retention may."""
        if log_start <= log.deletable:
            return
        if log.retention_ms_min is None and log.retention_bytes_min is None:
            raise Violation(
                "1 acked is read", f"{log.tp} log start {log_start}, asked for {log.deletable}"
            )
        if log.retention_bytes_min is None:
            self._check_ages(log, log_start, now_ms)
        elif log.retention_ms_min is None:
            gone = sum(len(b.body) for base, b in log.acked.items() if base < log_start)
            if log.bytes_sent - gone < log.retention_bytes_min:
                raise Violation("1 acked is read", f"{log.tp} retention by size went too far")

    def _check_ages(self, log: LogModel, log_start: int, now_ms: int) -> None:
        assert log.retention_ms_min is not None
        young_ms = now_ms - log.retention_ms_min
        for base, batch in log.acked.items():
            if not log.deletable <= base < log_start:
                continue
            for delta in range(batch.count):
                if min(log.times_ms[base + delta], batch.acked_ms) > young_ms:
                    raise Violation(
                        "1 acked is read", f"{log.tp} {base + delta} was deleted too young"
                    )

    # -- times -----------------------------------------------------------------------------------

    def known_times(self, tp: TopicPartition) -> dict[int, int]:
        return dict(self.log(tp).times_ms)

    def on_found_time(
        self,
        tp: TopicPartition,
        time_ms: int,
        found: FoundOffset | None,
        known: dict[int, int],
        log_start: int,
    ) -> None:
        """The first record at or after `time_ms`, judged by what was known before the question."""
        if found is not None:
            self._check_time(tp, found)
            if found.timestamp_ms < time_ms:
                raise Violation("1 acked is read", f"{tp} time {time_ms} gives {found}")
        stop = found.offset if found is not None else 2**62
        for offset, known_ms in known.items():
            if log_start <= offset < stop and known_ms >= time_ms:
                raise Violation(
                    "1 acked is read", f"{tp} time {time_ms} gives {found}, not {offset}"
                )

    def on_latest_time(
        self, tp: TopicPartition, found: FoundOffset | None, known: dict[int, int], log_start: int
    ) -> None:
        if found is not None:
            self._check_time(tp, found)
        best = found.timestamp_ms if found is not None else -1
        for offset, known_ms in known.items():
            if offset >= log_start and known_ms > best:
                raise Violation("1 acked is read", f"{tp} latest is {found}, not {offset}")

    def _check_time(self, tp: TopicPartition, found: FoundOffset) -> None:
        known = self.log(tp).times_ms.get(found.offset, found.timestamp_ms)
        if known != found.timestamp_ms:
            raise Violation("2 one value", f"{tp} {found}, but its time was {known}")

    # -- epochs ----------------------------------------------------------------------------------

    def on_end_of_epoch(self, tp: TopicPartition, epoch: int, found: tuple[int, int]) -> None:
        """OffsetForLeaderEpoch: no batch of a higher epoch lies below the end it gave."""
        found_epoch, end = found
        if found_epoch < 0:
            return
        log = self.log(tp)
        for base in log.bases:
            seen = log.seen[base]
            if seen.epoch > epoch and base < end:
                raise Violation("12 epochs", f"{tp} epoch {epoch} ends at {end}; {seen}")
            if seen.epoch <= epoch and seen.end > end:
                raise Violation("12 epochs", f"{tp} epoch {epoch} ends at {end}; {seen}")

    # -- stored rows -----------------------------------------------------------------------------

    def on_row(self, row: PartitionRow) -> bool:
        """A partition's row as stored now. True if its segment set may have changed."""
        before = self.rows.get(row.tp)
        if before == row:
            return False
        if before is not None:
            for name in (
                "epoch",
                "high_watermark",
                "log_start",
                "segments_end",
                "manifest_version",
                "manifest_written",
            ):
                if getattr(row, name) < getattr(before, name):
                    raise Violation("4 monotonic", f"{row.tp} {name} fell: {before} -> {row}")
        if row.holder:
            leader = self._leaders.setdefault((row.tp, row.epoch), row.incarnation)
            if leader != row.incarnation:
                raise Violation("5 one leader", f"{row.tp} epoch {row.epoch} has two: {row}")
        self.rows[row.tp] = row
        return before is None or before.manifest_version != row.manifest_version

    def check_segments(self, row: PartitionRow, segments: Sequence[SegmentRef]) -> None:
        for left, right in pairwise(segments):
            if left.end != right.base:
                raise Violation("3 tiling", f"{row.tp} segments {left} and {right} do not join")
        end = segments[-1].end if segments else 0
        if end != row.segments_end:
            raise Violation("3 tiling", f"{row.tp} segments end at {end}, the row says {row}")
        if segments and segments[0].base > row.log_start:
            raise Violation("3 tiling", f"{row.tp} nothing holds {row.log_start}: {segments[0]}")

    # -- the end ---------------------------------------------------------------------------------

    def check_complete(self, tp: TopicPartition, log_start: int, hw: int, read_to: int) -> None:
        """After a read of the whole log: it has all it must have."""
        log = self.log(tp)
        if read_to != hw or hw < log.hw:
            raise Violation("1 acked is read", f"{tp} read to {read_to}, HW {hw}, told {log.hw}")
        for base, batch in log.acked.items():
            if base + batch.count > log_start and base not in log.seen:
                raise Violation("1 acked is read", f"{tp} {base} ({batch.uid}) was not read")


def _uid(records: Sequence[Record]) -> str:
    value = records[0].value or b""
    return value.split(b" ", 1)[0].decode("ascii", "replace")


def _same(records: Sequence[Record], sent: SentBatch) -> bool:
    return len(records) == sent.count and all(
        record.key == new.key
        and record.value == new.value
        and (sent.log_append_time or record.timestamp_ms == new.timestamp_ms)
        for record, new in zip(records, sent.records, strict=True)
    )


def _base_of(log: LogModel, offset: int) -> int | None:
    index = bisect_left(log.bases, offset + 1) - 1
    if index < 0:
        return None
    base = log.bases[index]
    return base if offset < log.seen[base].end else None


@dataclass(slots=True)
class ObjectModel:
    """Which objects were ever registered, and when the last reference went."""

    ever_live: set[ObjectKey] = field(default_factory=set)
    live: set[ObjectKey] = field(default_factory=set)
    dropped_ms: dict[ObjectKey, int] = field(default_factory=dict)
    verified: set[ObjectKey] = field(default_factory=set)

    def on_live(self, keys: Sequence[ObjectKey], now_ms: int) -> None:
        now = set(keys)
        for key in sorted(self.live - now):
            self.dropped_ms[key] = now_ms
        self.live = now
        self.ever_live |= now
