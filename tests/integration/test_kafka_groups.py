"""Groups on the wire: every version of every group API, and the exact code for each mistake."""

import struct
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from kio.schema.errors import ErrorCode

from streamhouse.kafka_proto.apis import APIS
from tests.integration.kafka_wire import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    GROUP_APIS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SYNC_GROUP,
    Wire,
)
from tests.integration.server_process import ServerProcess, running_server

pytestmark = pytest.mark.integration

NEWEST = {key: APIS[key].version_max for key in GROUP_APIS}
OK = ErrorCode.none
SESSION_MS = 6_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    settings = {"GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}
    with running_server(tmp_path_factory.mktemp("wire-groups"), settings) as running:
        yield running


@pytest.fixture
def wire(server: ServerProcess) -> Iterator[Wire]:
    with Wire(server.kafka) as connection:
        yield connection


@pytest.fixture
def topic(wire: Wire) -> "Topic":
    name = f"t-{uuid4().hex}"
    return Topic(name, wire.create_topic(name, 2))


class Topic:
    def __init__(self, name: str, topic_id: Any) -> None:
        self.name, self.topic_id = name, topic_id
        self.both = {"name": name, "topic_id": topic_id}


def subscription(*topics: str) -> bytes:
    raw = struct.pack(">hi", 0, len(topics))
    for topic in topics:
        raw += struct.pack(">h", len(topic)) + topic.encode()
    return raw + struct.pack(">i", -1)


class Member:
    """A member that says each thing in the version it is told to, else in the newest."""

    def __init__(self, wire: Wire, group: str, versions: dict[int, int] | None = None) -> None:
        self.wire, self.group = wire, group
        self.versions = {**NEWEST, **(versions or {})}
        self.member_id = ""
        self.generation = -1

    def call(self, key: int, **values: Any) -> Any:
        return self.wire.call(key, self.versions[key], **{"group_id": self.group, **values})

    def join_once(self, **values: Any) -> Any:
        return self.call(JOIN_GROUP, **self.join_values(**values))

    def join_values(self, **values: Any) -> dict[str, Any]:
        return {
            "session_timeout": SESSION_MS,
            "rebalance_timeout": 10_000,
            "member_id": self.member_id,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": subscription("t")}],
            **values,
        }

    def join(self, **values: Any) -> Any:
        answer = self.join_once(**values)
        if answer.error_code is ErrorCode.member_id_required:
            self.member_id = answer.member_id
            answer = self.join_once(**values)
        assert answer.error_code is OK, answer
        self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    def sync(self, assignment: bytes = b"mine") -> Any:
        given = [{"member_id": self.member_id, "assignment": assignment}]
        return self.call(
            SYNC_GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            assignments=given,
            protocol_type="consumer",
            protocol_name="range",
        )

    def beat(self, generation: int | None = None) -> ErrorCode:
        told = self.generation if generation is None else generation
        answer = self.call(HEARTBEAT, generation_id=told, member_id=self.member_id)
        return ErrorCode(answer.error_code)

    def commit(self, topic: Topic, offset: int, **values: Any) -> ErrorCode:
        partition = values.pop("partition", 0)
        row = {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": 3,
            "committed_metadata": values.pop("metadata", "note"),
        }
        asked = {
            "generation_id_or_member_epoch": self.generation,
            "member_id": self.member_id,
            "topics": [{**topic.both, "partitions": [row]}],
            **values,
        }
        (told,) = self.call(OFFSET_COMMIT, **asked).topics
        return ErrorCode(told.partitions[0].error_code)

    def fetch(self, topic: Topic | None, partitions: tuple[int, ...] = (0,)) -> Any:
        """(the group's error or 0, its topics) whatever the version calls them."""
        topics = None
        if topic is not None:
            topics = [{**topic.both, "partition_indexes": list(partitions)}]
        answer = self.call(
            OFFSET_FETCH, topics=topics, groups=[{"group_id": self.group, "topics": topics}]
        )
        if self.versions[OFFSET_FETCH] >= 8:
            (answer,) = answer.groups
        return getattr(answer, "error_code", OK), answer.topics

    def leave(self) -> ErrorCode:
        members = [{"member_id": self.member_id}]
        answer = self.call(LEAVE_GROUP, member_id=self.member_id, members=members)
        for each in getattr(answer, "members", ()):
            return ErrorCode(each.error_code)
        return ErrorCode(answer.error_code)

    def delete(self) -> ErrorCode:
        (result,) = self.call(DELETE_GROUPS, groups_names=[self.group]).results
        return ErrorCode(result.error_code)


def new_group() -> str:
    return f"g-{uuid4().hex}"


# -- every version ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "version"),
    [
        pytest.param(key, version, id=f"{APIS[key].name}-{version}")
        for key in sorted(GROUP_APIS)
        for version in range(APIS[key].served_min, APIS[key].version_max + 1)
    ],
)
def test_sh_111_every_version_of_every_group_api_is_served(
    wire: Wire, topic: Topic, key: int, version: int
) -> None:
    """A whole life of a group, with one API in each of its versions."""
    member = Member(wire, new_group(), {key: version})
    joined = member.join()
    assert (joined.leader, joined.generation_id) == (member.member_id, 1)
    assert [each.member_id for each in joined.members] == [member.member_id]
    assert member.sync().assignment == b"mine"
    assert member.beat() is OK
    assert member.commit(topic, 7) is OK
    error, ((found),) = member.fetch(topic)
    assert error is OK
    (row,) = found.partitions
    assert (row.committed_offset, row.metadata, row.error_code) == (7, "note", OK)
    assert getattr(row, "committed_leader_epoch", 3) == 3 or member.versions[OFFSET_COMMIT] < 6

    listed = member.call(LIST_GROUPS, states_filter=["stable"], types_filter=["Classic"])
    assert listed.error_code is OK
    assert member.group in {group.group_id for group in listed.groups}
    asked = {"groups": [member.group], "include_authorized_operations": True}
    (described,) = member.call(DESCRIBE_GROUPS, **asked).groups
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    assert described.members[0].member_assignment == b"mine"
    assert described.members[0].client_host == "/127.0.0.1"

    assert member.delete() is ErrorCode.non_empty_group
    assert member.leave() is OK
    rows = [{"name": topic.name, "partitions": [{"partition_index": 0}]}]
    deleted = member.call(OFFSET_DELETE, topics=rows)
    assert deleted.error_code is OK
    assert deleted.topics[0].partitions[0].error_code is OK
    assert member.delete() is OK
    assert member.delete() is ErrorCode.group_id_not_found


