"""`gatewright plan`: computes step by step how many GPUs and racks a model and a load need."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from gateway.cli.options import Refused
from gateway.errors import RequestInvalid
from gateway.oversight.planner import (
    BYTES_PER_VALUE,
    CONFIG_BYTES_MAX,
    Hardware,
    Load,
    plan,
    read_model,
)


_L, _H = Load(), Hardware()
_OPTIONS = {
    "concurrency_percent": "concurrency",
    "queries_per_user_day": "queries",
    "gpus_per_rack": "gpus",
    "rack_tokens_s": "rack-tokens",
}
"""Options whose names differ from the fields that they fill."""


def _number(name: str, usual: float, help_text: str) -> Callable[[Any], Any]:
    return click.option(name, type=type(usual), default=usual, show_default=True, help=help_text)


@click.command("plan")
@click.option(
    "--model",
    "path",
    type=click.Path(exists=True, path_type=Path),
    required=True,
    help="A config.json, or the folder that holds it.",
)
@click.option("--parameters", type=int, default=0, help="Default: estimated from the shape.")
@_number("--users", _L.users, "All of them, not only those who ask at once.")
@_number("--concurrency", _L.concurrency_percent, "Per cent of them that have a session at once.")
@_number("--input-tokens", _L.input_tokens, "Of a session.")
@_number("--output-tokens", _L.output_tokens, "Of an answer.")
@_number("--queries", _L.queries_per_user_day, "Of a user in a day.")
@_number("--gpus", _H.gpus_per_rack, "Of a rack.")
@_number("--gpu-gb", _H.gpu_gb, "Memory of a GPU, in GB.")
@_number("--rack-tokens", _H.rack_tokens_s, "That a rack writes in a second at FP16.")
@click.option(
    "--precision",
    type=click.Choice([*BYTES_PER_VALUE]),
    default="fp16",
    show_default=True,
    help="Of weights and of keys and values.",
)
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
        if error.parameter == "config":
            raise Refused(f"{file}: {error.message}") from error
        field = str(error.parameter)
        option = _OPTIONS.get(field, field.replace("_", "-"))
        reason = error.message.removeprefix(field).strip()
        raise Refused(f"--{option}: {reason}") from error
    if as_json:
        click.echo(msgspec.json.encode(found))
        return
    for step in found.steps:
        click.echo(f"{step.name:<28} {step.sum:<52} {step.result}")
