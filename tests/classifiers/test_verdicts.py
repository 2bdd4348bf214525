"""Verdicts on messages: pure, mergeable, and honest about what was not read."""

import random

import pytest

from classifiers.extraction import extract
from classifiers.inspection import inspect
from classifiers.pii.labels import DataClass
from classifiers.pii.scanner import PATTERNS_ONLY
from classifiers.units import Unit
from classifiers.verdicts import CHUNK_LENGTH, CLEAN, counted, judge
from tests.classifiers import samples


def conversation(*texts: str) -> dict[str, object]:
    roles = ("user", "assistant")
    return {
        "model": "auto",
        "messages": [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)],
    }


def units(*texts: str) -> list[Unit]:
    return [unit for unit, _ in extract(conversation(*texts)).units()]


def test_a_longer_conversation_keeps_the_verdicts_on_its_history() -> None:
    history = ["hello there", "how can I help?", "my SSN is 078-05-1120"]
    before = units(*history)
    after = units(*history, "noted", "and my card?")
    assert after[: len(before) - 1] == before[: len(before) - 1]
    assert len(after) > len(before)


def test_verdicts_add_up_to_the_inspection_of_the_whole() -> None:
    texts = ["mail jane@corp.io", "noted", "SSN 078-05-1120 and mail bob@corp.io"]
    verdicts = [judge(unit, PATTERNS_ONLY) for unit in units(*texts)]
    whole = inspect(conversation(*texts))
    assert counted(verdicts) == whole.counts == {"EMAIL": 2, "US_SSN": 1}
    assert max(verdict.found_class for verdict in verdicts) is whole.data_class is DataClass.S3


def test_the_question_before_gives_context_to_the_answer() -> None:
    assert inspect(conversation("078051120")).counts == {}
    asked = inspect(conversation("hi", "What is your social security number?", "078051120"))
    assert asked.counts == {"US_SSN": 1}


def test_what_the_lead_says_is_not_counted_twice() -> None:
    card = samples.card(random.Random(4))
    assert inspect(conversation(f"card {card}", "thanks", "bye")).counts == {"CREDIT_CARD": 1}


def test_nothing_is_lost_where_a_long_text_is_cut() -> None:
    rng = random.Random(6)
    for shift in range(0, 40, 3):
        card = samples.card(rng)
        text = "x " * ((CHUNK_LENGTH - 600) // 2) + "y" * shift + f" card {card} " + "z " * 9000
        (finding,) = judge(Unit(text), PATTERNS_ONLY).findings
        assert text[finding.start : finding.end] == card


def test_a_value_that_a_cut_goes_through_is_found_to_its_end() -> None:
    rng = random.Random(9)
    for value in (samples.card(rng), "anna.berg@kunde.de", "GB29 NWBK 6016 1331 9268 19"):
        for cut in range(len(value) + 1):
            text = "x " * ((CHUNK_LENGTH - cut) // 2) + " " * (cut % 2) + value + " z" * 900
            (finding,) = judge(Unit(text), PATTERNS_ONLY).findings
            assert text[finding.start : finding.end] == value, cut


@pytest.mark.parametrize("before", [0, 4_000, CHUNK_LENGTH - 700, CHUNK_LENGTH - 10, 40_000])
@pytest.mark.parametrize("lines", [40, 230, 900])
def test_a_private_key_in_a_long_text_is_found_whole(before: int, lines: int) -> None:
    rng = random.Random(10)
    body = "\n".join(samples.token(rng, 64) for _ in range(lines))
    key = f"-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----"
    torn = key[: len(key) // 2]
    text = f"{'x ' * (before // 2)}\n{key}\nand {torn}\n{key}\n{key}{' z' * 9_000}"
    covered = bytearray(len(text))
    for finding in judge(Unit(text), PATTERNS_ONLY).findings:
        assert finding.label == "PRIVATE_KEY"
        covered[finding.start : finding.end] = b"\x01" * (finding.end - finding.start)
    shown = "".join(letter for letter, is_in in zip(text, covered, strict=True) if not is_in)
    assert set(shown.split()) <= {"x", "z", "and"}


def test_a_deadline_that_passes_makes_the_verdict_incomplete() -> None:
    answers = iter([False, True, True, True])
    verdict = judge(Unit("hello " * 20_000), PATTERNS_ONLY, lambda: next(answers))
    assert verdict.reasons == ("deadline",)
    late = inspect(conversation("hello"))
    assert late.reasons == ()


def test_a_clean_text_has_the_one_clean_verdict() -> None:
    assert judge(Unit("tell me about rivers"), PATTERNS_ONLY) is CLEAN


def test_a_unit_shows_no_text() -> None:
    assert "secret" not in repr(Unit("secret", "secret"))
