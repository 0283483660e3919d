"""The command line against a real server, as a person at a terminal uses it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.server_process import ServerProcess, running_server

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
SECONDS_MAX = 60


class Terminal:
    """Runs commands the way a shell does: own process, pipes, exit code."""

    def __init__(self, server: str = "http://127.0.0.1:1") -> None:
        self._environment = {**os.environ, "STREAMHOUSE_SERVER": server, "COLUMNS": "80"}

    def run(self, *words: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            [sys.executable, "-m", "streamhouse", *words],
            input=stdin,
            capture_output=True,
            env=self._environment,
            cwd=ROOT,
            timeout=SECONDS_MAX,
            check=False,
        )

    def ok(self, *words: str, stdin: bytes = b"") -> str:
        done = self.run(*words, stdin=stdin)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def json(self, *words: str, stdin: bytes = b"") -> Any:
        return json.loads(self.ok(*words, "--json", stdin=stdin))

    def fails(self, *words: str, code: int = 1) -> str:
        """The one line on stderr."""
        done = self.run(*words)
        assert done.returncode == code, (done.stdout, done.stderr)
        text = done.stderr.decode()
        assert "Traceback" not in text
        if code == 1:
            assert len(text.splitlines()) == 1, text
        return text


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running_server(tmp_path_factory.mktemp("cli")) as running:
        yield running


@pytest.fixture(scope="module")
def terminal(server: ServerProcess) -> Terminal:
    return Terminal(server.http)


def test_a_topic_from_creation_to_deletion(terminal: Terminal) -> None:
    assert "created life with 3 partitions" in terminal.ok(
        "topics", "create", "life", "--partitions", "3", "-c", "retention.ms=1000"
    )
    assert "life" in terminal.ok("topics", "ls")
    assert "life" in [topic["name"] for topic in terminal.json("topics", "ls")]
    described = terminal.json("topics", "describe", "life")
    assert [p["partition"] for p in described["partitions"]] == [0, 1, 2]
    assert "high watermark" in terminal.ok("topics", "describe", "life")
    changed = terminal.json(
        "topics", "config", "life", "--set", "segment.ms=500", "--unset", "retention.ms"
    )
    assert changed == {"segment.ms": "500"}
    assert terminal.json("topics", "config", "life") == changed
    assert "aborted" in terminal.fails("topics", "delete", "life").splitlines()[-1]
    assert "deleted life" in terminal.ok("topics", "delete", "life", "--yes")
    assert "no topic 'life'" in terminal.fails("topics", "describe", "life")


def test_lines_go_in_and_come_out(terminal: Terminal) -> None:
    terminal.ok("topics", "create", "lines", "--partitions", "1")
    lines = b"".join(b"line %d\n" % number for number in range(20_000))
    summary = terminal.json("produce", "lines", stdin=lines + b"\xff\xfe raw\nlast")
    assert summary == {"topic": "lines", "count": 20_002, "next_offsets": {"0": 20_002}}
    done = terminal.run("consume", "lines")
    assert done.returncode == 0
    assert done.stdout == lines + b"\xff\xfe raw\nlast\n"


def test_one_record_with_everything(terminal: Terminal) -> None:
    terminal.ok("topics", "create", "single", "--partitions", "4")
    place = terminal.json(
        *("produce", "single", "--value", "v", "--key", "k"),
        *("--partition", "2", "-H", "trace=abc"),
    )
    assert (place["partition"], place["offset"]) == (2, 0)
    [line] = terminal.ok("consume", "single", "--json").splitlines()
    record = json.loads(line)
    assert (record["partition"], record["key"], record["value"]) == (2, "k", "v")
    assert record["headers"] == [{"name": "trace", "value": "abc"}]
    assert terminal.ok("consume", "single", "--with-key") == "k\tv\n"


def test_keys_split_from_lines_decide_the_partition(terminal: Terminal) -> None:
    terminal.ok("topics", "create", "keyed", "--partitions", "5")
    text = b"".join(b"user-%d:v%d\n" % (n % 3, n) for n in range(30))
    assert terminal.json("produce", "keyed", "--key-separator", ":", stdin=text)["count"] == 30
    records = [json.loads(line) for line in terminal.ok("consume", "keyed", "--json").splitlines()]
    homes = {record["key"]: record["partition"] for record in records}
    assert all(homes[record["key"]] == record["partition"] for record in records)
    assert sorted(homes) == ["user-0", "user-1", "user-2"]


def test_sh_74_a_group_resumes_after_what_it_printed(terminal: Terminal) -> None:
    terminal.ok("topics", "create", "grouped", "--partitions", "1")
    terminal.ok("produce", "grouped", stdin=b"1\n2\n3\n4\n5\n")
    assert terminal.ok("consume", "grouped", "--group", "g", "--max", "2") == "1\n2\n"
    assert terminal.ok("consume", "grouped", "--group", "g", "--max", "2") == "3\n4\n"
    assert terminal.ok("consume", "grouped", "--group", "g") == "5\n"
    assert terminal.ok("consume", "grouped", "--group", "g") == ""
    assert terminal.ok("consume", "grouped", "--offset", "3") == "4\n5\n"
    assert terminal.ok("consume", "grouped", "--offset", "latest") == ""


def test_groups_are_listed_described_moved_and_deleted(terminal: Terminal) -> None:
    """SH-13. A reset shows what it would do, and does it only when told to."""
    terminal.ok("topics", "create", "moved", "--partitions", "1")
    terminal.ok("produce", "moved", stdin=b"1\n2\n3\n4\n5\n")
    terminal.ok("consume", "moved", "--group", "mover", "--max", "2")
    listed = terminal.json("groups", "ls")
    assert {"group": "mover", "state": "Empty", "protocol_type": "", "member_count": 0} in listed
    assert "mover" in terminal.ok("groups", "ls")
    assert terminal.json("groups", "describe", "mover")["lag"] == 3
    assert "nothing committed" not in terminal.ok("groups", "describe", "mover")
    (row,) = terminal.json("groups", "lag", "mover")["partitions"]
    assert (row["offset"], row["high_watermark"], row["lag"]) == (2, 5, 3)

    shown = terminal.ok("groups", "reset", "mover", "--to-latest")
    assert "nothing was changed" in shown
    assert terminal.json("groups", "lag", "mover")["lag"] == 3
    (change,) = terminal.json("groups", "reset", "mover", "--shift-by", "-1", "--execute")[
        "offsets"
    ]
    assert (change["from"], change["to"]) == (2, 1)
    assert terminal.ok("consume", "moved", "--group", "mover", "--max", "1") == "2\n"
    for words, to in (
        (("--to-offset", "4"), 4),
        (("--to-earliest",), 0),
        (("--to-datetime", "2001-01-01T00:00:00"), 0),
        (("--to-datetime", "2999-01-01T00:00:00Z"), 5),
        (("--to-latest", "--topic", "moved", "--partition", "0"), 5),
    ):
        (change,) = terminal.json("groups", "reset", "mover", *words)["offsets"]
        assert change["to"] == to
    assert "exactly one" in terminal.fails("groups", "reset", "mover", code=2)
    both = ("--to-earliest", "--to-latest")
    assert "exactly one" in terminal.fails("groups", "reset", "mover", *both, code=2)

    assert terminal.json("groups", "delete", "mover", "--yes") == {"deleted": "mover"}
    assert "no group" in terminal.fails("groups", "describe", "mover")
    assert "no group" in terminal.fails("groups", "delete", "mover", "--yes")


def test_follow_waits_for_what_comes(terminal: Terminal, server: ServerProcess) -> None:
    terminal.ok("topics", "create", "live", "--partitions", "1")
    follower = subprocess.Popen(
        [
            *(sys.executable, "-m", "streamhouse", "consume", "live", "--follow", "--max", "2"),
            *("--offset", "earliest", "--server", server.http),
        ],
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    try:
        terminal.ok("produce", "live", "--value", "first")
        assert follower.stdout is not None
        assert follower.stdout.readline() == b"first\n"
        terminal.ok("produce", "live", "--value", "second")
        assert follower.stdout.readline() == b"second\n"
        assert follower.wait(SECONDS_MAX) == 0
    finally:
        follower.kill()
        follower.communicate()


def test_errors_say_the_next_step(terminal: Terminal) -> None:
    nobody = Terminal()
    for words in (("topics", "ls"), ("produce", "t", "--value", "v"), ("consume", "t")):
        text = nobody.fails(*words)
        assert "cannot reach http://127.0.0.1:1" in text
        assert "streamhouse server" in text
    assert "no topic 'nope'" in terminal.fails("produce", "nope", "--value", "v")
    assert "no topic 'nope'" in terminal.fails("consume", "nope")
    assert "outside [0, 0]" in terminal.fails("consume", *_fresh(terminal), "--offset", "9")
    assert "not a topic name" in terminal.fails("topics", "create", "a b")
    terminal.fails("consume", code=2)
    terminal.fails("topics", "explode", code=2)
    terminal.fails("consume", "t", "--offset", "soon", code=2)


def _fresh(terminal: Terminal) -> list[str]:
    terminal.ok("topics", "create", "fresh", "--partitions", "1")
    return ["fresh"]


def test_doctor_looks_at_server_and_machine(terminal: Terminal, server: ServerProcess) -> None:
    done = terminal.run("doctor", "--json", "--data-dir", str(server.data_dir))
    report = json.loads(done.stdout)
    status = {check["check"]: check["status"] for check in report["checks"]}
    assert status["server"] == "ok"
    assert status["data directory"] == "ok"
    assert {"disk space", "file descriptors", "clock", "python", "libraries"} <= status.keys()
    assert done.returncode == (0 if report["ok"] else 1)
    absent = Terminal().run("doctor")
    assert absent.returncode == 1
    assert b"streamhouse server" in absent.stdout


def test_segments_are_read_without_a_server(tmp_path: Path) -> None:
    """Goal: ls, inspect, cat and verify on the directory a stopped server left behind."""
    terminal = Terminal()
    with running_server(tmp_path) as server:
        writer = Terminal(server.http)
        writer.ok("topics", "create", "kept", "--partitions", "1")
        writer.ok("produce", "kept", stdin=b"".join(b"%d\n" % n for n in range(1_000)))
        data_dir = server.data_dir
    where = ("--data-dir", str(data_dir))
    [listed] = terminal.json("segments", "ls", *where)
    assert (listed["topic"], listed["base_offset"], listed["end_offset"]) == ("kept", 0, 1_000)
    assert listed["source"] == "manifest"
    bare = ("--store", (data_dir / "objects").as_uri())
    assert terminal.json("segments", "ls", *bare) == [listed]
    assert listed["key"] in terminal.ok("segments", "ls", *where)
    tail = terminal.json("segments", "inspect", listed["key"], *where)
    assert tail["footer"]["record_count"] == 1_000
    lines = terminal.ok("segments", "cat", "--offset", "990", "--topic", "kept", *where)
    assert [json.loads(line)["value"] for line in lines.splitlines()] == [
        str(n) for n in range(990, 1_000)
    ]
    assert terminal.json("segments", "verify", *where)["damage"] == []
    assert "no damage" in terminal.ok("segments", "verify", *where)


def test_damage_is_found_with_its_place(tmp_path: Path) -> None:
    """Goal: one flipped bit in a block is reported with file, block and position; exit code 1."""
    terminal = Terminal()
    with running_server(tmp_path) as server:
        writer = Terminal(server.http)
        writer.ok("topics", "create", "hurt", "--partitions", "1")
        writer.ok("produce", "hurt", stdin=b"".join(b"%d\n" % n for n in range(1_000)))
        data_dir = server.data_dir
    [listed] = terminal.json("segments", "ls", "--data-dir", str(data_dir))
    path = data_dir / "objects" / listed["key"]
    [block, *_] = terminal.json("segments", "inspect", str(path))["blocks"]
    body = bytearray(path.read_bytes())
    body[block["position"] + block["stored_length"] // 2] ^= 1
    path.chmod(0o600)
    path.write_bytes(body)
    done = terminal.run("segments", "verify", "--json", "--data-dir", str(data_dir))
    assert done.returncode == 1
    [damage] = json.loads(done.stdout)["damage"]
    assert (damage["key"], damage["block"], damage["position"]) == (
        listed["key"],
        0,
        block["position"],
    )
    told = terminal.run("segments", "verify", "--data-dir", str(data_dir))
    assert told.returncode == 1
    assert f"DAMAGED {listed['key']}, block 0, byte {block['position']}".encode() in told.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--http-addr", "nowhere"), "not an address"),
        (("--segment-max-size", "big"), "SEGMENT_MAX_SIZE='big' is not a whole number"),
        (("--log-level", "loud"), "loud"),
        (("--database-url", "mysql://x"), "DATABASE_URL"),
        (("--object-store-url", "ftp://x"), "names no store"),
    ],
)
def test_a_wrong_setting_ends_the_start_in_one_line(
    tmp_path: Path, words: tuple[str, ...], says: str
) -> None:
    data = ("--data-dir", str(tmp_path / "data"))
    ports = ("--kafka-addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0")
    http = () if "--http-addr" in words else ("--http-addr", "127.0.0.1:0")
    text = Terminal().fails("server", *data, *ports, *http, *words)
    assert text.startswith("error: ")
    assert says in text


def test_a_directory_in_use_or_not_usable_ends_the_start_in_one_line(
    server: ServerProcess, tmp_path: Path
) -> None:
    ports = [
        *("--http-addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0"),
        *("--kafka-addr", "127.0.0.1:0"),
    ]
    text = Terminal().fails("server", *ports, "--data-dir", str(server.data_dir))
    assert "in use by another process" in text
    occupied = tmp_path / "file"
    occupied.write_text("not a directory", encoding="utf-8")
    text = Terminal().fails("server", *ports, "--data-dir", str(occupied / "data"))
    assert str(occupied) in text


@pytest.mark.parametrize("door", ["http", "grpc", "kafka"])
def test_a_taken_port_ends_the_start_in_one_line(
    server: ServerProcess, tmp_path: Path, door: str
) -> None:
    addresses = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "kafka": "127.0.0.1:0"}
    addresses[door] = server.endpoints[door]
    flags = [word for name, where in addresses.items() for word in (f"--{name}-addr", where)]
    done = Terminal().run("server", *flags, "--data-dir", str(tmp_path / "data"))
    assert done.returncode == 1
    [told] = [line for line in done.stderr.decode().splitlines() if line.startswith("error: ")]
    assert server.endpoints[door] in told
    assert "Traceback" not in done.stderr.decode()


def test_help_shows_every_setting_with_its_default() -> None:
    text = " ".join(Terminal().ok("server", "--help").split())
    for flag, variable, default in (
        ("--http-addr", "HTTP_ADDR", "127.0.0.1:8080"),
        ("--kafka-addr", "KAFKA_ADDR", "127.0.0.1:9092"),
        ("--segment-max-age-ms", "SEGMENT_MAX_AGE_MS", "60000"),
        ("--auto-create-topics", "AUTO_CREATE_TOPICS", "1"),
    ):
        assert flag in text
        assert f"[env {variable}; default {default}]" in text
