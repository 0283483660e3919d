"""Numbered SQL files bring a database to the schema this version knows.

Owns: `store_facts`, where the schema's version stands. All pending files are applied in one
transaction together with the new version: a crash leaves the old schema or the new one. A database
from a newer version, or of another program, is refused and not touched.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources

from streamhouse.model.errors import StartRefused

_FACTS = "CREATE TABLE store_facts (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL)"
_SCHEMA_VERSION = "schema_version"


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    sql: str


def load_migrations() -> tuple[Migration, ...]:
    """The files of `migrations/`, numbered from 1 without gaps."""
    directory = resources.files("streamhouse.metadata") / "migrations"
    files = sorted(
        (file for file in directory.iterdir() if file.name.endswith(".sql")),
        key=lambda file: file.name,
    )
    found = tuple(
        Migration(int(file.name.split("_")[0]), file.name, file.read_text("utf-8"))
        for file in files
    )
    assert [m.version for m in found] == list(range(1, len(found) + 1)), "migrations have a gap"
    return found


def check_schema(db: sqlite3.Connection, path: str, migrations: Sequence[Migration]) -> None:
    """Refuse a database that is not ours or newer than we are. Writes nothing."""
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
    if tables and "store_facts" not in tables:
        raise StartRefused(
            f"{path} is a database of another program; choose another file for the metadata"
        )
    version, known = schema_version(db), len(migrations)
    if version > known:
        raise StartRefused(
            f"{path} was written by a newer version (schema {version}, this version knows "
            f"{known}); start the newer version, or restore a backup made before the upgrade"
        )


def migrate(db: sqlite3.Connection, migrations: Sequence[Migration]) -> None:
    """Apply what is missing; the caller holds the write transaction."""
    assert db.in_transaction, "a migration and its version are one transaction"
    version = schema_version(db)
    pending = [m for m in migrations if m.version > version]
    if version == 0:
        db.execute(_FACTS)
    for migration in pending:
        for statement in _statements(migration.sql):
            db.execute(statement)
    if pending:
        set_fact(db, _SCHEMA_VERSION, str(pending[-1].version))


def schema_version(db: sqlite3.Connection) -> int:
    """0 for a new database."""
    made = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'store_facts'").fetchone()
    return int(fact(db, _SCHEMA_VERSION) or 0) if made else 0


def fact(db: sqlite3.Connection, name: str) -> str | None:
    row = db.execute("SELECT value FROM store_facts WHERE name = ?", (name,)).fetchone()
    return None if row is None else str(row[0])


def set_fact(db: sqlite3.Connection, name: str, value: str) -> None:
    db.execute(
        "INSERT INTO store_facts (name, value) VALUES (?, ?)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (name, value),
    )


def _statements(sql: str) -> Iterator[str]:
    """Cut a file into statements. (`executescript` would commit our transaction first.)"""
    pending = ""
    for line in sql.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
    assert not pending.strip(), f"the last statement has no end: {pending!r}"
