"""`gatewright train …`: trains the classifiers' artefacts again from the shared data."""

import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from gzip import BadGzipFile
from pathlib import Path

import click
import msgspec

from classifiers.complexity import train as trainer
from classifiers.complexity.ability import Labelled, fit_ability
from classifiers.complexity.model import load as load_complexity
from classifiers.pii.names.tagger import ARTEFACT_DIRECTORY
from classifiers.pii.training.train_tagger import Recipe
from classifiers.pii.training.train_tagger import train as train_tagger
from gateway.cli.groups import Commands
from gateway.cli.options import Refused


@click.group(cls=Commands)
def train() -> None:
    """Train a classifier: the same data and recipe give the same artefact."""


@train.command("pii")
@click.option(
    "--data",
    "directory",
    required=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="The folder with train.jsonl.gz and the name lists.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=ARTEFACT_DIRECTORY,
    help="Where to write the artefact, its digest and its card.",
)
@click.option("--epochs", type=click.IntRange(1, 100), default=Recipe().epochs, show_default=True)
@click.option(
    "--per-template", type=click.IntRange(1, 1000), default=Recipe().per_template, show_default=True
)
def train_pii(directory: Path, out: Path, epochs: int, per_template: int) -> None:
    """Train the tagger of names, addresses, usernames and free-form identifiers."""
    recipe = Recipe(epochs=epochs, per_template=per_template)
    with _refusing_damage():
        train_tagger(directory, out, recipe, click.echo)


@contextmanager
def _refusing_damage() -> Iterator[None]:
    """A file that is not what its name says is refused; a missing one is named by its error."""
    try:
        yield
    except (BadGzipFile, zlib.error, EOFError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Refused(f"--data: a file there is damaged: {error}") from error


class Judged(msgspec.Struct, frozen=True):
    """A line of labels: a prompt, and whether the model's answer to it was good enough."""

    prompt: str
    succeeded: bool


@train.command("ability")
def train_ability() -> None:
    """Judged answers of one model on standard input, `{prompt, succeeded}` per line; JSON out.

    About two hundred, of the traffic that the model is to get, will do.
    """
    model = load_complexity()
    labelled = []
    for number, line in enumerate(sys.stdin.buffer, 1):
        if not line.strip():
            continue
        try:
            judged = msgspec.json.decode(line, type=Judged)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise Refused(f"line {number}: {error}") from error
        labelled.append(Labelled(model.assess(judged.prompt), judged.succeeded))
    if not labelled:
        raise Refused("there are no judged answers on standard input")
    click.echo(msgspec.json.encode(fit_ability(labelled, model.version)))


@train.command(
    "complexity",
    add_help_option=False,  # The trainer explains its own options.
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
@click.pass_context
def train_complexity(context: click.Context) -> None:
    """Train the complexity score: --data DIR [--out DIR] [--splits train,dev] …."""
    with _refusing_damage():
        trainer.main(context.args)
