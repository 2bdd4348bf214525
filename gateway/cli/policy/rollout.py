"""`gatewright policy …`: the life of a version, from draft to live and back."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import click
import msgspec

from gateway.cli.deeds import former_policy, recorded, typed_name
from gateway.cli.known import say_if_nobodys
from gateway.cli.opening import opened_database
from gateway.cli.options import LEVEL, Refused, Within, asynchronous, config_option, read_text
from gateway.clock import SystemClock
from gateway.configuration.guarding import (
    GuardRules,
    guard_difference,
    guard_from,
    require_seen,
    wider,
)
from gateway.configuration.reading import load_settings
from gateway.configuration.settings import Settings
from gateway.errors import RequestInvalid
from gateway.rollout.key_share import KeyShare
from gateway.rollout.versions import Action, PolicyVersion
from gateway.store.identity.key_names import KeyNames
from gateway.store.policies.documents import PolicyStore
from gateway.worker.policy_doubts import report_among
from policies.checking.check import check
from policies.checking.difference import difference
from policies.document import canonical_json
from policies.program import PolicyDocument
from policies.render import render_report


level_option = click.option(
    "--level",
    type=LEVEL,
    default="",
    help="`org:NAME`, `ws:ORG/NAME` or `proj:ORG/WS/NAME`; default: the installation.",
)
by_option = click.option(
    "--by",
    "actor",
    required=True,
    callback=typed_name,
    help="Who does this; kept beside the user of the machine who types it.",
)
reason_option = click.option("--reason", default="", help="Why; kept in the history.")
_NUMBER = click.IntRange(1, 2**31 - 1)
number_argument = click.argument("number", type=_NUMBER)


@asynccontextmanager
async def opened_policies(settings: Settings) -> AsyncIterator[PolicyStore]:
    """The policy store of a configuration, for the length of one command."""
    async with opened_database(settings) as database:
        yield PolicyStore(database, SystemClock())


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@config_option
@level_option
@by_option
@click.option("--note", default="", help="What it is for.")
@click.option(
    "--guard",
    "limits",
    multiple=True,
    help="A limit of its own as a canary, as `NAME=VALUE`, e.g. `failures_excess=0.02`.",
)
@asynchronous
@recorded("policy.drafted", former_policy)
async def draft(
    file: Path, config_file: Path, level: str, actor: str, note: str, limits: tuple[str, ...]
) -> None:
    """Check a document against the configured targets and keep it as a level's next version."""
    settings = load_settings(config_file)
    guard = _guard(limits, settings.policy.guard)
    document = checked(read_text(file), str(file), settings)
    async with opened_database(settings) as database:
        store = PolicyStore(database, SystemClock())
        _print(await store.draft(level, document, actor, note, guard=guard))
        if level:
            await say_if_nobodys(database, level, "governs")


def _guard(limits: tuple[str, ...], usual: GuardRules) -> GuardRules | None:
    said = {}
    for limit in limits:
        name, equals, value = limit.partition("=")
        if not equals:
            raise Refused("--guard: NAME=VALUE")
        said[name.strip()] = value
    try:
        return guard_from(said, usual)
    except RequestInvalid as error:
        raise Refused(f"--guard: {error.message}") from error


def checked(text: str, name: str, settings: Settings) -> PolicyDocument:
    """A document that passed every check; others are refused with all their faults.

    What its author cannot have meant goes to standard error: the next step acts on it.
    """
    report = report_among(settings, text, name)
    if report.document is None or not report.is_ok:
        raise Refused(render_report(report))
    for problem in report.warnings:
        click.echo(f"{name}: warning: {problem}", err=True)
    return report.document


def _stepping(action: Action, description: str) -> click.Command:
    @click.command(action, help=description)
    @number_argument
    @config_option
    @level_option
    @by_option
    @reason_option
    @asynchronous
    @recorded(f"policy.{action}", former_policy)
    async def command(number: int, config_file: Path, level: str, actor: str, reason: str) -> None:
        async with opened_policies(load_settings(config_file)) as store:
            _print(await store.act(level, number, action, actor, reason=reason))

    return command


@click.command()
@number_argument
@config_option
@level_option
@by_option
@reason_option
@click.option("--accept-wider", is_flag=True, help="Accept limits wider than the configured ones.")
@asynchronous
@recorded("policy.approve", former_policy)
async def approve(
    number: int, config_file: Path, level: str, actor: str, reason: str, accept_wider: bool
) -> None:
    """Approve a draft; never by its author."""
    settings = load_settings(config_file)
    async with opened_policies(settings) as store:
        version = await store.version(level, number)
        require_seen(version.guard, settings.policy.guard, seen=accept_wider)
        _print(await store.act(level, number, "approve", actor, reason=reason))


