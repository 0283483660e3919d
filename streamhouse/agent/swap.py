"""Replacing live segments by others, although answers get lost.

One change per partition is under way at a time. While its outcome is unknown it stays with the
partition, nothing else is changed there and no manifest is written: the same command again finds
out what happened. So the segments in memory are always those of the store, or one known change
behind.
"""

from streamhouse.agent.partition import Partition
from streamhouse.model.errors import OutcomeUnknown, StreamhouseError, Unavailable
from streamhouse.model.partition import PartitionRow, SegmentReplacement
from streamhouse.ports.clock import Clock
from streamhouse.ports.metadata import SegmentRegistry

TRIES_MAX = 5


class SegmentSwap:
    def __init__(self, *, registry: SegmentRegistry, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock

    async def replace(self, partition: Partition, change: SegmentReplacement) -> None:
        """Swap segments in store and memory. Raises as the registry; see `settle` for unknown."""
        assert partition.change is None, "the change before this one is not settled"
        partition.change = change
        await self.settle(partition)

    async def settle(self, partition: Partition) -> None:
        """Find out about a change whose outcome is unknown, by asking for it again."""
        change = partition.change
        if change is None:
            return
        try:
            row = await self._ask(change)
        except (Unavailable, OutcomeUnknown):
            raise  # an earlier try may have gone through
        except StreamhouseError:
            self._settled(partition, change)
            raise
        self._settled(partition, change)
        if not partition.closed:
            partition.replace_segments(frozenset(change.old), change.new, row)

    async def _ask(self, change: SegmentReplacement) -> PartitionRow:
        for _ in range(TRIES_MAX):
            try:
                return await self._registry.replace_segments(change, self._clock.now_ms())
            except OutcomeUnknown:
                continue
        raise OutcomeUnknown(f"{change.fence.tp}: a change of segments was not answered")

    def _settled(self, partition: Partition, change: SegmentReplacement) -> None:
        partition.change = None
        for segment in change.new:
            partition.uploads.discard(segment.key)
