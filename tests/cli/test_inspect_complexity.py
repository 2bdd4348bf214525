"""`gatewright inspect complexity` and `gatewright train complexity`, as acceptance uses them."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.__main__ import commands


PROMPTS = [
    {"id": "a", "prompt": "Ann has 12 apples and buys 3 bags of 4. How many has she now?"},
    {"id": "b", "prompt": "Which court may hear the appeal?\nA. none\nB. both", "dataset": "x"},
    {"id": "c", "prompt": "", "domain": "ignored"},
]


def _inspected(
    *options: str | Path, lines: list[dict[str, str]] | None = None, status: int = 0
) -> tuple[list[dict[str, object]], str]:
    done = CliRunner().invoke(
        commands,
        ["inspect", "complexity", *map(str, options)],
        input="\n".join(json.dumps(line) for line in lines or PROMPTS),
    )
    assert done.exit_code == status, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_each_prompt_gets_exactly_the_fields_of_the_scorer() -> None:
    answered, errors = _inspected()
    assert [line["id"] for line in answered] == ["a", "b", "c"]
    assert all(set(line) == {"id", "score", "p_weak"} for line in answered)
    assert errors == ""


def test_with_answers_the_cascade_judges_the_first_of_them(tmp_path: Path) -> None:
    good = {"id": "a", "answers": {"m": "3*4 = 12, and 12+12 = 24\n#### 24", "n": "#### 24"}}
    bad = {"id": "a", "answers": {"m": "3*4 = 15, and 12+15 = 26\n#### 26", "n": "#### 24"}}
    p_weak = []
    for answers in (good, bad):
        file = tmp_path / "answers.jsonl.gz"
        file.write_bytes(gzip.compress(json.dumps(answers).encode()))
        p_weak.append(_inspected("--answers", file)[0])
    assert p_weak[0][0]["p_weak"] > p_weak[1][0]["p_weak"]  # type: ignore[operator]
    assert p_weak[0][1:] == _inspected()[0][1:]


def test_stats_tell_cpu_per_prompt_and_per_kib() -> None:
    _, errors = _inspected("--stats")
    assert "3 prompts" in errors
    assert errors.count("p50") == errors.count("p99") == 2


def test_an_explanation_comes_on_request() -> None:
    answered, _ = _inspected("--explain")
    assert {"tier", "familiar", "explanation"} < set(answered[0])


def test_a_line_that_is_no_prompt_is_refused_by_number() -> None:
    answered, errors = _inspected(lines=[{"id": "a", "prompt": "x"}, {"id": "b"}], status=2)
    assert len(answered) == 1
    assert "line 2" in errors


@pytest.mark.parametrize(
    "data",
    [
        b"no gzip",
        gzip.compress(bytes(range(256)), mtime=0)[:40],
        gzip.compress(b"x", mtime=0)[:10] + b"\xff" * 20,
        gzip.compress(b'{"id": 1, "answers": {}, "more": ' + b"[" * 100_000),
    ],
    ids=["another format", "cut", "broken inside", "too deep"],
)
def test_an_unreadable_answers_file_is_refused(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "answers.json.gz"
    file.write_bytes(data)
    assert "answers.json.gz" in _inspected("--answers", file, status=2)[1]


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small sets in the format of the real ones: long sums are hard, short questions easy."""
    folder = tmp_path_factory.mktemp("labelled")
    mixtral, gpt = "mixtral-8x7b-instruct-v0.1", "gpt-4-1106-preview"
    pairs = {
        "routellm_mmlu": ("professional_law", mixtral, gpt),
        "routellm_gsm8k": ("gsm8k", mixtral, gpt),
        "ulab9": ("mbpp", "mistral-7b-instruct-v0.3", "llama-3.1-nemotron-51b-instruct"),
    }
    answers = []
    for name, (task, weak, strong) in pairs.items():
        rows = []
        for at in range(60):
            hard = at % 2
            verb = "derive carefully the convergent sum" if hard else "name the plain colour"
            scores = {weak: 1.0 - hard, strong: 1.0 - (at % 7 == 0)}
            prompt = f"Please {verb} of {name} item {at} and {at + hard * 40}?"
            row = {"id": f"{name}:{at}", "dataset": name, "domain": task, "prompt": prompt}
            rows.append({**row, "scores": scores, "split": "dev" if at % 5 == 0 else "train"})
            answer = {"id": f"{name}:{at}", "answers": {weak: f"{at}+1 = {at + 1 + hard}"}}
            answers.append(answer)
        lines = "\n".join(json.dumps(row) for row in rows)
        (folder / f"{name}.jsonl.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))
    lines = "\n".join(json.dumps(answer) for answer in answers)
    (folder / "answers_cheap.json.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))
    return folder


def _trained(labelled: Path, out: Path, *more: str | Path) -> str:
    options = ["--data", labelled, "--out", out, *more]
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "train", "complexity", *map(str, options)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return done.stdout


def test_training_again_gives_the_same_artefact(labelled: Path, tmp_path: Path) -> None:
    said = [_trained(labelled, tmp_path / name) for name in ("one", "two")]
    assert said[0] == said[1]
    one, two = (tmp_path / name / "model.msgpack" for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
    card = (tmp_path / "one" / "MODEL_CARD.md").read_text()
    assert said[0].split(":")[0] in card


@pytest.mark.long
def test_a_trained_artefact_ranks_what_it_was_taught(labelled: Path, tmp_path: Path) -> None:
    folds = tmp_path / "folds.jsonl"
    _trained(labelled, tmp_path, "--splits", "train,dev", "--out-of-fold", folds)
    hard = "Please derive carefully the convergent sum of routellm_mmlu item 7?"
    easy = "Please name the plain colour of routellm_mmlu item 7?"
    lines = [{"id": "hard", "prompt": hard}, {"id": "easy", "prompt": easy}]
    judged, _ = _inspected("--artefact", tmp_path, lines=lines)
    assert judged[0]["score"] > judged[1]["score"]  # type: ignore[operator]
    assert judged[0]["p_weak"] < judged[1]["p_weak"]  # type: ignore[operator]
    assert len(folds.read_text().splitlines()) == 180
    assert len(folds.with_suffix(".cascade.jsonl").read_text().splitlines()) == 180
