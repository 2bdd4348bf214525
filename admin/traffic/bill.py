"""Splits the cost of an answer: tokens of each kind at the price of their target. Pure."""

from msgspec import Struct

from gateway.money.catalogue import cost, price_of, saved_by_cache
from gateway.price import Price
from gateway.types import Attempt, AuditRecord, Usage


class Part(Struct, frozen=True):
    """One kind of token."""

    name: str
    tokens: int
    microusd_per_mtok: int


class Bill(Struct, frozen=True):
    """An answer's cost in parts; `is_exact` when with `others` they add up to what was recorded."""

    parts: tuple[Part, ...]
    percent: int
    """Of the tier that served, in percent of the prices above; 100 for the usual one."""
    place_percent: int
    """Likewise of the country that the answer was bound to."""
    saved_microusd: int
    as_of: str
    source: str
    is_exact: bool
    others: tuple[Attempt, ...] = ()
    searches: int = 0
    """By the vendor's own tool, at `search_microusd` each."""
    search_microusd: int = 0
    """What was paid beside the answer: attempts that failed, came too late or were not enough."""


def bill_of(record: AuditRecord, price: Price | None) -> Bill | None:
    """None where there was no answer, or the price of its target is not known here."""
    usage = record.usage
    if usage is None or price is None or not record.cost_microusd:
        return None
    percent = price.percent_of(usage.service_tier) or 100
    each = price_of(price, usage)
    others = _beside(record)
    of_answer = record.cost_microusd - sum(each.cost_microusd for each in others)
    return Bill(
        tuple(part for part in _parts(usage, each) if part.tokens),
        percent,
        price.percent_in(usage.inference_geo) or 100,
        saved_by_cache(price, usage),
        price.as_of,
        price.source,
        is_exact=price.as_of == record.price_as_of and cost(price, usage) == of_answer,
        others=others,
        searches=usage.web_searches,
        search_microusd=price.web_search_microusd,
    )


def _beside(record: AuditRecord) -> tuple[Attempt, ...]:
    """Paid attempts that gave no answer; nothing where attempts do not say what they cost."""
    paid = [each for each in record.attempts if each.cost_microusd]
    if sum(each.cost_microusd for each in paid) != record.cost_microusd:
        return ()
    # The tokens of an outcome are those of its target's last attempt, whole or broken off.
    own = [place for place, each in enumerate(paid) if each.target == record.target]
    return tuple(each for place, each in enumerate(paid) if place not in own[-1:])


def _parts(usage: Usage, price: Price) -> tuple[Part, ...]:
    apart = usage.cache_read_tokens + usage.cache_write_tokens + usage.cache_write_1h_tokens
    new = max(0, usage.input_tokens - apart)
    hour = price.cache_write_1h_microusd_per_mtok
    return (
        Part("New input", new, price.input_microusd_per_mtok),
        Part("Input from the cache", usage.cache_read_tokens, price.cache_read_microusd_per_mtok),
        Part("Written to the cache", usage.cache_write_tokens, price.cache_write_microusd_per_mtok),
        Part("Written for an hour", usage.cache_write_1h_tokens, hour),
        Part("Output", usage.output_tokens, price.output_microusd_per_mtok),
    )
