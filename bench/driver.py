"""The client side of every measurement: runs in a process of its own, one order per process.

Owns: the librdkafka settings (the same for every broker) and the timed loops.
Must not know: which broker answers.
Speaks with the harness by lines of JSON on stdout: `{"done": 0.4}` while working, then
`{"result": {...}}`. A record that was not acknowledged, or not read back, fails the whole order.
"""

import json
import random
import resource
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import cycle, islice

import psutil  # type: ignore[import-untyped]
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.process import accepts

Result = dict[str, float]

VALUES_DISTINCT = 4096  # 400 KB or more before a value repeats: beyond the window of LZ4
PROGRESS_S = 0.2
CONSUME_RECORDS_MAX = 10_000
WAIT_S_MAX = 60.0
SINGLE_QUEUE_RECORDS = 1_000
PRODUCER_QUEUE_RECORDS = 1_000_000
PRODUCER_QUEUE_KIB = 256 * 1024
LATENCY_WARMUP_S = 5.0
STAMP_BYTES = 8

# For a client that waits for a broker to come up: its own pauses must not be measured.
QUICK_RETRIES: dict[str, str | int | float] = {
    "reconnect.backoff.ms": 5,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 5,
    "topic.metadata.refresh.fast.interval.ms": 10,
}


@dataclass(frozen=True, slots=True)
class Order:
    """What one client process shall do."""

    work: str
    address: str
    topic: str
    partitions: int = 6
    records: int = 0
    value_bytes: int = 0
    duration_s: float = 0.0
    records_per_s: int = 0
    linger_ms: int = 0
    stalled_s_max: float = 60.0

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class DriverFailed(Exception):
    """The work was not done completely, so no number of it may be used."""


def producer_settings(address: str, **changed: object) -> dict[str, object]:
    """librdkafka's defaults but for these: acks stated, a deep queue so that the broker is busy."""
    return {
        "bootstrap.servers": address,
        "acks": "all",
        "compression.type": "none",
        "queue.buffering.max.messages": PRODUCER_QUEUE_RECORDS,
        "queue.buffering.max.kbytes": PRODUCER_QUEUE_KIB,
        "socket.nagle.disable": True,
        **changed,
    }


def consumer_settings(address: str) -> dict[str, object]:
    """Defaults but for the local queue: at its default size the client pauses for a second when
    it is full, and that pause would be measured instead of the broker."""
    return {
        "bootstrap.servers": address,
        "group.id": "bench",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "queued.min.messages": 1_000_000,
        "queued.max.messages.kbytes": 256 * 1024,
        "fetch.queue.backoff.ms": 5,
        "socket.nagle.disable": True,
    }


def produce(order: Order) -> Result:
    """Send `records` as fast as they are taken; ends when the last one is acknowledged."""
    create_topic(order)
    failures: list[str] = []
    producer = Producer(
        producer_settings(
            order.address,
            **{"linger.ms": order.linger_ms, "delivery.report.only.error": True},
            on_delivery=lambda error, _message: failures.append(str(error)),
        )
    )
    producer.list_topics(order.topic, timeout=10)
    values = make_values(order.value_bytes)
    timed = Timed()
    tell = Teller()
    sent = 0
    while sent < order.records:
        count = min(len(values), order.records - sent)
        _send(producer, order, values if count == len(values) else values[:count])
        sent += count
        producer.poll(0)
        tell.progress((sent - len(producer)) / order.records)
        _refuse_failures(failures)
    _flush(producer, order, lambda left: tell.progress((sent - left) / order.records))
    _refuse_failures(failures)
    return timed.result(records=order.records, value_bytes=order.records * order.value_bytes)


def produce_single(order: Order) -> Result:
    """One record in each request, five requests in flight, for `duration_s`."""
    create_topic(order)
    failures: list[str] = []
    requests = RequestCount()
    producer = Producer(
        producer_settings(
            order.address,
            **{
                "linger.ms": 0,
                "batch.num.messages": 1,
                "max.in.flight.requests.per.connection": 5,
                "queue.buffering.max.messages": SINGLE_QUEUE_RECORDS,
                "delivery.report.only.error": True,
                "statistics.interval.ms": 250,
            },
            stats_cb=requests.on_statistics,
            on_delivery=lambda error, _message: failures.append(str(error)),
        )
    )
    producer.list_topics(order.topic, timeout=10)
    value = make_values(order.value_bytes)[0]
    timed = Timed()
    tell = Teller()
    sent = 0
    while timed.elapsed_s() < order.duration_s:
        _send(producer, order, [value] * 100)
        sent += 100
        producer.poll(0)
        tell.progress(timed.elapsed_s() / order.duration_s)
    _flush(producer, order, lambda _left: None)
    _refuse_failures(failures)
    result = timed.result(records=sent, value_bytes=sent * order.value_bytes)
    producer.poll(0.6)  # two more statistics, so that every request is in the count
    if requests.produce < sent:
        raise DriverFailed(f"{sent} records went out in {requests.produce} requests")
    return {**result, "requests": requests.produce}


