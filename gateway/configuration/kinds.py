"""Kinds of providers as settings know them: location, required settings, and what fits. Pure.

The code that speaks to a kind is its adapter in `gateway.providers.registry`; a test compares both.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct


OF_WAYS_OUT: Final = ("ca_file", "client_certificate", "client_key", "proxy", "proxy_credential")
"""Fields of `ProviderSettings` that are about how its connections leave."""
_OF_ENGINES = ("engine", "priorities", "events", "events_replay")
_OF_POOLS = ("members",)
_OF_CLOUDS = ("region", "project", "identity", "service", "cross_region", "token_url")


class ProviderKind(Struct, frozen=True):
    """What is known of a kind without its adapter; what is left out is true of a managed API."""

    is_in_house: bool = False
    needs_credential: bool = False
    """Nothing is sent to it without one, as its adapter holds it."""
    unfit: tuple[str, ...] = (*_OF_ENGINES, *_OF_POOLS, *_OF_CLOUDS)
    """Fields of `ProviderSettings` that say nothing of it: one that is set is a mistake."""
    convention: str = ""
    """What OpenTelemetry's conventions call it; whoever has no name there goes by its own."""


_SCRIPTED = ProviderKind(unfit=(*_OF_ENGINES, *_OF_POOLS, *OF_WAYS_OUT, *_OF_CLOUDS))
PROVIDER_KINDS: Final[Mapping[str, ProviderKind]] = {
    "anthropic": ProviderKind(needs_credential=True, convention="anthropic"),
    "openai": ProviderKind(needs_credential=True, convention="openai"),
    "bedrock": ProviderKind(
        needs_credential=True,
        unfit=(*_OF_ENGINES, *_OF_POOLS, "credential_header", "project", "token_url"),
        convention="aws.bedrock",
    ),
    "vertex": ProviderKind(
        needs_credential=True,
        unfit=(*_OF_ENGINES, *_OF_POOLS, "credential_header", "service"),
        convention="gcp.vertex_ai",
    ),
    "openai_compatible": ProviderKind(),
    "engine": ProviderKind(is_in_house=True, unfit=(*_OF_POOLS, *_OF_CLOUDS)),
    "pool": ProviderKind(
        is_in_house=True,
        unfit=(
            *(*_OF_ENGINES, *OF_WAYS_OUT, *_OF_CLOUDS),
            *("base_url", "credential", "credential_header", "native_batches"),
        ),
    ),
    "scripted": _SCRIPTED,
    "scripted_anthropic": _SCRIPTED,
}
_UNKNOWN = ProviderKind()


def kind_of(name: str) -> ProviderKind:
    """The kind by its name in the settings; of an unknown one nothing but the usual is known."""
    return PROVIDER_KINDS.get(name, _UNKNOWN)
