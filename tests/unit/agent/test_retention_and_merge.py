"""Which segments go, and which are worth merging. Pure decisions."""

from streamhouse.agent.merge import merge_run
from streamhouse.agent.retention import droppable, log_start_after
from streamhouse.model.topic import TopicSettings
from tests.unit.agent.agent_samples import segment

THREE = [segment(0, 10), segment(10, 20), segment(20, 30)]


def test_retention_by_age_takes_whole_segments_from_the_front() -> None:
    settings = TopicSettings(retention_ms=100)
    assert log_start_after(THREE, settings, 0, now_ms=110) == 0
    assert log_start_after(THREE, settings, 0, now_ms=111) == 10
    assert log_start_after(THREE, settings, 0, now_ms=10_000) == 30


def test_records_from_the_future_do_not_live_for_ever() -> None:
    future = [segment(0, 10, timestamp_max_ms=10**15, created_ms=10)]
    assert log_start_after(future, TopicSettings(retention_ms=100), 0, now_ms=200) == 10


def test_a_young_segment_protects_the_ones_behind_it() -> None:
    mixed = [segment(0, 10, timestamp_max_ms=900, created_ms=900), segment(10, 20)]
    assert log_start_after(mixed, TopicSettings(retention_ms=500), 0, now_ms=1_000) == 0


def test_retention_by_size_keeps_at_least_the_bytes_asked_for() -> None:
    settings = TopicSettings(retention_ms=-1, retention_bytes=150)
    assert log_start_after(THREE, settings, 0, now_ms=0) == 10
    settings = TopicSettings(retention_ms=-1, retention_bytes=0)
    assert log_start_after(THREE, settings, 0, now_ms=0) == 30


def test_no_limit_keeps_everything_and_compaction_alone_deletes_nothing() -> None:
    assert log_start_after(THREE, TopicSettings(retention_ms=-1), 0, now_ms=10**12) == 0
    compacted = TopicSettings(retention_ms=1, delete=False, compact=True)
    assert log_start_after(THREE, compacted, 0, now_ms=10**12) == 0


def test_the_segment_that_holds_the_snapshot_is_never_dropped() -> None:
    assert droppable(THREE, 30, "k20-30") == THREE[:2]
    assert droppable(THREE, 25, None) == THREE[:2]


def choose(segments: list, **changes: int) -> list[int]:  # type: ignore[type-arg]
    options = {"small_bytes": 150, "segments_min": 2, "bytes_max": 1_000, **changes}
    return [s.base for s in merge_run(segments, **options)]


def test_neighbours_that_are_small_are_merged_but_not_the_newest() -> None:
    assert choose(THREE) == [0, 10]
    assert choose(THREE, segments_min=3) == []


def test_a_large_segment_or_a_gap_ends_the_run() -> None:
    large = segment(10, 20, bytes_stored=500)
    assert choose([segment(0, 10), large, segment(20, 30), segment(30, 40)]) == []
    gap = [segment(0, 10), segment(15, 20), segment(20, 30), segment(30, 40)]
    assert choose(gap) == [15, 20]


def test_a_merge_never_exceeds_one_segment() -> None:
    assert choose([segment(i * 10, i * 10 + 10) for i in range(6)], bytes_max=250) == [0, 10]
