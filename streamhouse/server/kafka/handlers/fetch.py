"""Fetch (key 1), served 4-18.

Owns: session, isolation, byte limits and the long poll of one request.
Must not know: segments, WAL, caches; it asks the agent for whole batches.
Behaviour: the first batch of the first partition with data is given even above the limits
(KIP-74); an error or enough bytes end the wait; new data wakes it; a client that sends sessions
gets one; unchanged partitions are left out of incremental answers.
Gaps: no follower fetches, no preferred read replica, no diverging epoch hints.
Versions: 7 sessions; 9 leader epoch; 12 flexible; 13 topic ids; 15 replica state.
"""

import asyncio
import logging
from dataclasses import dataclass, field
from functools import partial

from streamhouse.agent.service import Partition
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.fetch import (
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchTopicResult,
    decode_request,
    encode_response,
)
from streamhouse.kafka_proto.record_batch import iter_batches
from streamhouse.model.errors import (
    Corrupt,
    DecodeError,
    NotFound,
    OffsetOutOfRange,
    Unavailable,
)
from streamhouse.model.limits import FETCH_BYTES_MAX
from streamhouse.ports.disk import Buffer
from streamhouse.server.kafka.door import Answer, Caller, Door, Frame, epoch_error
from streamhouse.server.kafka.fetch_sessions import (
    FetchScope,
    PartitionKey,
    Told,
    rotate,
)

log = logging.getLogger(__name__)

VERSION_ZSTD = 10
VERSION_IDS = 13
CODEC_ZSTD = 4
READ_COMMITTED = 1


@dataclass(slots=True)
class _Read:
    """One partition of the request and what was found for it so far."""

    key: PartitionKey
    asked: FetchPartition
    partition: Partition | None
    error: ErrorCode = ErrorCode.NONE
    records: list[Buffer] = field(default_factory=list)
    size: int = 0
    cold: bool = False  # memory cannot answer


class _News:
    """Which partitions of a waiting fetch have something new."""

    def __init__(self) -> None:
        self._arrived = asyncio.Event()
        self._indexes: dict[int, None] = {}

    def tell(self, index: int) -> None:
        self._indexes[index] = None
        self._arrived.set()

    async def wait(self) -> list[int]:
        """Wait for news; each piece is given once."""
        await self._arrived.wait()
        self._arrived.clear()
        found, self._indexes = list(self._indexes), {}
        return found


def handle(door: Door, caller: Caller, frame: memoryview) -> Answer:
    version = caller.header.api_version
    request = decode_request(frame, caller.header.body_at, version)
    scope = door.sessions.resolve(request, by_id=version >= VERSION_IDS)
    if isinstance(scope, ErrorCode):
        return tuple(encode_response(version, caller.header.correlation_id, (), error_code=scope))
    fetch = _Fetch(door, caller, request, scope)
    fetch.read_memory()
    if fetch.is_enough():
        return fetch.answer()
    return fetch.wait()


