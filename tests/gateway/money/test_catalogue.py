"""Prices and limits: exact money, checked files, and targets that join both."""

import re
from datetime import date
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from gateway.configuration.settings import TargetSettings
from gateway.errors import ConfigurationInvalid
from gateway.money.catalogue import (
    CAPABILITIES,
    PARAMETERS,
    Entry,
    Place,
    build_targets,
    cost,
    load_catalogue,
    refine_target,
    saved_by_cache,
    shipped_catalogue,
    worst_cost,
)
from gateway.price import Price
from gateway.types import Usage


SONNET = Price(2_000_000, 10_000_000, 100_000, 2_500_000, 4_000_000, 50, "test", "2026-11-21")
GOOD = """
[models.m]
vendor = "v"
tier = "cheap"
input_microusd_per_mtok = 1
output_microusd_per_mtok = 2
cache_read_microusd_per_mtok = 3
cache_write_microusd_per_mtok = 4
cache_write_1h_microusd_per_mtok = 5
batch_percent = 50
context_window_tokens = 100
output_tokens_max = 10
capabilities = ["streaming"]
source = "somewhere"
as_of = "2026-11-21"
"""

tokens = st.integers(min_value=0, max_value=2_000_000)
rates = st.integers(min_value=0, max_value=200_000_000)
prices = st.builds(
    Price,
    input_microusd_per_mtok=rates,
    output_microusd_per_mtok=rates,
    cache_read_microusd_per_mtok=rates,
    cache_write_microusd_per_mtok=rates,
    cache_write_1h_microusd_per_mtok=rates,
    batch_percent=st.integers(min_value=0, max_value=100),
    priority_percent=st.integers(min_value=0, max_value=300),
    flex_percent=st.integers(min_value=0, max_value=100),
    source=st.just("test"),
    as_of=st.just("2026-11-21"),
)


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    """Usage as upstreams send it: the cached parts are parts of the input."""
    read, write, write_1h, rest, output = (draw(tokens) for _ in range(5))
    return Usage(read + write + write_1h + rest, output, read, write, write_1h)


def plus(a: Usage, b: Usage) -> Usage:
    return Usage(
        a.input_tokens + b.input_tokens,
        a.output_tokens + b.output_tokens,
        a.cache_read_tokens + b.cache_read_tokens,
        a.cache_write_tokens + b.cache_write_tokens,
        a.cache_write_1h_tokens + b.cache_write_1h_tokens,
    )


def test_an_answer_costs_the_sum_of_its_parts() -> None:
    usage = Usage(
        input_tokens=1_000_000,
        output_tokens=100_000,
        cache_read_tokens=500_000,
        cache_write_tokens=200_000,
        cache_write_1h_tokens=100_000,
    )
    # 0.2 M new at $2, 0.5 M read at $0.10, 0.2 M written at $2.50, 0.1 M for an hour at $4,
    # 0.1 M out at $10.
    assert cost(SONNET, usage) == 400_000 + 50_000 + 500_000 + 400_000 + 1_000_000
    assert cost(SONNET, usage, is_batch=True) == 2_350_000 // 2


long_prices = st.builds(
    structs.replace,
    prices,
    long_from_tokens=tokens,
    long_input_percent=st.integers(100, 600),
    long_output_percent=st.integers(100, 600),
)


def test_a_request_that_turns_out_to_be_long_costs_what_long_ones_do_all_of_it() -> None:
    """It was let through because it was estimated to be shorter; it was charged too little."""
    price = structs.replace(
        SONNET, long_from_tokens=272_000, long_input_percent=200, long_output_percent=150
    )
    at_it, beyond = Usage(272_000, 1_000, 72_000), Usage(272_001, 1_000, 72_000)

    assert cost(price, at_it) == cost(SONNET, at_it) == 400_000 + 7_200 + 10_000
    assert cost(price, beyond) == 800_004 + 14_400 + 15_000
    assert cost(price, beyond, is_batch=True) == (800_004 + 14_400 + 15_000) // 2
    assert saved_by_cache(price, beyond) == 72_000 * 2 * 19 // 10
    # A vendor that searched has read several prompts, each shorter than their sum.
    searched = structs.replace(beyond, web_searches=1)
    assert cost(price, searched) == cost(SONNET, beyond)


