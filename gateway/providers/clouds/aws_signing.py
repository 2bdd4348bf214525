"""Amazon's request signatures (SigV4), made by botocore.

The key is an access key, or what boto3 finds in the environment. Imported only if a provider of
kind `bedrock` signs its calls: boto3 is an optional package. boto3 itself asks the machine's
metadata server, STS and whatever else its credential chain knows, in a thread.
"""

import asyncio
import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import botocore.session
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials, ReadOnlyCredentials
from botocore.exceptions import BotoCoreError, ClientError

from gateway.errors import ConfigurationInvalid
from gateway.providers.clouds.proofs import MISREAD, Lease, Leased, NoProofError
from gateway.providers.config import ProviderConfig
from gateway.providers.egress.client import Route


LONG_BYTES: Final = 512 * 1024
"""A longer body is hashed off the loop."""
# At level `debug` it logs what it signs, including session tokens, and the answers of STS.
logging.getLogger("botocore").setLevel(logging.WARNING)
_SIGNED: Final = ("content-type", "anthropic-version", "anthropic-beta")


def access_key_of(config: ProviderConfig) -> ReadOnlyCredentials:
    """Reads `ID:SECRET` or `ID:SECRET:SESSION_TOKEN`.

    Raises:
        ConfigurationInvalid: it is neither.
    """
    parts = config.revealed_credential.split(":")
    if len(parts) not in (2, 3) or not all(parts):
        reason = "is no ID:SECRET or ID:SECRET:SESSION_TOKEN of an access key"
        raise ConfigurationInvalid(f"providers.{config.name}", "credential", reason)
    return ReadOnlyCredentials(parts[0], parts[1], parts[2] if parts[2:] else None)


class SignedProof:
    """Signs each call; see `gateway.providers.clouds.proofs.Proof`."""

    def __init__(self, config: ProviderConfig, service: str) -> None:
        self._region, self._service = config.region, service
        self._own: ReadOnlyCredentials | None = None
        self._leased: Leased[ReadOnlyCredentials] | None = None
        if config.identity == "ambient":
            self._leased = Leased(_found)
        elif config.credential is not None:
            self._own = access_key_of(config)

    @property
    def reason(self) -> str:
        return self._leased.reason if self._leased else ""

    async def renew(self) -> None:
        if self._leased:
            await self._leased.renew()

    async def ready(self) -> None:
        if self._leased:
            await self._leased.ready()

    async def close(self) -> None:
        if self._leased:
            await self._leased.close()

    def doubt(self) -> None:
        if self._leased:
            self._leased.doubt()

    async def headers(self, method: str, route: Route, body: bytes) -> Mapping[str, str]:
        if len(body) > LONG_BYTES:
            return await asyncio.to_thread(self._signed, method, route, body)
        return self._signed(method, route, body)

    @property
    def secrets(self) -> tuple[str, ...]:
        held = self._held
        return () if held is None else tuple(each for each in held[:3] if each)

    @property
    def _held(self) -> ReadOnlyCredentials | None:
        return self._leased.held if self._leased else self._own

    def _signed(self, method: str, route: Route, body: bytes) -> Mapping[str, str]:
        held = self._held
        if held is None:
            return {}  # The cloud refuses a call without proof.
        request = AWSRequest(method, str(route.url), _sent(route), body)
        SigV4Auth(Credentials(*held[:3]), self._service, self._region).add_auth(request)
        made = ("authorization", "x-amz-date", "x-amz-security-token")
        return {name: request.headers[name] for name in made if name in request.headers}


def _sent(route: Route) -> dict[str, str]:
    """The headers of a route that are signed: those that say how to read the body."""
    lines = (line.partition(": ") for line in route.head.decode("ascii").split("\r\n")[1:])
    return {name: value for name, _, value in lines if name in _SIGNED}


async def _found() -> Lease[ReadOnlyCredentials]:
    return await asyncio.to_thread(_find)


def _find() -> Lease[ReadOnlyCredentials]:
    """What boto3's chain finds, with a session of its own: replaced files are read again."""
    try:
        found: Any = botocore.session.Session().get_credentials()
        if found is None:
            raise NoProofError("no AWS credential was found around it")
        frozen = found.get_frozen_credentials()
    except (BotoCoreError, ClientError, OSError, *MISREAD) as error:
        raise NoProofError(f"no AWS credential ({type(error).__name__})") from None
    ends = getattr(found, "_expiry_time", None)
    ends_us = int(ends.timestamp() * 1e6) if isinstance(ends, datetime) else None
    return Lease(frozen, ends_us)
