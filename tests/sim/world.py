"""One seed, one world: stores that outlive processes, the processes, and everything checked there.

Owns what survives a crash (disk, metadata database, bucket, clock) and the supervisor that starts
the next process. Every choice comes from generators made from the seed, one per kind of choice, so
that a change in one place does not shift all others.
"""

import asyncio
import random
import sqlite3
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass
from typing import Any

from streamhouse.agent.service import AgentOptions, AgentPorts
from streamhouse.metadata import database, sqlite_partitions, sqlite_segments, sqlite_topics
from streamhouse.metadata.runner import FaultyRunner
from streamhouse.metadata.sqlite import SqliteMetadata
from streamhouse.model.errors import Invalid, StreamhouseError
from streamhouse.model.ids import ObjectKey, TopicPartition
from streamhouse.model.keys import parse_segment_key
from streamhouse.model.partition import PartitionRow
from streamhouse.objects.faulty import FaultRates, Faults, FaultyObjects
from streamhouse.objects.memory import MemoryObjects
from streamhouse.wal.file_wal import FileWal
from tests.sim.bucket import newest_manifest, read_bucket, verify_object
from tests.sim.checkers import Checker, ObjectModel, Violation
from tests.sim.disk import SimDisk
from tests.sim.loop import owner
from tests.sim.plan import Plan
from tests.sim.process import (
    End,
    Process,
    ProcessDisk,
    ProcessObjects,
    ProcessRunner,
    SimWorkers,
)
from tests.sim.trace import Trace

EPOCH_MS = 1_700_000_000_000
PAUSE_RATE = 0.25
PAUSE_S_MAX = 0.004
SLOW_READ_RATE = 0.4
LET_GO_TURNS_MAX = 1_000