@given(long_prices, usages(), usages())
def test_a_longer_request_never_costs_less(price: Price, a: Usage, more: Usage) -> None:
    assert cost(price, plus(a, more)) >= cost(price, a)


@given(long_prices, usages(), tokens, tokens)
def test_the_worst_cost_covers_a_request_that_may_be_long(
    price: Price, usage: Usage, more_input: int, more_output: int
) -> None:
    most = (usage.input_tokens + more_input, usage.output_tokens + more_output)
    assert worst_cost(price, *most, writes_for_1h=True) >= cost(price, usage)


def test_the_smallest_part_of_a_microdollar_is_rounded_up() -> None:
    assert cost(SONNET, Usage(output_tokens=0)) == 0
    price = Price(1, 1, 1, 1, 1, 50, "test", "2026-11-21")
    assert cost(price, Usage(input_tokens=1)) == 1


def test_usage_that_contradicts_itself_never_costs_less_than_its_parts() -> None:
    assert cost(SONNET, Usage(input_tokens=1, cache_read_tokens=1_000_000)) == 100_000


@given(prices, usages(), usages())
def test_cost_is_additive_up_to_one_rounding(price: Price, a: Usage, b: Usage) -> None:
    whole, parts = cost(price, plus(a, b)), cost(price, a) + cost(price, b)
    assert whole <= parts <= whole + 1


@given(prices, usages(), usages())
def test_more_usage_never_costs_less(price: Price, a: Usage, more: Usage) -> None:
    assert cost(price, plus(a, more)) >= cost(price, a)


@given(
    prices,
    usages(),
    st.sampled_from(["", "default", "standard", "priority", "flex", "batch", "unheard of"]),
)
def test_cost_is_the_exact_amount_rounded_up(price: Price, usage: Usage, tier: str) -> None:
    new = (
        usage.input_tokens
        - usage.cache_read_tokens
        - usage.cache_write_tokens
        - usage.cache_write_1h_tokens
    )
    exact = Fraction(
        new * price.input_microusd_per_mtok
        + usage.cache_read_tokens * price.cache_read_microusd_per_mtok
        + usage.cache_write_tokens * price.cache_write_microusd_per_mtok
        + usage.cache_write_1h_tokens * price.cache_write_1h_microusd_per_mtok
        + usage.output_tokens * price.output_microusd_per_mtok,
        1_000_000,
    )
    assert 0 <= cost(price, usage) - exact < 1
    assert 0 <= cost(price, usage, is_batch=True) - exact * price.batch_percent / 100 < 1
    priced = {
        "priority": price.priority_percent,
        "flex": price.flex_percent,
        "batch": price.batch_percent,
    }
    percent = priced.get(tier) or 100  # a tier without a price of its own is the standard one
    served = structs.replace(usage, service_tier=tier)
    assert 0 <= cost(price, served) - exact * percent / 100 < 1
    assert cost(price, served, is_batch=True) == cost(price, usage, is_batch=True)


@pytest.mark.parametrize(
    ("place", "percent"), [("", 100), ("global", 100), ("us", 110), ("other", 110), ("eu", 100)]
)
def test_a_token_costs_what_it_does_in_the_country_that_an_answer_was_bound_to(
    place: str, percent: int
) -> None:
    price = structs.replace(SONNET, us_percent=110, priority_percent=200, web_search_microusd=7)
    usage = Usage(30_000, 1000, 10_000, 5000, 2000, web_searches=3)
    there = structs.replace(usage, inference_geo=place)
    searched = 3 * 7
    plain = cost(price, usage) - searched

    assert cost(price, there) == plain * percent // 100 + searched
    assert cost(price, there, is_batch=True) == plain * percent // 200 + searched
    faster = structs.replace(there, service_tier="priority")
    assert cost(price, faster) == 2 * plain * percent // 100 + searched
    assert cost(structs.replace(price, us_percent=0), there) == plain + searched
    in_batch = structs.replace(there, service_tier="batch")
    assert cost(price, in_batch) == cost(price, there, is_batch=True)


