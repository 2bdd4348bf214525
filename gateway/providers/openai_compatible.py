"""Anything that speaks OpenAI's Chat Completions: vLLM, SGLang, Ollama, other vendors."""

from typing import ClassVar

from gateway.providers.http_provider import HttpProvider


class OpenAICompatibleProvider(HttpProvider):
    """A configured address; the credential is optional."""

    path: ClassVar[str] = "/v1/chat/completions"
    needs_credential: ClassVar[bool] = False
