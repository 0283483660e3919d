"""`streamhouse doctor`: what is wrong with this machine, this directory or that server.

Every check is a small function that returns a finding; a finding that is not ok says what to do.
"""

import os
import platform
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import click

from streamhouse.cli.client import Api, Refused, with_server
from streamhouse.cli.main import EXIT_FAILED, CommandFailed
from streamhouse.cli.output import bytes_text, json_option, print_json
from streamhouse.model.limits import CONNECTIONS_MAX, GIB, WAL_BYTES_MAX

OK, WARNING, FAILED = "ok", "warning", "failed"

CLOCK_SKEW_MS_MAX = 5_000
CLOCK_YEAR_MIN = 2024
DESCRIPTORS_MIN = 1_024
DESCRIPTORS_SPARE = 512
PYTHON_MIN = (3, 11)
LIBRARIES = (
    "aiohttp",
    "click",
    "cramjam",
    "crc32c",
    "grpcio",
    "kio",
    "lz4",
    "prometheus-client",
    "rich",
    "uvloop",
    "zstandard",
)
_MARKS = {OK: "ok     ", WARNING: "warning", FAILED: "FAILED "}


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    status: str
    detail: str
    next_step: str = ""


@click.command("doctor")
@click.option(
    "--data-dir",
    envvar="DATA_DIR",
    default="./streamhouse-data",
    show_default=True,
    help="The server's data directory.",
)
@json_option
@with_server
def command(api: Api, data_dir: str, as_json: bool) -> None:
    """Check server, data directory and machine; exit code 1 if something fails."""
    findings = list(_findings(api, Path(data_dir)))
    failed = any(finding.status == FAILED for finding in findings)
    if as_json:
        print_json({"ok": not failed, "checks": [asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            click.echo(f"{_MARKS[finding.status]}  {finding.check}: {finding.detail}")
            if finding.next_step:
                click.echo(f"         -> {finding.next_step}")
    if failed:
        raise click.exceptions.Exit(EXIT_FAILED)


def _findings(api: Api, data_dir: Path) -> Iterator[Finding]:
    yield from check_server(api)
    checks: tuple[Callable[[], Finding], ...] = (
        lambda: check_directory(data_dir),
        lambda: check_disk(data_dir),
        check_descriptors,
        check_clock,
        check_python,
        check_libraries,
    )
    for check in checks:
        yield check()


def check_server(api: Api) -> Iterator[Finding]:
    """Reachable, healthy, and with a clock like ours."""
    try:
        health = api.get("/health")
    except Refused as error:
        yield Finding("server", FAILED, f"{api.url} is not ready: {error}", "see the server's log")
        return
    except CommandFailed as error:
        yield Finding("server", FAILED, f"no answer from {api.url}", str(error))
        return
    problems = "; ".join(health["problems"])
    status = WARNING if problems else OK
    yield Finding("server", status, f"{api.url} {problems or 'is ready'} ({health['version']})")
    skew_ms = abs(health["now_ms"] - time.time_ns() // 1_000_000)
    if skew_ms > CLOCK_SKEW_MS_MAX:
        yield Finding(
            "server clock",
            WARNING,
            f"differs from this machine's by {skew_ms} ms",
            "set both clocks by NTP; record timestamps depend on them",
        )


def check_directory(data_dir: Path) -> Finding:
    if not data_dir.exists():
        parent = next(path for path in data_dir.absolute().parents if path.exists())
        if not os.access(parent, os.W_OK | os.X_OK):
            return Finding(
                "data directory",
                FAILED,
                f"{data_dir} cannot be made: {parent} is not writable",
                "choose another with --data-dir, or change the owner of its parent",
            )
        return Finding("data directory", OK, f"{data_dir} does not exist yet; the server makes it")
    if not data_dir.is_dir():
        return Finding(
            "data directory",
            FAILED,
            f"{data_dir} is not a directory",
            "choose another with --data-dir",
        )
    if not os.access(data_dir, os.R_OK | os.W_OK | os.X_OK):
        return Finding(
            "data directory",
            FAILED,
            f"{data_dir} is not writable",
            "change its owner, or choose another with --data-dir",
        )
    return Finding("data directory", OK, f"{data_dir} is writable")


def check_disk(data_dir: Path) -> Finding:
    absolute = data_dir.absolute()
    existing = next(path for path in (absolute, *absolute.parents) if path.exists())
    free_bytes = shutil.disk_usage(existing).free
    detail = f"{bytes_text(free_bytes)} free on the disk of {data_dir}"
    if free_bytes < GIB // 4:
        return Finding("disk space", FAILED, detail, "free some space; writes will be refused")
    if free_bytes < 2 * WAL_BYTES_MAX:
        return Finding(
            "disk space",
            WARNING,
            detail,
            "the WAL alone may take 1 GiB; set WAL_MAX_BYTES lower, or free some space",
        )
    return Finding("disk space", OK, detail)


def check_descriptors() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS_MAX + DESCRIPTORS_SPARE
    endless = soft == resource.RLIM_INFINITY
    detail = "unlimited" if endless else f"{soft} (hard limit {hard})"
    if endless or soft >= wanted:
        return Finding("file descriptors", OK, detail)
    status = FAILED if soft < DESCRIPTORS_MIN else WARNING
    return Finding(
        "file descriptors",
        status,
        detail,
        f"{CONNECTIONS_MAX} connections need {wanted}: ulimit -n {wanted}, or set "
        f"MAX_CONNECTIONS below {max(soft - DESCRIPTORS_SPARE, 1)}",
    )


def check_clock() -> Finding:
    now = time.gmtime()
    shown = time.strftime("%Y-%m-%d %H:%M:%SZ", now)
    if now.tm_year < CLOCK_YEAR_MIN:
        return Finding("clock", FAILED, f"the clock says {shown}", "set the clock")
    return Finding("clock", OK, shown)


def check_python() -> Finding:
    detail = f"{platform.python_implementation()} {platform.python_version()}"
    if sys.version_info < PYTHON_MIN:
        return Finding("python", FAILED, detail, "install Python 3.11 or later")
    return Finding("python", OK, f"{detail} on {platform.system()} {platform.machine()}")


def check_libraries() -> Finding:
    found, absent = [], []
    for name in LIBRARIES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            absent.append(name)
    if absent:
        return Finding(
            "libraries",
            FAILED,
            f"missing: {', '.join(absent)}",
            "install them: pip install --upgrade streamhouse",
        )
    return Finding("libraries", OK, ", ".join(found))
