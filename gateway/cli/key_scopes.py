"""`gatewright keys change`, `proposals`, `approve` …: scopes of keys; two people to widen one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import click
import msgspec

from gateway.cli.deeds import actor, deed, former_key, says_it_records
from gateway.cli.opening import opened_database
from gateway.cli.options import Refused, asynchronous, config_option
from gateway.clock import DAY_US, SystemClock
from gateway.configuration.reading import load_settings
from gateway.configuration.settings import Settings
from gateway.oversight.key_scope import (
    KeyScope,
    check_labels,
    check_models,
    is_widening,
    scope_of,
)
from gateway.store.identity.key_names import KeyFacts, KeyNames
from gateway.store.identity.key_scopes import KeyProposal, KeyScopes
from gateway.types import Translation


EXPIRES_DAYS_MAX = 36_500

organisation_option = click.option("--organisation", required=True)
comment_option = click.option("--comment", required=True, help="It stands in the history.")


@asynccontextmanager
async def opened_scopes(
    settings: Settings, organisation: str
) -> AsyncIterator[tuple[KeyScopes, KeyNames]]:
    """The scopes of an organisation's keys, for the length of one command."""
    async with opened_database(settings, organisation) as database:
        yield KeyScopes(database, SystemClock()), KeyNames(database)


@click.command("change")
@config_option
@organisation_option
@click.argument("key_id")
@click.option("--model", "models", multiple=True, help="A target it may use; repeatable.")
@click.option("--all-models", is_flag=True, help="All targets that policy permits.")
@click.option("--label", "labels", multiple=True, help="A label it carries; repeatable.")
@click.option("--no-labels", is_flag=True, help="No label at all.")
@click.option(
    "--expires-days", type=click.IntRange(1, EXPIRES_DAYS_MAX), help="Days from now until it ends."
)
@click.option("--never-expires", is_flag=True, help="It does not end by itself.")
@click.option("--translation", type=click.Choice(["strict", "warn", "lenient"]))
@click.option("--reason", default="", help="Needed where it lets the key do more.")
@asynchronous
@says_it_records
async def change_key(config_file: Path, organisation: str, key_id: str, **ordered: Any) -> None:
    """Change what a key may do; what is not said stays as it is.

    What only takes away holds at once, on every worker within a second. What lets the key do more
    is proposed, and decided by somebody else: then the proposal's id is printed.
    """
    settings = load_settings(config_file)
    async with opened_scopes(settings, organisation) as (scopes, names):
        facts = await names.facts(organisation, key_id)
        if not facts:
            raise Refused("there is no such key")
        seen = _scope_of(facts[0])
        wanted = _wanted(settings, seen, ordered)
        if wanted == seen:
            raise Refused("it may do this already")
        told = {"key_id": key_id, "organisation": organisation} | _in_words(wanted)
        if not is_widening(seen, wanted):
            async with deed(settings, "key.narrowed", told, former_key):
                await scopes.narrow(organisation, key_id, seen, wanted)
            click.echo(f"changed {key_id}")
            return
        reason = ordered["reason"].strip()
        if not reason:
            raise Refused("this lets the key do more: say why, with --reason")
        told |= {"reason": reason}
        async with deed(settings, "key.widening_proposed", told, former_key):
            made = await scopes.propose(
                organisation, key_id, wanted, seen=seen, actor=actor(), reason=reason
            )
    click.echo("a second person must agree: gatewright keys approve PROPOSAL --comment WHY")
    click.echo(made.id)


@click.command("proposals")
@config_option
@organisation_option
@asynchronous
async def list_proposals(config_file: Path, organisation: str) -> None:
    """Print what was proposed of an organisation's keys as JSON lines, the newest first."""
    async with opened_scopes(load_settings(config_file), organisation) as (scopes, _):
        for each in await scopes.of(organisation):
            click.echo(msgspec.json.encode(each).decode())


