"""Starts one client process per order, follows its progress, and watches the broker meanwhile.

Owns: the pipe to the driver and the broker's figures taken between its lines.
Invariant: a driver is gone before `drive` returns or raises.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil  # type: ignore[import-untyped]

from bench.driver import Order
from bench.process import BrokerProcess

OnProgress = Callable[[float], None]
EXIT_S_MAX = 30.0
# Kinds of CPU time in which somebody worked; "steal" is another machine on the same host.
BUSY_KINDS = ("user", "nice", "system", "irq", "softirq", "steal")
ROOT = Path(__file__).resolve().parent.parent


class OrderFailed(Exception):
    """The client could not do its work; the message carries what it said."""


@dataclass(slots=True)
class Outcome:
    """What the client measured, and what the broker used in that time."""

    figures: dict[str, float]
    broker_cpu_s: float = 0.0
    others_cores: float = 0.0  # used meanwhile by processes that are no part of the measurement
    rss_samples: list[tuple[float, int]] = field(default_factory=list)  # (share done, bytes)


def drive(order: Order, broker: BrokerProcess, on_progress: OnProgress) -> Outcome:
    """Run one order to its end. Raises OrderFailed, or BrokerFailed if the broker is gone."""
    cpu_before_s, others = broker.cpu_s(), OtherUse()
    samples: list[tuple[float, int]] = []

    def on_line(done: float) -> None:
        samples.append((done, broker.rss_bytes()))
        on_progress(done)

    with tempfile.TemporaryFile("w+") as errors:
        process = _spawn(order, errors)
        try:
            figures = _follow(process, errors, on_line)
        except OrderFailed:
            broker.check_alive()  # its end explains the failure better than the client can
            raise
        finally:
            _end(process)
    broker_cpu_s = broker.cpu_s() - cpu_before_s
    return Outcome(figures, broker_cpu_s, others.cores(broker_cpu_s), samples)


class OtherUse:
    """CPU taken by everything but the broker, the client and this process, since it was made."""

    def __init__(self) -> None:
        self._before_s = self._unaccounted_s()
        self._began_s = time.monotonic()

    def cores(self, broker_cpu_s: float) -> float:
        used_s = self._unaccounted_s() - self._before_s - broker_cpu_s
        return max(0.0, used_s / (time.monotonic() - self._began_s))

    def _unaccounted_s(self) -> float:
        machine = psutil.cpu_times()
        busy_s = sum(getattr(machine, name, 0.0) for name in BUSY_KINDS)
        # A client is a child that has been waited for, so its time is in the children's.
        for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
            own = resource.getrusage(whose)
            busy_s -= own.ru_utime + own.ru_stime
        return float(busy_s)


class ArmedClient:
    """A client that waits, connected to nothing, until the broker is about to be started."""

    def __init__(self, order: Order) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in `close`
        self._process = _spawn(order, self._errors)
        assert self._process.stdout is not None
        if "armed" not in self._process.stdout.readline():
            raise OrderFailed(_text(self._errors))

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def figures(self) -> dict[str, float]:
        return _follow(self._process, self._errors, lambda _done: None)

    def close(self) -> None:
        _end(self._process)
        self._errors.close()


def _spawn(order: Order, errors: IO[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bench.driver", order.to_json()],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
    )


def _follow(
    process: subprocess.Popen[str], errors: IO[str], on_line: OnProgress
) -> dict[str, float]:
    assert process.stdout is not None
    for line in process.stdout:
        said = json.loads(line)
        if "result" in said:
            result: dict[str, float] = said["result"]
            process.wait(EXIT_S_MAX)
            return result
        if "done" in said:
            on_line(said["done"])
    raise OrderFailed(_text(errors))


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _text(errors: IO[str]) -> str:
    time.sleep(0.1)  # the process may still be writing its last lines
    errors.seek(0)
    return "\n".join(errors.read().splitlines()[-12:])
