"""`gatewright cascade`: tells from the decision log whether a new threshold may go live."""

import sys
from pathlib import Path

import click

from classifiers.calibration.learning import Estimate, Logged, check_before_live
from gateway.audit.projecting.export import segment_rows
from gateway.cli.damage import refusing_damage
from gateway.cli.groups import Commands
from gateway.cli.options import Refused, Within, asynchronous, config_option
from gateway.configuration.reading import load_settings
from gateway.rollout.pairs import logged_of


PERCENT = 100.0


@click.group(cls=Commands)
def cascade() -> None:
    """Cascades: cheap answers that a gate reads."""


@cascade.command()
@config_option
@click.option("--organisation", required=True)
@click.option("--model", default="auto", show_default=True, help="What the requests asked for.")
@click.option("--now", type=Within(0, 100), required=True, help="The live percentage.")
@click.option("--then", type=Within(0, 100), required=True, help="The one to check.")
@click.option(
    "--alpha",
    type=Within(0.001, 0.5),
    required=True,
    help="Of the answers kept at most so many may fail.",
)
@click.option(
    "--loss",
    type=Within(0, 0.5),
    default=0.02,
    show_default=True,
    help="So much of the success rate may be lost.",
)
@asynchronous
async def check(
    config_file: Path,
    organisation: str,
    model: str,
    now: float,
    then: float,
    alpha: float,
    loss: float,
) -> None:
    """May `cascade_above_percent` go from --now to --then? Exit status 1 when it may not.

    Estimated doubly robustly from recorded cascades, whose odds are known; needs
    `inspection.cascade_exploration` to have been on for a while.
    """
    settings = load_settings(config_file)
    folder = settings.path(settings.audit.directory)
    if not folder.is_dir():
        raise Refused(f"{folder}: there is no audit folder")
    with refusing_damage():
        logged = await _logged(folder, organisation, model)
    verdict = check_before_live(logged, 1 - now / PERCENT, 1 - then / PERCENT, alpha, loss)
    pairs = sum(one.cheap for one in logged)
    click.echo(f"{len(logged)} cascades, {pairs} of them with both answers")
    click.echo(f"success now: {_said(verdict.success_now)}")
    click.echo(f"success then: {_said(verdict.success_then)}")
    click.echo(f"failures among answers kept then: {_said(verdict.cheap_failure_then)}")
    click.echo(verdict.reason)
    sys.exit(0 if verdict.passed else 1)


async def _logged(folder: Path, organisation: str, model: str) -> list[Logged]:
    found = []
    async for row in segment_rows(folder):
        record = row.projected.record
        if (record.organisation, record.model_requested) == (organisation, model):
            one = logged_of(record)
            if one is not None:
                found.append(one)
    return found


def _said(estimate: Estimate) -> str:
    if estimate.logged < 2:  # noqa: PLR2004 - a spread needs two
        return "unknown"
    low, high = max(0.0, estimate.lower), min(1.0, estimate.upper)
    return f"{estimate.value:.1%} ({low:.1%} to {high:.1%}, {estimate.logged} cascades)"
