"""Trusted issuers from the settings behind one `Callers`; imported only where there are any.

Keys come from the address that the settings name, through the one egress, or from a file. Nothing
that an issuer or a token says names another address: there is no discovery.
"""

import asyncio
import os
import re
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from gateway.assembly.ways_out import trusting
from gateway.assembly.wiring import as_setting
from gateway.clock import Clock
from gateway.configuration.sections import IssuerSettings
from gateway.configuration.settings import Settings
from gateway.errors import ConfigurationInvalid
from gateway.identity import KeyTable
from gateway.metrics import Metrics
from gateway.providers.egress.client import Egress
from gateway.providers.egress.endpoint import parse_endpoint
from gateway.providers.egress.way_out import WayOut
from gateway.secrets.issuer_keys import PUBLISHED_BYTES_MAX, IssuerKeys, KeysRefused
from gateway.workloads.callers import Callers, Issuer
from gateway.workloads.tokens import Expected


ANSWER_WITHIN_S: Final = 5.0
_URL: Final = re.compile(
    r"(?P<origin>https?://[^/?#]+)"
    r"(?P<path>(?:/(?!\.{1,2}(?:[/?]|$))[a-z0-9._~-]+)+(?:\?[a-z0-9._~=&-]+)?)",
    re.ASCII | re.IGNORECASE,
)
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_OK: Final = 200

Ask = Callable[[], Awaitable[bytes]]


def make_callers(
    settings: Settings,
    egress: Egress,
    table: Callable[[], KeyTable],
    clock: Clock,
    metrics: Metrics,
) -> Callers:
    """Raises ConfigurationInvalid: an address that may not be called, a file that is none."""
    issuers = [
        Issuer(
            name,
            Expected(
                issuer=issuer.issuer,
                audience=issuer.audience,
                other_audiences=frozenset(issuer.other_audiences),
                leeway_s=issuer.leeway_s,
                lifetime_s=issuer.token_lifetime_s,
            ),
            frozenset(issuer.algorithms),
            frozenset(issuer.organisations),
            IssuerKeys(_ask(settings, name, issuer, egress), clock, issuer.outage_s),
        )
        for name, issuer in settings.callers.issuers.items()
    ]
    return Callers(issuers, table, metrics.count_token)


def _ask(settings: Settings, name: str, issuer: IssuerSettings, egress: Egress) -> Ask:
    if issuer.jwks_file:
        file = settings.path(issuer.jwks_file)
        return lambda: asyncio.to_thread(_read, file)
    key = f"callers.issuers.{name}.jwks_url"
    found = _URL.fullmatch(issuer.jwks_url)
    if found is None:
        reason = "must be https://host/path, without a user, escapes or a fragment"
        raise ConfigurationInvalid(settings.source, key, reason)
    way_out = None
    if issuer.ca_file:
        context, _ = trusting(settings.path(issuer.ca_file), f"callers.issuers.{name}.ca_file")
        way_out = WayOut(None, context)
    with as_setting(settings, "providers.", key):
        endpoint = parse_endpoint(name, found["origin"], "operator", way_out=way_out)
    route = egress.route(endpoint, found["path"], {"accept": "application/json"})

    async def ask() -> bytes:
        reply = await egress.fetch(route, ANSWER_WITHIN_S, PUBLISHED_BYTES_MAX)
        try:
            whole = await reply.read()
        finally:
            await reply.close()
        if reply.status != _OK:
            raise KeysRefused(f"{name}: its keys' address answered with HTTP {reply.status}")
        return whole

    return ask


def _read(file: Path) -> bytes:
    """Who can write to it can let anybody in; who can read it gains nothing."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise KeysRefused(f"{file}: cannot be read ({error.strerror})") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid not in (os.geteuid(), 0):
            raise KeysRefused(f"{file}: is no regular file of this user's, or of root's")
        if status.st_mode & _OTHERS_WRITE:
            raise KeysRefused(f"{file}: can be written by others; make it 0644")
        with os.fdopen(os.dup(descriptor), "rb") as opened:
            return opened.read(PUBLISHED_BYTES_MAX + 1)
    finally:
        os.close(descriptor)