@click.command()
@number_argument
@config_option
@level_option
@asynchronous
async def guard(number: int, config_file: Path, level: str) -> None:
    """Print what a version must keep as a canary, its keys, and what workers counted, as JSON."""
    settings = load_settings(config_file)
    usual = settings.policy.guard
    async with opened_database(settings) as database:
        store = PolicyStore(database, SystemClock())
        version = await store.version(level, number)
        measured = await store.figures.measured(level, number)
        keys = await KeyNames(database).share_of(version, SystemClock().utc_us())
    rules = version.guard
    said = {"guard": rules or usual, "wider": wider(rules, usual), "measured": measured}
    said["keys"] = keys
    click.echo(msgspec.json.encode(said).decode())


@click.command()
@number_argument
@config_option
@level_option
@by_option
@reason_option
@click.option("--percent", required=True, type=Within(0, 100, min_open=True))
@asynchronous
@recorded("policy.canary", former_policy)
async def canary(
    number: int, config_file: Path, level: str, actor: str, reason: str, percent: float
) -> None:
    """Let a version decide for a share of the keys; workers withdraw it when it does harm."""
    async with opened_database(load_settings(config_file)) as database:
        store = PolicyStore(database, SystemClock())
        version = await store.act(level, number, "canary", actor, percent=percent, reason=reason)
        keys = await KeyNames(database).share_of(version, SystemClock().utc_us())
    _print(version)
    if keys is not None:
        click.echo(_keys_in_words(keys), err=True)


def _keys_in_words(found: KeyShare) -> str:
    """How many keys a canary gets now: a share of a few may be none."""
    if not found.keys:
        return "no live key is at this level: it decides nothing"
    if found.taken:
        return f"it decides for {found.taken} of {found.keys} live keys now"
    return (
        f"it decides for none of {found.keys} live keys: nothing, until its share is "
        f"{found.first_percent:g}% or a key that falls into it is issued"
    )


@click.command()
@config_option
@level_option
@by_option
@reason_option
@click.option("--to", type=_NUMBER, help="The version; default: what was before.")
@asynchronous
@recorded("policy.rolled_back", former_policy)
async def rollback(config_file: Path, level: str, actor: str, reason: str, to: int | None) -> None:
    """Make a new live version that equals one that was live before; of the first: make it none."""
    async with opened_policies(load_settings(config_file)) as store:
        _print(await store.roll_back(level, actor, to=to, reason=reason))


@click.command()
@config_option
@click.option("--level", type=LEVEL, default=None, help="Only this level.")
@asynchronous
async def versions(config_file: Path, level: str | None) -> None:
    """List versions as JSON lines, the newest of each level first."""
    async with opened_policies(load_settings(config_file)) as store:
        for version in await store.versions(level):
            _print(version)


@click.command()
@config_option
@level_option
@asynchronous
async def history(config_file: Path, level: str) -> None:
    """Print who did what on a level, as JSON lines."""
    async with opened_policies(load_settings(config_file)) as store:
        for event in await store.history(level):
            click.echo(json.dumps(msgspec.structs.asdict(event), ensure_ascii=True))


@click.command()
@number_argument
@config_option
@level_option
@asynchronous
async def show(number: int, config_file: Path, level: str) -> None:
    """Print a version's document in its canonical form."""
    async with opened_policies(load_settings(config_file)) as store:
        document = await numbered(store, level, number)
    click.echo(canonical_json(document.body).decode())


async def numbered(store: PolicyStore, level: str, number: int) -> PolicyDocument:
    """The document of a version."""
    document = await store.document((await store.version(level, number)).digest)
    assert document is not None  # A foreign key.
    return document


@click.command("diff")
@click.argument("before")
@click.argument("after")
@config_option
@level_option
@asynchronous
async def show_difference(before: str, after: str, config_file: Path, level: str) -> None:
    """Say in words what changed between two documents: files, or numbers of versions."""
    documents, guards = [], []
    for name in (before, after):
        if name.isdecimal() and len(name) < len(str(_NUMBER.max)) and not Path(name).exists():
            settings = load_settings(config_file)
            async with opened_policies(settings) as store:
                documents.append(await numbered(store, level, int(name)))
                guards.append(
                    (await store.version(level, int(name))).guard or settings.policy.guard
                )
        else:
            documents.append(load_file(Path(name)))
    sentences = difference(documents[0].body, documents[1].body)
    if len(guards) == len(documents):  # Files have no limits of their own.
        sentences += guard_difference(*guards)
    is_same = documents[0].digest == documents[1].digest
    nothing = "no difference" if is_same else "both decide the same; other words differ"
    click.echo("\n".join(sentences) or nothing)


def load_file(file: Path) -> PolicyDocument:
    """A document that loads; its test cases are not run."""
    report = check(read_text(file), str(file))
    if report.document is None:
        raise Refused(render_report(report))
    return report.document


def _print(version: PolicyVersion) -> None:
    click.echo(json.dumps(msgspec.to_builtins(version), ensure_ascii=True))


COMMANDS: tuple[click.Command, ...] = (
    draft,
    approve,
    _stepping("reject", "Put a version aside for good."),
    _stepping("shadow", "Decide beside the live version without acting, and count what differs."),
    canary,
    _stepping("publish", "Make a version live for everybody, within a second."),
    _stepping("stop", "End a shadow or a canary; the version stays approved."),
    rollback,
    versions,
    history,
    show,
    guard,
    show_difference,
)
