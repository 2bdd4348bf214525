"""`gatewright plan`: how many GPUs and racks a model and a load need, step by step."""

from pathlib import Path

import click
import msgspec

from gateway.cli.options import Refused
from gateway.errors import RequestInvalid
from gateway.oversight.planner import CONFIG_BYTES_MAX, Hardware, Load, plan, read_model


_L, _H = Load(), Hardware()


@click.command("plan")
@click.option(
    "--model",
    "path",
    type=click.Path(exists=True, path_type=Path),
    required=True,
    help="A config.json, or the folder that holds it.",
)
@click.option("--parameters", type=int, default=0, help="Default: estimated from the shape.")
@click.option("--users", type=int, default=_L.users, show_default=True)
@click.option("--concurrency", type=float, default=_L.concurrency_percent, show_default=True)
@click.option("--input-tokens", type=int, default=_L.input_tokens, show_default=True)
@click.option("--output-tokens", type=int, default=_L.output_tokens, show_default=True)
@click.option("--queries", type=float, default=_L.queries_per_user_day, show_default=True)
@click.option("--gpus", type=int, default=_H.gpus_per_rack, show_default=True, help="Of a rack.")
@click.option("--gpu-gb", type=int, default=_H.gpu_gb, show_default=True)
@click.option("--rack-tokens", type=int, default=_H.rack_tokens_s, show_default=True)
@click.option("--precision", default="fp16", show_default=True, help="fp16, fp8 or int4.")
@click.option("--json", "as_json", is_flag=True, help="Everything as one JSON object.")
def plan_cluster(
    path: Path, parameters: int, precision: str, *, as_json: bool, **given: float
) -> None:
    """Size a cluster for a model: memory, speed and racks, step by step."""
    file = path / "config.json" if path.is_dir() else path
    try:
        with file.open("rb") as opened:
            raw = opened.read(CONFIG_BYTES_MAX + 1)
        load = Load(
            users=int(given["users"]),
            concurrency_percent=given["concurrency"],
            input_tokens=int(given["input_tokens"]),
            output_tokens=int(given["output_tokens"]),
            queries_per_user_day=given["queries"],
        )
        hardware = Hardware(
            gpus_per_rack=int(given["gpus"]),
            gpu_gb=int(given["gpu_gb"]),
            rack_tokens_s=int(given["rack_tokens"]),
        )
        found = plan(read_model(raw, parameters), load, hardware, precision)
    except OSError as error:
        raise Refused(f"{file}: {error.strerror}") from error
    except RequestInvalid as error:
        # What is wrong is the file, or an option whose name is that of the page's field.
        place = f"{file}: " if error.parameter == "config" else ""
        raise Refused(f"{place}{error.message}") from error
    if as_json:
        click.echo(msgspec.json.encode(found))
        return
    for step in found.steps:
        click.echo(f"{step.name:<28} {step.sum:<52} {step.result}")
