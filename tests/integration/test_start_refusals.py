"""Starts that must not happen: exit code 1, one clear line on stderr, and the data untouched."""

import os
import shutil
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.integration.kafka_wire import LATEST, Wire, batch_of, records_of
from tests.integration.server_process import ServerProcess, running_server

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
ANY_PORT = {f"{door}_ADDR": "127.0.0.1:0" for door in ("HTTP", "GRPC", "KAFKA")}


def refusal(data_dir: Path, settings: Mapping[str, str] | None = None) -> str:
    """Start a server that must refuse; return its one line."""
    done = subprocess.run(
        [sys.executable, "-m", "streamhouse", "server"],
        env={**os.environ, **ANY_PORT, "DATA_DIR": str(data_dir), **(settings or {})},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, done.stderr
    assert not [line for line in done.stderr.splitlines() if " ERROR " in line]
    return lines[0]


def filled(directory: Path) -> ServerProcess:
    """A server that was killed with two records in its WAL."""
    server = ServerProcess(directory)
    server.start()
    with Wire(server.kafka) as wire:
        wire.create_topic("kept")
        assert wire.produce("kept", batch_of(b"a")).error_code == 0
        assert wire.produce("kept", batch_of(b"b")).error_code == 0
    server.kill9()
    return server


def assert_kept(server: ServerProcess) -> None:
    """It starts again and has both records: the refused start changed nothing."""
    server.start()
    with Wire(server.kafka) as wire:
        assert [r.value for r in records_of(wire.fetch("kept", 0).records)] == [b"a", b"b"]
    assert server.terminate() == 0
    server.check_log()


def test_a_directory_in_use(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        line = refusal(server.data_dir)
        assert "in use by another process" in line
        assert str(server.data_dir) in line
        with Wire(server.kafka) as wire:
            wire.create_topic("goes-on")
            assert wire.produce("goes-on", batch_of(b"x")).error_code == 0
        assert (server.data_dir / "endpoints.json").exists(), "the running one is still found"


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Path]:
    """A directory nobody may write in; for root that takes a file system mounted read-only."""
    place = tmp_path / "locked"
    place.mkdir(mode=0o500)
    if os.getuid() != 0:
        yield place
        return
    mount = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting is not permitted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_directory_that_cannot_be_written(locked: Path) -> None:
    for data_dir in (locked, locked / "below"):
        line = refusal(data_dir)
        assert "cannot be written" in line
        assert str(data_dir) in line


def test_a_data_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    assert "cannot be written" in refusal(tmp_path / "file")
    assert "cannot be written" in refusal(tmp_path / "file" / "below")


def test_a_newer_format(tmp_path: Path) -> None:
    server = filled(tmp_path)
    mark = server.data_dir / "format"
    known = mark.read_text()
    mark.write_text("99\n")
    line = refusal(server.data_dir)
    assert "99" in line
    assert "Upgrade" in line
    mark.write_text(known)
    assert_kept(server)


def test_a_newer_database(tmp_path: Path) -> None:
    server = filled(tmp_path)
    database = server.data_dir / "metadata.sqlite"
    spare = tmp_path / "spare.sqlite"
    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    shutil.copy(database, spare)
    _pretend_newer(database)
    line = refusal(server.data_dir)
    assert "newer" in line.lower() or "upgrade" in line.lower()
    for suffix in ("", "-wal", "-shm"):
        database.with_name(database.name + suffix).unlink(missing_ok=True)
    shutil.copy(spare, database)
    assert_kept(server)


def _pretend_newer(database: Path) -> None:
    """As a later version would leave it: with a schema we do not know."""
    with sqlite3.connect(database) as connection:
        changed = connection.execute(
            "UPDATE store_facts SET value = value + 1 WHERE name = 'schema_version'"
        )
        assert changed.rowcount == 1
    connection.close()


def test_a_database_that_is_none(tmp_path: Path) -> None:
    server = filled(tmp_path)
    database = server.data_dir / "metadata.sqlite"
    for suffix in ("-wal", "-shm"):
        database.with_name(database.name + suffix).unlink(missing_ok=True)
    database.write_bytes(b"this is not a database" * 1000)
    assert "metadata" in refusal(server.data_dir)


@pytest.mark.parametrize("door", ["HTTP", "GRPC", "KAFKA"])
def test_a_port_in_use(tmp_path: Path, door: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        line = refusal(tmp_path / "data", {f"{door}_ADDR": address})
        assert address in line
        assert door.lower() in line.lower()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("KAFKA_ADDR", "nowhere"),
        ("SEGMENT_MAX_SIZE", "large"),
        ("AUTO_CREATE_TOPICS", "perhaps"),
        ("LOG_LEVEL", "chatty"),
        ("OBJECT_STORE_URL", "gopher://x"),
        ("DATABASE_URL", "postgres://nowhere/x"),
    ],
)
def test_a_setting_that_makes_no_sense(tmp_path: Path, variable: str, value: str) -> None:
    line = refusal(tmp_path / "data", {variable: value})
    assert value in line


