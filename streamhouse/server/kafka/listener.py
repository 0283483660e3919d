"""The Kafka listener: accepts connections within limits, closes idle ones, stops with grace."""

import asyncio
import logging
import socket

from streamhouse.ports.clock import Clock
from streamhouse.server.kafka.connection import KafkaConnection
from streamhouse.server.kafka.door import Door

log = logging.getLogger(__name__)

SWEEP_SECONDS = 1.0
WRITE_BYTES_HIGH = 4 * 1024 * 1024


class KafkaListener:
    def __init__(self, door: Door, clock: Clock, *, connections_max: int, idle_ms_max: int) -> None:
        self.door = door
        self._clock = clock
        self._connections_max = connections_max
        self._idle_seconds_max = idle_ms_max / 1000
        self._connections: set[KafkaConnection] = set()
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self.requests = 0
        self.refusals = 0
        self.connections_total = 0

    @property
    def connections(self) -> int:
        return len(self._connections)

    @property
    def throttled(self) -> int:
        """Requests answered with a pause because of a quota."""
        return self.door.quotas.throttled

    def now(self) -> float:
        return self._clock.monotonic()

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; return the address (with the port the system chose, if it was 0)."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: KafkaConnection(self), host, port, backlog=1024
        )
        self._sweeper = asyncio.create_task(self._sweep())
        bound = self._server.sockets[0].getsockname()
        return bound[0], bound[1]

    async def stop(self) -> None:
        """Accept nothing more and close what is open."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.close()

    def admit(self, connection: KafkaConnection, transport: asyncio.Transport) -> bool:
        if len(self._connections) >= self._connections_max:
            log.warning("refusing a Kafka connection: %d are open", len(self._connections))
            return False
        self._connections.add(connection)
        self.connections_total += 1
        transport.set_write_buffer_limits(high=WRITE_BYTES_HIGH)
        raw = transport.get_extra_info("socket")
        if raw is not None:
            # asyncio sets this only for sockets made with the TCP protocol number.
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return True

    def forget(self, connection: KafkaConnection) -> None:
        self._connections.discard(connection)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = self.now()
            for connection in list(self._connections):
                connection.expire(now)
                if now - connection.active_at > self._idle_seconds_max:
                    connection.close()
