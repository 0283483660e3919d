"""Client quotas on SQLite. Each function is one command's work inside its caller's transaction."""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Sequence

from streamhouse.model.quotas import ClientQuota, Entity, QuotaChange, check_change


def client_quotas(db: sqlite3.Connection) -> list[ClientQuota]:
    by_entity: dict[str, dict[str, float]] = defaultdict(dict)
    for entity, key, value in db.execute(
        "SELECT entity, key, value FROM client_quotas ORDER BY entity, key"
    ):
        by_entity[entity][key] = value
    return [ClientQuota(_from_json(entity), limits) for entity, limits in by_entity.items()]


def alter_client_quotas(db: sqlite3.Connection, changes: Sequence[QuotaChange]) -> None:
    for change in changes:
        check_change(change)
        entity = _to_json(change.entity)
        for key, value in change.limits.items():
            if value is None:
                db.execute("DELETE FROM client_quotas WHERE entity = ? AND key = ?", (entity, key))
            else:
                db.execute(
                    "INSERT INTO client_quotas (entity, key, value) VALUES (?, ?, ?)"
                    " ON CONFLICT (entity, key) DO UPDATE SET value = excluded.value",
                    (entity, key, value),
                )


def _to_json(entity: Entity) -> str:
    return json.dumps(sorted(entity, key=lambda pair: pair[0]))


def _from_json(text: str) -> Entity:
    return frozenset((kind, name) for kind, name in json.loads(text))
