"""Consumer groups as the machine, the store and the doors name them.

A group's protocol type, metadata and assignments are its members' own affair: opaque here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum

NO_GENERATION = -1  # commits of consumers that assign partitions themselves, and of admin tools


class GroupState(StrEnum):
    """Named as Kafka shows them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Refusal(Enum):
    """Why a coordinator says no, under Kafka's own names; the Kafka door has the numbers."""

    INVALID_GROUP_ID = "the group has no name"
    INVALID_SESSION_TIMEOUT = "the session timeout is outside the allowed range"
    UNKNOWN_MEMBER_ID = "the group does not know this member"
    ILLEGAL_GENERATION = "the group has another generation"
    REBALANCE_IN_PROGRESS = "the group is rebalancing"
    INCONSISTENT_GROUP_PROTOCOL = "the members have no protocol in common"
    MEMBER_ID_REQUIRED = "join again with the member id that was given"
    GROUP_MAX_SIZE_REACHED = "the group has as many members as are allowed"
    FENCED_INSTANCE_ID = "another member has taken over this instance id"
    COORDINATOR_NOT_AVAILABLE = "the group cannot be served at the moment"
    GROUP_ID_NOT_FOUND = "there is no such group"
    NON_EMPTY_GROUP = "the group has members"
    GROUP_SUBSCRIBED_TO_TOPIC = "the group reads this topic"


@dataclass(frozen=True, slots=True)
class Protocol:
    """One way of assigning partitions that a member offers, with what the leader must know."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinRequest:
    member_id: str  # "" if the group is to choose one
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]  # the preferred one first
    needs_known_id: bool = True  # from version 4 on a dynamic member joins in two steps
    skips_assignment: bool = True  # from version 9 on a leader can be told not to assign (KIP-814)


@dataclass(frozen=True, slots=True)
class JoinedMember:
    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    refusal: Refusal | None
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncRequest:
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    refusal: Refusal | None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class Identity:
    """How a request names a member: by id, by instance id (KIP-345), or by both."""

    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A member as it is stored and described."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group as it is stored: enough to go on after a restart without a rebalance."""

    group_id: str
    state: GroupState
    generation: int
    protocol_type: str
    protocol_name: str | None
    leader: str | None
    empty_since_ms: int | None  # wall clock; None while it has members
    members: tuple[MemberRow, ...]  # in the order of joining


@dataclass(frozen=True, slots=True)
class DescribedMember:
    row: MemberRow
    metadata: bytes  # of the protocol in use; empty while there is none
    assignment: bytes
    assigned: tuple[tuple[str, int], ...]  # (topic, partition), if the group is of consumers


@dataclass(frozen=True, slots=True)
class GroupDescription:
    group_id: str
    state: GroupState
    generation: int
    protocol_type: str
    protocol_name: str
    members: tuple[DescribedMember, ...]


@dataclass(frozen=True, slots=True)
class GroupListing:
    group_id: str
    state: GroupState
    protocol_type: str
    member_count: int
