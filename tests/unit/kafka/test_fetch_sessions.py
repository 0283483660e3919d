"""Fetch sessions (KIP-227)."""

from collections.abc import Sequence

from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from streamhouse.server.kafka.fetch_sessions import FetchScope, FetchSessions, rotate


def request(
    session_id: int, epoch: int, numbers: Sequence[int] = (), forgotten: Sequence[int] = ()
) -> FetchRequest:
    partitions = [FetchPartition(number, -1, 0, -1, -1, 100) for number in numbers]
    gone = [ForgottenTopic("t", None, list(forgotten))] if forgotten else []
    named = [FetchTopic("t", None, partitions)] if partitions else []
    return FetchRequest(-1, 0, 1, 1000, 0, session_id, epoch, named, gone, "")


def resolved(sessions: FetchSessions, asked: FetchRequest, by_id: bool = False) -> FetchScope:
    scope = sessions.resolve(asked, by_id)
    assert isinstance(scope, FetchScope)
    return scope


def numbers(scope: FetchScope) -> list[int]:
    return [key.partition for key, _ in scope.wanted]


def test_a_session_remembers_what_was_asked() -> None:
    sessions = FetchSessions(10)
    first = resolved(sessions, request(0, 0, [0, 1]))
    assert first.session is not None
    assert not first.incremental
    second = resolved(sessions, request(first.session.session_id, 1, [2], forgotten=[0]))
    assert (numbers(second), second.incremental) == ([1, 2], True)


def test_epochs_must_follow() -> None:
    sessions = FetchSessions(10)
    session = resolved(sessions, request(0, 0, [0])).session
    assert session is not None
    wrong = sessions.resolve(request(session.session_id, 2), by_id=False)
    assert wrong == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert numbers(resolved(sessions, request(session.session_id, 1))) == [0]
    assert numbers(resolved(sessions, request(session.session_id, 2))) == [0]


def test_an_unknown_session_and_a_change_to_topic_ids_are_told() -> None:
    sessions = FetchSessions(10)
    assert sessions.resolve(request(5, 1), by_id=False) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    session = resolved(sessions, request(0, 0, [0])).session
    assert session is not None
    asked = request(session.session_id, 1)
    assert sessions.resolve(asked, by_id=True) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_the_final_epoch_closes_the_session() -> None:
    sessions = FetchSessions(10)
    session = resolved(sessions, request(0, 0, [0])).session
    assert session is not None
    last = resolved(sessions, request(session.session_id, -1, [0]))
    assert (last.session, len(sessions)) == (None, 0)


def test_the_cache_is_bounded_and_drops_the_least_used() -> None:
    sessions = FetchSessions(2)
    a = resolved(sessions, request(0, 0, [0])).session
    b = resolved(sessions, request(0, 0, [0])).session
    assert a is not None
    assert b is not None
    resolved(sessions, request(a.session_id, 1))
    resolved(sessions, request(0, 0, [0]))
    assert len(sessions) == 2
    assert sessions.resolve(request(b.session_id, 1), by_id=False) == (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    )


def test_served_partitions_go_to_the_end() -> None:
    """Goal: a hot partition does not starve the others."""
    sessions = FetchSessions(2)
    scope = resolved(sessions, request(0, 0, [0, 1, 2]))
    assert scope.session is not None
    rotate(scope.session, [scope.wanted[0][0]])
    assert numbers(resolved(sessions, request(scope.session.session_id, 1))) == [1, 2, 0]
