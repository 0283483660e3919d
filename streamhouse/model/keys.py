"""Object keys. One key names one byte string, for ever."""

import re
from typing import NamedTuple
from uuid import UUID

from streamhouse.model.errors import Invalid
from streamhouse.model.ids import ObjectKey, TopicId, TopicPartition

TOPICS_PREFIX = "topics/"

_SEGMENT = re.compile(
    r"^topics/(?P<topic>[0-9a-f-]{36})/(?P<partition>\d+)/"
    r"(?P<base>\d{20})-(?P<end>\d{20})-(?P<epoch>\d{10})-(?P<nonce>[0-9a-f]+)\.strm$"
)
_MANIFEST = re.compile(
    r"^topics/(?P<topic>[0-9a-f-]{36})/(?P<partition>\d+)/manifest/(?P<version>\d{20})\.json$"
)


class SegmentName(NamedTuple):
    """What a segment's key says about it."""

    tp: TopicPartition
    base: int
    end: int
    epoch: int
    nonce: str


def topic_prefix(topic_id: TopicId) -> str:
    return f"{TOPICS_PREFIX}{topic_id}/"


def partition_prefix(tp: TopicPartition) -> str:
    return f"{topic_prefix(tp.topic_id)}{tp.partition}/"


def topic_key(topic_id: TopicId) -> ObjectKey:
    """Describes the topic: id, name, partition count. Written before its first segment."""
    return ObjectKey(f"{topic_prefix(topic_id)}topic.json")


def topic_grown_key(topic_id: TopicId, partition_count: int) -> ObjectKey:
    """The topic's description after partitions were added to it."""
    return ObjectKey(f"{topic_prefix(topic_id)}partitions/{partition_count:010d}.json")


def topic_deleted_key(topic_id: TopicId) -> ObjectKey:
    """Exists once the topic was deleted; written before its other objects are removed."""
    return ObjectKey(f"{topic_prefix(topic_id)}deleted.json")


def manifest_prefix(tp: TopicPartition) -> str:
    return f"{partition_prefix(tp)}manifest/"


def manifest_key(tp: TopicPartition, version: int) -> ObjectKey:
    return ObjectKey(f"{manifest_prefix(tp)}{version:020d}.json")


def segment_key(name: SegmentName) -> ObjectKey:
    return ObjectKey(
        f"{partition_prefix(name.tp)}{name.base:020d}-{name.end:020d}"
        f"-{name.epoch:010d}-{name.nonce}.strm"
    )


def parse_segment_key(key: str) -> SegmentName:
    found = _SEGMENT.match(key)
    if found is None:
        raise Invalid(f"not a segment key: {key!r}")
    return SegmentName(
        TopicPartition(TopicId(UUID(found["topic"])), int(found["partition"])),
        int(found["base"]),
        int(found["end"]),
        int(found["epoch"]),
        found["nonce"],
    )


def parse_manifest_key(key: str) -> tuple[TopicPartition, int]:
    found = _MANIFEST.match(key)
    if found is None:
        raise Invalid(f"not a manifest key: {key!r}")
    tp = TopicPartition(TopicId(UUID(found["topic"])), int(found["partition"]))
    return tp, int(found["version"])
