"""`gatewright inspect complexity`: how hard prompts are, and whether cheap answers will do."""

import gzip
import sys
import time
import zlib
from pathlib import Path

import click
import msgspec

from classifiers.complexity.ability import Ability, load_ability, with_ability
from classifiers.complexity.artefact import DIRECTORY, ArtefactError
from classifiers.complexity.cascade import judge, reliabilities
from classifiers.complexity.features import features
from classifiers.complexity.model import Complexity, ComplexityModel, load
from gateway.cli.options import Refused


BYTES_PER_KIB = 1024
NS_PER_US = 1000
_UNREADABLE = (
    *(msgspec.MsgspecError, UnicodeDecodeError, RecursionError),
    *(OSError, EOFError, zlib.error),
)


class Prompt(msgspec.Struct, frozen=True):
    """A line of input; other members are ignored."""

    id: str | int
    prompt: str


class Answers(msgspec.Struct, frozen=True):
    """A line of the answers file: cheap models' answers, the one to be judged first."""

    id: str | int
    answers: dict[str, str]


@click.command("complexity")
@click.option(
    "--answers",
    "answers_file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Cheap models' answers, {id, answers: {model: text}} per line: judge the first of each.",
)
@click.option(
    "--artefact",
    "artefact_directory",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=DIRECTORY,
    help="Judge with another artefact than the one shipped.",
)
@click.option(
    "--ability",
    "ability_file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Abilities of a model, from `gatewright train ability`: `p_weak` is about that one.",
)
@click.option("--explain", is_flag=True, help="Add what counted most; it repeats words.")
@click.option("--stats", is_flag=True, help="Print CPU time per prompt and per KiB.")
def inspect_complexity(
    answers_file: Path | None,
    artefact_directory: Path,
    ability_file: Path | None,
    *,
    explain: bool,
    stats: bool,
) -> None:
    """`{id, prompt}` → `{id, score, p_weak}`: a higher score needs the strong model more.

    `p_weak` is the probability that a weak model's answer is good enough. With `--answers`, both
    are about the cheap answer that was given (the cascade); prompts without one are judged alone.
    """
    model = _loaded(artefact_directory)
    ability = _ability(ability_file) if ability_file is not None else None
    answered = _answers(answers_file) if answers_file is not None else {}
    reliability = reliabilities(answered.values())
    costs: list[tuple[int, int]] = []
    for number, line in enumerate(sys.stdin.buffer, 1):
        if not line.strip():
            continue
        try:
            prompt = msgspec.json.decode(line, type=Prompt)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise Refused(f"line {number}: {error}") from error
        answers = tuple(answered.get(str(prompt.id), {}).items())
        began_ns = time.thread_time_ns()
        judged = model.assess(prompt.prompt)
        if ability is not None:
            judged = with_ability(judged, ability)
        score, p_weak = judged.score, judged.weak_suffices
        if answers:
            verdict = judge(model.gate, judged, prompt.prompt, answers, reliability)
            score, p_weak = verdict.score, verdict.p_weak
        costs.append(
            (time.thread_time_ns() - began_ns, len(prompt.prompt.encode("utf-8", "replace")))
        )
        written: dict[str, object] = {"id": prompt.id, "score": score, "p_weak": p_weak}
        if explain:
            written |= _explanation(model, prompt.prompt, judged)
        sys.stdout.buffer.write(msgspec.json.encode(written) + b"\n")
    sys.stdout.buffer.flush()
    if stats:
        click.echo(_summary(costs), err=True)


def _loaded(directory: Path) -> ComplexityModel:
    try:
        return load(directory)
    except ArtefactError as error:
        raise Refused(f"{directory}: {error}") from error


def _ability(file: Path) -> Ability:
    try:
        return load_ability(file.read_bytes())
    except _UNREADABLE as error:
        raise Refused(f"{file}: {error}") from error


def _answers(file: Path) -> dict[str, dict[str, str]]:
    try:
        raw = file.read_bytes()
        text = gzip.decompress(raw) if file.suffix == ".gz" else raw
        lines = [msgspec.json.decode(line, type=Answers) for line in text.splitlines() if line]
    except _UNREADABLE as error:
        raise Refused(f"{file}: {error}") from error
    return {str(line.id): line.answers for line in lines}


def _explanation(model: ComplexityModel, prompt: str, judged: Complexity) -> dict[str, object]:
    parts = model.explain(features(prompt))
    return {
        "tier": judged.tier,
        "familiar": judged.familiar,
        "explanation": [[name, round(value, 4)] for name, value in parts],
    }


def _summary(costs: list[tuple[int, int]]) -> str:
    if not costs:
        return "no prompts"
    each = sorted(ns / NS_PER_US for ns, _ in costs)
    rates = sorted(ns / NS_PER_US / max(size / BYTES_PER_KIB, 1e-3) for ns, size in costs)
    return (
        f"{len(costs)} prompts\n"
        f"CPU us per prompt: p50 {_at(each, 50):.0f}, p99 {_at(each, 99):.0f}\n"
        f"CPU us per KiB: p50 {_at(rates, 50):.0f}, p99 {_at(rates, 99):.0f}"
    )


def _at(ordered: list[float], percent: int) -> float:
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]
