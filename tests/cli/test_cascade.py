"""`gatewright cascade check` and `train ability`: from recorded pairs and labels to a decision."""

import asyncio
import json
import random
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from classifiers.calibration.learning import Logged, check_before_live
from classifiers.complexity.model import load
from gateway.__main__ import commands
from gateway.cli.deeds import opened_log
from gateway.configuration.reading import load_settings
from gateway.errors import ConfigurationInvalid
from gateway.inspection.inspector import load_model_ability
from gateway.rollout.pairs import logged_of
from gateway.types import AuditRecord
from tests.cli.operator import Operator


ODDS = 0.05


def outcome(detail: dict[str, str], stage: str = "outcome") -> AuditRecord:
    return AuditRecord(
        stage=stage,  # type: ignore[arg-type]
        request_id="req_1",
        organisation="acme",
        utc_us=0,
        model_requested="auto",
        detail=detail,
    )


def recorded(rng: random.Random, above: float, failing: float) -> AuditRecord:
    """A cascade whose gate is right about the chances, times a factor for what it overlooks."""
    doubt = rng.random()
    fails = rng.random() < min(1.0, doubt * failing)
    explored = rng.random() < ODDS
    score = {"cascade_score_ppm": str(round(doubt * 1e6))}
    if doubt <= above and not explored:
        return outcome({"cascade": "kept", "cascade_propensity_ppm": "950000", **score})
    odds = 1_000_000 if doubt > above else 50_000
    agreed = "0" if fails else "1000000"
    more = {"cascade_propensity_ppm": str(odds), "cascade_agreement_ppm": agreed}
    return outcome({"cascade": "escalated", **score, **more})


def logged(failing: float, count: int = 6000) -> list[Logged]:
    rng = random.Random(7)
    read = [logged_of(recorded(rng, 0.3, failing)) for _ in range(count)]
    return [one for one in read if one is not None]


def test_recorded_cascades_say_what_a_threshold_would_do() -> None:
    honest = check_before_live(logged(1.0), 0.7, 0.8, alpha=0.25, success_loss_max=0.1)
    # Of answers doubted up to 20 % one in ten fails.
    assert honest.cheap_failure_then.lower < 0.1 < honest.cheap_failure_then.upper
    assert honest.passed
    overlooked = check_before_live(logged(4.0), 0.7, 0.8, alpha=0.25, success_loss_max=0.1)
    assert overlooked.cheap_failure_then.lower < 0.4 < overlooked.cheap_failure_then.upper
    assert overlooked.reason == "cheap_failure_rate_too_high"


@pytest.mark.parametrize(
    "record",
    [
        outcome({}),
        outcome({"cascade": "cheap_failed"}),
        outcome({"cascade": "kept", "cascade_score_ppm": "1"}),
        outcome(
            {
                "cascade": "escalation_failed",
                "cascade_score_ppm": "1",
                "cascade_propensity_ppm": "1000000",
            }
        ),
        outcome(
            {"cascade": "kept", "cascade_score_ppm": "1", "cascade_propensity_ppm": "1"}, "intent"
        ),
    ],
)
def test_a_record_that_says_too_little_is_no_evidence(record: AuditRecord) -> None:
    assert logged_of(record) is None


def test_too_few_cascades_let_nothing_go_live(tmp_path: Path) -> None:
    config = tmp_path / "gatewright.toml"
    config.write_text('[audit]\ndirectory = "audit"\n')
    ask = ["cascade", "check", "--config", str(config), "--organisation", "acme"]
    ask += ["--now", "30", "--then", "40", "--alpha", "0.1"]
    done = CliRunner().invoke(commands, ask)
    assert done.exit_code == 2
    assert "there is no audit folder" in done.stderr
    (tmp_path / "audit").mkdir()
    done = CliRunner().invoke(commands, ask)
    assert done.exit_code == 1, done.stderr
    assert done.stdout.splitlines()[0] == "0 cascades, 0 of them with both answers"
    assert done.stdout.splitlines()[-1] == "too_few_logged"


def test_only_cascades_of_the_organisation_and_the_model_count(operator: Operator) -> None:
    async def write() -> None:
        async with opened_log(load_settings(operator.config_file)) as log:
            rng, others = random.Random(8), ({"organisation": "globex"}, {"model_requested": "big"})
            for number in range(9):
                one = recorded(rng, 0.3, 1.0)
                await log.append(one)
                await log.append(msgspec.structs.replace(one, **others[number % 2]))

    asyncio.run(write())
    bounds = ("--now", "30", "--then", "40", "--alpha", "0.1")
    checked = operator.config("cascade", "check", "--organisation", "acme", *bounds)
    assert checked.status == 1
    assert checked.output.startswith("9 cascades, ")


def test_labels_become_abilities_that_inspection_and_the_gateway_read(tmp_path: Path) -> None:
    lines = [{"prompt": f"What is {n} + {n}?", "succeeded": n % 9 > 0} for n in range(200)]
    done = CliRunner().invoke(
        commands, ["train", "ability"], input="\n".join(map(json.dumps, lines))
    )
    assert done.exit_code == 0, done.stderr
    file = tmp_path / "ability.json"
    file.write_text(done.stdout)
    asked = json.dumps({"id": 1, "prompt": "What is 12 + 30?"})
    plain, able = (
        json.loads(CliRunner().invoke(commands, ["inspect", "complexity", *more], asked).stdout)
        for more in ([], ["--ability", str(file)])
    )
    assert plain["score"] == able["score"]
    assert 0.75 < able["p_weak"] < 0.95
    scorer = load()
    ability = load_model_ability(file, scorer)
    assert ability is not None
    assert ability.labels == 200
    other = msgspec.structs.replace(ability, classifier_version="complexity-of-yesterday")
    file.write_bytes(msgspec.json.encode(other))
    with pytest.raises(ConfigurationInvalid):
        load_model_ability(file, scorer)
    file.write_text('{"more":' + "[" * 100_000)
    with pytest.raises(ConfigurationInvalid):
        load_model_ability(file, scorer)
    done = CliRunner().invoke(commands, ["inspect", "complexity", "--ability", str(file)], asked)
    assert (done.exit_code, str(file) in done.stderr) == (2, True)
    done = CliRunner().invoke(commands, ["train", "ability"], input="{}")
    assert (done.exit_code, "line 1" in done.stderr) == (2, True)
