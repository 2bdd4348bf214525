"""Writes an admin record for each command that changes something: the old value and the order.

`@recorded` goes under `@asynchronous`; a test looks at every command for it.
"""

import asyncio
import os
import pwd
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import click
import msgspec

from gateway.actors import OF_MACHINE, typed_by
from gateway.audit.content_keys.keys import KeyWrapper
from gateway.audit.device import AuditLimits
from gateway.audit.writer import SegmentedAuditLog
from gateway.cli.brief_log import BriefLog
from gateway.cli.opening import opened_database
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.configuration.settings import Settings
from gateway.errors import StartupRefused
from gateway.oversight.deeds import Deeds
from gateway.secrets.credentials import master_key
from gateway.store.engine import Database, open_database
from gateway.store.evidence.numbered_places import require_what_was_numbered
from gateway.store.identity.keys import KeyReader
from gateway.store.identity.people import PeopleStore
from gateway.store.identity.teams import TeamStore
from gateway.store.money.leases import LeaseTable
from gateway.store.money.rate_limits import RateLimitTable
from gateway.store.policies.documents import PolicyStore
from gateway.store.pool_drains import DrainTable
from gateway.store.sealing.right_keys import require_right_master
from gateway.store.sealing.sealed_secrets import SealedSecretNames


RECORDING: set[str] = set()
"""The commands that leave an admin record, for the test that looks for those that do not."""
_TRIES, _PAUSE_S = 50, 0.1
_UNSAID = ("config_file", "was")

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Command = Callable[Parameters, Coroutine[None, None, Result]]
Ordered = Mapping[str, Any]
Former = Callable[[Settings, Database, Ordered], Awaitable[object]]
"""The state before a command, by its arguments; None if there was nothing."""


def actor() -> str:
    """The user of this machine who types the command, by the system's name.

    Containers may run under a number without a user name; then the number is recorded.
    """
    number = os.getuid()
    try:
        return f"{OF_MACHINE}{pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"{OF_MACHINE}{number}"


def typed_name(_: click.Context, __: click.Parameter, name: str) -> str:
    """Who acts, where a command asks for a name: the name, and the user who typed it."""
    if not name.strip():
        raise click.BadParameter("somebody does this")
    return typed_by(name, actor())


@asynccontextmanager
async def opened_log(settings: Settings, keys: KeyWrapper | None = None) -> AsyncIterator[BriefLog]:
    """The command line's own segments, for the length of one command.

    They are locked only while a record is written, so that other commands can write meanwhile.
    `keys` is a master key that the caller has checked, or will make the right one.

    Raises:
        ConfigurationInvalid: the master key does not belong to this database.
        StartupRefused: they end before what the database has numbered of them.
    """
    await _require_may_write(settings, keys)
    wrapper = keys or master_key(settings)
    log = BriefLog(_worker(settings), lambda: _started(settings, wrapper))
    await log.start()
    try:
        yield log
    finally:
        await log.close()


async def _require_may_write(settings: Settings, keys: KeyWrapper | None) -> None:
    directory = settings.path(settings.audit.directory)
    database = open_database(settings.database_url, pooled=False)
    try:
        if keys is None:
            await require_right_master(settings, database, SystemClock())
        await require_what_was_numbered(database, directory, _worker(settings))
    finally:
        await database.close()


def _worker(settings: Settings) -> str:
    return f"{settings.audit.worker}-operators"


async def _started(settings: Settings, keys: KeyWrapper) -> SegmentedAuditLog:
    for left in reversed(range(_TRIES)):
        log = SegmentedAuditLog(
            settings.path(settings.audit.directory),
            _worker(settings),
            keys=keys,
            clock=SystemClock(),
            limits=AuditLimits(free_floor_bytes=settings.audit.free_bytes_min),
        )
        try:
            await log.start()
        except StartupRefused:
            # Another command is writing a record; that takes no longer.
            if not left:
                raise
            await asyncio.sleep(_PAUSE_S)
        else:
            return log
    raise AssertionError


def recorded(
    action: str, former: Former | None = None
) -> Callable[[Command[Parameters, Result]], Command[Parameters, Result]]:
    """Let a command leave an admin record before it does anything."""

    def decorate(command: Command[Parameters, Result]) -> Command[Parameters, Result]:
        @wraps(command)
        async def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            config_file = kwargs["config_file"]
            assert isinstance(config_file, Path)
            ordered = {name: value for name, value in kwargs.items() if name not in _UNSAID}
            async with deed(load_settings(config_file), action, ordered, former):
                return await command(*args, **kwargs)

        return says_it_records(run)

    return decorate


