"""One classic consumer group: requests in, answers and orders out. Performs nothing.

Owns: members, generation, state and every deadline of the group. Must not know: what members put
into their metadata and assignments (but for `subscription`), stores, sockets, clocks.
Requests that have to wait are named by a ticket; each ticket is answered once. `Store` stands
before the answers that promise what it stores: the shell releases them after the row is written.
Invariants: the generation never goes back; a generation has one assignment; a member that waits in
JoinGroup or SyncGroup is not expired by its session; at most one member has an instance id.
Behaviour follows Kafka's coordinator (KIP-62, 134, 345, 394, 814), except that a client whose
connection went while it waited counts from then on as silent (Kafka cannot see it).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from streamhouse.groups.subscription import CONSUMER, assigned_partitions, subscribed_topics
from streamhouse.model.groups import (
    NO_GENERATION,
    DescribedMember,
    GroupDescription,
    GroupRow,
    GroupState,
    Identity,
    JoinAnswer,
    JoinedMember,
    JoinRequest,
    MemberRow,
    Refusal,
    SyncAnswer,
    SyncRequest,
)
from streamhouse.model.limits import NEW_MEMBER_JOIN_MS_MAX

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState


@dataclass(frozen=True, slots=True)
class Store:
    """The group's row must be written before the answers behind this are given."""


@dataclass(frozen=True, slots=True)
class Answer:
    ticket: int
    reply: JoinAnswer | SyncAnswer


Effect = Store | Answer


class Member:
    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "has_synced",
        "instance_id",
        "is_new",
        "join_ticket",
        "knows_its_id",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "session_until_ms",
        "sync_ticket",
    )

    def __init__(self, row: MemberRow) -> None:
        self.member_id = row.member_id
        self.instance_id = row.instance_id
        self.client_id = row.client_id
        self.client_host = row.client_host
        self.session_timeout_ms = row.session_timeout_ms
        self.rebalance_timeout_ms = row.rebalance_timeout_ms
        self.protocols = row.protocols
        self.assignment = row.assignment
        self.join_ticket: int | None = None
        self.sync_ticket: int | None = None
        self.has_synced = False
        self.is_new = False  # has not had an answer to its first JoinGroup
        self.knows_its_id = True
        self.session_until_ms = 0

    @property
    def waits(self) -> bool:
        return self.join_ticket is not None or self.sync_ticket is not None

    def renew(self, now_ms: int) -> None:
        self.session_until_ms = now_ms + self.session_timeout_ms

    def is_silent(self, now_ms: int) -> bool:
        """Its session is over. One that waits is alive, unless nobody can have told it its id."""
        return now_ms >= self.session_until_ms and (self.is_new or not self.waits)

    def metadata(self, protocol_name: str | None) -> bytes:
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        return b""

    def row(self) -> MemberRow:
        return MemberRow(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            protocols=self.protocols,
            assignment=self.assignment,
        )


