"""Which accounts are an organisation's: by their names, and of keys by who has them."""

import pytest

from admin.costs.accounts import is_of, path_of


KEYS = {"0123456789ab"}
OWN = {
    "org:acme": (),
    "ws:acme/research": ("research",),
    "proj:acme/research/bot": ("research", "bot"),
    "user:acme/*": None,
    "user:acme/0f3e": None,
    "key:0123456789ab": None,
}


@pytest.mark.parametrize("account", OWN)
def test_an_account_below_an_organisation_is_its_own(account: str) -> None:
    assert is_of(account, "acme", KEYS)
    assert path_of(account, "acme") == OWN[account]
    assert not is_of(account, "umbrella", ())
    assert path_of(account, "umbrella") is None


@pytest.mark.parametrize(
    "account",
    [
        *("org:umbrella", "ws:umbrella/research", "proj:umbrella/research/bot", "user:umbrella/*"),
        *("org:acme2", "org:acm", "ws:acme2/research", "org:acme/research", "ws:acme", "ws:acme/"),
        *(
            "key:ba9876543210",
            "key:",
            "key:acme",
            "xorg:acme",
            "org:acme ",
            "ws:acme/A",
            "ws:acme/ü",
        ),
        *("", "acme", ":acme", "ws:acme/a\n", "org:acme\n", "org:acme|ws:acme/a"),
    ],
)
def test_what_is_anothers_or_no_account_is_not(account: str) -> None:
    assert not is_of(account, "acme", KEYS)


def test_a_name_with_a_dot_is_no_pattern() -> None:
    assert is_of("org:a.me", "a.me", ())
    assert not is_of("org:acme", "a.me", ())


@pytest.mark.parametrize(
    "account", ["ws:acme", "proj:acme/a", "org:acme/a", "ws:acme/a/b", "proj:acme/a/b/c", "x:acme"]
)
def test_a_place_has_as_many_names_as_its_level(account: str) -> None:
    assert path_of(account, "acme") is None
