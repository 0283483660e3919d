"""Immutable objects under flat keys. A key is written once and never changed."""

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Protocol

from streamhouse.model.ids import ObjectKey
from streamhouse.ports.disk import Buffer


class ObjectStore(Protocol):
    """`tests/contract/test_object_store.py` runs these sentences on every adapter."""

    async def put_new(self, key: ObjectKey, body: Sequence[Buffer]) -> None:
        """Create `key` from the buffers one after the other; durable when this returns.

        Raises AlreadyExists (the object there is untouched), Unavailable (nothing was written),
        or OutcomeUnknown when the answer was lost.
        """

    async def get_range(self, key: ObjectKey, start: int, stop: int) -> bytes:
        """Bytes [start, stop). Raises NotFound; Corrupt if the object is shorter than `stop`."""

    async def size(self, key: ObjectKey) -> int:
        """Length in bytes. Raises NotFound."""

    def list_keys(self, prefix: str) -> AsyncIterator[ObjectKey]:
        """Keys under `prefix` in ascending order."""

    async def delete(self, keys: Collection[ObjectKey]) -> frozenset[ObjectKey]:
        """Delete what can be deleted; return the keys known to be gone. Idempotent."""


class OwnedObjectStore(ObjectStore, Protocol):
    """The store as the composition root holds it: whoever opened it closes it."""

    async def close(self) -> None:
        """Let go of threads and connections. No call may follow."""
