"""The `streamhouse` command: which subcommands there are, and how errors end it.

Subcommands are imported when they are called, so that `--help` and short commands start fast.
Exit codes: 0 done, 1 it failed (one line on stderr says why and what to do), 2 wrong usage.
"""

import os
import sys

import click

from streamhouse.model.errors import StreamhouseError

_COMMANDS = {
    "server": "Start the server: REST, gRPC and Kafka.",
    "topics": "List, create, describe, change and delete topics.",
    "produce": "Write records to a topic.",
    "consume": "Read records of a topic.",
    "groups": "List, describe, reset and delete consumer groups.",
    "segments": "Look into stored segments, without a server.",
    "doctor": "Check server, data directory and machine.",
    "version": "Show the version.",
}
EXIT_FAILED = 1


class CommandFailed(Exception):
    """Ends the command with exit code 1; the message is for a person."""


class LazyGroup(click.Group):
    """Knows names and one-line helps; loads the module of a subcommand on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _load(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


def _load(name: str) -> click.Command | None:
    match name:
        case "server":
            from streamhouse.cli.server import command
        case "topics":
            from streamhouse.cli.topics import command
        case "produce":
            from streamhouse.cli.produce import command
        case "consume":
            from streamhouse.cli.consume import command
        case "groups":
            from streamhouse.cli.groups import command
        case "segments":
            from streamhouse.cli.segments import command
        case "doctor":
            from streamhouse.cli.doctor import command
        case "version":
            from streamhouse.cli.version import command
        case _:
            return None
    return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """StreamHouse: a Kafka in one process, with its data in open files."""


def main() -> None:
    """Run the command line; every failure ends in one line on stderr, never in a traceback."""
    try:
        # Outside standalone mode click returns the code of an Exit instead of raising it.
        ended = cli.main(standalone_mode=False, prog_name="streamhouse")
        sys.exit(ended if isinstance(ended, int) else 0)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("aborted", err=True)
        sys.exit(EXIT_FAILED)
    except BrokenPipeError:
        # The reader of our output has gone (`| head`); do not complain when flushing at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (CommandFailed, StreamhouseError, OSError) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(EXIT_FAILED)
