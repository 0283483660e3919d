"""Whether this process can serve, as every door reports it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Health:
    """`problems` are sentences for a person; a process may be ready and still have some."""

    ready: bool  # clients are served
    live: bool = True  # restarting would not help
    problems: tuple[str, ...] = ()
