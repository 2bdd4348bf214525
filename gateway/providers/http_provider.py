"""What all HTTP upstreams share: one prepared route, one call, no retries."""

from collections.abc import Coroutine, Mapping
from typing import Any, ClassVar

from gateway.errors import ConfigurationInvalid, UpstreamFailed, UpstreamUnreachable
from gateway.ports import UpstreamCall, UpstreamReply
from gateway.providers.config import ProviderConfig, Revealable
from gateway.providers.egress.client import Egress, Route, check_clearance
from gateway.providers.egress.endpoint import Endpoint, parse_endpoint
from gateway.routing.board import NO_CREDENTIAL
from gateway.types import ChatRequest, DialectName, Target
from policies.facts import BARE_TEXT, CONTINUES_TEXT


HTTP_OK = 200
COMPATIBLE_PATHS: Mapping[DialectName, str] = {
    "openai_embeddings": "/v1/embeddings",
    "openai_completions": "/v1/completions",
}
"""Other APIs of servers compatible with OpenAI's; not every server has each of them."""


BEARER_HEADER = "authorization"
CREDENTIAL_HEADERS = (BEARER_HEADER, "api-key", "x-api-key")
"""Headers that may hold a credential: in any of them the egress recognises it as one."""
NO_CREDENTIAL_NOW = "no credential now"


