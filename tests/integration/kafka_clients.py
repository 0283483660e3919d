"""Three Kafka clients behind one face: librdkafka, aiokafka and kafka-python.

Each writes a list of messages and reads a partition from its start, with the client's own default
settings unless a test says otherwise.
"""

import asyncio
import time
import warnings
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import aiokafka
import confluent_kafka

with warnings.catch_warnings():
    # kafka-python loads its schemas with functions that Python has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

READ_SECONDS_MAX = 20.0
T = TypeVar("T")
Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Message:
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
    partition: int
    offset: int


class Librdkafka:
    """confluent-kafka. Its own default partitioner is not Java's, so that one is named."""

    name = "librdkafka"
    codecs = ("gzip", "snappy", "lz4", "zstd")

    def write(self, address: str, topic: str, messages: Sequence[Message], **more: Any) -> Any:
        settings = {
            "bootstrap.servers": address,
            "partitioner": "murmur2_random",
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        producer = confluent_kafka.Producer(settings)
        places: list[Place | None] = [None] * len(messages)
        faults: list[Any] = []

        def on_delivery(index: int) -> Callable[[Any, Any], None]:
            def note(error: Any, message: Any) -> None:
                if error is not None:
                    faults.append(error)
                else:
                    places[index] = Place(message.partition(), message.offset())

            return note

        for index, message in enumerate(messages):
            options: dict[str, Any] = {}
            if message.partition is not None:
                options["partition"] = message.partition
            if message.timestamp_ms is not None:
                options["timestamp"] = message.timestamp_ms
            producer.produce(
                topic,
                key=message.key,
                value=message.value,
                headers=list(message.headers),
                on_delivery=on_delivery(index),
                **options,
            )
            producer.poll(0)
        assert producer.flush(READ_SECONDS_MAX) == 0
        assert not faults, faults
        return places

    def read(self, address: str, topic: str, partition: int, count: int) -> list[Message]:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": address, "group.id": "unused", "enable.auto.commit": False}
        )
        try:
            start = confluent_kafka.TopicPartition(
                topic, partition, confluent_kafka.OFFSET_BEGINNING
            )
            consumer.assign([start])
            found: list[Message] = []
            end = time.monotonic() + READ_SECONDS_MAX
            while len(found) < count and time.monotonic() < end:
                message = consumer.poll(0.2)
                if message is not None:
                    assert message.error() is None, message.error()
                    found.append(_from_confluent(message))
            return found
        finally:
            consumer.close()


class Aiokafka:
    name = "aiokafka"
    codecs = ("gzip", "snappy", "lz4", "zstd")

    def write(self, address: str, topic: str, messages: Sequence[Message], **more: Any) -> Any:
        async def write() -> list[Place]:
            producer = aiokafka.AIOKafkaProducer(bootstrap_servers=address, **more)
            await producer.start()
            try:
                waiting = [
                    await producer.send(
                        topic,
                        key=message.key,
                        value=message.value,
                        headers=list(message.headers),
                        timestamp_ms=message.timestamp_ms,
                        partition=message.partition,
                    )
                    for message in messages
                ]
                told = [await one for one in waiting]
            finally:
                await producer.stop()
            # With acks=0 it does not know where they went.
            return [Place(one.partition, one.offset) for one in told if one is not None]

        return _run(write)

    def read(self, address: str, topic: str, partition: int, count: int) -> list[Message]:
        async def read() -> list[Message]:
            consumer = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=address, group_id=None, auto_offset_reset="earliest"
            )
            await consumer.start()
            try:
                where = aiokafka.TopicPartition(topic, partition)
                consumer.assign([where])
                await consumer.seek_to_beginning(where)
                found: list[Message] = []
                end = time.monotonic() + READ_SECONDS_MAX
                while len(found) < count and time.monotonic() < end:
                    for part in (await consumer.getmany(timeout_ms=200)).values():
                        found += [_from_python(record) for record in part]
                return found
            finally:
                await consumer.stop()

        return _run(read)


class KafkaPython:
    name = "kafka-python"
    codecs = ("gzip", "lz4", "zstd")  # its snappy needs one more library

    def write(self, address: str, topic: str, messages: Sequence[Message], **more: Any) -> Any:
        producer = kafka.KafkaProducer(bootstrap_servers=address, **more)
        try:
            waiting = [
                producer.send(
                    topic,
                    key=message.key,
                    value=message.value,
                    headers=list(message.headers),
                    timestamp_ms=message.timestamp_ms,
                    partition=message.partition,
                )
                for message in messages
            ]
            producer.flush(READ_SECONDS_MAX)
            told = [one.get(READ_SECONDS_MAX) for one in waiting]
            return [Place(one.partition, one.offset) for one in told]
        finally:
            producer.close()

    def read(self, address: str, topic: str, partition: int, count: int) -> list[Message]:
        consumer = kafka.KafkaConsumer(bootstrap_servers=address, group_id=None)
        try:
            where = kafka.TopicPartition(topic, partition)
            consumer.assign([where])
            consumer.seek_to_beginning(where)
            found: list[Message] = []
            end = time.monotonic() + READ_SECONDS_MAX
            while len(found) < count and time.monotonic() < end:
                for part in consumer.poll(timeout_ms=200).values():
                    found += [_from_python(record) for record in part]
            return found
        finally:
            consumer.close()


Client = Librdkafka | Aiokafka | KafkaPython
CLIENTS: tuple[Client, ...] = (Librdkafka(), Aiokafka(), KafkaPython())


def _run(main: Callable[[], Awaitable[T]]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(60):
            return await main()

    return asyncio.run(bounded())


def _from_confluent(message: Any) -> Message:
    headers = tuple((name, content) for name, content in message.headers() or [])
    _, timestamp_ms = message.timestamp()
    return Message(message.key(), message.value(), headers, timestamp_ms, message.partition())


def _from_python(record: Any) -> Message:
    headers = tuple((name, content) for name, content in record.headers)
    return Message(record.key, record.value, headers, record.timestamp, record.partition)