def test_a_price_is_all_that_an_entry_says_of_it() -> None:
    entry = load_catalogue(GOOD, "good.toml").models["m"]
    names = {name: name for name in Price.__struct_fields__}
    names["long_from_tokens"] = "priced_up_to_tokens"
    said: dict[str, int | str | bool] = {of: number for number, of in enumerate(names.values(), 2)}
    said |= {"source": "a page", "as_of": "2026-11-22", "unbilled_tools": True}
    price = structs.replace(entry, **said).price
    assert {of: getattr(price, name) for name, of in names.items()} == said


@given(prices, usages(), tokens, tokens)
def test_the_worst_cost_covers_every_usage_within_its_bounds(
    price: Price, usage: Usage, more_input: int, more_output: int
) -> None:
    input_tokens = usage.input_tokens + more_input
    output_cap = usage.output_tokens + more_output
    dearest = max(price.input_microusd_per_mtok, price.cache_write_microusd_per_mtok)
    assert worst_cost(price, input_tokens, output_cap, writes_for_1h=True) >= cost(price, usage)
    if usage.cache_write_1h_tokens == 0 or price.cache_write_1h_microusd_per_mtok <= dearest:
        assert worst_cost(price, input_tokens, output_cap) >= cost(price, usage)


def test_the_shipped_catalogue_is_complete_and_dated() -> None:
    models = shipped_catalogue().models
    assert {"claude-opus-5-5", "claude-sonnet-5-5", "gpt-6.2-sol", "gpt-6-luna"} <= set(models)
    assert {"in-house", "scripted"} <= set(models)
    for entry in models.values():
        assert date.fromisoformat(entry.as_of) <= date(2026, 11, 21)
        is_managed = entry.vendor != "in-house"
        assert entry.source.startswith("https://") == is_managed
        assert entry.output_tokens_max <= entry.context_window_tokens
        is_long_dearer = entry.long_input_percent > 100 or entry.long_output_percent > 100
        assert not is_long_dearer or entry.priced_up_to_tokens
        assert ("streaming" in entry.capabilities) != ("embeddings" in entry.capabilities)
        assert entry.capabilities <= CAPABILITIES
        makes_vectors = "embeddings" in entry.capabilities
        assert (entry.price.output_microusd_per_mtok > 0) or not is_managed or makes_vectors


def test_the_shipped_catalogue_says_of_every_parameter_whether_it_is_taken_or_unknown() -> None:
    for name, entry in shipped_catalogue().models.items():
        if "embeddings" in entry.capabilities:
            continue
        assert set(entry.parameters) == set(PARAMETERS), name
        assert entry.parameters_source, name
        assert date.fromisoformat(entry.parameters_as_of) <= date(2026, 11, 30), name


def test_in_the_shipped_catalogue_reading_is_cheapest_and_keeping_longest_dearest() -> None:
    for entry in shipped_catalogue().models.values():
        price = entry.price
        assert price.cache_read_microusd_per_mtok <= price.input_microusd_per_mtok
        assert price.input_microusd_per_mtok <= price.cache_write_microusd_per_mtok
        assert price.cache_write_microusd_per_mtok <= price.cache_write_1h_microusd_per_mtok


