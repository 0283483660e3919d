"""Which old segments may go. Pure: segments, settings and the clock in, a new log start out."""

from streamhouse.model.partition import SegmentRef
from streamhouse.model.topic import TopicSettings


def log_start_after(
    segments: list[SegmentRef], settings: TopicSettings, log_start: int, now_ms: int
) -> int:
    """Where the log should begin under retention by age and by size.

    A segment's age counts from the older of its newest record and its registration, so that
    records stamped in the future do not live for ever. Only whole segments go, oldest first.
    """
    if not settings.delete:
        return log_start
    live = [segment for segment in segments if segment.end > log_start]
    if settings.retention_ms >= 0:
        for segment in live:
            if now_ms - min(segment.timestamp_max_ms, segment.created_ms) <= settings.retention_ms:
                break
            log_start = segment.end
    if settings.retention_bytes >= 0:
        excess = sum(segment.bytes_raw for segment in live) - settings.retention_bytes
        for segment in live:
            if excess < segment.bytes_raw:
                break
            excess -= segment.bytes_raw
            log_start = max(log_start, segment.end)
    return log_start


def droppable(
    segments: list[SegmentRef], log_start: int, snapshot_key: str | None
) -> list[SegmentRef]:
    """Segments wholly below the log start, but never the one that holds the newest snapshot."""
    return [s for s in segments if s.end <= log_start and s.key != snapshot_key]
