"""`gatewright admin`: the control plane's listener, and the link that makes its first person."""

import sys
from importlib import import_module
from pathlib import Path

import click
from prometheus_client import CollectorRegistry

from gateway.cli.groups import Commands
from gateway.cli.listening import run_server
from gateway.cli.options import config_option
from gateway.cli.setup import print_setup_link, setup_link_command
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.metrics import CertificateSeries
from gateway.secrets.certificates import kept_certificate
from gateway.telemetry import Event, configure_logging, logger


@click.group(cls=Commands)
def admin() -> None:
    """The control plane, on a listener of its own."""


admin.add_command(setup_link_command)


@admin.command("serve")
@config_option
@click.option(
    "--setup-link/--no-setup-link",
    "says_link",
    default=True,
    help="Print a link that makes the first person, on a terminal and while nobody exists.",
)
def admin_serve(config_file: Path, *, says_link: bool) -> None:
    """Serve the admin listener."""
    settings = load_settings(config_file)
    configure_logging(settings.log_level)
    certificate = kept_certificate(settings, "admin", SystemClock())
    if sys.stdout.isatty() and says_link:
        # Only to a terminal: others read what is written to a file or a collector.
        print_setup_link(settings)
    # The admin package is a layer above the gateway, so it is named here and imported on demand.
    registry = CollectorRegistry()
    if certificate is not None:
        certificate.counted_in(CertificateSeries(registry))
    application = import_module("admin.app").build_application(settings, registry=registry)
    run_server(application, settings, settings.admin, _say_started, certificate)


def _say_started(url: str) -> None:
    logger().info(Event.PROCESS_STARTED, component="admin", url=url)
