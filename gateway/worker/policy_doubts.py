"""Warns of likely mistakes in the policy document that the settings name."""

from classifiers.pii.labels import LABELS
from gateway.configuration.settings import Settings
from gateway.configuration.texts import text_of
from gateway.routing.board import TargetBoard
from gateway.worker.pricing import configured_targets
from policies.checking.check import CheckReport, check


def report_among(settings: Settings, text: str, name: str) -> CheckReport:
    """All problems of a policy text, as `policy check --config` reports them."""
    targets = {target.name: target for target in configured_targets(settings)}
    headers = [header.replace("-", "_") for header in settings.policy.headers]
    return check(text, name, TargetBoard(targets, {}).facts_for(None), LABELS, headers)


def doubts_about(settings: Settings) -> list[str]:
    """Doubts about the configured document, which was accepted; the shipped one is not checked.

    A target that the settings lack does not prevent a start: a price file may bring it. Here it is
    a doubt.
    """
    if not settings.policy.file:
        return []
    text = text_of(settings.path(settings.policy.file))
    report = report_among(settings, text, settings.policy.file)
    return [str(problem) for problem in (*report.errors, *report.warnings)]
