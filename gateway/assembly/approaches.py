"""How to reach the outside places that settings name: their headers, and their way out."""

from importlib import import_module

from gateway.assembly.wiring import as_setting
from gateway.configuration.sections import OutletSettings
from gateway.configuration.settings import Settings
from gateway.errors import ConfigurationInvalid
from gateway.providers.egress.way_out import WayOut
from gateway.providers.outlets.webhook import Approach
from gateway.secrets.credentials import headers_of


_OF_WAYS_OUT = ("ca_file", "client_certificate", "client_key", "proxy", "proxy_credential")


def approach_of(settings: Settings, outlet: OutletSettings, section: str) -> Approach:
    """What its section says, of secrets and files as they are now.

    Raises:
        ConfigurationInvalid: one of them cannot be used, or means nothing without another.
    """
    way_out: WayOut | None = None
    if any(getattr(outlet, key) for key in _OF_WAYS_OUT):
        # Who has none does not wait for the parts that read certificates.
        make = import_module("gateway.assembly.ways_out").make_way_of
        with as_setting(settings, section):
            way_out = make(settings, outlet, section)
    headers = headers_of(settings, outlet, section)
    for name, secret in headers.items():
        if not (secret.reveal().isascii() and secret.reveal().isprintable()):
            reason = "holds what no header can hold"
            raise ConfigurationInvalid(settings.source, f"{section}.headers.{name}", reason)
    return Approach(headers, way_out)
