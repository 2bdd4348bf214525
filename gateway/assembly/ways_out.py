"""Ways out, built from files: certificate authorities, client certificates, proxy credentials.

Imported only where a setting names some: reading certificates takes parts that most installations
never need. A provider's files that are renewed on disk are taken over while requests are served;
those of other outside places are read at the start.
"""

import asyncio
import base64
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import structs

from gateway.clock import Clock, SystemClock
from gateway.configuration.sections import OutletSettings, SecretReference
from gateway.configuration.settings import ProviderSettings, Settings
from gateway.errors import ConfigurationInvalid
from gateway.metrics import CertificateSeries
from gateway.ports import Provider
from gateway.providers.egress.client import Egress
from gateway.providers.egress.endpoint import parse_proxy
from gateway.providers.egress.way_out import WayOut, verifying
from gateway.providers.http_provider import HttpProvider
from gateway.providers.registry import build_provider
from gateway.secrets.bundles import (
    BUNDLE_BYTES_MAX,
    certificates_in,
    parsed,
    read_text,
    term_of,
)
from gateway.secrets.certificates import Pair
from gateway.secrets.credentials import proxy_credential
from gateway.secrets.secret import Secret
from gateway.secrets.sources import FileState, state_of
from gateway.secrets.validity import EndTeller, Term, next_end
from gateway.telemetry import Event, logger


Named = ProviderSettings | OutletSettings
"""Sections that name a way out, in the same words."""


def make_way_out(settings: Settings, name: str) -> WayOut:
    """A provider's way out, as its settings and their files are now.

    Raises:
        ConfigurationInvalid: a file cannot be used, or a setting means nothing without another.
    """
    return make_way_of(settings, settings.providers[name], f"providers.{name}")


def make_way_of(settings: Settings, named: Named, section: str) -> WayOut:
    """The way out that a section of the settings names, as its files are now; raises likewise."""
    _check_whole(named, section)
    files = _states(settings, named)
    proxy = None
    if named.proxy:
        authorization = _authorization(settings, named.proxy_credential, section)
        proxy = parse_proxy(section, named.proxy, authorization)
    tls, terms = _tls(settings, named, section)
    return WayOut(proxy, tls, files, terms)


def states_of(settings: Settings, name: str) -> tuple[FileState, ...]:
    """The files of a provider's way out, so that a changed one can be told."""
    return _states(settings, settings.providers[name])


def _states(settings: Settings, named: Named) -> tuple[FileState, ...]:
    files = [named.ca_file, named.client_certificate, named.client_key]
    if named.proxy_credential is not None:
        files.append(named.proxy_credential.file)
    return tuple(state_of(settings.path(each)) for each in files if each)


def _check_whole(named: Named, section: str) -> None:
    for key, other in (
        ("client_certificate", "client_key"),
        ("client_key", "client_certificate"),
        ("proxy_credential", "proxy"),
    ):
        if getattr(named, key) and not getattr(named, other):
            raise ConfigurationInvalid(section, key, f"means nothing without `{other}`")


def _authorization(
    settings: Settings, reference: SecretReference | None, section: str
) -> Secret[str] | None:
    """The value of `Proxy-Authorization` (RFC 7617), in UTF-8."""
    credential = proxy_credential(settings, reference, section)
    if credential is None:
        return None
    text = credential.reveal()
    if ":" not in text or not text.isprintable():
        raise ConfigurationInvalid(section, "proxy_credential", "is no user:password")
    return Secret(f"Basic {base64.b64encode(text.encode()).decode()}")


def _tls(
    settings: Settings, named: Named, section: str
) -> tuple[ssl.SSLContext | None, dict[str, tuple[Term, ...]]]:
    """None where neither authorities nor a certificate are named; and until when each is good."""
    if not named.ca_file and not named.client_certificate:
        return None, {}
    terms: dict[str, tuple[Term, ...]] = {}
    if named.ca_file:
        tls, authorities = trusting(settings.path(named.ca_file), f"{section}.ca_file")
        terms["ca_file"] = tuple(map(term_of, parsed(authorities)))
    else:
        tls = verifying()
    if named.client_certificate:
        shown = _pair(settings, named, section).show_by(tls, SystemClock().utc_us())
        terms["client_certificate"] = (term_of(shown),)
    return tls, terms


def _pair(settings: Settings, named: Named, section: str) -> Pair:
    return Pair(
        settings.path(named.client_certificate),
        f"{section}.client_certificate",
        settings.path(named.client_key),
        f"{section}.client_key",
    )


def trusting(file: Path, key: str) -> tuple[ssl.SSLContext, tuple[bytes, ...]]:
    """A context that believes the authorities of a file, and nobody else; and these, in DER."""
    found = certificates_in(read_text(file, key, BUNDLE_BYTES_MAX))
    with suppress(ssl.SSLError):  # Base64 of something else is no certificate either.
        if found:
            return verifying(b"".join(found)), found
    raise ConfigurationInvalid(str(file), key, "is no PEM of certificates")


class Renewal:
    """Takes over what was renewed on disk; what cannot be used leaves the former in use."""

    def __init__(
        self,
        settings: Settings,
        egress: Egress,
        providers: Mapping[str, Provider],
        swap: Callable[[str, Provider], None],
        clock: Clock,
        series: CertificateSeries,
    ) -> None:
        """`providers` are those of this moment; `swap` puts another adapter in one's place."""
        self._settings = settings
        self._egress = egress
        self._providers = providers
        self._swap = swap
        self._looked: dict[str, tuple[FileState, ...]] = {}
        self._refused: dict[str, tuple[FileState, ...]] = {}
        self._log: Any = logger()
        self._clock = clock
        self._ends = EndTeller()
        for name in settings.providers:
            for file in self._terms(name):
                series.provider(name, file, partial(self._left_s, name, file))

    async def perform(self) -> None:
        """Look at the files of every provider once, and say in time that one ends."""
        for name in self._settings.providers:
            way_out = self._way_out(name)
            if way_out is not None and way_out.files:
                await self._look(name, way_out)
            for file, terms in self._terms(name).items():
                if line := self._ends.line(f"{name} {file}", terms, self._clock.utc_us()):
                    said = {"provider": name, "reason": f"{file} {line}"}
                    self._log.warning(Event.CERTIFICATES_END, **said)

    def _way_out(self, name: str) -> WayOut | None:
        provider = self._providers.get(name)
        return provider.config.way_out if isinstance(provider, HttpProvider) else None

    def _terms(self, name: str) -> Mapping[str, tuple[Term, ...]]:
        way_out = self._way_out(name)
        return {} if way_out is None else way_out.terms

    def _left_s(self, name: str, file: str) -> float | None:
        now_us = self._clock.utc_us()
        found = next_end(self._terms(name).get(file, ()), now_us)
        return None if found is None else found.left_s(now_us)

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
