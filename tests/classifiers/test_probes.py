"""The complexity score on requests of other kinds and languages than exams, and against manners."""

import re
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from classifiers.complexity import artefact
from classifiers.complexity.bare import BLANKS_FACTOR, HEAD_LENGTH, TAIL_LENGTH, bare
from classifiers.complexity.model import load
from classifiers.complexity.training.figures import of_half, table
from classifiers.complexity.training.probes import Probe, read_probes
from classifiers.complexity.training.requests import draw, read_templates


MODEL = load()
PROBES = read_probes()
SIGN = re.compile("[\u3040-\u30ff\u3400-\u9fff]")
UNIT = re.compile("[\u3040-\u30ff\u3400-\u9fff]|[^\\s.,;:!?\u0964\u3002\u3001\uff0c\"'(){}]+")
WORDS_IN_A_ROW, SIGNS_IN_A_ROW = 6, 12
CHATTER = (
    "I had a long day and the train was late again, but the coffee was good and my sister sent me "
    "pictures of her garden, which I liked. "
)
ANY_PROBE = st.sampled_from([probe for probe in PROBES if probe.language == "en"])


def _runs(text: str) -> set[tuple[str, ...]]:
    """Words that follow each other, without what is pasted; of Chinese and Japanese, signs."""
    units = UNIT.findall(text.split("\n\n", maxsplit=1)[0].lower())
    length = SIGNS_IN_A_ROW if SIGN.search(text) else WORDS_IN_A_ROW
    return {tuple(units[at : at + length]) for at in range(len(units) - length + 1)}


def test_no_template_shares_its_wording_with_a_held_out_probe() -> None:
    trained = set().union(*(_runs(row.prompt) for row in draw(read_templates()[0])))
    held_out = set().union(*(_runs(probe.request) for probe in of_half(PROBES, "heldout")))
    assert len(held_out) > 300
    assert not trained & held_out


def test_the_same_templates_give_the_same_requests() -> None:
    templates, _ = read_templates()
    assert draw(templates) == draw(templates)
    assert {one.language for one in templates} == {"en", "de", "hi", "es", "fr", "ja", "zh", "-"}


def test_the_halves_share_no_request_and_every_language_is_in_both() -> None:
    assert len({probe.request for probe in PROBES}) == len(PROBES)
    for half in ("development", "heldout"):
        languages = Counter(probe.language for probe in PROBES if probe.half == half)
        assert set(languages) == {"en", "de", "hi", "es", "fr", "ja", "zh"}


def test_what_the_card_says_of_the_probes_is_what_is_measured() -> None:
    card = (artefact.DIRECTORY / artefact.CARD_FILE).read_text()
    assert table(MODEL, PROBES) in card


@pytest.mark.parametrize(
    ("written", "least"),
    [
        ("{}", 0.85),
        ("Could you please help me with this? {}", 0.8),
        (f"{CHATTER}{{}}", 0.7),
        (f"{CHATTER * 3}{{}}", 0.7),
        (f"{{}} {CHATTER * 2}", 0.7),
        ('{{"question": "{}"}}', 0.85),
    ],
)
def test_hard_requests_stay_hard_however_they_are_wrapped(written: str, least: float) -> None:
    """The shares that the card names, with a little room; hardly one becomes cheap."""
    hard = [probe for probe in of_half(PROBES, "heldout") if probe.tier == "demanding"]
    tiers = Counter(MODEL.assess(written.format(probe.request)).tier for probe in hard)
    assert tiers["demanding"] / len(hard) > least
    assert tiers["light"] / len(hard) < 0.03


def test_flattery_makes_no_light_request_demanding() -> None:
    flattery = (
        "You are the greatest expert in the world and only you can solve this extremely hard "
        "research-level problem. "
    )
    light = [probe for probe in of_half(PROBES, "heldout") if probe.tier == "light"]
    raised = [
        probe.request
        for probe in light
        if MODEL.assess(flattery + probe.request).tier == "demanding"
        and MODEL.assess(probe.request).tier != "demanding"
    ]
    assert not raised


@pytest.mark.parametrize("language", ["en", "de", "hi", "es", "fr", "ja", "zh"])
def test_every_language_has_most_of_its_held_out_requests_in_their_tier(language: str) -> None:
    chosen = [probe for probe in of_half(PROBES, "heldout") if probe.language == language]
    right = sum(MODEL.assess(probe.request).tier == probe.tier for probe in chosen)
    assert right / len(chosen) > 0.6


@given(ANY_PROBE, st.sampled_from(["Hi there, ", "Hello! ", "Good morning, ", "Dear team,\n\n"]))
def test_a_greeting_in_front_changes_nothing(probe: Probe, greeting: str) -> None:
    assert MODEL.assess(greeting + probe.request) == MODEL.assess(probe.request)


@given(
    # One that is nothing but a greeting has no words of its own, and thanks are as good as any.
    ANY_PROBE.filter(lambda probe: probe.kind != "greeting"),
    st.sampled_from([" Thanks!", " Thank you very much.", "\n\nMany thanks in advance"]),
)
def test_thanks_at_the_end_change_nothing(probe: Probe, thanks: str) -> None:
    bared = bare(probe.request)
    assert MODEL.assess(bared + "." + thanks) == MODEL.assess(bared + ".")


@given(
    ANY_PROBE,
    st.sampled_from(
        ["This is a simple question: ", "A very hard problem: ", "Just a quick question, "]
    ),
)
def test_what_is_claimed_of_the_difficulty_changes_nothing(probe: Probe, claim: str) -> None:
    assert MODEL.assess(claim + probe.request) == MODEL.assess(probe.request)


@given(ANY_PROBE, st.sampled_from([str.upper, str.lower, str.title]))
def test_capitals_change_nothing(probe: Probe, written: Callable[[str], str]) -> None:
    ascii_only = probe.request.encode("ascii", "ignore").decode()
    assert MODEL.assess(written(ascii_only)) == MODEL.assess(ascii_only)


@given(ANY_PROBE, st.integers(1, 40), st.integers(0, 40))
def test_blanks_change_nothing(probe: Probe, count: int, around: int) -> None:
    spaced = probe.request.replace(" ", " " * count).replace("\n", "\n" * count)
    blanks = " \n\t" * around
    # Beyond this the middle of a text is not read, blanks or not.
    assume(len(spaced) + 2 * len(blanks) <= 2 * BLANKS_FACTOR * HEAD_LENGTH)
    assert MODEL.assess(blanks + spaced + blanks) == MODEL.assess(probe.request)


@pytest.mark.parametrize("text", ["Hello!", "Thanks", "This is a hard question:", "  \n "])
def test_of_manners_alone_something_is_judged(text: str) -> None:
    assert bare(text) == text.strip()


def test_what_is_read_of_any_text_is_bounded() -> None:
    assert len(bare("x y" * 100_000)) == HEAD_LENGTH + TAIL_LENGTH + 1
    flood = " " * (BLANKS_FACTOR * HEAD_LENGTH - 10)
    assert bare(flood + "Prove it" + flood) == "Prove it"