class GroupMachine:
    def __init__(self, group_id: str, *, initial_delay_ms: int, members_max: int) -> None:
        assert initial_delay_ms >= 0
        assert members_max > 0
        self.group_id = group_id
        self.state = EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self._initial_delay_ms = initial_delay_ms
        self._members_max = members_max
        self._members: dict[str, Member] = {}  # in the order of joining
        self._by_instance: dict[str, str] = {}
        self._pending: dict[str, int] = {}  # ids given out with MEMBER_ID_REQUIRED -> until when
        self._join_until_ms: int | None = None
        self._initial_left_ms: int | None = None  # not None: the first rebalance gathers members
        self._grew = False  # somebody joined while the first rebalance gathered
        self._sync_until_ms: int | None = None
        self._effects: list[Effect] = []

    def restore(self, row: GroupRow, now_ms: int) -> None:
        """Take up what was stored; all sessions begin anew."""
        assert self.state is EMPTY
        assert not self._members
        # One that was about to be deleted when the process ended is an empty one.
        self.state = EMPTY if row.state is DEAD else row.state
        self.generation = row.generation
        self.protocol_type, self.protocol_name = row.protocol_type, row.protocol_name
        self.leader = row.leader
        for stored in row.members:
            member = Member(stored)
            member.renew(now_ms)
            member.has_synced = row.state is STABLE
            self._members[member.member_id] = member
            if member.instance_id is not None:
                self._by_instance[member.instance_id] = member.member_id
        if self.state is PREPARING:
            self._join_until_ms = now_ms + self._rebalance_timeout_ms()
        elif self.state is COMPLETING:
            self._sync_until_ms = now_ms + self._rebalance_timeout_ms()

    # -- what others look at -----------------------------------------------------------------------

    @property
    def member_count(self) -> int:
        return len(self._members)

    @property
    def is_unused(self) -> bool:
        """Nobody is or was in it: it need not be remembered."""
        return self.state is EMPTY and self.generation == 0 and not self._pending

    def row(self, empty_since_ms: int | None) -> GroupRow:
        """What a restart must find. Members that were never answered are not part of it."""
        told = [member for member in self._members.values() if not member.is_new]
        return GroupRow(
            group_id=self.group_id,
            state=self.state,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader if any(m.member_id == self.leader for m in told) else None,
            empty_since_ms=empty_since_ms,
            members=tuple(member.row() for member in told),
        )

    def describe(self) -> GroupDescription:
        """Metadata and assignments belong to a finished rebalance; before, there are none."""
        is_stable = self.state is STABLE
        members = []
        for member in self._members.values():
            metadata = member.metadata(self.protocol_name) if is_stable else b""
            assignment = member.assignment if is_stable else b""
            of_consumer = assignment if self.protocol_type == CONSUMER else b""
            assigned = assigned_partitions(of_consumer)
            members.append(DescribedMember(member.row(), metadata, assignment, assigned))
        return GroupDescription(
            group_id=self.group_id,
            state=self.state,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=(self.protocol_name or "") if is_stable else "",
            members=tuple(members),
        )

    def reads_topic(self, topic: str) -> bool:
        """Whether a member is subscribed to it; yes, if what it wants cannot be read."""
        for member in self._members.values():
            for protocol in member.protocols:
                topics = subscribed_topics(protocol.metadata)
                if topics is None or topic in topics:
                    return True
        return False

    def deadline_ms(self) -> int | None:
        """When `on_time` has something to do, unless requests come in before."""
        found = [until for until in (self._join_until_ms, self._sync_until_ms) if until is not None]
        found += self._pending.values()
        found += [m.session_until_ms for m in self._members.values() if m.is_new or not m.waits]
        return min(found, default=None)

    # -- requests ----------------------------------------------------------------------------------

    def on_join(self, ticket: int, request: JoinRequest, new_id: str, now_ms: int) -> list[Effect]:
        """`new_id` is taken if the request has no member id."""
        if self.state is DEAD:
            self._refuse_join(ticket, request.member_id, Refusal.COORDINATOR_NOT_AVAILABLE)
        elif not self._supports(request):
            self._refuse_join(ticket, request.member_id, Refusal.INCONSISTENT_GROUP_PROTOCOL)
        elif not request.member_id:
            self._join_without_id(ticket, request, new_id, now_ms)
        elif request.member_id in self._pending and request.instance_id is None:
            del self._pending[request.member_id]
            self._add_member(ticket, request, request.member_id, now_ms)
        else:
            self._rejoin(ticket, request, now_ms)
        self._advance_join(now_ms)
        return self._drain()

    def on_sync(self, ticket: int, request: SyncRequest, now_ms: int) -> list[Effect]:
        identity = Identity(request.member_id, request.instance_id)
        refusal = self._refusal_of(identity, request.generation) or self._protocol_refusal(request)
        if refusal is None and self.state is PREPARING:
            refusal = Refusal.REBALANCE_IN_PROGRESS
        if refusal is not None:
            self._effects.append(Answer(ticket, SyncAnswer(refusal)))
            return self._drain()
        member = self._members[request.member_id]
        self._answer_sync(member, Refusal.REBALANCE_IN_PROGRESS)  # an older try of the same member
        member.sync_ticket, member.has_synced = ticket, True
        if self.state is COMPLETING and member.member_id == self.leader:
            for each in self._members.values():
                each.assignment = request.assignments.get(each.member_id, b"")
            self.state = STABLE
            self._effects.append(Store())
        if self.state is STABLE:
            for each in self._members.values():
                if each.sync_ticket is not None:
                    self._answer_sync(each, None)
                    each.renew(now_ms)
            if all(each.has_synced for each in self._members.values()):
                self._sync_until_ms = None
        return self._drain()

    def on_heartbeat(self, identity: Identity, generation: int, now_ms: int) -> Refusal | None:
        refusal = self._refusal_of(identity, generation)
        if refusal is not None:
            return refusal
        self._members[identity.member_id].renew(now_ms)
        return Refusal.REBALANCE_IN_PROGRESS if self.state is PREPARING else None

    def on_leave(
        self, leaving: Sequence[Identity], now_ms: int
    ) -> tuple[list[Refusal | None], list[Effect]]:
        """One verdict per identity, in order."""
        verdicts = [self._leave(identity, now_ms) for identity in leaving]
        self._advance_join(now_ms)
        return verdicts, self._drain()

    def check_commit(self, identity: Identity, generation: int, now_ms: int) -> Refusal | None:
        """Whether offsets may be committed by this member in this generation."""
        if self.state is DEAD:
            return Refusal.COORDINATOR_NOT_AVAILABLE
        if generation <= NO_GENERATION and self.state is EMPTY:
            return None  # a consumer that assigns its partitions itself, or an admin tool
        if generation <= NO_GENERATION and identity == Identity(""):
            return Refusal.UNKNOWN_MEMBER_ID
        refusal = self._refusal_of(identity, generation)
        if refusal is not None:
            return refusal
        self._members[identity.member_id].renew(now_ms)
        return Refusal.REBALANCE_IN_PROGRESS if self.state is COMPLETING else None

    def on_gone(self, ticket: int, now_ms: int) -> list[Effect]:
        """The client of a waiting request has gone: nobody reads its answer any more."""
        for member in list(self._members.values()):
            if member.join_ticket == ticket:
                member.join_ticket = None
                member.renew(now_ms)
                if not member.knows_its_id:  # it can never come back
                    self._remove(member, now_ms)
            elif member.sync_ticket == ticket:
                member.sync_ticket, member.has_synced = None, self.state is STABLE
                member.renew(now_ms)
        self._advance_join(now_ms)
        return self._drain()

    def on_time(self, now_ms: int) -> list[Effect]:
        """Deadlines have passed: forget who is silent, go on without who is late."""
        for member_id in [m for m, until in self._pending.items() if now_ms >= until]:
            del self._pending[member_id]
        for member in [m for m in self._members.values() if m.is_silent(now_ms)]:
            self._remove(member, now_ms)
        if self._sync_until_ms is not None and now_ms >= self._sync_until_ms:
            self._sync_until_ms = None
            for member in [m for m in self._members.values() if not m.has_synced]:
                self._remove(member, now_ms)
        self._advance_join(now_ms)
        return self._drain()

    def close(self) -> list[Effect]:
        """The group is deleted: it refuses everything from now on."""
        assert self.state is EMPTY
        self.state = DEAD
        self._pending.clear()
        return self._drain()

    def reopen(self) -> None:
        """It could not be deleted after all."""
        assert self.state is DEAD
        self.state = EMPTY

    # -- joining -----------------------------------------------------------------------------------

    def _join_without_id(self, ticket: int, request: JoinRequest, new_id: str, now_ms: int) -> None:
        known = self._by_instance.get(request.instance_id or "")
        if known is not None:
            self._replace_static(ticket, request, self._members[known], new_id, now_ms)
        elif len(self._members) + len(self._pending) >= self._members_max:
            self._refuse_join(ticket, "", Refusal.GROUP_MAX_SIZE_REACHED)
        elif request.instance_id is None and request.needs_known_id:
            self._pending[new_id] = now_ms + request.session_timeout_ms
            self._refuse_join(ticket, new_id, Refusal.MEMBER_ID_REQUIRED)
        else:
            self._add_member(ticket, request, new_id, now_ms)

    def _add_member(self, ticket: int, request: JoinRequest, member_id: str, now_ms: int) -> None:
        assert member_id
        assert member_id not in self._members
        if not self._members:
            self.protocol_type = request.protocol_type
        member = Member(_row_of(request, member_id))
        member.is_new, member.join_ticket = True, ticket
        member.knows_its_id = bool(request.member_id)
        # Until it is answered it cannot send heartbeats.
        member.session_until_ms = now_ms + max(NEW_MEMBER_JOIN_MS_MAX, request.session_timeout_ms)
        self._members[member_id] = member
        if member.instance_id is not None:
            self._by_instance[member.instance_id] = member_id
        if self.leader is None:
            self.leader = member_id
        self._grew = self._initial_left_ms is not None
        self._prepare_rebalance(now_ms)

    def _rejoin(self, ticket: int, request: JoinRequest, now_ms: int) -> None:
        identity = Identity(request.member_id, request.instance_id)
        refusal = self._member_refusal(identity)
        if refusal is not None:
            self._refuse_join(ticket, request.member_id, refusal)
            return
        member = self._members[request.member_id]
        unchanged = member.protocols == request.protocols
        is_leader = member.member_id == self.leader
        if unchanged and (self.state is COMPLETING or (self.state is STABLE and not is_leader)):
            # It has missed its answer, or asks again without need: nothing changes for the others.
            member.renew(now_ms)
            self._effects.append(Answer(ticket, self._joined(member)))
            return
        self._update(member, request)
        self._wait_for_join(member, ticket)
        self._prepare_rebalance(now_ms)

    def _replace_static(
        self, ticket: int, request: JoinRequest, old: Member, new_id: str, now_ms: int
    ) -> None:
        """A restarted static member takes the place, and if it can the assignment, of the old."""
        self._answer_join(old, JoinAnswer(Refusal.FENCED_INSTANCE_ID, old.member_id))
        self._answer_sync(old, Refusal.FENCED_INSTANCE_ID)
        leader_before = self.leader
        wanted_before = subscribed_topics(old.metadata(self.protocol_name))
        member = self._rename(old, new_id)
        self._update(member, request)
        member.renew(now_ms)
        self._effects.append(Store())
        if self.state is not STABLE or not self._keeps_assignment(member, wanted_before):
            self._wait_for_join(member, ticket)
            self._prepare_rebalance(now_ms)
            return
        reply = self._joined(member)
        if not request.skips_assignment and member.member_id == self.leader:
            # A leader of old would assign anew; told that another one leads, it follows.
            reply = JoinAnswer(
                None,
                member.member_id,
                self.generation,
                self.protocol_type,
                self.protocol_name,
                leader=leader_before or "",
            )
        self._effects.append(Answer(ticket, reply))

    def _keeps_assignment(self, member: Member, wanted_before: frozenset[str] | None) -> bool:
        if self._vote() != self.protocol_name:
            return False
        if self.protocol_type != CONSUMER:
            return True
        return subscribed_topics(member.metadata(self.protocol_name)) == wanted_before

    def _rename(self, member: Member, new_id: str) -> Member:
        """Give a member another id in the same place of the order."""
        old_id = member.member_id
        member.member_id = new_id
        self._members = {one.member_id: one for one in self._members.values()}
        assert member.instance_id is not None
        self._by_instance[member.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        return member

    def _update(self, member: Member, request: JoinRequest) -> None:
        member.protocols = request.protocols
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.client_id, member.client_host = request.client_id, request.client_host

    def _wait_for_join(self, member: Member, ticket: int) -> None:
        self._answer_sync(member, Refusal.REBALANCE_IN_PROGRESS)
        self._answer_join(member, JoinAnswer(Refusal.REBALANCE_IN_PROGRESS, member.member_id))
        member.join_ticket = ticket
        member.is_new, member.knows_its_id = False, True  # it came back, so it knows who it is

    def _supports(self, request: JoinRequest) -> bool:
        """Whether this member and all the others have a protocol in common."""
        names = {protocol.name for protocol in request.protocols}
        if not request.protocol_type or not names:
            return False
        own = request.member_id or self._by_instance.get(request.instance_id or "")
        others = [m for m in self._members.values() if m.member_id != own]
        if self._members and request.protocol_type != self.protocol_type:
            return False
        for other in others:
            names &= {protocol.name for protocol in other.protocols}
        return bool(names)

    def _vote(self) -> str:
        """The protocol most members prefer among those that all of them have."""
        assert self._members
        common = set.intersection(*({p.name for p in m.protocols} for m in self._members.values()))
        assert common, "checked when each of them joined"
        votes: dict[str, int] = {}
        for member in self._members.values():
            choice = next(p.name for p in member.protocols if p.name in common)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])  # the first of equals

    # -- rebalancing -------------------------------------------------------------------------------

    def _prepare_rebalance(self, now_ms: int) -> None:
        if self.state is PREPARING:
            return
        for member in self._members.values():
            if member.sync_ticket is not None:
                self._answer_sync(member, Refusal.REBALANCE_IN_PROGRESS)
                member.renew(now_ms)  # it was alive as long as it waited
        timeout_ms = self._rebalance_timeout_ms()
        if self.state is EMPTY:
            delay_ms = min(self._initial_delay_ms, timeout_ms)
            self._initial_left_ms = timeout_ms - delay_ms
            self._join_until_ms = now_ms + delay_ms
            self._grew = False
        else:
            self._join_until_ms = now_ms + timeout_ms
        self._sync_until_ms = None
        self.state = PREPARING

    def _advance_join(self, now_ms: int) -> None:
        """Complete the join phase if everybody is there or has been waited for long enough."""
        if self.state is not PREPARING:
            return
        assert self._join_until_ms is not None
        is_over = now_ms >= self._join_until_ms
        if self._initial_left_ms is not None:
            if not is_over:
                return
            if self._grew and self._initial_left_ms > 0:
                delay_ms = min(self._initial_delay_ms, self._initial_left_ms)
                self._join_until_ms = now_ms + delay_ms
                self._initial_left_ms -= delay_ms
                self._grew = False
                return
        elif not is_over and not self._everybody_joined():
            return
        self._complete_join(now_ms)

    def _everybody_joined(self) -> bool:
        joined = all(m.join_ticket is not None for m in self._members.values())
        return joined and not self._pending

    def _complete_join(self, now_ms: int) -> None:
        for member in list(self._members.values()):
            if member.join_ticket is None and member.instance_id is None:
                self._forget(member)
        if self._members and not self._elect():
            # Only static members are left, all silent: their sessions decide.
            self._join_until_ms = now_ms + self._rebalance_timeout_ms()
            self._initial_left_ms = None
            return
        self.generation += 1
        self._join_until_ms = self._initial_left_ms = None
        self._effects.append(Store())
        if not self._members:
            self.state, self.protocol_name, self.leader = EMPTY, None, None
            return
        self.protocol_name = self._vote()
        self.state = COMPLETING
        self._sync_until_ms = now_ms + self._rebalance_timeout_ms()
        for member in self._members.values():
            member.has_synced, member.assignment = False, b""
            if member.join_ticket is not None:
                member.is_new, member.knows_its_id = False, True
                member.renew(now_ms)
                self._answer_join(member, self._joined(member))

    def _elect(self) -> bool:
        """Make sure that a member leads who is there; False if nobody is."""
        leader = self._members.get(self.leader or "")
        if leader is not None and leader.join_ticket is not None:
            return True
        present = next((m for m in self._members.values() if m.join_ticket is not None), None)
        if present is not None:
            self.leader = present.member_id
        return present is not None

    def _rebalance_timeout_ms(self) -> int:
        return max((m.rebalance_timeout_ms for m in self._members.values()), default=0)

    # -- leaving -----------------------------------------------------------------------------------

    def _leave(self, identity: Identity, now_ms: int) -> Refusal | None:
        if self.state is DEAD:
            return Refusal.COORDINATOR_NOT_AVAILABLE
        if identity.instance_id is None and identity.member_id in self._pending:
            del self._pending[identity.member_id]
            return None
        if not identity.member_id and identity.instance_id is not None:  # an admin names only it
            known = self._by_instance.get(identity.instance_id)
            if known is None:
                return Refusal.UNKNOWN_MEMBER_ID
            identity = Identity(known, identity.instance_id)
        refusal = self._member_refusal(identity)
        if refusal is None:
            self._remove(self._members[identity.member_id], now_ms)
        return refusal

    def _remove(self, member: Member, now_ms: int) -> None:
        self._forget(member)
        self._effects.append(Store())
        self._prepare_rebalance(now_ms)

    def _forget(self, member: Member) -> None:
        del self._members[member.member_id]
        if member.instance_id is not None:
            del self._by_instance[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self._members), None)
        self._answer_join(member, JoinAnswer(Refusal.UNKNOWN_MEMBER_ID, member.member_id))
        self._answer_sync(member, Refusal.UNKNOWN_MEMBER_ID)

    # -- checks and answers ------------------------------------------------------------------------

    def _member_refusal(self, identity: Identity) -> Refusal | None:
        if identity.instance_id is not None:
            known = self._by_instance.get(identity.instance_id)
            if known is None:
                return Refusal.UNKNOWN_MEMBER_ID
            if known != identity.member_id:
                return Refusal.FENCED_INSTANCE_ID
        return None if identity.member_id in self._members else Refusal.UNKNOWN_MEMBER_ID

    def _refusal_of(self, identity: Identity, generation: int) -> Refusal | None:
        if self.state is DEAD:
            return Refusal.COORDINATOR_NOT_AVAILABLE
        refusal = self._member_refusal(identity)
        if refusal is None and generation != self.generation:
            return Refusal.ILLEGAL_GENERATION
        return refusal

    def _protocol_refusal(self, request: SyncRequest) -> Refusal | None:
        agrees = request.protocol_type in (None, self.protocol_type)
        agrees = agrees and request.protocol_name in (None, self.protocol_name)
        return None if agrees else Refusal.INCONSISTENT_GROUP_PROTOCOL

    def _joined(self, member: Member) -> JoinAnswer:
        """The current generation, with all members for the leader."""
        is_leader = member.member_id == self.leader
        return JoinAnswer(
            None,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            leader=self.leader or "",
            skip_assignment=is_leader and self.state is STABLE,
            members=tuple(self._joined_members()) if is_leader else (),
        )

    def _joined_members(self) -> Iterable[JoinedMember]:
        for member in self._members.values():
            metadata = member.metadata(self.protocol_name)
            yield JoinedMember(member.member_id, member.instance_id, metadata)

    def _refuse_join(self, ticket: int, member_id: str, refusal: Refusal) -> None:
        self._effects.append(Answer(ticket, JoinAnswer(refusal, member_id)))

    def _answer_join(self, member: Member, reply: JoinAnswer) -> None:
        if member.join_ticket is not None:
            self._effects.append(Answer(member.join_ticket, reply))
            member.join_ticket = None

    def _answer_sync(self, member: Member, refusal: Refusal | None) -> None:
        if member.sync_ticket is None:
            return
        reply = SyncAnswer(refusal)
        if refusal is None:
            reply = SyncAnswer(None, self.protocol_type, self.protocol_name, member.assignment)
        self._effects.append(Answer(member.sync_ticket, reply))
        member.sync_ticket = None

    def _drain(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects


def _row_of(request: JoinRequest, member_id: str) -> MemberRow:
    return MemberRow(
        member_id=member_id,
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocols=request.protocols,
        assignment=b"",
    )
