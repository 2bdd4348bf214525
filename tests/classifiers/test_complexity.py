"""The complexity score: bounded, deterministic, explained, and only from a checked artefact."""

import hashlib
import math
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from classifiers.complexity.artefact import (
    CARD_FILE,
    DIGEST_FILE,
    DIRECTORY,
    MODEL_FILE,
    ArtefactError,
    read,
)
from classifiers.complexity.bare import HEAD_LENGTH, TAIL_LENGTH
from classifiers.complexity.features import PAIRED_WORDS_MAX, SHAPE_NAMES, features
from classifiers.complexity.model import load, raw_value


MODEL = load()
WEIGHTS, VERSION = read()
MAX_ARTEFACT_BYTES = 5_000_000


@given(st.text(max_size=500))
def test_any_text_has_probabilities_a_tier_and_a_mixture_of_domains(text: str) -> None:
    judged = MODEL.assess(text)
    assert 0 <= judged.score <= 1
    assert 0 <= judged.weak_suffices <= 1
    assert 0 <= judged.strong_suffices <= 1
    assert 0 <= judged.novelty <= 1
    assert judged.tier in {"light", "standard", "demanding"}
    assert math.isclose(sum(share for _, share in judged.domains), 1)
    assert judged == MODEL.assess(text)


def test_the_tier_follows_the_score() -> None:
    order = ("light", "standard", "demanding")
    prompts = ["hi", "Say hello.", "Prove that x^2 = 2 has no rational solution. " * 6]
    judged = sorted((MODEL.assess(prompt) for prompt in prompts), key=lambda j: j.score)
    ranks = [order.index(one.tier) for one in judged]
    assert ranks == sorted(ranks)


def test_a_greeting_is_easier_than_a_question_of_formal_logic() -> None:
    hard = (
        "Use indirect truth tables to determine whether the following argument is valid. If the "
        "argument is invalid, choose an option which presents a counterexample.\nA. Valid\nB. H\n"
    )
    assert MODEL.assess("Hello, how are you?").score < MODEL.assess(hard).score


@pytest.mark.parametrize(
    ("domain", "prompt"),
    [
        ("word_problems", "Ann has 12 apples and buys 3 bags of 4 apples. How many has she now?"),
        ("law", "A defendant was charged with burglary. Will the court admit the testimony?"),
        ("code", "def count_vowels(word: str) -> int:\n    # write a python function\n"),
    ],
)
def test_a_prompt_is_judged_by_its_domain(domain: str, prompt: str) -> None:
    assert MODEL.assess(prompt).domains[0][0] == domain


def test_a_prompt_in_a_language_that_training_never_saw_is_unfamiliar() -> None:
    assert MODEL.assess("What is the capital of the country north of Spain?").familiar
    assert not MODEL.assess("Hvilken by er hovedstaden i landet nord for Spania?").familiar


def test_only_head_and_tail_of_a_long_text_are_read() -> None:
    head, tail = "a" * HEAD_LENGTH, "b" * TAIL_LENGTH
    seen = [features(head + filler * 10_000 + tail) for filler in ("river ", "stream ")]
    assert seen[0] == seen[1]


def test_pairs_come_from_a_bounded_number_of_words() -> None:
    words = [f"w{at}" for at in range(PAIRED_WORDS_MAX * 2)]
    seen = features(" ".join(words))
    assert len(seen.words) == len(words)
    assert len(seen.pairs) == PAIRED_WORDS_MAX - 1


def test_the_score_does_not_depend_on_the_hash_seed() -> None:
    program = (
        "from classifiers.complexity.model import load;"
        "print(load().assess('why does the sum of these series converge so slowly?').score.hex())"
    )
    results = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[2])},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(results) == 1


@given(st.text(alphabet="the of court 12 = ?\nA. which ", max_size=300))
def test_the_parts_of_an_explanation_add_up_to_the_score(text: str) -> None:
    seen = features(text)
    parts = MODEL.explain(seen, 0)
    raw = raw_value(WEIGHTS.strong_needed, MODEL.read(seen))
    assert math.isclose(sum(value for _, value in parts), raw, abs_tol=1e-9)
    always = dict(parts)["always"]
    told = MODEL.score(seen).parts
    assert math.isclose(sum(value for _, value in told) + always, raw, abs_tol=1e-9)


def test_the_explanation_names_the_largest_contributions() -> None:
    parts = MODEL.explain(features("Which of the following statements is true? 12 + 7 = 19"), 50)
    sizes = [abs(size) for _, size in parts]
    assert sizes == sorted(sizes, reverse=True)
    assert {name for name, _ in parts} >= {f"shape:{name}" for name in SHAPE_NAMES}
    assert "word:the following" in {name for name, _ in parts}


def test_a_changed_artefact_is_refused(tmp_path: Path) -> None:
    for name in (MODEL_FILE, DIGEST_FILE):
        shutil.copy(DIRECTORY / name, tmp_path / name)
    assert load(tmp_path).version == MODEL.version
    raw = bytearray((tmp_path / MODEL_FILE).read_bytes())
    raw[len(raw) // 2] ^= 1
    (tmp_path / MODEL_FILE).write_bytes(raw)
    with pytest.raises(ArtefactError):
        load(tmp_path)


@pytest.mark.parametrize(
    ("field", "value"), [("shape_names", ("something_else",)), ("lanes", b"\x80"), ("tiers", ())]
)
def test_an_artefact_for_other_features_is_refused(
    tmp_path: Path, field: str, value: object
) -> None:
    raw = msgspec.msgpack.encode(msgspec.structs.replace(WEIGHTS, **{field: value}))
    (tmp_path / MODEL_FILE).write_bytes(raw)
    (tmp_path / DIGEST_FILE).write_text(hashlib.sha256(raw).hexdigest())
    with pytest.raises(ArtefactError):
        load(tmp_path)


def test_the_artefact_is_small_and_its_card_names_its_version_and_its_data() -> None:
    card = (DIRECTORY / CARD_FILE).read_text()
    assert (DIRECTORY / MODEL_FILE).stat().st_size < MAX_ARTEFACT_BYTES
    assert VERSION in card
    assert all(digest in card for digest in WEIGHTS.data.values())


def test_features_and_model_show_no_prompt() -> None:
    seen = features("my secret canary")
    assert "canary" not in repr(seen)
