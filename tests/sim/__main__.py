"""Run seeds of the simulation: `--seeds 0-499 --jobs 2`, or one of them with `--seeds 17 --trace`.

Ends with 1 if a seed violates an invariant, or if hardly anything happened in all of them.
"""

import argparse
import logging
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from tests.sim.script import Outcome, run_seed

FAILURES_SHOWN_MAX = 5
# In any fifty seeds all of this happens often; a world in which it does not tests nothing.
EXPECTED_OF_MANY = (
    "acks",
    "reads",
    "record reads",
    "time lookups",
    "bucket reads",
    "killed",
    "power lost",
    "stopped",
    "did not start",
    "fatal write errors",
    "produce retries",
    "objects put",
    "objects deleted",
    "records deleted",
    "topics deleted",
    "duplicates",
    "merges",
    "wal reads",
    "retentions",
    "refused for room",
)
MANY_SEEDS = 50


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", default="0-99", help="such as 17, 0-499 or 3,5,8-12")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--trace", action="store_true", help="print everything that happens")
    asked = parser.parse_args(argv)
    logging.disable(logging.CRITICAL)
    console = Console(stderr=True)
    seeds = parse_seeds(asked.seeds)
    if asked.trace or len(seeds) == 1:
        outcomes: Iterable[Outcome] = [run_seed(seed, asked.trace) for seed in seeds]
    else:
        outcomes = _run_many(seeds, asked.jobs, console)
    return _report(list(outcomes), console)


def parse_seeds(text: str) -> list[int]:
    """Numbers and ranges, separated by commas."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        found += range(int(first), int(last if dash else first) + 1)
    return found


def _run_many(seeds: list[int], jobs: int, console: Console) -> Iterator[Outcome]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress, ProcessPoolExecutor(jobs) as pool:
        bar = progress.add_task("seeds", total=len(seeds))
        failed = 0
        for outcome in pool.map(run_seed, seeds):
            if outcome.violation is not None:
                failed += 1
                progress.update(bar, description=f"seeds ({failed} failed)")
                if failed <= FAILURES_SHOWN_MAX:
                    show_failure(outcome, console)
            progress.advance(bar)
            yield outcome


def show_failure(outcome: Outcome, console: Console) -> None:
    lines = [
        f"seed {outcome.seed} violates {outcome.violation}",
        *(f"    {line}" for line in outcome.tail),
        f"seed {outcome.seed} violates {outcome.violation}",
        f"run it again: make sim SEEDS={outcome.seed}",
        f"with all that happens: .venv/bin/python -m tests.sim --seeds {outcome.seed} --trace",
    ]
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


def _report(outcomes: list[Outcome], console: Console) -> int:
    totals: Counter[str] = Counter()
    for outcome in outcomes:
        totals.update(outcome.counts)
    failed = [outcome for outcome in outcomes if outcome.violation is not None]
    if len(outcomes) == 1:
        for outcome in failed:
            show_failure(outcome, console)
        print(f"seed {outcomes[0].seed}: trace {outcomes[0].digest}")
    print(", ".join(f"{count} {what}" for what, count in sorted(totals.items())))
    virtual_s = sum(outcome.virtual_s for outcome in outcomes)
    print(f"{len(outcomes)} seeds, {virtual_s:.0f} s of virtual time, {len(failed)} failed")
    if failed:
        numbers = ",".join(str(outcome.seed) for outcome in failed)
        print(f"failed: make sim SEEDS={numbers}")
    missing = [what for what in EXPECTED_OF_MANY if not totals[what]]
    if len(outcomes) >= MANY_SEEDS and missing and not failed:
        print(f"these never happened: {', '.join(missing)}")
        return 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
