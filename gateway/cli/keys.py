"""`gatewright keys …`: issues, lists, revokes, rotates and changes virtual keys."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import click
import msgspec

from gateway.cli.deeds import actor, deed, former_key, recorded, says_it_records
from gateway.cli.groups import Commands
from gateway.cli.key_scopes import SCOPES
from gateway.cli.known import require_organisation
from gateway.cli.opening import opened_database
from gateway.cli.options import Refused, asynchronous, config_option
from gateway.cli.teams import defaults_of, limit_new_key
from gateway.clock import DAY_US, SystemClock
from gateway.configuration.reading import load_settings
from gateway.configuration.settings import Settings
from gateway.errors import ChangedMeanwhile, GatewrightError
from gateway.identity import Peppers, Workload, key_id_for, new_key_id
from gateway.oversight.key_scope import check_labels, check_models
from gateway.secrets.credentials import all_peppers
from gateway.store.identity.keys import KeyReader, KeyStore, NewKey, Place, secrets_mark
from gateway.store.identity.names import visible
from gateway.store.identity.workloads import stored, workload_ordered
from gateway.store.sealing.right_keys import require_right_pepper
from gateway.types import Translation


EXPIRES_DAYS_MAX = 36_500
OVERLAP_S_MAX = 366 * 86_400
_MARK = re.compile(r"[0-9A-Za-z]{12}", re.ASCII)


class _Mark(click.ParamType[str]):
    """The same check as in the JSON API, so that the same mark makes the same key there."""

    name = "mark"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value and _MARK.fullmatch(value) is None:
            self.fail("use 12 letters and digits", param, ctx)
        return value


@asynccontextmanager
async def opened_keys(settings: Settings) -> AsyncIterator[KeyStore]:
    """The key store of a configuration, for the length of one command."""
    peppers = Peppers(all_peppers(settings), settings.secrets.pepper_version)
    async with opened_database(settings) as database:
        await require_right_pepper(settings, database, SystemClock())
        yield KeyStore(database, peppers, SystemClock())


@click.group(cls=Commands)
def keys() -> None:
    """Virtual keys."""


@keys.command()
@config_option
@click.option("--organisation", required=True)
@click.option("--workspace", required=True)
@click.option("--project", required=True)
@click.option("--name", required=True, help="What the key is for.")
@click.option("--label", "labels", multiple=True, help="A label that policies can see; repeatable.")
@click.option(
    "--model", "models", multiple=True, help="A target it may use; repeatable; default all."
)
@click.option(
    "--expires-days", type=click.IntRange(1, EXPIRES_DAYS_MAX), help="Days until it ends."
)
@click.option(
    "--translation",
    type=click.Choice(["strict", "warn", "lenient"]),
    default="warn",
    show_default=True,
    help="When a target's dialect has no word for a part of a request.",
)
@click.option("--mark", type=_Mark(), default="", help="12 letters and digits: one makes one key.")
@click.option("--issuer", default="", help="Of callers.issuers: its tokens prove it, no secret.")
@click.option("--subject", default="", help="The `sub` of these tokens.")
@click.option(
    "--claim", "claims", multiple=True, help="NAME=VALUE that they must say besides; repeatable."
)
@asynchronous
@says_it_records
async def issue(
    config_file: Path,
    organisation: str,
    workspace: str,
    project: str,
    name: str,
    labels: tuple[str, ...],
    models: tuple[str, ...],
    expires_days: int | None,
    translation: Translation,
    mark: str,
    issuer: str,
    subject: str,
    claims: tuple[str, ...],
) -> None:
    """Issue a key and print it: this is the only time it can be read.

    With --issuer it has no secret: tokens of that issuer for --subject prove it, and its id is
    printed. What is not said is what new keys of its team get: days to live, a budget, rate limits.
    """
    settings = load_settings(config_file)
    visible(name, "name")
    check_labels(labels)
    check_models(models, settings.targets)
    workload = _workload(settings, organisation, issuer, subject, claims)
    defaults = await defaults_of(settings, organisation, workspace)
    expires_days = expires_days or defaults.expires_days
    expires_us = None
    if expires_days is not None:
        expires_us = SystemClock().utc_us() + expires_days * DAY_US
    new = NewKey(
        place=Place(organisation, workspace, project),
        name=name,
        created_by=actor(),
        labels=labels,
        models=frozenset(models) if models else None,
        expires_us=expires_us,
        translation=translation,
        workload=workload,
        key_id=key_id_for(organisation, mark) if mark else new_key_id(),
    )
    ordered = {
        "key_id": new.key_id,
        "organisation": organisation,
        "workspace": workspace,
        "project": project,
        "name": name,
        "labels": ", ".join(labels),
        "models": ", ".join(models),
        "expires_us": expires_us,
        "translation": translation,
        "limits": "" if defaults.is_nothing else json.dumps(msgspec.to_builtins(defaults)),
        **({} if workload is None else stored(workload)),
    }
    async with deed(settings, "key.issued", ordered), opened_keys(settings) as store:
        key = await store.issue(new)
        try:
            await limit_new_key(settings, new.key_id, defaults)
            click.echo(key.reveal() if workload is None else key.key_id)
        except (GatewrightError, OSError, asyncio.CancelledError):
            # Nobody was told its secret, or its team's limits do not hold: it must not work.
            await store.revoke(new.key_id)
            raise


def _workload(
    settings: Settings, organisation: str, issuer: str, subject: str, claims: tuple[str, ...]
) -> Workload | None:
    if not issuer:
        if subject or claims:
            raise Refused("--subject and --claim mean nothing without --issuer")
        return None
    named: dict[str, str] = {}
    for each in claims:
        claim, is_said, value = each.partition("=")
        if not is_said or claim in named:
            raise Refused(f"--claim {each[:80]}: write NAME=VALUE, and each name once")
        named[claim] = value
    return workload_ordered(settings.callers.issuers, organisation, issuer, subject, named)


@keys.command("list")
@config_option
@click.option("--organisation", default=None)
@asynchronous
async def list_keys(config_file: Path, organisation: str | None) -> None:
    """List keys as JSON lines; never a secret."""
    now_us = SystemClock().utc_us()
    async with opened_database(load_settings(config_file)) as database:
        await require_organisation(database, organisation)
        for record in await KeyReader(database).keys(organisation):
            principal = record.principal
            line = {
                "key_id": record.key_id,
                "name": principal.key_name,
                "organisation": principal.organisation,
                "workspace": principal.workspace,
                "project": principal.project,
                "labels": list(principal.labels),
                "models": sorted(principal.models) if principal.models is not None else None,
                "live": record.is_live(now_us),
                "created_us": record.created_us,
                "expires_us": record.expires_us,
                "revoked_us": record.revoked_us,
                "secrets": secrets_mark(record.former_until_us),
                "pepper_version": record.digests[0].pepper_version if record.digests else None,
                "workload": None if record.workload is None else stored(record.workload),
            }
            click.echo(json.dumps(line))


@keys.command()
@config_option
@click.argument("key_id")
@asynchronous
@recorded("key.revoked", former_key)
async def revoke(config_file: Path, key_id: str) -> None:
    """End a key for good; it is dead on every worker within a second."""
    async with opened_keys(load_settings(config_file)) as store:
        await store.revoke(key_id)
    click.echo(f"revoked {key_id}")


@keys.command()
@config_option
@click.argument("key_id")
@click.option(
    "--overlap-s",
    type=click.IntRange(0, OVERLAP_S_MAX),
    default=86_400,
    show_default=True,
    help="Seconds for which the old secret stays good.",
)
@click.option("--secrets", help="Only while `keys list` says this of its `secrets`.")
@click.option("--ends-former", is_flag=True, help="A secret that still overlaps ends now.")
@asynchronous
@recorded("key.rotated", former_key)
async def rotate(
    config_file: Path, key_id: str, overlap_s: int, secrets: str | None, *, ends_former: bool
) -> None:
    """Give a key a new secret and print it; the old one stays good for the overlap.

    A key has two secrets at most. While one that a rotation before left is still good, another
    rotation, such as the same one typed again, is refused, unless --ends-former says that it ends
    now, or --secrets is what `keys list` says.
    """
    async with opened_keys(load_settings(config_file)) as store:
        try:
            key = await store.rotate(
                key_id, overlap_s=overlap_s, seen=secrets, ends_former=ends_former
            )
        except ChangedMeanwhile as error:
            say = " (--ends-former)" if error.parameter == "ends_former" else ""
            raise Refused(f"{error.message}{say}") from error
        try:
            click.echo(key.reveal())
        except OSError:
            await store.take_back(key)
            raise


for _command in SCOPES:
    keys.add_command(_command)
