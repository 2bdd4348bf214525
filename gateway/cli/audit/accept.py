"""`gatewright audit accept`: confirms that a restored database may serve as it is."""

from datetime import UTC, datetime
from pathlib import Path

import click

from gateway.cli.deeds import actor, opened_log, says_it_records
from gateway.cli.opening import opened_database
from gateway.cli.options import SAID, Refused, asynchronous, config_option
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.oversight.deeds import Deeds
from gateway.store.evidence.awaited import AwaitedDeed, AwaitedTable


@click.command("accept")
@config_option
@click.option(
    "--reason", type=SAID, required=True, help="Why it may serve; it stands in the record."
)
@click.option("--yes", is_flag=True, help="Do it; without this it only says what was ordered.")
@asynchronous
@says_it_records
async def accept(config_file: Path, reason: str, *, yes: bool) -> None:
    """Let workers serve on a database that was put back and lacks what people ordered since.

    Prints each such deed: of policies, holds and credentials the log has no content, so that they
    cannot be done again from it. Do again before what still has to hold.
    """
    settings = load_settings(config_file)
    async with opened_database(settings, pooled=False) as database:
        table = AwaitedTable(database)
        deeds = (await table.now()).deeds
        if not deeds:
            raise Refused("nothing awaits a decision")
        for deed in deeds:
            click.echo(_line(deed))
        if not yes:
            click.echo("nothing was done without --yes")
            return
        after = {"reason": reason, "deeds": ", ".join(str(deed.sequence) for deed in deeds)}
        async with opened_log(settings) as log:
            doing = Deeds(log, SystemClock()).doing(actor(), "records.accepted", "", after=after)
            async with doing:
                await table.finish()


def _line(deed: AwaitedDeed) -> str:
    about = f" of {deed.about}" if deed.about else ""
    when = datetime.fromtimestamp(deed.utc_us / 1e6, UTC).isoformat(timespec="seconds")
    return f"{deed.sequence}: {deed.action}{about}, by {deed.actor}, {when}"
