"""Processes that die, disks that fill, stores that go away: nothing acknowledged is lost.

A real producer writes all the time while the server is killed, paused or robbed of its store. What
it was told is the truth that is checked afterwards, record by record.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from kio.schema.errors import ErrorCode

from tests.integration.kafka_wire import (
    EARLIEST,
    LATEST,
    Wire,
    batch_of,
    records_of,
)
from tests.integration.server_process import ServerProcess, running_server

pytestmark = pytest.mark.integration

PARTITIONS = 3
MIB = 1 << 20
MERGES = "streamhouse_segment_merges_total"


class Writer:
    """An idempotent librdkafka producer that never rests, and what it was told."""

    def __init__(self, address: str, topic: str) -> None:
        self._topic = topic
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "delivery.timeout.ms": 60_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "logger": _quiet(),
            }
        )
        self.acked: dict[tuple[int, int], int] = {}  # (partition, offset) -> number of the record
        self.errors: list[Any] = []
        self.sent = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(90)

    def wait_acked(self, count: int, seconds: float = 30.0) -> None:
        """Until so many more records are acknowledged."""
        target, end = len(self.acked) + count, time.monotonic() + seconds
        while len(self.acked) < target:
            assert time.monotonic() < end, f"{len(self.acked)} of {target} acknowledged"
            time.sleep(0.005)

    def _run(self) -> None:
        while not self._stop.is_set():
            for _ in range(30):
                self._send()
            self._producer.poll(0)
            time.sleep(0.01)  # fast enough to be in every step of the server, and to be checked
        assert self._producer.flush(60) == 0

    def _send(self) -> None:
        number = self.sent
        try:
            self._producer.produce(
                self._topic,
                b"%d" % number + b"." * 200,
                partition=number % PARTITIONS,
                on_delivery=lambda error, message: self._told(number, error, message),
            )
        except BufferError:
            self._producer.poll(0.05)
        else:
            self.sent += 1

    def _told(self, number: int, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.acked[message.partition(), message.offset()] = number


def _quiet() -> Any:
    import logging

    logger = logging.getLogger("librdkafka")
    logger.propagate = False
    logger.addHandler(logging.NullHandler())
    return logger


def stored(server: ServerProcess, topic: str, partition: int) -> dict[int, bytes]:
    """Every record of a partition, by offset; offsets must be contiguous."""
    found: dict[int, bytes] = {}
    with Wire(server.kafka) as wire:
        offset = wire.list_offset(topic, EARLIEST, partition).offset
        end = wire.list_offset(topic, LATEST, partition).offset
        while offset < end:
            part = wire.fetch(topic, offset, partition, partition_max_bytes=8 * MIB)
            assert part.error_code == 0, part.error_code
            records = [r for r in records_of(part.records) if r.offset >= offset]
            assert [r.offset for r in records] == list(range(offset, offset + len(records)))
            assert records, f"nothing at {offset} of {end}"
            found |= {r.offset: r.value or b"" for r in records}
            offset += len(records)
    return found


def check_writer(server: ServerProcess, writer: Writer, topic: str) -> None:
    """Every acknowledged record is at its offset, each record is there once, order is kept."""
    assert not writer.errors, writer.errors[:3]
    assert len(writer.acked) == writer.sent, "the producer was told about each record"
    for partition in range(PARTITIONS):
        found = stored(server, topic, partition)
        numbers = {offset: int(value.rstrip(b".")) for offset, value in found.items()}
        told = {o: n for (p, o), n in writer.acked.items() if p == partition}
        assert numbers == told
        in_order = [numbers[offset] for offset in sorted(numbers)]
        assert in_order == list(range(partition, writer.sent, PARTITIONS))


# -- kill -9 -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="wal-only"),
        pytest.param(
            {
                "SEGMENT_MAX_SIZE": "20000",
                "RETENTION_CHECK_INTERVAL_MS": "200",
                "MANIFEST_INTERVAL_MS": "300",
                "DELETE_GRACE_MS": "500",
            },
            id="rolls-merges-trims",
        ),
    ],
)
def test_sh_92_sh_55_sh_56_kill_9_loses_and_doubles_nothing(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    """SH-93 and SH-94 as well: with tiny segments the kills fall anywhere in a roll or a trim."""
    with running_server(tmp_path, settings) as server:
        with Wire(server.kafka) as wire:
            wire.create_topic("log", PARTITIONS)
        with Writer(server.kafka, "log") as writer:
            for round_number in range(4):
                writer.wait_acked(500)
                if settings and round_number >= 2:  # by now there is enough to merge
                    assert eventually(lambda: _metric(server, MERGES) > 0)
                server.kill9()
                server.start()
            writer.wait_acked(500)
        check_writer(server, writer, "log")
        if settings:
            wal = server.data_dir / "wal"
            assert eventually(lambda: len(list(wal.glob("*.log"))) <= 3), "old files were trimmed"
        server.kill9()
        server.start()
        check_writer(server, writer, "log")
        server.restart()
        check_writer(server, writer, "log")
        verified(server)


def _metric(server: ServerProcess, name: str) -> float:
    from urllib.request import urlopen

    with urlopen(server.http + "/metrics", timeout=10) as response:
        rows = response.read().decode().splitlines()
    (row,) = [line for line in rows if line.startswith(name + " ")]
    return float(row.split()[1])


def verified(server: ServerProcess) -> None:
    """The stored segments are sound when looked at without a server."""
    store = str(server.data_dir / "objects")
    run = [sys.executable, "-m", "streamhouse", "segments", "verify", "--store", store]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_sh_49_an_ack_means_it_is_on_disk(tmp_path: Path) -> None:
    """Kill at the very moment of the ack, again and again; the acked record is there each time."""
    with running_server(tmp_path) as server:
        with Wire(server.kafka) as wire:
            wire.create_topic("log")
        for n in range(4):
            with Wire(server.kafka) as wire:
                told = wire.produce("log", batch_of(b"%d" % n))
                server.kill9()
            assert (told.error_code, told.base_offset) == (0, n)
            server.start()
        assert stored(server, "log", 0) == {n: b"%d" % n for n in range(4)}


def test_sh_10_every_start_leads_under_a_new_epoch(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        with Wire(server.kafka) as wire:
            wire.create_topic("log")
            epochs = [wire.leader_epoch("log")]
        for stop in (server.kill9, server.terminate):
            stop()
            server.start()
            with Wire(server.kafka) as wire:
                epochs.append(wire.leader_epoch("log"))
                fenced = wire.fetch("log", 0, current_leader_epoch=epochs[0])
                assert fenced.error_code == ErrorCode.fenced_leader_epoch
        assert epochs == sorted(set(epochs))


def test_a_kill_during_start_changes_nothing(tmp_path: Path) -> None:
    """Recovery is interrupted at many points; the next one finds the same."""
    with running_server(tmp_path) as server:
        with Wire(server.kafka) as wire:
            wire.create_topic("log", PARTITIONS)
        with Writer(server.kafka, "log") as writer:
            writer.wait_acked(2000)
        server.kill9()
        for delay in (0.3, 0.5, 0.6, 0.7, 0.8, 0.9):
            server.launch()
            time.sleep(delay)
            server.kill9()
        server.start()
        check_writer(server, writer, "log")


# -- SIGTERM -------------------------------------------------------------------------------------


def test_sigterm_flushes_and_leaves_manifests(tmp_path: Path) -> None:
    """SH-54, SH-58: after a clean stop the bucket alone tells everything."""
    with running_server(tmp_path) as server:
        with Wire(server.kafka) as wire:
            topic_id = wire.create_topic("log", PARTITIONS)
            for n in range(10):
                for partition in range(PARTITIONS):
                    wire.produce("log", batch_of(b"%d" % n), partition)
        assert server.terminate() == 0
        for partition in range(PARTITIONS):
            place = server.data_dir / "objects" / "topics" / str(topic_id) / str(partition)
            newest = max(place.glob("manifest/*.json"))
            told = json.loads(newest.read_text())
            assert told["stable_end"] == 10
            assert list(place.glob("*.strm"))
        verified(server)
        server.start()
        for partition in range(PARTITIONS):
            found = stored(server, "log", partition)
            assert found == {n: b"%d" % n for n in range(10)}


def test_sigterm_while_producing_loses_nothing(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        with Wire(server.kafka) as wire:
            wire.create_topic("log", PARTITIONS)
        with Writer(server.kafka, "log") as writer:
            for _ in range(3):
                writer.wait_acked(300)
                assert server.terminate() == 0
                server.start()
            writer.wait_acked(300)
        check_writer(server, writer, "log")


def test_a_paused_process_goes_on(tmp_path: Path) -> None:
    """SIGSTOP for longer than clients like to wait, then SIGCONT."""
    with running_server(tmp_path) as server:
        with Wire(server.kafka) as wire:
            wire.create_topic("log", PARTITIONS)
        with Writer(server.kafka, "log") as writer:
            for _ in range(2):
                writer.wait_acked(200)
                os.kill(server.pid, signal.SIGSTOP)
                time.sleep(1.0)
                os.kill(server.pid, signal.SIGCONT)
            writer.wait_acked(200)
        check_writer(server, writer, "log")


# -- the object store ----------------------------------------------------------------------------


@contextlib.contextmanager
def away(objects: Path) -> Iterator[None]:
    """The directory of objects is gone, and a file stands in its place."""
    aside = objects.with_name("objects-aside")
    objects.rename(aside)
    objects.write_text("in the way")
    try:
        yield
    finally:
        objects.unlink()
        aside.rename(objects)


def eventually(condition: Any, seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


def test_sh_57_the_object_store_goes_away_for_a_while(tmp_path: Path) -> None:
    """Acks go on from the WAL, reads of the tail go on, and all is uploaded when it is back."""
    settings = {"SEGMENT_MAX_SIZE": "20000", "MANIFEST_INTERVAL_MS": "300"}
    with running_server(tmp_path, settings) as server:
        server.expect_in_log("will be tried again")
        with Wire(server.kafka) as wire:
            topic_id = wire.create_topic("log", PARTITIONS)
        place = server.data_dir / "objects" / "topics" / str(topic_id)
        with Writer(server.kafka, "log") as writer:
            assert eventually(lambda: len(list(place.glob("*/*.strm"))) >= 3)
            with away(server.data_dir / "objects"):
                assert eventually(lambda: "roll will be tried again" in server.log_text())
                writer.wait_acked(1000)
                with Wire(server.kafka) as wire:
                    end = wire.list_offset("log", LATEST).offset
                    assert wire.fetch("log", end - 1).error_code == 0
                server.kill9()
                # A start without the store is refused or works from the WAL; both lose nothing.
            server.start()
            before = len(list(place.glob("*/*.strm")))
            writer.wait_acked(1000)
            assert eventually(lambda: len(list(place.glob("*/*.strm"))) > before)
        check_writer(server, writer, "log")
        server.restart()
        check_writer(server, writer, "log")
        verified(server)


def test_sh_57_the_object_store_returns_without_a_restart(tmp_path: Path) -> None:
    settings = {"SEGMENT_MAX_SIZE": "5000"}
    with running_server(tmp_path, settings) as server:
        server.expect_in_log("will be tried again")
        with Wire(server.kafka) as wire:
            topic_id = wire.create_topic("log")
            place = server.data_dir / "objects" / "topics" / str(topic_id) / "0"
            with away(server.data_dir / "objects"):
                for n in range(20):
                    assert wire.produce("log", batch_of(b"%d" % n * 1000)).error_code == 0
                assert eventually(lambda: "roll will be tried again" in server.log_text())
            assert eventually(lambda: list(place.glob("*.strm")))
            assert eventually(lambda: "roll works again" in server.log_text())
            assert len(stored(server, "log", 0)) == 20
        server.restart()
        with Wire(server.kafka) as wire:
            with away(server.data_dir / "objects"):
                told = wire.fetch("log", 0)
                assert told.error_code == ErrorCode.kafka_storage_error, "ask again later"
                assert wire.produce("log", batch_of(b"on")).error_code == 0
            assert records_of(wire.fetch("log", 0).records)[0].offset == 0
            assert len(stored(server, "log", 0)) == 21


# -- a full disk ---------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 300 MiB, if we may make one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=300m", "tmpfs", str(place)]
    done = subprocess.run(mount, capture_output=True, check=False)
    if done.returncode:
        pytest.skip("mounting is not permitted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_refuses_writes_serves_reads_and_recovers(small_disk: Path) -> None:
    """Refused with a retriable code, nothing acknowledged lost, and on again when there is room."""
    settings = {"SEGMENT_MAX_SIZE": "1000000"}
    with running_server(small_disk, settings) as server:
        server.expect_in_log("will be tried again|disk|space|full")
        with Wire(server.kafka) as wire:
            wire.create_topic("log")
            filler = small_disk / "filler"
            _fill(filler)
            acked = 0
            big = batch_of(os.urandom(900_000))
            refused = None
            for _ in range(400):
                told = wire.produce("log", big)
                if told.error_code:
                    refused = told.error_code
                    break
                assert told.base_offset == acked
                acked += 1
            assert refused == ErrorCode.kafka_storage_error
            assert acked > 10
            assert server.is_running
            for offset in (0, acked // 2, acked - 1):
                assert records_of(wire.fetch("log", offset).records)[0].offset == offset
            assert wire.produce("log", big).error_code == ErrorCode.kafka_storage_error
            filler.unlink()
            began = time.monotonic()
            assert eventually(lambda: wire.produce("log", batch_of(b"after")).error_code == 0, 30)
            assert time.monotonic() - began < 30
            end = wire.list_offset("log", LATEST).offset
            assert end == acked + 1
        server.kill9()
        server.start()
        with Wire(server.kafka) as wire:
            assert wire.list_offset("log", LATEST).offset == end
            assert records_of(wire.fetch("log", end - 1).records)[-1].value == b"after"


def _fill(path: Path) -> None:
    """Take all the room there is."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(MIB))


def test_a_start_on_a_full_disk_is_refused(small_disk: Path) -> None:
    _fill(small_disk / "filler")
    server = ServerProcess(small_disk)
    # Its log cannot be on the full disk.
    environment = {**os.environ, "DATA_DIR": str(small_disk / "data")}
    environment |= {f"{door}_ADDR": "127.0.0.1:0" for door in ("HTTP", "GRPC", "KAFKA")}
    run = [sys.executable, "-m", "streamhouse", "server"]
    done = subprocess.run(
        run, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("error: ") == 1
    assert "space" in done.stderr
    (small_disk / "filler").unlink()
    server.start()
    assert server.terminate() == 0
    server.check_log()
