"""Quotas and settings of the broker on SQLite.

Each function is one command's work inside a transaction that its caller holds.
"""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence

from streamhouse.model.broker_settings import check_broker_config
from streamhouse.model.config_change import merged
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


def broker_configs(db: sqlite3.Connection) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for broker, name, value in db.execute("SELECT broker, name, value FROM broker_configs"):
        found[broker][name] = value
    return dict(found)


def change_broker_config(
    db: sqlite3.Connection, broker: str, changes: Mapping[str, str | None]
) -> None:
    config = merged(broker_configs(db).get(broker, {}), changes)
    check_broker_config(config)
    db.execute("DELETE FROM broker_configs WHERE broker = ?", (broker,))
    db.executemany(
        "INSERT INTO broker_configs (broker, name, value) VALUES (?, ?, ?)",
        ((broker, name, value) for name, value in config.items()),
    )


def _to_json(entity: Entity) -> str:
    return json.dumps(sorted(entity, key=lambda pair: pair[0]))


def _from_json(text: str) -> Entity:
    return frozenset((kind, name) for kind, name in json.loads(text))
