"""`streamhouse server`: one flag per setting, then the composition root takes over."""

import os
import sys
from typing import Any

import click

from streamhouse.model.settings import SETTINGS, Setting, settings_from


def _option(setting: Setting) -> click.Option:
    shown = setting.default
    if setting.kind is bool:
        shown = int(setting.default)
    notes = f"env {setting.variable}" if shown == "" else f"env {setting.variable}; default {shown}"
    switch: dict[str, Any] = {}
    if setting.kind is bool:
        # `--accept-wal-loss` and `--auto-create-topics 0` both work.
        switch = {"is_flag": False, "flag_value": "1"}
    return click.Option(
        [setting.flag, setting.name],
        default=None,
        metavar={bool: "0|1", int: "NUMBER"}.get(setting.kind, "TEXT"),
        help=f"{setting.help} [{notes}]",
        **switch,
    )


def _run(**flags: str | None) -> None:
    settings = settings_from(os.environ, flags)
    from streamhouse.app import run_server

    sys.exit(run_server(settings))


command = click.Command(
    "server",
    callback=_run,
    params=[_option(setting) for setting in SETTINGS],
    help=(
        "Start the server: REST, gRPC and Kafka in one process. Every setting is a flag and an "
        "environment variable; flags win. SIGTERM or Ctrl-C stops it after everything is stored."
    ),
    context_settings={"max_content_width": 110},
)
