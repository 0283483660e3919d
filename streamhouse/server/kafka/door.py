"""What handlers share: the agent, who this broker is, and how topics are found."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from streamhouse.agent.service import AgentService, Partition
from streamhouse.groups.service import GroupService
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.framing import RequestHeader
from streamhouse.model.groups import Refusal
from streamhouse.model.ids import TopicId, TopicPartition
from streamhouse.model.topic import InvalidTopicName, Topic, check_topic_name
from streamhouse.ports.clock import Clock
from streamhouse.ports.disk import Buffer
from streamhouse.server.kafka.broker_settings import BrokerSettings
from streamhouse.server.kafka.fetch_sessions import FetchSessions
from streamhouse.server.kafka.quotas import ClientQuotas

Frame = Sequence[Buffer]  # a whole response, in pieces
NODE_ID = 0  # one node serves everything; a cluster numbers its agents


class Deferred(NamedTuple):
    """An answer for when the WAL has `sequence`; requests behind it are dispatched already."""

    sequence: int
    encode: Callable[[], Frame]
    deadline_ms: int  # from now; then `encode_late` is sent instead
    encode_late: Callable[[], Frame]


class CloseConnection(Exception):
    """The handler cannot answer in the protocol; the connection must go."""


Answer = Frame | Deferred | Awaitable[Frame] | None


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    host: str
    port: int


class Caller(NamedTuple):
    """Who asks: the header of the request, the address the client reached, and its own."""

    header: RequestHeader
    reached: BrokerAddress
    client_host: str
    mute: Callable[[int], None]  # serve no further request of the connection for so many ms


@dataclass(slots=True)
class Door:
    agent: AgentService
    groups: GroupService
    clock: Clock
    sessions: FetchSessions
    cluster_id: str
    advertised: BrokerAddress | None
    rack: str | None
    auto_create_topics: bool
    default_partitions: int
    quotas: ClientQuotas
    broker_settings: BrokerSettings
    topic_defaults: Mapping[str, str]  # topic settings whose default this process chose
    log_dir: str
    connection_idle_ms: int
    partitions_growable: bool

    def address(self, caller: Caller) -> BrokerAddress:
        """The address clients are told: the configured one, or the one they reached."""
        return self.advertised or caller.reached

    def find_topic(self, name: str | None, topic_id: UUID | None) -> Topic | ErrorCode:
        """By id if one was given, else by name; or the code that says why not."""
        catalog = self.agent.catalog
        if name is None:
            found = None if topic_id is None else catalog.find_id(TopicId(topic_id))
            return found or ErrorCode.UNKNOWN_TOPIC_ID
        topic = catalog.find(name)
        if topic is not None:
            return topic
        try:
            check_topic_name(name)
        except InvalidTopicName:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def find_partition(self, topic: Topic | ErrorCode, number: int) -> Partition | ErrorCode:
        if isinstance(topic, ErrorCode):
            return topic
        found = self.agent.catalog.partitions.get(TopicPartition(topic.topic_id, number))
        return found or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def milliseconds(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)


def refusal_code(refusal: Refusal | None) -> ErrorCode:
    """The coordinator's verdict in Kafka's numbers; the names are the same."""
    return ErrorCode.NONE if refusal is None else ErrorCode[refusal.name]


def epoch_error(partition: Partition, current_leader_epoch: int) -> ErrorCode:
    """Compare the epoch a client believes in with ours (KIP-320); -1 means it does not say."""
    if current_leader_epoch < 0 or current_leader_epoch == partition.machine.epoch:
        return ErrorCode.NONE
    if current_leader_epoch < partition.machine.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH


Handler = Callable[[Door, Caller, memoryview], Answer]
SOFTWARE_NAME = re.compile(r"^[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?$")
