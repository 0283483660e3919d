"""From WAL sequence numbers to watermarks and answers.

Appends are noted in order; when the WAL reports a sequence number durable, the partitions' high
watermarks rise, their readers wake, and the requests that waited for that number are released: one
future per request, never one per record.
"""

import asyncio
from collections import deque

from streamhouse.agent.partition import Partition


class Durability:
    def __init__(self) -> None:
        self.sequence_durable = 0
        self._appended: deque[tuple[int, Partition, int]] = deque()
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._failure: BaseException | None = None

    def note(self, sequence: int, partition: Partition, end: int) -> None:
        self._appended.append((sequence, partition, end))

    def when(self, sequence: int) -> "asyncio.Future[None] | None":
        """A future that is done once `sequence` is durable, or None if it is already."""
        if sequence <= self.sequence_durable:
            return None
        future = asyncio.get_running_loop().create_future()
        if self._failure is not None:
            future.set_exception(self._failure)
            return future
        assert not self._waiting or self._waiting[-1][0] <= sequence
        self._waiting.append((sequence, future))
        return future

    def on_durable(self, sequence: int) -> None:
        assert sequence >= self.sequence_durable
        self.sequence_durable = sequence
        raised: dict[Partition, int] = {}
        appended = self._appended
        while appended and appended[0][0] <= sequence:
            _, partition, end = appended.popleft()
            raised[partition] = end
        for partition, end in raised.items():
            if partition.closed:
                continue
            partition.machine.on_durable(end)
            partition.tail.offset_durable = end
            if partition.waiters:
                partition.wake()
        waiting = self._waiting
        while waiting and waiting[0][0] <= sequence:
            _, future = waiting.popleft()
            if not future.done():
                future.set_result(None)

    def on_failed(self, error: BaseException) -> None:
        """Nothing more becomes durable: nobody is answered with success."""
        self._failure = error
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(error)
        self._waiting.clear()
