"""From WAL sequence numbers to watermarks and answers.

Appends are noted in order; when the WAL reports a sequence number durable, the partitions' high
watermarks rise, their readers wake, and the requests that waited for that number are released: one
call per request, never one per record.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from streamhouse.agent.partition import Partition

Released = Callable[[BaseException | None], None]  # called with what made the WAL fail, or None


class Durability:
    def __init__(self) -> None:
        self.sequence_durable = 0
        self._appended: deque[tuple[int, Partition, int]] = deque()
        self._waiting: deque[tuple[int, Released]] = deque()
        self._failure: BaseException | None = None

    def note(self, sequence: int, partition: Partition, end: int) -> None:
        self._appended.append((sequence, partition, end))

    def call_when(self, sequence: int, released: Released) -> bool:
        """Call `released` once `sequence` is durable; False if it is already (no call follows)."""
        if sequence <= self.sequence_durable:
            return False
        if self._failure is not None:
            released(self._failure)
            return True
        assert not self._waiting or self._waiting[-1][0] <= sequence
        self._waiting.append((sequence, released))
        return True

    async def wait(self, sequence: int) -> None:
        """Return once `sequence` is durable. Raises what made the WAL fail."""
        done = asyncio.get_running_loop().create_future()

        def released(error: BaseException | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        if self.call_when(sequence, released):
            await done

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
            waiting.popleft()[1](None)

    def on_failed(self, error: BaseException) -> None:
        """Nothing more becomes durable: nobody is answered with success."""
        self._failure = error
        while self._waiting:
            self._waiting.popleft()[1](error)
