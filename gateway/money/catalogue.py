"""The price catalogue: what a model costs and can do, with the source and date of each price.

Pure functions; money is integer micro-dollars, exact until one final rounding up.
"""

import re
import tomllib
from collections.abc import Mapping
from datetime import date
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Literal

import msgspec
from msgspec import Struct

from gateway.configuration.settings import TargetSettings
from gateway.configuration.suggesting import closest
from gateway.errors import ConfigurationInvalid
from gateway.money.entry_faults import entry_faults, refusal_of
from gateway.price import Price
from gateway.types import Target, Tier, Usage


CAPABILITIES = frozenset(
    {
        *("cache_breakpoints", "completions", "documents", "effort", "embeddings", "images"),
        *("json_schema", "max_completion_tokens", "mid_system", "prefill", "prompt_cache"),
        *("reasoning_content", "reasoning_effort", "streaming", "thinking", "tools"),
        "tools_in_responses",
    }
)
"""Words that routing and dialects ask for.

`max_completion_tokens`: the limit's name upstream. `tools_in_responses`: chat completions take no
function tools for this model, responses do. `embeddings`: the model makes vectors, and no answers.
`cache_breakpoints`: OpenAI's explicit breakpoints are known.
`reasoning_content`: in a history the model takes what it thought, as engines do, in that field.
`prompt_cache`: a breakpoint is set in conversations whose caller set none. `effort`,
`reasoning_effort`, `prefill` and `mid_system`: fields and shapes of one dialect that a model of the
other may know.
"""

TOLD_BY_ENGINES = frozenset({"tools"})
"""Abilities that depend on the model that an engine has loaded, so the engine's word counts."""

Stance = Literal["yes", "no", "unknown", "without_reasoning", "without_temperature"]
"""Whether a model takes a parameter: always, never, nobody said, only while it is told not to
reason, or only if no temperature is named beside it. What nobody said counts as taken.
"""

PARAMETERS = (
    *("temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty"),
    *("logit_bias", "logprobs", "n", "effort_none", "thinking_budget", "forced_tools"),
)
"""Parameters that some models take and others refuse.

`effort_none` is the wish not to reason, `thinking_budget` how many tokens may be thought, and
`forced_tools` that a tool has to be called: any, or a certain one.
"""

PARAMETER_FIELDS = frozenset(PARAMETERS) | {
    *("top_logprobs", "include", "reasoning", "reasoning_effort", "thinking", "tool_choice")
}
"""The fields in which requests name them, in any dialect."""

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_TOKENS_PER_MTOK = 1_000_000
_PERCENT = 100
_LEAST: Mapping[str, tuple[int, str]] = {
    "context_window_tokens": (1, "is zero"),
    "output_tokens_max": (1, "is zero"),
    "long_input_percent": (_PERCENT, "is below 100"),
    "long_output_percent": (_PERCENT, "is below 100"),
}
_NUMBER_MAX = 10**12
"""A million dollars for a million tokens."""


class Entry(Struct, frozen=True, forbid_unknown_fields=True):
    """One model of the catalogue; the fields of `Price` plus limits and abilities."""

    vendor: str
    tier: Tier
    input_microusd_per_mtok: int
    output_microusd_per_mtok: int
    cache_read_microusd_per_mtok: int
    cache_write_microusd_per_mtok: int
    cache_write_1h_microusd_per_mtok: int
    batch_percent: int
    context_window_tokens: int
    output_tokens_max: int
    capabilities: frozenset[str]
    source: str
    as_of: str
    priority_percent: int = 0
    flex_percent: int = 0
    web_search_microusd: int = 0
    unbilled_tools: bool = False
    priced_up_to_tokens: int = 0
    """Inputs longer than this cost more than stated here, so they are not offered; 0 = no limit."""
    long_input_percent: int = 100
    """What input costs if it turns out to be longer, in percent of what is stated here."""
    long_output_percent: int = 100
    """The same for output."""
    us_percent: int = 0
    """What inference in the United States only costs, in percent; 0 if unknown."""
    parameters: Mapping[str, Stance] = {}
    """Which of `PARAMETERS` the model takes."""
    parameters_source: str = ""
    parameters_as_of: str = ""

    @property
    def price(self) -> Price:
        return Price(
            input_microusd_per_mtok=self.input_microusd_per_mtok,
            output_microusd_per_mtok=self.output_microusd_per_mtok,
            cache_read_microusd_per_mtok=self.cache_read_microusd_per_mtok,
            cache_write_microusd_per_mtok=self.cache_write_microusd_per_mtok,
            cache_write_1h_microusd_per_mtok=self.cache_write_1h_microusd_per_mtok,
            batch_percent=self.batch_percent,
            source=self.source,
            as_of=self.as_of,
            priority_percent=self.priority_percent,
            flex_percent=self.flex_percent,
            web_search_microusd=self.web_search_microusd,
            unbilled_tools=self.unbilled_tools,
            long_from_tokens=self.priced_up_to_tokens,
            long_input_percent=self.long_input_percent,
            long_output_percent=self.long_output_percent,
            us_percent=self.us_percent,
        )

    @property
    def usable_window_tokens(self) -> int:
        """The part of the context window whose price is known."""
        return min(
            self.context_window_tokens, self.priced_up_to_tokens or self.context_window_tokens
        )


