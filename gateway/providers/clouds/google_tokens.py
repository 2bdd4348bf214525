"""Google access tokens, by google-auth: from a service account's key, or from where we run.

Imported only if a provider of kind `vertex` is configured: google-auth is an optional package. It
blocks, so it runs in a thread. Its requests go out through our egress, except those to the
machine's metadata server: that one is link-local, over plain http, and nothing else may be asked
that way.
"""

import asyncio
import http.client
import ipaddress
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlsplit

import google.auth
import msgspec
from google.auth.exceptions import GoogleAuthError, TransportError
from google.auth.transport import Request, Response
from google.oauth2 import service_account

from gateway.errors import ConfigurationInvalid, UpstreamFailed
from gateway.providers.clouds.proofs import MISREAD, Lease, NoProofError
from gateway.providers.config import ProviderConfig
from gateway.providers.egress.client import Egress
from gateway.providers.egress.endpoint import parse_endpoint


# It quotes answers that it cannot use; our own words go to the provider's log.
logging.getLogger("google.auth").setLevel(logging.ERROR)
SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
TOKEN_URL: Final = "https://oauth2.googleapis.com/token"  # noqa: S105 - an address
ASK_S: Final = 5.0
ANSWER_BYTES_MAX: Final = 64 * 1024
_TRANSPORT_ERROR: Final[Any] = TransportError  # Its package leaves this, and the next, untyped.
_SERVICE_ACCOUNT: Final[Any] = service_account.Credentials
_METADATA: Final = "metadata.google.internal"


class Told(Response):
    """An answer in the form that google-auth reads."""

    def __init__(self, status: int, headers: Mapping[str, str], data: bytes) -> None:
        self._status, self._headers, self._data = status, headers, data

    @property
    def status(self) -> int:
        return self._status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._headers

    @property
    def data(self) -> bytes:
        return self._data


class Asker(Request):
    """Requests of google-auth: made in its thread, sent by the egress on the loop."""

    def __init__(
        self, config: ProviderConfig, egress: Egress, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._config, self._egress, self._loop = config, egress, loop

    def __call__(
        self,
        url: str,
        method: str = "GET",
        body: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> Told:
        del timeout, kwargs
        named, sent = dict(headers or {}), body.encode() if isinstance(body, str) else body
        parts = urlsplit(url)
        if parts.scheme == "http" and _is_beside_us(parts.hostname or ""):
            return _asked_beside(url, method, sent, named)
        asking = self._asked(url, method, sent or b"", named)
        try:
            return asyncio.run_coroutine_threadsafe(asking, self._loop).result(2 * ASK_S)
        except (UpstreamFailed, ConfigurationInvalid, TimeoutError) as error:
            raise _unreachable(error) from None

    async def _asked(self, url: str, method: str, body: bytes, headers: Mapping[str, str]) -> Told:
        parts, config = urlsplit(url), self._config
        endpoint = parse_endpoint(
            config.name,
            f"{parts.scheme}://{parts.netloc}",
            config.jurisdiction,
            way_out=config.way_out if parts.scheme == "https" else None,
        )
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        lower = {name.lower(): value for name, value in headers.items()}
        route = self._egress.route(
            endpoint, path, lower, connect_timeout_s=config.connect_timeout_s
        )
        if method == "GET":
            reply = await self._egress.fetch(route, ASK_S, ANSWER_BYTES_MAX)
        else:
            reply = await self._egress.tell(route, body, ASK_S)
        try:
            return Told(reply.status, {"content-type": "application/json"}, await reply.read())
        finally:
            await reply.close()


class GoogleTokens:
    """Fetches tokens for one provider."""

    def __init__(self, config: ProviderConfig, egress: Egress) -> None:
        """Raises ConfigurationInvalid if the credential is not a service account's key."""
        self._config, self._egress = config, egress
        _check_token_url(config)
        self._own = self._service_account() if config.credential is not None else None

    async def fetch(self) -> Lease[str]:
        """A new token; raises NoProofError."""
        asker = Asker(self._config, self._egress, asyncio.get_running_loop())
        return await asyncio.to_thread(self._fetch, asker)

    def _fetch(self, asker: Asker) -> Lease[str]:
        try:
            credentials: Any = self._own
            if credentials is None:
                credentials, _ = google.auth.default(scopes=[SCOPE], request=asker)
            credentials.refresh(asker)
        except (GoogleAuthError, OSError, *MISREAD) as error:
            raise NoProofError(f"no access token ({type(error).__name__})") from None
        token, ends = credentials.token, credentials.expiry
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise NoProofError("no access token (what came is none)")
        return Lease(token, _us(ends) if isinstance(ends, datetime) else None)

    def _service_account(self) -> Any:
        source = f"providers.{self._config.name}"
        reason = "is no key of a service account in JSON"
        try:
            info = msgspec.json.decode(self._config.revealed_credential, type=dict[str, str])
            expected = self._config.token_url or TOKEN_URL
            if info.get("type") != "service_account":
                raise ConfigurationInvalid(source, "credential", reason)
            if info.get("token_uri", expected) not in (expected, TOKEN_URL):
                # A key proves who we are; it does not decide where it is sent.
                named = "names another token_uri than `token_url`"
                raise ConfigurationInvalid(source, "credential", named)
            return _SERVICE_ACCOUNT.from_service_account_info(
                {**info, "token_uri": expected}, scopes=[SCOPE]
            )
        except (msgspec.MsgspecError, GoogleAuthError, ValueError, UnicodeError):
            raise ConfigurationInvalid(source, "credential", reason) from None


def _check_token_url(config: ProviderConfig) -> None:
    """Raises ConfigurationInvalid if no token could be requested there, or none would be."""
    if not config.token_url:
        return
    source = f"providers.{config.name}"
    if config.identity == "ambient":
        reason = 'means nothing beside `identity = "ambient"`'
        raise ConfigurationInvalid(source, "token_url", reason)
    try:
        parse_endpoint(config.name, config.token_url, config.jurisdiction)
    except ConfigurationInvalid as error:
        raise ConfigurationInvalid(source, "token_url", error.reason) from None


def _unreachable(error: BaseException) -> TransportError:
    made: TransportError = _TRANSPORT_ERROR(type(error).__name__)
    return made


def _us(ends: datetime) -> int:
    return int((ends if ends.tzinfo else ends.replace(tzinfo=UTC)).timestamp() * 1e6)


def _is_beside_us(host: str) -> bool:
    """Whether it is this machine's metadata server: link-local, or loopback."""
    if host in (_METADATA, "localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_link_local or address.is_loopback


def _asked_beside(url: str, method: str, body: bytes | None, headers: dict[str, str]) -> Told:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=ASK_S)
    try:
        path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
        connection.request(method, path, body, headers)
        reply = connection.getresponse()
        told = {name.lower(): value for name, value in reply.getheaders()}
        return Told(reply.status, told, reply.read(ANSWER_BYTES_MAX))
    except (OSError, http.client.HTTPException) as error:
        raise _unreachable(error) from None
    finally:
        connection.close()
