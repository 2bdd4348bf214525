"""`gatewright users …`: who may sign in to the admin listener, and what each may do there."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import click

from gateway.cli.deeds import deed, former_person, recorded, says_it_records
from gateway.cli.groups import Commands
from gateway.cli.known import say_if_nobodys
from gateway.cli.opening import opened_database
from gateway.cli.options import Refused, asynchronous, config_option, read_secret
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.oversight.access import EVERYWHERE, ROLE_PERMISSIONS, ROLES, Grant, Role
from gateway.store.identity.invitations import Invitations
from gateway.store.identity.people import PeopleStore


organisation_option = click.option(
    "--organisation", default=EVERYWHERE, help="Where the role holds; default everywhere."
)


@asynccontextmanager
async def opened_people(config_file: Path) -> AsyncIterator[PeopleStore]:
    """The people of a configuration, for the length of one command."""
    async with opened_database(load_settings(config_file)) as database:
        yield PeopleStore(database, SystemClock())


@click.group(cls=Commands)
def users() -> None:
    """People who sign in to the admin listener. Without a role they see nothing."""


@users.command()
@config_option
@click.argument("name")
@click.option("--title", default="", help="What people call them.")
@click.option("--subject", default="", help="ISSUER|SUBJECT of an OpenID provider.")
@asynchronous
@says_it_records
async def add(config_file: Path, name: str, title: str, subject: str) -> None:
    """Make somebody known; without a subject a password is read from standard input."""
    if subject and not all(subject.partition("|")):
        raise Refused("--subject: ISSUER|SUBJECT, or nobody can sign in by it")
    password = None if subject else read_secret()
    ordered = {"name": name, "title": title, "subject": subject}
    doing = deed(load_settings(config_file), "person.added", ordered)
    async with doing, opened_people(config_file) as store:
        await store.add(name, title=title, password=password, subject=subject)
    click.echo(f"{name}: added, without a role")


@users.command("password")
@config_option
@click.argument("name")
@asynchronous
@says_it_records
async def set_password(config_file: Path, name: str) -> None:
    """Set a password, read from standard input, and end the person's sessions."""
    password, ordered = read_secret(), {"name": name}
    doing = deed(load_settings(config_file), "person.password_set", ordered, former_person)
    async with doing, opened_people(config_file) as store:
        await store.set_password(name, password)
    click.echo(f"{name}: password set")


@users.command()
@config_option
@click.argument("name")
@click.argument("role", type=click.Choice(ROLES))
@organisation_option
@asynchronous
@recorded("role.granted", former_person)
async def grant(config_file: Path, name: str, role: Role, organisation: str) -> None:
    """Give a role; it holds with the next request."""
    async with opened_people(config_file) as store:
        await store.grant(name, Grant(role, organisation))
    async with opened_database(load_settings(config_file)) as database:
        if organisation != EVERYWHERE:
            await say_if_nobodys(database, f"org:{organisation}", "role reaches")
        if await Invitations(database, SystemClock()).shut([name]):
            said = f"no password, and no link that lets them in: `gatewright users password {name}`"
            click.echo(f"gatewright: {name} has {said}", err=True)
    click.echo(f"{name}: {role} in {organisation}")


@users.command()
@config_option
@click.argument("name")
@click.argument("role", type=click.Choice(ROLES))
@organisation_option
@asynchronous
@recorded("role.revoked", former_person)
async def revoke(config_file: Path, name: str, role: Role, organisation: str) -> None:
    """Take a role away; it is gone with the next request."""
    async with opened_people(config_file) as store:
        if not await store.revoke(name, Grant(role, organisation)):
            raise Refused(await _not_held(store, name, Grant(role, organisation)))
    click.echo(f"{name}: no longer {role} in {organisation}")


async def _not_held(store: PeopleStore, name: str, grant: Grant) -> str:
    """The error if a role is not held there, so that its loss in one place is not taken for all."""
    held = [
        each for person in await store.listed() if person.name == name for each in person.grants
    ]
    said = ", ".join(f"{each.role} in {each.organisation}" for each in held) or "no role"
    return f"{name} is not {grant.role} in {grant.organisation}; held: {said}"


@users.command()
@config_option
@click.argument("name")
@asynchronous
@recorded("person.signed_out", former_person)
async def signout(config_file: Path, name: str) -> None:
    """End all of somebody's sessions; they may sign in again."""
    async with opened_people(config_file) as store:
        count = await store.sign_out(name)
    click.echo(f"{name}: sessions ended: {count}")


@users.command()
@config_option
@click.argument("name")
@asynchronous
@recorded("person.disabled", former_person)
async def disable(config_file: Path, name: str) -> None:
    """Sign somebody out until they are enabled."""
    async with opened_people(config_file) as store:
        await store.disable(name)
    click.echo(f"{name}: disabled")


@users.command()
@config_option
@click.argument("name")
@asynchronous
@recorded("person.enabled", former_person)
async def enable(config_file: Path, name: str) -> None:
    """Let somebody who was disabled sign in again, with the roles they hold."""
    async with opened_people(config_file) as store:
        await store.enable(name)
    click.echo(f"{name}: enabled")


@users.command("list")
@config_option
@asynchronous
async def list_users(config_file: Path) -> None:
    """List people and their roles as JSON lines."""
    async with opened_people(config_file) as store:
        for person in await store.listed():
            line = {
                "name": person.name,
                "title": person.title,
                "disabled": person.is_disabled,
                "roles": [[each.role, each.organisation] for each in sorted(person.grants)],
                "by_group": [
                    [each.role, each.organisation, each.group] for each in sorted(person.by_group)
                ],
            }
            click.echo(json.dumps(line))


@users.command()
def roles() -> None:
    """Print what each role may do."""
    for role in ROLES:
        click.echo(f"{role}: {', '.join(sorted(ROLE_PERMISSIONS[role]))}")
