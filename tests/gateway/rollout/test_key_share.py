"""How many keys a canary's share gets is told as it is then given, key by key."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.rollout.key_share import key_share
from gateway.rollout.versions import Trial
from gateway.types import Principal
from policies.text.loading import load_document


DOCUMENT = load_document('name = "a"\nversion = 1\n')
DIGEST = DOCUMENT.digest
KEYS = st.lists(st.text("abcdefghij0123456789", min_size=12, max_size=12), max_size=40, unique=True)


def taken(keys: list[str], percent: float) -> int:
    trial = Trial("org:acme", 2, percent, DIGEST, DOCUMENT)
    who = (Principal(key, "a key", "acme", "w", "p", (), None, ()) for key in keys)
    return sum(trial.takes(each) for each in who)


@given(KEYS, st.floats(0.1, 100))
def test_what_is_told_is_what_keys_get(keys: list[str], percent: float) -> None:
    found = key_share(DIGEST, keys, percent)
    assert (found.keys, found.taken) == (len(keys), taken(keys, percent))


@given(KEYS.filter(bool))
def test_from_the_shares_that_are_named_the_first_and_the_last_are_taken(keys: list[str]) -> None:
    found = key_share(DIGEST, keys, 0.0)
    assert found.taken == 0
    assert taken(keys, found.first_percent) >= 1
    assert taken(keys, found.first_percent - 0.1) == 0
    assert taken(keys, found.all_percent) == len(keys)
    assert taken(keys, found.all_percent - 0.1) < len(keys)


def test_without_a_key_there_is_nothing_to_take() -> None:
    found = key_share(DIGEST, (), 50.0)
    assert (found.keys, found.taken, found.first_percent, found.all_percent) == (0, 0, 0.0, 0.0)