def test_all_three_tiers_are_on_offer_from_both_vendors() -> None:
    offers = {(entry.vendor, entry.tier) for entry in shipped_catalogue().models.values()}
    for vendor in ("anthropic", "openai"):
        assert {(vendor, tier) for tier in ("cheap", "mid", "frontier")} <= offers


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("[models.m]", "[models.m", ""),
        ('tier = "cheap"', 'tier = "best"', "models.m.tier"),
        ("input_microusd_per_mtok = 1\n", "", "models.m"),
        ("input_microusd_per_mtok = 1", "input_microusd_per_mtok = 1.5", "models.m.input"),
        ("output_microusd_per_mtok = 2", "output_microusd_per_mtok = -2", "models.m.output"),
        ("batch_percent = 50", "batch_percent = 101", "models.m.batch_percent"),
        ("output_tokens_max = 10", "output_tokens_max = 0", "models.m.output_tokens_max"),
        ('["streaming"]', '["flying"]', "models.m.capabilities"),
        ('as_of = "2026-11-21"', 'as_of = "yesterday"', "models.m.as_of"),
        ('as_of = "2026-11-21"', 'as_of = "2026-11-31"', "models.m.as_of"),
        ('source = "somewhere"', 'source = ""', "models.m.source"),
        ('vendor = "v"', 'vendor = "v"\nparameters = { speed = "yes" }', "models.m.parameters"),
        ('vendor = "v"', 'vendor = "v"\nparameters = { n = "some" }', "models.m.parameters"),
        ('vendor = "v"', 'vendor = "v"\nparameters = { n = "no" }', "models.m.parameters_as_of"),
        (
            'vendor = "v"',
            'vendor = "v"\nparameters = { n = "no" }\nparameters_as_of = "2026-11-22"',
            "models.m.parameters_source",
        ),
        ('vendor = "v"', 'vendor = "v"\nsecret = "x"', "models.m"),
    ],
)
def test_a_broken_catalogue_names_the_file_the_key_and_the_reason(
    old: str, new: str, key: str
) -> None:
    with pytest.raises(ConfigurationInvalid) as caught:
        load_catalogue(GOOD.replace(old, new), "my-prices.toml")
    assert caught.value.source == "my-prices.toml"
    assert caught.value.key.startswith(key)
    assert caught.value.reason


def test_all_that_entries_lack_is_said_at_once() -> None:
    bare = '[models.one]\nvendor = "v"\n[models.two]\ntier = "cheap"\n'
    wrong = GOOD.replace('tier = "cheap"', 'tier = "best"').replace("models.m", "models.three")
    with pytest.raises(ConfigurationInvalid) as caught:
        load_catalogue(bare + wrong + GOOD, "my-prices.toml")
    first, second, third = caught.value.message.split("\n")
    needed = [each.name for each in structs.fields(Entry) if each.required]
    for line, key, known in ((first, "models.one", "vendor"), (second, "models.two", "tier")):
        lacking = [f"`{name}`" for name in needed if name != known]
        assert line == f"my-prices.toml: {key}: missing required fields {', '.join(lacking)}"
    assert third.startswith("my-prices.toml: models.three.tier: Invalid enum value 'best'")


def test_of_very_many_wrong_entries_the_rest_are_counted() -> None:
    zero = GOOD.replace("window_tokens = 100", "window_tokens = 0")
    text = "".join(zero.replace("models.m", f"models.m{number}") for number in range(25))
    with pytest.raises(ConfigurationInvalid) as caught:
        load_catalogue(text, "my-prices.toml")
    lines = caught.value.message.split("\n")
    assert lines[0] == "my-prices.toml: models.m0.context_window_tokens: is zero"
    assert lines[19] == "my-prices.toml: models.m19.context_window_tokens: is zero"
    assert lines[20:] == ["my-prices.toml: and 5 more entries"]


BEYOND = 10**12 + 1
TAKEN = 'parameters_source = "somewhere"\nparameters_as_of = "2026-11-22"\nvendor = "v"\n'


