"""One Kafka connection: requests in, answers out in the same order.

Produce requests overlap: each is dispatched as it arrives, so offsets follow the order of sending,
and their waits for the disk run together. Any other request that has to wait holds back the ones
behind it, as Kafka does. Every queue is bounded: a connection that sends faster than it is served,
or does not read its answers, is not read from until it catches up.
"""

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable
from typing import TYPE_CHECKING, cast

from streamhouse.kafka_proto.apis import UnsupportedRequest
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.framing import parse_request_header
from streamhouse.model.errors import DecodeError
from streamhouse.model.limits import REQUESTS_IN_FLIGHT_MAX
from streamhouse.ports.disk import Buffer
from streamhouse.server.kafka.door import (
    BrokerAddress,
    Caller,
    CloseConnection,
    Deferred,
    Frame,
)
from streamhouse.server.kafka.frames import FrameReader
from streamhouse.server.kafka.handlers import api_versions
from streamhouse.server.kafka.handlers.table import HANDLERS

if TYPE_CHECKING:
    from streamhouse.server.kafka.listener import KafkaListener

log = logging.getLogger(__name__)

SLOW_DOWN_SECONDS = 0.005


class _Slot:
    """The place of one answer in the order of answers."""

    __slots__ = ("deadline", "deferred", "frame")

    def __init__(self) -> None:
        self.frame: Frame | None = None
        self.deferred: Deferred | None = None
        self.deadline = 0.0


