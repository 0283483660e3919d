"""`python -m bench.limits`: StreamHouse alone, at three sizes where it must stay quick.

- idle:     CPU used with 1,000 partitions that hold records and get none.
- wal:      restart after kill -9 with 1 GiB that is in the WAL and in no segment.
- segments: start with 10,000 segments.

Owns: how these states are made, and the verdicts. A state that could not be made is an error,
never a number.
"""

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from bench import report
from bench.client import OrderFailed, drive
from bench.conditions import Conditions, observe
from bench.driver import Order
from bench.process import BrokerFailed, BrokerProcess, end_on_signals, running
from bench.streamhouse_broker import StreamHouse, StreamHouseAbsent, find_streamhouse
from bench.workloads import Sizes, started_with

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
DOCS = ROOT / "docs" / "performance.md"
WORK_DIR = ROOT / ".cache" / "bench"
BEGIN, END = "<!-- limits:begin -->", "<!-- limits:end -->"
COLUMNS = ("what", "measured", "must be", "verdict", "more")
TOPIC = "limits"

IDLE_PARTITIONS = 1_000
IDLE_SETTLE_S = 5.0
IDLE_WATCH_S = 20.0
IDLE_CORE_SHARE_MAX = 0.02

WAL_PARTITIONS = 6
WAL_RECORD_BYTES = 1024
WAL_STEP_RECORDS = 65_536
WAL_STEPS = 16
WAL_STALLED_S_MAX = 10.0
WAL_RESTART_S_MAX = 5.0

# Fewer segments in a partition than make a merge worth while, so that none are merged away.
SEGMENTS_PER_PARTITION = 7
SEGMENT_PARTITIONS = 1_430
SEGMENTS_START_S_MAX = 3.0

ROLL_AT_ONCE = {"SEGMENT_MAX_SIZE": "1", "SEGMENT_MAX_AGE_MS": "100"}
# At its default bound the WAL makes room by rolling before 1 GiB of live records is in it.
LARGE_WAL = {"WAL_MAX_BYTES": str(3 << 30)}
NEVER_ROLL = {**LARGE_WAL, "SEGMENT_MAX_SIZE": str(1 << 40), "SEGMENT_MAX_AGE_MS": "86400000"}
ROLLED_S_MAX = 180.0


class LimitFailed(Exception):
    """The state to be measured could not be made; the message says why."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One measured limit."""

    title: str
    value: float
    unit: str
    at_most: float
    details: dict[str, float] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        return "PASS" if self.value <= self.at_most else "above"

    def cells(self) -> list[str]:
        more = ", ".join(
            f"{name.replace('_', ' ')} {at:,.{0 if at >= 100 else 2}f}"
            for name, at in self.details.items()
        )
        return [
            self.title,
            f"{self.value:.2f} {self.unit}",
            f"at most {self.at_most:g} {self.unit}",
            self.verdict,
            more,
        ]


