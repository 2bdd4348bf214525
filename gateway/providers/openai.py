"""OpenAI's APIs: chat completions and responses."""

from typing import ClassVar

from gateway.ports import UpstreamCall
from gateway.providers import sdk
from gateway.providers.config import ProviderConfig
from gateway.providers.egress import Egress, Route
from gateway.providers.http_provider import HttpProvider
from gateway.types import ChatRequest, DialectName, Target


class OpenAIProvider(HttpProvider):
    """`api.openai.com`, with a credential that must be there."""

    default_base_url: ClassVar[str] = "https://api.openai.com"
    path: ClassVar[str] = "/v1/chat/completions"
    responses_path: ClassVar[str] = "/v1/responses"

    def __init__(self, config: ProviderConfig, egress: Egress) -> None:
        super().__init__(config, egress)
        headers = self.headers(config.revealed_credential)
        self._responses_route = self._make_route(config, self.responses_path, headers)

    def speaks(self, request: ChatRequest, target: Target) -> DialectName:
        """The caller's own dialect where that works; newer models take tools in one of them only.

        A request of another vendor's dialect goes where its tools can go.
        """
        if request.dialect == "openai_responses":
            return request.dialect
        needs_responses = request.has_tools and "tools_in_responses" in target.capabilities
        return "openai_responses" if needs_responses else self.dialect

    def route_for(self, call: UpstreamCall) -> Route:
        return self._responses_route if call.dialect == "openai_responses" else self._route

    async def probe(self) -> str:
        return self.unavailable_reason or await sdk.probe(
            "openai", self._egress, self._models_route, self._probe_timeout_s
        )