# -- offsets (2.6) ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 11))
def test_an_unknown_group_has_committed_nothing_and_that_is_no_error(
    wire: Wire, topic: Topic, version: int
) -> None:
    member = Member(wire, new_group(), {OFFSET_FETCH: version})
    error, (found,) = member.fetch(topic, (0, 1, 99))
    assert error is OK
    rows = [(row.partition_index, row.committed_offset, row.error_code) for row in found.partitions]
    assert rows == [(0, -1, OK), (1, -1, OK), (99, -1, OK)]
    if version >= 2:
        assert member.fetch(None) == (OK, ())


@pytest.mark.parametrize("version", range(2, 11))
def test_null_topics_mean_everything_committed(wire: Wire, topic: Topic, version: int) -> None:
    member = Member(wire, new_group(), {OFFSET_FETCH: version})
    for partition in (1, 0):
        assert member.commit(topic, 5 + partition, partition=partition) is OK
    error, (found,) = member.fetch(None)
    assert error is OK
    assert [(row.partition_index, row.committed_offset) for row in found.partitions] == [
        (0, 5),
        (1, 6),
    ]
    if version >= 10:
        assert found.topic_id == topic.topic_id
    else:
        assert found.name == topic.name


def test_several_groups_are_fetched_at_once(wire: Wire, topic: Topic) -> None:
    groups = [new_group(), new_group(), new_group()]
    for number, group in enumerate(groups[:2]):
        assert Member(wire, group).commit(topic, number) is OK
    asked = [{"group_id": group, "topics": None} for group in groups]
    answer = wire.call(OFFSET_FETCH, 9, groups=asked, require_stable=True)
    found = {
        g.group_id: [p.committed_offset for t in g.topics for p in t.partitions]
        for g in answer.groups
    }
    assert found == {groups[0]: [0], groups[1]: [1], groups[2]: []}