@click.command("approve")
@config_option
@organisation_option
@click.argument("proposal_id")
@comment_option
@asynchronous
@says_it_records
async def approve_widening(
    config_file: Path, organisation: str, proposal_id: str, comment: str
) -> None:
    """Let a key do what another person proposed; it holds on every worker within a second."""
    settings = load_settings(config_file)
    async with opened_scopes(settings, organisation) as (scopes, _):
        found = await _found(scopes, organisation, proposal_id)
        told = _told(found, comment) | _in_words(found.wanted)
        async with deed(settings, "key.widened", told, former_key):
            await scopes.approve(organisation, proposal_id, actor(), comment)
    click.echo(f"changed {found.key_id}")


@click.command("decline")
@config_option
@organisation_option
@click.argument("proposal_id")
@comment_option
@asynchronous
@says_it_records
async def decline_widening(
    config_file: Path, organisation: str, proposal_id: str, comment: str
) -> None:
    """Leave a key as it is."""
    settings = load_settings(config_file)
    async with opened_scopes(settings, organisation) as (scopes, _):
        found = await _found(scopes, organisation, proposal_id)
        async with deed(settings, "key.widening_declined", _told(found, comment)):
            await scopes.end(organisation, proposal_id, actor(), comment, "declined")
    click.echo("declined; the key stays as it is")


@click.command("withdraw")
@config_option
@organisation_option
@click.argument("proposal_id")
@asynchronous
@says_it_records
async def withdraw_widening(config_file: Path, organisation: str, proposal_id: str) -> None:
    """Take back what you proposed."""
    settings = load_settings(config_file)
    async with opened_scopes(settings, organisation) as (scopes, _):
        found = await _found(scopes, organisation, proposal_id)
        async with deed(settings, "key.widening_withdrawn", _told(found, "")):
            await scopes.end(organisation, proposal_id, actor(), "", "withdrawn")
    click.echo("withdrawn; the key stays as it is")


async def _found(scopes: KeyScopes, organisation: str, proposal_id: str) -> KeyProposal:
    found = await scopes.proposal(organisation, proposal_id)
    if found is None:
        raise Refused("there is no such proposal")
    return found


def _scope_of(facts: KeyFacts) -> KeyScope:
    translation: Any = facts.translation
    return scope_of(facts.models, facts.expires_us, facts.labels, translation)


def _wanted(settings: Settings, seen: KeyScope, ordered: dict[str, Any]) -> KeyScope:
    """Raises if two options contradict each other, or name something unknown or impossible."""
    pairs = (("models", "all_models"), ("labels", "no_labels"), ("expires_days", "never_expires"))
    for named, none in pairs:
        if ordered[named] and ordered[none]:
            raise Refused(f"--{none.replace('_', '-')} leaves nothing to name beside it")
    models = None if ordered["all_models"] else ordered["models"] or seen.models
    check_models(set(models or ()) - set(seen.models or ()), settings.targets)
    if ordered["labels"]:
        check_labels(ordered["labels"])
    expires_us = None if ordered["never_expires"] else seen.expires_us
    if ordered["expires_days"]:
        expires_us = SystemClock().utc_us() + ordered["expires_days"] * DAY_US
    translation: Translation = ordered["translation"] or seen.translation
    labels = () if ordered["no_labels"] else ordered["labels"] or seen.labels
    return scope_of(models, expires_us, labels, translation)


def _in_words(scope: KeyScope) -> dict[str, Any]:
    return {
        "models": "all" if scope.models is None else ", ".join(scope.models) or "none",
        "expires_us": "never" if scope.expires_us is None else scope.expires_us,
        "labels": ", ".join(scope.labels) or "none",
        "translation": scope.translation,
    }


def _told(found: KeyProposal, comment: str) -> dict[str, Any]:
    return {
        "key_id": found.key_id,
        "organisation": found.organisation,
        "proposal": found.id,
        "proposed_by": found.proposed_by,
        "reason": found.reason,
        "comment": comment,
    }


SCOPES = (change_key, list_proposals, approve_widening, decline_widening, withdraw_widening)