def consume(order: Order) -> Result:
    """Read `records` from the start of every partition; ends with the last one."""
    consumer = Consumer(consumer_settings(order.address))
    _wait_until_led(consumer, order, partitions=order.partitions)
    timed = Timed()
    tell = Teller()
    consumer.assign([TopicPartition(order.topic, each, 0) for each in range(order.partitions)])
    records, value_bytes, arrived_s = 0, 0, time.monotonic()
    while records < order.records:
        messages = consumer.consume(CONSUME_RECORDS_MAX, 0.5)
        _refuse_errors(messages)
        records += len(messages)
        value_bytes += sum(map(len, messages))
        arrived_s = _check_stalled(bool(messages), arrived_s, order)
        tell.progress(records / order.records)
    result = timed.result(records=records, value_bytes=value_bytes)
    consumer.close()
    if records != order.records or value_bytes != order.records * order.value_bytes:
        raise DriverFailed(f"read {records} records and {value_bytes} bytes")
    return result


def latency(order: Order) -> Result:
    """Send at a steady pace and read at the same time; the value carries when it was sent.

    Producing does not wait for answers, so a slow broker cannot thin out the samples taken of it.
    """
    create_topic(order)
    count_warmup = int(LATENCY_WARMUP_S * order.records_per_s)
    count = count_warmup + int(order.duration_s * order.records_per_s)
    reader = LatencyReader(order, count)
    reader.start()
    timed = Timed()
    _send_paced(order, count)
    latencies_ns = sorted(reader.join()[count_warmup:])
    return {
        **timed.result(records=count, value_bytes=count * order.value_bytes),
        **{
            f"p{name}_ms": latencies_ns[int(len(latencies_ns) * share)] / 1e6
            for name, share in (("50", 0.5), ("99", 0.99), ("99_9", 0.999))
        },
        "max_ms": latencies_ns[-1] / 1e6,
    }


def first_ack(order: Order) -> Result:
    """Started before the broker: returns the instant of the first acknowledged record.

    The system's monotonic clock is common to all processes, so the harness may subtract.
    """
    deadline_s = _wait_for_broker(order)
    while not create_topic(order, refuse=False, **QUICK_RETRIES):
        _check_deadline(deadline_s)
    failures: list[str] = []
    producer = Producer(
        producer_settings(
            order.address,
            **QUICK_RETRIES,
            **{"linger.ms": 0},
            on_delivery=lambda error, _message: failures.append(str(error)) if error else None,
        )
    )
    producer.produce(order.topic, b"first", None, 0)
    _flush(producer, order, lambda _left: None)
    acked_at_s = time.monotonic()
    _refuse_failures(failures)
    return {"acked_at_s": acked_at_s}


def first_read(order: Order) -> Result:
    """Started before the broker: returns the instant of the first record read from partition 0,
    and then how many records the broker says it holds in all."""
    _wait_for_broker(order)
    settings = {**consumer_settings(order.address), **QUICK_RETRIES, "fetch.error.backoff.ms": 5}
    consumer = Consumer(settings)
    _wait_until_led(consumer, order, partitions=1)
    consumer.assign([TopicPartition(order.topic, 0, 0)])
    message = consumer.poll(order.stalled_s_max)
    read_at_s = time.monotonic()
    if message is None or message.error():
        raise DriverFailed("nothing could be read from partition 0")
    # Requests of a connection are answered in order: each would wait behind a fetch at the end.
    consumer.unassign()
    total = 0
    for partition in range(order.partitions):
        of = TopicPartition(order.topic, partition)
        low, high = consumer.get_watermark_offsets(of, timeout=30)
        total += high - low
    consumer.close()
    return {"records": total, "read_at_s": read_at_s}


WORKS: dict[str, Callable[[Order], Result]] = {
    "produce": produce,
    "produce_single": produce_single,
    "consume": consume,
    "latency": latency,
    "first_ack": first_ack,
    "first_read": first_read,
}


