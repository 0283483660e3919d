"""Apache Kafka's command line tools against the server (kafka-clients 4.x Admin underneath)."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.java_tools import JavaTools, fetch_or_skip
from tests.integration.kafka_wire import Wire, batch_of
from tests.integration.server_process import running_server

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaTools]:
    jars = fetch_or_skip()
    settings = {"TOPIC_PARTITIONS_GROWABLE": "1"}
    with running_server(tmp_path_factory.mktemp("java-tools"), settings) as server:
        with Wire(server.kafka) as wire:
            wire.create_topic("filled")
            wire.produce("filled", batch_of(b"a", b"b", b"c"))
        yield JavaTools(jars, server.kafka)


def test_kafka_topics(tools: JavaTools) -> None:
    made = tools.run(TOPICS, "--create", "--topic", "t1", "--partitions", "2")
    assert "Created topic t1." in made
    assert "t1" in tools.run(TOPICS, "--list").split()
    tools.run(TOPICS, "--alter", "--topic", "t1", "--partitions", "3")
    told = tools.run(TOPICS, "--describe", "--topic", "t1")
    assert "PartitionCount: 3" in told
    assert told.count("Leader: 0") == 3
    refused = tools.run(TOPICS, "--alter", "--topic", "t1", "--partitions", "2")
    assert "2 would not be an increase" in refused
    tools.run(TOPICS, "--delete", "--topic", "t1")
    assert "t1" not in tools.run(TOPICS, "--list").split()


def test_kafka_configs_of_topics_and_brokers(tools: JavaTools) -> None:
    of_topic = ("--entity-type", "topics", "--entity-name", "filled")
    change = "retention.ms=77777,cleanup.policy=[compact,delete]"
    assert "Completed" in tools.run(CONFIGS, *of_topic, "--alter", "--add-config", change)
    told = tools.run(CONFIGS, *of_topic, "--describe")
    assert "retention.ms=77777" in told
    assert "cleanup.policy=compact,delete" in told
    tools.run(CONFIGS, *of_topic, "--alter", "--delete-config", "retention.ms,cleanup.policy")
    assert "77777" not in tools.run(CONFIGS, *of_topic, "--describe")
    all_brokers = ("--entity-type", "brokers", "--entity-default")
    change = "log.retention.ms=88888888"
    assert "Completed" in tools.run(CONFIGS, *all_brokers, "--alter", "--add-config", change)
    assert "88888888" in tools.run(CONFIGS, *all_brokers, "--describe")
    told = tools.run(CONFIGS, *of_topic, "--describe", "--all")
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=88888888" in told
    one_broker = ("--entity-type", "brokers", "--entity-name", "0")
    refused = tools.run(CONFIGS, *one_broker, "--alter", "--add-config", "node.id=5")
    assert "InvalidRequestException" in refused
    assert "node.id=0" in tools.run(CONFIGS, *one_broker, "--describe", "--all")


def test_kafka_configs_of_quotas(tools: JavaTools) -> None:
    client = ("--entity-type", "clients", "--entity-name", "c1")
    change = "producer_byte_rate=1000000,consumer_byte_rate=2000000"
    assert "Completed" in tools.run(CONFIGS, *client, "--alter", "--add-config", change)
    assert "consumer_byte_rate=2000000.0" in tools.run(CONFIGS, *client, "--describe")
    user = ("--entity-type", "users", "--entity-default")
    change = "producer_byte_rate=3000000"
    assert "Completed" in tools.run(CONFIGS, *user, "--alter", "--add-config", change)
    told = tools.run(CONFIGS, "--entity-type", "users", "--describe")
    assert "producer_byte_rate=3000000.0" in told
    assert "Exception" not in told


def test_offsets_and_records(tools: JavaTools, tmp_path: Path) -> None:
    shell = "org.apache.kafka.tools.GetOffsetShell"
    assert "filled:0:3" in tools.run(shell, "--topic", "filled")
    wanted = {"partitions": [{"topic": "filled", "partition": 0, "offset": 2}], "version": 1}
    (tmp_path / "delete.json").write_text(json.dumps(wanted))
    delete = "org.apache.kafka.tools.DeleteRecordsCommand"
    told = tools.run(delete, "--offset-json-file", str(tmp_path / "delete.json"))
    assert "low_watermark: 2" in told
    assert "filled:0:2" in tools.run(shell, "--topic", "filled", "--time", "earliest")


def test_the_cluster_and_its_disks(tools: JavaTools) -> None:
    told = tools.run("org.apache.kafka.tools.LogDirsCommand", "--describe")
    assert '"partition":"filled-0"' in told
    told = tools.run("org.apache.kafka.tools.FeatureCommand", "describe")
    assert "FinalizedVersionLevel: 4.0-IV3" in told
    told = tools.run("org.apache.kafka.tools.MetadataQuorumCommand", "describe", "--status")
    assert "LeaderId:               0" in told
    told = tools.run("org.apache.kafka.tools.ClusterTool", "cluster-id", address_last=True)
    assert "Cluster ID:" in told
    told = tools.run("org.apache.kafka.tools.AclCommand", "--list")
    assert "SecurityDisabledException" in told


def test_leaders_and_reassignments(tools: JavaTools, tmp_path: Path) -> None:
    one = ("--election-type", "preferred", "--topic", "filled", "--partition", "0")
    told = tools.run("org.apache.kafka.tools.LeaderElectionCommand", *one)
    assert "Valid replica already elected" in told
    assert "No partition reassignments found." in tools.run(REASSIGN, "--list")
    row = {"topic": "filled", "partition": 0, "replicas": [0]}
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [row]}))
    told = tools.run(REASSIGN, "--reassignment-json-file", str(plan), "--execute")
    assert "Successfully started" in told
    told = tools.run(REASSIGN, "--reassignment-json-file", str(plan), "--verify")
    assert "is completed" in told
    assert "Exception" not in told
