"""Fetch sessions (KIP-227): the client names only what changed, and so do we. No I/O.

A session remembers, per partition, what the client asked for and what it was last told. The cache
is bounded; the least recently used session makes room, and its client starts a new one.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.fetch import FetchPartition, FetchRequest

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
EPOCH_MAX = 2**31 - 1


class PartitionKey(NamedTuple):
    name: str | None
    topic_id: UUID | None
    partition: int


class Told(NamedTuple):
    """What the client was last told of a partition."""

    high_watermark: int
    log_start: int


@dataclass(slots=True)
class FetchSession:
    session_id: int
    by_id: bool  # topics are named by id (Fetch 13 and up)
    epoch: int = INITIAL_EPOCH
    wanted: "OrderedDict[PartitionKey, FetchPartition]" = field(default_factory=OrderedDict)
    told: dict[PartitionKey, Told] = field(default_factory=dict)


class FetchScope(NamedTuple):
    """Which partitions one request is about, and the session it belongs to, if any."""

    wanted: list[tuple[PartitionKey, FetchPartition]]
    session: FetchSession | None
    incremental: bool  # unchanged partitions are left out of the answer


class FetchSessions:
    def __init__(self, sessions_max: int) -> None:
        assert sessions_max > 0
        self._sessions_max = sessions_max
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._id_last = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def resolve(self, request: FetchRequest, by_id: bool) -> FetchScope | ErrorCode:
        """The partitions to read for this request, or the session error to answer with."""
        named = _named(request)
        if request.session_epoch == FINAL_EPOCH:
            self._sessions.pop(request.session_id, None)
            return FetchScope(named, None, incremental=False)
        if request.session_epoch == INITIAL_EPOCH:
            self._sessions.pop(request.session_id, None)
            return FetchScope(named, self._create(named, by_id), incremental=False)
        session = self._sessions.get(request.session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.by_id != by_id:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        if request.session_epoch != session.epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        self._advance(session, request, named)
        return FetchScope(list(session.wanted.items()), session, incremental=True)

    def _create(
        self, named: list[tuple[PartitionKey, FetchPartition]], by_id: bool
    ) -> FetchSession | None:
        if not named:
            return None
        while len(self._sessions) >= self._sessions_max:
            self._sessions.popitem(last=False)
        self._id_last = self._id_last % EPOCH_MAX + 1
        session = FetchSession(self._id_last, by_id, 1, OrderedDict(named))
        self._sessions[session.session_id] = session
        return session

    def _advance(
        self,
        session: FetchSession,
        request: FetchRequest,
        named: list[tuple[PartitionKey, FetchPartition]],
    ) -> None:
        session.epoch = session.epoch % EPOCH_MAX + 1
        self._sessions.move_to_end(session.session_id)
        for key, partition in named:
            session.wanted[key] = partition
        for topic in request.forgotten:
            for number in topic.partitions:
                key = PartitionKey(topic.name, topic.topic_id, number)
                session.wanted.pop(key, None)
                session.told.pop(key, None)


def rotate(session: FetchSession, served: list[PartitionKey]) -> None:
    """Partitions that just got records go to the end, so that none starves the others."""
    for key in served:
        if key in session.wanted:
            session.wanted.move_to_end(key)


def _named(request: FetchRequest) -> list[tuple[PartitionKey, FetchPartition]]:
    return [
        (PartitionKey(topic.name, topic.topic_id, partition.partition), partition)
        for topic in request.topics
        for partition in topic.partitions
    ]
