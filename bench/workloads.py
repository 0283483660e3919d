"""What is measured, in which order, on one broker: three sessions, each on an empty directory.

Owns: sizes, the sequence of orders, and the figures drawn from their outcomes.
Must not know: the other broker, targets, or how anything is shown.

- start:  process start on an empty directory to the first acknowledged record, several times.
- large:  1 KB values: produce, consume, one record per request, latency; restart; consume again.
- small:  100 B values: produce many and watch memory, in a process that has done nothing else.
"""

import shutil
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bench.client import ArmedClient, OrderFailed, Outcome, drive
from bench.driver import Order
from bench.process import BrokerProcess, Launch, running

PARTITIONS = 6
VALUE_BYTES_LARGE = 1024
VALUE_BYTES_SMALL = 100
LATENCY_RECORDS_PER_S = 1_000
WARMUP_SHARE = 10  # a tenth of the work is done first, on another topic, and not counted
MIB = 1024 * 1024

OnStep = Callable[[str, float], None]  # (what is running, share done)


class Broker(Protocol):
    """A kind of broker that can be started on a directory any number of times."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    def prepare(self, directory: Path) -> None:
        """Make `directory`, which does not exist yet, fit for a first start."""

    def launch(self, directory: Path, env: Mapping[str, str] | None = None) -> Launch:
        """Describe a start on a prepared directory."""

    def settings(self) -> str:
        """How it is configured, for the reader of the table."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of each work is done."""

    records_large: int
    records_small: int
    single_s: float
    latency_s: float
    starts: int
    linger_ms: int

    def describe(self) -> str:
        return (
            f"{self.records_large:,} records of 1 KB, {self.records_small:,} of 100 B, "
            f"{self.single_s:.0f} s of single requests, {self.latency_s:.0f} s of latency, "
            f"{self.starts} starts"
        )


@dataclass(slots=True)
class Measure:
    """One figure of one broker, with what explains it."""

    value: float
    unit: str
    details: dict[str, float] = field(default_factory=dict)


Measures = dict[str, Measure]


