"""Adapter for OpenAI's APIs: chat completions, responses, embeddings, older completions."""

from collections.abc import Mapping
from typing import ClassVar

from gateway.ports import UpstreamCall
from gateway.providers import sdk
from gateway.providers.config import ProviderConfig
from gateway.providers.egress.client import Egress, Route
from gateway.providers.http_provider import HttpProvider
from gateway.providers.parcels.openai import OpenAIParcels
from gateway.providers.parcels.post import ParcelPost
from gateway.types import ChatRequest, DialectName, Target


class OpenAIProvider(HttpProvider):
    """`api.openai.com`; a credential is required."""

    default_base_url: ClassVar[str] = "https://api.openai.com"
    path: ClassVar[str] = "/v1/chat/completions"
    other_paths: ClassVar[Mapping[DialectName, str]] = {
        "openai_responses": "/v1/responses",
        "openai_embeddings": "/v1/embeddings",
        "openai_completions": "/v1/completions",
    }

    count_path: ClassVar[str] = "/v1/responses/input_tokens"
    counts_tokens = True
    """For responses; for chat completions the vendor has no token count."""

    def __init__(self, config: ProviderConfig, egress: Egress) -> None:
        super().__init__(config, egress)
        headers = self.headers(config.revealed_credential)
        self._count_route = self._make_route(config, self.count_path, headers)
        self.parcels = OpenAIParcels(ParcelPost(egress, self.way))

    def speaks(self, request: ChatRequest, target: Target) -> DialectName:
        """The caller's own dialect, except that newer models take tools in responses only.

        A request of another vendor's dialect goes where its tools can go.
        """
        if request.has_tools and "tools_in_responses" in target.capabilities:
            return "openai_responses"
        return super().speaks(request, target)

    def route_for(self, call: UpstreamCall) -> Route:
        return self._count_route if call.is_count else super().route_for(call)

    async def probe(self) -> str:
        return self.unavailable_reason or await sdk.probe(
            "openai", self._egress, self._models_route, self._probe_timeout_s
        )
