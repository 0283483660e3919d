"""The data directory: one process at a time, one format, one agent id."""

import errno
import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from streamhouse.model.errors import StartRefused
from streamhouse.ports.clock import Ids

FORMAT = 1


class DataDirectory:
    """Locked while the object lives. Raises StartRefused with one line that says what to do."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[str] | None = None

    def open(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / "lock").open("a+", encoding="utf-8")
        except OSError as error:
            raise StartRefused(
                f"the data directory {self.path} cannot be written: {error.strerror}. "
                f"Choose another with --data-dir, or change its owner"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise StartRefused(
                f"the data directory {self.path} is in use by another process. "
                f"Stop that one, or choose another directory with --data-dir"
            ) from error
        self._check_format()
        (self.path / "endpoints.json").unlink(missing_ok=True)

    def _check_format(self) -> None:
        path = self.path / "format"
        if not path.exists():
            self._write(path, f"{FORMAT}\n")
            return
        text = path.read_text(encoding="utf-8").strip()
        if not text.isdigit() or int(text) > FORMAT:
            raise StartRefused(
                f"the data directory {self.path} has format {text!r}; this version reads up to "
                f"{FORMAT}. Upgrade StreamHouse, or choose another directory with --data-dir"
            )

    def agent_id(self, wanted: str, ids: Ids) -> str:
        """The name of this agent: as configured, or made once and kept."""
        path = self.path / "agent_id"
        if wanted:
            return wanted
        if path.exists():
            return path.read_text(encoding="utf-8").strip()
        made = f"agent-{ids.nonce()[:8]}"
        self._write(path, f"{made}\n")
        return made

    def write_endpoints(self, endpoints: Mapping[str, str]) -> None:
        self._write(self.path / "endpoints.json", json.dumps(endpoints) + "\n")

    def close(self) -> None:
        if self._lock is not None:
            (self.path / "endpoints.json").unlink(missing_ok=True)
            self._lock.close()
            self._lock = None

    def _write(self, path: Path, text: str) -> None:
        """Whole or not at all: readers poll for these files."""
        unfinished = path.with_suffix(".tmp")
        try:
            with unfinished.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)
        except OSError as error:
            raise StartRefused(
                f"cannot write {path}: {error.strerror}. Free some space, or choose another "
                f"directory with --data-dir"
            ) from error
