"""Many clients, any order of requests, deaths and delays: what always holds for a group."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streamhouse.model.groups import GroupState, Identity, JoinAnswer, Protocol, Refusal, SyncAnswer
from streamhouse.model.limits import NEW_MEMBER_JOIN_MS_MAX
from tests.unit.groups.group_world import (
    RANGE,
    REBALANCE_MS,
    SESSION_MS,
    STICKY,
    World,
    request,
)

WAIT_MS_MAX = max(2 * REBALANCE_MS, NEW_MEMBER_JOIN_MS_MAX) + SESSION_MS
PROTOCOLS = st.sampled_from([(RANGE,), (RANGE, STICKY), (STICKY, RANGE)])
CLIENTS = st.integers(0, 5)


class Client:
    """What one client knows; it does what a consumer does next, or something foolish."""

    def __init__(self, name: int) -> None:
        self.instance = f"static-{name}" if name >= 4 else None
        self.version = 3 if name == 0 else 9
        self.member_id = ""
        self.generation = -1
        self.is_leader = False
        self.others: tuple[str, ...] = ()
        self.protocols: tuple[Protocol, ...] = (RANGE,)
        self.ticket: int | None = None
        self.has_joined = False
        self.has_synced = False


class Groups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(initial_delay_ms=3_000)
        self.clients = [Client(name) for name in range(6)]
        self.asked_at: dict[int, int] = {}
        self.generation_seen = 0
        self.assignments: dict[int, dict[str, bytes]] = {}  # generation -> member -> what it got
        self.assigned_by: dict[int, str] = {}
        self.syncing: dict[int, tuple[Client, int]] = {}

    # -- what clients do ---------------------------------------------------------------------------

    @rule(client=CLIENTS, protocols=PROTOCOLS)
    def join(self, client: int, protocols: tuple[Protocol, ...]) -> None:
        who = self.clients[client]
        if who.ticket is not None:
            return
        who.protocols = protocols
        asked = request(
            who.member_id, instance=who.instance, protocols=protocols, version=who.version
        )
        self._sent(who, self.world.join(asked))

    @rule(client=CLIENTS)
    def sync(self, client: int) -> None:
        who = self.clients[client]
        if who.ticket is not None or who.generation < 0:
            return
        given = {}
        if who.is_leader:
            given = {member: f"{who.generation}:{member}".encode() for member in who.others}
        ticket = self.world.sync(who.member_id, who.generation, given, instance=who.instance)
        self.syncing[ticket] = (who, who.generation)
        self._sent(who, ticket)

    @rule(clients=st.lists(CLIENTS, max_size=20))
    def go_on(self, clients: list[int]) -> None:
        """Each does what a consumer does next, in this order."""
        for client in clients:
            who = self.clients[client]
            if not who.has_joined:
                self.join(client=client, protocols=who.protocols)
            elif not who.has_synced:
                self.sync(client=client)
            else:
                self.heartbeat(client=client)

    @rule(ms=st.sampled_from([0, 3_000, 6_000]))
    def settle(self, ms: int) -> None:
        """All go on until there is nothing more to do, unless time has to pass."""
        self.wait(ms=ms)
        for _ in range(4):
            self.go_on(clients=list(range(len(self.clients))))

    @rule(client=CLIENTS)
    def heartbeat(self, client: int) -> None:
        who = self.clients[client]
        if who.ticket is None and who.generation >= 0:
            refusal = self.world.beat(who.member_id, who.generation, instance=who.instance)
            self._learn(who, refusal)

    @rule(client=CLIENTS)
    def leave(self, client: int) -> None:
        """Also while it waits: an admin can remove it."""
        who = self.clients[client]
        if who.member_id:
            self.world.leave(Identity(who.member_id, who.instance))
            self._collect()
            if who.ticket is None:
                self._forget(who)

    @rule(client=CLIENTS)
    def die(self, client: int) -> None:
        """The process is gone; another one takes its place and knows nothing."""
        who = self.clients[client]
        if who.ticket is not None:
            self.asked_at.pop(who.ticket, None)
            self.world.gone(who.ticket)
            who.ticket = None
        self._forget(who)
        self._collect()

    @rule(client=CLIENTS)
    def lose_connection(self, client: int) -> None:
        who = self.clients[client]
        if who.ticket is not None:
            self.asked_at.pop(who.ticket, None)
            self.world.gone(who.ticket)
            who.ticket = None
            self._collect()

    @rule(ms=st.sampled_from([1, 500, 3_000, SESSION_MS - 1, SESSION_MS, REBALANCE_MS]))
    def wait(self, ms: int) -> None:
        self.world.pass_time(ms)
        self._collect()

    @rule(ms=st.sampled_from([1_000, SESSION_MS - 1]))
    def wait_with_heartbeats(self, ms: int) -> None:
        for name in range(len(self.clients)):
            self.heartbeat(client=name)
        self.world.pass_time(ms)
        self._collect()

    @precondition(lambda self: not self.world.waiting)
    @rule()
    def restart_the_server(self) -> None:
        row = self.world.machine.row(None)
        before, self.world = self.world, World(initial_delay_ms=3_000)
        self.world.now_ms = before.now_ms
        self.world._next_id = before._next_id
        self.world._next_ticket = before._next_ticket
        self.world.machine.restore(row, self.world.now_ms)

    # -- what always holds -------------------------------------------------------------------------

    @invariant()
    def generations_never_go_back(self) -> None:
        assert self.world.machine.generation >= self.generation_seen
        self.generation_seen = self.world.machine.generation

    @invariant()
    def every_request_is_answered_in_time(self) -> None:
        for ticket, asked_at in self.asked_at.items():
            assert self.world.now_ms - asked_at <= WAIT_MS_MAX, f"ticket {ticket} waits for ever"

    @invariant()
    def who_waits_is_waited_for(self) -> None:
        """Each open ticket belongs to a member: nothing is lost in the machine."""
        members = self.world.machine._members.values()
        held = {m.join_ticket for m in members} | {m.sync_ticket for m in members}
        assert self.world.waiting == held - {None}

    @invariant()
    def a_group_that_waits_has_a_deadline(self) -> None:
        machine = self.world.machine
        if self.world.waiting or machine.member_count:
            assert machine.deadline_ms() is not None

    @invariant()
    def states_and_members_agree(self) -> None:
        machine = self.world.machine
        assert (machine.state is GroupState.EMPTY) <= (machine.member_count == 0)
        if machine.state in (GroupState.COMPLETING, GroupState.STABLE):
            assert machine.member_count > 0
            assert machine.leader in machine._members
            assert machine.protocol_name is not None
        instances = [m.instance_id for m in machine._members.values() if m.instance_id]
        assert len(instances) == len(set(instances)) == len(machine._by_instance)

    def teardown(self) -> None:
        """Goal: silent members leave no ghosts behind, and everybody is answered."""
        self.world.pass_time(WAIT_MS_MAX + 2 * REBALANCE_MS)
        for who in self.clients:
            if who.ticket is not None and who.ticket in self.world.waiting:
                raise AssertionError(f"ticket {who.ticket} was never answered")
        assert self.world.machine.member_count == 0
        assert self.world.machine.state is GroupState.EMPTY

    # -- answers -----------------------------------------------------------------------------------

    def _sent(self, who: Client, ticket: int) -> None:
        who.ticket = ticket
        self.asked_at[ticket] = self.world.now_ms
        self._collect()

    def _collect(self) -> None:
        for who in self.clients:
            answer = self.world.answers.get(who.ticket or 0)
            if answer is None:
                continue
            ticket, who.ticket = who.ticket, None
            assert ticket is not None
            del self.asked_at[ticket]
            if isinstance(answer, JoinAnswer):
                self._joined(who, answer)
            else:
                self._synced(ticket, answer)

    def _joined(self, who: Client, answer: JoinAnswer) -> None:
        if answer.refusal is Refusal.MEMBER_ID_REQUIRED:
            who.member_id = answer.member_id
            return
        if answer.refusal is not None:
            self._learn(who, answer.refusal)
            return
        who.member_id, who.generation = answer.member_id, answer.generation
        who.has_joined, who.has_synced = True, False
        who.is_leader = answer.leader == answer.member_id and not answer.skip_assignment
        who.others = tuple(member.member_id for member in answer.members)
        assert answer.protocol_name in {protocol.name for protocol in who.protocols}
        if who.is_leader:
            assert answer.member_id in who.others
            leads = self.assigned_by.setdefault(answer.generation, answer.member_id)
            assert leads == answer.member_id or who.instance, "a generation has one leader"

    def _synced(self, ticket: int, answer: SyncAnswer) -> None:
        who, generation = self.syncing.pop(ticket)
        if answer.refusal is not None:
            self._learn(who, answer.refusal)
            return
        who.has_synced = True
        got = self.assignments.setdefault(generation, {})
        place = who.instance or who.member_id
        assert got.setdefault(place, answer.assignment) == answer.assignment, "one assignment"
        assert not answer.assignment or answer.assignment.startswith(f"{generation}:".encode())

    def _learn(self, who: Client, refusal: Refusal | None) -> None:
        if refusal in (Refusal.UNKNOWN_MEMBER_ID, Refusal.FENCED_INSTANCE_ID):
            self._forget(who)
        elif refusal is not None:
            who.has_joined = who.has_synced = False

    def _forget(self, who: Client) -> None:
        who.has_joined = who.has_synced = False
        who.member_id, who.generation, who.is_leader, who.others = "", -1, False, ()


TestGroups = Groups.TestCase
TestGroups.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
