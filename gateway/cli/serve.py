"""`gatewright serve`: the data plane's listener, in a process of its own."""

import gc
from pathlib import Path

import click

from gateway.app import DataPlane
from gateway.cli.listening import run_server
from gateway.cli.options import config_option
from gateway.configuration.reading import load_settings
from gateway.telemetry import configure_logging


@click.command()
@config_option
def serve(config_file: Path) -> None:
    """Serve the data plane: the one endpoint that application teams call."""
    settings = load_settings(config_file)
    log = configure_logging(settings.log_level, buffered=True)
    assert log is not None
    application = DataPlane(settings, drain_log=log.drain).application()
    _tune_interpreter()
    run_server(application, settings, settings.data_plane)


def _tune_interpreter() -> None:
    """The cycle collector of CPython, set for a measured reason (benchmarks/README.md).

    What was built at the start lives as long as the process: frozen, the cycle collector does not
    walk over it again. A request leaves hardly any cycles, so the collector looks for them once in
    20,000 new containers instead of 700; that was a tenth of the time of a request.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
