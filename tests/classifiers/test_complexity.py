"""The complexity score: bounded, deterministic, explained, and only from a checked artefact."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from classifiers.complexity.features import HEAD_LENGTH, SHAPE_NAMES, features
from classifiers.complexity.model import (
    ARTEFACT_DIRECTORY,
    DIGEST_FILE,
    MODEL_FILE,
    ArtefactError,
    load,
)


MODEL = load()
MAX_ARTEFACT_BYTES = 300_000


@given(st.text(max_size=500))
def test_any_text_has_a_probability_and_a_tier(text: str) -> None:
    judged = MODEL.assess(text)
    assert 0 <= judged.score <= 1
    assert 0 <= judged.weak_suffices <= 1
    assert judged.tier in {"light", "standard", "demanding"}
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


def test_only_head_and_tail_of_a_long_text_are_read() -> None:
    filler = "river " * 10_000
    other = "mountain " * 10_000
    head, tail = "a" * HEAD_LENGTH, "b" * HEAD_LENGTH
    assert features(head + filler + tail).words == features(head + other + tail).words


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


def test_the_explanation_names_the_largest_contributions() -> None:
    parts = MODEL.explain(features("Which of the following statements is true? 12 + 7 = 19"), 50)
    sizes = [abs(size) for _, size in parts]
    assert sizes == sorted(sizes, reverse=True)
    assert {name for name, _ in parts} >= set(SHAPE_NAMES)


def test_a_changed_artefact_is_refused(tmp_path: Path) -> None:
    for name in (MODEL_FILE, DIGEST_FILE):
        shutil.copy(ARTEFACT_DIRECTORY / name, tmp_path / name)
    assert load(tmp_path).version == MODEL.version
    raw = (tmp_path / MODEL_FILE).read_bytes()
    (tmp_path / MODEL_FILE).write_bytes(raw.replace(b'"bias":', b'"bias": '))
    with pytest.raises(ArtefactError):
        load(tmp_path)


def test_an_artefact_for_other_features_is_refused(tmp_path: Path) -> None:
    weights = msgspec.json.decode((ARTEFACT_DIRECTORY / MODEL_FILE).read_bytes())
    weights["shape_names"][0] = "something_else"
    raw = msgspec.json.encode(weights)
    (tmp_path / MODEL_FILE).write_bytes(raw)
    (tmp_path / DIGEST_FILE).write_text(hashlib.sha256(raw).hexdigest())
    with pytest.raises(ArtefactError):
        load(tmp_path)


def test_the_artefact_is_small_and_its_card_names_its_version() -> None:
    assert (ARTEFACT_DIRECTORY / MODEL_FILE).stat().st_size < MAX_ARTEFACT_BYTES
    assert MODEL.version in (ARTEFACT_DIRECTORY / "MODEL_CARD.md").read_text()


def test_features_and_model_show_no_prompt() -> None:
    seen = features("my secret canary")
    assert "canary" not in repr(seen)