class HttpProvider:
    """An upstream behind one endpoint; a kind adds its dialect, paths, headers and probe."""

    dialect: DialectName = "openai_chat"
    default_base_url: ClassVar[str] = ""
    path: ClassVar[str]
    other_paths: ClassVar[Mapping[DialectName, str]] = {}
    """Paths of further dialects."""
    models_path: ClassVar[str] = "/v1/models"
    needs_credential: ClassVar[bool] = True
    in_house: ClassVar[bool] = False
    counts_tokens = False

    def __init__(self, config: ProviderConfig, egress: Egress) -> None:
        self._config = config
        self.name = config.name
        self.jurisdiction = config.jurisdiction
        self._egress = egress
        self._probe_timeout_s = config.probe_timeout_s
        if config.credential_header not in CREDENTIAL_HEADERS:
            reason = f"must be one of {', '.join(CREDENTIAL_HEADERS)}"
            raise ConfigurationInvalid(f"providers.{config.name}", "credential_header", reason)
        credential = self.checked_credential(config)
        self._has_credential = bool(credential)
        self._lacks_credential = not credential and (
            self.needs_credential or config.credential_is_named
        )
        self._endpoint = self._make_endpoint(config)
        self.connect_timeout_s = config.connect_timeout_s
        self._credential = config.credential
        headers = self.headers(credential)
        self._route = self._make_route(config, self.path, headers)
        self._other_routes = {
            name: self._make_route(config, path, headers) for name, path in self.other_paths.items()
        }
        self._models_route = self._make_route(config, self.models_path, headers)

    def headers(self, credential: str) -> Mapping[str, str]:
        """Headers of this kind besides the egress's own, as the official SDK sends them."""
        if not credential:
            return {}
        header = self._config.credential_header
        return {header: credential if header != BEARER_HEADER else f"Bearer {credential}"}

    @classmethod
    def default_url(cls, config: ProviderConfig) -> str:
        """The address if none is configured; empty if there is no default."""
        del config
        return cls.default_base_url

    @classmethod
    def checked_credential(cls, config: ProviderConfig) -> str:
        """The credential, if a header can hold it: a line break in it must not start a new header.

        Raises:
            ConfigurationInvalid: it cannot.
        """
        credential = config.revealed_credential
        if not credential.isascii() or not credential.isprintable() or " " in credential:
            reason = "holds spaces, line breaks or other characters that no credential has"
            raise ConfigurationInvalid(f"providers.{config.name}", "credential", reason)
        return credential

    def speaks(self, request: ChatRequest, target: Target) -> DialectName:
        """The caller's dialect if this kind speaks it, otherwise its first one.

        Bare text is for models that continue it: others are asked as chats.
        """
        if request.dialect == BARE_TEXT and CONTINUES_TEXT not in target.capabilities:
            return self.dialect
        return request.dialect if request.dialect in self._other_routes else self.dialect

    @property
    def unavailable_reason(self) -> str:
        if not self._lacks_credential:
            return ""
        return NO_CREDENTIAL_NOW if self._config.credential_may_come else NO_CREDENTIAL

    @property
    def config(self) -> ProviderConfig:
        """The configuration it was built from."""
        return self._config

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint of the upstream."""
        return self._endpoint

    @property
    def credential(self) -> Revealable | None:
        """The credential of its calls; None if it has none."""
        return self._credential if self._has_credential else None

    @property
    def has_proof(self) -> bool:
        """Whether it has anything to authenticate with."""
        return self._has_credential

    async def resolve(self) -> tuple[str, ...]:
        """Addresses of the upstream, or of its proxy; raises OSError."""
        return await self._egress.resolve(self._endpoint)

    async def reach(self, address: str) -> None:
        """Open a connection to one of them and close it; raises OSError or a certificate error."""
        await self._egress.reach(self._endpoint, address)

    async def list_status(self, deadline_s: float) -> int:
        """The status of an answer to the list of models, which costs nothing.

        Raises:
            UpstreamFailed: there was none.
        """
        reply = await self._egress.ask(self._models_route, deadline_s)
        try:
            await reply.read()
            return reply.status
        finally:
            await reply.close()

    def open(self, call: UpstreamCall) -> Coroutine[Any, Any, UpstreamReply]:
        self._require_callable(call)
        return self._egress.open(self.route_for(call), call)

    def route_for(self, call: UpstreamCall) -> Route:
        """The prepared route of this call; a kind may have several."""
        return self._other_routes.get(call.dialect, self._route)

    def _require_callable(self, call: UpstreamCall) -> None:
        """Raises UpstreamUnreachable without a credential, or SovereigntyViolation before that."""
        if reason := self.unavailable_reason:
            check_clearance(self._endpoint.jurisdiction, call)
            raise UpstreamUnreachable(f"the upstream cannot be called: {reason}")

    async def probe(self) -> str:
        """Ask for the list of models: costs nothing and shows that address and credential work."""
        if reason := self.unavailable_reason:
            return reason
        try:
            status, _ = await self._ask(self._models_route)
        except UpstreamFailed as error:
            return error.message
        return describe_status(status)

    async def close(self) -> None:
        """Nothing to close: connections belong to the egress."""

    async def _ask(self, route: Route) -> tuple[int, bytes]:
        """Status and body of a GET that carries nothing of a caller."""
        reply = await self._egress.ask(route, self._probe_timeout_s)
        try:
            return reply.status, await reply.read()
        finally:
            await reply.close()

    def _make_endpoint(self, config: ProviderConfig) -> Endpoint:
        base_url = config.base_url or self.default_url(config)
        # The paths below carry their version, so a base URL in the SDKs' style may end with it.
        return parse_endpoint(
            config.name,
            base_url.rstrip("/").removesuffix("/v1"),
            config.jurisdiction,
            allow_plain_http=config.allow_plain_http,
            in_house=self.in_house,
            way_out=config.way_out,
        )

    def way(self, path: str, more: Mapping[str, str]) -> Route:
        """A prepared route to any path, with headers besides this kind's own."""
        headers = {**self.headers(self._config.revealed_credential), **more}
        return self._make_route(self._config, path, headers)

    def _make_route(self, config: ProviderConfig, path: str, headers: Mapping[str, str]) -> Route:
        return self._egress.route(
            self._endpoint, path, headers, connect_timeout_s=config.connect_timeout_s
        )


def describe_status(status: int) -> str:
    """A probe's verdict in words; empty if it is good."""
    if status == HTTP_OK:
        return ""
    if status in (401, 403):
        return f"the credential was refused (HTTP {status})"
    return f"it answered with HTTP {status}"
