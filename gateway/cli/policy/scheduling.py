"""`gatewright policy schedule …`: schedules an approved version, cancels and lists schedules."""

import json
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from gateway.cli.deeds import former_policy, recorded
from gateway.cli.options import Refused, Within, asynchronous, config_option
from gateway.cli.policy.rollout import (
    by_option,
    level_option,
    number_argument,
    opened_policies,
    reason_option,
)
from gateway.configuration.reading import load_settings
from gateway.store.policies.schedules import Schedule


@click.command()
@number_argument
@config_option
@level_option
@by_option
@reason_option
@click.option("--at", "moment", required=True, help="Such as 2026-12-01T09:00+05:30; else in UTC.")
@click.option(
    "--canary",
    "percent",
    type=Within(0, 100, min_open=True),
    help="For this share of the keys, in percent; without it for everybody.",
)
@asynchronous
@recorded("policy.scheduled", former_policy)
async def schedule(
    number: int,
    config_file: Path,
    level: str,
    actor: str,
    reason: str,
    moment: str,
    percent: float | None,
) -> None:
    """Let an approved version go live, or become a canary, at a time."""
    try:
        at = datetime.fromisoformat(moment)
    except ValueError:
        raise Refused("--at: a time is written as 2026-12-01T09:00+05:30") from None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    async with opened_policies(load_settings(config_file)) as store:
        _print(
            await store.schedules.add(
                level,
                number,
                "canary" if percent else "publish",
                round(at.timestamp() * 1_000_000),
                actor,
                percent=percent or 0.0,
                reason=reason,
            )
        )


@click.command()
@number_argument
@config_option
@level_option
@by_option
@reason_option
@asynchronous
@recorded("policy.unscheduled", former_policy)
async def unschedule(number: int, config_file: Path, level: str, actor: str, reason: str) -> None:
    """Call off what is scheduled for a version."""
    async with opened_policies(load_settings(config_file)) as store:
        _print(await store.schedules.cancel(level, number, actor, reason))


@click.command()
@config_option
@level_option
@asynchronous
async def schedules(config_file: Path, level: str) -> None:
    """What was and is scheduled on a level, as JSON lines in the order of their times."""
    async with opened_policies(load_settings(config_file)) as store:
        for each in await store.schedules.of(level):
            _print(each)


def _print(found: Schedule) -> None:
    click.echo(json.dumps(msgspec.to_builtins(found), ensure_ascii=True))


COMMANDS: tuple[click.Command, ...] = (schedule, unschedule, schedules)