class Timed:
    """Wall time, this process's CPU time, and how busy its busiest thread was."""

    def __init__(self) -> None:
        self._threads = _thread_cpu_s()
        self._cpu_s = _process_cpu_s()
        self._began_s = time.monotonic()

    def elapsed_s(self) -> float:
        return time.monotonic() - self._began_s

    def result(self, *, records: int, value_bytes: int) -> Result:
        wall_s = self.elapsed_s()
        busiest_s = max(
            used_s - self._threads.get(thread, 0.0) for thread, used_s in _thread_cpu_s().items()
        )
        return {
            "records": records,
            "value_bytes": value_bytes,
            "wall_s": wall_s,
            "client_cpu_s": _process_cpu_s() - self._cpu_s,
            "client_thread_share": busiest_s / wall_s,
        }


class Teller:
    """Tells the harness how far the work is, a few times a second."""

    def __init__(self) -> None:
        self._next_s = 0.0

    def progress(self, done: float) -> None:
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + PROGRESS_S
            print(json.dumps({"done": round(max(0.0, done), 4)}), flush=True)


class RequestCount:
    """Produce requests that librdkafka says it has sent."""

    def __init__(self) -> None:
        self.produce = 0

    def on_statistics(self, text: str) -> None:
        brokers = json.loads(text)["brokers"].values()
        self.produce = sum(each.get("req", {}).get("Produce", 0) for each in brokers)


class LatencyReader:
    """Reads from the end of the topic in a thread of its own and keeps each record's delay."""

    def __init__(self, order: Order, count: int) -> None:
        self._count = count
        self._stalled_s_max = order.stalled_s_max
        self._delays_ns: list[int] = []
        self._failure: str | None = None
        self._consumer = Consumer(consumer_settings(order.address))
        self._partitions = [
            TopicPartition(order.topic, each, 0) for each in range(order.partitions)
        ]
        self._thread = threading.Thread(target=self._run, name="reader")

    def start(self) -> None:
        # The topic is new and empty: offset 0 is its end, and no record can slip by.
        self._consumer.assign(self._partitions)
        self._thread.start()

    def join(self) -> list[int]:
        self._thread.join()
        self._consumer.close()
        if self._failure is not None:
            raise DriverFailed(self._failure)
        return self._delays_ns

    def _run(self) -> None:
        arrived_s = time.monotonic()
        while len(self._delays_ns) < self._count:
            message = self._consumer.poll(0.5)
            now_ns = time.perf_counter_ns()
            if message is None:
                if time.monotonic() - arrived_s > self._stalled_s_max:
                    self._failure = f"{len(self._delays_ns)} of {self._count} records arrived"
                    return
                continue
            if message.error():
                self._failure = str(message.error())
                return
            arrived_s = time.monotonic()
            value = message.value() or b""
            self._delays_ns.append(now_ns - int.from_bytes(value[:STAMP_BYTES], "big"))


def create_topic(order: Order, *, refuse: bool = True, **settings: str | int | float) -> bool:
    """Create the order's topic and wait for its leaders. With `refuse`, failing is an error."""
    admin = AdminClient({"bootstrap.servers": order.address, **settings})
    future = admin.create_topics([NewTopic(order.topic, order.partitions, 1)])[order.topic]
    try:
        future.result(timeout=30)
    except KafkaException as failed:
        exists = failed.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
        if refuse and not exists:
            raise
        if not exists:
            return False
    deadline_s = time.monotonic() + WAIT_S_MAX
    while not _has_leaders(admin, order):
        _check_deadline(deadline_s)
        time.sleep(0.005)
    return True


def make_values(size_bytes: int) -> list[bytes]:
    """JSON-like values, half of their bytes random: LZ4 shrinks them, but not to nothing."""
    source = random.Random(size_bytes)
    return [_make_value(source, number, size_bytes) for number in range(VALUES_DISTINCT)]