class Catalogue(Struct, frozen=True, forbid_unknown_fields=True):
    """Entries by model name."""

    models: Mapping[str, Entry]


class Place(Struct, frozen=True):
    """What a target takes from its provider; `gateway.providers.registry.place` makes it."""

    jurisdiction: str
    in_house: bool
    assurances: frozenset[str] = frozenset()
    """What the provider has promised."""
    target_prefix: str = ""
    """Prefix of target names here, so that a scripted target never poses as a model."""
    seals: str = ""
    """See `gateway.types.Target.seals`."""


def load_catalogue(text: str, source: str) -> Catalogue:
    """Check a catalogue text.

    Raises:
        ConfigurationInvalid: with the file, the key and the reason, for every faulty entry.
    """
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationInvalid(source, "", f"not valid TOML: {error}") from error
    except (ValueError, RecursionError) as error:
        # What the parser itself cannot take: numbers of thousands of digits, endless nesting.
        raise ConfigurationInvalid(source, "", "not valid TOML: it knows no bounds") from error
    models = tree.get("models")
    if isinstance(models, dict) and (faults := entry_faults(models, Entry)):
        raise refusal_of(source, faults)
    try:
        catalogue = msgspec.convert(tree, Catalogue)
    except msgspec.ValidationError as error:
        reason, _, where = str(error).partition(" - at `$.")
        raise ConfigurationInvalid(source, where.rstrip("`"), reason) from error
    found: list[tuple[str, str]] = []
    for name, entry in catalogue.models.items():
        try:
            _check(entry, source, f"models.{name}")
        except ConfigurationInvalid as fault:
            found.append((fault.key, fault.reason))
    if found:
        raise refusal_of(source, found)
    return catalogue


@cache
def shipped_catalogue() -> Catalogue:
    """The catalogue shipped with the package; read once, because a start asks for it often."""
    return Catalogue(MappingProxyType(dict(load_catalogue(shipped_text(), "prices.toml").models)))


def shipped_text() -> str:
    """The price file shipped with the package."""
    return resources.files("gateway.money").joinpath("prices.toml").read_text(encoding="utf-8")


def build_targets(
    settings: Mapping[str, TargetSettings],
    places: Mapping[str, Place],
    catalogue: Catalogue,
    source: str = "gatewright.toml",
) -> tuple[Target, ...]:
    """Join the configured targets with the catalogue, in the order of the configuration.

    Raises:
        ConfigurationInvalid: a provider or catalogue entry is missing, or a name claims too much.
    """
    return tuple(
        _build_target(name, setting, places, catalogue, source)
        for name, setting in settings.items()
    )


def refine_target(
    target: Target,
    digest: str,
    context_window_tokens: int = 0,
    told_capabilities: frozenset[str] = frozenset(),
) -> Target:
    """A target with what its engine reports of itself.

    These are its identity, the window if it is smaller, and abilities that only the engine knows.
    """
    window = target.context_window_tokens
    return msgspec.structs.replace(
        target,
        digest=digest,
        context_window_tokens=min(window, context_window_tokens or window),
        output_tokens_max=min(target.output_tokens_max, context_window_tokens or window),
        capabilities=target.capabilities | (told_capabilities & TOLD_BY_ENGINES),
    )


def worst_cost(
    price: Price,
    input_tokens: int,
    output_tokens_cap: int,
    *,
    writes_for_1h: bool = False,
    searches: int = 0,
) -> int:
    """The most that an answer can cost, in micro-dollars: dearest input, all output used.

    The dearest input is new to the cache, unless the prices say that reading from it costs more.
    With `writes_for_1h` it also covers callers who ask for the long-lived cache, the dearest way.
    """
    if price.long_from_tokens:
        price = price.of_length(input_tokens)
    dearest = max(
        price.input_microusd_per_mtok,
        price.cache_write_microusd_per_mtok,
        price.cache_read_microusd_per_mtok,
    )
    if writes_for_1h:
        dearest = max(dearest, price.cache_write_1h_microusd_per_mtok)
    total = input_tokens * dearest + output_tokens_cap * price.output_microusd_per_mtok
    return _rounded_up(total, _TOKENS_PER_MTOK) + searches * price.web_search_microusd


