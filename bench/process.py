"""A broker as an operating-system process: started, watched, measured, and always ended.

Owns: the process handle, its log file, and the figures the kernel keeps about it (CPU, memory).
Must not know: which broker it is, or what is sent to it.
Invariant: `running` never leaves a process behind, whichever way its block is left.
"""

import contextlib
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import psutil  # type: ignore[import-untyped]

READY_S_MAX = 90.0
STOP_S_MAX = 60.0
POLL_S = 0.005
LOG_LINES_SHOWN = 25
PORT_MIN, PORT_MAX = 15_000, 30_000


class BrokerFailed(Exception):
    """It did not start, or ended while it was needed. The message carries its last lines."""


@dataclass(frozen=True, slots=True)
class Launch:
    """All that is needed to start one broker once."""

    command: Sequence[str]
    env: Mapping[str, str]
    directory: Path
    address: str
    is_ready: Callable[[], bool]

    @property
    def log_path(self) -> Path:
        return self.directory.parent / f"{self.directory.name}.log"


class BrokerProcess:
    """One started broker. CPU and memory are summed over it and its children."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._log = launch.log_path.open("ab")
        self.started_at_s = time.monotonic()
        # Its own session: an interrupt at the terminal reaches the harness alone, which then
        # stops the broker in order.
        self._popen = subprocess.Popen(
            launch.command,
            env=dict(launch.env),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._process = psutil.Process(self._popen.pid)

    @property
    def address(self) -> str:
        return self._launch.address

    @property
    def directory(self) -> Path:
        return self._launch.directory

    def wait_ready(self, timeout_s: float = READY_S_MAX) -> float:
        """Return the seconds from the start of the process until it was ready."""
        deadline_s = self.started_at_s + timeout_s
        while not self._launch.is_ready():
            self.check_alive()
            if time.monotonic() > deadline_s:
                raise BrokerFailed(f"not ready after {timeout_s:.0f} s\n{self.log_tail()}")
            time.sleep(POLL_S)
        return time.monotonic() - self.started_at_s

    def check_alive(self) -> None:
        if self._popen.poll() is not None:
            raise BrokerFailed(f"ended with code {self._popen.returncode}\n{self.log_tail()}")

    def log_tail(self) -> str:
        lines = self._launch.log_path.read_text(errors="replace").splitlines()
        return "\n".join(lines[-LOG_LINES_SHOWN:])

    def cpu_s(self) -> float:
        """CPU seconds used since the start, user and system."""
        return sum(self._each(lambda p: p.cpu_times().user + p.cpu_times().system))

    def rss_bytes(self) -> int:
        return int(sum(self._each(lambda p: p.memory_info().rss)))

    def stop(self) -> float:
        """Ask for a graceful end and wait for it. Returns the seconds it took."""
        began_s = time.monotonic()
        self._popen.send_signal(signal.SIGTERM)
        try:
            self._popen.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerFailed(
                f"did not stop within {STOP_S_MAX:.0f} s\n{self.log_tail()}"
            ) from None
        self._log.close()
        return time.monotonic() - began_s

    def kill(self) -> None:
        """End it at once, as a power cut would; safe to call on one that has ended."""
        for process in self._family():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._popen.wait()
        self._log.close()

    def _family(self) -> list[psutil.Process]:
        try:
            return [self._process, *self._process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _each(self, figure: Callable[[psutil.Process], float]) -> list[float]:
        figures: list[float] = []
        for process in self._family():
            with contextlib.suppress(psutil.NoSuchProcess):
                figures.append(figure(process))
        return figures


@contextlib.contextmanager
def running(launch: Launch) -> Iterator[BrokerProcess]:
    """Start a broker and wait until it is ready; it is gone when the block ends."""
    broker = BrokerProcess(launch)
    try:
        broker.wait_ready()
        yield broker
        broker.stop()
    finally:
        broker.kill()


def free_port() -> int:
    """A port that was free a moment ago. Both brokers get theirs this way.

    Taken from below the range of outgoing connections: a client that tries again and again to
    connect to a free port inside that range is sooner or later connected to itself.
    """
    source = random.SystemRandom()
    while True:
        port = source.randrange(PORT_MIN, PORT_MAX)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def accepts(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def end_on_signals() -> None:
    """Turn SIGTERM and SIGHUP into an ordinary exit, so that brokers are stopped by `finally`."""

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGHUP, leave)
