"""Administration over the wire: settings, quotas, partition counts, and what a lone broker says.

Raw requests are encoded by kio; `test_admin_clients.py` asks the same through real clients.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from kio.schema.errors import ErrorCode

from tests.integration.admin_values import (
    ALTER_CLIENT_QUOTAS,
    ALTER_CONFIGS,
    ALTER_PARTITION_REASSIGNMENTS,
    APPEND,
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    CREATE_PARTITIONS,
    DELETE,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_QUORUM,
    DESCRIBE_TOPIC_PARTITIONS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    ELECT_LEADERS,
    GROUP,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_CONFIG_RESOURCES,
    SET,
    SUBTRACT,
    TOPIC,
)
from tests.integration.kafka_wire import (
    API_VERSIONS,
    DESCRIBE_CONFIGS,
    FETCH,
    METADATA,
    PRODUCE,
    Wire,
    batch_of,
    fetch_values,
    produce_values,
    timed_batch,
)
from tests.integration.server_process import ServerProcess, running_server

pytestmark = pytest.mark.integration

versions_0_1 = pytest.mark.parametrize("version", [0, 1])
versions_0_2 = pytest.mark.parametrize("version", [0, 1, 2])
versions_0_3 = pytest.mark.parametrize("version", [0, 1, 2, 3])
versions_1_4 = pytest.mark.parametrize("version", [1, 2, 3, 4])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running_server(tmp_path_factory.mktemp("admin"), {"SEGMENT_MAX_SIZE": "70000"}) as running:
        yield running


@pytest.fixture(scope="module")
def growable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    settings = {"TOPIC_PARTITIONS_GROWABLE": "1"}
    with running_server(tmp_path_factory.mktemp("growable"), settings) as running:
        yield running


@pytest.fixture
def wire(server: ServerProcess) -> Iterator[Wire]:
    with Wire(server.kafka) as connection:
        yield connection


@pytest.fixture
def topic(wire: Wire) -> str:
    name = f"t-{uuid4().hex}"
    wire.create_topic(name, 2)
    return name


# -- settings ------------------------------------------------------------------------------------


def edits(*rows: tuple[str, int, str | None]) -> list[dict[str, Any]]:
    return [{"name": n, "config_operation": op, "value": v} for n, op, v in rows]


def alter(
    wire: Wire,
    name: str,
    *rows: tuple[str, int, str | None],
    kind: int = TOPIC,
    validate_only: bool = False,
    version: int = 1,
) -> int:
    resource = {"resource_type": kind, "resource_name": name, "configs": edits(*rows)}
    answer = wire.call(
        INCREMENTAL_ALTER_CONFIGS, version, resources=[resource], validate_only=validate_only
    )
    (row,) = answer.responses
    assert (row.resource_type, row.resource_name) == (kind, name)
    assert (row.error_message is None) == (row.error_code == 0)
    return int(row.error_code)


def config(wire: Wire, name: str, kind: int = TOPIC, version: int = 4) -> dict[str, Any]:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    answer = wire.call(
        DESCRIBE_CONFIGS,
        version,
        resources=[resource],
        include_synonyms=True,
        include_documentation=True,
    )
    (result,) = answer.results
    assert result.error_code == 0, result
    return {row.name: row for row in result.configs}


@versions_0_1
def test_incremental_changes_touch_only_what_they_name(
    wire: Wire, topic: str, version: int
) -> None:
    assert alter(wire, topic, ("retention.ms", SET, "12345"), version=version) == 0
    change = (("cleanup.policy", APPEND, "compact"), ("segment.ms", SET, "5000"))
    assert alter(wire, topic, *change, version=version) == 0
    found = {n: r.value for n, r in config(wire, topic).items() if r.config_source == TOPIC - 1}
    expected = {"retention.ms": "12345", "cleanup.policy": "delete,compact", "segment.ms": "5000"}
    assert found == expected
    change2 = (("cleanup.policy", SUBTRACT, "delete"), ("retention.ms", DELETE, None))
    assert alter(wire, topic, *change2, version=version) == 0
    after = config(wire, topic)
    assert after["cleanup.policy"].value == "compact"
    assert (after["retention.ms"].value, after["retention.ms"].config_source) == ("604800000", 5)
    assert after["segment.ms"].value == "5000"


@versions_0_2
def test_alter_configs_replaces_everything(wire: Wire, topic: str, version: int) -> None:
    assert alter(wire, topic, ("retention.ms", SET, "12345")) == 0
    resource: dict[str, Any] = {"resource_type": TOPIC, "resource_name": topic}
    resource["configs"] = [{"name": "segment.ms", "value": "7000"}]
    for validate_only, expected in ((True, "12345"), (False, "604800000")):
        answer = wire.call(
            ALTER_CONFIGS, version, resources=[resource], validate_only=validate_only
        )
        assert [int(r.error_code) for r in answer.responses] == [0]
        assert config(wire, topic)["retention.ms"].value == expected
    assert config(wire, topic)["segment.ms"].value == "7000"
    resource["configs"] = [{"name": "segment.ms", "value": "no number"}]
    (row,) = wire.call(ALTER_CONFIGS, version, resources=[resource]).responses
    assert row.error_code == ErrorCode.invalid_config


def test_validate_only_changes_nothing(wire: Wire, topic: str) -> None:
    assert alter(wire, topic, ("retention.ms", SET, "1"), validate_only=True) == 0
    assert config(wire, topic)["retention.ms"].value == "604800000"
    assert alter(wire, topic, ("retention.ms", SET, "x"), validate_only=True) == 40


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([("retention.ms", SET, "ten")], ErrorCode.invalid_config),
        ([("retention.ms", SET, "-2")], ErrorCode.invalid_config),
        ([("no.such.setting", SET, "1")], ErrorCode.invalid_config),
        ([("retention.ms", APPEND, "1")], ErrorCode.invalid_config),
        ([("cleanup.policy", SUBTRACT, "delete")], ErrorCode.invalid_config),
        ([("cleanup.policy", APPEND, "shred")], ErrorCode.invalid_config),
        ([("remote.storage.enable", SET, "true")], ErrorCode.invalid_config),
        ([("retention.ms", SET, None)], ErrorCode.invalid_request),
        ([("retention.ms", 9, "1")], ErrorCode.invalid_request),
        ([("retention.ms", SET, "1"), ("retention.ms", SET, "2")], ErrorCode.invalid_request),
    ],
)
def test_a_bad_change_is_refused_whole(
    wire: Wire, topic: str, rows: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    assert alter(wire, topic, ("segment.ms", SET, "9999"), *rows) == code
    assert config(wire, topic)["segment.ms"].config_source == 5, "nothing of it is done"


def test_resources_succeed_or_fail_one_by_one(wire: Wire, topic: str) -> None:
    change = edits(("retention.ms", SET, "5"))
    names = ["no-such-topic", topic, "bad/name", ""]
    rows = [{"resource_type": TOPIC, "resource_name": n, "configs": change} for n in names]
    answer = wire.call(INCREMENTAL_ALTER_CONFIGS, 1, resources=rows)
    assert [int(row.error_code) for row in answer.responses] == [3, 0, 17, 42]
    twice = [rows[1], rows[1]]
    answer = wire.call(INCREMENTAL_ALTER_CONFIGS, 1, resources=twice)
    assert [int(row.error_code) for row in answer.responses] == [42, 42]


def test_most_settings_of_the_broker_are_read_only(wire: Wire) -> None:
    assert alter(wire, "0", ("num.partitions", SET, "7"), kind=BROKER) == 42
    assert alter(wire, "", ("log.retention.ms", SET, "soon"), kind=BROKER) == 42
    assert alter(wire, "0", ("no.such.setting", SET, "7"), kind=BROKER) == 42
    assert alter(wire, "9", ("num.partitions", DELETE, None), kind=BROKER) == 42
    assert alter(wire, "0", ("num.partitions", DELETE, None), kind=BROKER) == 0
    assert alter(wire, "0", ("leader.replication.throttled.rate", DELETE, None), kind=BROKER) == 0
    assert alter(wire, "g", ("x", SET, "7"), kind=GROUP) == 42
    assert config(wire, "0", BROKER)["num.partitions"].value == "1"


def test_levels_of_loggers_can_be_read_and_set(wire: Wire) -> None:
    name = "streamhouse.server.kafka.connection"
    before = config(wire, "0", BROKER_LOGGER)
    assert before["root"].value == before[name].value == "INFO"
    assert alter(wire, "0", (name, SET, "ERROR"), kind=BROKER_LOGGER, validate_only=True) == 0
    assert config(wire, "0", BROKER_LOGGER)[name].value == "INFO"
    assert alter(wire, "0", (name, SET, "ERROR"), kind=BROKER_LOGGER) == 0
    assert config(wire, "0", BROKER_LOGGER)[name].value == "ERROR"
    assert alter(wire, "0", (name, DELETE, None), kind=BROKER_LOGGER) == 0
    assert config(wire, "0", BROKER_LOGGER)[name].value == "INFO"
    assert alter(wire, "0", (name, SET, "LOUD"), kind=BROKER_LOGGER) == 40
    assert alter(wire, "0", ("no.such.logger", SET, "INFO"), kind=BROKER_LOGGER) == 40
    assert alter(wire, "0", (name, APPEND, "INFO"), kind=BROKER_LOGGER) == 42
    assert alter(wire, "1", (name, SET, "INFO"), kind=BROKER_LOGGER) == 42


@versions_1_4
def test_describe_configs_tells_source_synonyms_type_and_meaning(
    wire: Wire, topic: str, version: int
) -> None:
    """Pitfall 28. The segment size was set for the process, so it is the default here."""
    assert alter(wire, topic, ("retention.ms", SET, "12345")) == 0
    found = config(wire, topic, version=version)
    sources = {n: [(s.name, s.value, s.source) for s in r.synonyms] for n, r in found.items()}
    retention = [("retention.ms", "12345", 1), ("log.retention.ms", "604800000", 5)]
    assert sources["retention.ms"] == retention
    size = [("log.segment.bytes", "70000", 4), ("log.segment.bytes", "1048576", 5)]
    assert sources["segment.bytes"] == size
    assert found["segment.bytes"].value == "70000"
    assert not any(row.read_only for row in found.values())
    broker = config(wire, "0", BROKER, version)
    assert broker["node.id"].read_only
    assert not broker["log.retention.ms"].read_only
    assert broker["log.segment.bytes"].value == "70000"
    assert {"inter.broker.protocol.version", "log.dirs", "node.id", "listeners"} <= set(broker)
    if version >= 3:
        kinds = (found["retention.ms"].config_type, found["cleanup.policy"].config_type)
        assert kinds == (5, 7)  # LONG, LIST
        assert all(row.documentation for row in (*found.values(), *broker.values()))
    assert config(wire, "", BROKER, version) == {}


def sources(wire: Wire, name: str, setting: str, kind: int = TOPIC) -> list[tuple[str, int]]:
    return [(s.value, s.source) for s in config(wire, name, kind)[setting].synonyms]


def test_defaults_of_topics_change_while_the_broker_runs(tmp_path: Path) -> None:
    batch = batch_of(b"x" * 2000)
    too_large = ErrorCode.message_too_large
    with running_server(tmp_path) as server:
        with Wire(server.kafka) as wire:
            wire.create_topic("plain")
            wire.create_topic("own", max_message_bytes="5000")
            change = ("message.max.bytes", SET, "1000")
            assert alter(wire, "", change, kind=BROKER, validate_only=True) == 0
            assert wire.produce("plain", batch).error_code == 0
            assert alter(wire, "", change, kind=BROKER) == 0
            assert wire.produce("plain", batch).error_code == too_large
            assert wire.produce("own", batch).error_code == 0
            wire.create_topic("later")
            assert wire.produce("later", batch).error_code == too_large
        server.kill9()
        server.start()
        with Wire(server.kafka) as wire:
            assert wire.produce("plain", batch).error_code == too_large
            assert config(wire, "", BROKER).keys() == {"message.max.bytes"}
            assert alter(wire, "0", ("message.max.bytes", SET, "3000"), kind=BROKER) == 0
            assert wire.produce("plain", batch).error_code == 0  # this broker's own wins
            fallback = [("3000", 2), ("1000", 3), ("1048588", 5)]
            assert sources(wire, "plain", "max.message.bytes") == fallback
            assert sources(wire, "own", "max.message.bytes") == [("5000", 1), *fallback]
            assert sources(wire, "0", "message.max.bytes", BROKER) == fallback
            resource = {"resource_type": BROKER, "resource_name": "0"}
            other = [{"name": "log.retention.ms", "value": "99999"}]
            resources = [{**resource, "configs": other}]
            (row,) = wire.call(ALTER_CONFIGS, 2, resources=resources).responses
            assert row.error_code == 0
            assert wire.produce("plain", batch).error_code == too_large  # taken back
            assert sources(wire, "plain", "retention.ms") == [("99999", 2), ("604800000", 5)]
            assert alter(wire, "", ("message.max.bytes", DELETE, None), kind=BROKER) == 0
            assert wire.produce("plain", batch).error_code == 0


# -- settings that work ----------------------------------------------------------------------------


def test_max_message_bytes_changes_at_once(wire: Wire, topic: str) -> None:
    batch = batch_of(b"x" * 2000)
    assert wire.produce(topic, batch).error_code == 0
    assert alter(wire, topic, ("max.message.bytes", SET, "1000")) == 0
    assert wire.produce(topic, batch).error_code == ErrorCode.message_too_large
    assert alter(wire, topic, ("max.message.bytes", DELETE, None)) == 0
    assert wire.produce(topic, batch).error_code == 0


def test_timestamp_settings_change_at_once(wire: Wire, topic: str) -> None:
    long_ago = timed_batch([1000])
    assert wire.produce(topic, long_ago).log_append_time is None
    assert alter(wire, topic, ("message.timestamp.type", SET, "LogAppendTime")) == 0
    assert wire.produce(topic, long_ago).log_append_time is not None
    change = (
        ("message.timestamp.type", SET, "CreateTime"),
        ("message.timestamp.before.max.ms", SET, "60000"),
    )
    assert alter(wire, topic, *change) == 0
    assert wire.produce(topic, long_ago).error_code == ErrorCode.invalid_timestamp


def test_compaction_policy_changes_at_once(wire: Wire, topic: str) -> None:
    assert wire.produce(topic, batch_of(b"no key")).error_code == 0
    assert alter(wire, topic, ("cleanup.policy", SET, "compact")) == 0
    assert wire.produce(topic, batch_of(b"no key")).error_code == ErrorCode.invalid_record


def test_retention_changes_at_once(tmp_path: Path) -> None:
    settings = {"SEGMENT_MAX_AGE_MS": "100", "RETENTION_CHECK_INTERVAL_MS": "100"}
    with running_server(tmp_path, settings) as server, Wire(server.kafka) as wire:
        wire.create_topic("kept")
        assert wire.produce("kept", batch_of(b"x")).error_code == 0
        time.sleep(1.2)  # rolled, looked at, and kept
        assert wire.list_offset("kept", -2).offset == 0
        assert alter(wire, "kept", ("retention.ms", SET, "1000")) == 0
        deadline = time.monotonic() + 15
        while wire.list_offset("kept", -2).offset != 1:
            assert time.monotonic() < deadline, "retention did not begin"
            time.sleep(0.05)


def test_changes_survive_a_restart(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        with Wire(server.kafka) as wire:
            wire.create_topic("kept")
            assert alter(wire, "kept", ("retention.ms", SET, "5555")) == 0
            assert set_quota(wire, [("client-id", "c")], producer_byte_rate=1e6) == [0]
        server.kill9()
        server.start()
        with Wire(server.kafka) as wire:
            assert config(wire, "kept")["retention.ms"].value == "5555"
            assert quotas(wire) == {(("client-id", "c"),): {"producer_byte_rate": 1e6}}


# -- partition counts ------------------------------------------------------------------------------


def grow(wire: Wire, version: int = 3, validate_only: bool = False, **counts: Any) -> list[int]:
    rows = []
    for name, count in counts.items():
        number, assigned = count if isinstance(count, tuple) else (count, None)
        assignments = None if assigned is None else [{"broker_ids": a} for a in assigned]
        rows.append({"name": name, "count": number, "assignments": assignments})
    answer = wire.call(
        CREATE_PARTITIONS, version, topics=rows, timeout=5000, validate_only=validate_only
    )
    assert [row.name for row in answer.results] == list(counts)
    return [int(row.error_code) for row in answer.results]


def partition_count(wire: Wire, name: str) -> int:
    answer = wire.call(METADATA, 12, topics=[{"name": name}], allow_auto_topic_creation=False)
    return len(answer.topics[0].partitions)


@versions_0_3
def test_growth_needs_permission(wire: Wire, topic: str, version: int) -> None:
    assert grow(wire, version, **{topic: 3}) == [ErrorCode.policy_violation]
    assert grow(wire, version, **{topic: 2}) == [ErrorCode.invalid_partitions]
    assert partition_count(wire, topic) == 2


@versions_0_3
def test_growth_works_as_in_kafka(growable: ServerProcess, version: int) -> None:
    name = f"t-{uuid4().hex}"
    with Wire(growable.kafka) as wire:
        wire.create_topic(name, 2)
        assert wire.produce(name, batch_of(b"old"), 1).error_code == 0
        assert grow(wire, version, validate_only=True, **{name: 4}) == [0]
        assert partition_count(wire, name) == 2
        assert grow(wire, version, **{name: 4, "no-such-topic": 2}) == [0, 3]
        assert partition_count(wire, name) == 4
        for number in range(4):
            answer = wire.produce(name, batch_of(b"new"), number)
            assert (answer.error_code, answer.base_offset) == (0, 1 if number == 1 else 0)
        assert wire.produce(name, batch_of(b"new"), 4).error_code == 3
        assert grow(wire, version, **{name: 4}) == [ErrorCode.invalid_partitions]
        assert grow(wire, version, **{name: 3}) == [ErrorCode.invalid_partitions]
        assert grow(wire, version, **{name: 20_000}) == [ErrorCode.invalid_partitions]
        for wrong in ([[0]], [[0], [1]], [[0], [0, 1]], [[0], []]):
            assert grow(wire, version, **{name: (6, wrong)}) == [39], wrong
        assert grow(wire, version, **{name: (6, [[0], [0]])}) == [0]
        assert partition_count(wire, name) == 6
        both = {"name": name, "count": 8, "assignments": None}
        answer = wire.call(CREATE_PARTITIONS, version, topics=[both, both], timeout=5000)
        assert [(r.name, int(r.error_code)) for r in answer.results] == [(name, 42)]


def test_growth_survives_and_is_described_in_the_bucket(tmp_path: Path) -> None:
    with running_server(tmp_path, {"TOPIC_PARTITIONS_GROWABLE": "1"}) as server:
        with Wire(server.kafka) as wire:
            topic_id = wire.create_topic("grown", 1)
            wire.produce("grown", batch_of(b"a"))
        server.terminate()  # writes the first description
        server.start()
        with Wire(server.kafka) as wire:
            assert grow(wire, grown=3) == [0]
            assert alter(wire, "grown", ("retention.ms", SET, "999999999")) == 0
            assert wire.produce("grown", batch_of(b"b"), 2).error_code == 0
        server.kill9()  # the growth is in the metadata, the record in the WAL
        server.start()
        with Wire(server.kafka) as wire:
            assert partition_count(wire, "grown") == 3
            assert wire.list_offset("grown", -1, 2).offset == 1
        server.terminate()
        folder = server.data_dir / "objects" / "topics" / str(topic_id)
        first = json.loads((folder / "topic.json").read_text())
        grown = json.loads((folder / "partitions" / "0000000003.json").read_text())
        assert (first["partition_count"], grown["partition_count"]) == (1, 3)
        assert first["name"] == grown["name"] == "grown"
        server.start()
        with Wire(server.kafka) as wire:
            assert len(wire.fetch("grown", 0, 2).records) > 0


# -- quotas ----------------------------------------------------------------------------------------


def set_quota(
    wire: Wire, *entities: list[tuple[str, str | None]], version: int = 1, **limits: float | None
) -> list[int]:
    ops = [{"key": k, "value": v or 0.0, "remove": v is None} for k, v in limits.items()]
    entries = [
        {"entity": [{"entity_type": t, "entity_name": n} for t, n in entity], "ops": ops}
        for entity in entities
    ]
    answer = wire.call(ALTER_CLIENT_QUOTAS, version, entries=entries)
    return [int(entry.error_code) for entry in answer.entries]


def quotas(wire: Wire, *components: Any, strict: bool = False, version: int = 1) -> dict[Any, Any]:
    rows = [{"entity_type": t, "match_type": m, "match": n} for t, m, n in components]
    answer = wire.call(DESCRIBE_CLIENT_QUOTAS, version, components=rows, strict=strict)
    assert answer.error_code == 0, answer
    return {
        tuple((e.entity_type, e.entity_name) for e in entry.entity): {
            v.key: v.value for v in entry.values
        }
        for entry in answer.entries
    }


@versions_0_1
def test_quotas_are_stored_found_and_removed(tmp_path: Path, version: int) -> None:
    user, both, default = [("user", "u")], [("user", "u"), ("client-id", None)], [("user", None)]
    with running_server(tmp_path) as server, Wire(server.kafka) as wire:
        codes = set_quota(wire, user, both, default, version=version, consumer_byte_rate=5e6)
        assert codes == [0, 0, 0]
        assert set_quota(wire, user, version=version, request_percentage=12.5) == [0]
        limits = {"consumer_byte_rate": 5e6}
        pair = (("client-id", None), ("user", "u"))
        found = {(("user", "u"),): {**limits, "request_percentage": 12.5}, pair: limits}
        assert quotas(wire, ("user", 0, "u"), version=version) == found
        strict = quotas(wire, ("user", 0, "u"), strict=True, version=version)
        assert strict.keys() == {(("user", "u"),)}
        assert quotas(wire, ("user", 1, None), version=version) == {(("user", None),): limits}
        assert len(quotas(wire, ("user", 2, None), version=version)) == 3
        assert len(quotas(wire, version=version)) == 3
        assert quotas(wire, ("ip", 2, None), version=version) == {}
        assert set_quota(wire, user, version=version, request_percentage=None) == [0]
        assert quotas(wire, ("user", 0, "u"), strict=True, version=version) == {
            (("user", "u"),): limits
        }


def test_bad_quotas_are_refused_one_by_one(wire: Wire) -> None:
    good = [("client-id", "good")]
    bad: list[tuple[str, str | None]] = [("planet", "x")]
    assert set_quota(wire, good, bad, [("user", "")], [], producer_byte_rate=1e9) == [0, 42, 42, 42]
    assert set_quota(wire, good, producer_byte_rate=-1.0) == [42]
    assert set_quota(wire, good, producer_byte_rate=0.5) == [42]
    assert set_quota(wire, good, no_such_rate=1.0) == [42]
    assert set_quota(wire, good, good, producer_byte_rate=5e8) == [42, 42]
    assert quotas(wire, ("client-id", 0, "good")) == {
        (("client-id", "good"),): {"producer_byte_rate": 1e9}
    }
    refused = [
        ([("planet", 0, "x")], 35),
        ([("user", 0, None)], 42),
        ([("user", 1, "u")], 42),
        ([("user", 7, None)], 42),
        ([("user", 2, None), ("user", 2, None)], 42),
        ([("user", 2, None), ("ip", 2, None)], 42),
        ([("", 2, None)], 42),
    ]
    for components, code in refused:
        rows = [{"entity_type": t, "match_type": m, "match": n} for t, m, n in components]
        answer = wire.call(DESCRIBE_CLIENT_QUOTAS, 1, components=rows)
        assert (answer.error_code, answer.entries) == (code, None), components


RATE = 100_000


def test_a_producer_above_its_quota_is_answered_at_once_and_then_muted(tmp_path: Path) -> None:
    """KIP-219: the answer carries the pause, the next request waits for its end."""
    with running_server(tmp_path) as server, Wire(server.kafka) as wire:
        wire.create_topic("t")
        assert set_quota(wire, [("client-id", "wire")], producer_byte_rate=RATE) == [0]
        values = produce_values({("t", 0): batch_of(b"x" * 2 * RATE)})
        began = time.monotonic()
        answer = wire.call(PRODUCE, 9, **values)
        answered = time.monotonic() - began
        pause = answer.throttle_time.total_seconds()
        assert answer.responses[0].partition_responses[0].error_code == 0
        assert 0.5 < pause < 1.5  # twice the rate, less a burst
        assert answered < pause / 2
        assert wire.call(METADATA, 1, topics=[]).brokers
        assert time.monotonic() - began >= pause * 0.95
        with Wire(server.kafka) as other:  # only the connection that was too fast waits
            assert other.call(METADATA, 1, topics=[]).brokers
        assert set_quota(wire, [("client-id", "wire")], producer_byte_rate=None) == [0]
        assert wire.call(PRODUCE, 9, **values).throttle_time.total_seconds() == 0


def test_a_producer_without_acks_is_muted_too(tmp_path: Path) -> None:
    with running_server(tmp_path) as server, Wire(server.kafka) as wire:
        wire.create_topic("t")
        assert set_quota(wire, [("user", None)], producer_byte_rate=RATE) == [0]
        began = time.monotonic()
        wire.send(PRODUCE, 9, **produce_values({("t", 0): batch_of(b"x" * 2 * RATE)}, acks=0))
        assert wire.call(METADATA, 1, topics=[]).brokers
        assert time.monotonic() - began > 0.5


def test_a_consumer_above_its_quota_is_muted(tmp_path: Path) -> None:
    with running_server(tmp_path) as server, Wire(server.kafka) as wire:
        wire.create_topic("t")
        for _ in range(3):
            wire.produce("t", batch_of(b"x" * RATE))
        assert set_quota(wire, [("client-id", None)], consumer_byte_rate=RATE) == [0]
        asked = fetch_values([("t", 0, 0)], partition_max_bytes=10 * RATE)
        began = time.monotonic()
        answer = wire.call(FETCH, 11, **asked)
        answered = time.monotonic() - began
        pause = answer.throttle_time.total_seconds()
        assert len(answer.responses[0].partitions[0].records) > 3 * RATE
        assert 1.5 < pause < 2.5
        assert answered < pause / 2
        assert wire.call(METADATA, 1, topics=[]).brokers
        assert time.monotonic() - began >= pause * 0.95


# -- what a lone broker says -----------------------------------------------------------------------


@versions_0_2
def test_elections_are_not_needed(wire: Wire, topic: str, version: int) -> None:
    asked = [{"topic": topic, "partitions": [0, 7]}, {"topic": "no-such", "partitions": [0]}]
    answer = wire.call(ELECT_LEADERS, version, topic_partitions=asked, timeout=1000)
    codes = [
        [int(p.error_code) for p in t.partition_result] for t in answer.replica_election_results
    ]
    assert codes == [[84, 3], [3]]
    everything = wire.call(ELECT_LEADERS, version, topic_partitions=None, timeout=1000)
    assert everything.replica_election_results == ()
    if version >= 1:
        wrong = wire.call(ELECT_LEADERS, version, election_type=5, topic_partitions=asked)
        assert wrong.error_code == 42


@versions_0_1
def test_reassignments_have_nowhere_to_go(wire: Wire, topic: str, version: int) -> None:
    replicas: list[list[int] | None] = [None, [0], [1], [0, 1], []]
    codes = []
    for wanted in replicas:
        row = {"partition_index": 0, "replicas": wanted}
        rows = [{"name": topic, "partitions": [row]}]
        answer = wire.call(ALTER_PARTITION_REASSIGNMENTS, version, topics=rows, timeout=1000)
        codes.append(int(answer.responses[0].partitions[0].error_code))
    assert codes == [85, 0, 39, 39, 39]
    rows = [{"name": topic, "partitions": [{"partition_index": 9, "replicas": None}]}]
    answer = wire.call(ALTER_PARTITION_REASSIGNMENTS, version, topics=rows, timeout=1000)
    assert answer.responses[0].partitions[0].error_code == 3


@versions_1_4
def test_log_dirs_tell_what_partitions_take(
    server: ServerProcess, wire: Wire, topic: str, version: int
) -> None:
    wire.produce(topic, batch_of(b"x" * 5000), 1)
    asked = [{"topic": topic, "partitions": [0, 1, 9]}, {"topic": "no-such", "partitions": [0]}]
    (found,) = wire.call(DESCRIBE_LOG_DIRS, version, topics=asked).results
    assert found.log_dir == str(server.data_dir.resolve())
    (one,) = found.topics
    sizes = {row.partition_index: row.partition_size for row in one.partitions}
    assert sizes.keys() == {0, 1}
    assert sizes[0] == 0
    assert sizes[1] > 0
    everything = wire.call(DESCRIBE_LOG_DIRS, version, topics=None).results[0].topics
    assert topic in {row.name for row in everything}


def test_topics_are_described_a_page_at_a_time(tmp_path: Path) -> None:
    with running_server(tmp_path) as server, Wire(server.kafka) as wire:
        counts = {"a": 3, "b": 1, "c": 4}
        for name, count in counts.items():
            wire.create_topic(name, count)
        pages, cursor = [], None
        while True:
            answer = wire.call(
                DESCRIBE_TOPIC_PARTITIONS,
                0,
                topics=[],
                response_partition_limit=2,
                cursor=cursor,
            )
            pages.append(
                [(t.name, [p.partition_index for p in t.partitions]) for t in answer.topics]
            )
            if answer.next_cursor is None:
                break
            at = answer.next_cursor
            cursor = {"topic_name": at.topic_name, "partition_index": at.partition_index}
        assert pages == [
            [("a", [0, 1])],
            [("a", [2]), ("b", [0])],
            [("c", [0, 1])],
            [("c", [2, 3])],
        ]
        named = [{"name": "c"}, {"name": "no-such"}, {"name": "b"}]
        answer = wire.call(DESCRIBE_TOPIC_PARTITIONS, 0, topics=named)
        assert [(t.name, int(t.error_code)) for t in answer.topics] == [
            ("b", 0),
            ("c", 0),
            ("no-such", 3),
        ]
        described = [p for t in answer.topics for p in t.partitions]
        assert {p.leader_id for p in described} == {0}
        assert {p.eligible_leader_replicas for p in described} == {()}, "Java fails on null"
        for wrong in (("a", 0), ("b", -1)):
            cursor = {"topic_name": wrong[0], "partition_index": wrong[1]}
            answer = wire.call(DESCRIBE_TOPIC_PARTITIONS, 0, topics=named, cursor=cursor)
            assert {int(t.error_code) for t in answer.topics} == {42}


def test_everything_with_settings_is_listed(wire: Wire, topic: str) -> None:
    assert wire.call(LIST_CONFIG_RESOURCES, 0).config_resources == ()
    found = wire.call(LIST_CONFIG_RESOURCES, 1, resource_types=[]).config_resources
    named = {(row.resource_type, row.resource_name) for row in found}
    assert {(TOPIC, topic), (BROKER, "0"), (BROKER_LOGGER, "0")} <= named
    found = wire.call(LIST_CONFIG_RESOURCES, 1, resource_types=[BROKER]).config_resources
    assert [(row.resource_type, row.resource_name) for row in found] == [(BROKER, "0")]
    kinds = [CLIENT_METRICS, GROUP]
    assert wire.call(LIST_CONFIG_RESOURCES, 1, resource_types=kinds).config_resources == ()
    wrong = wire.call(LIST_CONFIG_RESOURCES, 1, resource_types=[77])
    assert wrong.error_code == ErrorCode.unsupported_version


@versions_0_2
def test_this_node_decides_alone(wire: Wire, topic: str, version: int) -> None:
    asked = [
        {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]},
        {"topic_name": topic, "partitions": [{"partition_index": 0}]},
    ]
    answer = wire.call(DESCRIBE_QUORUM, version, topics=asked)
    quorum, other = (t.partitions[0] for t in answer.topics)
    assert (quorum.error_code, quorum.leader_id) == (0, 0)
    assert [voter.replica_id for voter in quorum.current_voters] == [0]
    assert other.error_code == 3


def test_nobody_has_credentials(wire: Wire) -> None:
    for users in (None, []):
        answer = wire.call(DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=users)
        assert (answer.error_code, answer.results) == (0, ())
    users = [{"name": "a"}, {"name": "b"}, {"name": "b"}]
    answer = wire.call(DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=users)
    codes = {row.user: row.error_code for row in answer.results}
    assert codes == {"a": ErrorCode.resource_not_found, "b": ErrorCode.duplicate_resource}


@pytest.mark.parametrize("version", [3, 4])
def test_the_version_of_the_cluster_is_told(wire: Wire, version: int) -> None:
    names = {"client_software_name": "wire", "client_software_version": "1"}
    answer = wire.call(API_VERSIONS, version, **names)
    assert answer.finalized_features_epoch == 0
    found = {f.name: f.max_version_level for f in answer.finalized_features}
    assert found == {"metadata.version": 25}
    offered = {f.name: (f.min_version, f.max_version) for f in answer.supported_features}
    assert offered["metadata.version"][0] > 0, "older clients refuse a minimum of 0"