OnNote = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """The three measurements on one installed StreamHouse."""

    broker: StreamHouse
    work_dir: Path
    on_note: OnNote

    def idle(self) -> Limit:
        with self._directory("idle") as directory:
            with running(self.broker.launch(directory, ROLL_AT_ONCE)) as broker:
                self._fill_segments(broker, IDLE_PARTITIONS, rounds=1)
            with running(self.broker.launch(directory)) as broker:
                self.on_note("settling")
                time.sleep(IDLE_SETTLE_S)
                self.on_note(f"watching for {IDLE_WATCH_S:.0f} s")
                cpu_before_s, began_s = broker.cpu_s(), time.monotonic()
                time.sleep(IDLE_WATCH_S)
                used_s = broker.cpu_s() - cpu_before_s
                share = used_s / (time.monotonic() - began_s)
                rss_mib = broker.rss_bytes() / 1024**2
        return Limit(
            f"CPU with {IDLE_PARTITIONS:,} idle partitions",
            share * 100,
            "% of a core",
            IDLE_CORE_SHARE_MAX * 100,
            {"cpu_s": used_s, "rss_mib": rss_mib},
        )

    def wal(self) -> Limit:
        with self._directory("wal") as directory:
            with running_until_killed(self.broker, directory) as broker:
                acked = self._fill_wal(broker)
            rolled = count_segments(directory)
            wal_mib = sum(each.stat().st_size for each in _wal_files(directory)) / 1024**2
            if rolled > 0:
                raise LimitFailed(f"{rolled} segments were rolled: the records left the WAL")
            ready_s, figures = self._restart(directory, WAL_PARTITIONS, LARGE_WAL)
        if figures["records"] < acked:
            raise LimitFailed(
                f"{acked} records were acknowledged, {figures['records']:.0f} are left"
            )
        return Limit(
            f"restart after kill -9 with {acked * WAL_RECORD_BYTES >> 20:,} MiB in the WAL, "
            "until the first record is read",
            figures["first_read_s"],
            "s",
            WAL_RESTART_S_MAX,
            {
                "ready_s": ready_s,
                "wal_files_mib": wal_mib,
            },
        )

    def segments(self) -> Limit:
        with self._directory("segments") as directory:
            with running(self.broker.launch(directory, ROLL_AT_ONCE)) as broker:
                self._fill_segments(broker, SEGMENT_PARTITIONS, rounds=SEGMENTS_PER_PARTITION)
            count = count_segments(directory)
            ready_s, figures = self._restart(directory, SEGMENT_PARTITIONS)
        return Limit(
            f"start with {count:,} segments, until the first record is read",
            figures["first_read_s"],
            "s",
            SEGMENTS_START_S_MAX,
            {"ready_s": ready_s, "partitions": SEGMENT_PARTITIONS},
        )

    def _restart(
        self, directory: Path, partitions: int, env: Mapping[str, str] | None = None
    ) -> tuple[float, dict[str, float]]:
        """Start again with `env` alone; returns seconds to ready and what a client saw."""
        self.on_note("starting again")
        launch = self.broker.launch(directory, env)
        order = Order(work="first_read", address=launch.address, topic=TOPIC, partitions=partitions)
        endpoints_before = time.time()
        with started_with(launch, order) as (broker, figures):
            written = (directory / "endpoints.json").stat().st_mtime
            first_read_s = figures["read_at_s"] - broker.started_at_s
        return written - endpoints_before, {**figures, "first_read_s": first_read_s}

    def _fill_wal(self, broker: BrokerProcess) -> int:
        """Returns the records acknowledged: all of them, or OrderFailed was raised."""
        for step in range(WAL_STEPS):
            self.on_note(f"filling the WAL, {step * WAL_STEP_RECORDS * WAL_RECORD_BYTES >> 20} MiB")
            self._produce(broker, WAL_PARTITIONS, WAL_STEP_RECORDS, WAL_RECORD_BYTES)
        return WAL_STEPS * WAL_STEP_RECORDS

    def _fill_segments(self, broker: BrokerProcess, partitions: int, *, rounds: int) -> None:
        """One record per partition and round; each must have become a segment before the next."""
        for number in range(1, rounds + 1):
            self._produce(broker, partitions, partitions, 100)
            wanted = number * partitions
            deadline_s = time.monotonic() + ROLLED_S_MAX
            while (count := count_segments(broker.directory)) < wanted:
                self.on_note(f"waiting for segments, {count:,} of {rounds * partitions:,}")
                broker.check_alive()
                if time.monotonic() > deadline_s:
                    raise LimitFailed(f"only {count} of {wanted} segments were rolled")
                time.sleep(0.2)

    def _produce(
        self, broker: BrokerProcess, partitions: int, records: int, value_bytes: int
    ) -> None:
        order = Order(
            work="produce",
            address=broker.address,
            topic=TOPIC,
            partitions=partitions,
            records=records,
            value_bytes=value_bytes,
            linger_ms=50,
            stalled_s_max=WAL_STALLED_S_MAX,
        )
        drive(order, broker, lambda _done: None)

    @contextmanager
    def _directory(self, name: str) -> Iterator[Path]:
        home = self.work_dir / f"limits-{name}"
        shutil.rmtree(home, ignore_errors=True)
        try:
            self.broker.prepare(home / "data")
            yield home / "data"
        finally:
            shutil.rmtree(home, ignore_errors=True)


