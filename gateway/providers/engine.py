"""Our own engine, at a loopback or private address: the sovereign place."""

from collections.abc import Mapping
from typing import ClassVar

import msgspec
from msgspec import Struct

from gateway.errors import ConfigurationInvalid, UpstreamFailed, UpstreamMalformed
from gateway.pool.capabilities import ENGINES, Capability
from gateway.providers.config import ProviderConfig
from gateway.providers.egress import Egress
from gateway.providers.http_provider import HTTP_OK, HttpProvider, describe_status
from gateway.types import DialectName


class EngineModel(Struct, frozen=True):
    """What the engine says about a model it serves."""

    id: str
    digest: str = ""
    """Weights, tokenizer and template in one hash; empty from engines that do not say."""
    context_window_tokens: int = 0
    """0 from engines that do not say."""
    max_model_len: int = 0
    """vLLM's and SGLang's name for the same."""

    @property
    def window_tokens(self) -> int:
        return self.context_window_tokens or self.max_model_len


class _ModelList(Struct, frozen=True):
    data: tuple[EngineModel, ...]


_DECODER = msgspec.json.Decoder(_ModelList)


class EngineProvider(HttpProvider):
    """OpenAI-compatible HTTP that also tells its identity and whether it is ready."""

    path: ClassVar[str] = "/v1/chat/completions"
    other_paths: ClassVar[Mapping[DialectName, str]] = {"openai_embeddings": "/v1/embeddings"}
    needs_credential: ClassVar[bool] = False
    in_house: ClassVar[bool] = True

    def __init__(self, config: ProviderConfig, egress: Egress) -> None:
        super().__init__(config, egress)
        headers = self.headers(config.revealed_credential)
        self._ready_route = self._make_route(config, _capability(config).health_path, headers)

    async def probe(self) -> str:
        """Ready, and able to say what it serves."""
        try:
            status, _ = await self._ask(self._ready_route)
            if status != HTTP_OK:
                return f"it is not ready (HTTP {status})"
            models = await self.list_models()
        except UpstreamFailed as error:
            return error.message
        return "" if models else "it serves no model"

    async def list_models(self) -> tuple[EngineModel, ...]:
        """Identity and window of each model, for `gateway.catalogue.refine_target`.

        Raises:
            UpstreamFailed: it cannot be reached, refuses, or answers something else.
        """
        status, body = await self._ask(self._models_route)
        if status != HTTP_OK:
            raise UpstreamMalformed(describe_status(status))
        try:
            return _DECODER.decode(body).data
        except msgspec.MsgspecError as error:
            raise UpstreamMalformed("it lists its models in an unknown form") from error


def _capability(config: ProviderConfig) -> Capability:
    found = ENGINES.get(config.engine)
    if found is None:
        reason = f"must be one of {', '.join(ENGINES)}"
        raise ConfigurationInvalid(f"providers.{config.name}", "engine", reason)
    return found
