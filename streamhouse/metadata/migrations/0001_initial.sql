-- The catalog, one row per partition, what is registered under it, and the outbox.
-- Ids are 16-byte blobs, times are milliseconds since 1970, ranges are [base, end).

CREATE TABLE topics (
    topic_id        BLOB    NOT NULL PRIMARY KEY CHECK (length(topic_id) = 16),
    name            TEXT    NOT NULL UNIQUE,
    partition_count INTEGER NOT NULL CHECK (partition_count > 0),
    config          TEXT    NOT NULL,  -- JSON object of what was set
    created_ms      INTEGER NOT NULL
) WITHOUT ROWID;

-- The highest epoch any topic of this name ever had. Outlives the topic: clients that know topics
-- only by name ignore metadata whose epoch went back.
CREATE TABLE topic_name_epochs (
    name      TEXT    NOT NULL PRIMARY KEY,
    epoch_max INTEGER NOT NULL
) WITHOUT ROWID;

-- Topics whose objects still have to be removed from the object store.
CREATE TABLE deleted_topics (
    topic_id        BLOB    NOT NULL PRIMARY KEY CHECK (length(topic_id) = 16),
    name            TEXT    NOT NULL,
    partition_count INTEGER NOT NULL,
    deleted_ms      INTEGER NOT NULL
) WITHOUT ROWID;

-- One row per partition: fence and positions together, so that one UPDATE checks them all.
CREATE TABLE partitions (
    topic_id         BLOB    NOT NULL REFERENCES topics (topic_id),
    partition        INTEGER NOT NULL CHECK (partition >= 0),
    holder           TEXT    NOT NULL DEFAULT '',  -- '' until somebody leads it
    incarnation      TEXT    NOT NULL DEFAULT '',
    epoch            INTEGER NOT NULL,
    high_watermark   INTEGER NOT NULL DEFAULT 0,
    log_start        INTEGER NOT NULL DEFAULT 0 CHECK (log_start >= 0),
    segments_end     INTEGER NOT NULL DEFAULT 0,
    manifest_version INTEGER NOT NULL DEFAULT 0,
    manifest_written INTEGER NOT NULL DEFAULT 0,
    snapshot_key     TEXT,
    wal_id           TEXT    NOT NULL DEFAULT '',
    PRIMARY KEY (topic_id, partition),
    CHECK (segments_end <= high_watermark),
    CHECK (log_start <= high_watermark),
    CHECK (manifest_written <= manifest_version)
) WITHOUT ROWID;

CREATE VIEW partition_leases AS
SELECT topics.name          AS topic,
       partitions.partition AS partition_id,
       partitions.holder    AS agent_id,
       partitions.epoch     AS lease_epoch,
       NULL                 AS lease_expires_at  -- one embedded agent: a lease ends with its process
FROM partitions
JOIN topics USING (topic_id)
WHERE partitions.holder <> '';

CREATE TABLE partition_terms (
    topic_id     BLOB    NOT NULL,
    partition    INTEGER NOT NULL,
    epoch        INTEGER NOT NULL,
    offset_start INTEGER NOT NULL,
    PRIMARY KEY (topic_id, partition, epoch),
    FOREIGN KEY (topic_id, partition) REFERENCES partitions (topic_id, partition)
) WITHOUT ROWID;

CREATE TABLE segments (
    topic_id         BLOB    NOT NULL,
    partition        INTEGER NOT NULL,
    base             INTEGER NOT NULL,
    "end"            INTEGER NOT NULL,
    key              TEXT    NOT NULL UNIQUE,
    epoch            INTEGER NOT NULL,
    record_count     INTEGER NOT NULL,
    timestamp_min_ms INTEGER NOT NULL,
    timestamp_max_ms INTEGER NOT NULL,
    bytes_raw        INTEGER NOT NULL,
    bytes_stored     INTEGER NOT NULL,
    footer_crc       INTEGER NOT NULL,
    created_ms       INTEGER NOT NULL,
    format           TEXT    NOT NULL,
    generation       INTEGER NOT NULL,
    PRIMARY KEY (topic_id, partition, base),
    FOREIGN KEY (topic_id, partition) REFERENCES partitions (topic_id, partition),
    CHECK (base < "end")
) WITHOUT ROWID;

-- Objects no row refers to any more. While manifest_version is set, the newest manifest known to be
-- in the bucket may still name the object, so its grace period has not begun.
CREATE TABLE retired_objects (
    key              TEXT    NOT NULL PRIMARY KEY,
    retired_ms       INTEGER NOT NULL,
    topic_id         BLOB    NOT NULL,
    partition        INTEGER NOT NULL,
    manifest_version INTEGER  -- the first manifest without it, until that was written
) WITHOUT ROWID;

CREATE INDEX retired_objects_by_age
    ON retired_objects (retired_ms, key) WHERE manifest_version IS NULL;
CREATE INDEX retired_objects_in_manifest
    ON retired_objects (topic_id, partition) WHERE manifest_version IS NOT NULL;

CREATE TABLE counters (
    name       TEXT    NOT NULL PRIMARY KEY,
    value_next INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE committed_offsets (
    group_id     TEXT    NOT NULL,
    topic_id     BLOB    NOT NULL,
    partition    INTEGER NOT NULL,
    "offset"     INTEGER NOT NULL,
    leader_epoch INTEGER NOT NULL,
    metadata     TEXT    NOT NULL,
    committed_ms INTEGER NOT NULL,
    PRIMARY KEY (group_id, topic_id, partition),
    FOREIGN KEY (topic_id, partition) REFERENCES partitions (topic_id, partition)
) WITHOUT ROWID;

CREATE INDEX committed_offsets_by_partition ON committed_offsets (topic_id, partition);

CREATE TABLE holds (
    name       TEXT    NOT NULL,
    topic_id   BLOB    NOT NULL,
    partition  INTEGER NOT NULL,
    "offset"   INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL,
    PRIMARY KEY (name, topic_id, partition),
    FOREIGN KEY (topic_id, partition) REFERENCES partitions (topic_id, partition)
) WITHOUT ROWID;

CREATE INDEX holds_by_partition ON holds (topic_id, partition);

-- The outbox: each change of the catalog, written in the transaction that made it.
CREATE TABLE events (
    seq    INTEGER PRIMARY KEY AUTOINCREMENT,
    at_ms  INTEGER NOT NULL,
    kind   TEXT    NOT NULL,
    key    TEXT    NOT NULL,
    detail TEXT    NOT NULL
);