@pytest.mark.parametrize(("version", "code"), [(2, 22), (8, 22), (9, 69), (10, 69)])
def test_a_generation_of_an_unknown_group(
    wire: Wire, topic: Topic, version: int, code: int
) -> None:
    member = Member(wire, new_group(), {OFFSET_COMMIT: version})
    member.generation, member.member_id = 4, "somebody"
    assert int(member.commit(topic, 1)) == code


def test_commits_by_strangers_and_of_nonsense_get_their_code(wire: Wire, topic: Topic) -> None:
    member = Member(wire, new_group())
    member.join()
    assert member.commit(topic, 1) is ErrorCode.rebalance_in_progress, "before it has synced"
    member.sync()
    assert member.commit(topic, 1, member_id="ghost") is ErrorCode.unknown_member_id
    other = {"generation_id_or_member_epoch": 9}
    assert member.commit(topic, 1, **other) is ErrorCode.illegal_generation
    simple = {"generation_id_or_member_epoch": -1, "member_id": ""}
    assert member.commit(topic, 1, **simple) is ErrorCode.unknown_member_id
    assert member.commit(topic, 1, metadata="x" * 4096) is OK
    too_large = ErrorCode.offset_metadata_too_large
    assert member.commit(topic, 1, metadata="x" * 4097) is too_large
    unknown = ErrorCode.unknown_topic_or_partition
    assert member.commit(topic, 1, partition=2) is unknown
    nowhere = Topic("nowhere", uuid4())
    assert member.commit(nowhere, 1) is ErrorCode.unknown_topic_id
    member.versions[OFFSET_COMMIT] = 9
    assert member.commit(nowhere, 1) is unknown
    assert member.commit(Topic("no/name", None), 1) is unknown
    fenced = member.commit(topic, 1, group_instance_id="static")
    assert fenced is ErrorCode.unknown_member_id


def test_offsets_go_with_their_topic(wire: Wire, topic: Topic) -> None:
    member = Member(wire, new_group())
    member.commit(topic, 7)
    wire.call(20, 5, topic_names=[topic.name], timeout=5_000)
    assert member.fetch(None) == (OK, ())


def test_offsets_of_a_topic_that_is_read_stay(wire: Wire, topic: Topic) -> None:
    other_name = f"o-{uuid4().hex}"
    other = Topic(other_name, wire.create_topic(other_name))
    member = Member(wire, new_group())
    member.join(protocols=[{"name": "range", "metadata": subscription(topic.name)}])
    member.sync()
    assert member.commit(topic, 1) is member.commit(other, 1) is OK
    rows = [
        {"name": topic.name, "partitions": [{"partition_index": 0}, {"partition_index": 9}]},
        {"name": other.name, "partitions": [{"partition_index": 0}]},
    ]
    answer = member.call(OFFSET_DELETE, topics=rows)
    codes = [int(row.error_code) for found in answer.topics for row in found.partitions]
    assert codes == [86, 3, 0]
    assert [found.topic_id for found in member.fetch(None)[1]] == [topic.topic_id]
    unknown = wire.call(OFFSET_DELETE, 0, group_id=new_group(), topics=rows)
    assert unknown.error_code is ErrorCode.group_id_not_found


# -- membership (2.5) ------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout_ms", [-1, 0, 5_999, 1_800_001])
def test_session_timeouts_have_bounds(wire: Wire, timeout_ms: int) -> None:
    told = Member(wire, new_group()).join_once(session_timeout=timeout_ms)
    assert told.error_code is ErrorCode.invalid_session_timeout


def test_a_group_needs_a_name(wire: Wire) -> None:
    member = Member(wire, "")
    assert member.join_once().error_code is ErrorCode.invalid_group_id
    assert member.sync().error_code is ErrorCode.invalid_group_id
    assert member.beat() is ErrorCode.invalid_group_id
    told = member.call(LEAVE_GROUP, members=[{"member_id": "m"}])
    assert told.error_code is ErrorCode.invalid_group_id


