"""Token buckets: how long a client must pause so that its rate stays below a limit. Pure.

A bucket holds up to one burst of bytes and fills at the rate. Bytes are taken when they have been
moved already, so a bucket may fall into debt; the pause is the time until the debt is paid. The
average over any long time is therefore the rate, whatever the size of single requests.
"""

from collections import OrderedDict
from collections.abc import Hashable

BURST_SECONDS = 1.0


class TokenBuckets:
    """One bucket per key, at most `buckets_max`: the one that is longest unused is forgotten."""

    def __init__(self, buckets_max: int) -> None:
        assert buckets_max > 0
        self._buckets_max = buckets_max
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: Hashable, rate: float, amount: int, now: float) -> float:
        """Take `amount` at `now` (seconds, never going back); return the pause in seconds."""
        assert rate > 0
        assert amount >= 0
        burst = rate * BURST_SECONDS
        level, since = self._buckets.pop(key, (burst, now))
        level = min(level + (now - since) * rate, burst) - amount
        self._buckets[key] = (level, now)
        if len(self._buckets) > self._buckets_max:
            self._buckets.popitem(last=False)
        return max(-level / rate, 0.0)

    def clear(self) -> None:
        self._buckets.clear()
