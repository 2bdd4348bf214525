"""Deadlines for reports that organisations owe under the rules they chose, with sources. Pure.

These are engineering figures from secondary sources, not counsel's word: each names its source and
says what still has to be confirmed. A rule that gives no number of hours gets none here.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, get_args

from msgspec import Struct

from gateway.clock import HOUR_US


Regime = Literal[
    "ai-act", "cert-in", "dpdp", "gdpr", "hipaa", "iso27001", "iso42001", "rbi", "soc2"
]
REGIMES: Final[tuple[Regime, ...]] = get_args(Regime)
TITLES: Final[Mapping[Regime, str]] = {
    "ai-act": "EU AI Act",
    "cert-in": "CERT-In directions",
    "dpdp": "DPDP Act and Rules",
    "gdpr": "GDPR",
    "hipaa": "HIPAA",
    "iso27001": "ISO 27001",
    "iso42001": "ISO 42001",
    "rbi": "RBI directions",
    "soc2": "SOC 2",
}


Unit = Literal["hours", "days"]


class ReportClock(Struct, frozen=True):
    """A report that an incident may make due."""

    name: str
    regime: Regime
    to: str
    within_us: int
    """After it was noticed; 0 is without delay, for which the rule gives no hours."""
    source: str
    to_be_confirmed: str = ""
    unit: Unit = "hours"
    """In which the rule counts it: what is left of 72 hours is said in hours, and not in days."""


CLOCKS: Final = (
    ReportClock(
        "cert-in-report",
        "cert-in",
        "CERT-In",
        6 * HOUR_US,
        "CERT-In directions of 28 April 2022, direction (ii): within six hours of noticing",
    ),
    ReportClock(
        "gdpr-authority",
        "gdpr",
        "the supervisory authority",
        72 * HOUR_US,
        "GDPR, Article 33(1): within 72 hours of having become aware, where feasible",
        "whether the incident is a risk to people at all, which the controller decides",
    ),
    ReportClock(
        "dpdp-notice",
        "dpdp",
        "the Data Protection Board and each affected principal",
        0,
        "DPDP Rules 2025, rule 7: without delay",
        "from when it is in force (14 May 2027 by secondary sources), and what counts as delay",
    ),
    ReportClock(
        "dpdp-details",
        "dpdp",
        "the Data Protection Board, in detail",
        72 * HOUR_US,
        "DPDP Rules 2025, rule 7: within 72 hours of becoming aware, longer if the Board permits",
        "from when it is in force (14 May 2027 by secondary sources)",
    ),
)
"""Read on 22 November 2026 in secondary sources."""
BY_NAME: Final = {clock.name: clock for clock in CLOCKS}


def clocks_of(regimes: Sequence[str]) -> list[ReportClock]:
    """Reports that these rules ask for, the most urgent first."""
    found = [clock for clock in CLOCKS if clock.regime in regimes]
    return sorted(found, key=lambda clock: (clock.within_us, clock.name))
