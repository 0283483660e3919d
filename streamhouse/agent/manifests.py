"""Manifests: what makes a bucket readable by itself.

Written at most once per interval and at a clean stop, only for partitions whose segment set has
changed. The highest version wins; a manifest may lag behind the store, never lead it.
"""

from contextlib import suppress
from dataclasses import replace

from streamhouse.agent.partition import Partition
from streamhouse.agent.stored import put_once
from streamhouse.model.errors import Corrupt, DecodeError, NotFound
from streamhouse.model.ids import ObjectKey, TopicId
from streamhouse.model.keys import manifest_key, topic_grown_key, topic_key
from streamhouse.model.topic import Topic
from streamhouse.ports.clock import Clock
from streamhouse.ports.metadata import SegmentRegistry
from streamhouse.ports.objects import ObjectStore
from streamhouse.segment.manifest import (
    Manifest,
    TopicDescription,
    decode_topic,
    encode_manifest,
    encode_topic,
)


class ManifestWriter:
    def __init__(self, *, objects: ObjectStore, registry: SegmentRegistry, clock: Clock) -> None:
        self._objects = objects
        self._registry = registry
        self._clock = clock
        self._described: set[tuple[TopicId, int]] = set()  # topic and partition count
        self.written = 0

    async def _describe(self, topic: Topic) -> None:
        """Write the topic's own description; the same bytes again are no harm.

        Objects never change, so a topic that grew is described again under a key of its own.
        """
        if (topic.topic_id, topic.partition_count) in self._described:
            return
        described = TopicDescription(
            topic_id=topic.topic_id,
            name=topic.name,
            partition_count=topic.partition_count,
            created_ms=topic.created_ms,
        )
        key = topic_key(topic.topic_id)
        try:
            await put_once(self._objects, key, [encode_topic(described)])
        except Corrupt:
            if not await self._is_grown(key, described):
                raise
            grown_key = topic_grown_key(topic.topic_id, topic.partition_count)
            await put_once(self._objects, grown_key, [encode_topic(described)])
        self._described.add((topic.topic_id, topic.partition_count))

    async def _is_grown(self, key: ObjectKey, described: TopicDescription) -> bool:
        """Whether what lies under `key` is the same topic with fewer partitions."""
        try:
            first = decode_topic(
                await self._objects.get_range(key, 0, await self._objects.size(key))
            )
        except (Corrupt, DecodeError, NotFound):
            return False
        grew = first.partition_count < described.partition_count
        return grew and replace(first, partition_count=described.partition_count) == described

    async def write(self, partition: Partition) -> bool:
        """Write the manifest of the newest segment set, unless the bucket has it."""
        if partition.closed or partition.manifest_version <= partition.manifest_written:
            return False
        if partition.change is not None:
            return False  # which segments are live is not known at the moment
        version, machine = partition.manifest_version, partition.machine
        await self._describe(partition.topic)
        manifest = Manifest(
            tp=machine.tp,
            version=version,
            epoch=machine.epoch,
            log_start=machine.log_start,
            stable_end=max(min(machine.offset_stable, machine.segments_end), machine.log_start),
            segments=tuple(partition.segments),
            aborted=(),
            written_ms=self._clock.now_ms(),
        )
        main, pages = encode_manifest(manifest)
        for key, body in pages:
            await put_once(self._objects, key, [body])
        # An earlier process may have written this version before it died; it names the same
        # segments, so it stays.
        with suppress(Corrupt):
            await put_once(self._objects, manifest_key(machine.tp, version), [main])
        await self._registry.manifest_written(machine.fence, version, self._clock.now_ms())
        partition.manifest_written = max(partition.manifest_written, version)
        self.written += 1
        return True