class KafkaConnection(asyncio.BufferedProtocol):
    def __init__(self, listener: "KafkaListener") -> None:
        self._listener = listener
        self._door = listener.door
        self._frames = FrameReader()
        self._waiting: deque[memoryview] = deque()  # frames behind a request that waits
        self._slots: deque[_Slot] = deque()
        self._task: asyncio.Task[None] | None = None
        self._paused = False
        self._write_paused = False
        self._flush_planned = False
        self._closed = False
        self._reached = BrokerAddress("127.0.0.1", 0)
        self._client_host = ""
        self._transport: asyncio.Transport | None = None
        self._resume_timer: asyncio.TimerHandle | None = None
        self._muted_until = 0.0  # by the listener's clock
        self.active_at = 0.0

    # -- the transport's calls -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's, so no isinstance here.
        self._transport = cast(asyncio.Transport, transport)
        if not self._listener.admit(self, self._transport):
            self._closed = True
            self._transport.abort()
            return
        host, port = transport.get_extra_info("sockname")[:2]
        self._reached = BrokerAddress(host, port)
        peer = transport.get_extra_info("peername")
        self._client_host = f"/{peer[0]}" if peer else ""  # written as Kafka writes it
        self.active_at = self._listener.now()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        self._waiting.clear()
        self._slots.clear()
        if self._task is not None:
            self._task.cancel()
        if self._resume_timer is not None:
            self._resume_timer.cancel()
        self._listener.forget(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._frames.received(nbytes):
                self._waiting.append(frame)
        except DecodeError as error:
            self._refuse(str(error))
            return
        self._pump()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self._pump()

    # -- requests --------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Dispatch what can be dispatched, then read on or not, by how full we are."""
        while self._waiting and self._may_dispatch():
            self._dispatch(self._waiting.popleft())
        if self._closed or self._transport is None:
            return
        full = bool(self._waiting) or len(self._slots) >= REQUESTS_IN_FLIGHT_MAX
        if full and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        elif not full and self._paused:
            self._paused = False
            self._transport.resume_reading()

    def _may_dispatch(self) -> bool:
        if self._closed or self._task is not None or self._write_paused:
            return False
        if len(self._slots) >= REQUESTS_IN_FLIGHT_MAX:
            return False
        if self._muted_until:
            left = self._muted_until - self._listener.now()
            if left > 0:
                self._look_again_in(left)
                return False
            self._muted_until = 0.0
        if self._door.agent.must_slow_down():
            self._look_again_in(SLOW_DOWN_SECONDS)
            return False
        return True

    def _mute(self, pause_ms: int) -> None:
        """Serve no further request for a while: the client is above its quota (KIP-219)."""
        until = self._listener.now() + pause_ms / 1000
        self._muted_until = max(self._muted_until, until)

    def _look_again_in(self, seconds: float) -> None:
        if self._resume_timer is None:
            loop = asyncio.get_running_loop()
            self._resume_timer = loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._resume_timer = None
        self._pump()

    def _dispatch(self, frame: memoryview) -> None:
        self.active_at = self._listener.now()
        self._listener.requests += 1
        try:
            header = parse_request_header(frame)
            caller = Caller(header, self._reached, self._client_host, self._mute)
            answer = HANDLERS[header.api_key](self._door, caller, frame)
        except UnsupportedRequest as error:
            if error.is_api_versions:
                code = ErrorCode.UNSUPPORTED_VERSION
                self._finish(_Slot(), api_versions.answer(0, error.correlation_id, code), new=True)
            else:
                self._refuse(str(error))
            return
        except (DecodeError, CloseConnection) as error:
            self._refuse(str(error))
            return
        except Exception:
            log.exception("a Kafka request failed unexpectedly; its connection is closed")
            self._abort()
            return
        if answer is None:
            return
        if isinstance(answer, Deferred):
            self._defer(answer)
        elif inspect.isawaitable(answer):
            slot = _Slot()
            self._slots.append(slot)
            self._task = asyncio.ensure_future(self._complete(slot, answer))
        else:
            self._finish(_Slot(), answer, new=True)

    def _defer(self, answer: Deferred) -> None:
        slot = _Slot()
        slot.deferred = answer
        slot.deadline = self.active_at + answer.deadline_ms / 1000
        self._slots.append(slot)
        agent = self._door.agent
        if not agent.call_when_durable(answer.sequence, lambda error: self._release(slot, error)):
            self._release(slot, None)

    def _release(self, slot: _Slot, error: BaseException | None) -> None:
        """The slot's records are durable. Answers released together are sent together."""
        if self._closed or slot.deferred is None:
            return
        if error is not None:  # the WAL failed: no success may be told
            self._abort()
            return
        slot.frame, slot.deferred = slot.deferred.encode(), None
        if not self._flush_planned:
            self._flush_planned = True
            asyncio.get_running_loop().call_soon(self._flush)

    async def _complete(self, slot: _Slot, answer: "Awaitable[Frame]") -> None:
        try:
            frame = await answer
        except asyncio.CancelledError:
            raise
        except (DecodeError, CloseConnection) as error:
            self._refuse(str(error))
            return
        except Exception:
            log.exception("a Kafka request failed unexpectedly; its connection is closed")
            self._abort()
            return
        self._task = None
        self._finish(slot, frame)
        self._pump()

    def expire(self, now: float) -> None:
        """Answer produce requests whose time is up; called by the listener now and then."""
        for slot in list(self._slots):
            if slot.deferred is not None and slot.frame is None and now >= slot.deadline:
                self._finish(slot, slot.deferred.encode_late())

    # -- answers ---------------------------------------------------------------------------------

    def _finish(self, slot: _Slot, frame: Frame, *, new: bool = False) -> None:
        slot.frame, slot.deferred = frame, None
        if new:
            self._slots.append(slot)
        self._send_ready()

    def _flush(self) -> None:
        self._flush_planned = False
        self._send_ready()
        if self._waiting or self._paused:
            self._pump()

    def _send_ready(self) -> None:
        if self._closed or self._transport is None:
            return
        ready: list[Buffer] = []
        while self._slots and self._slots[0].frame is not None:
            ready += self._slots.popleft().frame or ()
        if ready:
            self._transport.writelines(ready)

    def _refuse(self, why: str) -> None:
        log.debug("closing a Kafka connection: %s", why)
        self._listener.refusals += 1
        self._abort()

    def _abort(self) -> None:
        self._closed = True
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
