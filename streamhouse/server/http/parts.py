"""What the HTTP door is given by the composition root, and what it counts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from streamhouse.agent.service import AgentService
from streamhouse.groups.service import GroupService
from streamhouse.model.settings import Settings
from streamhouse.ports.clock import Clock
from streamhouse.ports.metadata import MetadataStore
from streamhouse.server.health import Health


class HttpCounters:
    """Plain numbers, read at scrape time."""

    def __init__(self) -> None:
        self.requests_by_status: dict[int, int] = {}  # at most one entry per status code
        self.requests_in_flight = 0
        self.streams_open = 0

    def count(self, status: int) -> None:
        self.requests_by_status[status] = self.requests_by_status.get(status, 0) + 1


@dataclass(frozen=True, slots=True)
class AgentIdentity:
    """The process as it names itself."""

    agent_id: str
    version: str
    started_ms: int
    zone: str = ""


@dataclass(frozen=True, slots=True)
class HttpParts:
    agent: AgentService
    groups: GroupService
    metadata: MetadataStore
    settings: Settings
    identity: AgentIdentity
    clock: Clock
    health: Callable[[], Health]
    render_metrics: Callable[[], bytes]
    endpoints: Callable[[], Mapping[str, str]]  # door -> host:port, as bound
    counters: HttpCounters = field(default_factory=HttpCounters)
