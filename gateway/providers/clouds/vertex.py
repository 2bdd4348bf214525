"""Claude at Google Cloud's Vertex AI: Anthropic's Messages API with the model in the path."""

import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar, Final

import msgspec

from gateway.dialects.bodies.body import patch
from gateway.errors import ConfigurationInvalid
from gateway.ports import UpstreamCall
from gateway.providers.anthropic import ANTHROPIC_VERSION
from gateway.providers.clouds.proofs import Leased
from gateway.providers.clouds.provider import CloudProvider, missing_extra
from gateway.providers.clouds.regions import ANYWHERE, spans
from gateway.providers.config import ProviderConfig
from gateway.providers.egress.client import Egress, Route


_PROJECT: Final = re.compile(r"[a-z](?:[a-z0-9-]{4,28})[a-z0-9]|[0-9]{6,20}")
_MODEL: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}(?:@[a-z0-9-]{1,32})?")


class TokenProof:
    """An access token that is fetched anew; see `gateway.providers.clouds.proofs.Proof`."""

    def __init__(self, leased: Leased[str]) -> None:
        self._leased = leased
        self.renew, self.ready = leased.renew, leased.ready
        self.close, self.doubt = leased.close, leased.doubt

    @property
    def reason(self) -> str:
        return self._leased.reason

    async def headers(self, method: str, route: Route, body: bytes) -> Mapping[str, str]:
        del method, route, body
        return {"authorization": f"Bearer {self._leased.held}"}

    @property
    def secrets(self) -> tuple[str, ...]:
        return (self._leased.held,) if self._leased.held else ()


class VertexProvider(CloudProvider):
    """One region of Vertex AI, for one project of Google Cloud."""

    identities: ClassVar[tuple[str, ...]] = ("credential", "ambient")
    path: ClassVar[str] = "/v1"
    models_path: ClassVar[str] = "/v1"

    def __init__(self, config: ProviderConfig, egress: Egress) -> None:
        if not _PROJECT.fullmatch(config.project):
            reason = "is no id of a project" if config.project else "is needed of kind vertex"
            raise ConfigurationInvalid(f"providers.{config.name}", "project", reason)
        self._place = f"/v1/projects/{config.project}/locations/{config.region}"
        super().__init__(config, egress, _proof(config, egress))
        self._models_route = self._make_route(config, self._place, self.headers(""))

    @classmethod
    def default_url(cls, config: ProviderConfig) -> str:
        region = config.region
        if region == ANYWHERE:
            return "https://aiplatform.googleapis.com"
        if spans(region):
            return f"https://aiplatform.{region}.rep.googleapis.com"
        return f"https://{region}-aiplatform.googleapis.com"

    @classmethod
    def checked_credential(cls, config: ProviderConfig) -> str:
        """A key in JSON; it is not sent in a header, but read where tokens are fetched."""
        return config.revealed_credential

    def prepared(self, call: UpstreamCall) -> tuple[str, bytes]:
        version = msgspec.json.encode(call.version or ANTHROPIC_VERSION)
        changes: dict[str, bytes | None] = {"anthropic_version": version, "anthropic_beta": None}
        models = f"{self._place}/publishers/anthropic/models"
        if call.is_count:
            return f"{models}/count-tokens:rawPredict", patch(call.body, changes)
        asked = "streamRawPredict" if call.stream else "rawPredict"
        body = patch(call.body, {"model": None, **changes})
        return f"{models}/{call.target.model}:{asked}", body

    def check_model(self, model: str) -> str:
        return "" if _MODEL.fullmatch(model) else "is no id of a model of Anthropic's at Vertex AI"


def _proof(config: ProviderConfig, egress: Egress) -> TokenProof:
    try:
        tokens: Any = import_module("gateway.providers.clouds.google_tokens")
    except ImportError:
        raise missing_extra(config, "google") from None
    return TokenProof(Leased[str](tokens.GoogleTokens(config, egress).fetch))
