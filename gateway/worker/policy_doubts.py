"""Warns of likely mistakes in the policy document that the settings name."""

from classifiers.pii.labels import LABELS
from gateway.configuration.settings import Settings
from gateway.configuration.texts import text_of
from gateway.routing.board import TargetBoard
from gateway.worker.pricing import configured_targets
from policies.checking.check import CheckReport, check


def report_among(settings: Settings, text: str, name: str) -> CheckReport:
    """All that is said of a text, as `policy check --config` says it."""
    targets = {target.name: target for target in configured_targets(settings)}
    headers = [header.replace("-", "_") for header in settings.policy.headers]
    return check(text, name, TargetBoard(targets, {}).facts_for(None), LABELS, headers)


def doubts_about(settings: Settings) -> list[str]:
    """Of the configured document, which passed; nothing of the shipped one: nobody here wrote it.

    A target that the settings lack stops no start: a price file may bring it. It is a doubt here.
    """
    if not settings.policy.file:
        return []
    text = text_of(settings.path(settings.policy.file))
    report = report_among(settings, text, settings.policy.file)
    return [str(problem) for problem in (*report.errors, *report.warnings)]
