"""What only SQLite can get wrong: full disks, locks, threads, size, and the promised view."""

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import pytest

from streamhouse.metadata import sqlite_topics
from streamhouse.metadata.database import open_database, read, write
from streamhouse.metadata.runner import InlineRunner
from streamhouse.metadata.sqlite import SqliteMetadata
from streamhouse.model.errors import Corrupt, Unavailable
from streamhouse.model.ids import ObjectKey, TopicId, TopicPartition
from streamhouse.model.partition import Fence, SegmentCommit, SegmentRef
from streamhouse.model.topic import TopicSpec

T = TypeVar("T")
T1 = TopicId(UUID(int=1))

KILLED = """
import asyncio, sys
from uuid import UUID
from streamhouse.metadata.sqlite import SqliteMetadata

class Ids:
    def nonce(self): return "0"
    def uuid(self): return bytes(16)

async def main():
    store = await SqliteMetadata.open(sys.argv[1], ids=Ids())
    while True:
        print(await store.reserve_ids("producer", 1), flush=True)

asyncio.run(main())
"""


class FixedIds:
    def nonce(self) -> str:
        return "0"

    def uuid(self) -> bytes:
        return bytes(range(16))


class TracingRunner(InlineRunner):
    """Remembers what ran where."""

    def __init__(self) -> None:
        self.commands: list[tuple[str, bool]] = []

    async def run(self, command: str, work: Callable[[], T], *, writes: bool) -> T:
        self.commands.append((command, writes))
        return await super().run(command, work, writes=writes)


def segment(tp: TopicPartition, base: int) -> SegmentRef:
    key = ObjectKey(f"topics/{tp.topic_id}/{tp.partition}/{base:020d}-{base + 10:020d}-x.strm")
    return SegmentRef(key, base, base + 10, 1, 10, 0, 0, 1_000, 500, 7, 0)


def test_a_full_disk_refuses_writes_and_reads_go_on(tmp_path: Path) -> None:
    """Goal: Unavailable with nothing changed; when there is room again, so are writes."""
    db = open_database(str(tmp_path / "meta.db"), FixedIds())
    spec = TopicSpec("large", 5_000)
    pages = db.execute("PRAGMA page_count").fetchone()[0]
    db.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(Unavailable, match="full"):
        write(db, lambda c: sqlite_topics.create_topic(c, T1, spec, 1))
    assert not db.in_transaction
    assert read(db, sqlite_topics.list_topics) == []
    db.execute("PRAGMA max_page_count = 1000000")
    write(db, lambda c: sqlite_topics.create_topic(c, T1, spec, 1))
    assert [t.name for t in read(db, sqlite_topics.list_topics)] == ["large"]
    db.close()


def test_a_locked_database_is_unavailable_and_then_not(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    db = open_database(str(path), FixedIds())
    db.execute("PRAGMA busy_timeout = 1")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="locked"):
        write(db, lambda c: sqlite_topics.create_topic(c, T1, TopicSpec("a", 1), 1))
    assert read(db, sqlite_topics.list_topics) == []
    other.execute("ROLLBACK")
    write(db, lambda c: sqlite_topics.create_topic(c, T1, TopicSpec("a", 1), 1))
    other.close()
    db.close()


def test_a_command_holds_the_write_lock_from_its_first_look(tmp_path: Path) -> None:
    """Goal: what a command reads before it writes cannot change in between."""
    path = tmp_path / "meta.db"
    db = open_database(str(path), FixedIds())
    other = sqlite3.connect(path, isolation_level=None, timeout=0)

    def work(c: sqlite3.Connection) -> None:
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")

    write(db, work)
    other.execute("BEGIN IMMEDIATE")
    other.close()
    db.close()


def test_a_damaged_database_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    db = open_database(str(path), FixedIds())
    write(db, lambda c: sqlite_topics.create_topic(c, T1, TopicSpec("a", 2_000), 1))
    db.close()
    body = bytearray(path.read_bytes())
    body[8_192:] = b"\xa5" * len(body[8_192:])
    path.write_bytes(body)
    damaged = sqlite3.connect(path, isolation_level=None)
    with pytest.raises(Corrupt, match="restore it from a backup"):
        read(damaged, lambda c: c.execute("SELECT * FROM partitions").fetchall())
    damaged.close()


