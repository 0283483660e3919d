"""The group coordinator: owns all groups, their timers, and who waits for an answer.

Every request goes through its group's machine, which decides; this file performs. Rows and offsets
are written by `writer`; members learn of a generation only after it is stored. One timer serves all
groups. After a restart groups go on with the members they had; sessions begin anew.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Protocol, TypeVar
from uuid import UUID

from streamhouse.groups.machine import Answer, Effect, GroupMachine, Store
from streamhouse.groups.subscription import CONSUMER
from streamhouse.groups.writer import Group, GroupWriter, Reply
from streamhouse.model.errors import StreamhouseError
from streamhouse.model.groups import (
    NO_GENERATION,
    GroupDescription,
    GroupListing,
    GroupRow,
    GroupState,
    Identity,
    JoinAnswer,
    JoinRequest,
    Refusal,
    SyncAnswer,
    SyncRequest,
)
from streamhouse.model.ids import TopicPartition
from streamhouse.model.limits import (
    GROUP_INITIAL_REBALANCE_DELAY_MS,
    GROUP_MEMBERS_MAX,
    GROUP_WRITE_INTERVAL_MS,
    GROUPS_MAX,
    OFFSET_RETENTION_CHECK_MS,
    OFFSET_RETENTION_MS,
    SESSION_TIMEOUT_MS_MAX,
    SESSION_TIMEOUT_MS_MIN,
)
from streamhouse.ports.clock import Clock, Ids
from streamhouse.ports.metadata import CommittedOffset, GroupOffsets, GroupStore, OffsetStore

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Reply)


class GroupPorts(GroupStore, OffsetStore, Protocol):
    """What the coordinator needs of the metadata store."""


@dataclass(frozen=True, slots=True)
class GroupOptions:
    initial_delay_ms: int = GROUP_INITIAL_REBALANCE_DELAY_MS
    members_max: int = GROUP_MEMBERS_MAX
    groups_max: int = GROUPS_MAX
    write_interval_ms: int = GROUP_WRITE_INTERVAL_MS
    offset_retention_ms: int = OFFSET_RETENTION_MS
    retention_check_ms: int = OFFSET_RETENTION_CHECK_MS


class GroupService:
    def __init__(
        self,
        store: GroupPorts,
        clock: Clock,
        ids: Ids,
        options: GroupOptions,
        *,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._options = options
        self._on_fatal = on_fatal
        self._groups: dict[str, Group] = {}
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self._tickets = count(1)
        self._alarms: list[tuple[int, int, Group]] = []  # a heap; entries may be out of date
        self._timer: asyncio.TimerHandle | None = None
        self._retention: asyncio.Task[None] | None = None
        self._stopping = False
        self._writer = GroupWriter(
            store, clock, interval_ms=options.write_interval_ms, on_fatal=on_fatal
        )

    # -- life --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take up every stored group. Nobody is served before this has returned."""
        for row in await self._store.load_groups():
            self._restore(row)
        for group_id in await self._store.groups_with_offsets():
            group = self._groups.get(group_id) or self._make(group_id)
            group.has_offsets = True
        self._writer.start()
        self._retention = asyncio.create_task(self._retain(), name="offset retention")
        self._retention.add_done_callback(self._on_task_done)

    async def stop(self) -> None:
        self._stopping = True
        if self._timer is not None:
            self._timer.cancel()
        if self._retention is not None:
            self._retention.cancel()
            await asyncio.gather(self._retention, return_exceptions=True)
        await self._writer.stop()

    # -- membership --------------------------------------------------------------------------------

    async def join(self, group_id: str, request: JoinRequest) -> JoinAnswer:
        """Wait for the next generation of the group, or be refused at once."""
        refusal = _join_refusal(group_id, request)
        group = self._groups.get(group_id)
        if refusal is None and group is None:
            if request.member_id:
                refusal = Refusal.UNKNOWN_MEMBER_ID
            elif len(self._groups) >= self._options.groups_max:
                log.warning("refusing a new consumer group: there are %d", len(self._groups))
                refusal = Refusal.COORDINATOR_NOT_AVAILABLE
        if refusal is not None:
            return JoinAnswer(refusal, request.member_id)
        group = group or self._make(group_id)
        ticket, waiting = self._park()
        now_ms = self._now_ms()
        self._perform(group, group.machine.on_join(ticket, request, self._new_id(request), now_ms))
        return await self._answered(group, ticket, waiting, JoinAnswer)

    async def sync(self, group_id: str, request: SyncRequest) -> SyncAnswer:
        """Wait for the assignment of the generation the member is in."""
        group = self._groups.get(group_id)
        if group is None:
            return SyncAnswer(_unknown(group_id))
        ticket, waiting = self._park()
        self._perform(group, group.machine.on_sync(ticket, request, self._now_ms()))
        return await self._answered(group, ticket, waiting, SyncAnswer)

    def heartbeat(self, group_id: str, identity: Identity, generation: int) -> Refusal | None:
        group = self._groups.get(group_id)
        if group is None:
            return _unknown(group_id)
        return group.machine.on_heartbeat(identity, generation, self._now_ms())

    def leave(self, group_id: str, leaving: Sequence[Identity]) -> list[Refusal | None]:
        group = self._groups.get(group_id)
        if group is None:
            return [_unknown(group_id) for _ in leaving]
        verdicts, effects = group.machine.on_leave(leaving, self._now_ms())
        self._perform(group, effects)
        return verdicts

    # -- offsets -----------------------------------------------------------------------------------

    async def commit(
        self,
        group_id: str,
        identity: Identity,
        generation: int,
        offsets: Mapping[TopicPartition, CommittedOffset],
    ) -> Refusal | frozenset[TopicPartition]:
        """Store where the group stands; returns the partitions that do not exist.

        Raises StreamhouseError if the store did not take them.
        """
        group = self._groups.get(group_id)
        if group is None:
            if generation > NO_GENERATION:
                return Refusal.GROUP_ID_NOT_FOUND
            if len(self._groups) >= self._options.groups_max:
                return Refusal.COORDINATOR_NOT_AVAILABLE
            group = self._make(group_id)
        refusal = group.machine.check_commit(identity, generation, self._now_ms())
        if refusal is not None:
            return refusal
        if not offsets:
            return frozenset()
        group.has_offsets = True
        group.commit_count += 1
        return await self._writer.commit(GroupOffsets(group_id, offsets))

    async def committed(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        """Everything the group has committed; empty for an unknown group."""
        return await self._store.committed_offsets(group_id)

    async def delete_offsets(
        self, group_id: str, asked: Mapping[TopicPartition, str]
    ) -> Refusal | frozenset[TopicPartition]:
        """Forget offsets; `asked` names each partition's topic. Returns those still subscribed."""
        group = self._groups.get(group_id)
        if group is None or group.machine.state is GroupState.DEAD:
            return Refusal.GROUP_ID_NOT_FOUND
        machine = group.machine
        kept = frozenset[TopicPartition]()
        if machine.state is not GroupState.EMPTY:
            if machine.protocol_type != CONSUMER:
                return Refusal.NON_EMPTY_GROUP
            read = {topic: machine.reads_topic(topic) for topic in set(asked.values())}
            kept = frozenset(tp for tp, topic in asked.items() if read[topic])
        await self._writer.commit(GroupOffsets(group_id, {}))
        await self._store.delete_offsets(group_id, asked.keys() - kept)
        return kept

    # -- administration ----------------------------------------------------------------------------

    def list_groups(self) -> list[GroupListing]:
        """Every group, by name."""
        machines = [self._groups[group_id].machine for group_id in sorted(self._groups)]
        return [
            GroupListing(one.group_id, one.state, one.protocol_type, one.member_count)
            for one in machines
            if one.state is not GroupState.DEAD
        ]

    def describe(self, group_id: str) -> GroupDescription | None:
        group = self._groups.get(group_id)
        if group is None or group.machine.state is GroupState.DEAD:
            return None
        return group.machine.describe()

    async def delete(self, group_id: str) -> Refusal | None:
        """Forget an empty group and everything it committed. Raises StreamhouseError."""
        group = self._groups.get(group_id)
        if group is None or group.machine.state is GroupState.DEAD:
            return Refusal.GROUP_ID_NOT_FOUND
        if group.machine.state is not GroupState.EMPTY:
            return Refusal.NON_EMPTY_GROUP
        group.machine.close()  # nothing new is accepted while it goes
        try:
            await self._writer.commit(GroupOffsets(group_id, {}))
            await self._store.delete_groups([group_id])
        except StreamhouseError:
            group.machine.reopen()
            raise
        self._drop(group)
        return None

    # -- inside ------------------------------------------------------------------------------------

    def _make(self, group_id: str) -> Group:
        machine = GroupMachine(
            group_id,
            initial_delay_ms=self._options.initial_delay_ms,
            members_max=self._options.members_max,
        )
        group = Group(machine)
        group.empty_since_ms = self._clock.now_ms()
        self._groups[group_id] = group
        return group

    def _restore(self, row: GroupRow) -> None:
        group = self._make(row.group_id)
        group.machine.restore(row, self._now_ms())
        group.empty_since_ms = row.empty_since_ms
        self._set_alarm(group)

    def _drop(self, group: Group) -> None:
        self._writer.forget(group)
        del self._groups[group.machine.group_id]

    def _park(self) -> tuple[int, "asyncio.Future[Reply]"]:
        ticket = next(self._tickets)
        waiting: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = waiting
        return ticket, waiting

    async def _answered(
        self, group: Group, ticket: int, waiting: "asyncio.Future[Reply]", kind: type[T]
    ) -> T:
        try:
            reply = await waiting
        except asyncio.CancelledError:
            if self._waiting.pop(ticket, None) is not None and not self._stopping:
                self._perform(group, group.machine.on_gone(ticket, self._now_ms()))
            raise
        assert isinstance(reply, kind)
        return reply

    def _perform(self, group: Group, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Store():
                    group.changed()
                    self._writer.mark(group)
                case Answer(ticket, reply):
                    waiting = self._waiting.pop(ticket, None)
                    if waiting is not None:
                        group.answer(waiting, reply)
        if group.machine.state is not GroupState.EMPTY:
            group.empty_since_ms = None
        elif group.empty_since_ms is None:
            group.empty_since_ms = self._clock.now_ms()
        if group.machine.is_unused and not group.has_offsets:
            self._drop(group)
        else:
            self._set_alarm(group)

    def _new_id(self, request: JoinRequest) -> str:
        return f"{request.instance_id or request.client_id}-{UUID(bytes=self._ids.uuid())}"

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    # -- timers ------------------------------------------------------------------------------------

    def _set_alarm(self, group: Group) -> None:
        """Wake for the group's next deadline. One that moved later is found out when it rings."""
        deadline_ms = group.machine.deadline_ms()
        if deadline_ms is None or (group.wake_ms is not None and group.wake_ms <= deadline_ms):
            return
        group.wake_ms = deadline_ms
        heappush(self._alarms, (deadline_ms, next(self._tickets), group))
        if self._alarms[0][2] is group:
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._alarms and not self._stopping:
            # Whole milliseconds: a timer that rings a hair too early must not ring on and on.
            delay_ms = max(0, self._alarms[0][0] - self._now_ms())
            self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._ring)

    def _ring(self) -> None:
        now_ms = self._now_ms()
        while self._alarms and self._alarms[0][0] <= now_ms:
            when_ms, _, group = heappop(self._alarms)
            if group.wake_ms != when_ms:
                continue  # an earlier alarm has replaced this one
            group.wake_ms = None
            if self._groups.get(group.machine.group_id) is group:
                self._wake(group, now_ms)
        self._arm()

    def _wake(self, group: Group, now_ms: int) -> None:
        try:
            self._perform(group, group.machine.on_time(now_ms))
        except Exception:  # a mistake of ours in one group must not stop the others' timers
            log.exception("group %r failed unexpectedly", group.machine.group_id)

    # -- retention ---------------------------------------------------------------------------------

    async def _retain(self) -> None:
        while True:
            await asyncio.sleep(self._options.retention_check_ms / 1000)
            try:
                await self.expire_offsets()
            except StreamhouseError as error:
                log.warning("offset retention will be tried again: %s", error)

    async def expire_offsets(self) -> None:
        """Forget offsets of groups that nobody has used for long, then groups without any."""
        before_ms = self._clock.now_ms() - self._options.offset_retention_ms
        await self._writer.commit(GroupOffsets("", {}))
        busy = [
            group_id
            for group_id, group in self._groups.items()
            if group.machine.state is not GroupState.EMPTY
        ]
        await self._store.expire_offsets(before_ms, busy)
        commits_before = {group: group.commit_count for group in self._groups.values()}
        kept = frozenset(await self._store.groups_with_offsets())
        for group, commit_count in commits_before.items():
            machine = group.machine
            is_idle = machine.state is GroupState.EMPTY and machine.deadline_ms() is None
            # What was committed since we looked must not go with the group.
            if is_idle and machine.group_id not in kept and group.commit_count == commit_count:
                await self.delete(machine.group_id)

    def _on_task_done(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and task.exception() is not None:
            self._on_fatal(task.exception() or RuntimeError(task.get_name()))


def _join_refusal(group_id: str, request: JoinRequest) -> Refusal | None:
    if not group_id:
        return Refusal.INVALID_GROUP_ID
    if not SESSION_TIMEOUT_MS_MIN <= request.session_timeout_ms <= SESSION_TIMEOUT_MS_MAX:
        return Refusal.INVALID_SESSION_TIMEOUT
    return None


def _unknown(group_id: str) -> Refusal:
    return Refusal.UNKNOWN_MEMBER_ID if group_id else Refusal.INVALID_GROUP_ID
