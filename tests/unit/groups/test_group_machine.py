"""Classic groups, rule by rule (kafka-clients.md 2.5): each test names what it promises."""

import pytest

from streamhouse.groups.machine import GroupMachine
from streamhouse.groups.subscription import assigned_partitions, subscribed_topics
from streamhouse.model.groups import GroupState, Identity, Protocol, Refusal
from streamhouse.model.limits import NEW_MEMBER_JOIN_MS_MAX
from tests.unit.groups.group_world import (
    RANGE,
    REBALANCE_MS,
    SESSION_MS,
    STICKY,
    World,
    request,
    subscription,
)

# -- joining ---------------------------------------------------------------------------------------


def test_a_dynamic_member_joins_in_two_steps_from_version_4_on() -> None:
    world = World()
    told = world.joined(world.join(request()))
    assert told.refusal is Refusal.MEMBER_ID_REQUIRED
    assert told.member_id
    assert world.machine.state is GroupState.EMPTY
    answer = world.joined(world.join(request(told.member_id)))
    assert (answer.refusal, answer.generation, answer.leader) == (None, 1, told.member_id)
    assert [member.member_id for member in answer.members] == [told.member_id]


def test_old_versions_are_never_told_that_an_id_is_required() -> None:
    """Pitfall 26."""
    world = World()
    answer = world.joined(world.join(request(version=3)))
    assert (answer.refusal, answer.generation) == (None, 1)


def test_an_id_that_was_given_and_not_used_expires() -> None:
    world = World()
    told = world.joined(world.join(request()))
    world.pass_time(SESSION_MS)
    assert world.machine.is_unused
    late = world.joined(world.join(request(told.member_id)))
    assert late.refusal is Refusal.UNKNOWN_MEMBER_ID


def test_an_invented_id_is_unknown() -> None:
    world = World()
    assert world.joined(world.join(request("ghost"))).refusal is Refusal.UNKNOWN_MEMBER_ID


def test_the_first_rebalance_gathers_members_for_the_initial_delay() -> None:
    world = World(initial_delay_ms=3_000)
    _, first = world.new_member()
    world.pass_time(2_000)
    _, second = world.new_member()
    world.pass_time(999)
    assert world.waiting == {first, second}
    world.pass_time(1)
    assert world.waiting == {first, second}, "somebody joined, so it waits once more"
    world.pass_time(3_000)
    assert {world.joined(t).generation for t in (first, second)} == {1}


def test_the_initial_delay_is_bounded_by_the_rebalance_timeout() -> None:
    """Goal: a steady stream of new members cannot hold the group for ever."""
    world = World(initial_delay_ms=3_000)
    _, first = world.new_member(rebalance_ms=7_000)
    for _ in range(10):
        world.pass_time(1_000)
        world.new_member(rebalance_ms=7_000)
    assert world.joined(first).generation == 1


def test_a_join_waits_for_the_members_it_knows() -> None:
    """Pitfall 26: the coordinator waits for members to rejoin."""
    world = World()
    (one,) = world.stable(1)
    _, second = world.new_member()
    assert world.machine.state is GroupState.PREPARING
    assert world.beat(one, 1) is Refusal.REBALANCE_IN_PROGRESS
    assert second in world.waiting
    again = world.join(request(one))
    assert world.joined(again).generation == world.joined(second).generation == 2
    assert len(world.joined(again).members) == 2, "the leader gets the list"
    assert world.joined(second).members == (), "a follower does not"


