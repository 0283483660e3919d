"""`streamhouse version`."""

import click

import streamhouse
from streamhouse.cli.output import json_option, print_json


@click.command("version")
@json_option
def command(as_json: bool) -> None:
    """Show the version."""
    if as_json:
        print_json({"version": streamhouse.__version__})
    else:
        click.echo(f"streamhouse {streamhouse.__version__}")
