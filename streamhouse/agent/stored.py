"""Writing an object exactly once, although answers get lost.

The object store says "exists already" or nothing at all when an earlier try went through. Both are
success only if what lies there is what we meant to write; anything else is somebody else's object.
"""

from collections.abc import Sequence

import crc32c

from streamhouse.model.errors import AlreadyExists, Corrupt, NotFound, OutcomeUnknown
from streamhouse.model.ids import ObjectKey
from streamhouse.ports.disk import Buffer
from streamhouse.ports.objects import ObjectStore

TRIES_MAX = 5


async def put_once(objects: ObjectStore, key: ObjectKey, body: Sequence[Buffer]) -> None:
    """Store `body` under `key`, or find it there already. Raises Unavailable: nothing is stored."""
    for _ in range(TRIES_MAX):
        try:
            await objects.put_new(key, body)
        except AlreadyExists:
            await _check_same(objects, key, body)
            return
        except OutcomeUnknown:
            continue  # the same key and bytes again: at worst it exists already
        else:
            return
    raise OutcomeUnknown(f"{key}: the store did not answer {TRIES_MAX} times")


async def _check_same(objects: ObjectStore, key: ObjectKey, body: Sequence[Buffer]) -> None:
    length = sum(map(len, body))
    try:
        size = await objects.size(key)
        stored = await objects.get_range(key, 0, size) if size == length else b""
    except NotFound as error:  # deleted in between: keys are never reused, so this is a bug
        raise Corrupt(f"{key} exists and does not exist") from error
    checksum = 0
    for part in body:
        checksum = crc32c.crc32c(part, checksum)
    if size != length or crc32c.crc32c(stored) != checksum:
        raise Corrupt(f"{key} already holds other bytes ({size} of them, {length} expected)")
