"""The README's tour, pasted: its commands run against a real server and print what it shows."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.integration.server_process import ServerProcess, running_server

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
SECONDS_MAX = 60
README_HTTP = "127.0.0.1:8080"
README_KAFKA = "127.0.0.1:9092"
README_DATA = "./streamhouse-data"
BLOCKS_MIN = 7

_PIECE = re.compile(
    r"^```(?P<kind>\w+)\n(?P<text>.*?)^```$|^<!-- tour: (?P<act>\w+) the server -->$",
    re.MULTILINE | re.DOTALL,
)
# What differs from run to run and from machine to machine.
_VARIABLE = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "ID"),
    (re.compile(r"agent-[0-9a-f]{8}"), "AGENT"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{3})?Z"), "TIME"),
    (re.compile(r"\b1[5-9]\d{11}\b"), "MS"),
    (re.compile(r"\b\d+(\.\d+)? (B|KiB|MiB|GiB|TiB)\b"), "SIZE"),
    (re.compile(r"^(ok|warning) +(file descriptors|disk space|python|libraries):.*"), r"\2"),
    (re.compile(r"^-> .*"), ""),
    (re.compile(r"─+"), ""),
    (re.compile(r"[ \t]+"), " "),
)


class Step(NamedTuple):
    """Something the reader does: paste a block, or stop or start the server."""

    act: str  # paste, stop or start
    commands: str = ""
    shown: str = ""


_CLIENT_LOG = re.compile(r"^%\d\|\d+\.\d+\|")


def tour() -> Iterator[Step]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    _, _, rest = text.partition("## Five-minute tour\n")
    section, _, _ = rest.partition("\n## ")
    pieces = list(_PIECE.finditer(section))
    for index, piece in enumerate(pieces):
        if piece["act"]:
            yield Step(piece["act"])
        elif piece["kind"] == "bash":
            after = pieces[index + 1] if index + 1 < len(pieces) else None
            assert after is not None, "the last block shows no output"
            assert after["kind"] == "text", f"no output is shown for {piece['text']}"
            yield Step("paste", piece["text"], after["text"])


def paste(commands: str, server: ServerProcess) -> str:
    """What a person sees who pastes the commands, with this test's server in place of theirs."""
    here = commands.replace(README_HTTP, server.endpoints["http"])
    here = here.replace(README_KAFKA, server.kafka)
    here = here.replace(".venv/bin/", f"{Path(sys.executable).parent}/")
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", here],
        cwd=ROOT,
        env={
            **os.environ,
            "STREAMHOUSE_SERVER": server.http,
            "DATA_DIR": str(server.data_dir),
            "COLUMNS": "120",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, f"{here}\n{done.stdout}"
    text = done.stdout.replace(server.endpoints["http"], README_HTTP)
    return text.replace(str(server.data_dir), README_DATA)


def comparable(text: str) -> list[str]:
    """Lines without what may differ, and without librdkafka's own log (it begins with %level|)."""
    lines = []
    for line in text.splitlines():
        if _CLIENT_LOG.match(line):
            continue
        plain = line.strip()
        for pattern, word in _VARIABLE:
            plain = pattern.sub(word, plain).strip()
        if plain:
            lines.append(plain)
    return lines


def test_the_tour_shows_what_one_sees(tmp_path: Path) -> None:
    steps = list(tour())
    assert sum(step.act == "paste" for step in steps) >= BLOCKS_MIN
    assert {step.act for step in steps} == {"paste", "stop", "start"}
    has_kcat = shutil.which("kcat") is not None
    with running_server(tmp_path) as server:
        for step in steps:
            if step.act == "stop":
                assert server.terminate() == 0
            elif step.act == "start":
                server.start()
            elif has_kcat or "kcat" not in step.commands:
                seen = paste(step.commands, server)
                assert comparable(seen) == comparable(step.shown), f"{step.commands}\n{seen}"


def test_every_route_of_the_server_is_in_the_rest_page(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "rest.md").read_text(encoding="utf-8")
    with running_server(tmp_path) as server:
        _, about = server.call("GET", "/")
    missing = [route for route in about["routes"] if f"`{route}`" not in page]
    assert len(about["routes"]) > 10
    assert not missing, f"docs/rest.md does not describe {missing}"
