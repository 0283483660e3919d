"""A real server process on free ports and a directory of its own, for integration tests.

Its log is part of what is tested: leaving `running_server` fails on a traceback and on any WARNING,
ERROR or CRITICAL line that the test did not announce with `expect_in_log`.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

READY_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 40.0
POLL_SECONDS = 0.01
_NOTEWORTHY = re.compile(r"\b(WARNING|ERROR|CRITICAL)\b|^Traceback ", re.MULTILINE)


class ServerFailed(AssertionError):
    """The server did not start, did not stop, or wrote what it must not write."""


class ServerProcess:
    """One data directory and the process that serves it; it can be killed and started again.

    `settings` are environment variables such as SEGMENT_MAX_SIZE. Ports are chosen by the system
    at the first start and kept for the next ones, so that clients find the server again.
    """

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self.data_dir = directory / "data"
        self._log_path = directory / "server.log"
        self._settings = dict(settings or {})
        self._expected: list[re.Pattern[str]] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self.endpoints: dict[str, str] = {}

    # -- where ------------------------------------------------------------------------------------

    @property
    def http(self) -> str:
        return f"http://{self.endpoints['http']}"

    @property
    def kafka(self) -> str:
        return self.endpoints["kafka"]

    @property
    def grpc(self) -> str:
        return self.endpoints["grpc"]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    # -- life -------------------------------------------------------------------------------------

    def start(self, **settings: str) -> "ServerProcess":
        """Start and wait until it is ready. `settings` win over those of the constructor."""
        self.launch(**settings)
        self.wait_ready()
        return self

    def launch(self, **settings: str) -> None:
        """Start without waiting."""
        assert self._process is None, "it runs already"
        (self.data_dir / "endpoints.json").unlink(missing_ok=True)
        self._log = self._log_path.open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "streamhouse", "server"],
            env={**_clean_environment(), **self._addresses(), **self._settings, **settings},
            cwd=Path(__file__).resolve().parents[2],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def wait_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS_MAX
        path = self.data_dir / "endpoints.json"
        while not path.exists():
            if self._process is None or self._process.poll() is not None:
                raise ServerFailed(f"the server ended before it was ready\n{self.log_text()}")
            if time.monotonic() > deadline:
                self.kill9()
                raise ServerFailed(f"not ready in {READY_SECONDS_MAX} s\n{self.log_text()}")
            time.sleep(POLL_SECONDS)
        self.endpoints = json.loads(path.read_text(encoding="utf-8"))

    def kill9(self) -> None:
        """End it as a power cut of the process would."""
        assert self._process is not None
        self._process.kill()
        self._forget()

    def terminate(self) -> int:
        """Ask it to stop with SIGTERM; return its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self.wait_exit()

    def wait_exit(self, seconds: float = STOP_SECONDS_MAX) -> int:
        """Wait until the process has ended by itself; return its exit code."""
        assert self._process is not None
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill9()
            raise ServerFailed(f"it did not stop in {seconds} s\n{self.log_text()}") from None
        self._forget()
        return code

    def restart(self, **settings: str) -> "ServerProcess":
        """Stop gracefully and start again on the same directory and ports."""
        code = self.terminate()
        assert code == 0, f"exit code {code}\n{self.log_text()}"
        return self.start(**settings)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    # -- log --------------------------------------------------------------------------------------

    def log_text(self) -> str:
        """Everything all its processes have written."""
        if not self._log_path.exists():
            return ""
        return self._log_path.read_text(encoding="utf-8", errors="replace")

    def expect_in_log(self, pattern: str) -> None:
        """Lines that match are no fault of the server in this test."""
        self._expected.append(re.compile(pattern))

    def check_log(self) -> None:
        """Raise ServerFailed on noteworthy lines nobody expected."""
        faults = [line for line in self.log_text().splitlines() if self._is_fault(line)]
        if faults:
            raise ServerFailed("unexpected in the log:\n" + "\n".join(faults) + self._tail())

    def _is_fault(self, line: str) -> bool:
        return bool(_NOTEWORTHY.search(line)) and not any(p.search(line) for p in self._expected)

    def _tail(self) -> str:
        return "\n--- the log's last lines\n" + "\n".join(self.log_text().splitlines()[-30:])

    # -- REST -------------------------------------------------------------------------------------

    def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """(status, decoded JSON or None) of a REST call; errors do not raise."""
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.http + path, data=data, method=method)
        try:
            with urlopen(request, timeout=60) as response:
                status, raw = response.status, response.read()
        except HTTPError as error:
            with error:
                status, raw = error.code, error.read()
        return status, json.loads(raw) if raw else None

    # -- inside -----------------------------------------------------------------------------------

    def _addresses(self) -> dict[str, str]:
        found = {
            f"{door.upper()}_ADDR": self.endpoints.get(door, "127.0.0.1:0")
            for door in ("http", "grpc", "kafka")
        }
        return {**found, "DATA_DIR": str(self.data_dir)}

    def _forget(self) -> None:
        assert self._process is not None
        assert self._log is not None
        self._process.wait(STOP_SECONDS_MAX)
        self._log.close()
        self._process, self._log = None, None


@contextmanager
def running_server(
    directory: Path, settings: Mapping[str, str] | None = None
) -> Iterator[ServerProcess]:
    """A started server; at the end it is stopped and its log is checked."""
    server = ServerProcess(directory, settings)
    try:
        yield server.start()
        if server.is_running:
            code = server.terminate()
            assert code == 0, f"exit code {code}\n{server.log_text()}"
        server.check_log()
    finally:
        if server.is_running:
            server.kill9()


def _clean_environment() -> dict[str, str]:
    """The environment without settings of ours that a developer may have exported."""
    from streamhouse.model.settings import SETTINGS

    ours = {setting.variable for setting in SETTINGS}
    return {name: value for name, value in os.environ.items() if name not in ours}