def cost(price: Price, usage: Usage, *, is_batch: bool = False) -> int:
    """The cost of an answer in micro-dollars, rounded up once.

    `usage.input_tokens` counts all input; what was read from or written to the cache (for five
    minutes or for an hour, counted separately) is priced separately, and the rest is new input.
    Searches cost the same in every tier.
    """
    if price.long_from_tokens:
        price = price_of(price, usage)
    special = usage.cache_read_tokens + usage.cache_write_tokens + usage.cache_write_1h_tokens
    total = (
        max(0, usage.input_tokens - special) * price.input_microusd_per_mtok
        + usage.cache_read_tokens * price.cache_read_microusd_per_mtok
        + usage.cache_write_tokens * price.cache_write_microusd_per_mtok
        + usage.cache_write_1h_tokens * price.cache_write_1h_microusd_per_mtok
        + usage.output_tokens * price.output_microusd_per_mtok
    )
    searches = usage.web_searches * price.web_search_microusd
    if is_batch or usage.service_tier or usage.inference_geo:
        # What served, not what was asked for; a tier or place without a price is the usual one.
        percent = price.batch_percent
        if not is_batch:
            percent = price.percent_of(usage.service_tier) or _PERCENT
        percent *= price.percent_in(usage.inference_geo) or _PERCENT
        return _rounded_up(total * percent, _TOKENS_PER_MTOK * _PERCENT * _PERCENT) + searches
    return _rounded_up(total, _TOKENS_PER_MTOK) + searches


def price_of(price: Price, usage: Usage) -> Price:
    """The cost of its tokens. For a search or a compaction the input is that of several prompts."""
    is_several = usage.web_searches or usage.compactions
    return price if is_several else price.of_length(usage.input_tokens)


def saved_by_cache(price: Price, usage: Usage) -> int:
    """Micro-dollars that an upstream's prompt cache saved; negative if writing cost more."""
    if not (usage.cache_read_tokens or usage.cache_write_tokens or usage.cache_write_1h_tokens):
        return 0
    nothing = {"cache_read_tokens": 0, "cache_write_tokens": 0, "cache_write_1h_tokens": 0}
    plain = msgspec.structs.replace(usage, **nothing)
    return cost(price, plain) - cost(price, usage)


def _build_target(
    name: str,
    setting: TargetSettings,
    places: Mapping[str, Place],
    catalogue: Catalogue,
    source: str,
) -> Target:
    key = f"targets.{name}"
    place = places.get(setting.provider)
    if place is None:
        raise ConfigurationInvalid(source, f"{key}.provider", "there is no such provider")
    if not name.startswith(place.target_prefix):
        reason = f"targets of this provider must be named {place.target_prefix}…"
        raise ConfigurationInvalid(source, key, reason)
    named = setting.catalogue or setting.model
    entry = catalogue.models.get(named)
    if entry is None:
        reason = "has no price; name an entry with `catalogue`, or write one in `prices.file`"
        reason += closest(named, catalogue.models)
        raise ConfigurationInvalid(source, f"{key}.{_named_by(setting)}", reason)
    return Target(
        name=name,
        provider=setting.provider,
        model=setting.model,
        jurisdiction=place.jurisdiction,
        in_house=place.in_house,
        tier=setting.tier or entry.tier,
        price=entry.price,
        context_window_tokens=entry.usable_window_tokens,
        output_tokens_max=entry.output_tokens_max,
        capabilities=entry.capabilities,
        vendor=entry.vendor,
        assurances=place.assurances,
        seals=place.seals,
        parameters=entry.parameters,
        leaves_out_hosted=setting.vendor_tools == "leave_out",
    )


def _named_by(setting: TargetSettings) -> str:
    return "catalogue" if setting.catalogue else "model"


def _check(entry: Entry, source: str, key: str) -> None:
    for field in msgspec.structs.fields(Entry):
        value = getattr(entry, field.name)
        if isinstance(value, int) and value < 0:
            raise ConfigurationInvalid(source, f"{key}.{field.name}", "is negative")
        if isinstance(value, int) and value > _NUMBER_MAX:
            raise ConfigurationInvalid(source, f"{key}.{field.name}", "is too large to be meant")
    for name, (least, flaw) in _LEAST.items():
        if getattr(entry, name) < least:
            raise ConfigurationInvalid(source, f"{key}.{name}", flaw)
    if entry.batch_percent > _PERCENT:
        raise ConfigurationInvalid(source, f"{key}.batch_percent", "is above 100")
    if unknown := entry.capabilities - CAPABILITIES:
        reason = f"there is no capability {min(unknown)!r}"
        raise ConfigurationInvalid(source, f"{key}.capabilities", reason)
    _check_source(source, f"{key}.", entry.source, entry.as_of)
    if not entry.parameters:
        return
    if strange := entry.parameters.keys() - set(PARAMETERS):
        reason = f"there is no parameter {min(strange)!r}"
        raise ConfigurationInvalid(source, f"{key}.parameters", reason)
    _check_source(source, f"{key}.parameters_", entry.parameters_source, entry.parameters_as_of)


def _check_source(file: str, prefix: str, source: str, as_of: str) -> None:
    if not _is_date(as_of):
        raise ConfigurationInvalid(file, f"{prefix}as_of", "is not a date like 2026-11-21")
    if not source:
        raise ConfigurationInvalid(file, f"{prefix}source", "is empty")


def _is_date(text: str) -> bool:
    try:
        return _DATE.fullmatch(text) is not None and date.fromisoformat(text) is not None
    except ValueError:
        return False


def _rounded_up(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)
