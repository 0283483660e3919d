-- Limits of clients. An entity is a JSON array of [type, name] pairs in order of type; a name of
-- null is the default of its type.

CREATE TABLE client_quotas (
    entity TEXT NOT NULL,
    key    TEXT NOT NULL,
    value  REAL NOT NULL,
    PRIMARY KEY (entity, key)
) WITHOUT ROWID;
