"""Kinds of providers as settings know them: location, required settings, and what fits. Pure.

The code that speaks to a kind is its adapter in `gateway.providers.registry`; a test compares both.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct


OF_WAYS_OUT: Final = ("ca_file", "client_certificate", "client_key", "proxy", "proxy_credential")
"""Fields of `ProviderSettings` about how its connections leave."""
_OF_ENGINES = ("engine", "priorities", "events", "events_replay")
_OF_POOLS = ("members",)
_OF_CLOUDS = ("region", "project", "identity", "service", "cross_region", "token_url")


class ProviderKind(Struct, frozen=True):
    """Facts about a kind without its adapter; the defaults are those of a managed API."""

    is_in_house: bool = False
    needs_credential: bool = False
    """Nothing is sent to it without a credential, which its adapter requires too."""
    unfit: tuple[str, ...] = (*_OF_ENGINES, *_OF_POOLS, *_OF_CLOUDS)
    """Fields of `ProviderSettings` without meaning for it: setting one is a mistake."""
    convention: str = ""
    """Its name in OpenTelemetry's conventions; without one there, its own name is used."""


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
    """The kind by its name in the settings; an unknown name gets the defaults."""
    return PROVIDER_KINDS.get(name, _UNKNOWN)
