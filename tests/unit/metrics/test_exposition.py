"""The exposition: every number is read at scrape time, under a name with its unit."""

from dataclasses import dataclass, field
from uuid import UUID

import pytest

from streamhouse.metrics import agent_metrics
from streamhouse.metrics.exposition import MetricSources, render
from streamhouse.metrics.family import Kind, Metric, PlainCollector, counter
from streamhouse.model.ids import TopicId, TopicPartition
from streamhouse.model.partition import SegmentRef
from streamhouse.model.topic import Topic, TopicSettings


@dataclass
class Numbers:
    """All counters of an agent in one object, under the names the metrics read."""

    batches: int = 0
    records: int = 0
    bytes: int = 0
    duplicates: int = 0
    hits: int = 0
    misses: int = 0
    cost_used: int = 0
    bytes_read: int = 0
    segments_rolled: int = 0
    merges: int = 0
    objects_deleted: int = 0
    queued_bytes: int = 0
    room_bytes: int = 0

    @property
    def runs(self) -> "Numbers":
        return self


@dataclass
class Positions:
    high_watermark: int
    log_start: int = 0
    segments_end: int = 0


@dataclass
class LedPartition:
    machine: Positions
    segments: list[SegmentRef] = field(default_factory=list)


@dataclass
class Catalog:
    listed: list[Topic]
    partitions: dict[TopicPartition, LedPartition]

    def topics(self) -> list[Topic]:
        return self.listed


class Agent:
    def __init__(self, topic_count: int = 0) -> None:
        ids = [TopicId(UUID(int=number)) for number in range(topic_count)]
        topics = [
            Topic(topic_id, f"t{number}", 2, {}, 0, TopicSettings())
            for number, topic_id in enumerate(ids)
        ]
        self.catalog = Catalog(
            topics,
            {
                TopicPartition(topic_id, number): LedPartition(Positions(10 * (number + 1), 3))
                for topic_id in ids
                for number in range(2)
            },
        )
        self.numbers = Numbers()
        self.appender = self.reader = self.roller = self.merger = self.janitor = self.numbers


def scrape(agent: Agent) -> list[str]:
    return render(MetricSources(agent=agent, wal=agent.numbers)).decode().splitlines()


def test_numbers_are_read_when_asked() -> None:
    """Goal: one registry, made once, always shows the present."""
    agent = Agent()
    sources = MetricSources(agent=agent, wal=agent.numbers)
    assert b"streamhouse_append_bytes_total 0.0" in render(sources)
    agent.numbers.bytes = 77
    assert b"streamhouse_append_bytes_total 77.0" in render(sources)


def test_topics_show_the_sum_over_their_partitions() -> None:
    lines = scrape(Agent(topic_count=1))
    assert 'streamhouse_topic_high_watermark{topic="t0"} 30.0' in lines
    assert 'streamhouse_topic_retained_records{topic="t0"} 24.0' in lines
    assert "streamhouse_topics_not_shown 0.0" in lines


def test_the_number_of_topics_shown_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_metrics, "TOPICS_SHOWN_MAX", 3)
    lines = scrape(Agent(topic_count=5))
    assert len([line for line in lines if line.startswith("streamhouse_topic_stored_bytes{")]) == 3
    assert "streamhouse_topics_not_shown 2.0" in lines


def test_every_family_has_help_and_a_type() -> None:
    lines = scrape(Agent(topic_count=1))
    names = {line.split("{")[0].split(" ")[0] for line in lines if not line.startswith("#")}
    ours = {name for name in names if name.startswith("streamhouse_")}
    assert len(ours) > 15
    for name in ours:
        assert any(line.startswith(f"# HELP {name} ") for line in lines)
        assert any(line.startswith(f"# TYPE {name} ") for line in lines)


def test_names_that_break_the_rules_are_refused() -> None:
    with pytest.raises(AssertionError):
        Metric("records_total", Kind.COUNTER, "No prefix.", lambda: 0)
    with pytest.raises(AssertionError):
        Metric("streamhouse_records", Kind.COUNTER, "A counter without _total.", lambda: 0)
    twice = counter("x", "Twice.", lambda: 0)
    with pytest.raises(AssertionError):
        PlainCollector([twice, twice])
