"""Administration through the clients' own admin classes: librdkafka, kafka-python, aiokafka."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import confluent_kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource as AioResource
from aiokafka.admin.config_resource import ConfigResourceType as AioType
from aiokafka.admin.new_partitions import NewPartitions as AioPartitions
from confluent_kafka import admin

from tests.integration.admin_values import ALTER_CLIENT_QUOTAS
from tests.integration.kafka_clients import kafka
from tests.integration.kafka_wire import Wire
from tests.integration.server_process import ServerProcess, running_server

pytestmark = pytest.mark.integration

SECONDS_MAX = 15.0
RATE = 200_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    settings = {"TOPIC_PARTITIONS_GROWABLE": "1"}
    with running_server(tmp_path_factory.mktemp("admin-clients"), settings) as running:
        yield running


@pytest.fixture
def topic(server: ServerProcess) -> str:
    name = f"t-{uuid4().hex}"
    with Wire(server.kafka) as wire:
        wire.create_topic(name, 2)
    return name


# -- librdkafka ------------------------------------------------------------------------------------


@pytest.fixture
def rd(server: ServerProcess) -> admin.AdminClient:
    return admin.AdminClient({"bootstrap.servers": server.kafka})


def done(futures: Any) -> Any:
    """The one result of a call."""
    (future,) = futures.values()
    return future.result(SECONDS_MAX)


def test_librdkafka_round_trip_of_settings(rd: admin.AdminClient, topic: str) -> None:
    resource = admin.ConfigResource(admin.ResourceType.TOPIC, topic)
    before = done(rd.describe_configs([resource]))
    assert (before["retention.ms"].value, before["retention.ms"].is_default) == ("604800000", True)
    kinds = admin.AlterConfigOpType
    edits = [
        admin.ConfigEntry("retention.ms", "98765", incremental_operation=kinds.SET),
        admin.ConfigEntry("cleanup.policy", "compact", incremental_operation=kinds.APPEND),
    ]
    altered = admin.ConfigResource(admin.ResourceType.TOPIC, topic, incremental_configs=edits)
    done(rd.incremental_alter_configs([altered]))
    after = done(rd.describe_configs([resource]))
    assert after["retention.ms"].value == "98765"
    assert after["retention.ms"].source == admin.ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert after["cleanup.policy"].value == "delete,compact"
    replaced = admin.ConfigResource(
        admin.ResourceType.TOPIC, topic, set_config={"segment.ms": "5000"}
    )
    with pytest.warns(DeprecationWarning, match="alter_configs"):
        done(rd.alter_configs([replaced]))
    last = done(rd.describe_configs([resource]))
    assert (last["segment.ms"].value, last["retention.ms"].value) == ("5000", "604800000")


def test_librdkafka_is_told_what_is_wrong(rd: admin.AdminClient, topic: str) -> None:
    edit = admin.ConfigEntry(
        "retention.ms", "soon", incremental_operation=admin.AlterConfigOpType.SET
    )
    codes = {
        (admin.ResourceType.TOPIC, topic): confluent_kafka.KafkaError.INVALID_CONFIG,
        (admin.ResourceType.TOPIC, "none"): confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART,
        (admin.ResourceType.BROKER, "0"): confluent_kafka.KafkaError.INVALID_REQUEST,
    }
    for (kind, name), code in codes.items():
        resource = admin.ConfigResource(kind, name, incremental_configs=[edit])
        with pytest.raises(confluent_kafka.KafkaException) as caught:
            done(rd.incremental_alter_configs([resource]))
        assert caught.value.args[0].code() == code, (kind, name)


def test_librdkafka_reads_the_broker(rd: admin.AdminClient) -> None:
    found = done(rd.describe_configs([admin.ConfigResource(admin.ResourceType.BROKER, "0")]))
    assert found["node.id"].value == "0"
    assert found["node.id"].is_read_only
    assert rd.describe_cluster().result(SECONDS_MAX).controller.id == 0


def test_librdkafka_adds_partitions(rd: admin.AdminClient, topic: str) -> None:
    done(rd.create_partitions([admin.NewPartitions(topic, 5)]))
    described = rd.describe_topics(confluent_kafka.TopicCollection([topic]))
    assert len(done(described).partitions) == 5
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        done(rd.create_partitions([admin.NewPartitions(topic, 5)]))
    assert caught.value.args[0].code() == confluent_kafka.KafkaError.INVALID_PARTITIONS


def test_librdkafka_finds_no_authorizer(rd: admin.AdminClient, topic: str) -> None:
    """(Its describe_acls hides the error and gives an empty list.)"""
    rule = admin.AclBinding(
        admin.ResourceType.TOPIC,
        topic,
        admin.ResourcePatternType.LITERAL,
        "User:a",
        "*",
        admin.AclOperation.READ,
        admin.AclPermissionType.ALLOW,
    )
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        done(rd.create_acls([rule]))
    assert caught.value.args[0].code() == confluent_kafka.KafkaError.SECURITY_DISABLED


def test_librdkafka_needs_no_election(rd: admin.AdminClient, topic: str) -> None:
    tp = confluent_kafka.TopicPartition(topic, 0)
    found = rd.elect_leaders(confluent_kafka.ElectionType.PREFERRED, [tp]).result(SECONDS_MAX)
    (error,) = found.values()
    assert error.code() == confluent_kafka.KafkaError.ELECTION_NOT_NEEDED


# -- kafka-python ----------------------------------------------------------------------------------


@pytest.fixture
def py(server: ServerProcess) -> Iterator[Any]:
    client = kafka.KafkaAdminClient(bootstrap_servers=server.kafka)
    yield client
    client.close()


def test_kafka_python_round_trip_of_settings(py: Any, topic: str) -> None:
    make, kinds = kafka.admin.ConfigResource, kafka.admin.ConfigResourceType
    py.alter_configs([make(kinds.TOPIC, topic, configs={"retention.ms": "4711"})])
    found = py.describe_configs([make(kinds.TOPIC, topic)])
    assert "4711" in str(found)
    broker = py.describe_configs([make(kinds.BROKER, "0")], config_filter="all")
    assert "num.partitions" in str(broker)


def test_kafka_python_adds_partitions(py: Any, topic: str) -> None:
    py.create_partitions({topic: kafka.admin.NewPartitions(4)})
    (described,) = py.describe_topics([topic])
    assert len(described["partitions"]) == 4


def test_kafka_python_describes_log_dirs(py: Any, topic: str) -> None:
    assert topic in str(py.describe_log_dirs())


# -- aiokafka --------------------------------------------------------------------------------------


def test_aiokafka_round_trip(server: ServerProcess, topic: str) -> None:
    async def scenario() -> None:
        client = AIOKafkaAdminClient(bootstrap_servers=server.kafka)
        await client.start()
        try:
            resource = AioResource(AioType.TOPIC, topic, configs={"retention.ms": "31337"})
            (altered,) = await client.alter_configs([resource])
            assert [row[0] for row in altered.resources] == [0]
            (found,) = await client.describe_configs([AioResource(AioType.TOPIC, topic)])
            assert "31337" in str(found)
            await client.create_partitions({topic: AioPartitions(3)})
            (described,) = await client.describe_topics([topic])
            assert len(described["partitions"]) == 3
        finally:
            await client.close()

    asyncio.run(scenario())


# -- quotas ----------------------------------------------------------------------------------------


def test_a_real_producer_is_kept_to_its_quota(server: ServerProcess, topic: str) -> None:
    """Three times the rate takes about two seconds: the first second's worth is a burst."""
    entity = [{"entity_type": "client-id", "entity_name": "greedy"}]
    limit = {"key": "producer_byte_rate", "value": float(RATE), "remove": False}
    with Wire(server.kafka) as wire:
        answer = wire.call(ALTER_CLIENT_QUOTAS, 1, entries=[{"entity": entity, "ops": [limit]}])
        assert answer.entries[0].error_code == 0
    times: dict[str, float] = {}
    for client_id in ("greedy", "modest"):
        settings = {"bootstrap.servers": server.kafka, "client.id": client_id}
        producer = confluent_kafka.Producer({**settings, "batch.size": 20_000, "linger.ms": 0})
        began = time.monotonic()
        for _ in range(3 * RATE // 10_000):
            producer.produce(topic, b"x" * 10_000, partition=0)
        assert producer.flush(SECONDS_MAX) == 0
        times[client_id] = time.monotonic() - began
    assert times["modest"] < 1.0
    assert 1.5 < times["greedy"] < 6.0
