"""Time, chance and ids come in by argument, so that a simulation can supply them."""

from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall clock, milliseconds since 1970. May step."""

    def monotonic(self) -> float:
        """Seconds that never go back; for ages and deadlines."""


class Ids(Protocol):
    def nonce(self) -> str:
        """Hex digits that no other call of any process returns."""

    def uuid(self) -> bytes:
        """Sixteen bytes of a version 4 UUID."""
