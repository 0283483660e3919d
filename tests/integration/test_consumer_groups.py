"""Consumer groups with real clients: members come, go, die; servers restart; offsets stay."""

import json
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from tests.integration.server_process import ServerProcess, running_server

pytestmark = pytest.mark.integration

CLIENTS = ("librdkafka", "kafka-python", "aiokafka")
WAIT_SECONDS_MAX = 40.0
PARTITIONS = 6
SETTINGS = {"GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}


class Member:
    """A consumer process; what it says is read in the background."""

    def __init__(
        self, server: ServerProcess, client: str, group: str, topic: str, **options: Any
    ) -> None:
        self._lines: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            [
                sys.executable,
                *("-m", "tests.integration.group_member"),
                *(client, server.kafka, group, topic, json.dumps(options)),
            ],
            cwd=Path(__file__).resolve().parents[2],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(json.loads(line))

    def all(self, kind: str) -> list[Any]:
        return [line[kind] for line in list(self._lines) if kind in line]

    @property
    def assigned(self) -> list[int] | None:
        found = self.all("assigned")
        return found[-1] if found else None

    @property
    def records(self) -> list[tuple[int, int]]:
        return [(p, o) for records in self.all("records") for p, o in records]

    def kill9(self) -> None:
        self._process.kill()
        self._end()

    def close(self) -> None:
        """Let it leave the group."""
        self._process.terminate()
        self._end()
        assert self.all("closed"), self._lines

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._end()

    def _end(self) -> None:
        self._process.wait(20)
        self._reader.join(5)
        assert self._process.stdout is not None
        self._process.stdout.close()


Start = Callable[..., Member]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running_server(tmp_path_factory.mktemp("groups"), SETTINGS) as running:
        yield running


@contextmanager
def members() -> Iterator[Start]:
    """Starts members and makes sure that none outlives the test."""
    started: list[Member] = []

    def start(*args: Any, **options: Any) -> Member:
        started.append(Member(*args, **options))
        return started[-1]

    try:
        yield start
    finally:
        for member in started:
            member.stop()


def until(what: str, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, f"not in {WAIT_SECONDS_MAX} s: {what}"
        time.sleep(0.02)


def make_topic(server: ServerProcess, partitions: int = PARTITIONS) -> str:
    name = f"t-{uuid4().hex}"
    status, _ = server.call("POST", "/api/v1/topics", {"name": name, "partition_count": partitions})
    assert status == 201
    return name


def write(server: ServerProcess, topic: str, count: int, partitions: int = PARTITIONS) -> None:
    producer = Producer({"bootstrap.servers": server.kafka, "linger.ms": 1})
    for number in range(count):
        producer.produce(topic, f"v{number}", partition=number % partitions)
    assert producer.flush(20) == 0


def shared(*group: Member) -> Callable[[], bool]:
    """Each partition belongs to exactly one of them, and each of them has some."""

    def is_so() -> bool:
        found = [member.assigned or [] for member in group]
        return all(found) and sorted(chain(*found)) == list(range(PARTITIONS))

    return is_so


def read_by(*group: Member) -> set[tuple[int, int]]:
    return {place for member in group for place in member.records}


def committed(server: ServerProcess, group: str) -> dict[int, int]:
    status, found = server.call("GET", f"/api/v1/consumer-groups/{group}")
    assert status == 200, found
    return {row["partition"]: row["offset"] for row in found["offsets"]}


# -- members come, go and die ----------------------------------------------------------------------


@pytest.mark.parametrize("client", CLIENTS)
def test_two_and_three_members_share_a_topic_and_survive_a_death(
    server: ServerProcess, client: str
) -> None:
    """2.5: rebalance on join, on leave and on a session that ends (6 s)."""
    topic, group = make_topic(server), f"g-{uuid4().hex}"
    write(server, topic, 60)
    with members() as start:
        one = start(server, client, group, topic)
        until("one has everything", lambda: one.assigned == list(range(PARTITIONS)))
        two = start(server, client, group, topic)
        until("two share", shared(one, two))
        three = start(server, client, group, topic)
        until("three share", shared(one, two, three))
        write(server, topic, 60)
        until("all is read", lambda: len(read_by(one, two, three)) == 120)

        three.close()
        until("two share again", shared(one, two))
        two.kill9()
        until("one takes over", shared(one))
        write(server, topic, 60)
        until("all is read", lambda: len(read_by(one, two, three)) == 180)
        one.close()
    assert committed(server, group) == dict.fromkeys(range(PARTITIONS), 30)
    _, described = server.call("GET", f"/api/v1/consumer-groups/{group}")
    assert (described["state"], described["members"]) == ("Empty", [])


def test_cooperative_members_keep_what_they_have(server: ServerProcess) -> None:
    """librdkafka test 0113: two rebalances in a row, and no partition is given up without need."""
    topic, group = make_topic(server), f"g-{uuid4().hex}"
    with members() as start:
        one = start(server, "librdkafka", group, topic, cooperative=True)
        until("one has everything", lambda: one.assigned == list(range(PARTITIONS)))
        two = start(server, "librdkafka", group, topic, cooperative=True)
        until("two has half", lambda: len(two.assigned or []) == PARTITIONS // 2)
        given_up = list(chain(*one.all("revoked")))
        assert sorted(given_up) == two.assigned
        write(server, topic, 60)
        until("all is read", lambda: len(read_by(one, two)) == 60)
        two.close()
        until("one has everything again", lambda: one.assigned == list(range(PARTITIONS)))
        one.close()


@pytest.mark.parametrize("client", CLIENTS)
def test_a_static_member_that_restarts_causes_no_rebalance(
    server: ServerProcess, client: str
) -> None:
    """KIP-345: rolling restarts."""
    topic, group = make_topic(server), f"g-{uuid4().hex}"
    with members() as start:
        one = start(server, client, group, topic, instance_id="one", session_ms=30_000)
        two = start(server, client, group, topic, instance_id="two", session_ms=30_000)
        until("two share", shared(one, two))
        _, before = server.call("GET", f"/api/v1/consumer-groups/{group}")
        two.kill9()
        again = start(server, client, group, topic, instance_id="two", session_ms=30_000)
        until("it has what it had", lambda: again.assigned == two.assigned)
        _, after = server.call("GET", f"/api/v1/consumer-groups/{group}")
        assert after["generation"] == before["generation"]
        write(server, topic, 60)
        until("all is read", lambda: len(read_by(one, again)) == 60)


def test_members_of_different_clients_form_one_group(server: ServerProcess) -> None:
    topic, group = make_topic(server), f"g-{uuid4().hex}"
    with members() as start:
        mixed = [start(server, client, group, topic) for client in CLIENTS]
        until("three share", shared(*mixed))
        write(server, topic, 60)
        until("all is read", lambda: len(read_by(*mixed)) == 60)


# -- the server restarts ---------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["kill9", "terminate"])
def test_a_stable_group_survives_the_server(tmp_path: Path, how: str) -> None:
    """Members go on with heartbeats; nobody rebalances; what was committed is there."""
    with running_server(tmp_path, SETTINGS) as server, members() as start:
        topic, group = make_topic(server), "survivors"
        write(server, topic, 60)
        one = start(server, "librdkafka", group, topic, session_ms=20_000)
        two = start(server, "aiokafka", group, topic, session_ms=20_000)
        until("two share", shared(one, two))
        until("all is read", lambda: len(read_by(one, two)) == 60)
        until("all is committed", lambda: sum(committed(server, group).values()) == 60)
        _, before = server.call("GET", f"/api/v1/consumer-groups/{group}")
        assignments = len(one.all("assigned")), len(two.all("assigned"))
        getattr(server, how)()
        server.start()
        _, after = server.call("GET", f"/api/v1/consumer-groups/{group}")
        assert after["state"] == "Stable"
        assert after["members"] == before["members"]
        assert {r["partition"]: r["offset"] for r in after["offsets"]} == {
            p: 10 for p in range(PARTITIONS)
        }
        write(server, topic, 60)
        until("all is read", lambda: len(read_by(one, two)) == 120)
        time.sleep(1.0)  # several heartbeats
        _, later = server.call("GET", f"/api/v1/consumer-groups/{group}")
        assert later["generation"] == before["generation"]
        assert (len(one.all("assigned")), len(two.all("assigned"))) == assignments


# -- administration --------------------------------------------------------------------------------


def test_admin_lists_describes_and_deletes_groups(server: ServerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": server.kafka})
    topic, group = make_topic(server), f"g-{uuid4().hex}"
    write(server, topic, 12)
    with members() as start:
        one = start(server, "librdkafka", group, topic)
        until("all is read", lambda: len(one.records) == 12)
        listed = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result()
        assert group in {found.group_id for found in listed.valid}
        described = admin.describe_consumer_groups([group])[group].result()
        assert described.state is ConsumerGroupState.STABLE
        (member,) = described.members
        assert member.host == "/127.0.0.1"
        assert member.client_id == "rdkafka"
        assert len(member.assignment.topic_partitions) == PARTITIONS
        with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
            admin.delete_consumer_groups([group])[group].result()
        one.close()
    (found,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    assert {tp.partition: tp.offset for tp in found.result().topic_partitions} == {
        p: 2 for p in range(PARTITIONS)
    }
    admin.delete_consumer_groups([group])[group].result()
    with pytest.raises(KafkaException, match="GROUP_ID_NOT_FOUND"):
        admin.delete_consumer_groups([group])[group].result()
    listed = admin.list_consumer_groups().result()
    assert group not in {found.group_id for found in listed.valid}


def test_kafka_python_lists_describes_and_deletes_groups(server: ServerProcess) -> None:
    topic, group = make_topic(server), f"g-{uuid4().hex}"
    write(server, topic, 12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import kafka
    admin = kafka.KafkaAdminClient(bootstrap_servers=server.kafka)
    try:
        with members() as start:
            one = start(server, "kafka-python", group, topic)
            until("all is read", lambda: len(one.records) == 12)
            listed = {found["group_id"]: found for found in admin.list_groups()}
            assert listed[group]["group_state"] == "Stable"
            described = admin.describe_groups([group])[group]
            assert described["protocol_type"] == "consumer"
            assert len(described["members"]) == 1
            one.close()
        offsets = admin.list_group_offsets(group)[group]
        assert {tp.partition: found.offset for tp, found in offsets.items()} == {
            number: 2 for number in range(PARTITIONS)
        }
        assert admin.delete_groups([group]) == {group: "OK"}
        assert group not in {found["group_id"] for found in admin.list_groups()}
    finally:
        admin.close()


def test_admin_resets_offsets_of_a_group_without_members(server: ServerProcess) -> None:
    """2.6: a commit with generation -1 creates the group, and moves it."""
    admin = AdminClient({"bootstrap.servers": server.kafka})
    topic, group = make_topic(server), f"g-{uuid4().hex}"
    write(server, topic, 12)
    moved = [TopicPartition(topic, 0, 1), TopicPartition(topic, 1, 0)]
    asked = [ConsumerGroupTopicPartitions(group, moved)]
    admin.alter_consumer_group_offsets(asked)[group].result()
    assert committed(server, group) == {0: 1, 1: 0}
    consumer = Consumer(
        {
            "bootstrap.servers": server.kafka,
            "group.id": group,
            "auto.offset.reset": "latest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        found = consumer.consume(3, 10)
        assert sorted((m.partition(), m.offset()) for m in found) == [(0, 1), (1, 0), (1, 1)]
    finally:
        consumer.close()


def test_metadata_and_leader_epoch_of_a_commit_come_back(server: ServerProcess) -> None:
    """librdkafka tests 0099 and 0140."""
    topic, group = make_topic(server), f"g-{uuid4().hex}"
    consumer = Consumer({"bootstrap.servers": server.kafka, "group.id": group})
    try:
        offset = TopicPartition(topic, 3, 7, metadata="nöte", leader_epoch=5)
        consumer.commit(offsets=[offset], asynchronous=False)
        (found, other) = consumer.committed(
            [TopicPartition(topic, 3), TopicPartition(topic, 4)], timeout=10
        )
        assert (found.offset, found.metadata, found.leader_epoch) == (7, "nöte", 5)
        assert other.offset == -1001, "nothing committed"
        long = TopicPartition(topic, 3, 8, metadata="x" * 4097)
        with pytest.raises(KafkaException, match="OFFSET_METADATA_TOO_LARGE"):
            consumer.commit(offsets=[long], asynchronous=False)
    finally:
        consumer.close()
