"""One seed twice is one story: in one process, and in processes with different hash seeds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.script import run_seed

ROOT = Path(__file__).parents[2]
SEED = 19


@pytest.mark.sim
def test_the_same_seed_gives_the_same_trace() -> None:
    first, second = run_seed(SEED), run_seed(SEED)
    assert first.digest == second.digest
    assert first.counts == second.counts


@pytest.mark.sim
def test_another_seed_gives_another_trace() -> None:
    assert run_seed(SEED).digest != run_seed(SEED - 1).digest


@pytest.mark.sim
def test_hash_seeds_of_the_interpreter_change_nothing() -> None:
    """Sets of strings and ids iterate in another order; no story may depend on that."""
    digests = [_digest_in_own_process(hash_seed) for hash_seed in ("1", "2")]
    assert digests[0] == digests[1] == run_seed(SEED).digest


def _digest_in_own_process(hash_seed: str) -> str:
    code = f"from tests.sim.script import run_seed; print(run_seed({SEED}).digest)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.strip()
