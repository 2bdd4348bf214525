"""`gatewright init`: creates a configuration, fresh keys and an empty database in a folder."""

from importlib import resources
from pathlib import Path

import click

from gateway.cli.options import Refused, asynchronous
from gateway.configuration.reading import load_settings
from gateway.secrets.envelope import create_key_file
from gateway.store.migrate import migrate


CONFIG_NAME = "gatewright.toml"


@click.command()
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    help="Where to put it; default: here.",
)
@asynchronous
async def init(folder: Path) -> None:
    """Make what a first start needs; what exists already is left alone."""
    try:
        await prepare(folder)
    except OSError as error:
        raise Refused(f"{folder}: {error.strerror}") from error
    click.echo(f"ready: gatewright serve --config {folder / CONFIG_NAME}")


async def prepare(folder: Path, config_name: str = CONFIG_NAME) -> Path:
    """Write configuration and keys where missing, migrate the database; the file's path."""
    folder.mkdir(parents=True, exist_ok=True)
    config_file = folder / config_name
    if not config_file.exists():
        template = resources.files("gateway.cli").joinpath("template.toml")
        config_file.write_text(template.read_text(encoding="utf-8"), encoding="utf-8")
    settings = load_settings(config_file)
    for reference in (
        settings.secrets.pepper,
        settings.secrets.master_key,
        settings.secrets.admin_token,
    ):
        if reference.file and not settings.path(reference.file).exists():
            _make_private(settings.path(reference.file).parent)
            create_key_file(settings.path(reference.file))
    if settings.database_url.startswith("sqlite"):
        _make_private(Path(settings.database_url.partition(":///")[2]).parent)
    await migrate(settings.database_url)
    return config_file


def _make_private(folder: Path) -> None:
    """Make a folder for keys or the database that only its owner can enter, if it is missing."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
