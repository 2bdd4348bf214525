"""Reports a damaged log, so that no command presents a partial result as complete."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from gateway.audit.projecting.projector import ProjectionBroken, Projector
from gateway.cli.options import Refused


async def catch_up(projector: Projector) -> str:
    """Bring the database up to date; returns the obstacle, or an empty text."""
    try:
        await projector.catch_up()
    except (ProjectionBroken, OSError) as error:
        return f"not all records could be read: {error}"
    return ""


def end_if_damaged(damage: str) -> None:
    """Exit with status 1 and the reason if something could not be read."""
    if damage:
        said = f"gatewright: {damage}; `gatewright audit fsck` says what is affected"
        click.echo(said, err=True)
        sys.exit(1)


@contextmanager
def refusing_damage() -> Iterator[None]:
    """Around work that needs the complete log: an unreadable part of it is a refusal."""
    try:
        yield
    except ProjectionBroken as error:
        raise Refused(f"{error}; `gatewright audit fsck` says what is affected") from error
