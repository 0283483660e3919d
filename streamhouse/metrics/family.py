"""A metric: its name, what it means, and how to read its number when Prometheus asks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

Family = CounterMetricFamily | GaugeMetricFamily
Labelled = Mapping[tuple[str, ...], float]


class Kind(Enum):
    COUNTER = CounterMetricFamily
    GAUGE = GaugeMetricFamily


@dataclass(frozen=True, slots=True)
class Metric:
    """One family. With `labels`, `read` returns a mapping from label values to numbers."""

    name: str  # with its unit; counters end in _total
    kind: Kind
    help: str
    read: Callable[[], float | Labelled]
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert self.name.startswith("streamhouse_"), self.name
        assert (self.kind is Kind.COUNTER) == self.name.endswith("_total"), self.name


def counter(name: str, text: str, read: Callable[[], float]) -> Metric:
    return Metric(f"streamhouse_{name}_total", Kind.COUNTER, text, read)


def gauge(name: str, text: str, read: Callable[[], float]) -> Metric:
    return Metric(f"streamhouse_{name}", Kind.GAUGE, text, read)


class PlainCollector(Collector):
    """Reads every metric anew at each scrape; nothing is kept in between."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        names = [metric.name for metric in metrics]
        assert len(set(names)) == len(names), "two metrics have one name"
        self._metrics = metrics

    def collect(self) -> Iterator[Family]:
        for metric in self._metrics:
            yield _family(metric)


def _family(metric: Metric) -> Family:
    family: Family = metric.kind.value(metric.name, metric.help, labels=metric.labels)
    found = metric.read()
    if isinstance(found, Mapping):
        for values, number in found.items():
            family.add_metric(values, number)
    else:
        family.add_metric((), found)
    return family