def says_it_records(
    command: Command[Parameters, Result],
) -> Command[Parameters, Result]:
    """Mark a command that leaves an admin record by itself."""
    RECORDING.add(command.__qualname__ + command.__module__)
    return command


@asynccontextmanager
async def deed(
    settings: Settings, action: str, ordered: Ordered, former: Former | None = None
) -> AsyncIterator[None]:
    """Context of a command's change: recorded before it, with the old state and the order."""
    before = await _before(settings, former, ordered)
    after = {name: str(value) for name, value in ordered.items() if value not in (None, "", ())}
    async with opened_log(settings) as log:
        deeds = Deeds(log, SystemClock())
        about = organisation_of(ordered)
        async with deeds.doing(actor(), action, about, before=before, after=after):
            yield


def organisation_of(ordered: Ordered) -> str:
    """The organisation that a command is about, by name, or from its account or level."""
    named = ordered.get("organisation")
    if named:
        return str(named)
    place = str(ordered.get("account") or ordered.get("level") or "")
    kind, _, path = place.partition(":")
    return path.partition("/")[0] if kind in ("org", "ws", "proj", "user") else ""


async def _before(settings: Settings, former: Former | None, ordered: Ordered) -> object:
    async with opened_database(settings, pooled=False) as database:
        return await former(settings, database, ordered) if former else None


async def former_key(_: Settings, database: Database, ordered: Ordered) -> object:
    """A key without its digests."""
    for record in await KeyReader(database).keys():
        if record.key_id == ordered["key_id"]:
            principal = record.principal
            return {
                "name": principal.key_name,
                "project": f"{principal.organisation}/{principal.workspace}/{principal.project}",
                "models": principal.models
                if principal.models is None
                else sorted(principal.models),
                "labels": list(principal.labels),
                "translation": principal.translation,
                "expires_us": record.expires_us,
                "revoked_us": record.revoked_us,
            }
    return None


async def former_budget(_: Settings, database: Database, ordered: Ordered) -> object:
    """The limits of an account, or the one in the window that was ordered."""
    found = [
        msgspec.to_builtins(budget.limit)
        for budget in await LeaseTable(database, SystemClock()).budgets()
        if budget.limit.account == ordered["account"]
        and ordered["window"] in (None, budget.limit.window)
    ]
    return found or None


async def former_rate(_: Settings, database: Database, ordered: Ordered) -> object:
    """The rate limits of an account."""
    for limit in await RateLimitTable(database).all():
        if limit.account == ordered["account"]:
            return msgspec.to_builtins(limit)
    return None


async def former_drain(_: Settings, database: Database, ordered: Ordered) -> object:
    """The order that keeps a member of a pool drained."""
    for order in await DrainTable(database, SystemClock()).all():
        if order.member == ordered["member"]:
            return msgspec.to_builtins(order)
    return None


async def former_person(_: Settings, database: Database, ordered: Ordered) -> object:
    """Somebody's roles."""
    for person in await PeopleStore(database, SystemClock()).listed():
        if person.name == ordered["name"]:
            roles = [[grant.role, grant.organisation] for grant in sorted(person.grants)]
            return {"title": person.title, "disabled": person.is_disabled, "roles": roles}
    return None


async def former_team(_: Settings, database: Database, ordered: Ordered) -> object:
    """A team without its members."""
    store = TeamStore(database, SystemClock())
    team = await store.team(str(ordered["organisation"]), str(ordered["team"]))
    if team is None:
        return None
    return {"title": team.title, "owner": team.owner, "archived": team.archived_us is not None}


async def former_secret(_: Settings, database: Database, ordered: Ordered) -> object:
    """A secret's version."""
    for secret in await SealedSecretNames(database).listed():
        if secret.name == ordered["name"]:
            return msgspec.to_builtins(secret)
    return None


async def former_policy(_: Settings, database: Database, ordered: Ordered) -> object:
    """The states of a level's versions."""
    versions = await PolicyStore(database, SystemClock()).versions(str(ordered["level"]))
    return [[version.number, version.state] for version in versions[:10]]