def test_strangers_of_an_unknown_group(wire: Wire) -> None:
    member = Member(wire, new_group())
    member.member_id, member.generation = "stranger", 1
    unknown = ErrorCode.unknown_member_id
    assert member.join_once().error_code is unknown
    assert member.sync().error_code is unknown
    assert member.beat() is unknown
    assert member.leave() is unknown


def test_protocols_that_do_not_fit_are_inconsistent(wire: Wire) -> None:
    group = new_group()
    member = Member(wire, group)
    member.join()
    told = Member(wire, group).join_once(protocol_type="connect")
    assert told.error_code is ErrorCode.inconsistent_group_protocol
    nothing = Member(wire, new_group()).join_once(protocols=[])
    assert nothing.error_code is ErrorCode.inconsistent_group_protocol


def test_a_static_member_is_fenced_by_its_successor(wire: Wire) -> None:
    group = new_group()
    first, second = Member(wire, group), Member(wire, group)
    first.join(group_instance_id="one")
    first.sync()
    told = second.join(group_instance_id="one")
    assert (told.generation_id, told.skip_assignment) == (1, True)
    assert second.sync(b"").assignment == b"mine"
    answer = first.call(
        HEARTBEAT, generation_id=1, member_id=first.member_id, group_instance_id="one"
    )
    assert answer.error_code is ErrorCode.fenced_instance_id
    removed = second.call(LEAVE_GROUP, members=[{"member_id": "", "group_instance_id": "one"}])
    assert removed.members[0].error_code is OK


def test_a_client_that_goes_while_it_waits_holds_nobody_up(server: ServerProcess) -> None:
    """Goal: the connection of a waiting JoinGroup breaks, and the group goes on without it."""
    group = new_group()
    with Wire(server.kafka) as stays, Wire(server.kafka) as goes:
        one = Member(stays, group)
        one.join()
        one.sync()
        two = Member(goes, group, {JOIN_GROUP: 3})
        goes.send(JOIN_GROUP, 3, group_id=group, **two.join_values())
        while one.beat() is OK:
            pass
        goes.close()
        while len(one.call(DESCRIBE_GROUPS, groups=[group]).groups[0].members) > 1:
            time.sleep(0.01)  # until the server has noticed
        told = one.join()
        assert [each.member_id for each in told.members] == [one.member_id]


def test_requests_behind_a_waiting_join_are_answered_after_it(server: ServerProcess) -> None:
    """kafka-python sends heartbeats behind a JoinGroup on the same connection."""
    group = new_group()
    with Wire(server.kafka) as first, Wire(server.kafka) as second:
        one, two = Member(first, group), Member(second, group)
        one.join()
        one.sync()
        two.member_id = two.join_once().member_id
        joining = second.send(JOIN_GROUP, 9, group_id=group, **two.join_values())
        behind = second.send(HEARTBEAT, 4, group_id=group, generation_id=2, member_id=two.member_id)
        one.join()
        assert second.receive(JOIN_GROUP, 9, joining).generation_id == 2
        assert second.receive(HEARTBEAT, 4, behind).error_code is OK


@pytest.mark.parametrize("version", range(7))
def test_a_group_nobody_knows_is_dead(wire: Wire, version: int) -> None:
    (told,) = wire.call(DESCRIBE_GROUPS, version, groups=["nobody"]).groups
    assert told.group_state == "Dead"
    assert told.error_code is (ErrorCode.group_id_not_found if version >= 6 else OK)


def test_lists_are_filtered(wire: Wire, topic: Topic) -> None:
    simple, joined = new_group(), Member(wire, new_group())
    Member(wire, simple).commit(topic, 1)
    joined.join()

    def listed(**filters: Any) -> set[str]:
        return {group.group_id for group in wire.call(LIST_GROUPS, 5, **filters).groups}

    both = {simple, joined.group}
    assert both <= listed()
    assert listed(states_filter=["Empty"]) & both == {simple}
    assert listed(states_filter=["completingrebalance"]) & both == {joined.group}
    assert both <= listed(types_filter=["classic"])
    assert listed(types_filter=["consumer"]) == set()
