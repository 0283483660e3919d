"""What the operator may set about an agent, with the defaults of a single node."""

from dataclasses import dataclass

from streamhouse.model import limits


@dataclass(frozen=True, slots=True)
class AgentOptions:
    agent_id: str
    incarnation: str
    segment_max_size: int = 1_048_576
    segment_max_age_ms: int = 60_000
    segment_bytes_max: int = limits.SEGMENT_BYTES_MAX
    roll_bytes_max: int = limits.ROLL_BYTES_MAX
    tail_bytes_max: int = limits.TAIL_BYTES_MAX
    block_cache_bytes_max: int = limits.BLOCK_CACHE_BYTES_MAX
    maintenance_interval_ms: int = 1_000
    retention_check_interval_ms: int = 30_000
    manifest_interval_ms: int = limits.MANIFEST_INTERVAL_MS
    delete_grace_ms: int = limits.DELETE_GRACE_MS
    merge_segments_min: int = limits.MERGE_SEGMENTS_MIN
    merge_bytes_small: int = limits.MERGE_BYTES_SMALL
    accept_wal_loss: bool = False
