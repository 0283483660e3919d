"""The rows of the table: what each work is called, what must be reached, and how it is judged.

Pure: figures in, verdicts out.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bench.workloads import Measure, Measures

FLAT_GROWTH_MAX = 0.10  # of resident memory, from the middle of the run to its end
CLIENT_THREAD_BUSY = 0.85  # of one core; above it the client sets the pace
OTHERS_BUSY = 0.3  # cores; above it the figure is not worth much
MACHINE_BUSY = 0.90  # of all cores


@dataclass(frozen=True, slots=True)
class Target:
    """One row. `ratio` is StreamHouse divided by Kafka."""

    key: str
    title: str
    ratio: float
    higher_is_better: bool

    def is_reached(self, ratio: float) -> bool:
        return ratio >= self.ratio if self.higher_is_better else ratio <= self.ratio

    def wording(self) -> str:
        return f"{'at least' if self.higher_is_better else 'at most'} {self.ratio:.1f}x"


TARGETS = (
    Target("produce-1k", "produce 1 KB, 6 partitions, acks=all", 1.0, True),
    Target("produce-100b", "produce 100 B, batched", 1.0, True),
    Target("single", "one record per request, 5 in flight", 0.5, True),
    Target("consume-warm", "consume, warm", 1.0, True),
    Target("consume-restart", "consume after restart", 1.0, True),
    Target("latency", "end-to-end p99 at 1,000 records/s", 2.0, False),
    Target("start", "start on an empty directory to first ack", 0.5, False),
    Target("memory", "resident memory after {records}", 0.5, False),
)


@dataclass(frozen=True, slots=True)
class Round:
    """What each broker reached in one round; a broker that did not run is missing."""

    measures: dict[str, Measures]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the report, over all rounds."""

    target: Target
    title: str
    unit: str
    kafka: float | None
    streamhouse: float | None
    ratios: tuple[float, ...]
    verdict: str
    limited_by: str

    @property
    def ratio(self) -> float | None:
        return statistics.median(self.ratios) if self.ratios else None


def judge(rounds: Sequence[Round], cores: int) -> list[Row]:
    """Rows for everything that was measured, in the order of the targets."""
    rows = [_judge_one(target, rounds, cores) for target in TARGETS]
    return [row for row in rows if row.kafka is not None or row.streamhouse is not None]


def warning(rounds: Sequence[Round]) -> str:
    """What a reader must know before believing the verdicts; empty when there is nothing."""
    shares = [
        measure.details["others_cores"]
        for each in rounds
        for measures in each.measures.values()
        for measure in measures.values()
        if "others_cores" in measure.details
    ]
    disturbed = [share for share in shares if share >= OTHERS_BUSY]
    if not disturbed:
        return ""
    return (
        f"Not reliable: in {len(disturbed)} of {len(shares)} measurements other processes used "
        f"{min(disturbed):.1f} to {max(disturbed):.1f} cores. Repeat on a quiet machine."
    )


def _judge_one(target: Target, rounds: Sequence[Round], cores: int) -> Row:
    kafka = _of(rounds, "kafka", target.key)
    streamhouse = _of(rounds, "streamhouse", target.key)
    # Paired by round, so that a change of the machine between rounds falls out of the ratio.
    ratios = tuple(
        each.measures["streamhouse"][target.key].value / each.measures["kafka"][target.key].value
        for each in rounds
        if all(target.key in each.measures.get(name, {}) for name in ("kafka", "streamhouse"))
    )
    known = [*streamhouse, *kafka]
    records = f"{int(known[0].details.get('records', 0)):,} records" if known else ""
    return Row(
        target=target,
        title=target.title.format(records=records),
        unit=known[0].unit if known else "",
        kafka=_median(kafka),
        streamhouse=_median(streamhouse),
        ratios=ratios,
        verdict=_verdict(target, ratios, streamhouse),
        limited_by=_limits(kafka, streamhouse, cores),
    )


def _verdict(target: Target, ratios: Sequence[float], streamhouse: Sequence[Measure]) -> str:
    if not ratios:
        return "not compared"
    if not target.is_reached(statistics.median(ratios)):
        return "below" if target.higher_is_better else "above"
    if target.key == "memory" and growth_second_half(streamhouse) > FLAT_GROWTH_MAX:
        return "not flat"
    return "PASS"


def growth_second_half(measures: Sequence[Measure]) -> float:
    return statistics.median(each.details["growth_second_half"] for each in measures)


def _limits(kafka: Sequence[Measure], streamhouse: Sequence[Measure], cores: int) -> str:
    named = [
        (name, limit)
        for name, measures in (("Kafka", kafka), ("StreamHouse", streamhouse))
        if measures and (limit := _limit_of(measures[0], cores))
    ]
    if len(named) == 2 and named[0][1] == named[1][1]:
        return f"both: {named[0][1]}"
    return "; ".join(f"{name}: {limit}" for name, limit in named)


def _limit_of(measure: Measure, cores: int) -> str:
    details = measure.details
    if "broker_cores" not in details:
        return ""
    if details["others_cores"] >= OTHERS_BUSY:
        return f"other processes took {details['others_cores']:.1f} cores"
    if measure.unit == "ms":
        return ""
    if details["client_thread_share"] >= CLIENT_THREAD_BUSY:
        return "client thread"
    if details["broker_cores"] + details["client_cores"] >= MACHINE_BUSY * cores:
        return "all cores busy"
    return ""


def _of(rounds: Sequence[Round], broker: str, key: str) -> list[Measure]:
    return [each.measures[broker][key] for each in rounds if key in each.measures.get(broker, {})]


def _median(measures: Sequence[Measure]) -> float | None:
    return statistics.median(each.value for each in measures) if measures else None
