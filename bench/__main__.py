"""`python -m bench`: both brokers, one after the other, the same client, ratios with conditions."""

import sys
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from bench import report
from bench.client import OrderFailed
from bench.conditions import observe
from bench.kafka_broker import KAFKA_VERSION, KafkaAbsent, fetch_kafka
from bench.process import BrokerFailed, end_on_signals
from bench.streamhouse_broker import StreamHouseAbsent, find_streamhouse
from bench.targets import Round, judge
from bench.workloads import Bench, Broker, Measures, Sizes

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
DOCS = ROOT / "docs" / "performance.md"
WORK_DIR = ROOT / ".cache" / "bench"
WORKS = ("start", "produce-1k", "consume", "single", "latency", "produce-100b", "memory")
LARGE = frozenset({"produce-1k", "consume", "single", "latency"})
SMALL = frozenset({"produce-100b", "memory"})
LINGER_MS = 50

FULL = Sizes(
    records_large=1_000_000,
    records_small=10_000_000,
    single_s=10,
    latency_s=15,
    starts=3,
    linger_ms=LINGER_MS,
)
QUICK = Sizes(
    records_large=200_000,
    records_small=1_000_000,
    single_s=3,
    latency_s=5,
    starts=1,
    linger_ms=LINGER_MS,
)


@click.command()
@click.option("--quick", is_flag=True, help="Small sizes, a minute or two; not for publishing.")
@click.option("--only", multiple=True, type=click.Choice(WORKS), help="Only this work; repeatable.")
@click.option("--repeat", default=1, show_default=True, type=click.IntRange(1, 20))
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Where the JSON goes.")
@click.option("--linger-ms", default=LINGER_MS, show_default=True, type=click.IntRange(0, 1000))
@click.option("--kafka-version", default=KAFKA_VERSION, show_default=True)
@click.option("--streamhouse-command", type=click.Path(path_type=Path), help="Another build of it.")
@click.option("--without", multiple=True, type=click.Choice(("kafka", "streamhouse")))
@click.option("--work-dir", default=WORK_DIR, type=click.Path(path_type=Path), help="Broker data.")
@click.option("--docs/--no-docs", default=None, help="Rewrite docs/performance.md or not.")
def main(
    quick: bool,
    only: tuple[str, ...],
    repeat: int,
    json_path: Path | None,
    linger_ms: int,
    kafka_version: str,
    streamhouse_command: Path | None,
    without: tuple[str, ...],
    work_dir: Path,
    docs: bool | None,
) -> None:
    """Measure StreamHouse beside Apache Kafka.

    A full run (not --quick, nothing left out) becomes bench/results/latest.json and latest.png and
    the table in docs/performance.md. Any other run is written beside them and changes no document.
    """
    end_on_signals()
    console = report.make_console()
    brokers = _brokers(console, without, kafka_version, streamhouse_command)
    sizes = replace(QUICK if quick else FULL, linger_ms=linger_ms)
    wanted = frozenset(only or WORKS)
    work_dir = work_dir.resolve()
    work_dir.mkdir(parents=True, exist_ok=True)
    conditions = observe(brokers, sizes, work_dir, repeat)
    try:
        rounds = _run(console, brokers, sizes, wanted, work_dir, repeat)
    except (BrokerFailed, OrderFailed) as failed:
        console.print(f"the run was given up: {failed}", style="red", markup=False)
        sys.exit(1)
    rows = judge(rounds, conditions.cores)
    report.show(console, rounds, rows, conditions)
    complete = not quick and not only and len(brokers) == 2
    target = json_path or RESULTS / ("latest.json" if complete else "partial.json")
    report.write_json(target, rounds, rows, conditions)
    if not report.write_plot(target.with_suffix(".png"), rows, conditions):
        console.print("no plot: nothing to compare with")
    if docs or (docs is None and complete):
        report.write_docs(DOCS, rounds, rows, conditions)


def _brokers(
    console: Console,
    without: tuple[str, ...],
    kafka_version: str,
    streamhouse_command: Path | None,
) -> list[Broker]:
    """Those that can run here; what is missing is said, not hidden."""
    brokers: list[Broker] = []
    if "kafka" not in without:
        try:
            with console.status("fetching Apache Kafka"):
                brokers.append(fetch_kafka(kafka_version))
        except KafkaAbsent as absent:
            console.print(f"[yellow]without Kafka, so without ratios:[/] {absent}")
    if "streamhouse" not in without:
        try:
            brokers.append(find_streamhouse(streamhouse_command))
        except StreamHouseAbsent as absent:
            console.print(f"[yellow]without StreamHouse:[/] {absent}; run `make install`")
    if not brokers:
        console.print("[red]no broker to measure[/]")
        sys.exit(1)
    return brokers


def _run(
    console: Console,
    brokers: list[Broker],
    sizes: Sizes,
    wanted: frozenset[str],
    work_dir: Path,
    repeat: int,
) -> list[Round]:
    rounds: list[Round] = []
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        for number in range(repeat):
            measures: dict[str, Measures] = {}
            # Every second round goes the other way, so that neither always comes first.
            for broker in brokers if number % 2 == 0 else brokers[::-1]:
                head = f"round {number + 1}/{repeat} {broker.name}"
                measures[broker.name] = _measure(
                    progress,
                    head,
                    Bench(broker, work_dir, sizes, lambda _what, _done: None),
                    wanted,
                )
            rounds.append(Round(measures))
    return rounds


def _measure(progress: Progress, head: str, bench: Bench, wanted: frozenset[str]) -> Measures:
    task = progress.add_task(head, total=1.0)

    def on_step(what: str, done: float) -> None:
        progress.update(task, description=f"{head}: {what}", completed=min(done, 0.999))

    shown = replace(bench, on_step=on_step)
    measures: Measures = {}
    if "start" in wanted:
        measures |= shown.session_start()
    if wanted & LARGE:
        measures |= shown.session_large(wanted)
    if wanted & SMALL:
        measures |= shown.session_small()
    progress.update(task, description=f"{head}: done", completed=1.0)
    return measures


if __name__ == "__main__":
    main()
