"""Everything that differs between seeds: sizes, ages, rates. Drawn once, from the seed alone."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from streamhouse.agent import merge, tail
from streamhouse.wal.recovery import WalOptions

KIB = 1024


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    topics: int
    partitions_max: int
    producers: int
    readers: int
    stormy_s: float  # how long faults go on
    send_gap_s: float  # mean time between batches of one producer
    batch_bytes_max: int
    wal: WalOptions
    segment_max_size: int
    segment_max_age_ms: int
    segment_bytes_max: int
    chunk_bytes: int
    chunk_batches: int
    tail_bytes_max: int
    cache_bytes_max: int
    merge_segments_min: int
    merge_bytes_small: int
    retention_check_ms: int
    manifest_ms: int
    delete_grace_ms: int
    delay_s_max: float  # of one port call in bad weather
    crash_steps_mean: int  # port calls a process lives, on average; 0: it is never hit there
    gust_s_mean: float  # time between two changes of the weather


def draw_plan(seed: int) -> Plan:
    chance = random.Random(f"plan {seed}")
    file_kib = chance.choice((16, 24, 48))
    grace_ms = chance.choice((1_500, 4_000, 15_000))
    segment_max_size = chance.choice((2, 6, 20)) * KIB
    return Plan(
        seed=seed,
        topics=chance.randint(1, 3),
        partitions_max=chance.choice((1, 2, 3)),
        producers=chance.randint(2, 4),
        readers=chance.randint(1, 3),
        stormy_s=chance.choice((8.0, 15.0, 30.0)),
        send_gap_s=chance.choice((0.05, 0.1, 0.2)),
        batch_bytes_max=chance.choice((300, 1_500, 5_000)),
        wal=WalOptions(
            file_bytes=file_kib * KIB,
            bytes_max=file_kib * KIB * chance.randint(3, 8),
            group_bytes_max=chance.choice((2, 8, 64)) * KIB,
            batch_max_age_ms=chance.choice((1, 10, 50)),
            spare_files_max=chance.randint(1, 3),
            prepare_retry_ms=chance.choice((50, 500)),
        ),
        segment_max_size=segment_max_size,
        segment_max_age_ms=chance.choice((300, 1_000, 4_000)),
        segment_bytes_max=chance.choice((4, 20)) * segment_max_size,
        chunk_bytes=chance.choice((1, 3, 12)) * KIB,
        chunk_batches=chance.choice((3, 10, 100)),
        tail_bytes_max=chance.choice((1, 8, 64)) * KIB,
        cache_bytes_max=chance.choice((1, 16, 256)) * KIB,
        merge_segments_min=chance.choice((2, 2, 4)),
        merge_bytes_small=chance.choice((4, 16, 64)) * KIB,
        retention_check_ms=chance.choice((300, 1_000, 4_000)),
        manifest_ms=chance.choice((400, 2_000, 6_000)),
        delete_grace_ms=grace_ms,
        # A roll or merge may take up to about 25 delays; the grace must outlast it.
        delay_s_max=grace_ms / 1000 / 40,
        crash_steps_mean=chance.choice((0, 60, 250, 1_000)),
        gust_s_mean=chance.choice((0.7, 2.0, 5.0)),
    )


@contextmanager
def small_limits(plan: Plan) -> Iterator[None]:
    """Let chunks be small while a world runs: the process has one size for all of them."""
    changes: list[tuple[Any, str, int]] = [
        (tail, "CHUNK_BYTES_TARGET", plan.chunk_bytes),
        (tail, "CHUNK_BATCHES_MAX", plan.chunk_batches),
        (merge, "CHUNK_BYTES_TARGET", plan.chunk_bytes),
    ]
    before = [getattr(module, name) for module, name, _ in changes]
    for module, name, value in changes:
        setattr(module, name, value)
    try:
        yield
    finally:
        for (module, name, _), value in zip(changes, before, strict=True):
            setattr(module, name, value)
