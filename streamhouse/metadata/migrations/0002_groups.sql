-- Consumer groups: who is in them, and which generation they are in. Offsets are in
-- committed_offsets; a group that only commits has no row here.

CREATE TABLE consumer_groups (
    group_id       TEXT    NOT NULL PRIMARY KEY,
    state          TEXT    NOT NULL,
    generation     INTEGER NOT NULL CHECK (generation >= 0),
    protocol_type  TEXT    NOT NULL,
    protocol_name  TEXT,
    leader         TEXT,
    empty_since_ms INTEGER  -- NULL while it has members
) WITHOUT ROWID;

CREATE TABLE consumer_group_members (
    group_id             TEXT    NOT NULL REFERENCES consumer_groups (group_id),
    position             INTEGER NOT NULL,  -- the order of joining
    member_id            TEXT    NOT NULL,
    instance_id          TEXT,
    client_id            TEXT    NOT NULL,
    client_host          TEXT    NOT NULL,
    session_timeout_ms   INTEGER NOT NULL,
    rebalance_timeout_ms INTEGER NOT NULL,
    assignment           BLOB    NOT NULL,
    PRIMARY KEY (group_id, position),
    UNIQUE (group_id, member_id),
    UNIQUE (group_id, instance_id)
) WITHOUT ROWID;

-- The protocols a member offers, the preferred one first.
CREATE TABLE consumer_group_protocols (
    group_id        TEXT    NOT NULL,
    member_position INTEGER NOT NULL,
    position        INTEGER NOT NULL,
    name            TEXT    NOT NULL,
    metadata        BLOB    NOT NULL,
    PRIMARY KEY (group_id, member_position, position),
    FOREIGN KEY (group_id, member_position)
        REFERENCES consumer_group_members (group_id, position)
) WITHOUT ROWID;
