"""A secret shows its value to nobody who does not ask for it by name."""

import copy
import pickle
import traceback

import pytest

from gateway.secrets.secret import REDACTED, Secret


SECRETS = [Secret("canary-value"), Secret(b"canary-value")]


@pytest.mark.parametrize("secret", SECRETS)
def test_no_way_of_printing_shows_it(secret: Secret[str]) -> None:
    shown = [
        repr(secret),
        str(secret),
        f"{secret}",
        f"{secret!r:>40}",
        f"{secret!s}",
        repr([secret]),
    ]
    assert all("canary" not in text for text in shown)
    assert repr(secret) == REDACTED


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("take", [pickle.dumps, copy.copy, copy.deepcopy])
def test_it_is_neither_pickled_nor_copied(secret: Secret[str], take: object) -> None:
    assert callable(take)
    with pytest.raises(TypeError) as caught:
        take(secret)
    assert "canary" not in "".join(traceback.format_exception(caught.value))


def test_it_has_no_dictionary_and_no_hash_that_would_tell_of_it() -> None:
    secret = Secret("canary-value")
    assert not hasattr(secret, "__dict__")
    with pytest.raises(TypeError):
        hash(secret)


def test_it_is_revealed_compared_and_tested_for_emptiness() -> None:
    assert Secret("a").reveal() == "a"
    assert Secret("ä") == Secret("ä")
    assert Secret("\ud800") == Secret("\ud800") != Secret("\ud801")
    assert Secret("a") == Secret(b"a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert not Secret("")
