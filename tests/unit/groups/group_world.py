"""A group machine with members that behave as clients do, on a clock that tests move."""

import struct
from collections.abc import Iterable, Mapping

from streamhouse.groups.machine import Answer, Effect, GroupMachine, Store
from streamhouse.model.groups import (
    Identity,
    JoinAnswer,
    JoinRequest,
    Protocol,
    Refusal,
    SyncAnswer,
    SyncRequest,
)

SESSION_MS = 10_000
REBALANCE_MS = 60_000


def subscription(*topics: str, owned: bytes = b"") -> bytes:
    """A consumer's subscription, version 0, with whatever it likes as user data."""
    raw = struct.pack(">hi", 0, len(topics))
    for topic in topics:
        raw += struct.pack(">h", len(topic)) + topic.encode()
    return raw + struct.pack(">i", len(owned)) + owned


RANGE = Protocol("range", subscription("t"))
STICKY = Protocol("sticky", subscription("t", owned=b"x"))


def request(
    member_id: str = "",
    *,
    instance: str | None = None,
    protocols: tuple[Protocol, ...] = (RANGE,),
    kind: str = "consumer",
    session_ms: int = SESSION_MS,
    rebalance_ms: int = REBALANCE_MS,
    version: int = 9,
) -> JoinRequest:
    return JoinRequest(
        member_id=member_id,
        instance_id=instance,
        client_id="client",
        client_host="/127.0.0.1",
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        protocol_type=kind,
        protocols=protocols,
        needs_known_id=version >= 4,
        skips_assignment=version >= 9,
    )


class World:
    """Performs the machine's effects: collects answers by ticket, counts stores."""

    def __init__(self, initial_delay_ms: int = 0, members_max: int = 100) -> None:
        self.machine = GroupMachine("g", initial_delay_ms=initial_delay_ms, members_max=members_max)
        self.now_ms = 1_000_000
        self.answers: dict[int, JoinAnswer | SyncAnswer] = {}
        self.waiting: set[int] = set()
        self.stores = 0
        self._next_ticket = 0
        self._next_id = 0

    # -- requests ----------------------------------------------------------------------------------

    def join(self, asked: JoinRequest) -> int:
        ticket = self._ticket()
        self._next_id += 1
        self.perform(self.machine.on_join(ticket, asked, f"m{self._next_id}", self.now_ms))
        return ticket

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        instance: str | None = None,
        protocol: str | None = None,
    ) -> int:
        ticket = self._ticket()
        asked = SyncRequest(member_id, instance, generation, None, protocol, assignments or {})
        self.perform(self.machine.on_sync(ticket, asked, self.now_ms))
        return ticket

    def beat(self, member_id: str, generation: int, instance: str | None = None) -> Refusal | None:
        return self.machine.on_heartbeat(Identity(member_id, instance), generation, self.now_ms)

    def leave(self, *leaving: Identity) -> list[Refusal | None]:
        verdicts, effects = self.machine.on_leave(leaving, self.now_ms)
        self.perform(effects)
        return verdicts

    def gone(self, ticket: int) -> None:
        """The client of a waiting request has closed its connection."""
        self.waiting.discard(ticket)
        self.perform(self.machine.on_gone(ticket, self.now_ms))

    def pass_time(self, ms: int) -> None:
        """Move the clock, waking the machine at each of its deadlines."""
        until_ms = self.now_ms + ms
        for _ in range(10_000):
            deadline_ms = self.machine.deadline_ms()
            if deadline_ms is None or deadline_ms > until_ms:
                break
            self.now_ms = max(self.now_ms, deadline_ms)
            self.perform(self.machine.on_time(self.now_ms))
        else:
            raise AssertionError("the machine wants to be woken for ever")
        self.now_ms = until_ms

    # -- answers -----------------------------------------------------------------------------------

    def joined(self, ticket: int) -> JoinAnswer:
        answer = self.answers[ticket]
        assert isinstance(answer, JoinAnswer)
        return answer

    def synced(self, ticket: int) -> SyncAnswer:
        answer = self.answers[ticket]
        assert isinstance(answer, SyncAnswer)
        return answer

    def perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Store):
                self.stores += 1
            else:
                assert isinstance(effect, Answer)
                assert effect.ticket not in self.answers, "a request is answered once"
                self.answers[effect.ticket] = effect.reply
                self.waiting.discard(effect.ticket)

    # -- whole scenes ------------------------------------------------------------------------------

    def new_member(self, **options: object) -> tuple[str, int]:
        """Both steps of a dynamic member's first join; returns its id and its waiting ticket."""
        first = self.joined(self.join(request(**options)))  # type: ignore[arg-type]
        assert first.refusal is Refusal.MEMBER_ID_REQUIRED
        again = request(first.member_id, **options)  # type: ignore[arg-type]
        return first.member_id, self.join(again)

    def stable(self, count: int, **options: object) -> list[str]:
        """A stable group of this many dynamic members; the first one leads."""
        members: list[str] = []
        for _ in range(count):
            member, _ticket = self.new_member(**options)
            tickets = {member: _ticket}
            for each in members:
                tickets[each] = self.join(request(each, **options))  # type: ignore[arg-type]
            members.append(member)
            generation = self.joined(tickets[member]).generation
            leader = self.joined(tickets[member]).leader
            for each in members:
                if each != leader:
                    self.sync(each, generation)
            self.sync(leader, generation, {each: each.encode() for each in members})
        assert self.machine.state.value == "Stable"
        return members

    def _ticket(self) -> int:
        self._next_ticket += 1
        self.waiting.add(self._next_ticket)
        return self._next_ticket
