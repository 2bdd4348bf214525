"""`gatewright policy …`: checks a document, and explains what it would decide."""

import asyncio
import sys
from pathlib import Path

import click
import msgspec

from classifiers.pii.labels import LABELS
from gateway.cli.groups import Commands
from gateway.cli.options import Refused, read_text
from gateway.cli.policy.replay import replay
from gateway.cli.policy.rollout import COMMANDS
from gateway.cli.policy.scheduling import COMMANDS as SCHEDULING
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.configuration.settings import Settings
from gateway.dialects.registry import DIALECTS
from gateway.errors import RequestInvalid
from gateway.routing.board import TargetBoard
from gateway.secrets.credentials import credential_problem
from gateway.supposing import Supposer, is_body
from gateway.types import DialectName
from gateway.worker.policy_doubts import report_among
from gateway.worker.pricing import configured_targets
from policies.checking.check import check
from policies.examples import EXAMPLE_TARGETS, facts_from_example
from policies.explain import explain
from policies.facts import Facts, TargetFacts
from policies.problems import PolicyError
from policies.program import PolicyDocument
from policies.render import render_explanation, render_report


NO_SETTINGS = Settings(source="", folder="")
document_argument = click.argument(
    "file", type=click.Path(path_type=Path, exists=True, dir_okay=False)
)


@click.group(cls=Commands)
def policy() -> None:
    """Policy documents."""


@policy.command("check")
@document_argument
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Check it against the targets and headers of this configuration, too.",
)
def check_document(file: Path, config_file: Path | None) -> None:
    """Check a document and run its test cases; exit status 1 when anything is wrong."""
    if config_file is not None:
        report = report_among(load_settings(config_file), read_text(file), str(file))
    else:
        report = check(read_text(file), str(file), labels=LABELS)
    click.echo(render_report(report))
    sys.exit(0 if report.is_ok else 1)


@policy.command("explain")
@document_argument
@click.option(
    "--request",
    "request_json",
    required=True,
    help="Facts, or a request's body (it has `messages`, `input` or `prompt`), as JSON or @FILE.",
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Decide among the targets of this configuration instead of example ones.",
)
@click.option(
    "--dialect",
    type=click.Choice(sorted(DIALECTS)),
    help="Of the body; without it the body's words tell, where any is one dialect's alone.",
)
def explain_decision(
    file: Path, request_json: str, config_file: Path | None, dialect: DialectName | None
) -> None:
    """Print a decision with every rule that matched and every target that fell, and why."""
    report = check(read_text(file), str(file))
    if report.document is None:
        click.echo(render_report(report), err=True)
        sys.exit(1)
    if request_json.startswith("@"):
        request_json = read_text(Path(request_json[1:]))
    settings = load_settings(config_file) if config_file is not None else None
    targets = _targets(report.document, settings)
    try:
        example = msgspec.json.decode(request_json, type=dict[str, object])
        if is_body(example):
            facts = asyncio.run(
                _facts_of_body(request_json, targets, settings or NO_SETTINGS, dialect)
            )
        else:
            facts = facts_from_example(example, targets)
    except (msgspec.DecodeError, PolicyError, RequestInvalid, RecursionError) as error:
        raise Refused(f"--request: {error}") from error
    click.echo(render_explanation(explain(report.document, facts)))


policy.add_command(replay)
for _command in (*COMMANDS, *SCHEDULING):
    policy.add_command(_command)


async def _facts_of_body(
    body: str, targets: tuple[TargetFacts, ...], settings: Settings, dialect: DialectName | None
) -> Facts:
    """What the gateway would know about this body: decoded and inspected as when serving."""
    supposer = Supposer(settings, SystemClock())
    try:
        supposed = await supposer.suppose(body.encode(), targets, dialect=dialect)
    finally:
        supposer.close()
    click.echo(f"request: {supposed}")
    return supposed.facts


def _targets(document: PolicyDocument, settings: Settings | None) -> tuple[TargetFacts, ...]:
    if settings is None:
        return document.body.example_targets or EXAMPLE_TARGETS
    targets = configured_targets(settings)
    unavailable = {
        target.name: problem
        for target in targets
        if (problem := credential_problem(settings, target.provider))
    }
    board = TargetBoard({target.name: target for target in targets}, unavailable)
    return board.facts_for(None)
