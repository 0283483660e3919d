"""Objects in a dictionary, for tests and simulation.

Owns: nothing outside the process. No threads, no clock, no order that depends on hashing: the same
calls give the same answers. Its content survives a simulated crash because the object outlives it.
"""

from collections.abc import AsyncIterator, Collection, Sequence

from streamhouse.model.errors import AlreadyExists, Corrupt, NotFound
from streamhouse.model.ids import ObjectKey
from streamhouse.objects.keys import check_key, check_prefix, check_range
from streamhouse.ports.disk import Buffer


class MemoryObjects:
    def __init__(self) -> None:
        self._objects: dict[ObjectKey, bytes] = {}

    async def put_new(self, key: ObjectKey, body: Sequence[Buffer]) -> None:
        check_key(key)
        if key in self._objects:
            raise AlreadyExists(f"object {key} exists")
        self._objects[key] = b"".join(body)

    async def get_range(self, key: ObjectKey, start: int, stop: int) -> bytes:
        check_range(start, stop)
        found = self._find(key)
        if len(found) < stop:
            raise Corrupt(f"object {key} has {len(found)} bytes, {stop} were expected")
        return found[start:stop]

    async def size(self, key: ObjectKey) -> int:
        return len(self._find(key))

    async def list_keys(self, prefix: str) -> AsyncIterator[ObjectKey]:
        check_prefix(prefix)
        for key in sorted(key for key in self._objects if key.startswith(prefix)):
            yield key

    async def delete(self, keys: Collection[ObjectKey]) -> frozenset[ObjectKey]:
        for key in keys:
            check_key(key)
        for key in keys:
            self._objects.pop(key, None)
        return frozenset(keys)

    async def close(self) -> None:
        """Nothing to let go of; the content stays for whoever still holds this object."""

    def _find(self, key: ObjectKey) -> bytes:
        check_key(key)
        found = self._objects.get(key)
        if found is None:
            raise NotFound(f"object {key} does not exist")
        return found
