"""Ways out of providers, made of files: authorities, our certificates there, proxies' credentials.

Imported only where a provider has one of its own: reading certificates takes parts that most
installations never need. What is renewed on disk is taken over while requests are served.
"""

import asyncio
import base64
import re
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from gateway.clock import SystemClock
from gateway.configuration.settings import ProviderSettings, Settings
from gateway.errors import ConfigurationInvalid
from gateway.ports import Provider
from gateway.providers.egress.client import Egress
from gateway.providers.egress.endpoint import parse_proxy
from gateway.providers.egress.way_out import WayOut
from gateway.providers.http_provider import HttpProvider
from gateway.providers.registry import build_provider
from gateway.secrets.certificates import Pair
from gateway.secrets.credentials import proxy_credential
from gateway.secrets.secret import Secret
from gateway.secrets.sources import FileState, state_of
from gateway.telemetry import Event, logger


PEM_BYTES_MAX: Final = 4 * 1024 * 1024
"""A system's whole bundle of authorities is a tenth of it."""
_CERTIFICATE: Final = re.compile(
    r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----"
)


def make_way_out(settings: Settings, name: str) -> WayOut:
    """A provider's way out, as its settings and their files are now.

    Raises:
        ConfigurationInvalid: a file cannot be used, or a setting means nothing without another.
    """
    provider, section = settings.providers[name], f"providers.{name}"
    _check_whole(provider, section)
    files = states_of(settings, name)
    proxy = None
    if provider.proxy:
        proxy = parse_proxy(name, provider.proxy, _authorization(settings, name))
    return WayOut(proxy, _tls(settings, provider, section), files)


def states_of(settings: Settings, name: str) -> tuple[FileState, ...]:
    """The files of a provider's way out, so that a changed one can be told."""
    provider = settings.providers[name]
    named = [provider.ca_file, provider.client_certificate, provider.client_key]
    if provider.proxy_credential is not None:
        named.append(provider.proxy_credential.file)
    return tuple(state_of(settings.path(each)) for each in named if each)


def _check_whole(provider: ProviderSettings, section: str) -> None:
    for key, other in (
        ("client_certificate", "client_key"),
        ("client_key", "client_certificate"),
        ("proxy_credential", "proxy"),
    ):
        if getattr(provider, key) and not getattr(provider, other):
            raise ConfigurationInvalid(section, key, f"means nothing without `{other}`")


def _authorization(settings: Settings, name: str) -> Secret[str] | None:
    """The value of `Proxy-Authorization` (RFC 7617), in UTF-8."""
    credential = proxy_credential(settings, name)
    if credential is None:
        return None
    text = credential.reveal()
    if ":" not in text or not text.isprintable():
        raise ConfigurationInvalid(f"providers.{name}", "proxy_credential", "is no user:password")
    return Secret(f"Basic {base64.b64encode(text.encode()).decode()}")


def _tls(settings: Settings, provider: ProviderSettings, section: str) -> ssl.SSLContext | None:
    """None where neither authorities nor a certificate are named."""
    if not provider.ca_file and not provider.client_certificate:
        return None
    if provider.ca_file:
        tls = _trusting(settings.path(provider.ca_file), f"{section}.ca_file")
    else:
        tls = ssl.create_default_context()
    if provider.client_certificate:
        _pair(settings, provider, section).show_by(tls, SystemClock().utc_us())
    return tls


def _pair(settings: Settings, provider: ProviderSettings, section: str) -> Pair:
    return Pair(
        settings.path(provider.client_certificate),
        f"{section}.client_certificate",
        settings.path(provider.client_key),
        f"{section}.client_key",
    )


def _trusting(file: Path, key: str) -> ssl.SSLContext:
    """A context that believes the authorities of a file, and nobody else."""
    found = _CERTIFICATE.findall(_read(file, key))
    try:
        if found:
            return ssl.create_default_context(cadata=b"".join(map(ssl.PEM_cert_to_DER_cert, found)))
    except (ssl.SSLError, ValueError):
        pass  # Said of both: base64 of something else is no certificate either.
    raise ConfigurationInvalid(str(file), key, "is no PEM of certificates")


def _read(file: Path, key: str) -> str:
    try:
        with file.open("rb") as opened:
            raw = opened.read(PEM_BYTES_MAX + 1)
    except OSError as error:
        reason = f"cannot be read ({error.strerror})"
        raise ConfigurationInvalid(str(file), key, reason) from error
    if len(raw) > PEM_BYTES_MAX:
        raise ConfigurationInvalid(str(file), key, f"is larger than {PEM_BYTES_MAX} bytes")
    # Around the certificates may stand words of any kind.
    return raw.decode("ascii", "replace")


class Renewal:
    """Takes over what was renewed on disk; what cannot be used leaves the former in use."""

    def __init__(
        self,
        settings: Settings,
        egress: Egress,
        providers: Mapping[str, Provider],
        swap: Callable[[str, Provider], None],
    ) -> None:
        """`providers` are those of this moment; `swap` puts another adapter in one's place."""
        self._settings = settings
        self._egress = egress
        self._providers = providers
        self._swap = swap
        self._looked: dict[str, tuple[FileState, ...]] = {}
        self._refused: dict[str, tuple[FileState, ...]] = {}
        self._log: Any = logger()

    async def perform(self) -> None:
        """Look at the files of every provider once."""
        for name in self._settings.providers:
            provider = self._providers.get(name)
            way_out = provider.config.way_out if isinstance(provider, HttpProvider) else None
            if way_out is not None and way_out.files:
                await self._look(name, way_out)

    async def _look(self, name: str, used: WayOut) -> None:
        files = await asyncio.to_thread(states_of, self._settings, name)
        is_settled, self._looked[name] = files == self._looked.get(name), files
        # A certificate and its key are replaced one after the other: what changed just now is left
        # to the next look, or a pair that does not match yet would be told of.
        if files == used.files or not is_settled:
            return
        try:
            found = await asyncio.to_thread(make_way_out, self._settings, name)
        except ConfigurationInvalid as error:
            # Tried again each time: what is wrong may be a date.
            if self._refused.get(name) != files:
                self._refused[name] = files
                reason = f"{error.key}: {error.reason}"
                self._log.warning(Event.CERTIFICATES_REFUSED, provider=name, reason=reason)
            return
        current = self._providers[name]
        if isinstance(current, HttpProvider):
            config = structs.replace(current.config, way_out=found)
            self._swap(name, build_provider(config, self._egress))
            self._log.info(Event.CERTIFICATES_RENEWED, provider=name)
