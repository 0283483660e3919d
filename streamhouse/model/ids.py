"""Identities. A topic is known by its id; the name is only what people call it."""

from typing import NamedTuple, NewType
from uuid import UUID

TopicId = NewType("TopicId", UUID)
ObjectKey = NewType("ObjectKey", str)

NO_PRODUCER_ID = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1


class TopicPartition(NamedTuple):
    """One ordered log: partition `partition` of the topic with this id."""

    topic_id: TopicId
    partition: int
