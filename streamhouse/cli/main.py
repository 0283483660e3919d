"""The `streamhouse` command: which subcommands there are, and how errors end it.

Subcommands are imported when they are called, so that `--help` and short commands start fast.
Exit codes: 0 done, 1 it failed (one line on stderr says why and what to do), 2 wrong usage.
"""

import os
import sys
from importlib import import_module

import click

from streamhouse.model.errors import StreamhouseError

_COMMANDS = {
    "server": ("streamhouse.cli.server", "Start the server: REST, gRPC and Kafka."),
    "topics": ("streamhouse.cli.topics", "List, create, describe, change and delete topics."),
    "produce": ("streamhouse.cli.produce", "Write records to a topic."),
    "consume": ("streamhouse.cli.consume", "Read records of a topic."),
    "segments": ("streamhouse.cli.segments", "Look into stored segments, without a server."),
    "doctor": ("streamhouse.cli.doctor", "Check server, data directory and machine."),
    "version": ("streamhouse.cli.version", "Show the version."),
}
EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


class CommandFailed(Exception):
    """Ends the command with exit code 1; the message is for a person."""


class LazyGroup(click.Group):
    """Knows names and one-line helps; loads the module of a subcommand on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        found = import_module(_COMMANDS[cmd_name][0]).command
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """StreamHouse: a Kafka in one process, with its data in open files."""


def main() -> None:
    """Run the command line; every failure ends in one line on stderr, never in a traceback."""
    try:
        cli.main(standalone_mode=False, prog_name="streamhouse")
    except click.exceptions.Exit as ended:
        sys.exit(ended.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output has gone (`| head`); do not complain when flushing at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (CommandFailed, StreamhouseError, OSError) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(EXIT_FAILED)
