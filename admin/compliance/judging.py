"""Judges a check from facts: a state, and the numbers that it follows from. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct

from admin.compliance.duties import ORGANISATIONAL
from admin.preferences import Preferences
from gateway.clock import DAY_US, HOUR_US
from gateway.obligations import Unit


Prices = Literal["configured", "alone", "approved"]
"""In force by the configuration, which nobody approves here; by one person; by two."""
State = Literal["met", "look", "open", "unknown", "organisational"]
"""Holds now; somebody should look; does not hold; nothing here can tell; not for a program to say.
"""
VERIFIED_DAYS: Final = 30
RETAINED_DAYS: Final = 2
"""Retention runs once a day, and a date has to be borne out."""
CREDENTIAL_DAYS: Final = 365
STATED_US: Final = 2 * HOUR_US
"""Workers state their clock each hour."""
PERIODS_LATE: Final = 3


class Standing(Struct, frozen=True):
    """What of a rule holds now, and in which numbers."""

    state: State
    said: str


class Due(Struct, frozen=True):
    """When a report is due, 0 for at once, and the unit in which its rule counts."""

    due_us: int
    unit: Unit = "hours"


class Known(Struct, frozen=True):
    """What was read for the checks of one organisation, at one moment. Times in microseconds."""

    now_us: int
    period_us: int
    """Between two checkpoints."""
    signed_us: int
    """0 for never, here and below."""
    signed_records: int
    exported_us: int | None
    """None where this process sees no folder of checkpoints."""
    verified_us: int
    verified_reason: str
    """Why the log was not whole; empty where it was."""
    first_us: int
    """When its oldest record was written."""
    retention_days: int
    """0 keeps content for ever."""
    retention_late_us: int
    """How long content of it is past its time in the audit folder that is latest."""
    holds: int
    cases: Sequence[int]
    """When open erasure cases are due."""
    done_cases: int
    reports: Mapping[str, Sequence[Due]]
    """Reports of open incidents that were not made, by regime."""
    incidents: int
    reviews: Sequence[str]
    """States of reviews that go on."""
    signed_reviews: int
    versions: int
    """Versions of policy that decide now."""
    unapproved: int
    """Of these, those that nobody but their author approved."""
    prices: Prices
    """Who put the prices of now in force."""
    people: int
    approvers: int
    """Of the people, those who may approve what another wrote."""
    is_single_sign_on: bool
    credentials: Sequence[int]
    """When each credential that the database keeps was set."""
    jurisdictions: Sequence[str]
    """Of providers outside."""
    in_house: int
    is_watched: bool
    drifts: int
    sinks: int
    behind_us: int
    """How old the oldest record is that a sink has not taken; 0 for none."""
    clock_source: str
    stated_us: int
    offset: str
    """What the newest statement says of how far off the clock is."""


def standing_of(check: str, regime: str, known: Known) -> Standing:
    """How one check stands."""
    if check == ORGANISATIONAL:
        return Standing("organisational", "Not provable here.")
    if check == "reports":
        return _reports(regime, known)
    return CHECKS[check](known)


def _signed(known: Known) -> Standing:
    if not known.signed_us:
        return Standing("open", "Nothing of this log is signed yet.")
    said = f"{_many(known.signed_records, 'record')} signed {_ago(known, known.signed_us)}."
    is_late = known.now_us - known.signed_us > PERIODS_LATE * known.period_us
    return Standing("look" if is_late else "met", said)


def _exported(known: Known) -> Standing:
    if known.exported_us is None:
        return Standing("unknown", "This process does not see the folder of checkpoints.")
    if not known.exported_us:
        return Standing("open", "No checkpoint of this log was exported.")
    is_late = known.now_us - known.exported_us > DAY_US
    said = f"The newest checkpoint outside the database is of {_ago(known, known.exported_us)}."
    return Standing("open" if is_late else "met", said)


def _verified(known: Known) -> Standing:
    if known.verified_reason:
        return Standing("open", "The last full verification found the log not whole.")
    if not known.verified_us:
        return Standing("open", "No full verification has been run.")
    is_old = known.now_us - known.verified_us > VERIFIED_DAYS * DAY_US
    return Standing("look" if is_old else "met", f"Whole {_ago(known, known.verified_us)}.")


def _kept(known: Known) -> Standing:
    if not known.first_us:
        return Standing("met", "Nothing was recorded yet; nothing is ever deleted.")
    days = (known.now_us - known.first_us) // DAY_US
    return Standing("met", f"The oldest record is {_many(days, 'day')} old; none is ever deleted.")


def _limited(known: Known) -> Standing:
    if not known.retention_days:
        return Standing("open", "Content is kept for ever: no class with a limit applies.")
    if known.retention_late_us > RETAINED_DAYS * DAY_US:
        days = _many(known.retention_late_us // DAY_US, "day")
        return Standing("open", f"Content is {days} overdue for destruction.")
    held = f"; {_many(known.holds, 'hold')} in force" if known.holds else ""
    return Standing("met", f"Content can be read for {_many(known.retention_days, 'day')}{held}.")


def _sealed(_: Known) -> Standing:
    return Standing("met", "By design: all content is written under a key of its own.")


def _erasures(known: Known) -> Standing:
    late = sum(due < known.now_us for due in known.cases)
    done = "none was requested yet"
    if known.done_cases:
        done = f"{known.done_cases:,} {'was' if known.done_cases == 1 else 'were'} done"
    if late:
        return Standing("open", f"{_many(late, 'case')} past the legal deadline.")
    if known.cases:
        # As the case's own page says it.
        soon = Preferences().span(min(known.cases) - known.now_us)
        return Standing("look", f"{_many(len(known.cases), 'case')} open, due in {soon}.")
    return Standing("met", f"No case is open; {done}.")


def _reports(regime: str, known: Known) -> Standing:
    due = known.reports.get(regime, ())
    late = sum(each.due_us < known.now_us for each in due)
    if late:
        return Standing("open", f"{_many(late, 'report')} due now or overdue.")
    if due:
        first = min(due, key=lambda each: each.due_us)
        # As the incident's own page says it: in the unit that the rule counts in.
        soon = Preferences().left(first.due_us - known.now_us, first.unit)
        if len(due) == 1:
            return Standing("look", f"1 report due in {soon}.")
        return Standing("look", f"{len(due):,} reports due, the first in {soon}.")
    return Standing("met", "No incident needs this report.")


def _incidents(known: Known) -> Standing:
    if known.incidents:
        return Standing("look", f"{_many(known.incidents, 'incident')} open.")
    return Standing("met", "No incident is open.")


def _reviews(known: Known) -> Standing:
    if not known.reviews:
        return Standing("open", "No review is set up.")
    overdue = sum(each == "overdue" for each in known.reviews)
    if overdue:
        return Standing("open", f"{_many(overdue, 'review')} overdue.")
    due = sum(each == "due" for each in known.reviews)
    if due or not known.signed_reviews:
        return Standing("look", f"{_many(due, 'review')} due; {known.signed_reviews} were signed.")
    return Standing("met", f"{_many(len(known.reviews), 'review')} up to date.")


def _four_eyes(known: Known) -> Standing:
    """Policies and prices, the worse of both; prices of the configuration change nothing."""
    policies, prices = _approved_policies(known), _approved_prices(known)
    state: State = "open" if prices.state == "open" else policies.state
    return Standing(state, f"{policies.said} {prices.said}")


def _approved_policies(known: Known) -> Standing:
    if not known.versions:
        return Standing("look", "The configuration's own policy applies: it is not approved here.")
    if known.unapproved:
        said = f"{known.unapproved} of {_many(known.versions, 'version')} without a second person."
        return Standing("open", said)
    return Standing(
        "met", f"{_many(known.versions, 'version')} in force, each approved by another."
    )


def _approved_prices(known: Known) -> Standing:
    if known.prices == "configured":
        return Standing("met", "Prices come from the configuration: they were not changed here.")
    if known.prices == "alone":
        return Standing("open", "The prices in force were set without a second person.")
    return Standing("met", "The prices in force were proposed by one and approved by another.")


def _people(known: Known) -> Standing:
    how = "single sign-on" if known.is_single_sign_on else "passwords kept here"
    said = f"{_many(known.people, 'person', 'people')} with {how}; {known.approvers} may approve."
    if not known.people:
        return Standing("open", "Nobody has a personal account.")
    return Standing("met" if known.approvers > 1 else "look", said)


def _credentials(known: Known) -> Standing:
    if not known.credentials:
        return Standing("unknown", "None is kept in the database, so their age is not known here.")
    days = (known.now_us - min(known.credentials)) // DAY_US
    said = (
        f"{_many(len(known.credentials), 'credential')}, the oldest set {_many(days, 'day')} ago."
    )
    return Standing("look" if days > CREDENTIAL_DAYS else "met", said)


def _transfers(known: Known) -> Standing:
    if not known.jurisdictions:
        return Standing("met", "Every provider is in-house.")
    where = ", ".join(known.jurisdictions)
    return Standing("look", f"As far as policy permits, content may go to (jurisdiction): {where}.")


def _monitored(known: Known) -> Standing:
    if not known.is_watched:
        return Standing("open", "Profiles are switched off.")
    if known.drifts:
        return Standing("look", f"{_many(known.drifts, 'drift')} not accepted.")
    return Standing("met", "Compared every hour; no drift.")


def _sinks(known: Known) -> Standing:
    if not known.sinks:
        return Standing("open", "No sink is configured: records are not sent elsewhere.")
    if known.behind_us > DAY_US:
        return Standing("open", "A sink lacks records that are more than a day old.")
    return Standing("met", f"{_many(known.sinks, 'sink')}, none a day behind.")


def _clock(known: Known) -> Standing:
    if not known.clock_source:
        return Standing("open", "The time source is not stated: audit.clock_source is not set.")
    if known.now_us - known.stated_us > STATED_US:
        return Standing(
            "look", f"Configured to follow {known.clock_source}; no worker confirms it now."
        )
    return Standing("met", f"Follows {known.clock_source}{known.offset}.")


CHECKS: Final[Mapping[str, Callable[[Known], Standing]]] = {
    "signed": _signed,
    "exported": _exported,
    "verified": _verified,
    "kept": _kept,
    "limited": _limited,
    "sealed": _sealed,
    "erasures": _erasures,
    "incidents": _incidents,
    "reviews": _reviews,
    "four_eyes": _four_eyes,
    "people": _people,
    "credentials": _credentials,
    "transfers": _transfers,
    "monitored": _monitored,
    "sinks": _sinks,
    "clock": _clock,
}


def _many(number: int, one: str, more: str = "") -> str:
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def _ago(known: Known, utc_us: int) -> str:
    for unit, length_us in (("days", DAY_US), ("hours", HOUR_US), ("minutes", HOUR_US // 60)):
        if known.now_us - utc_us >= 2 * length_us:
            return f"{(known.now_us - utc_us) // length_us} {unit} ago"
    return "just now"
