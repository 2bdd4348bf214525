"""OpenAI's Chat Completions API."""

from typing import ClassVar

from gateway.providers import sdk
from gateway.providers.http_provider import HttpProvider


class OpenAIProvider(HttpProvider):
    """`api.openai.com`, with a credential that must be there."""

    default_base_url: ClassVar[str] = "https://api.openai.com"
    path: ClassVar[str] = "/v1/chat/completions"

    async def probe(self) -> str:
        return self.unavailable_reason or await sdk.probe(
            "openai", self._egress, self._models_route, self._probe_timeout_s
        )
