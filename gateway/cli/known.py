"""Checks that an organisation exists, so that a typing error does not look like no result."""

import click

from gateway.cli.options import Refused
from gateway.oversight.deeds import OPERATORS
from gateway.store.custody.orders import is_known
from gateway.store.engine import Database
from gateway.store.money.accounts import missing


async def require_organisation(database: Database, organisation: str | None) -> None:
    """Refuse an unknown name: an empty list would say that there was nothing."""
    if organisation in {None, OPERATORS} or await is_known(database, str(organisation)):
        return
    raise Refused(f"there is no organisation {organisation}")


async def say_if_nobodys(database: Database, account: str, deed: str) -> None:
    """Say if an account does not exist: it may come later, but a misspelt one never will."""
    if what := await missing(database, account):
        said = f"there is no such {what}: this {deed} nobody until there is"
        click.echo(f"gatewright: {account}: {said}", err=True)
