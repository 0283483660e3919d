"""Real Kafka clients against a real server process, with nothing else installed (SH-124)."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen
from uuid import uuid4

import confluent_kafka
import pytest
from confluent_kafka import admin

from streamhouse.kafka_proto.record_batch import iter_batches
from tests.integration.kafka_clients import CLIENTS, Client, Librdkafka, Message, Place, kafka
from tests.integration.kafka_wire import LATEST, METADATA, Wire
from tests.integration.server_process import ServerProcess, running_server

pytestmark = pytest.mark.integration

each_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
CODEC_NUMBERS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running_server(tmp_path_factory.mktemp("clients"), {"DEFAULT_PARTITIONS": "3"}) as running:
        yield running


@pytest.fixture
def topic(server: ServerProcess) -> str:
    name = f"t-{uuid4().hex}"
    with Wire(server.kafka) as wire:
        wire.create_topic(name, 3)
    return name


def some_messages() -> list[Message]:
    """Keys, values and headers of every kind, each with a time of its own, on one partition."""
    now_ms = time.time_ns() // 1_000_000
    shapes: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]] = [
        (b"k", b"v", ()),
        (None, b"no key", (("h", b"1"),)),
        (b"no value", None, ()),
        (b"", b"", (("empty", b""),)),
        (b"\x00\xff", b"\xfe" * 1000, (("twice", b"a"), ("twice", b"b"), ("ü", b"\x00"))),
    ]
    return [
        Message(key, value, headers, now_ms - 1000 * n, 1)
        for n, (key, value, headers) in enumerate(shapes)
    ]


@each_client
def test_sh_103_sh_104_what_one_client_writes_all_read(
    server: ServerProcess, topic: str, client: Client
) -> None:
    """Default settings; headers, times, null keys and null values arrive as they were sent."""
    sent = some_messages()
    places = client.write(server.kafka, topic, sent)
    assert places == [Place(1, n) for n in range(len(sent))]
    for reader in CLIENTS:
        assert reader.read(server.kafka, topic, 1, len(sent)) == sent, reader.name


@each_client
def test_sh_103_a_topic_is_made_by_writing_to_it(server: ServerProcess, client: Client) -> None:
    name = f"auto-{uuid4().hex}"
    client.write(server.kafka, name, [Message(None, b"first", partition=2)])
    assert [m.value for m in client.read(server.kafka, name, 2, 1)] == [b"first"]


@pytest.mark.parametrize(
    ("client", "codec"),
    [pytest.param(c, codec, id=f"{c.name}-{codec}") for c in CLIENTS for codec in c.codecs],
)
def test_sh_110_compressed_batches_pass_through(
    server: ServerProcess, topic: str, client: Client, codec: str
) -> None:
    """As each client frames them (pitfall 22): stored as sent, and readable by the others.

    librdkafka writes raw snappy, aiokafka the framing of Java's library.
    """
    sent = [Message(b"k%d" % n, b"v" * 500, (("n", b"%d" % n),), 1000 + n, 0) for n in range(50)]
    more: dict[str, Any] = {"linger_ms": 50, "compression_type": codec}
    client.write(server.kafka, topic, sent, **more)
    with Wire(server.kafka) as wire:
        raw = wire.fetch(topic, 0, partition_max_bytes=1 << 24).records
        assert {header.codec for _, header in iter_batches(raw)} == {CODEC_NUMBERS[codec]}
        found = wire.list_offset(topic, 1025)
        assert (found.offset, found.timestamp) == (25, 1025), "exact inside the batch"
    for reader in CLIENTS:
        if codec in reader.codecs:
            assert reader.read(server.kafka, topic, 0, len(sent)) == sent, reader.name
    assert rest_values(server, topic) == [m.value.decode() for m in sent if m.value]


def rest_values(server: ServerProcess, topic: str) -> list[str]:
    query = f"topic={topic}&partition=0&offset=earliest&max_records=1000"
    status, found = server.call("GET", f"/api/v1/consume?{query}")
    assert status == 200, found
    return [record["value"] for record in found["records"]]


def test_sh_11_sh_112_a_key_has_one_partition_for_everybody(server: ServerProcess) -> None:
    """Pitfall 33. librdkafka needs partitioner=murmur2_random for it, as with Apache Kafka."""
    name = f"keys-{uuid4().hex}"
    keys = [f"key-{n}" for n in range(60)] + ["", "ü", "x" * 300]
    with Wire(server.kafka) as wire:
        wire.create_topic(name, 7)
    messages = [Message(key.encode(), b"v") for key in keys]
    placed = {
        client.name: [place.partition for place in client.write(server.kafka, name, messages)]
        for client in CLIENTS
    }
    by_rest = []
    for key in keys:
        body = {"topic": name, "key": key, "value": "v"}
        status, place = server.call("POST", "/api/v1/produce", body)
        assert status == 200, place
        by_rest.append(place["partition"])
    assert set(by_rest) == set(range(7)), "the keys spread over all partitions"
    # aiokafka takes an empty key for no key and chooses any partition.
    skip = keys.index("")
    for client, partitions in placed.items():
        pairs = zip(partitions, by_rest, strict=True)
        wrong = [keys[n] for n, (p, r) in enumerate(pairs) if p != r and n != skip]
        assert not wrong, f"{client}: {wrong}"


@pytest.mark.parametrize("acks", [0, 1, "all"])
@each_client
def test_sh_105_every_acks_delivers(
    server: ServerProcess, topic: str, client: Client, acks: int | str
) -> None:
    more: dict[str, Any] = {"acks": acks}
    if client.name == "kafka-python":
        more["enable_idempotence"] = False
    sent = [Message(None, b"%d" % n, partition=0) for n in range(100)]
    client.write(server.kafka, topic, sent, **more)
    found = client.read(server.kafka, topic, 0, len(sent))
    assert [m.value for m in found] == [m.value for m in sent]


@each_client
def test_sh_12_sh_106_idempotent_producers_keep_order(
    server: ServerProcess, topic: str, client: Client
) -> None:
    more: dict[str, Any] = {"enable_idempotence": True}
    sent = [Message(None, b"%d" % n, partition=n % 3) for n in range(3000)]
    places = client.write(server.kafka, topic, sent, **more)
    for partition in range(3):
        mine = [place.offset for place in places if place.partition == partition]
        assert mine == list(range(1000)), "contiguous and in the order of sending"
        found = client.read(server.kafka, topic, partition, 1000)
        assert [m.value for m in found] == [b"%d" % n for n in range(partition, 3000, 3)]
    with Wire(server.kafka) as wire:
        raw = wire.fetch(topic, 0, partition_max_bytes=1 << 24).records
        assert all(header.producer_id >= 0 for _, header in iter_batches(raw))


def test_sh_75_a_consumer_sees_a_record_soon(server: ServerProcess, topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": server.kafka})
    settings = {"bootstrap.servers": server.kafka, "group.id": "unused"}
    consumer = confluent_kafka.Consumer({**settings, "enable.auto.commit": False})
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        waits = []
        for n in range(20):
            began = time.monotonic()
            producer.produce(topic, b"%d" % n, partition=0)
            producer.flush(10)
            message = consumer.poll(10)
            assert message is not None
            assert message.value() == b"%d" % n
            waits.append(time.monotonic() - began)
        assert sorted(waits)[10] < 0.5, "the long poll wakes at once, not at its end"
    finally:
        consumer.close()


def test_a_record_above_the_limit_is_refused_and_others_go_on(server: ServerProcess) -> None:
    name = f"small-{uuid4().hex}"
    with Wire(server.kafka) as wire:
        wire.create_topic(name, 1, max_message_bytes="2000")
    producer = confluent_kafka.Producer({"bootstrap.servers": server.kafka})
    told: list[Any] = []
    for value in (b"a", b"x" * 5000, b"b"):
        producer.produce(name, value, on_delivery=lambda error, _: told.append(error))
        producer.flush(10)
    assert told[0] is None
    assert told[1].code() == confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE
    found = Librdkafka().read(server.kafka, name, 0, 1)
    assert found[0].value == b"a"


def test_clients_go_on_with_a_recreated_topic(server: ServerProcess) -> None:
    """The same producer and consumer objects, before and after."""
    name = f"again-{uuid4().hex}"
    control = admin.AdminClient({"bootstrap.servers": server.kafka})
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": server.kafka, "topic.metadata.refresh.interval.ms": 200}
    )
    ids = []
    for round_number in range(2):
        control.create_topics([admin.NewTopic(name, 1, 1)])[name].result(10)
        with Wire(server.kafka) as wire:
            (row,) = wire.call(METADATA, 12, topics=[{"name": name}]).topics
            ids.append(row.topic_id)
        told: list[Any] = []
        producer.produce(
            name, b"%d" % round_number, on_delivery=lambda error, _, into=told: into.append(error)
        )
        assert producer.flush(20) == 0
        assert told == [None]
        found = Librdkafka().read(server.kafka, name, 0, 1)
        assert [m.value for m in found] == [b"%d" % round_number]
        control.delete_topics([name])[name].result(10)
    assert ids[0] != ids[1]


# -- administration ------------------------------------------------------------------------------


def test_sh_103_librdkafka_administers(server: ServerProcess) -> None:
    name = f"admin-{uuid4().hex}"
    control = admin.AdminClient({"bootstrap.servers": server.kafka})
    new = admin.NewTopic(name, 4, 1, config={"retention.ms": "86400000"})
    control.create_topics([new])[name].result(10)
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        control.create_topics([new])[name].result(10)
    assert refused.value.args[0].code() == confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS
    listed = control.list_topics(timeout=10)
    assert sorted(listed.topics[name].partitions) == [0, 1, 2, 3]
    resource = admin.ConfigResource(admin.ResourceType.TOPIC, name)
    configs = control.describe_configs([resource])[resource].result(10)
    assert configs["retention.ms"].value == "86400000"
    assert not configs["retention.ms"].is_default
    assert configs["cleanup.policy"].is_default
    cluster = control.describe_cluster().result(10)
    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [server.kafka]
    control.delete_topics([name])[name].result(10)
    assert name not in control.list_topics(timeout=10).topics


def test_sh_109_librdkafka_finds_offsets(server: ServerProcess, topic: str) -> None:
    sent = [Message(None, b"%d" % n, timestamp_ms=1000 + n, partition=0) for n in range(10)]
    Librdkafka().write(server.kafka, topic, sent)
    control = admin.AdminClient({"bootstrap.servers": server.kafka})
    where = confluent_kafka.TopicPartition(topic, 0)
    specs = {
        admin.OffsetSpec.earliest(): 0,
        admin.OffsetSpec.latest(): 10,
        admin.OffsetSpec.max_timestamp(): 9,
        admin.OffsetSpec.for_timestamp(1004): 4,
    }
    for spec, offset in specs.items():
        assert control.list_offsets({where: spec})[where].result(10).offset == offset
    deleted = control.delete_records([confluent_kafka.TopicPartition(topic, 0, 3)])
    assert deleted[where].result(10).low_watermark == 3
    consumer = confluent_kafka.Consumer({"bootstrap.servers": server.kafka, "group.id": "unused"})
    try:
        assert consumer.get_watermark_offsets(where, timeout=10) == (3, 10)
        asked = confluent_kafka.TopicPartition(topic, 0, 1005)
        assert consumer.offsets_for_times([asked], timeout=10)[0].offset == 5
    finally:
        consumer.close()


def test_sh_109_kafka_python_finds_offsets(server: ServerProcess, topic: str) -> None:
    sent = [Message(None, b"%d" % n, timestamp_ms=1000 + n, partition=0) for n in range(10)]
    Librdkafka().write(server.kafka, topic, sent)
    consumer = kafka.KafkaConsumer(bootstrap_servers=server.kafka, group_id=None)
    try:
        where = kafka.TopicPartition(topic, 0)
        assert consumer.beginning_offsets([where]) == {where: 0}
        assert consumer.end_offsets([where]) == {where: 10}
        assert consumer.offsets_for_times({where: 1007})[where].offset == 7
    finally:
        consumer.close()


# -- segments, restart ---------------------------------------------------------------------------


def metric(server: ServerProcess, name: str) -> float:
    with urlopen(server.http + "/metrics", timeout=10) as response:
        rows = response.read().decode().splitlines()
    (row,) = [line for line in rows if line.startswith(name + " ")]
    return float(row.split()[1])


def test_sh_53_sh_71_sh_73_records_come_back_from_segments(tmp_path: Path) -> None:
    """Rolled by size, read after a restart by ranged reads, and a second time from the cache."""
    settings = {"SEGMENT_MAX_SIZE": "50000"}
    sent = [Message(b"%d" % n, b"v" * 1000, (), 1000 + n, n % 2) for n in range(600)]
    with running_server(tmp_path, settings) as server:
        with Wire(server.kafka) as wire:
            wire.create_topic("rolled", 2)
        Librdkafka().write(server.kafka, "rolled", sent[:300])
        wait_for_segments(server, 2)  # both partitions, by size
        Librdkafka().write(server.kafka, "rolled", sent[300:])
        server.restart()
        assert metric(server, "streamhouse_object_read_bytes_total") < 300_000
        expected = {p: [m for m in sent if m.partition == p] for p in (0, 1)}
        for partition in (0, 1):
            found = Librdkafka().read(server.kafka, "rolled", partition, 300)
            assert found == expected[partition]
        cold = metric(server, "streamhouse_object_read_bytes_total")
        assert cold > 0
        for reader in CLIENTS:
            assert reader.read(server.kafka, "rolled", 0, 300) == expected[0], reader.name
        assert metric(server, "streamhouse_object_read_bytes_total") == cold
        segments = list(server.data_dir.glob("objects/**/*.strm"))
        assert len(segments) >= 4, "segments are plain files"
        packed = sum(path.stat().st_size for path in segments)
        assert packed < 200_000, "SH-52: blocks are compressed"


def test_sh_53_a_quiet_partition_is_rolled_by_age(tmp_path: Path) -> None:
    with running_server(tmp_path, {"SEGMENT_MAX_AGE_MS": "300"}) as server:
        Librdkafka().write(server.kafka, "quiet", [Message(None, b"one", partition=0)])
        wait_for_segments(server, 1)


def wait_for_segments(server: ServerProcess, count: int) -> None:
    end = time.monotonic() + 10
    while len(list(server.data_dir.glob("objects/**/*.strm"))) < count:
        assert time.monotonic() < end, f"not {count} segments in time"
        time.sleep(0.02)


# -- kcat, where it is installed -----------------------------------------------------------------

kcat = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")


@kcat
def test_sh_103_kcat_writes_and_reads(server: ServerProcess, topic: str) -> None:
    run = ["kcat", "-b", server.kafka, "-q"]
    lines = b"".join(b"k%d:v%d\n" % (n, n) for n in range(100))
    write = [*run, "-P", "-t", topic, "-p", "0", "-K", ":", "-z", "lz4"]
    subprocess.run(write, input=lines, check=True, timeout=30)
    read = [*run, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-K", ":"]
    found = subprocess.run(read, check=True, timeout=30, capture_output=True).stdout
    assert found == lines
    with Wire(server.kafka) as wire:
        raw = wire.fetch(topic, 0, partition_max_bytes=1 << 24).records
        assert {header.codec for _, header in iter_batches(raw)} == {3}, "it did compress"
        assert wire.list_offset(topic, LATEST).offset == 100
