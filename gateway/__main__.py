"""The entry point of `gatewright`: one command line for every part."""

import sys

import click

from gateway.cli.audit import audit
from gateway.cli.budgets import budgets
from gateway.cli.calibrate import calibrate
from gateway.cli.config import config
from gateway.cli.costs import costs
from gateway.cli.custody import CUSTODY
from gateway.cli.database import database
from gateway.cli.demo import demo
from gateway.cli.engine import engine
from gateway.cli.evidence import PROOFS
from gateway.cli.init import init
from gateway.cli.inspect import inspect
from gateway.cli.keys import keys
from gateway.cli.limits import limits
from gateway.cli.policy import policy
from gateway.cli.secrets import secrets
from gateway.cli.serve import admin, serve
from gateway.cli.train import train
from gateway.cli.users import users
from gateway.errors import GatewrightError


@click.group()
@click.version_option(package_name="gatewright")
def commands() -> None:
    """Gatewright: the enterprise AI gateway that keeps sovereign data home."""


for command in (
    init,
    serve,
    admin,
    engine,
    demo,
    keys,
    budgets,
    costs,
    limits,
    users,
    secrets,
    policy,
    audit,
    database,
    config,
    inspect,
    train,
    calibrate,
):
    commands.add_command(command)


for command in (*PROOFS, *CUSTODY):
    audit.add_command(command)


def main() -> None:
    """Run a command; an expected failure is one line on standard error and exit status 2."""
    try:
        commands()
    except GatewrightError as error:
        click.echo(f"gatewright: {error.message}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
