"""A few seeds of the simulation in every test run, and all seeds that once found something."""

from pathlib import Path

import pytest

from tests.sim.__main__ import parse_seeds
from tests.sim.script import Outcome, run_seed

KEPT = Path(__file__).parent / "seeds" / "kept.txt"
SEEDS_DEFAULT = range(14)


def kept_seeds() -> list[int]:
    """One seed a line; what follows '#' says what it found."""
    found = []
    for line in KEPT.read_text("utf-8").splitlines():
        number = line.partition("#")[0].strip()
        if number:
            found.append(int(number))
    return found


def told(outcome: Outcome) -> str:
    tail = "\n".join(outcome.tail[-25:])
    return f"{tail}\nseed {outcome.seed}: {outcome.violation}\nmake sim SEEDS={outcome.seed}"


@pytest.mark.sim
@pytest.mark.parametrize("seed", sorted({*SEEDS_DEFAULT, *kept_seeds()}))
def test_no_invariant_is_violated(seed: int) -> None:
    outcome = run_seed(seed)
    assert outcome.violation is None, told(outcome)


@pytest.mark.sim
def test_the_worlds_are_busy() -> None:
    """Crashes, faults and cold paths really happen in the seeds above."""
    counts: dict[str, int] = {}
    for seed in (3, 10):
        for what, times in run_seed(seed).counts.items():
            counts[what] = counts.get(what, 0) + times
    for what in ("acks", "reads", "killed", "power lost", "duplicates", "rolls", "wal reads"):
        assert counts.get(what, 0) > 0, f"no {what} in {counts}"


def test_seeds_are_numbers_and_ranges() -> None:
    assert parse_seeds("3") == [3]
    assert parse_seeds("0-3,7") == [0, 1, 2, 3, 7]
