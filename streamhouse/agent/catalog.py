"""The leader's view of topics and partitions, kept equal to the metadata store by its writer."""

from collections.abc import Mapping
from dataclasses import replace

from streamhouse.agent.partition import Partition
from streamhouse.model.errors import NotFound
from streamhouse.model.ids import TopicId, TopicPartition
from streamhouse.model.topic import Topic, parse_settings


class Catalog:
    def __init__(self) -> None:
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[TopicId, Topic] = {}
        self.partitions: dict[TopicPartition, Partition] = {}
        self._defaults: Mapping[str, str] = {}  # what topics without a setting of their own take

    def add(self, topic: Topic, partitions: list[Partition]) -> None:
        assert len(partitions) == topic.partition_count
        for partition in partitions:
            self.partitions[partition.tp] = partition
        self._put(topic)

    def set_defaults(self, defaults: Mapping[str, str]) -> None:
        """Settings for topics that have none of their own; in force at once."""
        self._defaults = defaults
        for topic in self.topics():
            self._put(topic)

    def remove(self, topic_id: TopicId) -> list[Partition]:
        topic = self._by_id.pop(topic_id)
        del self._by_name[topic.name]
        tps = [TopicPartition(topic_id, number) for number in range(topic.partition_count)]
        return [self.partitions.pop(tp) for tp in tps]

    def replace(self, topic: Topic) -> Topic | None:
        """New settings of an existing topic; None if it is gone.

        Partitions that the store has and we do not lead yet are left to `grow`.
        """
        known = self._by_id.get(topic.topic_id)
        if known is None:
            return None
        return self._put(replace(topic, partition_count=known.partition_count))

    def grow(self, topic: Topic, partitions: list[Partition]) -> Topic | None:
        """Partitions added to a topic; those known stay as they are. None if the topic is gone."""
        known = self._by_id.get(topic.topic_id)
        if known is None:
            return None
        for partition in partitions:
            self.partitions.setdefault(partition.tp, partition)
        count = max(known.partition_count, topic.partition_count)
        return self._put(replace(known, partition_count=count))

    def _put(self, topic: Topic) -> Topic:
        topic = replace(topic, settings=parse_settings({**self._defaults, **topic.config}))
        self._by_name[topic.name] = topic
        self._by_id[topic.topic_id] = topic
        for number in range(topic.partition_count):
            self.partitions[TopicPartition(topic.topic_id, number)].topic = topic
        return topic

    def topics(self) -> list[Topic]:
        return [self._by_name[name] for name in sorted(self._by_name)]

    def find(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def find_id(self, topic_id: TopicId) -> Topic | None:
        return self._by_id.get(topic_id)

    def topic(self, name: str) -> Topic:
        found = self._by_name.get(name)
        if found is None:
            raise NotFound(f"there is no topic {name!r}; create it, or list the topics there are")
        return found

    def partition(self, name: str, number: int) -> Partition:
        topic = self.topic(name)
        found = self.partitions.get(TopicPartition(topic.topic_id, number))
        if found is None:
            raise NotFound(
                f"topic {name!r} has partitions 0 to {topic.partition_count - 1}, not {number}"
            )
        return found
