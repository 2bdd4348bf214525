"""`gatewright serve`: runs the data plane's listener, in a process of its own."""

from pathlib import Path

import click

from gateway.app import DataPlane
from gateway.cli.listening import run_server
from gateway.cli.options import config_option
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.secrets.certificates import kept_certificate
from gateway.telemetry import Event, configure_logging, logger
from gateway.worker.policy_doubts import doubts_about


@click.command()
@config_option
def serve(config_file: Path) -> None:
    """Serve the data plane: the one endpoint that application teams call."""
    settings = load_settings(config_file)
    log = configure_logging(settings.log_level, buffered=True)
    assert log is not None
    certificate = kept_certificate(settings, "data_plane", SystemClock())
    plane = DataPlane(settings, drain_log=log.drain)
    for doubt in doubts_about(settings):
        logger().warning(Event.POLICY_DOUBTED, component="data_plane", reason=doubt)
    if certificate is not None:
        certificate.counted_in(plane.metrics.certificates)
    run_server(
        plane.application(),
        settings,
        settings.data_plane,
        plane.say_started,
        certificate,
        leaves=plane.say_leaving,
    )
