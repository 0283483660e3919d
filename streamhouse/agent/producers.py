"""Which batches a partition has seen from each producer: the memory behind idempotence.

Per producer the epoch and the last five batches are kept. A batch that equals one of them is a
duplicate and is answered with the offset it got the first time; otherwise it must follow the last
one. `check` decides, `apply` remembers; nothing is remembered until the batch is really queued, so
that a refused write is never mistaken for a duplicate later. A batch leaves the window only when
five durable ones follow it: younger ones may be lost in a crash, and a snapshot taken meanwhile
must still know the producer.
"""

from collections import deque
from dataclasses import dataclass
from enum import Enum
from itertools import islice

from streamhouse.model.ids import NO_PRODUCER_ID
from streamhouse.model.limits import PRODUCER_BATCHES_KEPT
from streamhouse.model.producers import BatchStamp, ProducerSnapshot

SEQUENCE_MODULUS = 2**31
OFFSET_MAX = 2**63 - 1


class Refusal(Enum):
    OUT_OF_ORDER_SEQUENCE = "the sequence does not follow the producer's last batch"
    STALE_PRODUCER_EPOCH = "a newer instance of this producer has written here"


@dataclass(slots=True)
class _Producer:
    epoch: int
    batches: deque[BatchStamp]
    seen_ms: int


class ProducerTable:
    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def check(
        self, producer_id: int, producer_epoch: int, sequence_first: int, sequence_last: int
    ) -> BatchStamp | Refusal | None:
        """None: append it. A stamp: it is a duplicate of that batch. A refusal: say so."""
        known = self._producers.get(producer_id)
        if known is None:
            # Retention may have forgotten the producer, so any first sequence is taken.
            return None
        if producer_epoch < known.epoch:
            return Refusal.STALE_PRODUCER_EPOCH
        if producer_epoch > known.epoch:
            return None if sequence_first == 0 else Refusal.OUT_OF_ORDER_SEQUENCE
        for stamp in islice(reversed(known.batches), PRODUCER_BATCHES_KEPT):
            if stamp.sequence_first == sequence_first and stamp.sequence_last == sequence_last:
                return stamp
        if not known.batches:
            return None
        expected = (known.batches[-1].sequence_last + 1) % SEQUENCE_MODULUS
        return None if sequence_first == expected else Refusal.OUT_OF_ORDER_SEQUENCE

    def apply(
        self,
        producer_id: int,
        producer_epoch: int,
        stamp: BatchStamp,
        now_ms: int,
        offset_durable: int = OFFSET_MAX,
    ) -> None:
        """Take the batch into the window; what lies below `offset_durable` outlives a crash."""
        assert producer_id != NO_PRODUCER_ID
        known = self._producers.get(producer_id)
        if known is None or known.epoch != producer_epoch:
            known = _Producer(producer_epoch, deque(), now_ms)
            self._producers[producer_id] = known
        batches = known.batches
        batches.append(stamp)
        while (
            len(batches) > PRODUCER_BATCHES_KEPT
            and batches[PRODUCER_BATCHES_KEPT].offset_last < offset_durable
        ):
            batches.popleft()
        known.seen_ms = now_ms

    def snapshot_below(self, offset: int) -> tuple[ProducerSnapshot, ...]:
        """State from batches below `offset`; replaying the later ones on top gives it all again.

        Batches the window has already let go are missing here only if five newer durable ones lie
        above `offset`, and then the replay alone fills the window.
        """
        found = []
        for producer_id, known in sorted(self._producers.items()):
            batches = tuple(b for b in known.batches if b.offset_last < offset)
            if batches:
                newest = batches[-PRODUCER_BATCHES_KEPT:]
                found.append(ProducerSnapshot(producer_id, known.epoch, newest, known.seen_ms))
        return tuple(found)

    def restore(self, producers: tuple[ProducerSnapshot, ...]) -> None:
        assert not self._producers
        for p in producers:
            kept = deque(p.batches)
            self._producers[p.producer_id] = _Producer(p.producer_epoch, kept, p.seen_ms)

    def expire(self, idle_since_ms: int) -> None:
        """Forget producers that have not written since then."""
        idle = [pid for pid, known in self._producers.items() if known.seen_ms < idle_since_ms]
        for pid in idle:
            del self._producers[pid]
