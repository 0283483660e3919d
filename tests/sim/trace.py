"""What happened in a world, in order: one hash over all of it, and the last lines for people."""

import hashlib
from collections import Counter, deque
from collections.abc import Callable

LINES_KEPT_MAX = 60


class Trace:
    def __init__(self, now_s: Callable[[], float], show: Callable[[str], None] | None) -> None:
        self._now_s = now_s
        self._show = show
        self._hash = hashlib.blake2b(digest_size=16)
        self._last: deque[str] = deque(maxlen=LINES_KEPT_MAX)
        self.counts: Counter[str] = Counter()

    def note(self, text: str) -> None:
        line = f"{self._now_s():10.4f} {text}"
        self._hash.update(line.encode())
        self._last.append(line)
        if self._show is not None:
            self._show(line)

    def count(self, what: str, times: int = 1) -> None:
        self.counts[what] += times

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    @property
    def tail(self) -> list[str]:
        return list(self._last)
