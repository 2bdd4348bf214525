"""What all providers of Claude at clouds share: a region, credentials, refusals in our words."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Final

from gateway.errors import (
    ConfigurationInvalid,
    UpstreamFailed,
    UpstreamUnreachable,
)
from gateway.ports import UpstreamCall, UpstreamReply
from gateway.providers.anthropic import ANTHROPIC_VERSION, ROUTES_MAX
from gateway.providers.clouds.proofs import Proof
from gateway.providers.clouds.refusals import DENIED, retold
from gateway.providers.clouds.regions import REGION, contradiction, regions_in, spans
from gateway.providers.clouds.reply import CloudReply, Refusal
from gateway.providers.config import ProviderConfig
from gateway.providers.egress.client import Egress, Route, check_clearance
from gateway.providers.egress.reply import EgressReply
from gateway.providers.http_provider import HttpProvider, describe_status
from gateway.types import DialectName


HTTP_ERROR_MIN: Final = 400
FORBIDDEN: Final = 403
UNLISTED: Final = 404
READY_S: Final = 20.0
IDENTITIES: Final = ("credential", "access_key", "ambient")


class CloudProvider(HttpProvider, ABC):
    """Anthropic's messages at a cloud's endpoint in one region."""

    dialect: DialectName = "anthropic_messages"
    counts_tokens = True
    identities: ClassVar[tuple[str, ...]] = IDENTITIES

    def __init__(self, config: ProviderConfig, egress: Egress, proof: Proof) -> None:
        _check(config, self.identities)
        super().__init__(config, egress)
        _check_host(config, self.endpoint.host)
        self._proof = proof
        self._prepared: dict[tuple[str, ...], Route] = {}

    def headers(self, credential: str) -> Mapping[str, str]:
        del credential  # Each call has its own proof.
        return {"anthropic-version": ANTHROPIC_VERSION}

    @property
    def proof(self) -> Proof:
        """The proof of its calls."""
        return self._proof

    @property
    def is_ambient(self) -> bool:
        """Whether the credential comes from the surroundings, and none is named."""
        return self._config.identity == "ambient"

    @property
    def has_proof(self) -> bool:
        return self.is_ambient or super().has_proof

    @property
    def unavailable_reason(self) -> str:
        lacks = "" if self.is_ambient else super().unavailable_reason
        return lacks or self._proof.reason

    @abstractmethod
    def check_model(self, model: str) -> str:
        """Why a target's model cannot be used here; empty if it can."""

    @abstractmethod
    def prepared(self, call: UpstreamCall) -> tuple[str, bytes]:
        """The path of a call, and its body as it is sent."""

    async def open(self, call: UpstreamCall) -> UpstreamReply:
        """See `gateway.ports.Provider`; a refusal is read here, and reported in our words."""
        check_clearance(self.endpoint.jurisdiction, call)
        await self._require_proof(call.deadline_s)
        path, body = self.prepared(call)
        route = await self._proved("POST", self._route_to(path, call), body)
        reply = await self._egress.open(route, call, body)
        if reply.status < HTTP_ERROR_MIN:
            return CloudReply(reply, self._hidden)
        return await self._retold(reply)

    async def list_status(self, deadline_s: float) -> int:
        status = await self._looked(deadline_s)
        # The credential was accepted: the right to use a model need not include the right to list.
        return UNLISTED if status == FORBIDDEN else status

    async def _looked(self, deadline_s: float) -> int:
        await self._require_proof(deadline_s)
        reply = await self._egress.ask(await self._proved("GET", self._models_route), deadline_s)
        try:
            status, _ = retold(reply.status, await reply.read(), ())
            return reply.status if reply.status < HTTP_ERROR_MIN else status
        finally:
            await reply.close()

    async def probe(self) -> str:
        try:
            return describe_status(await self._looked(self._probe_timeout_s))
        except UpstreamFailed as error:
            return self.unavailable_reason or error.message

    async def close(self) -> None:
        await self._proof.close()

    async def _require_proof(self, deadline_s: float) -> None:
        """Raises UpstreamUnreachable if no call can be proved now."""
        lacks = "" if self.is_ambient else super().unavailable_reason
        if lacks:
            raise UpstreamUnreachable(f"the upstream cannot be called: {lacks}")
        try:
            async with asyncio.timeout(min(deadline_s, READY_S)):
                await self._proof.ready()
        except TimeoutError:
            error = UpstreamUnreachable("the upstream cannot be called: no credential in time")
            error.has_left = False
            raise error from None

    async def _proved(self, method: str, route: Route, body: bytes = b"") -> Route:
        return route.with_headers(await self._proof.headers(method, route, body))

    def _route_to(self, path: str, call: UpstreamCall) -> Route:
        """The prepared route for a path, and the version and features that the caller asked for."""
        wanted = path, call.version, *call.betas
        route = self._prepared.get(wanted)
        if route is None:
            headers = dict(self.headers(""))
            if call.version:
                headers["anthropic-version"] = call.version
            if call.betas:
                headers["anthropic-beta"] = ",".join(call.betas)
            route = self._make_route(self._config, path, headers)
            if len(self._prepared) < ROUTES_MAX:
                self._prepared[wanted] = route
        return route

    @property
    def _hidden(self) -> tuple[str, ...]:
        """Texts that appear in no answer to a caller."""
        return (*self._proof.secrets, self._config.project)

    async def _retold(self, reply: EgressReply) -> UpstreamReply:
        try:
            raw = await reply.read()
        finally:
            await reply.close()
        status, told = retold(reply.status, raw, self._hidden)
        if status == DENIED:
            self._proof.doubt()
        return Refusal(status, told, reply.retry_after_s, reply.upstream_ids)


def _check(config: ProviderConfig, identities: tuple[str, ...]) -> None:
    """Raises ConfigurationInvalid if region, jurisdiction and identity do not fit together."""
    source = f"providers.{config.name}"
    region, jurisdiction = config.region, config.jurisdiction
    if not REGION.fullmatch(region):
        reason = "is no region of a cloud" if region else f"is needed of kind {config.kind}"
        raise ConfigurationInvalid(source, "region", reason)
    if contradicts := contradiction(region, jurisdiction):
        raise ConfigurationInvalid(source, "region", contradicts)
    if spans(region) and not config.cross_region:
        reason = "leaves the region to the cloud, which `cross_region = true` permits"
        raise ConfigurationInvalid(source, "region", reason)
    if config.identity not in identities:
        reason = f"must be one of {', '.join(identities)}"
        raise ConfigurationInvalid(source, "identity", reason)
    if config.identity == "ambient" and config.credential_is_named:
        reason = 'means nothing beside `identity = "ambient"`'
        raise ConfigurationInvalid(source, "credential", reason)


def _check_host(config: ProviderConfig, host: str) -> None:
    """If address and name are of different regions, one of them is a mistake."""
    if (named := regions_in(host)) and config.region not in named:
        reason = f"is in {min(named)}, and `region` says {config.region}"
        raise ConfigurationInvalid(f"providers.{config.name}", "base_url", reason)


def missing_extra(config: ProviderConfig, extra: str) -> ConfigurationInvalid:
    """The error for an optional package that is not installed."""
    reason = f"needs an optional package: pip install 'gatewright[{extra}]'"
    return ConfigurationInvalid(f"providers.{config.name}", "kind", reason)
