"""Anthropic's Messages API."""

from collections.abc import Mapping
from typing import ClassVar

from gateway.providers import sdk
from gateway.providers.http_provider import HttpProvider
from gateway.types import DialectName


ANTHROPIC_VERSION = "2026-10-21"


class AnthropicProvider(HttpProvider):
    """`api.anthropic.com`, or whatever speaks its protocol at a configured address."""

    dialect: DialectName = "anthropic_messages"
    default_base_url: ClassVar[str] = "https://api.anthropic.com"
    path: ClassVar[str] = "/v1/messages"

    @classmethod
    def headers(cls, credential: str) -> Mapping[str, str]:
        return {**super().headers(credential), "anthropic-version": ANTHROPIC_VERSION}

    async def probe(self) -> str:
        return self.unavailable_reason or await sdk.probe(
            "anthropic", self._egress, self._models_route, self._probe_timeout_s
        )