@pytest.mark.parametrize(
    ("old", "new", "key", "reason"),
    [
        ("microusd_per_mtok = 1\n", f"microusd_per_mtok = {BEYOND}\n", "input", "too large"),
        ("output_tokens_max = 10", f"output_tokens_max = {BEYOND}", "output_tokens", "too large"),
        ("window_tokens = 100", "window_tokens = 0", "context_window_tokens", "is zero"),
        ('vendor = "v"', 'vendor = "v"\nlong_input_percent = 99', "long_input", "below 100"),
        ('vendor = "v"\n', TAKEN + 'parameters = { speed = "yes" }\n', "parameters", "'speed'"),
    ],
)
def test_a_number_or_a_parameter_that_cannot_be_meant_is_named(
    old: str, new: str, key: str, reason: str
) -> None:
    with pytest.raises(ConfigurationInvalid) as caught:
        load_catalogue(GOOD.replace(old, new), "my-prices.toml")

    assert caught.value.key.startswith(f"models.m.{key}")
    assert reason in caught.value.reason


def test_the_largest_number_that_is_believed_and_what_is_taken_are_kept() -> None:
    text = GOOD.replace("microusd_per_mtok = 1\n", f"microusd_per_mtok = {BEYOND - 1}\n")
    known = TAKEN + 'parameters = { n = "yes" }\n'
    entry = load_catalogue(text.replace('vendor = "v"\n', known), "my-prices.toml").models["m"]

    assert entry.price.input_microusd_per_mtok == 10**12
    assert entry.parameters == {"n": "yes"}


