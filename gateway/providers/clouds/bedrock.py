"""Claude at Amazon Bedrock, through the endpoints that speak Anthropic's Messages API.

The older InvokeModel API with its own binary frames is not supported.
"""

import re
from collections.abc import Mapping
from importlib import import_module
from typing import ClassVar, Final

from gateway.dialects.bodies.body import patch
from gateway.errors import ConfigurationInvalid
from gateway.ports import UpstreamCall
from gateway.providers.clouds.proofs import KeyProof, Proof
from gateway.providers.clouds.provider import CloudProvider, missing_extra
from gateway.providers.clouds.regions import contradiction
from gateway.providers.config import ProviderConfig
from gateway.providers.egress.client import Egress


_HOSTS: Final[Mapping[str, str]] = {
    "bedrock-mantle": "https://bedrock-mantle.{region}.api.aws",
    "bedrock-runtime": "https://bedrock-runtime.{region}.amazonaws.com",
}
_SIGNED_AS: Final[Mapping[str, str]] = {
    "bedrock-mantle": "bedrock-mantle",
    "bedrock-runtime": "bedrock",
}
_MODEL: Final = re.compile(r"(?:([a-z-]{2,16})\.)?anthropic\.[A-Za-z0-9_:-][A-Za-z0-9._:-]{0,127}")
"""An Anthropic model id, optionally after a profile's prefix, which spans regions."""
_NOT_THE_CALLERS: Final[Mapping[str, bytes | None]] = {
    "anthropic_version": None,
    "anthropic_beta": None,
    "user_profile_id": None,
}
"""Body fields that the cloud reads: we pass on such settings in headers, and say who asks."""


class BedrockProvider(CloudProvider):
    """One region of Amazon Bedrock."""

    path: ClassVar[str] = "/anthropic/v1/messages"
    count_path: ClassVar[str] = "/anthropic/v1/messages/count_tokens"

    def __init__(self, config: ProviderConfig, egress: Egress) -> None:
        self._service = config.service or "bedrock-mantle"
        if self._service not in _HOSTS:
            reason = f"must be one of {', '.join(_HOSTS)}"
            raise ConfigurationInvalid(f"providers.{config.name}", "service", reason)
        super().__init__(config, egress, _proof(config, _SIGNED_AS[self._service]))

    @classmethod
    def default_url(cls, config: ProviderConfig) -> str:
        return _HOSTS[config.service or "bedrock-mantle"].format(region=config.region)

    def prepared(self, call: UpstreamCall) -> tuple[str, bytes]:
        path = self.count_path if call.is_count else self.path
        return path, patch(call.body, _NOT_THE_CALLERS)

    def check_model(self, model: str) -> str:
        if model.startswith("arn:"):
            return "is an ARN, and nobody can see to which regions it leads: name the model"
        named = _MODEL.fullmatch(model)
        if named is None:
            return "is no id of a model of Anthropic's at Amazon Bedrock"
        if (span := named[1]) is None:
            return ""
        if not self._config.cross_region:
            return (
                f"begins with `{span}.`: Amazon answers it in any region of that profile, which "
                f"`providers.{self.name}.cross_region = true` permits"
            )
        return contradiction(span, self.jurisdiction)


def _proof(config: ProviderConfig, service: str) -> Proof:
    if config.identity == "credential":
        return KeyProof(config.credential)
    try:
        signing = import_module("gateway.providers.clouds.aws_signing")
    except ImportError:
        raise missing_extra(config, "aws") from None
    made: Proof = signing.SignedProof(config, service)
    return made
