"""StreamHouse as the broker under measurement: the installed command, its defaults, free ports.

Owns: how the server is started and how its readiness is told (`endpoints.json`).
"""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from bench.process import Launch, free_port

ENDPOINTS = "endpoints.json"


class StreamHouseAbsent(Exception):
    """The server's command is not installed; the message says where it was looked for."""


@dataclass(frozen=True, slots=True)
class StreamHouse:
    """An installed StreamHouse that can be started on any number of directories."""

    command: Path
    version: str
    env: Mapping[str, str] = field(default_factory=dict)
    name: str = "streamhouse"

    def prepare(self, directory: Path) -> None:
        """An empty directory is all it needs."""
        directory.mkdir(parents=True)

    def launch(self, directory: Path, env: Mapping[str, str] | None = None) -> Launch:
        """Describe a start; settings in `env` win over those of this object."""
        endpoints = directory / ENDPOINTS
        # Left over from an earlier start it would make the new one look ready at once.
        endpoints.unlink(missing_ok=True)
        address = f"127.0.0.1:{free_port()}"
        return Launch(
            command=[
                *(str(self.command), "server", "--data-dir", str(directory)),
                *("--kafka-addr", address),
                *("--http-addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0"),
            ],
            env={**os.environ, **self.env, **(env or {})},
            directory=directory,
            address=address,
            is_ready=lambda: _is_complete(endpoints),
        )

    def settings(self) -> str:
        changed = " ".join(f"{name}={value}" for name, value in self.env.items())
        return f"embedded, fdatasync before each ack, {changed or 'default settings'}"


def find_streamhouse(
    command: Path | None = None, env: Mapping[str, str] | None = None
) -> StreamHouse:
    """`command`, or the one beside the running interpreter. Raises: StreamHouseAbsent."""
    command = command or Path(sys.executable).parent / "streamhouse"
    if not command.exists():
        raise StreamHouseAbsent(f"no command {command.name} beside {Path(sys.executable).name}")
    return StreamHouse(command=command, version=_version(), env=env or {})


def _version() -> str:
    try:
        return metadata.version("streamhouse")
    except metadata.PackageNotFoundError:
        return "not installed as a package"


def _is_complete(endpoints: Path) -> bool:
    try:
        return "kafka" in json.loads(endpoints.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return False