def test_the_entry_that_the_manual_shows_is_a_whole_one() -> None:
    page = Path(__file__).parents[3].joinpath("docs", "operations", "prices.md")
    (shown,) = re.findall(r"```text\n(\[models.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    entry = load_catalogue(shown, "my-prices.toml").models["acme-large"]

    assert entry.price.input_microusd_per_mtok == 3_000_000
    lines = shown.replace(" ", "").splitlines()
    for needed in [each.name for each in structs.fields(Entry) if each.required]:
        assert any(line.startswith(f"{needed}=") for line in lines), needed


def test_what_an_entry_does_not_say_has_no_price_and_is_not_free() -> None:
    price = load_catalogue(GOOD, "my-prices.toml").models["m"].price
    percents = price.priority_percent, price.flex_percent, price.us_percent

    assert percents == (0, 0, 0)
    assert (price.web_search_microusd, price.unbilled_tools) == (0, False)


@pytest.mark.parametrize("text", ["models = 5", "models = ['m']", ""])
def test_a_catalogue_whose_models_are_no_table_is_refused_like_any_other_that_is_none(
    text: str,
) -> None:
    with pytest.raises(ConfigurationInvalid):
        load_catalogue(text, "my-prices.toml")


@pytest.mark.parametrize("text", ["a = " + "9" * 5000, "a = " + "[" * 100_000])
def test_a_catalogue_without_bounds_is_refused_like_any_other_that_is_none(text: str) -> None:
    with pytest.raises(ConfigurationInvalid, match="not valid TOML"):
        load_catalogue(text, "my-prices.toml")


def test_searches_cost_the_same_in_every_tier_and_are_reserved_beside_the_tokens() -> None:
    price = structs.replace(SONNET, web_search_microusd=10_000)
    plain = Usage(input_tokens=1_000_000, output_tokens=100_000)
    searched = structs.replace(plain, web_searches=3)

    assert cost(SONNET, searched) == cost(SONNET, plain) == cost(price, plain)
    assert cost(price, searched) == cost(price, plain) + 30_000
    assert cost(price, searched, is_batch=True) == cost(price, plain, is_batch=True) + 30_000
    cached = structs.replace(searched, cache_read_tokens=1000)
    assert saved_by_cache(price, cached) == saved_by_cache(
        price, structs.replace(cached, web_searches=0)
    )
    least = worst_cost(price, 1000, 10)
    assert worst_cost(price, 1000, 10, searches=3) == least + 30_000


def test_what_a_cache_saves_is_what_the_same_tokens_would_have_cost_without_it() -> None:
    read = Usage(input_tokens=1_000_000, output_tokens=7, cache_read_tokens=1_000_000)
    kept = Usage(input_tokens=1_000_000, cache_write_1h_tokens=1_000_000)

    assert saved_by_cache(SONNET, read) == 2_000_000 - 100_000
    assert saved_by_cache(SONNET, kept) == 2_000_000 - 4_000_000
    briefly = Usage(input_tokens=1_000_000, cache_write_tokens=1_000_000)
    assert saved_by_cache(SONNET, briefly) == 2_000_000 - 2_500_000
    assert saved_by_cache(SONNET, Usage(input_tokens=1_000_000, output_tokens=7)) == 0


PLACES = {
    "cloud": Place("us", in_house=False),
    "home": Place("de", in_house=True),
    "script": Place("de", in_house=False, target_prefix="scripted/"),
}


def test_targets_join_configuration_and_catalogue_in_order() -> None:
    settings = {
        "fast": TargetSettings(provider="cloud", model="claude-haiku-5-5"),
        "own": TargetSettings(
            provider="home",
            model="demo",
            tier="mid",
            catalogue="in-house",
            vendor_tools="leave_out",
        ),
        "scripted/a": TargetSettings(provider="script", model="x", catalogue="scripted"),
    }
    fast, own, scripted = build_targets(settings, PLACES, shipped_catalogue())
    assert (fast.name, fast.provider, fast.model) == ("fast", "cloud", "claude-haiku-5-5")
    assert (fast.jurisdiction, fast.in_house, fast.tier) == ("us", False, "cheap")
    assert fast.context_window_tokens == 100_000, "beyond that the stated price does not hold"
    assert fast.price.input_microusd_per_mtok == 100_000
    assert (own.jurisdiction, own.in_house, own.tier, own.model) == ("de", True, "mid", "demo")
    assert scripted.name == "scripted/a"
    assert [fast.leaves_out_hosted, own.leaves_out_hosted] == [False, True]


@pytest.mark.parametrize(
    ("name", "setting", "key"),
    [
        ("t", TargetSettings(provider="nobody", model="gpt-6-luna"), "targets.t.provider"),
        ("t", TargetSettings(provider="cloud", model="gpt-99"), "targets.t.model"),
        ("t", TargetSettings(provider="cloud", model="x", catalogue="y"), "targets.t.catalogue"),
        ("gpt-6", TargetSettings(provider="script", model="scripted"), "targets.gpt-6"),
    ],
)
def test_a_target_that_cannot_be_joined_is_refused(
    name: str, setting: TargetSettings, key: str
) -> None:
    with pytest.raises(ConfigurationInvalid) as caught:
        build_targets({name: setting}, PLACES, shipped_catalogue())
    assert (caught.value.source, caught.value.key) == ("gatewright.toml", key)
    without_price = key in ("targets.t.model", "targets.t.catalogue")
    assert ("`prices.file`" in caught.value.reason) == without_price


def test_a_mistyped_entry_of_prices_is_told_which_was_meant() -> None:
    setting = TargetSettings(provider="home", model="demo", catalogue="in-hose")
    with pytest.raises(ConfigurationInvalid, match="did you mean `in-house`"):
        build_targets({"own": setting}, PLACES, shipped_catalogue())


def test_an_engines_own_word_sets_the_digest_and_only_narrows_the_window() -> None:
    setting = TargetSettings(provider="home", model="demo", catalogue="in-house")
    (target,) = build_targets({"own": setting}, PLACES, shipped_catalogue())
    small = refine_target(target, "abc", 512)
    assert (small.digest, small.context_window_tokens, small.output_tokens_max) == ("abc", 512, 512)
    large = refine_target(target, "abc", 10_000_000)
    assert large.context_window_tokens == target.context_window_tokens
    assert "tools" not in target.capabilities
    told = refine_target(target, "abc", 0, frozenset({"tools", "embeddings", "flying"}))
    assert told.capabilities == target.capabilities | {"tools"}
    silent = refine_target(target, "abc")
    assert silent.context_window_tokens == target.context_window_tokens