def _make_value(source: random.Random, number: int, size_bytes: int) -> bytes:
    head = f'{{"order_id":{number:08d},"status":"shipped","region":"eu-west","note":"'.encode()
    tail = b'"}'
    room = size_bytes - len(head) - len(tail)
    noise = b64encode(source.randbytes(size_bytes))[: min(room, size_bytes // 2)]
    words = b"the quick brown fox jumps over the lazy dog and back again; "
    filler = (words * (size_bytes // len(words) + 1))[: room - len(noise)]
    return head + noise + filler + tail


def _send(producer: Producer, order: Order, values: list[bytes]) -> None:
    give, topic = producer.produce, order.topic
    spread: Iterator[int] = islice(cycle(range(order.partitions)), len(values))
    for value, partition in zip(values, spread, strict=True):
        try:
            give(topic, value, None, partition)
        except BufferError:
            _send_when_room(producer, order, value, partition)


def _send_when_room(producer: Producer, order: Order, value: bytes, partition: int) -> None:
    deadline_s = time.monotonic() + order.stalled_s_max
    while True:
        producer.poll(0.001)
        try:
            producer.produce(order.topic, value, None, partition)
            return
        except BufferError:
            _check_deadline(deadline_s)


def _send_paced(order: Order, count: int) -> None:
    failures: list[str] = []
    producer = Producer(
        producer_settings(
            order.address,
            **{"linger.ms": 0, "delivery.report.only.error": True},
            on_delivery=lambda error, _message: failures.append(str(error)),
        )
    )
    producer.list_topics(order.topic, timeout=10)
    padding = make_values(order.value_bytes)[0][STAMP_BYTES:]
    tell = Teller()
    began_s = time.monotonic()
    for number in range(count):
        wait_s = began_s + number / order.records_per_s - time.monotonic()
        if wait_s > 0:
            time.sleep(wait_s)
        stamp = time.perf_counter_ns().to_bytes(STAMP_BYTES, "big")
        producer.produce(order.topic, stamp + padding, None, number % order.partitions)
        producer.poll(0)
        tell.progress(number / count)
    _flush(producer, order, lambda _left: None)
    _refuse_failures(failures)


def _wait_for_broker(order: Order) -> float:
    """Wait for the harness's word, then for the broker's port. Returns the deadline for more."""
    print(json.dumps({"armed": True}), flush=True)
    sys.stdin.readline()
    deadline_s = time.monotonic() + WAIT_S_MAX
    while not accepts(order.address):
        _check_deadline(deadline_s)
        time.sleep(0.002)
    return deadline_s


def _wait_until_led(consumer: Consumer, order: Order, *, partitions: int) -> None:
    """A broker accepts connections before it leads its partitions; a fetch in between would make
    the client back off, and that pause would be measured. Reads no record."""
    deadline_s = time.monotonic() + WAIT_S_MAX
    for partition in range(partitions):
        while not _answers_for(consumer, TopicPartition(order.topic, partition)):
            _check_deadline(deadline_s)
            time.sleep(0.02)


def _answers_for(consumer: Consumer, partition: TopicPartition) -> bool:
    try:
        return consumer.get_watermark_offsets(partition, timeout=10) is not None
    except KafkaException:
        return False


def _flush(producer: Producer, order: Order, on_left: Callable[[int], None]) -> None:
    left, moved_s = len(producer), time.monotonic()
    while left:
        now_left = producer.flush(0.1)
        moved_s = _check_stalled(now_left < left, moved_s, order)
        left = now_left
        on_left(left)


def _has_leaders(admin: AdminClient, order: Order) -> bool:
    topic = admin.list_topics(order.topic, timeout=10).topics[order.topic]
    leaders = [each.leader for each in topic.partitions.values()]
    return len(leaders) == order.partitions and all(leader >= 0 for leader in leaders)


def _refuse_failures(failures: list[str]) -> None:
    if failures:
        raise DriverFailed(f"{len(failures)} records were not acknowledged: {failures[0]}")


def _refuse_errors(messages: list[Message]) -> None:
    for message in messages:
        if message.error() is not None:
            raise DriverFailed(str(message.error()))


def _check_stalled(moved: bool, moved_s: float, order: Order) -> float:
    now_s = time.monotonic()
    if moved:
        return now_s
    if now_s - moved_s > order.stalled_s_max:
        raise DriverFailed(f"nothing moved for {order.stalled_s_max:.0f} s")
    return moved_s


def _check_deadline(deadline_s: float) -> None:
    if time.monotonic() > deadline_s:
        raise DriverFailed(f"not done within {WAIT_S_MAX:.0f} s")


def _process_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _thread_cpu_s() -> dict[int, float]:
    return {each.id: each.user_time + each.system_time for each in psutil.Process().threads()}


def main() -> None:
    order = Order(**json.loads(sys.argv[1]))
    print(json.dumps({"result": WORKS[order.work](order)}), flush=True)


if __name__ == "__main__":
    main()
