"""From plain numbers to Prometheus text, at scrape time only.

Services count with plain attributes, because a hot path cannot pay for a metric object. Owns its
registry, so that nothing leaks in through the library's global one.
"""

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from streamhouse.metrics.agent_metrics import AgentView, WalView, agent_metrics
from streamhouse.metrics.door_metrics import HttpView, KafkaView, http_metrics, kafka_metrics
from streamhouse.metrics.family import Metric, PlainCollector


class MetricSources:
    """Where the numbers of one process are read; made once, when its parts are there."""

    def __init__(
        self,
        *,
        agent: AgentView,
        wal: WalView,
        kafka: KafkaView | None = None,
        http: HttpView | None = None,
    ) -> None:
        metrics: list[Metric] = agent_metrics(agent, wal)
        if kafka is not None:
            metrics += kafka_metrics(kafka)
        if http is not None:
            metrics += http_metrics(http)
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(PlainCollector(metrics))
        ProcessCollector(registry=self.registry)


def render(sources: MetricSources) -> bytes:
    """The text that /metrics answers."""
    return generate_latest(sources.registry)