@contextmanager
def running_until_killed(broker: StreamHouse, directory: Path) -> Iterator[BrokerProcess]:
    """A broker that keeps everything in its WAL and is ended by SIGKILL."""
    process = BrokerProcess(broker.launch(directory, NEVER_ROLL))
    try:
        process.wait_ready()
        yield process
        process.check_alive()
    finally:
        process.kill()


def count_segments(directory: Path) -> int:
    return sum(1 for _ in directory.rglob("*.strm"))


def _wal_files(directory: Path) -> list[Path]:
    return [
        each
        for each in directory.rglob("*")
        if each.is_file() and "wal" in each.relative_to(directory).parts[:-1]
    ]


@click.command()
@click.option("--only", multiple=True, type=click.Choice(("idle", "wal", "segments")))
@click.option("--streamhouse-command", type=click.Path(path_type=Path), help="Another build of it.")
@click.option("--work-dir", default=WORK_DIR, type=click.Path(path_type=Path), help="Broker data.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Where the JSON goes.")
def main(
    only: tuple[str, ...], streamhouse_command: Path | None, work_dir: Path, json_path: Path | None
) -> None:
    """Measure StreamHouse at its limits; a run of all three updates docs/performance.md."""
    end_on_signals()
    console = report.make_console()
    try:
        broker = find_streamhouse(streamhouse_command)
    except StreamHouseAbsent as absent:
        console.print(f"{absent}; run `make install`", style="red", markup=False)
        sys.exit(1)
    work_dir = work_dir.resolve()
    work_dir.mkdir(parents=True, exist_ok=True)
    conditions = observe([broker], Sizes(0, 0, 0, 0, 0, linger_ms=50), work_dir, repeat=1)
    measured = _measure(console, broker, work_dir, only)
    _show(console, measured)
    target = json_path or RESULTS / ("partial-limits.json" if only else "limits.json")
    _write_json(target, measured, conditions)
    if not only and json_path is None:
        report.replace_between(DOCS, BEGIN, END, _markdown(measured, conditions))


def _measure(
    console: Console, broker: StreamHouse, work_dir: Path, only: tuple[str, ...]
) -> list[Limit]:
    measured: list[Limit] = []
    with console.status("") as status:
        limits = Limits(broker, work_dir, status.update)
        works = {"idle": limits.idle, "wal": limits.wal, "segments": limits.segments}
        for name in only or tuple(works):
            try:
                measured.append(works[name]())
            except (LimitFailed, OrderFailed, BrokerFailed) as failed:
                console.print(f"{name} was given up: {failed}", style="red", markup=False)
                sys.exit(1)
    return measured


def _show(console: Console, measured: list[Limit]) -> None:
    table = Table(*COLUMNS, title="StreamHouse at its limits")
    for each in measured:
        table.add_row(*each.cells())
    console.print(table)


def _write_json(path: Path, measured: list[Limit], conditions: Conditions) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = {
        "conditions": conditions.as_dict(),
        "limits": [{**asdict(each), "verdict": each.verdict} for each in measured],
    }
    path.write_text(json.dumps(text, indent=1, sort_keys=True) + "\n")


def _markdown(measured: list[Limit], conditions: Conditions) -> str:
    table = report.markdown_table(COLUMNS, [each.cells() for each in measured])
    machine = f"{conditions.date}, revision {conditions.revision}, {conditions.cores} cores "
    return f"{table}\n\n- {machine}({conditions.cpu}), data on {conditions.filesystem}"


if __name__ == "__main__":
    main()
