"""One member of a consumer group in a process of its own, so that it can be killed.

    python -m tests.integration.group_member CLIENT ADDRESS GROUP TOPIC OPTIONS

Prints a line of JSON for each thing that happens: {"assigned": [partitions]},
{"records": [[partition, offset], ...]} (committed by then), {"closed": true} after SIGTERM.
OPTIONS is JSON: instance_id, cooperative, session_ms.
"""

import asyncio
import json
import signal
import sys
import threading
import warnings
from typing import Any

POLL_SECONDS = 0.1
stopping = threading.Event()


def tell(**event: Any) -> None:
    print(json.dumps(event), flush=True)


def run_librdkafka(address: str, group: str, topic: str, options: dict[str, Any]) -> None:
    from confluent_kafka import Consumer, KafkaException

    settings = {
        "bootstrap.servers": address,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": options.get("session_ms", 6_000),
        "heartbeat.interval.ms": 500,
    }
    if options.get("instance_id"):
        settings["group.instance.id"] = options["instance_id"]
    cooperative = options.get("cooperative", False)
    if cooperative:
        settings["partition.assignment.strategy"] = "cooperative-sticky"
    consumer = Consumer(settings)

    def on_assign(consumer: Any, partitions: Any) -> None:
        if cooperative:
            consumer.incremental_assign(partitions)
        else:
            consumer.assign(partitions)
        tell(assigned=sorted(p.partition for p in consumer.assignment()))

    def on_revoke(consumer: Any, partitions: Any) -> None:
        tell(revoked=sorted(p.partition for p in partitions))
        if cooperative:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()

    consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_revoke)
    while not stopping.is_set():
        found = consumer.consume(500, POLL_SECONDS)
        good = [m for m in found if m.error() is None]
        for bad in (m for m in found if m.error() is not None):
            tell(error=str(bad.error()))
        if good:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:
                tell(error=str(error))
                continue
            tell(records=[[m.partition(), m.offset()] for m in good])
    consumer.close()


def run_kafka_python(address: str, group: str, topic: str, options: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import kafka

    settings: dict[str, Any] = {}
    if options.get("instance_id"):
        settings["group_instance_id"] = options["instance_id"]
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=options.get("session_ms", 6_000),
        heartbeat_interval_ms=500,
        **settings,
    )
    known: list[int] | None = None
    while not stopping.is_set():
        found = consumer.poll(timeout_ms=int(POLL_SECONDS * 1000))
        now = sorted(tp.partition for tp in consumer.assignment())
        if now != known and consumer.assignment():
            known = now
            tell(assigned=now)
        if found:
            try:
                consumer.commit()
            except kafka.errors.KafkaError as error:
                tell(error=repr(error))
                continue
            tell(records=[[tp.partition, r.offset] for tp, rs in found.items() for r in rs])
    consumer.close()


async def run_aiokafka(address: str, group: str, topic: str, options: dict[str, Any]) -> None:
    import aiokafka

    settings: dict[str, Any] = {}
    if options.get("instance_id"):
        settings["group_instance_id"] = options["instance_id"]
    consumer = aiokafka.AIOKafkaConsumer(
        topic,
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=options.get("session_ms", 6_000),
        heartbeat_interval_ms=500,
        **settings,
    )
    await consumer.start()
    known: list[int] | None = None
    while not stopping.is_set():
        found = await consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000))
        now = sorted(tp.partition for tp in consumer.assignment())
        if now != known:
            known = now
            tell(assigned=now)
        if found:
            try:
                await consumer.commit()
            except aiokafka.errors.KafkaError as error:
                tell(error=repr(error))
                continue
            tell(records=[[tp.partition, r.offset] for tp, rs in found.items() for r in rs])
    await consumer.stop()


def main() -> None:
    client, address, group, topic, raw = sys.argv[1:]
    options = json.loads(raw)
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    if client == "librdkafka":
        run_librdkafka(address, group, topic, options)
    elif client == "kafka-python":
        run_kafka_python(address, group, topic, options)
    else:
        asyncio.run(run_aiokafka(address, group, topic, options))
    tell(closed=True)


if __name__ == "__main__":
    main()
