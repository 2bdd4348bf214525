"""Adapter for Anthropic's Messages API."""

from collections.abc import Mapping
from typing import ClassVar

from gateway.ports import UpstreamCall
from gateway.providers import sdk
from gateway.providers.config import ProviderConfig
from gateway.providers.egress.client import Egress, Route
from gateway.providers.http_provider import HttpProvider
from gateway.providers.parcels.anthropic import AnthropicParcels
from gateway.providers.parcels.post import ParcelPost
from gateway.types import DialectName


ANTHROPIC_VERSION = "2026-10-21"
"""Our own version; a caller of the same dialect may have pinned another."""

ROUTES_MAX = 64


class AnthropicProvider(HttpProvider):
    """`api.anthropic.com`, or a server with the same protocol at a configured address."""

    dialect: DialectName = "anthropic_messages"
    default_base_url: ClassVar[str] = "https://api.anthropic.com"
    path: ClassVar[str] = "/v1/messages"
    count_path: ClassVar[str] = "/v1/messages/count_tokens"
    counts_tokens = True

    def __init__(self, config: ProviderConfig, egress: Egress) -> None:
        super().__init__(config, egress)
        self.parcels = AnthropicParcels(ParcelPost(egress, self.way))
        self._routes: dict[tuple[str, tuple[str, ...], bool], Route] = {
            ("", (), False): self._route
        }

    def headers(self, credential: str) -> Mapping[str, str]:
        return {**super().headers(credential), "anthropic-version": ANTHROPIC_VERSION}

    def route_for(self, call: UpstreamCall) -> Route:
        """The prepared route for the version and the features that the caller asked for.

        Both come from short lists (`dialects.anthropic_messages.protocol`), so few are ever made.
        """
        wanted = call.version, call.betas, call.is_count
        route = self._routes.get(wanted)
        if route is None:
            headers = {**self.headers(self._config.revealed_credential)}
            if call.version:
                headers["anthropic-version"] = call.version
            if call.betas:
                headers["anthropic-beta"] = ",".join(call.betas)
            path = self.count_path if call.is_count else self.path
            route = self._make_route(self._config, path, headers)
            if len(self._routes) < ROUTES_MAX:
                self._routes[wanted] = route
        return route

    async def probe(self) -> str:
        return self.unavailable_reason or await sdk.probe(
            "anthropic", self._egress, self._models_route, self._probe_timeout_s
        )
