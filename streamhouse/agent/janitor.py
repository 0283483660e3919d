"""Removes what nobody refers to: retired objects after their grace, deleted topics, orphans.

An orphan is an object whose registration never happened (the process died in between). It holds
nothing that is not also in the WAL or in a registered segment. It is removed only when it was seen
unreferenced twice, a grace period apart, by this process, which is the only writer here.
"""

import logging

from streamhouse.agent.catalog import Catalog
from streamhouse.agent.options import AgentOptions
from streamhouse.agent.stored import put_once
from streamhouse.model.errors import Invalid
from streamhouse.model.ids import ObjectKey
from streamhouse.model.keys import (
    TOPICS_PREFIX,
    parse_manifest_key,
    parse_segment_key,
    topic_deleted_key,
    topic_prefix,
)
from streamhouse.ports.clock import Clock
from streamhouse.ports.metadata import DeletedTopic, MetadataStore
from streamhouse.ports.objects import ObjectStore
from streamhouse.segment.manifest import TopicDeletion, encode_deleted

log = logging.getLogger(__name__)

RETIRED_PER_PASS_MAX = 500
MANIFESTS_KEPT = 2


class Janitor:
    def __init__(
        self,
        *,
        objects: ObjectStore,
        metadata: MetadataStore,
        catalog: Catalog,
        clock: Clock,
        options: AgentOptions,
    ) -> None:
        self._objects = objects
        self._metadata = metadata
        self._catalog = catalog
        self._clock = clock
        self._options = options
        self._unreferenced_ms: dict[ObjectKey, int] = {}
        self.objects_deleted = 0

    async def remove_retired(self) -> None:
        """Delete objects that were dereferenced longer ago than the grace period."""
        before_ms = self._clock.now_ms() - self._options.delete_grace_ms
        retired = await self._metadata.retired_objects(before_ms, RETIRED_PER_PASS_MAX)
        if not retired:
            return
        gone = await self._objects.delete([r.key for r in retired])
        await self._metadata.forget_retired(sorted(gone))
        self.objects_deleted += len(gone)

    async def remove_deleted_topics(self) -> None:
        """Empty the prefix of every deleted topic, then forget the topic."""
        for topic in await self._metadata.deleted_topics(RETIRED_PER_PASS_MAX):
            await self._remove_topic(topic)

    async def _remove_topic(self, topic: DeletedTopic) -> None:
        marker = topic_deleted_key(topic.topic_id)
        deletion = TopicDeletion(topic.topic_id, topic.name, topic.deleted_ms)
        await put_once(self._objects, marker, [encode_deleted(deletion)])
        prefix = topic_prefix(topic.topic_id)
        keys = [key async for key in self._objects.list_keys(prefix) if key != marker]
        # The marker goes last, so that a reader never sees half a topic without it.
        for part in (keys, [marker]):
            gone = await self._objects.delete(part)
            self.objects_deleted += len(gone)
            if len(gone) < len(part):
                return  # the rest at the next pass
        await self._metadata.forget_deleted_topic(topic.topic_id)

    async def sweep_orphans(self) -> None:
        """Delete segments and manifests that nothing refers to and nothing will."""
        now_ms = self._clock.now_ms()
        referenced = await self._referenced()
        seen: dict[ObjectKey, int] = {}
        async for key in self._objects.list_keys(TOPICS_PREFIX):
            if key not in referenced and self._is_sweepable(key):
                seen[key] = self._unreferenced_ms.get(key, now_ms)
        grace = self._options.delete_grace_ms
        doomed = [key for key, since_ms in seen.items() if now_ms - since_ms >= grace]
        if doomed:
            gone = await self._objects.delete(doomed)
            self.objects_deleted += len(gone)
            log.info("removed %d objects that nothing referred to", len(gone))
        self._unreferenced_ms = {k: since for k, since in seen.items() if k not in set(doomed)}

    async def _referenced(self) -> set[ObjectKey]:
        found: set[ObjectKey] = set()
        for partition in self._catalog.partitions.values():
            found.update(segment.key for segment in partition.segments)
            found.update(partition.uploads)
            if partition.snapshot_key is not None:
                found.add(partition.snapshot_key)
        far = 2**62
        retired = await self._metadata.retired_objects(far, far)
        found.update(r.key for r in retired)
        return found

    def _is_sweepable(self, key: ObjectKey) -> bool:
        try:
            partition = self._catalog.partitions.get(parse_segment_key(key).tp)
        except Invalid:
            return self._is_old_manifest(key)
        # A retired segment that the newest manifest still names is not listed as retired yet.
        return partition is not None and partition.manifest_written == partition.manifest_version

    def _is_old_manifest(self, key: ObjectKey) -> bool:
        try:
            tp, version = parse_manifest_key(key)
        except Invalid:
            return False
        partition = self._catalog.partitions.get(tp)
        return partition is not None and version < partition.manifest_written - MANIFESTS_KEPT
