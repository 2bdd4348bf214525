"""`gatewright calibrate`: judged answers → a table of what the cheap tier can be trusted with."""

import sys
from typing import Annotated

import click
import msgspec

from classifiers.calibration.maps import Label
from classifiers.calibration.table import Judged, Scope
from classifiers.calibration.table import calibrate as make_table
from classifiers.calibration.threshold import Threshold
from classifiers.complexity.model import load
from gateway.cli.options import Refused, Within


class Line(msgspec.Struct, frozen=True):
    """A judged answer of the cheap tier, with the `p_weak` that the classifier gave its prompt."""

    organisation: str
    route: str
    p_weak: Annotated[float, msgspec.Meta(ge=0, le=1)]
    succeeded: bool


@click.command()
@click.option("--alpha", type=Within(0.001, 0.5), required=True, help="Failures allowed.")
@click.option("--delta", type=Within(0.001, 0.5), default=0.05, show_default=True)
def calibrate(alpha: float, delta: float) -> None:
    """Labels on standard input, `{organisation, route, p_weak, succeeded}` per line; table out.

    `route` is the model name that requests ask for. The guarantee of each: of what is sent to the
    cheap tier at most `alpha` fails, with confidence 1 - `delta`; or infeasible, and why.
    """
    judged = []
    for number, line in enumerate(sys.stdin.buffer, 1):
        if not line.strip():
            continue
        try:
            read = msgspec.json.decode(line, type=Line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise Refused(f"line {number}: {error}") from error
        scope = Scope(read.organisation, read.route)
        judged.append(Judged(scope, Label(read.p_weak, read.succeeded)))
    if not judged:
        raise Refused("there are no judged answers on standard input")
    table = make_table(judged, alpha, delta, load().version)
    for entry in table.entries:
        promised = entry.guarantee
        said = (
            f"cheap from {promised.p_weak_least:.3f} on, {promised.share:.0%} of the traffic"
            if isinstance(promised, Threshold)
            else f"infeasible: {promised.reason}"
        )
        click.echo(f"{entry.scope.organisation} {entry.scope.route}: {said}", err=True)
    click.echo(msgspec.json.encode(table))