def test_members_that_do_not_rejoin_in_time_are_removed() -> None:
    world = World()
    slow, other = world.stable(2)
    generation = world.machine.generation
    ticket = world.join(request(slow, protocols=(RANGE, STICKY)))
    for _ in range(REBALANCE_MS // 5_000):
        assert world.beat(other, generation) is Refusal.REBALANCE_IN_PROGRESS
        assert ticket in world.waiting, "a heartbeat keeps it, but it does not rejoin"
        world.pass_time(5_000)
    assert world.joined(ticket).generation == generation + 1
    assert world.beat(other, generation + 1) is Refusal.UNKNOWN_MEMBER_ID


def test_a_member_without_heartbeats_is_removed_during_a_rebalance_too() -> None:
    world = World()
    alive, _dead = world.stable(2)
    ticket = world.join(request(alive, protocols=(STICKY, RANGE)))
    world.pass_time(SESSION_MS)
    assert world.joined(ticket).refusal is None, "it need not wait for the rebalance timeout"


def test_who_waits_in_join_is_not_expired_by_its_session() -> None:
    """Its heartbeats may stand behind the JoinGroup on the same connection."""
    world = World()
    one, two = world.stable(2)
    waits = world.join(request(one, protocols=(STICKY, RANGE)))
    generation = world.machine.generation
    for _ in range(4):
        world.pass_time(SESSION_MS - 1)
        world.beat(two, generation)
    assert waits in world.waiting
    world.join(request(two))
    assert world.joined(waits).refusal is None


def test_a_new_member_that_hears_nothing_for_long_must_join_again() -> None:
    world = World()
    (one,) = world.stable(1, rebalance_ms=NEW_MEMBER_JOIN_MS_MAX * 2)
    _, ticket = world.new_member()
    while ticket in world.waiting:
        world.beat(one, 1)
        world.pass_time(SESSION_MS - 1)
    assert world.joined(ticket).refusal is Refusal.UNKNOWN_MEMBER_ID


def test_the_protocol_with_most_votes_among_the_common_ones_is_chosen() -> None:
    world = World(initial_delay_ms=100)
    only_both = (Protocol("a", b"1"), RANGE, STICKY)
    tickets = [
        world.new_member(protocols=only_both)[1],
        world.new_member(protocols=(STICKY, RANGE))[1],
        world.new_member(protocols=(STICKY, RANGE))[1],
    ]
    world.pass_time(1_000)
    assert {world.joined(t).protocol_name for t in tickets} == {"sticky"}
    leader = next(world.joined(t) for t in tickets if world.joined(t).members)
    assert {member.metadata for member in leader.members} == {STICKY.metadata}


@pytest.mark.parametrize(
    "other",
    [
        {"protocols": (Protocol("other", b""),)},
        {"kind": "connect"},
        {"kind": ""},
        {"protocols": ()},
    ],
)
def test_no_protocol_in_common_is_inconsistent(other: dict[str, object]) -> None:
    world = World()
    world.stable(1)
    told = world.joined(world.join(request(**other)))  # type: ignore[arg-type]
    assert told.refusal is Refusal.INCONSISTENT_GROUP_PROTOCOL
    assert world.machine.state is GroupState.STABLE


def test_any_protocol_type_is_welcome() -> None:
    """Connect and schema registries form groups too; their bytes are their own."""
    world = World()
    (worker,) = world.stable(1, kind="connect", protocols=(Protocol("compatible", b"\xff\x00"),))
    described = world.machine.describe()
    assert (described.protocol_type, described.protocol_name) == ("connect", "compatible")
    assert described.members[0].metadata == b"\xff\x00"
    assert described.members[0].assignment == worker.encode()


def test_a_full_group_takes_nobody() -> None:
    world = World(members_max=2)
    world.stable(2)
    assert world.joined(world.join(request())).refusal is Refusal.GROUP_MAX_SIZE_REACHED


def test_an_unchanged_follower_gets_the_generation_there_is() -> None:
    """Needless rebalances: librdkafka tests 0091 and 0093."""
    world = World()
    _leader, follower = world.stable(2)
    told = world.joined(world.join(request(follower)))
    assert (told.refusal, told.generation) == (None, world.machine.generation)
    assert world.machine.state is GroupState.STABLE


def test_a_leader_that_rejoins_starts_a_rebalance() -> None:
    world = World()
    leader, _follower = world.stable(2)
    world.join(request(leader))
    assert world.machine.state is GroupState.PREPARING


def test_a_follower_with_other_metadata_starts_a_rebalance() -> None:
    world = World()
    _leader, follower = world.stable(2)
    world.join(request(follower, protocols=(Protocol("range", subscription("t", "u")),)))
    assert world.machine.state is GroupState.PREPARING


def test_a_member_that_missed_its_answer_gets_it_again() -> None:
    world = World()
    member, first = world.new_member()
    again = world.join(request(member))
    assert world.machine.state is GroupState.COMPLETING
    assert world.joined(again) == world.joined(first)


# -- syncing ---------------------------------------------------------------------------------------


def test_followers_wait_for_the_leader_and_all_get_their_own_assignment() -> None:
    """Pitfall 26: no SyncGroup is answered on a timer with nothing in it."""
    world = World(initial_delay_ms=10)
    members = [world.new_member() for _ in range(3)]
    world.pass_time(100)
    leader = world.machine.leader
    assert leader is not None
    followers = [member for member, _ in members if member != leader]
    waiting = [world.sync(member, 1, {member: b"mine"}) for member in followers]
    assert world.waiting == set(waiting), "what a follower assigns is ignored"
    world.pass_time(SESSION_MS - 100)
    assert world.waiting == set(waiting)
    stores = world.stores
    given = {followers[0]: b"a", leader: b"l"}
    ticket = world.sync(leader, 1, given)
    assert world.stores == stores + 1
    assert world.synced(ticket).assignment == b"l"
    assert [world.synced(t).assignment for t in waiting] == [b"a", b""]
    late = world.sync(followers[0], 1)
    assert world.synced(late).assignment == b"a"


@pytest.mark.parametrize("state", [GroupState.COMPLETING, GroupState.STABLE])
def test_sync_is_checked(state: GroupState) -> None:
    world = World()
    (member,) = world.stable(1)
    if state is GroupState.COMPLETING:
        world.join(request(member))
    generation = world.machine.generation
    assert world.synced(world.sync("ghost", generation)).refusal is Refusal.UNKNOWN_MEMBER_ID
    old = world.sync(member, generation - 1)
    assert world.synced(old).refusal is Refusal.ILLEGAL_GENERATION
    wrong = world.sync(member, generation, protocol="other")
    assert world.synced(wrong).refusal is Refusal.INCONSISTENT_GROUP_PROTOCOL
    assert world.machine.state is state


def test_sync_during_a_rebalance_says_so() -> None:
    world = World()
    leader, follower = world.stable(2)
    world.join(request(leader))
    told = world.synced(world.sync(follower, world.machine.generation))
    assert told.refusal is Refusal.REBALANCE_IN_PROGRESS


def test_a_rebalance_releases_who_waits_in_sync() -> None:
    world = World()
    leader, follower = world.stable(2)
    world.join(request(leader))
    world.join(request(follower))
    parked = world.sync(follower, world.machine.generation)
    world.new_member()
    assert world.synced(parked).refusal is Refusal.REBALANCE_IN_PROGRESS


def test_a_leader_that_dies_before_it_assigns_is_replaced() -> None:
    world = World()
    leader, follower = world.stable(2)
    world.join(request(leader))
    world.join(request(follower))
    generation = world.machine.generation
    world.pass_time(SESSION_MS - 1)
    parked = world.sync(follower, generation)
    world.pass_time(1)
    assert world.synced(parked).refusal is Refusal.REBALANCE_IN_PROGRESS
    again = world.joined(world.join(request(follower)))
    assert (again.leader, again.generation) == (follower, generation + 1)


def test_a_member_that_only_sends_heartbeats_and_never_syncs_is_removed() -> None:
    world = World()
    leader, lazy = world.stable(2)
    world.join(request(leader))
    world.join(request(lazy))
    generation = world.machine.generation
    world.sync(leader, generation, {})
    for _ in range(REBALANCE_MS // 5_000):
        assert world.beat(lazy, generation) is None
        world.beat(leader, generation)
        world.pass_time(5_000)
    assert world.beat(lazy, generation) is Refusal.UNKNOWN_MEMBER_ID


# -- heartbeats, leaving, dying --------------------------------------------------------------------


def test_heartbeat_codes() -> None:
    world = World()
    (member,) = world.stable(1)
    assert world.beat(member, 1) is None
    assert world.beat(member, 0) is Refusal.ILLEGAL_GENERATION
    assert world.beat("ghost", 1) is Refusal.UNKNOWN_MEMBER_ID
    world.join(request(member))
    assert world.machine.state is GroupState.COMPLETING
    assert world.beat(member, 2) is None, "it was answered and waits for nobody"


def test_a_silent_member_is_removed_after_its_session() -> None:
    world = World()
    alive, _dead = world.stable(2)
    generation = world.machine.generation
    world.pass_time(SESSION_MS - 1)
    assert world.beat(alive, generation) is None
    world.pass_time(1)
    assert world.beat(alive, generation) is Refusal.REBALANCE_IN_PROGRESS
    answer = world.joined(world.join(request(alive)))
    assert [member.member_id for member in answer.members] == [alive]


def test_the_last_member_leaves_an_empty_group_with_a_new_generation() -> None:
    world = World()
    (member,) = world.stable(1)
    stores = world.stores
    assert world.leave(Identity(member)) == [None]
    assert world.machine.state is GroupState.EMPTY
    assert world.machine.generation == 2
    assert world.machine.deadline_ms() is None
    assert world.stores > stores
    assert world.leave(Identity(member)) == [Refusal.UNKNOWN_MEMBER_ID]


def test_leaving_gives_a_verdict_for_each() -> None:
    world = World()
    one, two, _three = world.stable(3)
    verdicts = world.leave(Identity(one), Identity("ghost"), Identity(two), Identity(""))
    unknown = Refusal.UNKNOWN_MEMBER_ID
    assert verdicts == [None, unknown, None, unknown]
    assert world.machine.member_count == 1


def test_a_pending_id_can_be_given_back() -> None:
    world = World()
    told = world.joined(world.join(request()))
    assert world.leave(Identity(told.member_id)) == [None]
    assert world.machine.is_unused


def test_leaving_answers_what_the_member_waited_for() -> None:
    world = World()
    world.stable(1)
    member, ticket = world.new_member()
    world.leave(Identity(member))
    assert world.joined(ticket).refusal is Refusal.UNKNOWN_MEMBER_ID


def test_a_client_that_dies_in_its_first_join_leaves_no_ghost() -> None:
    """Old clients do not know their id yet: nobody could ever come back under it."""
    world = World(initial_delay_ms=100)
    ticket = world.join(request(version=3))
    world.gone(ticket)
    assert world.machine.member_count == 0
    world.pass_time(100)
    assert world.machine.state is GroupState.EMPTY


def test_a_client_that_dies_in_a_rejoin_counts_as_silent_from_then_on() -> None:
    world = World()
    one, two = world.stable(2)
    ticket = world.join(request(one))
    world.gone(ticket)
    waits = world.join(request(two))
    world.pass_time(SESSION_MS)
    assert world.joined(waits).refusal is None
    assert world.machine.member_count == 1


def test_a_client_whose_connection_broke_rejoins_under_its_id() -> None:
    world = World()
    one, two = world.stable(2)
    world.gone(world.join(request(one)))
    again = world.join(request(one))
    world.join(request(two))
    assert world.joined(again).refusal is None
    assert world.machine.member_count == 2


def test_a_second_try_replaces_the_first() -> None:
    world = World()
    one, _two = world.stable(2)
    first = world.join(request(one))
    second = world.join(request(one))
    assert world.joined(first).refusal is Refusal.REBALANCE_IN_PROGRESS
    assert second in world.waiting


def test_two_quick_rebalances_drop_nobody() -> None:
    """Cooperative rebalancing joins twice in a row: librdkafka test 0113."""
    world = World()
    one, two = world.stable(2)
    for round_ in range(3):
        metadata = subscription("t", owned=bytes([round_]))
        tickets = [
            world.join(request(each, protocols=(Protocol("range", metadata),)))
            for each in (one, two)
        ]
        generation = world.joined(tickets[0]).generation
        world.sync(two, generation)
        world.sync(one, generation, {one: b"1", two: b"2"})
    assert world.machine.member_count == 2
    assert world.machine.state is GroupState.STABLE


# -- static members (KIP-345) ----------------------------------------------------------------------


def static_group(world: World, version: int = 9) -> list[str]:
    """Two static members `a` (the leader) and `b`, stable."""
    first = world.joined(world.join(request(instance="a", version=version)))
    second = world.join(request(instance="b", version=version))
    world.join(request(first.member_id, instance="a", version=version))
    ids = [first.member_id, world.joined(second).member_id]
    generation = world.machine.generation
    world.sync(ids[1], generation, instance="b")
    world.sync(ids[0], generation, {ids[0]: b"A", ids[1]: b"B"}, instance="a")
    assert world.machine.state is GroupState.STABLE
    return ids


def test_a_restarted_static_member_keeps_its_assignment_without_a_rebalance() -> None:
    world = World()
    _, old = static_group(world)
    generation = world.machine.generation
    stores = world.stores
    told = world.joined(world.join(request(instance="b")))
    assert (told.refusal, told.generation, told.members) == (None, generation, ())
    assert told.member_id != old
    assert world.stores == stores + 1, "the new id is stored before it is told"
    assert world.machine.state is GroupState.STABLE
    again = world.sync(told.member_id, generation, instance="b")
    assert world.synced(again).assignment == b"B"


def test_the_old_process_of_a_static_member_is_fenced() -> None:
    world = World()
    _, old = static_group(world)
    generation = world.machine.generation
    world.join(request(instance="b"))
    fenced = Refusal.FENCED_INSTANCE_ID
    assert world.beat(old, generation, instance="b") is fenced
    assert world.synced(world.sync(old, generation, instance="b")).refusal is fenced
    assert world.joined(world.join(request(old, instance="b"))).refusal is fenced
    assert world.leave(Identity(old, "b")) == [fenced]
    identity = Identity(old, "b")
    assert world.machine.check_commit(identity, generation, world.now_ms) is fenced


def test_a_static_member_that_waits_is_fenced_at_once() -> None:
    world = World()
    (one,) = world.stable(1)
    first = world.join(request(instance="s"))
    second = world.join(request(instance="s"))
    assert world.joined(first).refusal is Refusal.FENCED_INSTANCE_ID
    world.join(request(one))
    assert world.joined(second).refusal is None
    assert world.machine.member_count == 2


def test_a_restarted_static_leader_is_told_to_skip_the_assignment() -> None:
    """KIP-814, from version 9 on."""
    world = World()
    static_group(world)
    told = world.joined(world.join(request(instance="a")))
    assert told.leader == told.member_id
    assert told.skip_assignment
    assert len(told.members) == 2, "it must go on watching what they subscribe to"
    synced = world.synced(world.sync(told.member_id, told.generation, instance="a"))
    assert synced.assignment == b"A"


def test_an_old_static_leader_is_told_that_another_one_leads() -> None:
    world = World()
    leader, _ = static_group(world, version=5)
    told = world.joined(world.join(request(instance="a", version=5)))
    assert told.leader == leader != told.member_id
    assert not told.skip_assignment
    assert told.members == ()


def test_a_static_member_with_other_topics_starts_a_rebalance() -> None:
    world = World()
    static_group(world)
    other = (Protocol("range", subscription("other")),)
    ticket = world.join(request(instance="b", protocols=other))
    assert world.machine.state is GroupState.PREPARING
    assert ticket in world.waiting


def test_a_static_member_that_restarts_while_the_leader_assigns_starts_a_rebalance() -> None:
    world = World()
    leader, follower = static_group(world)
    world.join(request(leader, instance="a"))
    world.join(request(follower, instance="b"))
    assert world.machine.state is GroupState.COMPLETING
    world.join(request(instance="b"))
    assert world.machine.state is GroupState.PREPARING


def test_a_static_member_stays_until_its_session_ends() -> None:
    world = World()
    leader, _silent = static_group(world)
    generation = world.machine.generation
    world.pass_time(SESSION_MS - 1)
    assert world.machine.member_count == 2
    world.beat(leader, generation, instance="a")
    world.pass_time(1)
    assert world.machine.member_count == 1


def test_a_static_member_that_does_not_rejoin_keeps_its_place() -> None:
    """Only its session removes it, not the rebalance timeout."""
    world = World()
    leader, silent = static_group(world)
    long = request(leader, instance="a", protocols=(STICKY, RANGE), rebalance_ms=REBALANCE_MS)
    ticket = world.join(long)
    for _ in range(REBALANCE_MS // 5_000):
        world.beat(silent, world.machine.generation, instance="b")
        world.pass_time(5_000)
    assert world.joined(ticket).refusal is None
    assert world.machine.member_count == 2


def test_an_admin_removes_a_static_member_by_its_instance_id() -> None:
    world = World()
    static_group(world)
    assert world.leave(Identity("", "b"), Identity("", "nobody")) == [
        None,
        Refusal.UNKNOWN_MEMBER_ID,
    ]
    assert world.machine.member_count == 1


# -- offsets ---------------------------------------------------------------------------------------


def test_commits_are_checked() -> None:
    world = World()

    def check(member: str, generation: int) -> Refusal | None:
        return world.machine.check_commit(Identity(member), generation, world.now_ms)

    assert check("", -1) is None, "nobody is in it: admin tools and simple consumers may"
    assert check("ghost", 3) is Refusal.UNKNOWN_MEMBER_ID
    (member,) = world.stable(1)
    assert check(member, 1) is None
    assert check("", -1) is Refusal.UNKNOWN_MEMBER_ID
    assert check(member, 0) is Refusal.ILLEGAL_GENERATION
    assert check(member, -1) is Refusal.ILLEGAL_GENERATION
    world.new_member()
    assert check(member, 1) is None, "before it rejoins it may commit what it has read"
    world.join(request(member))
    assert check(member, 2) is Refusal.REBALANCE_IN_PROGRESS


def test_a_commit_is_a_sign_of_life() -> None:
    world = World()
    (member,) = world.stable(1)
    for _ in range(5):
        world.pass_time(SESSION_MS - 1)
        assert world.machine.check_commit(Identity(member), 1, world.now_ms) is None


def test_the_topics_a_group_reads_are_known() -> None:
    world = World()
    world.stable(1)
    assert world.machine.reads_topic("t")
    assert not world.machine.reads_topic("u")
    other = World()
    other.stable(1, protocols=(Protocol("odd", b"\x00"),))
    assert other.machine.reads_topic("anything"), "better to keep an offset too many"


# -- restart ---------------------------------------------------------------------------------------


def restored(world: World) -> World:
    """The same group after a restart of the server: only its row is left."""
    fresh = World()
    fresh.now_ms = 5_000
    row = world.machine.row(None)
    fresh.machine.restore(row, fresh.now_ms)
    assert fresh.machine.row(None) == row
    return fresh


def test_a_stable_group_goes_on_after_a_restart() -> None:
    world = World()
    leader, follower = world.stable(2)
    again = restored(world)
    generation = world.machine.generation
    assert again.beat(leader, generation) is None
    assert again.beat(follower, generation) is None
    told = again.synced(again.sync(follower, generation))
    assert told.assignment == follower.encode()
    assert again.machine.state is GroupState.STABLE


def test_sessions_begin_anew_after_a_restart() -> None:
    world = World()
    leader, _dead = world.stable(2)
    again = restored(world)
    generation = world.machine.generation
    again.pass_time(SESSION_MS - 1)
    assert again.beat(leader, generation) is None
    again.pass_time(1)
    assert again.machine.member_count == 1


def test_a_group_that_was_assigning_goes_on_after_a_restart() -> None:
    """Goal: a generation that members were told is never used for something else."""
    world = World()
    leader, follower = world.stable(2)
    world.join(request(leader))
    world.join(request(follower))
    again = restored(world)
    generation = world.machine.generation
    parked = again.sync(follower, generation)
    again.sync(leader, generation, {follower: b"f"})
    assert again.synced(parked).assignment == b"f"


def test_a_group_that_was_rebalancing_goes_on_after_a_restart() -> None:
    world = World()
    leader, follower, third = world.stable(3)
    world.leave(Identity(third))
    again = restored(world)
    generation = world.machine.generation
    assert again.beat(leader, generation) is Refusal.REBALANCE_IN_PROGRESS
    tickets = [again.join(request(each)) for each in (leader, follower)]
    assert {again.joined(t).generation for t in tickets} == {generation + 1}


def test_members_nobody_has_answered_are_not_stored() -> None:
    world = World(initial_delay_ms=1_000)
    world.new_member()
    row = world.machine.row(None)
    assert row.members == ()
    assert row.leader is None


# -- the end ---------------------------------------------------------------------------------------


def test_a_deleted_group_serves_nobody() -> None:
    world = World()
    world.machine.close()
    refused = Refusal.COORDINATOR_NOT_AVAILABLE
    assert world.joined(world.join(request())).refusal is refused
    assert world.synced(world.sync("m", 1)).refusal is refused
    assert world.beat("m", 1) is refused
    assert world.leave(Identity("m")) == [refused]
    assert world.machine.check_commit(Identity(""), -1, 0) is refused
    world.machine.reopen()
    assert world.joined(world.join(request())).refusal is Refusal.MEMBER_ID_REQUIRED


def test_a_group_that_was_being_deleted_is_an_empty_one_after_a_restart() -> None:
    world = World()
    (member,) = world.stable(1)
    world.leave(Identity(member))
    world.machine.close()
    again = World()
    again.machine.restore(world.machine.row(None), again.now_ms)
    assert again.machine.state is GroupState.EMPTY
    assert again.joined(again.new_member()[1]).generation == 3


def test_a_machine_refuses_nonsense_limits() -> None:
    with pytest.raises(AssertionError):
        GroupMachine("g", initial_delay_ms=-1, members_max=1)
    with pytest.raises(AssertionError):
        GroupMachine("g", initial_delay_ms=0, members_max=0)


# -- what consumers write --------------------------------------------------------------------------


def test_subscriptions_and_assignments_are_read_leniently() -> None:
    assert subscribed_topics(subscription("a", "b")) == {"a", "b"}
    assert subscribed_topics(subscription()) == frozenset()
    for odd in (b"", b"\x00", b"\x00\x00\x7f\xff\xff\xff", b"\x00\x00\x00\x00\x00\x01\xff\xff"):
        assert subscribed_topics(odd) is None
        assert assigned_partitions(odd) == ()
    assignment = (
        b"\x00\x01\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00\x01"
    )
    assert assigned_partitions(assignment + b"\xff\xff\xff\xff") == (("t", 1), ("t", 3))
