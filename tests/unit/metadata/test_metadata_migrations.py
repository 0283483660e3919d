"""Opening a database: new, old, newer, foreign, damaged, out of reach."""

import asyncio
import os
import sqlite3
import threading
from pathlib import Path

import pytest

from streamhouse.metadata.database import open_database
from streamhouse.metadata.migrate import (
    Migration,
    check_schema,
    load_migrations,
    migrate,
    schema_version,
    set_fact,
)
from streamhouse.metadata.sqlite import SqliteMetadata
from streamhouse.model.errors import StartRefused


class FixedIds:
    def nonce(self) -> str:
        return "0"

    def uuid(self) -> bytes:
        return b"\xff" * 16


def connect(path: Path | str) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def apply(db: sqlite3.Connection, *migrations: Migration) -> None:
    db.execute("BEGIN IMMEDIATE")
    try:
        migrate(db, migrations)
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


ONE = Migration(
    1, "0001_a.sql", "-- a; comment\nCREATE TABLE a (x TEXT);\n\nINSERT INTO a VALUES ('p;q');\n"
)
TWO = Migration(2, "0002_b.sql", "CREATE TABLE b (x TEXT);\nINSERT INTO b SELECT x FROM a;\n")
BROKEN = Migration(2, "0002_b.sql", "CREATE TABLE b (x TEXT);\nINSERT INTO nowhere VALUES (1);\n")


def test_files_are_numbered_from_one_without_gaps() -> None:
    found = load_migrations()
    assert [m.version for m in found] == list(range(1, len(found) + 1))
    assert all(m.name.startswith(f"{m.version:04d}_") for m in found)


def test_pending_files_are_applied_in_order_and_once() -> None:
    db = connect(":memory:")
    apply(db, ONE)
    assert schema_version(db) == 1
    for _ in range(2):
        apply(db, ONE, TWO)
    assert schema_version(db) == 2
    assert db.execute("SELECT x FROM a").fetchall() == [("p;q",)]
    assert db.execute("SELECT x FROM b").fetchall() == [("p;q",)]
    db.close()


def test_a_broken_file_leaves_the_old_schema() -> None:
    db = connect(":memory:")
    apply(db, ONE)
    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        apply(db, ONE, BROKEN)
    assert schema_version(db) == 1
    assert db.execute("SELECT 1 FROM sqlite_master WHERE name = 'b'").fetchall() == []
    check_schema(db, "x", [ONE, TWO])
    apply(db, ONE, TWO)
    db.close()


def test_a_file_without_an_end_is_our_mistake() -> None:
    db = connect(":memory:")
    with pytest.raises(AssertionError, match="no end"):
        apply(db, Migration(1, "0001_a.sql", "CREATE TABLE a (x TEXT)"))
    db.close()


def test_a_newer_database_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    db = open_database(str(path), FixedIds())
    set_fact(db, "schema_version", str(len(load_migrations()) + 1))
    db.close()
    before = path.read_bytes()
    with pytest.raises(StartRefused, match="newer version") as refused:
        open_database(str(path), FixedIds())
    assert "\n" not in str(refused.value)
    assert str(path) in str(refused.value)
    assert path.read_bytes() == before


def test_a_database_of_another_program_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    other = connect(path)
    other.execute("CREATE TABLE accounts (x TEXT)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(StartRefused, match="another program"):
        open_database(str(path), FixedIds())
    assert path.read_bytes() == before


@pytest.mark.parametrize("length", [1, 100, 5_000])
def test_a_file_that_is_no_database_is_refused(tmp_path: Path, length: int) -> None:
    path = tmp_path / "meta.db"
    path.write_bytes(b"no" * length)
    with pytest.raises(StartRefused, match="not an intact SQLite database"):
        open_database(str(path), FixedIds())
    assert path.read_bytes() == b"no" * length


def test_a_directory_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartRefused, match="missing or not writable"):
        open_database(str(tmp_path / "none" / "meta.db"), FixedIds())
    with pytest.raises(StartRefused, match="missing or not writable"):
        open_database(str(tmp_path), FixedIds())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_that_is_not_writable_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    open_database(str(path), FixedIds()).close()
    path.chmod(0o400)
    with pytest.raises(StartRefused, match="not writable"):
        open_database(str(path), FixedIds())


def test_an_empty_file_is_a_new_store(tmp_path: Path) -> None:
    """Goal: a crash right after the file was made does not need a person."""
    path = tmp_path / "meta.db"
    path.touch()
    db = open_database(str(path), FixedIds())
    assert schema_version(db) == len(load_migrations())
    db.close()


def test_commits_are_synced_and_references_checked(tmp_path: Path) -> None:
    db = open_database(str(tmp_path / "meta.db"), FixedIds())
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert db.execute("PRAGMA synchronous").fetchone() == (2,)
    assert db.execute("PRAGMA foreign_keys").fetchone() == (1,)
    db.close()


def test_the_cluster_id_never_begins_with_a_dash() -> None:
    """Goal: 22 characters that command lines do not take for an option (0xff... would be '_')."""

    async def scenario() -> None:
        store = await SqliteMetadata.open(":memory:", ids=FixedIds())
        found = await store.cluster_id()
        assert len(found) == 22
        assert found[0].isalnum()
        await store.close()

    asyncio.run(scenario())


def test_a_refused_open_leaves_no_thread(tmp_path: Path) -> None:
    before = threading.active_count()

    async def scenario() -> None:
        with pytest.raises(StartRefused):
            await SqliteMetadata.open(tmp_path, ids=FixedIds())

    asyncio.run(scenario())
    assert threading.active_count() == before