# -- a damaged WAL -------------------------------------------------------------------------------


def wal_file_with(server: ServerProcess, needle: bytes) -> tuple[Path, int]:
    """The newest place of `needle` in the WAL files."""
    for path in sorted(server.data_dir.glob("wal/*.log")):
        at = path.read_bytes().find(needle)
        if at >= 0:
            return path, at
    raise AssertionError(f"{needle!r} is in no WAL file")


def test_sh_102_damage_in_the_middle_stops_the_start(tmp_path: Path) -> None:
    """Acknowledged records lie behind the damage, so a person must decide."""
    server = ServerProcess(tmp_path)
    server.start()
    with Wire(server.kafka) as wire:
        wire.create_topic("kept")
        for n in range(20):
            assert wire.produce("kept", batch_of(b"record-%02d-of-the-log" % n)).error_code == 0
    server.kill9()
    path, at = wal_file_with(server, b"record-07-of-the-log")
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"damaged")
    line = refusal(server.data_dir)
    assert path.name in line
    assert "accept-wal-loss" in line
    assert refusal(server.data_dir) == line, "and it stays so"
    server.expect_in_log("WAL|wal|lost|loss")
    server.start(ACCEPT_WAL_LOSS="1")
    with Wire(server.kafka) as wire:
        found = {r.offset: r.value for r in records_of(wire.fetch("kept", 0).records)}
        for offset, value in found.items():
            assert value == b"record-%02d-of-the-log" % offset, "never a wrong record"
        assert set(range(7)) <= set(found), "what lies before the damage is there"
        assert 7 not in found
        end = wire.list_offset("kept", LATEST).offset
        assert wire.produce("kept", batch_of(b"next")).base_offset == end
    assert server.terminate() == 0
    server.start()
    with Wire(server.kafka) as wire:
        assert wire.list_offset("kept", LATEST).offset == end + 1
    assert server.terminate() == 0
    server.check_log()


def test_sh_102_a_torn_tail_is_cut(tmp_path: Path) -> None:
    """The last record was half written, as when power fails; the ones before are kept."""
    server = ServerProcess(tmp_path)
    server.start()
    with Wire(server.kafka) as wire:
        wire.create_topic("kept")
        for n in range(20):
            assert wire.produce("kept", batch_of(b"record-%02d-of-the-log" % n)).error_code == 0
    server.kill9()
    path, at = wal_file_with(server, b"record-19-of-the-log")
    with path.open("r+b") as file:
        file.seek(at + 5)
        file.write(bytes(4096))
    server.start()
    with Wire(server.kafka) as wire:
        found = [r.value for r in records_of(wire.fetch("kept", 0).records)]
        assert found == [b"record-%02d-of-the-log" % n for n in range(19)]
        assert wire.produce("kept", batch_of(b"next")).base_offset == 19
    server.kill9()
    server.start()
    with Wire(server.kafka) as wire:
        assert records_of(wire.fetch("kept", 0).records)[-1].value == b"next"
    assert server.terminate() == 0


def test_a_lost_wal_directory_stops_the_start(tmp_path: Path) -> None:
    """Partitions that were written to a WAL do not open with another one."""
    server = filled(tmp_path)
    shutil.rmtree(server.data_dir / "wal")
    line = refusal(server.data_dir)
    assert "accept-wal-loss" in line
