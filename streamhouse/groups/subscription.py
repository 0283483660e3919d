"""What consumers put into the opaque bytes of their group: topics wanted, partitions given.

Read leniently and only where it helps (which topics a group reads, what an operator is shown):
other protocol types put other bytes there, and clients of the future may write other versions.
"""

import struct

CONSUMER = "consumer"
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_HOSTILE = (struct.error, UnicodeDecodeError, ValueError)


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Topics of a consumer's subscription; None if the bytes are none."""
    try:
        topics, _ = _topics(metadata)
    except _HOSTILE:
        return None
    return frozenset(topics)


def assigned_partitions(assignment: bytes) -> tuple[tuple[str, int], ...]:
    """(topic, partition) of a consumer's assignment, sorted; empty if the bytes are none."""
    try:
        return tuple(sorted(_partitions(assignment)))
    except _HOSTILE:
        return ()


def _topics(raw: bytes) -> tuple[list[str], int]:
    count, at = _count(raw, _INT16.size)
    topics = []
    for _ in range(count):
        topic, at = _string(raw, at)
        topics.append(topic)
    return topics, at


def _partitions(raw: bytes) -> list[tuple[str, int]]:
    if not raw:
        return []
    count, at = _count(raw, _INT16.size)
    found = []
    for _ in range(count):
        topic, at = _string(raw, at)
        partitions, at = _count(raw, at)
        for _ in range(partitions):
            found.append((topic, _INT32.unpack_from(raw, at)[0]))
            at += _INT32.size
    return found


def _count(raw: bytes, at: int) -> tuple[int, int]:
    count: int = _INT32.unpack_from(raw, at)[0]
    at += _INT32.size
    if not 0 <= count <= len(raw) - at:
        raise ValueError(f"{count} items in {len(raw) - at} bytes")
    return count, at


def _string(raw: bytes, at: int) -> tuple[str, int]:
    length: int = _INT16.unpack_from(raw, at)[0]
    at += _INT16.size
    if not 0 <= length <= len(raw) - at:
        raise ValueError(f"a text of {length} bytes in {len(raw) - at}")
    return raw[at : at + length].decode(), at + length
