"""Times as people read them off clocks; for a time that occurs twice, which one is meant."""

from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo

from admin.forms import Form
from gateway.clock import SECOND_US
from gateway.errors import RequestInvalid
from gateway.oversight.searching import moment_us


FIRST_YEAR: Final = 1970
LAST_YEAR: Final = 9000
TURNS: Final = ("first", "second")
"""Of a time that clocks show twice: before they are put back, and after."""


def said_us(form: Form, name: str, now_us: int, zone: str) -> int:
    """A time of a form in microseconds UTC, or so long before now; 0 where it is empty.

    Which one is meant, of a time that is shown twice, stands in the field `NAME_turn`.

    Raises:
        RequestInvalid: it is none, or nobody says which of two it is.
    """
    text = form.text(name)
    if not text:
        return 0
    try:
        at_us = moment_us(text, now_us, zone)
    except ValueError:
        raise RequestInvalid("this is no date and time", parameter=name) from None
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return at_us
    return moment_of(text, zone, form.text(turn_field(name)), name)


def turn_field(name: str) -> str:
    """The field that says which of two moments another field's time means."""
    return f"{name}_turn"


def moment_of(text: str, zone: str, turn: str = "", parameter: str = "at") -> int:
    """Microseconds since 1970 of a time as a browser's field gives it, in this zone.

    `turn` is which one is meant, `first` or `second`, of a time that is shown twice where summer
    time ends.

    Raises:
        RequestInvalid: it is none, or of a year in which some zones have no such time, or in the
            hour that is left out where summer time begins, or nobody says which of two it is.
    """
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        message = "a time is written as 2026-11-30T14:05"
        raise RequestInvalid(message, parameter=parameter) from None
    if not FIRST_YEAR <= at.year <= LAST_YEAR:
        raise RequestInvalid(f"from the year {FIRST_YEAR} to {LAST_YEAR}", parameter=parameter)
    if at.tzinfo is not None:
        return int(at.timestamp() * SECOND_US)
    first, second = _both(at, zone)
    if first.astimezone(ZoneInfo(zone)).replace(tzinfo=None) != at:
        message = f"no clock in {zone} shows this time: they go forward then"
        raise RequestInvalid(message, parameter=parameter)
    if first != second and turn not in TURNS:
        message = f"clocks in {zone} show this time twice: say which of the two it is"
        raise RequestInvalid(message, parameter=parameter)
    meant = second if turn == TURNS[1] else first
    return int(meant.timestamp() * SECOND_US)


def turns_of(text: str, zone: str) -> list[tuple[str, str]]:
    """Both moments of a time that clocks of the zone show twice, to choose from; else nothing."""
    try:
        at = datetime.fromisoformat(text.strip())
        moment_of(text, zone, TURNS[0])
    except (ValueError, RequestInvalid):
        return []
    first, second = _both(at, zone)
    if at.tzinfo is not None or first == second:
        return []
    said = f"the first one, {first:%H:%M} UTC", f"the second one, {second:%H:%M} UTC"
    return [*zip(TURNS, said, strict=True)]


def _both(at: datetime, zone: str) -> tuple[datetime, datetime]:
    """A wall clock's time in UTC, before and after it is put back; the same where it is not."""
    first, second = (at.replace(tzinfo=ZoneInfo(zone), fold=fold) for fold in (0, 1))
    return first.astimezone(UTC), second.astimezone(UTC)
