"""What is home: by kinds of providers, and by labels as far as these tell."""

import pytest

from gateway.configuration.settings import ProviderSettings
from gateway.oversight.homes import BY_LABEL, homes_of


PROVIDERS = {
    "engine": ProviderSettings("engine", "de"),
    "pool": ProviderSettings("pool", "lab"),
    "vendor": ProviderSettings("openai", "de"),
    "nearby": ProviderSettings("openai_compatible", "in-house"),
    "far": ProviderSettings("anthropic", "us"),
}


@pytest.mark.parametrize(
    ("jurisdiction", "provider", "expected"),
    [
        ("de", "engine", "in-house"),
        ("lab", "pool", "in-house"),
        ("de", "vendor", "managed"),
        ("in-house", "nearby", "managed"),
        ("us", "far", "managed"),
        # Gone, or labelled otherwise meanwhile.
        ("lab", "an-older-one", "in-house"),
        ("de", "an-older-one", "managed"),
        ("in-house", "an-older-one", "managed"),
        ("fr", "engine", "managed"),
        ("", "", ""),
    ],
)
def test_a_record_is_home_by_its_label_or_where_that_is_shared_by_its_provider(
    jurisdiction: str, provider: str, expected: str
) -> None:
    homes = homes_of(PROVIDERS)
    assert homes.place_of(jurisdiction, provider) == expected
    assert homes.route_of("ok", jurisdiction, provider) == expected
    assert homes.route_of("refused", jurisdiction, provider) == "refused"


def test_the_label_in_house_is_home_where_no_managed_api_has_it() -> None:
    engine = {"engine": PROVIDERS["engine"]}
    for homes in (BY_LABEL, homes_of({}), homes_of(engine)):
        assert homes.place_of("in-house", "an-older-one") == "in-house"
        assert homes.place_of("us", "far") == "managed"
    assert homes_of(engine).place_of("de", "engine") == "in-house"
