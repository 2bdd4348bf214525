"""`gatewright calibrate`: labels in, a table with guarantees or honest refusals out."""

import json
import random

import pytest
from click.testing import CliRunner

from classifiers.calibration.table import load_table
from classifiers.calibration.threshold import Infeasible, Threshold
from gateway.__main__ import commands


def _labels(organisation: str, count: int) -> list[dict[str, object]]:
    draw = random.Random(organisation)
    chances = [draw.random() for _ in range(count)]
    where = {"organisation": organisation, "route": "auto"}
    return [{**where, "p_weak": p, "succeeded": draw.random() < p} for p in chances]


def test_each_organisation_gets_a_threshold_or_the_reason_why_not() -> None:
    lines = [*_labels("acme", 600), *_labels("small", 30)]
    done = CliRunner().invoke(
        commands, ["calibrate", "--alpha", "0.2"], input="\n".join(map(json.dumps, lines))
    )
    assert done.exit_code == 0, done.stderr
    acme, small = (entry.guarantee for entry in load_table(done.stdout.encode()).entries)
    assert isinstance(acme, Threshold)
    assert isinstance(small, Infeasible)
    assert acme.failure_rate_upper <= 0.2
    assert "small auto: infeasible: too_few_labels" in done.stderr


@pytest.mark.parametrize("command", [("calibrate", "--alpha", "0.2"), ("train", "ability")])
@pytest.mark.parametrize("line", ['{"p_weak": 1}', '{"more": ' + "[" * 100_000])
def test_a_line_that_is_no_label_is_refused_by_number(command: tuple[str, ...], line: str) -> None:
    done = CliRunner().invoke(commands, command, input=line)
    assert done.exit_code == 2
    assert "line 1" in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("calibrate", "--alpha", "nan"),
        ("calibrate", "--alpha", "0.1", "--delta", "nan"),
        ("policy", "canary", "1", "--by", "ann", "--percent", "nan"),
        ("policy", "schedule", "1", "--by", "ann", "--at", "2027-01-01", "--canary", "nan"),
        (
            *("cascade", "check", "--organisation", "a", "--now", "nan"),
            *("--then", "4", "--alpha", "0.1"),
        ),
    ],
)
def test_what_is_no_number_is_within_no_bounds(command: tuple[str, ...]) -> None:
    done = CliRunner().invoke(commands, command, input="{}")
    assert (done.exit_code, "is no number" in done.stderr) == (2, True)


def test_a_chance_that_is_none_is_refused_and_an_empty_line_passed_over() -> None:
    good = json.dumps(_labels("acme", 1)[0])
    calibrate = ["calibrate", "--alpha", "0.2"]
    assert CliRunner().invoke(commands, calibrate, input=f"{good}\n\n{good}\n\n").exit_code == 0
    wrong = json.dumps(_labels("acme", 1)[0] | {"p_weak": 1.5})
    done = CliRunner().invoke(commands, calibrate, input=f"{good}\n\n{wrong}\n")
    assert (done.exit_code, "line 3" in done.stderr) == (2, True)
    judged = json.dumps({"prompt": "what is two and two?", "succeeded": True})
    done = CliRunner().invoke(commands, ["train", "ability"], input=f"\n{judged}\n\n")
    assert done.exit_code == 0
