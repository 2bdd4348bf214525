"""Maps each provider kind to its adapter: the only place that chooses one.

`configuration.kinds` has everything else about a kind.
"""

from collections.abc import Callable, Collection, Mapping

from msgspec import Struct

from gateway.configuration.kinds import kind_of
from gateway.errors import ConfigurationInvalid
from gateway.money.catalogue import Place
from gateway.parcels import ParcelService
from gateway.pool.capabilities import ENGINES
from gateway.pool.provider import PoolProvider, Replica
from gateway.ports import ModelHost, Provider
from gateway.providers.anthropic import AnthropicProvider
from gateway.providers.clouds.bedrock import BedrockProvider
from gateway.providers.clouds.provider import CloudProvider
from gateway.providers.clouds.vertex import VertexProvider
from gateway.providers.config import ProviderConfig
from gateway.providers.egress.client import Egress
from gateway.providers.engine import EngineProvider
from gateway.providers.openai import OpenAIProvider
from gateway.providers.openai_compatible import OpenAICompatibleProvider
from gateway.providers.scripted import TARGET_PREFIX, ScriptedProvider
from gateway.types import DialectName
from policies.facts import ASSURANCES


class Kind(Struct, frozen=True):
    """How to build a kind's adapter, and properties of its targets."""

    build: Callable[[ProviderConfig, Egress], Provider]
    target_prefix: str = ""
    seals: str = ""
    """The dialect in which its models seal their reasoning: only they can read it again."""


def _scripted(dialect: DialectName) -> Callable[[ProviderConfig, Egress], Provider]:
    def build(config: ProviderConfig, _: Egress) -> Provider:
        return ScriptedProvider(config.name, config.jurisdiction, dialect)

    return build


def _pool(config: ProviderConfig, _: Egress) -> Provider:
    raise ConfigurationInvalid(f"providers.{config.name}", "members", "a pool is built of members")


KINDS: Mapping[str, Kind] = {
    "anthropic": Kind(AnthropicProvider, seals="anthropic_messages"),
    "openai": Kind(OpenAIProvider, seals="openai_responses"),
    "bedrock": Kind(BedrockProvider, seals="anthropic_messages"),
    "vertex": Kind(VertexProvider, seals="anthropic_messages"),
    "openai_compatible": Kind(OpenAICompatibleProvider),
    "engine": Kind(EngineProvider),
    "pool": Kind(_pool),
    "scripted": Kind(_scripted("openai_chat"), target_prefix=TARGET_PREFIX),
    "scripted_anthropic": Kind(_scripted("anthropic_messages"), target_prefix=TARGET_PREFIX),
}


def build_provider(config: ProviderConfig, egress: Egress) -> Provider:
    """The adapter for a configured upstream; opens nothing yet.

    Raises:
        ConfigurationInvalid: the kind is unknown, or the address is not allowed.
    """
    return _kind(config.name, config.kind).build(config, egress)


def place(name: str, kind: str, jurisdiction: str, assurances: Collection[str] = ()) -> Place:
    """What targets take from this provider, for `gateway.money.catalogue.build_targets`.

    In-house providers need no assurances: they fulfil all of them.

    Raises:
        ConfigurationInvalid: the kind or an assurance is unknown.
    """
    found = _kind(name, kind)
    if unknown := set(assurances).difference(ASSURANCES):
        reason = f"{min(unknown)!r} is none of {', '.join(ASSURANCES)}"
        raise ConfigurationInvalid(f"providers.{name}", "assurances", reason)
    in_house = kind_of(kind).is_in_house
    promised = frozenset(ASSURANCES if in_house else assurances)
    return Place(jurisdiction, in_house, promised, found.target_prefix, found.seals)


def _kind(name: str, kind: str) -> Kind:
    try:
        return KINDS[kind]
    except KeyError:
        reason = f"must be one of {', '.join(KINDS)}; {_meant(kind)}"
        raise ConfigurationInvalid(f"providers.{name}", "kind", reason) from None


def _meant(kind: str) -> str:
    """Advice on what to write for a server that is not a kind of its own."""
    if kind in ENGINES:
        return f'one in the house is kind = "engine" with engine = "{kind}"'
    return 'any other server that speaks OpenAI\'s API is "openai_compatible"'


def build_pool(
    config: ProviderConfig,
    members: tuple[str, ...],
    providers: Mapping[str, Provider],
    monotonic_s: Callable[[], float],
) -> PoolProvider:
    """A pool of engines that were built before it.

    Raises:
        ConfigurationInvalid: a member is not an engine, or is in another jurisdiction.
    """
    source = f"providers.{config.name}"
    engines: dict[str, Replica] = {}
    for name in members:
        member = providers.get(name)
        if not isinstance(member, EngineProvider):
            raise ConfigurationInvalid(source, "members", f"`{name}` is no provider of kind engine")
        engines[name] = member
    pool = PoolProvider(config.name, engines, monotonic_s)
    if pool.jurisdiction != config.jurisdiction:
        raise ConfigurationInvalid(source, "jurisdiction", "is not that of its members")
    return pool


def parcel_service(provider: Provider | None) -> ParcelService | None:
    """The batch API of an upstream's vendor; None if it has none that we support."""
    kinds = OpenAIProvider | AnthropicProvider | ScriptedProvider
    return provider.parcels if isinstance(provider, kinds) else None


def clouds_among(providers: Mapping[str, Provider]) -> dict[str, CloudProvider]:
    """The providers that authenticate to a cloud, possibly with credentials that expire."""
    return {name: each for name, each in providers.items() if isinstance(each, CloudProvider)}


def is_pool(kind: str) -> bool:
    """Whether a configured kind consists of other providers."""
    return KINDS.get(kind) is KINDS["pool"]


def pools_among(providers: Mapping[str, Provider]) -> tuple[PoolProvider, ...]:
    """The providers that are pools."""
    return tuple(each for each in providers.values() if isinstance(each, PoolProvider))


def model_hosts(providers: Mapping[str, Provider]) -> dict[str, ModelHost]:
    """The providers that report what they serve; a pool asks its own members."""
    inside = {member.name for pool in pools_among(providers) for member in pool.router.members}
    return {
        name: provider
        for name, provider in providers.items()
        if isinstance(provider, PoolProvider)
        or (isinstance(provider, EngineProvider) and name not in inside)
    }


def engines_among(hosts: Mapping[str, ModelHost]) -> dict[str, EngineProvider]:
    """The hosts that are single engines, in no pool."""
    return {name: host for name, host in hosts.items() if isinstance(host, EngineProvider)}
