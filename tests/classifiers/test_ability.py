"""Abilities: few labels move a model's chances towards the truth, domain by domain."""

import random

import msgspec
import pytest

from classifiers.calibration.maps import Label
from classifiers.complexity.ability import (
    Ability,
    Labelled,
    fit_ability,
    load_ability,
    with_ability,
)
from classifiers.complexity.model import Complexity, load
from tests.classifiers.stated_chances import expected_calibration_error


MODEL = load()
PROMPTS = {
    "word_problems": "Ann has {n} apples and buys {m} bags of 4 apples. How many has she now?",
    "law": "A defendant stole {n} cars and {m} bikes. Will the court admit the testimony?",
    "code": "def count_vowels(words: list[{n}]) -> int:\n    # write a python function {m}\n",
}
STRONG_IN = {"word_problems": 0.95, "law": 0.2, "code": 0.6}


def labelled(count: int, seed: int) -> tuple[list[Labelled], list[str]]:
    """Answers of a model that is good at sums and bad at law."""
    rng = random.Random(seed)
    labels, domains = [], []
    for _ in range(count):
        domain = rng.choice(sorted(PROMPTS))
        text = PROMPTS[domain].format(n=rng.randint(2, 99), m=rng.randint(2, 99))
        labels.append(Labelled(MODEL.assess(text), rng.random() < STRONG_IN[domain]))
        domains.append(domain)
    return labels, domains


def brier(chances: list[float], labels: list[Labelled]) -> float:
    pairs = zip(chances, labels, strict=True)
    return sum((chance - one.succeeded) ** 2 for chance, one in pairs) / len(labels)


def test_two_hundred_labels_teach_what_a_new_model_is_good_at() -> None:
    ability = fit_ability(labelled(200, 1)[0], MODEL.version)
    unseen, domains = labelled(800, 2)
    before = [one.seen.weak_suffices for one in unseen]
    after = [ability.chance(one.seen) for one in unseen]
    assert brier(after, unseen) < 0.8 * brier(before, unseen)
    stated = [Label(c, one.succeeded) for c, one in zip(after, unseen, strict=True)]
    assert expected_calibration_error(stated) < 0.12
    means = {
        domain: sum(c for c, d in zip(after, domains, strict=True) if d == domain)
        / domains.count(domain)
        for domain in PROMPTS
    }
    assert means["law"] < means["code"] < means["word_problems"]


def test_without_labels_a_model_is_like_the_weak_one_of_training() -> None:
    ability = fit_ability([], MODEL.version)
    assert (ability.slope, ability.offset, ability.domains) == (1.0, 0.0, {})
    seen = MODEL.assess("What is the capital of France?")
    assert ability.chance(seen) == pytest.approx(seen.weak_suffices)


def test_a_domain_without_labels_keeps_its_chances_but_for_what_holds_everywhere() -> None:
    own = [one for one in labelled(300, 3)[0] if one.seen.domains[0][0] == "law"]
    ability = fit_ability(own, MODEL.version)
    assert ability.domains["law"] < 0
    assert "code" not in ability.domains


def test_an_ability_has_a_version_of_its_own_and_comes_back_from_its_json() -> None:
    ability = fit_ability(labelled(50, 4)[0], MODEL.version)
    assert load_ability(msgspec.json.encode(ability)) == ability
    assert ability.version.startswith(MODEL.version + "+")
    other = msgspec.structs.replace(ability, offset=ability.offset + 1)
    assert other.version != ability.version
    seen = MODEL.assess("Say hello.")
    told = with_ability(seen, ability)
    assert (told.weak_suffices, told.model_version) == (ability.chance(seen), ability.version)
    assert told.score == seen.score
    assert isinstance(told, Complexity)
    assert isinstance(ability, Ability)
