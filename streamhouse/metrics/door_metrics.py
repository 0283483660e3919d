"""What the doors expose: connections, requests, answers."""

from collections.abc import Mapping
from typing import Protocol

from streamhouse.metrics.family import Kind, Labelled, Metric, counter, gauge


class KafkaView(Protocol):
    """The Kafka listener, seen from here."""

    requests: int
    refusals: int
    connections_total: int

    @property
    def connections(self) -> int: ...

    @property
    def throttled(self) -> int: ...


class HttpView(Protocol):
    """The counters of the HTTP door."""

    requests_in_flight: int
    streams_open: int

    @property
    def requests_by_status(self) -> Mapping[int, int]: ...


def kafka_metrics(kafka: KafkaView) -> list[Metric]:
    return [
        gauge("kafka_connections", "Kafka connections open.", lambda: kafka.connections),
        counter(
            "kafka_connections_accepted",
            "Kafka connections accepted.",
            lambda: kafka.connections_total,
        ),
        counter("kafka_requests", "Kafka requests read.", lambda: kafka.requests),
        counter(
            "kafka_refusals",
            "Kafka requests or connections that were refused.",
            lambda: kafka.refusals,
        ),
        counter(
            "kafka_throttled",
            "Kafka requests answered with a pause because of a quota.",
            lambda: kafka.throttled,
        ),
    ]


def http_metrics(http: HttpView) -> list[Metric]:
    def by_status() -> Labelled:
        return {(str(status),): count for status, count in sorted(http.requests_by_status.items())}

    return [
        Metric(
            "streamhouse_http_requests_total",
            Kind.COUNTER,
            "HTTP requests answered.",
            by_status,
            ("status",),
        ),
        gauge(
            "http_requests_in_flight",
            "HTTP requests being served.",
            lambda: http.requests_in_flight,
        ),
        gauge("http_event_streams", "Event streams open.", lambda: http.streams_open),
    ]
