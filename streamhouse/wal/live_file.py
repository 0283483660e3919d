"""What is known in memory about one WAL file that holds entries: where they are, whose they are."""

from array import array
from collections.abc import Mapping

from streamhouse.model.ids import TopicPartition
from streamhouse.wal.format import RECORD_HEADER_BYTES

_ABSENT = 0  # no body lies in the header block, so 0 marks a lost record


class LiveFile:
    """Index of one generation. Entries are added in ascending sequence."""

    __slots__ = (
        "_body_ats",
        "_body_sizes",
        "ends",
        "file_bytes",
        "first_sequence",
        "generation",
        "name",
    )

    def __init__(self, name: str, generation: int, first_sequence: int, file_bytes: int) -> None:
        self.name = name
        self.generation = generation
        self.first_sequence = first_sequence
        self.file_bytes = file_bytes
        self.ends: dict[TopicPartition, int] = {}
        self._body_ats = array("I")
        self._body_sizes = array("I")

    @property
    def next_sequence(self) -> int:
        return self.first_sequence + len(self._body_ats)

    def add(self, sequence: int, body_at: int, body_bytes: int) -> None:
        missing = sequence - self.next_sequence
        assert missing >= 0
        if missing:  # accepted losses leave holes
            self._body_ats.extend([_ABSENT] * missing)
            self._body_sizes.extend([0] * missing)
        self._body_ats.append(body_at)
        self._body_sizes.append(body_bytes)

    def note_end(self, tp: TopicPartition, end: int) -> None:
        if self.ends.get(tp, -1) < end:
            self.ends[tp] = end

    def locate(self, sequence: int) -> tuple[int, int] | None:
        """Position and length of the whole record, header included."""
        index = sequence - self.first_sequence
        if not 0 <= index < len(self._body_ats) or self._body_ats[index] == _ABSENT:
            return None
        at = self._body_ats[index] - RECORD_HEADER_BYTES
        return at, self._body_sizes[index] + RECORD_HEADER_BYTES

    def is_free(self, segments_end: Mapping[TopicPartition, int]) -> bool:
        """Whether each entry is stored in segments, or its partition is gone."""
        return all(end <= segments_end.get(tp, end) for tp, end in self.ends.items())
