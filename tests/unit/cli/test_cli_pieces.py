"""The pieces of the command line that need no server."""

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from streamhouse.cli.client import Api, Refused
from streamhouse.cli.consume import command as consume_command
from streamhouse.cli.doctor import FAILED, OK, check_directory
from streamhouse.cli.main import CommandFailed, cli
from streamhouse.cli.output import bytes_text, record_json, time_text
from streamhouse.cli.produce import LINES_PER_REQUEST_MAX, read_lines, record_of_line
from streamhouse.cli.server import command as server_command
from streamhouse.model.records import Record, RecordHeader
from streamhouse.model.settings import SETTINGS


def lines_of(*writes: bytes) -> list[list[bytes]]:
    """What `read_lines` makes of a pipe into which these bytes are written one after the other."""
    reading, writing = os.pipe()
    try:
        found = []
        source = read_lines(reading)
        for data in writes[:-1]:
            os.write(writing, data)
            if b"\n" in data:
                found.append(next(source))
        os.write(writing, writes[-1])
        os.close(writing)
        return found + list(source)
    finally:
        os.close(reading)


def test_lines_are_sent_as_they_arrive() -> None:
    """Goal: a slow source is not held back until a batch is full."""
    assert lines_of(b"a\n", b"b\nc\n", b"d") == [[b"a"], [b"b", b"c"], [b"d"]]


def test_a_line_may_arrive_in_pieces() -> None:
    assert lines_of(b"one", b" line\r\nnext\n") == [[b"one line", b"next"]]
    assert lines_of(b"\n\n") == [[b"", b""]]
    assert lines_of(b"") == []


def test_many_lines_become_several_requests() -> None:
    count = LINES_PER_REQUEST_MAX + 10
    groups = lines_of(b"x\n" * count)
    assert sum(map(len, groups)) == count
    assert max(map(len, groups)) <= LINES_PER_REQUEST_MAX


@pytest.mark.parametrize(
    ("line", "separator", "record"),
    [
        (b"plain", None, {"value": "plain"}),
        (b"k:v:w", b":", {"key": "k", "value": "v:w"}),
        (b":v", b":", {"key": "", "value": "v"}),
        (b"\xff", None, {"value_base64": "/w=="}),
        (b"\xff=x", b"=", {"key_base64": "/w==", "value": "x"}),
    ],
)
def test_a_line_becomes_a_record(
    line: bytes, separator: bytes | None, record: dict[str, str]
) -> None:
    assert record_of_line(line, separator) == record


def test_a_line_without_the_separator_is_refused() -> None:
    with pytest.raises(CommandFailed, match="has no ':'"):
        record_of_line(b"no separator", b":")


def test_sizes_and_times_are_readable() -> None:
    assert [bytes_text(size) for size in (0, 1023, 1024, 5 << 20, 3 << 50)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "5.0 MiB",
        "3072.0 TiB",
    ]
    assert time_text(1_700_000_000_123) == "2023-11-14 22:13:20.123Z"
    assert time_text(-1) == "-"
    assert time_text(2**62) == str(2**62)


def test_a_stored_record_is_shown_as_rest_shows_it() -> None:
    record = Record(7, 8, None, b"\xff", (RecordHeader("h", b"v"), RecordHeader("r", b"\xfe")))
    assert record_json(record, 3) == {
        "partition": 3,
        "offset": 7,
        "timestamp": 8,
        "key": None,
        "value": "/w==",
        "value_encoding": "base64",
        "encoding": "base64",
        "headers": [
            {"name": "h", "value": "v"},
            {"name": "r", "value": "/g==", "encoding": "base64"},
        ],
    }


def test_every_setting_is_a_flag() -> None:
    """Goal: the table of settings and the command's flags cannot drift apart."""
    flags = {option for parameter in server_command.params for option in parameter.opts}
    assert flags == {setting.flag for setting in SETTINGS}


def test_help_of_every_command_works() -> None:
    runner = CliRunner()
    assert runner.invoke(cli, ["--help"]).exit_code == 0
    for name in cli.list_commands(click.Context(cli)):
        result = runner.invoke(cli, [name, "--help"])
        assert result.exit_code == 0, result.output
        assert "Usage:" in result.output


def test_a_wrong_offset_is_wrong_usage() -> None:
    result = CliRunner().invoke(consume_command, ["t", "--offset", "soon"])
    assert result.exit_code == 2
    assert "earliest, latest" in result.output


def test_doctor_tells_what_to_do_about_the_directory(tmp_path: Path) -> None:
    assert check_directory(tmp_path).status == OK
    assert check_directory(tmp_path / "not" / "yet").status == OK
    file = tmp_path / "file"
    file.write_text("x", encoding="utf-8")
    finding = check_directory(file)
    assert (finding.status, finding.next_step != "") == (FAILED, True)


class Answers(BaseHTTPRequestHandler):
    """A stranger on the port: says what the path asks for."""

    protocol_version = "HTTP/1.1"
    requests = 0

    def do_GET(self) -> None:
        type(self).requests += 1
        kind = self.path.strip("/")
        body = {"problem": b'{"code":"c","detail":"do this"}', "html": b"<html>"}.get(kind, b"{}")
        self.send_response(400 if kind == "problem" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        if kind == "close":
            self.close_connection = True

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def stranger() -> Iterator[str]:
    Answers.requests = 0
    server = HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_problem_becomes_its_detail(stranger: str) -> None:
    api = Api(stranger)
    with pytest.raises(Refused, match="do this") as caught:
        api.get("/problem")
    assert (caught.value.status, caught.value.code) == (400, "c")
    api.close()


def test_a_server_of_another_kind_is_noticed(stranger: str) -> None:
    api = Api(stranger)
    with pytest.raises(CommandFailed, match="does not answer like StreamHouse"):
        api.get("/html")
    api.close()


def test_a_read_is_sent_again_on_a_stale_connection_and_a_write_is_not(stranger: str) -> None:
    """Goal: a connection closed while idle costs a read nothing, and never doubles a write."""
    api = Api(stranger)
    api.get("/close")
    assert api.get("/again") == {}
    api.get("/close")
    seen = Answers.requests
    try:
        api.post("/write", {})
        assert Answers.requests == seen + 1
    except CommandFailed:
        assert Answers.requests == seen
    api.close()


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://host:port", "::"])
def test_a_wrong_address_is_refused(url: str) -> None:
    with pytest.raises(CommandFailed, match="not a server's address"):
        Api(url)


def test_nobody_there_says_how_to_start_one() -> None:
    api = Api("127.0.0.1:1")
    with pytest.raises(CommandFailed, match="start it with: streamhouse server"):
        api.get("/")


def test_version_is_json_if_asked() -> None:
    result = CliRunner().invoke(cli, ["version", "--json"])
    assert json.loads(result.output).keys() == {"version"}
