"""The write-ahead log: what is durable here survives kill -9."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from streamhouse.model.ids import TopicPartition
from streamhouse.ports.disk import Buffer


class WalEntry(NamedTuple):
    """One record batch with the place it has in its partition."""

    tp: TopicPartition
    epoch: int
    base: int  # offset of its first record
    end: int  # offset after its last record
    acks: int
    body: Buffer


class WalEvents(NamedTuple):
    """What the WAL tells its owner; both are called on the event loop."""

    on_durable: Callable[[int], None]  # every entry up to this sequence number is durable
    on_failed: Callable[[BaseException], None]  # a write failed: nothing more will be durable


class Wal(Protocol):
    """One stream of entries for the whole process, numbered without gaps from 1."""

    @property
    def wal_id(self) -> str:
        """Names this stream for ever; a partition in local mode opens only with its own WAL."""

    @property
    def queued_bytes(self) -> int:
        """Bytes appended and not yet durable."""

    @property
    def room_bytes(self) -> int:
        """Bytes that can still be appended before a trim is needed (queued ones deducted)."""

    @property
    def is_low(self) -> bool:
        """Less than a quarter of the space is free: the oldest entries should be rolled."""

    async def open(self) -> None:
        """Find what there is; `wal_id` is known afterwards. Raises StartRefused on damage."""

    def replay(self) -> AsyncIterator[tuple[int, WalEntry]]:
        """Yield (sequence, entry) of everything durable, in order. Once, before `start`."""

    async def start(self, events: WalEvents) -> None:
        """Begin to accept entries, numbered after the last replayed one."""

    def append(self, entry: WalEntry) -> int:
        """Queue an entry and return its sequence number. The buffer must not change afterwards.

        Raises Unavailable when there is no room; then nothing was queued.
        """

    async def read(self, sequence: int) -> bytes:
        """The body of a durable entry that has not been trimmed."""

    async def read_many(self, sequences: Sequence[int]) -> list[bytes]:
        """Bodies of durable entries, in the order asked, with few reads for neighbours."""

    async def trim(self, segments_end: Mapping[TopicPartition, int]) -> None:
        """Free files in which each entry ends at or below its partition's `segments_end`.

        A partition that is not in the mapping is gone; its entries hold nothing back.
        """

    def oldest(self) -> frozenset[TopicPartition]:
        """Partitions with entries in the oldest file: rolling them lets it go."""

    async def close(self) -> None:
        """Write and sync what is queued, then stop."""
