"""Adapter for servers with OpenAI's Chat Completions: vLLM, SGLang, Ollama, other vendors."""

from collections.abc import Mapping
from typing import ClassVar

from gateway.providers.http_provider import COMPATIBLE_PATHS, HttpProvider
from gateway.types import DialectName


class OpenAICompatibleProvider(HttpProvider):
    """A configured address; the credential is optional."""

    path: ClassVar[str] = "/v1/chat/completions"
    other_paths: ClassVar[Mapping[DialectName, str]] = COMPATIBLE_PATHS
    needs_credential: ClassVar[bool] = False