class _Fetch:
    def __init__(
        self, door: Door, caller: Caller, request: FetchRequest, scope: FetchScope
    ) -> None:
        self._door = door
        self._caller = caller
        self._request = request
        self._scope = scope
        self._committed_only = request.isolation_level == READ_COMMITTED
        self._max_bytes = min(max(request.max_bytes, 0), FETCH_BYTES_MAX)
        # More than the maximum never comes, so nobody waits for it.
        self._min_bytes = min(max(request.min_bytes, 0), self._max_bytes)
        self._reads = [self._open(key, asked) for key, asked in scope.wanted]

    def _open(self, key: PartitionKey, asked: FetchPartition) -> _Read:
        topic = self._door.find_topic(key.name, key.topic_id)
        partition = self._door.find_partition(topic, key.partition)
        if isinstance(partition, ErrorCode):
            return _Read(key, asked, None, partition)
        return _Read(key, asked, partition, epoch_error(partition, asked.current_leader_epoch))

    # -- reading ---------------------------------------------------------------------------------

    def read_memory(self, reads: list[_Read] | None = None) -> None:
        """Answer from memory what memory can answer; mark the rest as cold.

        With `reads`, only those are looked at again; the others stay as they were found.
        """
        reads = self._reads if reads is None else reads
        for read in reads:
            read.records, read.size, read.cold = [], 0, False
        left = self._max_bytes - sum(read.size for read in self._reads)
        for read in reads:
            partition = self._check(read)
            if partition is None:
                continue
            stop_offset = partition.stop_offset(self._committed_only)
            found = partition.read_hot(
                read.asked.fetch_offset,
                stop_offset,
                min(left, read.asked.partition_max_bytes),
                at_least_one=left == self._max_bytes,
            )
            if found is None:
                read.cold = True
            elif found:
                read.records, read.size = found, sum(map(len, found))
                left = max(left - read.size, 0)

    def _check(self, read: _Read) -> Partition | None:
        """The partition, if it can be read at the offset asked for; else the error is noted."""
        if read.error or read.partition is None:
            return None
        if read.partition.closed:
            read.error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if read.key.topic_id is not None:
                read.error = ErrorCode.UNKNOWN_TOPIC_ID
            return None
        try:
            read.partition.check_range(read.asked.fetch_offset)
        except OffsetOutOfRange:
            read.error = ErrorCode.OFFSET_OUT_OF_RANGE
            return None
        return read.partition

    def is_enough(self) -> bool:
        if any(read.cold for read in self._reads):
            return False
        if self._request.max_wait_ms <= 0 or not self._reads:
            return True
        if any(read.error for read in self._reads):
            return True
        return sum(read.size for read in self._reads) >= self._min_bytes

    async def _read_cold(self) -> None:
        """Fetch what memory did not have: together if all of it fits, else within what is left."""
        cold = [read for read in self._reads if read.cold]
        left = self._max_bytes - sum(read.size for read in self._reads)
        if sum(read.asked.partition_max_bytes for read in cold) <= left:
            # The limits cannot interfere, and at most the first batch may exceed its own.
            first = left == self._max_bytes
            await asyncio.gather(
                *(
                    self._read_one(read, left, at_least_one=first and read is cold[0])
                    for read in cold
                )
            )
            return
        for read in cold:
            await self._read_one(read, left, at_least_one=left == self._max_bytes)
            left = max(left - read.size, 0)

    async def _read_one(self, read: _Read, left: int, *, at_least_one: bool) -> None:
        read.cold = False
        if read.partition is None or left <= 0:
            return
        try:
            read.records = await self._door.agent.read(
                read.partition,
                read.asked.fetch_offset,
                bytes_max=min(left, read.asked.partition_max_bytes),
                committed_only=self._committed_only,
                at_least_one=at_least_one,
            )
        except OffsetOutOfRange:
            read.error = ErrorCode.OFFSET_OUT_OF_RANGE
        except (Unavailable, NotFound):
            read.error = ErrorCode.KAFKA_STORAGE_ERROR
        except (Corrupt, DecodeError) as error:
            log.error("a fetch met damage in the store: %s", error)
            read.error = ErrorCode.CORRUPT_MESSAGE
        read.size = sum(map(len, read.records))

    # -- waiting ---------------------------------------------------------------------------------

    async def wait(self) -> Frame:
        """Until there is enough, something is wrong, or the client's patience is over."""
        news = _News()
        if any(read.cold for read in self._reads):
            await self._read_cold()
            if self.is_enough():
                return self.answer()
            for index in range(len(self._reads)):
                news.tell(index)  # something may have come while nobody was watching
        watched = [
            (read.partition, partial(news.tell, index))
            for index, read in enumerate(self._reads)
            if read.partition is not None
        ]
        for partition, tell in watched:
            partition.waiters.add(tell)
        try:
            async with asyncio.timeout(self._request.max_wait_ms / 1000):
                await self._until_enough(news)
        except TimeoutError:
            pass
        finally:
            for partition, tell in watched:
                partition.waiters.discard(tell)
        return self.answer()

    async def _until_enough(self, news: "_News") -> None:
        while True:
            changed = [self._reads[index] for index in await news.wait()]
            self.read_memory(changed)
            if any(read.cold for read in changed):
                await self._read_cold()
            if self.is_enough():
                return

    # -- answering -------------------------------------------------------------------------------

    def answer(self) -> Frame:
        topics: dict[tuple[str | None, object], list[FetchPartitionResult]] = {}
        names: dict[tuple[str | None, object], PartitionKey] = {}
        served = []
        for read in self._reads:
            result = self._result(read)
            if read.size:
                served.append(read.key)
            if self._scope.session is not None and self._is_old_news(read, result):
                continue
            group = (read.key.name, read.key.topic_id)
            topics.setdefault(group, []).append(result)
            names[group] = read.key
        session = self._scope.session
        if session is not None:
            rotate(session, served)
        size_bytes = sum(read.size for read in self._reads)
        throttle_ms = self._door.quotas.fetched_ms(self._caller.header.client_id, size_bytes)
        if throttle_ms:
            self._caller.mute(throttle_ms)
        return tuple(
            encode_response(
                self._caller.header.api_version,
                self._caller.header.correlation_id,
                [
                    FetchTopicResult(names[group].name, names[group].topic_id, results)
                    for group, results in topics.items()
                ],
                session_id=session.session_id if session else 0,
                throttle_ms=throttle_ms,
            )
        )

    def _result(self, read: _Read) -> FetchPartitionResult:
        if read.partition is None:
            return FetchPartitionResult(read.key.partition, read.error)
        machine = read.partition.machine
        if self._caller.header.api_version < VERSION_ZSTD and _has_zstd(read.records):
            read.error = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
            read.records, read.size = [], 0
        return FetchPartitionResult(
            read.key.partition,
            read.error,
            machine.high_watermark,
            machine.offset_stable,
            machine.log_start,
            read.records,
            read.size,
            () if self._committed_only else None,
        )

    def _is_old_news(self, read: _Read, result: FetchPartitionResult) -> bool:
        """Nothing the client does not know; also remembers what it is told now.

        The first answer of a session names every partition and is remembered like the others.
        """
        session = self._scope.session
        assert session is not None
        now = Told(result.high_watermark, result.log_start_offset)
        known = session.told.get(read.key)
        session.told[read.key] = now
        unchanged = known == now and not read.size and not read.error
        return unchanged and self._scope.incremental


def _has_zstd(records: list[Buffer]) -> bool:
    return any(header.codec == CODEC_ZSTD for part in records for _, header in iter_batches(part))
