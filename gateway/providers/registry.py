"""Kind → adapter: the only place that knows which kinds of upstream there are."""

from collections.abc import Callable, Mapping

from msgspec import Struct

from gateway.catalogue import Place
from gateway.errors import ConfigurationInvalid
from gateway.ports import ModelHost, Provider
from gateway.providers.anthropic import AnthropicProvider
from gateway.providers.config import ProviderConfig
from gateway.providers.egress import Egress
from gateway.providers.engine import EngineProvider
from gateway.providers.openai import OpenAIProvider
from gateway.providers.openai_compatible import OpenAICompatibleProvider
from gateway.providers.scripted import TARGET_PREFIX, ScriptedProvider
from gateway.types import DialectName


class Kind(Struct, frozen=True):
    """How to build a kind's adapter, and what its targets are."""

    build: Callable[[ProviderConfig, Egress], Provider]
    in_house: bool = False
    target_prefix: str = ""


def _scripted(dialect: DialectName) -> Callable[[ProviderConfig, Egress], Provider]:
    def build(config: ProviderConfig, _: Egress) -> Provider:
        return ScriptedProvider(config.name, config.jurisdiction, dialect)

    return build


KINDS: Mapping[str, Kind] = {
    "anthropic": Kind(AnthropicProvider),
    "openai": Kind(OpenAIProvider),
    "openai_compatible": Kind(OpenAICompatibleProvider),
    "engine": Kind(EngineProvider, in_house=True),
    "scripted": Kind(_scripted("openai_chat"), target_prefix=TARGET_PREFIX),
    "scripted_anthropic": Kind(_scripted("anthropic_messages"), target_prefix=TARGET_PREFIX),
}


def build_provider(config: ProviderConfig, egress: Egress) -> Provider:
    """The adapter for a configured upstream; opens nothing yet.

    Raises:
        ConfigurationInvalid: the kind is unknown, or the address is not one it may have.
    """
    return _kind(config.name, config.kind).build(config, egress)


def place(name: str, kind: str, jurisdiction: str) -> Place:
    """What targets take from this provider, for `gateway.catalogue.build_targets`."""
    found = _kind(name, kind)
    return Place(jurisdiction, found.in_house, found.target_prefix)


def _kind(name: str, kind: str) -> Kind:
    try:
        return KINDS[kind]
    except KeyError:
        reason = f"must be one of {', '.join(KINDS)}"
        raise ConfigurationInvalid(f"providers.{name}", "kind", reason) from None


def model_hosts(providers: Mapping[str, Provider]) -> dict[str, ModelHost]:
    """Those providers that can be asked what they serve."""
    return {
        name: provider
        for name, provider in providers.items()
        if isinstance(provider, EngineProvider)
    }