@dataclass(frozen=True, slots=True)
class Bench:
    """One broker, the place for its data, and the sizes to run."""

    broker: Broker
    work_dir: Path
    sizes: Sizes
    on_step: OnStep

    def session_start(self) -> Measures:
        """Formatting Kafka's storage is left out: it is another process, run before."""
        took_ms = [self._start_once(number) for number in range(self.sizes.starts)]
        return {
            "start": Measure(
                statistics.median(took_ms),
                "ms",
                {"fastest_ms": min(took_ms), "slowest_ms": max(took_ms)},
            )
        }

    def session_large(self, wanted: frozenset[str]) -> Measures:
        measures: Measures = {}
        with self._directory("large") as directory:
            with running(self.broker.launch(directory)) as broker:
                self._warm_up(broker, VALUE_BYTES_LARGE, self.sizes.records_large)
                measures["produce-1k"] = self._produce_large(broker)
                if "consume" in wanted:
                    measures["consume-warm"] = self._consume(broker, "consume, warm")
                if "single" in wanted:
                    measures["single"] = self._single(broker)
                if "latency" in wanted:
                    measures["latency"] = self._latency(broker)
            if "consume" in wanted:
                with running(self.broker.launch(directory)) as broker:
                    measures["consume-restart"] = self._consume(broker, "consume after restart")
        return measures

    def session_small(self) -> Measures:
        with (
            self._directory("small") as directory,
            running(self.broker.launch(directory)) as broker,
        ):
            rss_idle_bytes = broker.rss_bytes()
            self._warm_up(broker, VALUE_BYTES_SMALL, self.sizes.records_small)
            order = self._order(
                "produce", broker, "small", VALUE_BYTES_SMALL, records=self.sizes.records_small
            )
            outcome = self._drive(order, broker, "produce 100 B")
            rss_after_bytes = broker.rss_bytes()
        return {
            "produce-100b": _rate(outcome, "records/s", per_bytes=False),
            "memory": _memory(outcome, rss_idle_bytes, rss_after_bytes),
        }

    def _produce_large(self, broker: BrokerProcess) -> Measure:
        order = self._order(
            "produce", broker, "large", VALUE_BYTES_LARGE, records=self.sizes.records_large
        )
        return _rate(self._drive(order, broker, "produce 1 KB"), "MB/s", per_bytes=True)

    def _consume(self, broker: BrokerProcess, title: str) -> Measure:
        order = self._order(
            "consume", broker, "large", VALUE_BYTES_LARGE, records=self.sizes.records_large
        )
        return _rate(self._drive(order, broker, title), "MB/s", per_bytes=True)

    def _single(self, broker: BrokerProcess) -> Measure:
        """As long again before it, uncounted: few requests were made so far, and a JVM compiles
        by the number of calls."""
        for title in ("one record per request, warm-up", "one record per request"):
            # One partition: librdkafka might otherwise put several partitions into one request.
            order = self._order(
                *("produce_single", broker, "single", VALUE_BYTES_SMALL),
                partitions=1,
                duration_s=self.sizes.single_s,
            )
            outcome = self._drive(order, broker, title)
        return _rate(outcome, "requests/s", per_bytes=False)

    def _latency(self, broker: BrokerProcess) -> Measure:
        order = self._order(
            *("latency", broker, "latency", VALUE_BYTES_SMALL),
            duration_s=self.sizes.latency_s,
            records_per_s=LATENCY_RECORDS_PER_S,
        )
        outcome = self._drive(order, broker, "end-to-end latency")
        return Measure(outcome.figures["p99_ms"], "ms", _details(outcome))

    def _warm_up(self, broker: BrokerProcess, value_bytes: int, records: int) -> None:
        """Both brokers get it; the JVM needs it to compile what it runs most."""
        count = max(1, records // WARMUP_SHARE)
        for work in ("produce", "consume"):
            order = self._order(work, broker, "warm-up", value_bytes, records=count)
            self._drive(order, broker, "warm-up")

    def _start_once(self, number: int) -> float:
        with self._directory(f"start-{number}") as directory:
            launch = self.broker.launch(directory)
            order = Order(work="first_ack", address=launch.address, topic="first", partitions=1)
            with started_with(launch, order) as (broker, figures):
                took_ms = (figures["acked_at_s"] - broker.started_at_s) * 1000
            self.on_step("start to first ack", (number + 1) / self.sizes.starts)
            return took_ms

    def _order(
        self,
        work: str,
        broker: BrokerProcess,
        topic: str,
        value_bytes: int,
        *,
        partitions: int = PARTITIONS,
        records: int = 0,
        duration_s: float = 0.0,
        records_per_s: int = 0,
    ) -> Order:
        return Order(
            work=work,
            address=broker.address,
            topic=topic,
            partitions=partitions,
            records=records,
            value_bytes=value_bytes,
            duration_s=duration_s,
            records_per_s=records_per_s,
            linger_ms=self.sizes.linger_ms,
        )

    def _drive(self, order: Order, broker: BrokerProcess, title: str) -> Outcome:
        self.on_step(title, 0.0)
        outcome = drive(order, broker, lambda done: self.on_step(title, done))
        self.on_step(title, 1.0)
        return outcome

    @contextmanager
    def _directory(self, name: str) -> Iterator[Path]:
        """A prepared data directory with its log beside it; both are gone afterwards."""
        home = self.work_dir / f"{self.broker.name}-{name}"
        shutil.rmtree(home, ignore_errors=True)
        try:
            self.broker.prepare(home / "data")
            yield home / "data"
        finally:
            shutil.rmtree(home, ignore_errors=True)


@contextmanager
def started_with(launch: Launch, order: Order) -> Iterator[tuple[BrokerProcess, dict[str, float]]]:
    """Start a broker while a client already waits for it; gives what the client then saw."""
    client = ArmedClient(order)
    try:
        client.go()
        broker = BrokerProcess(launch)
        try:
            figures = client.figures()
            broker.wait_ready()
            yield broker, figures
            broker.stop()
        except OrderFailed as failed:
            broker.check_alive()
            raise OrderFailed(f"{failed}\n{broker.log_tail()}") from None
        finally:
            broker.kill()
    finally:
        client.close()


def _rate(outcome: Outcome, unit: str, *, per_bytes: bool) -> Measure:
    figures = outcome.figures
    amount = figures["value_bytes"] / 1e6 if per_bytes else figures["records"]
    return Measure(amount / figures["wall_s"], unit, _details(outcome))


def _details(outcome: Outcome) -> dict[str, float]:
    figures = dict(outcome.figures)
    wall_s, megabytes = figures["wall_s"], figures["value_bytes"] / 1e6
    return {
        **figures,
        "records_per_s": figures["records"] / wall_s,
        "mb_per_s": megabytes / wall_s,
        "broker_cpu_s": outcome.broker_cpu_s,
        "broker_cpu_ms_per_mb": outcome.broker_cpu_s * 1000 / megabytes,
        "broker_cores": outcome.broker_cpu_s / wall_s,
        "client_cores": figures["client_cpu_s"] / wall_s,
        "others_cores": outcome.others_cores,
    }


def _memory(outcome: Outcome, rss_idle_bytes: int, rss_after_bytes: int) -> Measure:
    """Flatness compares the middle of the run with its end: early growth is buffers filling."""
    middle = [rss for done, rss in outcome.rss_samples if 0.4 <= done <= 0.6]
    last = [rss for done, rss in outcome.rss_samples if done >= 0.9] or [rss_after_bytes]
    growth = statistics.median(last) / statistics.median(middle) - 1 if middle else 0.0
    peak = max((rss for _done, rss in outcome.rss_samples), default=rss_after_bytes)
    return Measure(
        rss_after_bytes / MIB,
        "MiB",
        {
            "rss_idle_mib": rss_idle_bytes / MIB,
            "rss_peak_mib": peak / MIB,
            "growth_second_half": growth,
            "records": outcome.figures["records"],
            **{
                f"rss_mib_at_{round(done * 100):03d}_percent": rss / MIB
                for done, rss in outcome.rss_samples
            },
        },
    )
