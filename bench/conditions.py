"""The conditions of a run: without them its numbers mean nothing.

Owns: what is asked of the machine. Names no host, user or path.
"""

import datetime
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import confluent_kafka
import psutil  # type: ignore[import-untyped]

from bench.workloads import Broker, Sizes

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Conditions:
    date: str
    cpu: str
    cores: int
    memory_gib: float
    load_before: float
    filesystem: str
    system: str
    python: str
    client: str
    brokers: dict[str, str]
    sizes: str
    linger_ms: int
    repeat: int
    revision: str

    def as_dict(self) -> dict[str, object]:
        return asdict(self)

    def lines(self) -> list[str]:
        """For a reader of the table."""
        return [
            f"{self.date}, revision {self.revision}, {self.repeat} round(s), "
            "brokers one after the other on loopback",
            f"{self.cores} cores ({self.cpu}), {self.memory_gib:.0f} GiB, {self.system}, "
            f"data on {self.filesystem}, load before the run {self.load_before:.1f}",
            f"client: {self.client}, acks=all, no compression, linger {self.linger_ms} ms "
            "(0 for single requests and latency), JSON-like values half random",
            f"work: {self.sizes}; a warm-up, not counted, before all but starts and restart; "
            "page cache left as it is, also for the restart",
            *(f"{name}: {text}" for name, text in self.brokers.items()),
        ]


def observe(brokers: Sequence[Broker], sizes: Sizes, work_dir: Path, repeat: int) -> Conditions:
    return Conditions(
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        cpu=_cpu(),
        cores=os.cpu_count() or 1,
        memory_gib=psutil.virtual_memory().total / 1024**3,
        load_before=os.getloadavg()[0],
        filesystem=_filesystem(work_dir),
        system=f"{platform.system()} {platform.release().split('-')[0]}",
        python=platform.python_version(),
        client=f"confluent-kafka {confluent_kafka.version()}, "
        f"librdkafka {confluent_kafka.libversion()[0]}, Python {platform.python_version()}",
        brokers={each.name: f"{each.version}, {each.settings()}" for each in brokers},
        sizes=sizes.describe(),
        linger_ms=sizes.linger_ms,
        repeat=repeat,
        revision=_revision(),
    )


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _filesystem(path: Path) -> str:
    """The kind of file system that holds `path`: the longest mount point above it."""
    mounts = [
        each for each in psutil.disk_partitions(all=True) if path.is_relative_to(each.mountpoint)
    ]
    return max(mounts, key=lambda each: len(each.mountpoint)).fstype if mounts else "unknown"


def _revision() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"