def test_a_failing_command_changes_nothing() -> None:
    db = open_database(":memory:", FixedIds())

    def work(c: sqlite3.Connection) -> None:
        sqlite_topics.create_topic(c, T1, TopicSpec("a", 1), 1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(db, work)
    assert read(db, sqlite_topics.list_topics) == []
    db.close()


def test_our_own_mistakes_are_not_hidden() -> None:
    db = open_database(":memory:", FixedIds())
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        read(db, lambda c: c.execute("SELECT * FROM nowhere"))
    assert not db.in_transaction
    db.close()


def test_every_acknowledged_command_survives_kill(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert child.stdout is not None
    with child.stdout as answers:
        acknowledged = [int(answers.readline()) for _ in range(30)]
        child.kill()
        child.wait()
        # The last line may be cut short by the kill.
        acknowledged += [int(line) for line in answers.readlines() if line.endswith("\n")]

    async def look() -> int:
        store = await SqliteMetadata.open(path, ids=FixedIds())
        first = await store.reserve_ids("producer", 1)
        await store.close()
        return first

    assert asyncio.run(look()) in (acknowledged[-1] + 1, acknowledged[-1] + 2)


def test_leases_can_be_seen_as_a_table() -> None:
    """SH-34, SH-122: the view answers who leads what at which epoch."""
    db = open_database(":memory:", FixedIds())
    write(db, lambda c: sqlite_topics.create_topic(c, T1, TopicSpec("orders", 2), 1))
    assert db.execute("SELECT * FROM partition_leases").fetchall() == []
    db.execute("UPDATE partitions SET holder = 'agent-1', epoch = 7 WHERE partition = 1")
    rows = db.execute("SELECT * FROM partition_leases")
    assert [c[0] for c in rows.description] == [
        "topic",
        "partition_id",
        "agent_id",
        "lease_epoch",
        "lease_expires_at",
    ]
    assert rows.fetchall() == [("orders", 1, "agent-1", 7, None)]
    db.close()


def test_the_outbox_is_bounded() -> None:
    db = open_database(":memory:", FixedIds())
    kept = sqlite_topics.EVENTS_KEPT_MAX
    write(db, lambda c: sqlite_topics.create_topic(c, T1, TopicSpec("orders", 1), 1))

    def alter(c: sqlite3.Connection) -> None:
        for i in range(kept + 5):
            sqlite_topics.set_topic_config(c, T1, {"retention.ms": str(i)}, i)

    write(db, alter)
    events = read(db, lambda c: sqlite_topics.events_after(c, 0, 10 * kept))
    assert len(events) == kept
    assert events[-1].seq == kept + 6
    db.close()


def test_the_event_loop_is_not_blocked_and_one_thread_does_the_work(tmp_path: Path) -> None:
    async def scenario() -> None:
        before = threading.active_count()
        store = await SqliteMetadata.open(tmp_path / "meta.db", ids=FixedIds())
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticker = asyncio.create_task(tick())
        firsts = await asyncio.gather(*(store.reserve_ids("c", 1) for _ in range(50)))
        ticker.cancel()
        assert sorted(firsts) == list(range(50))
        assert ticks > 50  # the loop went on while commands synced
        assert threading.active_count() == before + 1
        await store.close()
        await store.close()

    asyncio.run(scenario())


def test_the_runner_sees_every_command_by_name() -> None:
    """Goal: a simulation can run, count and fail commands where they are performed."""

    async def scenario() -> None:
        runner = TracingRunner()
        store = await SqliteMetadata.open(":memory:", ids=FixedIds(), run=runner)
        await store.create_topic(T1, TopicSpec("a", 1), 1)
        await store.list_topics()
        await store.close()
        assert runner.commands == [
            ("open", True),
            ("create_topic", True),
            ("list_topics", False),
            ("close", True),
        ]

    asyncio.run(scenario())


def test_the_inline_runner_never_suspends() -> None:
    """Goal: no thread and no turn of the loop inside a command, so one seed gives one run."""

    async def scenario() -> None:
        store = await SqliteMetadata.open(":memory:", ids=FixedIds(), run=InlineRunner())
        command = store.reserve_ids("c", 1)
        with pytest.raises(StopIteration) as answered:
            command.send(None)
        assert answered.value.value == 0
        await store.close()

    asyncio.run(scenario())


def test_ten_thousand_segments_load_within_the_start_budget(tmp_path: Path) -> None:
    """Issue 2: a start with 10,000 segments within 3 s; the store may take a small part of it."""

    async def scenario() -> None:
        store = await SqliteMetadata.open(tmp_path / "meta.db", ids=FixedIds(), run=InlineRunner())
        for number in range(10):
            topic_id = TopicId(UUID(int=number + 1))
            await store.create_topic(topic_id, TopicSpec(f"topic-{number}", 100), 1)
        rows = await store.take_partitions("agent", "i1", "w1")
        store._db.execute("PRAGMA synchronous = OFF")  # only to fill it quickly
        for row in rows:
            fence = Fence(row.tp, "agent", "i1", row.epoch)
            for base in range(0, 100, 10):
                await store.commit_segment(SegmentCommit(fence, segment(row.tp, base), ()))
        tps = [row.tp for row in rows]
        started = time.perf_counter()
        live = await store.live_segments(tps)
        topics = await store.list_topics()
        taken = await store.take_partitions("agent", "i2", "w1")
        elapsed_s = time.perf_counter() - started
        assert sum(len(found) for found in live.values()) == 10_000
        assert (len(topics), len(taken), len(live)) == (10, 1_000, 1_000)
        assert elapsed_s < 0.8, f"took {elapsed_s:.3f} s"
        await store.close()

    asyncio.run(scenario())
