"""What an agent exposes: how each number is called, and where it is read.

The agent is known only by the attributes named in the protocols below. Per-topic numbers are
bounded: beyond `TOPICS_SHOWN_MAX` topics only the totals and the number left out are shown.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Protocol

from streamhouse.metrics.family import Kind, Labelled, Metric, counter, gauge
from streamhouse.model.ids import TopicPartition
from streamhouse.model.partition import SegmentRef
from streamhouse.model.topic import Topic

TOPICS_SHOWN_MAX = 1_000


class AppendCounters(Protocol):
    batches: int
    records: int
    bytes: int
    duplicates: int


class CacheCounters(Protocol):
    hits: int
    misses: int
    cost_used: int


class ReadCounters(Protocol):
    bytes_read: int

    @property
    def runs(self) -> CacheCounters: ...


class RollCounters(Protocol):
    segments_rolled: int


class MergeCounters(Protocol):
    merges: int


class JanitorCounters(Protocol):
    objects_deleted: int


class Positions(Protocol):
    log_start: int
    segments_end: int

    @property
    def high_watermark(self) -> int: ...


class PartitionView(Protocol):
    @property
    def machine(self) -> Positions: ...

    @property
    def segments(self) -> Sequence[SegmentRef]: ...


class CatalogView(Protocol):
    @property
    def partitions(self) -> Mapping[TopicPartition, PartitionView]: ...

    def topics(self) -> list[Topic]: ...


class AgentView(Protocol):
    """The agent service, seen from here."""

    @property
    def catalog(self) -> CatalogView: ...
    @property
    def appender(self) -> AppendCounters: ...
    @property
    def reader(self) -> ReadCounters: ...
    @property
    def roller(self) -> RollCounters: ...
    @property
    def merger(self) -> MergeCounters: ...
    @property
    def janitor(self) -> JanitorCounters: ...


class WalView(Protocol):
    @property
    def queued_bytes(self) -> int: ...
    @property
    def room_bytes(self) -> int: ...


def agent_metrics(agent: AgentView, wal: WalView) -> list[Metric]:
    appender, reader, catalog = agent.appender, agent.reader, agent.catalog
    runs = reader.runs
    return [
        counter("append_batches", "Record batches appended.", lambda: appender.batches),
        counter("append_records", "Records appended.", lambda: appender.records),
        counter("append_bytes", "Bytes of batches appended.", lambda: appender.bytes),
        counter(
            "append_duplicates",
            "Batches recognised as a retry and not appended again.",
            lambda: appender.duplicates,
        ),
        counter("block_cache_hits", "Cold reads served from memory.", lambda: runs.hits),
        counter("block_cache_misses", "Cold reads that went to a store.", lambda: runs.misses),
        gauge("block_cache_bytes", "Bytes of decoded blocks in memory.", lambda: runs.cost_used),
        counter("object_read_bytes", "Bytes read from segments.", lambda: reader.bytes_read),
        counter(
            "segments_rolled",
            "Segments made from the write-ahead log.",
            lambda: agent.roller.segments_rolled,
        ),
        counter(
            "segment_merges", "Merges of small segments into one.", lambda: agent.merger.merges
        ),
        counter(
            "objects_deleted",
            "Objects removed after their grace period.",
            lambda: agent.janitor.objects_deleted,
        ),
        gauge("wal_queued_bytes", "Bytes appended and not yet durable.", lambda: wal.queued_bytes),
        gauge(
            "wal_room_bytes",
            "Bytes that fit the write-ahead log before a roll must free space.",
            lambda: wal.room_bytes,
        ),
        gauge("topics", "Topics in the catalog.", lambda: len(catalog.topics())),
        gauge("partitions", "Partitions led here.", lambda: len(catalog.partitions)),
        *_topic_metrics(catalog),
    ]


def _topic_metrics(catalog: CatalogView) -> list[Metric]:
    return [
        _per_topic(
            "topic_high_watermark",
            "Sum of the high watermarks of a topic's partitions, in records.",
            catalog,
            lambda partition: partition.machine.high_watermark,
        ),
        _per_topic(
            "topic_retained_records",
            "Offsets between log start and high watermark, all partitions.",
            catalog,
            lambda partition: partition.machine.high_watermark - partition.machine.log_start,
        ),
        _per_topic(
            "topic_stored_bytes",
            "Bytes of a topic's segments in the object store.",
            catalog,
            lambda partition: sum(segment.bytes_stored for segment in partition.segments),
        ),
        gauge(
            "topics_not_shown",
            "Topics beyond the bound for which no per-topic metric is exposed.",
            lambda: max(len(catalog.topics()) - TOPICS_SHOWN_MAX, 0),
        ),
    ]


def _per_topic(
    name: str, text: str, catalog: CatalogView, measure: Callable[[PartitionView], int]
) -> Metric:
    def read() -> Labelled:
        return {
            (topic.name,): sum(map(measure, _partitions_of(catalog, topic)))
            for topic in islice(catalog.topics(), TOPICS_SHOWN_MAX)
        }

    return Metric(f"streamhouse_{name}", Kind.GAUGE, text, read, ("topic",))


def _partitions_of(catalog: CatalogView, topic: Topic) -> Iterable[PartitionView]:
    tps = (TopicPartition(topic.topic_id, number) for number in range(topic.partition_count))
    return (catalog.partitions[tp] for tp in tps)