class SimClock:
    """Implements ports.clock.Clock."""

    def now_ms(self) -> int:
        return EPOCH_MS + int(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


class SimIds:
    """Implements ports.clock.Ids."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def nonce(self) -> str:
        return self._chance.randbytes(8).hex()

    def uuid(self) -> bytes:
        raw = bytearray(self._chance.randbytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        return bytes(raw)


@dataclass(slots=True)
class Weather:
    """What is wrong with the outside at the moment."""

    slow_sync_s: float = 0.0
    slow_read_s: float = 0.0  # of objects; may outlast the grace of deleted ones
    disk_full: bool = False
    sync_fails: bool = False
    crashes: bool = True  # whether steps may end a process


class World:
    """Implements process.Surroundings."""

    def __init__(self, plan: Plan, show: Callable[[str], None] | None = None) -> None:
        loop = asyncio.get_running_loop()
        self.plan = plan
        self.trace = Trace(loop.time, show)
        self.chance = self.fork("steps")
        self.clock = SimClock()
        self.ids = SimIds(self.fork("ids"))
        self.disk = SimDisk(self.fork("disk"))
        self.disk.faults.sleep = self._on_disk
        self.db: sqlite3.Connection = database.open_database(":memory:", self.ids)
        self.bucket = MemoryObjects()
        self.object_faults = Faults(self.fork("objects"), asyncio.sleep)
        self.metadata_faults = Faults(self.fork("metadata"), asyncio.sleep)
        self.weather = Weather()
        self.checker = Checker()
        self.objects = ObjectModel()
        self.violation: Violation | None = None
        self.process: Process | None = None
        self._outcome: asyncio.Future[None] = loop.create_future()
        self._ended = asyncio.Event()
        self._served = asyncio.Event()
        self._starts = 0
        self._actors: list[asyncio.Task[None]] = []
        self._supervisor: asyncio.Task[None] | None = None
        loop.set_exception_handler(self._on_loop_error)

    def fork(self, what: str) -> random.Random:
        return random.Random(f"{self.plan.seed} {what}")

    # -- what everybody reports ------------------------------------------------------------------

    def note(self, text: str) -> None:
        self.trace.note(text)

    def count(self, what: str, times: int = 1) -> None:
        self.trace.count(what, times)

    def fail(self, invariant: str, detail: str) -> None:
        self.on_violation(Violation(invariant, detail))
        raise self.violation or AssertionError

    def on_violation(self, violation: Violation) -> None:
        if self.violation is None:
            self.violation = violation
            self.note(f"VIOLATION {violation}")
        if not self._outcome.done():
            self._outcome.set_result(None)

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        ours = isinstance(error, AssertionError) or "never retrieved" not in context["message"]
        if ours and self.violation is None:
            said = f"{context['message']}: {error!r}"
            self.on_violation(Violation("unhandled error", said))

    # -- life ------------------------------------------------------------------------------------

    async def run(self, script: Callable[["World"], Coroutine[Any, Any, None]]) -> None:
        """Play the script until its end or the first violation. Never raises."""
        self._supervisor = asyncio.create_task(self._supervise())
        self.spawn(script(self), ends_world=True)
        await self._outcome
        for task in [self._supervisor, *self._actors]:
            task.cancel()
        await asyncio.gather(self._supervisor, *self._actors, return_exceptions=True)
        if self.process is not None:
            self.process.end(End.KILLED)
            await self._let_go(self.process)
        self.db.close()

    def spawn(self, actor: Coroutine[Any, Any, None], *, ends_world: bool = False) -> None:
        task = asyncio.create_task(self._guard(actor, ends_world))
        self._actors.append(task)

    async def _guard(self, actor: Coroutine[Any, Any, None], ends_world: bool) -> None:
        try:
            await actor
        except Violation as violation:
            self.on_violation(violation)
        except Exception as error:  # noqa: BLE001 -- anything unexpected is a finding
            self.on_violation(Violation("unexpected error", f"{type(error).__name__}: {error}"))
            if self.violation is not None and self.violation.__cause__ is None:
                self.violation.__cause__ = error
        if ends_world and not self._outcome.done():
            self._outcome.set_result(None)

    async def _supervise(self) -> None:
        """Start a process; when it ends, wait a little and start the next."""
        chance = self.fork("supervisor")
        while True:
            self._ended.clear()
            self.process = process = self._new_process(chance)
            await process.start()
            if process.serving:
                self.check_topics(process)
                self._served.set()
            if process.alive:
                await self._ended.wait()
            self._served.clear()
            await self._let_go(process)
            await asyncio.sleep(chance.choice((0.01, 0.1, 1.0)))

    async def _let_go(self, process: Process) -> None:
        for _ in range(LET_GO_TURNS_MAX):
            if not process.has_tasks:
                return
            await asyncio.sleep(0)
        self.on_violation(Violation("unexpected error", "tasks survive their process"))

    def _new_process(self, chance: random.Random) -> Process:
        self._starts += 1
        self.count("starts")
        process = Process(self._starts, self, self._steps_to_live(chance))
        objects = FaultyObjects(ProcessObjects(self.bucket, process, self), self.object_faults)
        runner = FaultyRunner(ProcessRunner(process, self), self.metadata_faults)
        wal = FileWal(ProcessDisk(self.disk, process), self.ids, self.plan.wal)
        metadata = SqliteMetadata(self.db, runner)
        ports = AgentPorts(metadata, objects, wal, SimWorkers(), self.clock, self.ids)
        process.build(ports, self._agent_options(f"i{self._starts}"), wal)
        return process

    def _agent_options(self, incarnation: str) -> AgentOptions:
        plan = self.plan
        return AgentOptions(
            agent_id="agent",
            incarnation=incarnation,
            segment_max_size=plan.segment_max_size,
            segment_max_age_ms=plan.segment_max_age_ms,
            segment_bytes_max=plan.segment_bytes_max,
            tail_bytes_max=plan.tail_bytes_max,
            block_cache_bytes_max=plan.cache_bytes_max,
            maintenance_interval_ms=min(500, plan.retention_check_ms, plan.manifest_ms),
            retention_check_interval_ms=plan.retention_check_ms,
            manifest_interval_ms=plan.manifest_ms,
            delete_grace_ms=plan.delete_grace_ms,
            merge_segments_min=plan.merge_segments_min,
            merge_bytes_small=plan.merge_bytes_small,
        )

    def _steps_to_live(self, chance: random.Random) -> int | None:
        mean = self.plan.crash_steps_mean
        if not mean or not self.weather.crashes:
            return None
        if chance.random() < 0.2:
            return chance.randrange(30)  # during recovery or just after
        return int(chance.expovariate(1 / mean))

    async def serving(self) -> Process:
        """The process that serves now, or the next that does."""
        while self.process is None or not self.process.serving:
            self._served.clear()
            await self._served.wait()
        return self.process

    # -- Surroundings ----------------------------------------------------------------------------

    def on_end(self, process: Process, end: End) -> None:
        self.count(end.value)
        self._count_work(process)
        if end is End.POWER_LOST:
            self.disk.crash()
        else:
            self.disk.kill()
        self.weather.sync_fails = False
        self.disk.faults.write_error = None
        self._served.clear()
        self._ended.set()

    def _count_work(self, process: Process) -> None:
        service = process.service
        self.count("duplicates", service.appender.duplicates)
        self.count("merges", service.merger.merges)
        self.count("rolls", service.roller.segments_rolled)
        self.count("entries replayed", service.recovery.entries_replayed)

    def pause_s(self) -> float:
        if self.chance.random() < PAUSE_RATE:
            return self.chance.random() * PAUSE_S_MAX
        return 0.0

    def read_pause_s(self) -> float:
        """Some reads of clients are slow; the upkeep and other readers get ahead of them."""
        slow_s = self.weather.slow_read_s
        if not slow_s or self.chance.random() > SLOW_READ_RATE:
            return 0.0
        return self.chance.random() * slow_s

    def is_start_trouble(self, error: BaseException) -> bool:
        """A start may be refused only for what is wrong outside at this moment."""
        troubled = self.weather.disk_full or self.weather.sync_fails
        return troubled and "cannot be written" in str(error)

    async def _on_disk(self, operation: str) -> None:
        process = owner.get()
        if operation == "sync":
            if self.weather.slow_sync_s:
                await asyncio.sleep(self.chance.random() * self.weather.slow_sync_s)
            assert isinstance(process, Process)
            await process.step("disk sync")

    def on_command(self, process: Process, command: str) -> None:
        """A metadata command had its effect: look at all rows."""
        if command == "raise_log_start":
            self.count("retentions")
        try:
            self._check_rows(process)
        except Violation as violation:
            self.on_violation(violation)

    def _check_rows(self, process: Process) -> None:
        rows = [
            sqlite_partitions.partition_row(row)
            for row in self.db.execute(
                f"SELECT {sqlite_partitions._ROW} FROM partitions ORDER BY topic_id, partition"
            )
        ]
        changed = [row for row in rows if self.checker.on_row(row)]
        for row in changed:
            segments = sqlite_segments.live_segments(self.db, [row.tp])[row.tp]
            self.checker.check_segments(row, segments)
            self._check_watermark(process, row)
            for ref in segments:
                if ref.key not in self.objects.verified:
                    self.objects.verified.add(ref.key)
                    self._verify(row.tp, ref)
        self.objects.on_live(self._live_keys(), self.clock.now_ms())
        for key in sorted(self.objects.live):
            if key not in self.bucket_content:
                raise Violation("6 references", f"{key} is referenced but does not exist")

    def _verify(self, tp: TopicPartition, ref: Any) -> None:
        try:
            wrong = verify_object(self.bucket_content, tp, ref)
        except StreamhouseError as error:
            wrong = str(error)
        if wrong:
            raise Violation("6 references", wrong)

    def _check_watermark(self, process: Process, row: PartitionRow) -> None:
        partition = process.service.catalog.partitions.get(row.tp)
        if partition is not None and row.segments_end > partition.machine.high_watermark:
            raise Violation("7 watermark", f"{row} reaches above the leader's watermark")

    def _live_keys(self) -> list[ObjectKey]:
        found = [ObjectKey(key) for (key,) in self.db.execute("SELECT key FROM segments")]
        named = self.db.execute("SELECT snapshot_key FROM partitions WHERE snapshot_key NOT NULL")
        return found + [ObjectKey(key) for (key,) in named]

    @property
    def bucket_content(self) -> dict[ObjectKey, bytes]:
        return self.bucket._objects

    def on_put(self, process: Process, key: ObjectKey) -> None:
        self.count("objects put")

    def on_deleted(self, process: Process, keys: Collection[ObjectKey]) -> None:
        try:
            self._check_deleted(keys)
        except Violation as violation:
            self.on_violation(violation)

    def _check_deleted(self, keys: Collection[ObjectKey]) -> None:
        now_ms = self.clock.now_ms()
        topics = {topic.topic_id for topic in sqlite_topics.list_topics(self.db)}
        for key in keys:
            self.count("objects deleted")
            if key in self.objects.live:
                raise Violation("6 references", f"{key} was deleted while it is referenced")
            try:
                name = parse_segment_key(key)
            except Invalid:
                continue
            if name.tp.topic_id not in topics:
                continue
            self._check_grace(key, now_ms)
            manifest = newest_manifest(self.bucket_content, name.tp)
            if manifest is not None and key in [segment.key for segment in manifest.segments]:
                raise Violation("6 references", f"{key} was deleted, but manifest names it")

    def _check_grace(self, key: ObjectKey, now_ms: int) -> None:
        dropped_ms = self.objects.dropped_ms.get(key)
        if dropped_ms is not None and now_ms - dropped_ms < self.plan.delete_grace_ms:
            raise Violation("6 references", f"{key} was deleted {now_ms - dropped_ms} ms after")

    # -- audits ----------------------------------------------------------------------------------

    def check_topics(self, process: Process) -> None:
        """After a start the leader knows exactly the stored topics."""
        stored = [topic.topic_id for topic in sqlite_topics.list_topics(self.db)]
        known = [topic.topic_id for topic in process.service.catalog.topics()]
        if stored != known:
            self.on_violation(Violation("18 liveness", f"stored {stored}, led {known}"))

    def check_bounds(self) -> None:
        """Memory and WAL stay bounded, whatever the outside does."""
        names = [name for name in self.disk._cached if name.startswith("wal-")]
        # A start opens a file of its own; one that crashes may leave two, and a spare to go.
        files_max = self.plan.wal.files_max + 3
        if len(names) > files_max:
            raise Violation("19 bounds", f"{len(names)} WAL files, at most {files_max}")
        process = self.process
        if process is None or not process.serving:
            return
        service = process.service
        partitions = len(service.catalog.partitions)
        # An open chunk and one that was not durable when it was sealed, and what is in flight.
        slack = partitions * (2 * self.plan.chunk_bytes + 12 * self.plan.batch_bytes_max)
        slack += process.wal.queued_bytes + 16 * self.plan.batch_bytes_max
        used = service._budget.bytes_used
        if used > self.plan.tail_bytes_max + slack:
            raise Violation("19 bounds", f"tails use {used} of {self.plan.tail_bytes_max}+{slack}")

    def check_bucket(self) -> None:
        """A bucket-only read shows what a broker shows, and all of it."""
        for topic in sqlite_topics.list_topics(self.db):
            for number in range(topic.partition_count):
                self._check_bucket_of(TopicPartition(topic.topic_id, number))

    def _check_bucket_of(self, tp: TopicPartition) -> None:
        try:
            manifest = newest_manifest(self.bucket_content, tp)
            if manifest is None:
                return
            batches = read_bucket(self.bucket_content, manifest)
        except (StreamhouseError, KeyError) as error:
            raise Violation("16 bucket", f"{tp}: {type(error).__name__}: {error}") from error
        row = self.checker.rows[tp]
        reach = manifest.stable_end if manifest.log_start < manifest.stable_end else 0
        if reach > row.segments_end or manifest.version > row.manifest_version:
            raise Violation("16 bucket", f"{tp}: manifest leads the row {row}: {manifest}")
        self.count("bucket reads")
        if manifest.log_start < manifest.stable_end:
            read_to = self.checker.on_read(
                tp, manifest.log_start, batches, row.high_watermark, manifest.stable_end
            )
            if read_to < manifest.stable_end:
                raise Violation("16 bucket", f"{tp}: read to {read_to} of {manifest.stable_end}")

    # -- weather ---------------------------------------------------------------------------------

    def fail_next_sync(self) -> None:
        self.weather.sync_fails = True
        self.disk.faults.write_error = OSError(5, "Input/output error (injected)")
        self.count("fsync faults")

    def set_disk_full(self, full: bool) -> None:
        self.weather.disk_full = full
        if full:
            self.disk.faults.fill_disk()
        else:
            self.disk.faults.create_error = None

    def heal(self) -> None:
        self.note("heal")
        self.weather = Weather(crashes=False)
        self.disk.faults.write_error = None
        self.set_disk_full(False)
        self.object_faults.rates = FaultRates()
        self.metadata_faults.rates = FaultRates()
        if self.process is not None:
            self.process.spare()
