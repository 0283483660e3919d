-- Limits of clients. An entity is a JSON array of [type, name] pairs in order of type; a name of
-- null is the default of its type.

CREATE TABLE client_quotas (
    entity TEXT NOT NULL,
    key    TEXT NOT NULL,
    value  REAL NOT NULL,
    PRIMARY KEY (entity, key)
) WITHOUT ROWID;

-- Settings of the broker that were changed while it runs: of one broker, or ('') of all.
CREATE TABLE broker_configs (
    broker TEXT NOT NULL,
    name   TEXT NOT NULL,
    value  TEXT NOT NULL,
    PRIMARY KEY (broker, name)
) WITHOUT ROWID;
