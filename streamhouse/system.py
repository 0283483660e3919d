"""The real clock, ids and threads: the only place where the process touches them."""

import asyncio
import ctypes
import gc
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

WORKER_THREADS = 2
MALLOC_MMAP_BYTES = 32 * 1024 * 1024
MALLOC_TRIM_BYTES = 512 * 1024 * 1024
SWITCH_INTERVAL_SECONDS = 0.0005
GC_THRESHOLDS = (20_000, 20, 50)


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class SystemIds:
    def nonce(self) -> str:
        return os.urandom(8).hex()

    def uuid(self) -> bytes:
        raw = bytearray(os.urandom(16))
        raw[6] = raw[6] & 0x0F | 0x40  # version 4
        raw[8] = raw[8] & 0x3F | 0x80
        return bytes(raw)


class ThreadWorkers:
    """CPU work that releases the interpreter lock (compression, checksums, file reads)."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(WORKER_THREADS, thread_name_prefix="worker")

    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *args)

    def close(self) -> None:
        self._pool.shutdown(wait=True)


def tune_process() -> None:
    """Settings of the whole process, measured to matter (docs/performance.md).

    glibc returns buffers of a megabyte to the kernel at once and faults them in again on the next
    use; larger thresholds keep them. The WAL's thread should get the interpreter soon after its
    fdatasync, so threads switch ten times as often as by default. Requests make few cycles, so the
    collector, which stops everything while it looks, runs less often.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    gc.set_threshold(*GC_THRESHOLDS)
    if sys.platform == "linux":
        try:
            libc = ctypes.CDLL("libc.so.6")
            m_trim_threshold, m_mmap_threshold = -1, -3
            libc.mallopt(m_mmap_threshold, MALLOC_MMAP_BYTES)
            libc.mallopt(m_trim_threshold, MALLOC_TRIM_BYTES)
        except (OSError, AttributeError):
            return  # another C library: only slower


def settle_heap() -> None:
    """What was made at start stays; the collector need not look at it again."""
    gc.collect()
    gc.freeze()
