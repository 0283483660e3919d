"""One SQLite connection: how it is opened, how a command becomes a transaction, what errors mean.

Invariants: a command is one transaction; it has all its effect, durably (`synchronous=FULL`), or
none. Only a failure of COMMIT itself on a broken disk leaves that open: OutcomeUnknown.
"""

import base64
import sqlite3
from collections.abc import Callable
from typing import TypeVar

from streamhouse.metadata.migrate import check_schema, fact, load_migrations, migrate, set_fact
from streamhouse.model.errors import (
    Corrupt,
    Invalid,
    OutcomeUnknown,
    StartRefused,
    StreamhouseError,
    Unavailable,
)
from streamhouse.ports.clock import Ids

T = TypeVar("T")

LOCK_WAIT_S_MAX = 5.0
_CLUSTER_ID = "cluster_id"
_UNAVAILABLE = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
    }
)


def open_database(path: str, ids: Ids) -> sqlite3.Connection:
    """Open or make the database at `path` and bring its schema up to date. Raises StartRefused."""
    try:
        db = sqlite3.connect(path, timeout=LOCK_WAIT_S_MAX, isolation_level=None)
    except sqlite3.Error as error:
        raise _refused(path, error) from error
    try:
        _prepare(db, path, ids)
    except sqlite3.Error as error:
        db.close()
        raise _refused(path, error) from error
    except BaseException:
        db.close()
        raise
    return db


def read(db: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    """Run `work` on one snapshot."""
    try:
        db.execute("BEGIN")
        try:
            return work(db)
        finally:
            _roll_back(db)
    except sqlite3.Error as error:
        raise _translated(error) from error


def write(db: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    """Run `work` as one transaction; any exception undoes all of it."""
    try:
        db.execute("BEGIN IMMEDIATE")
        try:
            result = work(db)
        except BaseException:
            _roll_back(db)
            raise
    except sqlite3.Error as error:
        raise _translated(error) from error
    _commit(db)
    return result


def _prepare(db: sqlite3.Connection, path: str, ids: Ids) -> None:
    migrations = load_migrations()
    check_schema(db, path, migrations)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA foreign_keys = ON")
    db.execute("BEGIN IMMEDIATE")  # also proves that the file can be written
    migrate(db, migrations)
    if fact(db, _CLUSTER_ID) is None:
        set_fact(db, _CLUSTER_ID, _new_cluster_id(ids))
    db.execute("COMMIT")


def _new_cluster_id(ids: Ids) -> str:
    """22 characters like Kafka's. The first bit is cleared so that it never begins with '-'."""
    raw = ids.uuid()
    assert len(raw) == 16
    return base64.urlsafe_b64encode(bytes([raw[0] & 0x7F]) + raw[1:]).decode().rstrip("=")


def cluster_id(db: sqlite3.Connection) -> str:
    found = fact(db, _CLUSTER_ID)
    assert found is not None, "written when the store was opened"
    return found


def _commit(db: sqlite3.Connection) -> None:
    try:
        db.execute("COMMIT")
    except sqlite3.Error as error:
        _roll_back(db)
        if _code(error) == sqlite3.SQLITE_IOERR:
            # The commit may have reached the journal before its sync failed.
            raise OutcomeUnknown(f"metadata store: {error}") from error
        raise _translated(error) from error


def _roll_back(db: sqlite3.Connection) -> None:
    if db.in_transaction:  # SQLite has already rolled back after some errors
        db.execute("ROLLBACK")


def _translated(error: sqlite3.Error) -> StreamhouseError | sqlite3.Error:
    code = _code(error)
    if code in _UNAVAILABLE:
        return Unavailable(f"metadata store: {error}")
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return Corrupt(f"metadata store: {error}; restore it from a backup")
    if code == sqlite3.SQLITE_CONSTRAINT:
        return Invalid(f"metadata store: {error}")
    return error  # our own mistake: let it be seen


def _refused(path: str, error: sqlite3.Error) -> StartRefused:
    match _code(error):
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            why = "it is not an intact SQLite database; restore it or choose another file"
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            why = "another process is using it; stop that one first"
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            why = "it or its directory is missing or not writable"
        case sqlite3.SQLITE_FULL:
            why = "the disk is full; make room and start again"
        case _:
            why = "see the error"
    return StartRefused(f"metadata store {path} cannot be opened: {why} ({error})")


def _code(error: sqlite3.Error) -> int:
    """The primary result code; 0 for errors of the Python module itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
