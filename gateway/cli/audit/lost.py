"""`gatewright audit lost`: gives up records that a restored database awaits and nobody has."""

from pathlib import Path

import click
from msgspec.structs import replace

from gateway.cli.deeds import actor, opened_log, says_it_records
from gateway.cli.opening import opened_database
from gateway.cli.options import SAID, Refused, asynchronous, config_option
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.oversight.deeds import Deeds
from gateway.store.evidence.awaited import Awaited, AwaitedTable


@click.command("lost")
@config_option
@click.option(
    "--reason", type=SAID, required=True, help="Why no log has it; it stands in the record."
)
@click.option("--yes", is_flag=True, help="Do it; without this it only says what is awaited.")
@asynchronous
@says_it_records
async def lost(config_file: Path, reason: str, *, yes: bool) -> None:
    """Let workers start on a database that was put back without logs that are lost for good.

    What those cost, and which keys they say were revoked, is not known then: set limits and revoke
    keys by hand before callers are let in. Their numbers stay theirs.
    """
    settings, clock = load_settings(config_file), SystemClock()
    async with opened_database(settings, pooled=False) as database:
        table = AwaitedTable(database)
        now = replace(await table.now(), deeds=())
        if now == Awaited():
            raise Refused("nothing is awaited: the database was not put back, or all is in")
        click.echo(f"awaited: {now}")
        if not yes:
            click.echo("nothing was done without --yes")
            return
        async with opened_log(settings) as log:
            after = {"workers": ", ".join(now.untold), "records": str(sum(now.records.values()))}
            async with Deeds(log, clock).doing(
                actor(), "records.lost", "", before=None, after={"reason": reason, **after}
            ):
                await table.give_up(clock.utc_us())
