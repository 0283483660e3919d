"""Writes groups and offsets to the store, many of them in one transaction.

Whoever asks while a write is under way, or within a few ms of the last one, shares the next. A lone
request is written at once. Answers that promise what a row says are held here until it is stored.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from streamhouse.groups.machine import GroupMachine
from streamhouse.model.errors import StreamhouseError, Unavailable
from streamhouse.model.groups import JoinAnswer, Refusal, SyncAnswer
from streamhouse.model.ids import TopicPartition
from streamhouse.ports.clock import Clock
from streamhouse.ports.metadata import GroupChanges, GroupOffsets, GroupStore

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
_UNSTORED = Refusal.COORDINATOR_NOT_AVAILABLE

Reply = JoinAnswer | SyncAnswer
T = TypeVar("T")


class Group:
    """A group's machine with what the shell must remember about it."""

    def __init__(self, machine: GroupMachine) -> None:
        self.machine = machine
        self.has_offsets = False
        self.commit_count = 0
        self.empty_since_ms: int | None = None
        self.wake_ms: int | None = None  # when its timer is set for
        self._version = 0
        self._version_stored = 0
        self._held: list[tuple[int, asyncio.Future[Reply], Reply]] = []

    def changed(self) -> None:
        self._version += 1

    @property
    def version(self) -> int:
        return self._version

    def answer(self, waiting: "asyncio.Future[Reply]", reply: Reply) -> None:
        """Give the answer now, or when the row it depends on is stored."""
        if self._version > self._version_stored:
            self._held.append((self._version, waiting, reply))
        else:
            _give(waiting, reply)

    def stored(self, version: int) -> None:
        assert version >= self._version_stored
        self._version_stored = version
        self._release(version, failed=False)

    def not_stored(self, version: int) -> None:
        self._release(version, failed=True)

    def _release(self, version: int, *, failed: bool) -> None:
        due = [held for held in self._held if held[0] <= version]
        self._held = [held for held in self._held if held[0] > version]
        for _, waiting, reply in due:
            _give(waiting, _instead_of(reply) if failed and reply.refusal is None else reply)


class GroupWriter:
    def __init__(
        self, store: GroupStore, clock: Clock, *, interval_ms: int, on_fatal: Callable[..., None]
    ) -> None:
        self._store = store
        self._clock = clock
        self._interval_s = interval_ms / 1000
        self._on_fatal = on_fatal
        self._dirty: dict[Group, None] = {}
        self._commits: list[tuple[GroupOffsets, asyncio.Future[frozenset[TopicPartition]]]] = []
        self._work = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._complained = False
        self.transactions = 0

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="group writer")
        self._task.add_done_callback(self._on_done)

    async def stop(self) -> None:
        """Write what is left, if the store lets us."""
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._dirty or self._commits:
            await self._write()

    def mark(self, group: Group) -> None:
        """The group's row has changed."""
        self._dirty[group] = None
        self._work.set()

    def forget(self, group: Group) -> None:
        """The group is gone; its row must not come back."""
        self._dirty.pop(group, None)

    async def commit(self, offsets: GroupOffsets) -> frozenset[TopicPartition]:
        """Store the offsets; returns partitions that do not exist. Raises StreamhouseError.

        Without offsets it waits until everything that was asked for before is stored.
        """
        waiting = asyncio.get_running_loop().create_future()
        self._commits.append((offsets, waiting))
        self._work.set()
        absent: frozenset[TopicPartition] = await waiting
        return absent.intersection(offsets.offsets)

    async def _run(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            began = self._clock.monotonic()
            if not await self._write():
                await asyncio.sleep(RETRY_SECONDS)
                self._work.set()
                continue
            left_s = began + self._interval_s - self._clock.monotonic()
            if left_s > 0:
                await asyncio.sleep(left_s)

    async def _write(self) -> bool:
        """One transaction with all there is to write. False if the store did not take it."""
        groups = [(group, group.version) for group in self._dirty]
        commits, self._commits = self._commits, []
        self._dirty = {}
        rows = tuple(group.machine.row(group.empty_since_ms) for group, _ in groups)
        offsets = tuple(offsets for offsets, _ in commits if offsets.offsets)
        try:
            absent = frozenset[TopicPartition]()
            if rows or offsets:
                absent = await self._store.store_groups(GroupChanges(rows, offsets))
                self.transactions += 1
        except (StreamhouseError, asyncio.CancelledError) as error:
            self._failed(groups, commits, error)
            if isinstance(error, asyncio.CancelledError):
                raise
            return False
        self._complained = False
        for group, version in groups:
            group.stored(version)
        for _, waiting in commits:
            _give(waiting, absent)
        return True

    def _failed(
        self,
        groups: "list[tuple[Group, int]]",
        commits: "list[tuple[GroupOffsets, asyncio.Future[frozenset[TopicPartition]]]]",
        error: BaseException,
    ) -> None:
        """Tell everybody who waits, and keep the rows for the next try."""
        if isinstance(error, StreamhouseError) and not self._complained:
            self._complained = True
            log.warning("groups and offsets are not stored; they are tried again: %s", error)
        for group, version in groups:
            group.not_stored(version)
            self._dirty[group] = None
        told = error if isinstance(error, StreamhouseError) else Unavailable("stopping")
        for _, waiting in commits:
            if not waiting.done():
                waiting.set_exception(told)

    def _on_done(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and task.exception() is not None:
            self._on_fatal(task.exception())


def _instead_of(reply: Reply) -> Reply:
    if isinstance(reply, JoinAnswer):
        return JoinAnswer(_UNSTORED, reply.member_id)
    return SyncAnswer(_UNSTORED)


def _give(waiting: "asyncio.Future[T]", value: "T") -> None:
    if not waiting.done():  # the client may have gone
        waiting.set_result(value)
