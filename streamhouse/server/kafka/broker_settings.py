"""The broker's settings that were changed while it runs: stored, and in force at once."""

from collections.abc import Mapping

from streamhouse.agent.service import AgentService
from streamhouse.model.broker_settings import topic_defaults_of
from streamhouse.ports.metadata import BrokerConfigStore

EVERY_BROKER = ""


class BrokerSettings:
    def __init__(self, store: BrokerConfigStore, agent: AgentService) -> None:
        self._store = store
        self._agent = agent
        self._changed: Mapping[str, Mapping[str, str]] = {}

    async def load(self) -> None:
        """Make what the store says the truth here; also before the agent starts."""
        self._changed = await self._store.broker_configs()
        self._agent.set_topic_defaults(topic_defaults_of(self.in_force()))

    async def change(self, broker: str, changes: Mapping[str, str | None]) -> None:
        """Change the named settings of one broker or, with the empty name, of all."""
        try:
            await self._store.change_broker_config(broker, changes)
        finally:
            await self.load()  # also when the answer was lost: the changes may be stored

    def of(self, broker: str) -> Mapping[str, str]:
        return self._changed.get(broker, {})

    def in_force(self) -> dict[str, str]:
        """All changed settings; those of this broker win over those of all brokers."""
        own = {
            k: v for broker, config in self._changed.items() if broker for k, v in config.items()
        }
        return {**self.of(EVERY_BROKER), **own}
