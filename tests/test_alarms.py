"""The alarms that people read and those that Prometheus loads are the same."""

import re

from tests.alarms import FILE, PAGE, alarms, rules


GIVEN_OUT = frozenset(
    {
        "GatewrightWorkerIsNotReady",
        "GatewrightAuditIsAway",
        "GatewrightDatabaseTakesRecords",
        "GatewrightSnapshotIsOld",
        "GatewrightCertificateEnds",
        "GatewrightListOfRevokedCertificatesEnds",
        "GatewrightProviderCertificateEnds",
        "GatewrightSensitiveDataWentOut",
        "GatewrightRecordsWaitForTheirWayIntoDatabase",
        "GatewrightCheckpointsAreNotSigned",
        "GatewrightErasureHasNotReachedEveryAuditFolder",
        "GatewrightContentIsPastItsTime",
        "GatewrightTargetBreakerStaysOpen",
        "GatewrightCredentialWasNotConfirmed",
        "GatewrightTargetFails",
        "GatewrightGatewayItselfIsSlow",
        "GatewrightRetryBudgetIsSpent",
        "GatewrightPromptsOrAnswersDrift",
    }
)
"""Names by which installations route and silence alerts."""


def test_no_name_that_was_given_out_is_another() -> None:
    """A reworded row keeps its name by `tests.alarms.KEPT`."""
    assert {each.name for each in alarms()} >= GIVEN_OUT


def test_the_file_is_what_the_page_makes() -> None:
    assert FILE.read_text("utf-8") == rules(), "run python -m tests.alarms"


def test_every_line_of_the_table_is_a_rule_with_a_name_of_its_own() -> None:
    part = PAGE.read_text("utf-8").partition("## Worth an alarm")[2].partition("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| ")]
    found = alarms()

    assert len(found) == len(lines) - 1, "all but the head"
    assert len({each.name for each in found}) == len(found)
    for each in found:
        assert re.fullmatch(r"Gatewright[A-Za-z0-9]+", each.name)
        assert each.holds or ", for " not in each.summary
        assert not re.search(r"[{}\[\]`]", each.summary + each.means), "no template, no link"
